"""Attribute values from HloInstructionProto, under the names HLO text gives them. Field names and numbers are hlo.proto's."""

import struct
from collections.abc import Callable
from functools import partial

from .literals import MAX_ELEMENTS, Element, decode_elements
from .protoshapes import read_shape
from .sharding import read_axis, read_mesh, sharding_text
from .values import (
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
from .wire import BYTES, FIXED32, VARINT, Field, all_numbers, expect, fields, fixed_of, last_fields, number_of, numbers_of, text_of

# Enumerations of xla_data.proto and hlo.proto, as HLO text spells their members.
FFT_TYPES = ("FFT", "IFFT", "RFFT", "IRFFT")
DISTRIBUTIONS = ("rng_invalid", "rng_uniform", "rng_normal")
RNG_ALGORITHMS = ("rng_default", "rng_three_fry", "rng_philox")
PRECISIONS = ("default", "high", "highest")
DOT_ALGORITHMS = (
    "unset",
    "dot_any_f8_any_f8_f32",
    "dot_any_f8_any_f8_f32_fast_accum",
    "dot_f16_f16_f16",
    "dot_f16_f16_f32",
    "dot_bf16_bf16_bf16",
    "dot_bf16_bf16_f32",
    "dot_bf16_bf16_f32_x3",
    "dot_bf16_bf16_f32_x6",
    "dot_tf32_tf32_f32",
    "dot_tf32_tf32_f32_x3",
    "dot_f32_f32_f32",
    "dot_f64_f64_f64",
    "dot_bf16_bf16_f32_x9",
)
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

Reader = Callable[[bytes, list[Field]], object | None]


def _integers(data: bytes, found: list[Field]) -> tuple[int, ...]:
    return tuple(number for field in found for number in numbers_of(data, field))


def _integer(data: bytes, found: list[Field]) -> int:
    return number_of(found[-1])


def _some_integer(data: bytes, found: list[Field]) -> int | None:
    """A number for which 0 means that there is none."""
    return number_of(found[-1]) or None


def _flag(data: bytes, found: list[Field]) -> bool:
    return number_of(found[-1]) != 0


def _text(data: bytes, found: list[Field]) -> str:
    return text_of(data, found[-1])


def _word(words: tuple[str, ...], data: bytes, found: list[Field]) -> str:
    number = number_of(found[-1])
    return words[number] if 0 <= number < len(words) else str(number)


def _some_word(words: tuple[str, ...], data: bytes, found: list[Field]) -> str | None:
    return _word(words, data, found) if number_of(found[-1]) else None


def _api_version(data: bytes, found: list[Field]) -> str | None:
    """The version of a custom call's interface; the original one goes without saying, as in text."""
    return _word(API_VERSIONS, data, found) if number_of(found[-1]) > 1 else None


def _inner(data: bytes, found: list[Field]) -> tuple[int, int]:
    expect(found[-1], BYTES)
    return found[-1][2], found[-1][3]


def _inner_integers(number: int, data: bytes, found: list[Field]) -> tuple[int, ...]:
    return all_numbers(data, *_inner(data, found), number)[number]


def _inner_integer(number: int, data: bytes, found: list[Field]) -> int:
    return (_inner_integers(number, data, found) or (0,))[-1]


def _inner_flag(number: int, data: bytes, found: list[Field]) -> bool | None:
    return True if any(_inner_integers(number, data, found)) else None


def _ragged_integers(number: int, data: bytes, found: list[Field]) -> tuple[int, ...]:
    """RaggedDotDimensionNumbers: dot_dimension_numbers = 1."""
    dot = [field for field in fields(data, *_inner(data, found)) if field[0] == 1]
    return _inner_integers(number, data, dot) if dot else ()


def _messages(data: bytes, found: list[Field], *numbers: int) -> list[list[int]]:
    """Number fields of repeated messages, 0 where they are absent."""
    rows = []
    for field in found:
        expect(field, BYTES)
        single = last_fields(data, field[2], field[3])
        rows.append([number_of(single[number]) if number in single else 0 for number in numbers])
    return rows


def _slices(data: bytes, found: list[Field]) -> tuple[SliceRange, ...]:
    return tuple(SliceRange(start, limit, stride or 1) for start, limit, stride in _messages(data, found, 1, 2, 3))


def _pairs(data: bytes, found: list[Field]) -> tuple[tuple[int, ...], ...]:
    return tuple((source, target) for source, target in _messages(data, found, 1, 2))


def _dimensions_of(data: bytes, found: list[Field]) -> list[Field]:
    return [field for field in fields(data, *_inner(data, found)) if field[0] == 1]


def _padding(data: bytes, found: list[Field]) -> tuple[PadRange, ...]:
    """PaddingConfig: edge_padding_low = 1, edge_padding_high = 2, interior_padding = 3."""
    return tuple(PadRange(low, high, interior) for low, high, interior in _messages(data, _dimensions_of(data, found), 1, 2, 3))


def _window(data: bytes, found: list[Field]) -> Window | None:
    """Window: size = 1, stride = 2, padding_low = 3, padding_high = 4, window_dilation = 5, base_dilation = 6, window_reversal = 7."""
    rows = _messages(data, _dimensions_of(data, found), 1, 2, 3, 4, 6, 5, 7)
    window = tuple(
        WindowDimension(size, stride or 1, low, high, base or 1, window or 1, bool(turned))
        for size, stride, low, high, base, window, turned in rows
    )
    return window or None


def _convolution(data: bytes, found: list[Field]) -> ConvolutionDimensions:
    """ConvolutionDimensionNumbers, whose numbers are as scattered as below."""
    lists = all_numbers(data, *_inner(data, found), 3, 4, 6, 7, 8, 9, 10, 11, 12)
    one = {number: (values or (0,))[-1] for number, values in lists.items()}
    return ConvolutionDimensions(
        input_batch=one[7],
        input_feature=one[8],
        input_spatial=lists[11],
        kernel_input_feature=one[3],
        kernel_output_feature=one[4],
        kernel_spatial=lists[6],
        output_batch=one[9],
        output_feature=one[10],
        output_spatial=lists[12],
    )


def _precisions(data: bytes, found: list[Field]) -> tuple[str, ...] | None:
    """PrecisionConfig.operand_precision = 1; nothing when all are default, as in text."""
    numbers = _inner_integers(1, data, found)
    if not any(numbers):
        return None
    return tuple(PRECISIONS[number] if 0 <= number < len(PRECISIONS) else str(number) for number in numbers)


def _dot_algorithm(data: bytes, found: list[Field]) -> str | None:
    """PrecisionConfig.algorithm = 2"""
    number = _inner_integer(2, data, found)
    return (DOT_ALGORITHMS[number] if 0 < number < len(DOT_ALGORITHMS) else str(number)) if number else None


def _listed_groups(data: bytes, found: list[Field]) -> ReplicaGroups:
    """Repeated ReplicaGroup: replica_ids = 1."""
    groups = []
    for field in found:
        expect(field, BYTES)
        groups.append(all_numbers(data, field[2], field[3], 1)[1])
    return ReplicaGroups.of_lists(tuple(groups))


def _device_list(data: bytes, found: list[Field]) -> ReplicaGroups:
    """CollectiveDeviceListProto: replica_groups = 1; its older iota_replica_group_list = 2."""
    inner = list(fields(data, *_inner(data, found)))
    iota = [field for field in inner if field[0] == 2]
    return _iota_groups(data, iota) if iota else _listed_groups(data, [field for field in inner if field[0] == 1])


def _iota_groups(data: bytes, found: list[Field]) -> ReplicaGroups:
    """IotaReplicaGroupListProto: num_replica_groups = 1, num_devices_per_group = 2, iota_reshape_dims = 3, iota_transpose_perm = 4."""
    lists = all_numbers(data, *_inner(data, found), 1, 2, 3, 4)
    order = lists[4] if len(lists[3]) > 1 else ()
    return ReplicaGroups.of_grid((lists[1] or (0,))[-1], (lists[2] or (0,))[-1], DeviceGrid(lists[3], order))


def _mesh_groups(data: bytes, found: list[Field]) -> ReplicaGroups:
    """MeshAxesReplicaGroupListProto: mesh = 1, axes = 2."""
    axes: tuple[tuple[str, int], ...] = ()
    devices: tuple[int, ...] = ()
    along = []
    for field in fields(data, *_inner(data, found)):
        if field[0] == 1:
            axes, devices, grid = read_mesh(data, field)
            devices = devices or (grid.devices if grid is not None and len(grid.reshape) > 1 else ())
        elif field[0] == 2:
            along.append(read_axis(data, field))
    parts = tuple((*axes[number], before, size) for number, before, size in along if 0 <= number < len(axes))
    return ReplicaGroups.of_mesh(Mesh(axes, tuple((name, before, size or extent) for name, extent, before, size in parts), devices))


def read_metadata(data: bytes, found: list[Field]) -> Metadata | None:
    """OpMetadata: op_type = 1, op_name = 2, source_file = 3, source_line = 4, and the numbers below."""
    single = last_fields(data, *_inner(data, found))
    if not single:
        return None
    # deduplicated_name = 12, stack_frame_id = 15, scheduling_name = 16
    words = {number: text_of(data, single[number]) if number in single else "" for number in (1, 2, 3, 12, 16)}
    return Metadata(
        op_name=words[2],
        op_type=words[1],
        source_file=words[3],
        source_line=number_of(single[4]) if 4 in single else 0,
        stack_frame_id=number_of(single[15]) if 15 in single else 0,
        scheduling_name=words[16],
        deduplicated_name=words[12],
    )


def read_map(data: bytes, found: list[Field]) -> dict[str, str]:
    """FrontendAttributes: a map from string to string, its entries = 1."""
    pairs = {}
    for entry in fields(data, *_inner(data, found)):
        if entry[0] == 1:
            expect(entry, BYTES)
            single = last_fields(data, entry[2], entry[3])
            pairs[text_of(data, single[1]) if 1 in single else ""] = text_of(data, single[2]) if 2 in single else ""
    return pairs


def _operand_aliases(data: bytes, found: list[Field]) -> tuple[OperandAlias, ...]:
    """OutputOperandAliasing: output_shape_index = 1, operand_index = 2, operand_shape_index = 3."""
    aliases = []
    for field in found:
        expect(field, BYTES)
        lists = all_numbers(data, field[2], field[3], 1, 2, 3)
        aliases.append(OperandAlias(lists[1], (lists[2] or (0,))[-1], lists[3]))
    return tuple(aliases)


def _shapes(data: bytes, found: list[Field]) -> tuple[object, ...]:
    return tuple(read_shape(data, field, {}) for field in found)


# LiteralProto: which field holds the elements of each type, and how: varints, floats, doubles, or raw bytes.
_LITERAL_FIELDS = {
    "pred": (2, "varint"),
    "u8": (3, "bytes"),
    "s32": (4, "varint"),
    "s64": (5, "varint"),
    "u32": (6, "varint"),
    "u64": (7, "unsigned"),
    "f32": (8, "f"),
    "f64": (9, "d"),
    "f16": (11, "bytes"),
    "c64": (12, "f"),
    "bf16": (13, "bytes"),
    "s8": (15, "bytes"),
    "u16": (16, "bytes"),
    "s16": (17, "bytes"),
    "c128": (18, "d"),
}


def read_literal(data: bytes, found: list[Field]) -> tuple[Element, ...] | None:
    """A LiteralProto's elements; ``None`` when they are many, in an odd order, or of a format nobody needs."""
    parts = list(fields(data, *_inner(data, found)))
    shapes = [field for field in parts if field[0] == 1]
    if not shapes:
        return None
    shape = read_shape(data, shapes[-1], {})
    order = shape.layout.minor_to_major if shape.layout is not None else ()
    if (
        shape.dtype not in _LITERAL_FIELDS
        or not shape.is_bounded
        or shape.elements > MAX_ELEMENTS
        or list(order) != sorted(order, reverse=True)
    ):
        return None
    number, how = _LITERAL_FIELDS[shape.dtype]
    values: list[Element] = []
    for field in parts:
        if field[0] != number:
            continue
        if how in ("f", "d"):
            flat = fixed_of(data, field, how)
            values += [complex(*pair) for pair in zip(flat[::2], flat[1::2], strict=False)] if shape.dtype[0] == "c" else flat
        elif how == "bytes":
            expect(field, BYTES)
            values += decode_elements(data[field[2] : field[3]], shape) or ()
        else:
            integers = numbers_of(data, field)
            values += (
                [value != 0 for value in integers]
                if shape.dtype == "pred"
                else [value % 2**64 if how == "unsigned" else value for value in integers]
            )
    return tuple(values) if len(values) == shape.elements else None


def _epsilon(data: bytes, found: list[Field]) -> float:
    expect(found[-1], FIXED32)
    return float(struct.unpack("<f", data[found[-1][2] : found[-1][3]])[0])


def _sharding(data: bytes, found: list[Field]) -> str:
    return sharding_text(data, *_inner(data, found))


# Name in text: fields of HloInstructionProto in order of preference, each with its reader.
READERS: dict[str, tuple[tuple[int, Reader], ...]] = {
    "metadata": ((7, read_metadata),),
    "literal": ((8, read_literal),),
    "parameter_number": ((9, _integer),),
    "kind": ((11, _text),),
    "index": ((13, _integer),),
    "dimensions": ((14, _integers),),
    "window": ((15, _window),),
    "dim_labels": ((16, _convolution),),
    "slice": ((17, _slices),),
    "exponent_bits": ((18, _integer),),
    "mantissa_bits": ((19, _integer),),
    "dynamic_slice_sizes": ((20, _integers),),
    "padding": ((21, _padding),),
    "outfeed_config": ((22, _text),),
    "distribution": ((23, partial(_word, DISTRIBUTIONS)),),
    "epsilon": ((24, _epsilon),),
    "feature_index": ((25, _integer),),
    "channel_id": ((26, _some_integer),),
    "infeed_config": ((27, _text),),
    "custom_call_target": ((28, _text),),
    "outfeed_shape": ((29, lambda data, found: read_shape(data, found[-1], {})),),
    "lhs_contracting_dims": ((30, partial(_inner_integers, 1)), (90, partial(_ragged_integers, 1))),
    "rhs_contracting_dims": ((30, partial(_inner_integers, 2)), (90, partial(_ragged_integers, 2))),
    "lhs_batch_dims": ((30, partial(_inner_integers, 3)), (90, partial(_ragged_integers, 3))),
    "rhs_batch_dims": ((30, partial(_inner_integers, 4)), (90, partial(_ragged_integers, 4))),
    "lhs_ragged_dims": ((90, partial(_inner_integers, 2)),),
    "rhs_group_dims": ((90, partial(_inner_integers, 3)),),
    "fft_type": ((31, partial(_word, FFT_TYPES)),),
    "fft_length": ((32, _integers),),
    "offset_dims": ((33, partial(_inner_integers, 1)),),
    "collapsed_slice_dims": ((33, partial(_inner_integers, 2)),),
    "start_index_map": ((33, partial(_inner_integers, 3)),),
    "index_vector_dim": ((33, partial(_inner_integer, 4)), (48, partial(_inner_integer, 4))),
    "operand_batching_dims": ((33, partial(_inner_integers, 5)),),
    "start_indices_batching_dims": ((33, partial(_inner_integers, 6)),),
    "slice_sizes": ((34, _integers),),
    "sharding": ((40, _sharding),),
    "is_host_transfer": ((47, _flag),),
    "update_window_dims": ((48, partial(_inner_integers, 1)),),
    "inserted_window_dims": ((48, partial(_inner_integers, 2)),),
    "scatter_dims_to_operand_dims": ((48, partial(_inner_integers, 3)),),
    "input_batching_dims": ((48, partial(_inner_integers, 5)),),
    "scatter_indices_batching_dims": ((48, partial(_inner_integers, 6)),),
    "replica_groups": ((93, _mesh_groups), (92, _iota_groups), (87, _device_list), (49, _listed_groups)),
    "feature_group_count": ((50, _some_integer),),
    "operand_precision": ((51, _precisions),),
    "algorithm": ((70, partial(_word, RNG_ALGORITHMS)), (51, _dot_algorithm)),
    "source_target_pairs": ((52, _pairs),),
    "constrain_layout": ((56, _flag),),
    "operand_layout_constraints": ((57, _shapes),),
    "batch_group_count": ((58, _some_integer),),
    "left_side": ((59, partial(_inner_flag, 1)),),
    "lower": ((59, partial(_inner_flag, 2)), (62, partial(_inner_flag, 1))),
    "unit_diagonal": ((59, partial(_inner_flag, 3)),),
    "transpose_a": ((59, lambda data, found: _word(TRANSPOSES, data, [(4, VARINT, _inner_integer(4, data, found), 0)])),),
    "is_stable": ((60, _flag),),
    "direction": ((63, _text),),
    "custom_call_has_side_effect": ((65, _flag),),
    "delta": ((66, _integer),),
    "indices_are_sorted": ((67, _flag),),
    "frontend_attributes": ((68, lambda data, found: read_map(data, found) or None),),
    "unique_indices": ((69, _flag),),
    "use_global_device_ids": ((71, _flag),),
    "type": ((72, _text),),
    "output_to_operand_aliasing": ((74, _operand_aliases),),
    "padding_type": ((75, partial(_some_word, PADDING_TYPES)),),
    "schedule": ((76, partial(_some_word, SCHEDULES)),),
    "api_version": ((77, _api_version),),
    "async_execution_thread": ((79, _text),),
    "cross_program_prefetch_index": ((80, _integer),),
    "k": ((81, _integer),),
    "largest": ((85, _flag),),
    "is_composite": ((89, _flag),),
    "is_reverse": ((94, _flag),),
    "num_carries": ((95, _integer),),
    "has_dynamic_root": ((100, _flag),),
}
# What proto3 leaves out because it is 0, though the instruction means it.
ZEROES: dict[tuple[str, str], object] = {
    ("get-tuple-element", "index"): 0,
    ("parameter", "parameter_number"): 0,
    ("fft", "fft_type"): "FFT",
    ("rng-bit-generator", "algorithm"): "rng_default",
    ("reduce-precision", "exponent_bits"): 0,
    ("reduce-precision", "mantissa_bits"): 0,
    ("rng-get-and-update-state", "delta"): 0,
    ("scan", "num_carries"): 0,
    ("topk", "k"): 0,
    **{(opcode, "replica_groups"): ReplicaGroups.of_lists(()) for opcode in _GROUPED.split()},
}
