"""Attribute values from HloInstructionProto, under the names HLO text gives them. Field names and numbers are hlo.proto's."""

from collections.abc import Callable
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any

from ..ir.attributes import (
    ConvolutionDimensions,
    DeviceGrid,
    Mesh,
    Metadata,
    OperandAlias,
    PadRange,
    ReplicaGroups,
    SliceRange,
    Window,
    WindowDimension,
)
from ..ir.shapes import Shape
from .literals import MAX_ELEMENTS, MAX_TABLE, Element, decode_elements
from .proto_shapes import read_shape
from .proto_sharding import AXIS, MESH, Axes, Axis, part_of_axis, sharding_text
from .wire import unpack

# Enumerations of xla_data.proto and hlo.proto, as HLO text spells their members.
FFT_TYPES = ("FFT", "IFFT", "RFFT", "IRFFT")
DISTRIBUTIONS = ("rng_invalid", "rng_uniform", "rng_normal")
RNG_ALGORITHMS = ("rng_default", "rng_three_fry", "rng_philox")
PRECISIONS = ("default", "high", "highest")
_ALGORITHMS = """
unset dot_any_f8_any_f8_f32 dot_any_f8_any_f8_f32_fast_accum dot_f16_f16_f16 dot_f16_f16_f32 dot_bf16_bf16_bf16 dot_bf16_bf16_f32
dot_bf16_bf16_f32_x3 dot_bf16_bf16_f32_x6 dot_tf32_tf32_f32 dot_tf32_tf32_f32_x3 dot_f32_f32_f32 dot_f64_f64_f64
dot_bf16_bf16_f32_x9
"""
DOT_ALGORITHMS = tuple(_ALGORITHMS.split())
TRANSPOSES = ("TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")
PADDING_TYPES = ("PADDING_INVALID", "PADDING_VALID", "PADDING_SAME")
SCHEDULES = ("SCHEDULE_NONE", "SCHEDULE_LATEST", "SCHEDULE_EARLIEST")
API_VERSIONS = (
    "API_VERSION_UNSPECIFIED",
    "API_VERSION_ORIGINAL",
    "API_VERSION_STATUS_RETURNING",
    "API_VERSION_STATUS_RETURNING_UNIFIED",
    "API_VERSION_TYPED_FFI",
)
_GROUPED = """
all-reduce all-reduce-start all-gather all-gather-start all-to-all reduce-scatter collective-broadcast ragged-all-to-all collective-reduce
"""

Numbers = tuple[int, ...]
Rows = tuple[Numbers, ...]

_first = itemgetter(0)


def _first_of_first(message: "tuple[tuple[Any, ...], ...]") -> object:
    return message[0][0]


def _nonzero(number: int) -> int | None:
    """A number; ``None`` for 0, which means absent."""
    return number or None


def _inner_flag(message: Numbers) -> bool | None:
    return True if message[0] else None


def _word(words: tuple[str, ...], number: int) -> str:
    return words[number] if 0 <= number < len(words) else str(number)


def _some_word(words: tuple[str, ...], number: int) -> str | None:
    return _word(words, number) if number else None


def _window(message: tuple[Rows]) -> Window | None:
    window = [
        WindowDimension(size, stride or 1, low, high, base or 1, window or 1, turned != 0)
        for size, stride, low, high, base, window, turned in message[0]
    ]
    return tuple(window) or None


def _convolution(message: tuple[Any, ...]) -> ConvolutionDimensions:
    return ConvolutionDimensions(**dict(zip(ConvolutionDimensions.__struct_fields__, message, strict=True)))


def _precisions(message: tuple[Numbers]) -> tuple[str, ...] | None:
    """The precision of each operand; ``None`` if all are default, as in text."""
    return tuple([_word(PRECISIONS, number) for number in message[0]]) if any(message[0]) else None


def _listed_groups(lists: tuple[tuple[Numbers], ...]) -> ReplicaGroups:
    return ReplicaGroups.of_lists(tuple([devices for (devices,) in lists]))


def _iota_groups(message: tuple[int, int, Numbers, Numbers]) -> ReplicaGroups:
    count, size, reshape, order = message
    return ReplicaGroups.of_grid(count, size, DeviceGrid(reshape, order if len(reshape) > 1 else ()))


def _device_list(message: tuple[tuple[tuple[Numbers], ...], tuple[int, int, Numbers, Numbers] | None]) -> ReplicaGroups:
    lists, iota = message
    return _listed_groups(lists) if iota is None else _iota_groups(iota)


def _mesh_groups(message: tuple[tuple[Axes, Numbers, tuple[Numbers, Numbers] | None], tuple[Axis, ...]]) -> ReplicaGroups:
    (axes, devices, iota), along = message
    grid = None if iota is None else DeviceGrid(*iota)
    if not devices and grid is not None and len(grid.reshape) > 1:
        devices = grid.devices
    parts = [(*axes[number], before, size) for number, before, size in map(part_of_axis, along) if 0 <= number < len(axes)]
    return ReplicaGroups.of_mesh(Mesh(axes, tuple([(name, before, size or extent) for name, extent, before, size in parts]), devices))


def _metadata(message: tuple[str, str, int, int]) -> Metadata | None:
    if not any(message):
        return None
    op_name, source_file, source_line, frame = message
    return Metadata(op_name=op_name, source_file=source_file, source_line=source_line, stack_frame_id=frame)


def _shape(data: bytes) -> Shape:
    return read_shape(data, (0, len(data)), {})


# LiteralProto: the field with the elements of each type, as numbers or raw.
_LITERAL_PLANS = {
    "pred": "2i*",
    "u8": "3b*",
    "s32": "4i*",
    "s64": "5i*",
    "u32": "6i*",
    "u64": "7i*",
    "f32": "8f*",
    "f64": "9d*",
    "f16": "11b*",
    "c64": "12f*",
    "bf16": "13b*",
    "s8": "15b*",
    "u16": "16b*",
    "s16": "17b*",
    "c128": "18d*",
}


def read_literal(data: bytes, most: int = MAX_ELEMENTS) -> tuple[Element, ...] | None:
    """A LiteralProto's elements; ``None`` if they are many, not in row-major order, or of an unsupported format."""
    (place,) = unpack("1m", data)
    if place is None:
        return None
    shape = read_shape(data, place, {})
    plan = _LITERAL_PLANS.get(shape.dtype)
    if plan is None or not shape.is_bounded or shape.elements > most or shape.major_to_minor != tuple(range(shape.rank)):
        return None
    (stored,) = unpack(plan, data)
    values: tuple[Element, ...] = stored
    if "b" in plan:
        values = tuple(chain.from_iterable([decode_elements(part, shape, most) or () for part in stored]))
    elif shape.dtype in ("c64", "c128"):
        values = tuple([complex(*pair) for pair in zip(stored[::2], stored[1::2], strict=False)])
    elif shape.dtype == "pred":
        values = tuple([number != 0 for number in stored])
    elif shape.dtype == "u64":
        values = tuple([number % 2**64 for number in stored])
    return values if len(values) == shape.elements else None


# Name in text -> the field of HloInstructionProto with the same value.
PLAIN = {
    "parameter_number": "9i?",
    "kind": "11t?",
    "index": "13i?",
    "dimensions": "14i*?",
    "exponent_bits": "18i?",
    "mantissa_bits": "19i?",
    "dynamic_slice_sizes": "20i*?",
    "outfeed_config": "22t?",
    "epsilon": "24f?",
    "feature_index": "25i?",
    "infeed_config": "27t?",
    "custom_call_target": "28t?",
    "fft_length": "32i*?",
    "slice_sizes": "34i*?",
    "source_target_pairs": "52(1i 2i)*?",
    "direction": "63t?",
    "delta": "66i?",
    "type": "72t?",
    "async_execution_thread": "79t?",
    "cross_program_prefetch_index": "80i?",
    "k": "81i?",
    "num_carries": "95i?",
}
# Name in text -> fields in order of preference, each with a function from the field to the value.
MADE: "dict[str, tuple[tuple[str, Callable[[Any], object | None]], ...]]" = {
    # OpMetadata: op_name = 2, source_file = 3, source_line = 4, stack_frame_id = 15
    "metadata": (("7(2t 3t 4i 15i)?", _metadata),),
    "literal": (("8b?", read_literal),),
    "table": (("8b?", partial(read_literal, most=MAX_TABLE)),),
    # Window: size = 1, stride = 2, padding_low = 3, padding_high = 4, base_dilation = 6, window_dilation = 5, window_reversal = 7.
    "window": (("15(1(1i 2i 3i 4i 6i 5i 7i)*)?", _window),),
    # ConvolutionDimensionNumbers: batch, feature and spatial of the input; input, output and spatial of the kernel; and of the output.
    "dim_labels": (("16(7i 8i 11i* 3i 4i 6i* 9i 10i 12i*)?", _convolution),),
    "slice": (("17(1i 2i 3i)*?", lambda rows: tuple([SliceRange(start, limit, stride or 1) for start, limit, stride in rows])),),
    # edge_padding_low, edge_padding_high, interior_padding
    "padding": (("21(1(1i 2i 3i)*)?", lambda message: tuple([PadRange(*row) for row in message[0]])),),
    "distribution": (("23i?", partial(_word, DISTRIBUTIONS)),),
    "channel_id": (("26i?", _nonzero),),
    "outfeed_shape": (("29b?", _shape),),
    # DotDimensionNumbers = 30, which RaggedDotDimensionNumbers = 90 holds as its field 1.
    "lhs_contracting_dims": (("30(1i*)?", _first), ("90(1(1i*))?", _first_of_first)),
    "rhs_contracting_dims": (("30(2i*)?", _first), ("90(1(2i*))?", _first_of_first)),
    "lhs_batch_dims": (("30(3i*)?", _first), ("90(1(3i*))?", _first_of_first)),
    "rhs_batch_dims": (("30(4i*)?", _first), ("90(1(4i*))?", _first_of_first)),
    "lhs_ragged_dims": (("90(2i*)?", _first),),
    "rhs_group_dims": (("90(3i*)?", _first),),
    "fft_type": (("31i?", partial(_word, FFT_TYPES)),),
    "offset_dims": (("33(1i*)?", _first),),
    "collapsed_slice_dims": (("33(2i*)?", _first),),
    "start_index_map": (("33(3i*)?", _first),),
    "index_vector_dim": (("33(4i)?", _first), ("48(4i)?", _first)),
    "operand_batching_dims": (("33(5i*)?", _first),),
    "start_indices_batching_dims": (("33(6i*)?", _first),),
    "sharding": (("40b?", sharding_text),),
    "is_host_transfer": (("47i?", bool),),
    "update_window_dims": (("48(1i*)?", _first),),
    "inserted_window_dims": (("48(2i*)?", _first),),
    "scatter_dims_to_operand_dims": (("48(3i*)?", _first),),
    "input_batching_dims": (("48(5i*)?", _first),),
    "scatter_indices_batching_dims": (("48(6i*)?", _first),),
    # MeshAxesReplicaGroupListProto: mesh = 1, axes = 2. IotaReplicaGroupListProto: num_replica_groups = 1, num_devices_per_group = 2,
    # iota_reshape_dims = 3, iota_transpose_perm = 4. CollectiveDeviceListProto: replica_groups = 1, its older
    # iota_replica_group_list = 2. ReplicaGroup: replica_ids = 1.
    "replica_groups": (
        (f"93(1({MESH}) 2({AXIS})*)?", _mesh_groups),
        ("92(1i 2i 3i* 4i*)?", _iota_groups),
        ("87(1(1i*)* 2(1i 2i 3i* 4i*)?)?", _device_list),
        ("49(1i*)*?", _listed_groups),
    ),
    "feature_group_count": (("50i?", _nonzero),),
    # PrecisionConfig: operand_precision = 1, algorithm = 2.
    "operand_precision": (("51(1i*)?", _precisions),),
    "algorithm": (("70i?", partial(_word, RNG_ALGORITHMS)), ("51(2i)?", lambda message: _some_word(DOT_ALGORITHMS, message[0]))),
    "constrain_layout": (("56i?", bool),),
    "operand_layout_constraints": (("57b*?", lambda messages: tuple(map(_shape, messages))),),
    "batch_group_count": (("58i?", _nonzero),),
    # TriangularSolveOptions = 59, CholeskyOptions = 62.
    "left_side": (("59(1i)?", _inner_flag),),
    "lower": (("59(2i)?", _inner_flag), ("62(1i)?", _inner_flag)),
    "unit_diagonal": (("59(3i)?", _inner_flag),),
    "transpose_a": (("59(4i)?", lambda message: _word(TRANSPOSES, message[0])),),
    "is_stable": (("60i?", bool),),
    "custom_call_has_side_effect": (("65i?", bool),),
    "indices_are_sorted": (("67i?", bool),),
    "frontend_attributes": (("68(1(1t 2t)*)?", lambda message: dict(message[0]) or None),),
    "unique_indices": (("69i?", bool),),
    "use_global_device_ids": (("71i?", bool),),
    # OutputOperandAliasing: output_shape_index = 1, operand_index = 2, operand_shape_index = 3.
    "output_to_operand_aliasing": (("74(1i* 2i 3i*)*?", lambda rows: tuple([OperandAlias(*row) for row in rows])),),
    "padding_type": (("75i?", partial(_some_word, PADDING_TYPES)),),
    "schedule": (("76i?", partial(_some_word, SCHEDULES)),),
    "api_version": (("77i?", lambda number: _word(API_VERSIONS, number) if number > 1 else None),),  # text omits the original one too
    "largest": (("85i?", bool),),
    "is_composite": (("89i?", bool),),
    "is_reverse": (("94i?", bool),),
    "has_dynamic_root": (("100i?", bool),),
}
# Attributes that proto3 omits because they are 0, but that instructions of these opcodes always have.
ZEROES: dict[str, dict[str, object]] = {
    "index": {"get-tuple-element": 0},
    "parameter_number": {"parameter": 0},
    "fft_type": {"fft": "FFT"},
    "algorithm": {"rng-bit-generator": "rng_default"},
    "exponent_bits": {"reduce-precision": 0},
    "mantissa_bits": {"reduce-precision": 0},
    "delta": {"rng-get-and-update-state": 0},
    "num_carries": {"scan": 0},
    "k": {"topk": 0},
    "replica_groups": dict.fromkeys(_GROUPED.split(), ReplicaGroups.of_lists(())),
}
