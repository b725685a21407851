"""Attribute values as HLO text spells them: ``window={size=3x3 pad=1_1x1_1}``, ``replica_groups=[2,4]<=[8]``, and the like."""

import re
from collections.abc import Callable
from functools import lru_cache

from msgspec.structs import astuple

from ..ir.attributes import (
    Alias,
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
from ..ir.malformed import Malformed, excerpt
from ..ir.shapes import parse_shape, whole
from .lexing import STRING, attributes_of, find_attribute, split, unquote
from .literals import MAX_ELEMENTS, parse_literal

_REMEMBERED = 2**18  # cached attributes: several rules read each, and without a cache large programs take a tenth longer


def _integers(text: str) -> tuple[int, ...]:
    """``{0,1}``, or lists of such lists: ``{{0,1},{2}}``."""
    inner = braced(text)
    if "{" in inner:
        return tuple(_integers(item) for item in split(inner))  # type: ignore[misc]
    return tuple(whole(item) for item in inner.split(",")) if inner.strip() else ()


def braced(text: str) -> str:
    """The text between braces."""
    text = text.strip()
    if len(text) < 2 or text[0] != "{" or text[-1] != "}":
        raise Malformed(f"expected braces at {excerpt(text)}")
    return text[1:-1]


def _boolean(text: str) -> bool:
    if text not in ("true", "false", "1", "0"):
        raise Malformed(f"{excerpt(text)} is neither true nor false")
    return text in ("true", "1")


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise Malformed(f"not a number: {excerpt(text)}") from None


def _slices(text: str) -> tuple[SliceRange, ...]:
    """``{[0:8], [2:10:2]}``"""
    ranges = []
    for item in split(braced(text)):
        bounds = [whole(bound) for bound in item.strip("[] ").split(":")]
        if len(bounds) not in (2, 3):
            raise Malformed(f"not a range: {excerpt(item)}")
        ranges.append(SliceRange(*bounds))
    return tuple(ranges)


_WINDOW_FIELD = re.compile(r"(?<!\w)(\w++)=(\S++)")


def _window(text: str) -> Window:
    """``{size=3x3 stride=2x2 pad=1_1x0_1 lhs_dilate=1x2 rhs_dilate=1x1 rhs_reversal=0x1}``"""
    fields = {name: value.split("x") for name, value in _WINDOW_FIELD.findall(braced(text))}
    rank = max(map(len, fields.values()), default=0)
    if any(len(value) != rank for value in fields.values()):
        raise Malformed(f"a window of differing ranks: {excerpt(text)}")
    numbers = {name: [whole(item) for item in value] for name, value in fields.items() if name != "pad"}
    pads = [_pair(item) for item in fields.get("pad", ["0_0"] * rank)]
    ones, zeros = [1] * rank, [0] * rank
    return tuple(
        WindowDimension(size, stride, low, high, base, window, bool(turned))
        for size, stride, (low, high), base, window, turned in zip(
            numbers.get("size", ones),
            numbers.get("stride", ones),
            pads,
            numbers.get("lhs_dilate", ones),
            numbers.get("rhs_dilate", ones),
            numbers.get("rhs_reversal", zeros),
            strict=True,
        )
    )


def _pair(text: str) -> tuple[int, int]:
    low, _, high = text.partition("_")
    return whole(low), whole(high)


def _padding(text: str) -> tuple[PadRange, ...]:
    """``0_1x2_-1_1``: low, high and interior of each dimension; nothing for a scalar."""
    ranges = []
    for item in text.split("x") if text else ():
        numbers = [whole(number) for number in item.split("_")]
        if len(numbers) not in (2, 3):
            raise Malformed(f"not a padding: {excerpt(item)}")
        ranges.append(PadRange(*numbers))
    return tuple(ranges)


_DIM_LABELS = re.compile(r"([0-9bf?]+)_([0-9io?]+)->([0-9bf?]+)")


def parse_dim_labels(text: str) -> ConvolutionDimensions:
    """``b01f_01io->b01f``: a digit is a spatial dimension, ``b`` batch, ``f`` feature, ``i`` and ``o`` the kernel's features."""
    match = _DIM_LABELS.fullmatch(text)
    if match is None:
        raise Malformed(f"not the labels of a convolution: {excerpt(text)}")
    source, kernel, result = (match[part] for part in (1, 2, 3))
    return ConvolutionDimensions(
        input_batch=_label(source, "b"),
        input_feature=_label(source, "f"),
        input_spatial=_spatial(source),
        kernel_input_feature=_label(kernel, "i"),
        kernel_output_feature=_label(kernel, "o"),
        kernel_spatial=_spatial(kernel),
        output_batch=_label(result, "b"),
        output_feature=_label(result, "f"),
        output_spatial=_spatial(result),
    )


def _label(labels: str, label: str) -> int:
    if labels.count(label) != 1:
        raise Malformed(f"expected exactly one {label!r} in {excerpt(labels)}")
    return labels.index(label)


def _spatial(labels: str) -> tuple[int, ...]:
    digits = sorted(character for character in labels if character.isdigit())
    return tuple(_label(labels, digit) for digit in digits)


_GRID = re.compile(r"\[([\d,\s]*)\]\s*(?:T\(([\d,\s]*)\))?")
_IOTA = re.compile(r"\[([\d,\s]*)\]\s*<=\s*(\[.*)", re.DOTALL)
_AXIS = re.compile(r"'([^']*)'\s*=\s*(\d+)")
_ALONG = re.compile(r"'([^']*)'(?::\((\d+)\)(\d+))?")
_MESH = re.compile(r"mesh\[([^\]]*)\]\s*(?:,?\s*device_ids\s*=\s*\((.*?)\))?\s*\{([^{}]*)\}", re.DOTALL)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(whole(item) for item in text.split(",")) if text.strip() else ()


def parse_grid(text: str) -> DeviceGrid:
    """``[2,4]T(1,0)``"""
    match = _GRID.fullmatch(text.strip())
    if match is None:
        raise Malformed(f"not a grid of devices: {excerpt(text)}")
    return DeviceGrid(_numbers(match[1]), _numbers(match[2] or ""))


def parse_replica_groups(text: str) -> ReplicaGroups:
    """Replica groups in any of the three forms."""
    if text.startswith("{"):
        groups = _integers(text)
        nested = all(isinstance(group, tuple) for group in groups)
        return ReplicaGroups.of_lists(groups if nested else (groups,))  # type: ignore[arg-type]
    iota = _IOTA.fullmatch(text)
    if iota is not None:
        sizes = _numbers(iota[1])
        if len(sizes) != 2:
            raise Malformed(f"replica groups have a count and a size, not {excerpt(iota[1])}")
        return ReplicaGroups.of_grid(*sizes, parse_grid(iota[2]))
    mesh = _MESH.fullmatch(text)
    if mesh is None:
        raise Malformed(f"not replica groups: {excerpt(text)}")
    axes = tuple((name, whole(size)) for name, size in _AXIS.findall(mesh[1]))
    extents = dict(axes)
    along = []
    for name, before, part in _ALONG.findall(mesh[3]):
        if name not in extents:
            raise Malformed(f"the mesh has no axis {name!r}")
        along.append((name, whole(before or "1"), whole(part) if part else extents[name]))
    devices: tuple[int, ...] = ()
    if mesh[2]:
        devices = parse_grid(mesh[2]).devices if mesh[2].lstrip().startswith("[") else _numbers(mesh[2])
    return ReplicaGroups.of_mesh(Mesh(axes, tuple(along), devices))


# Strings are matched as a whole, so that no name is found inside one.
_METADATA = re.compile(rf"(?:(\w++)=)?(?:({STRING}|\{{[^{{}}\"]*+\}})|([^\s\"{{}}=]++))|(\")", re.DOTALL)
_KEPT: dict[str, Callable[[str], object]] = {
    **dict.fromkeys(("op_name", "source_file"), unquote),
    **dict.fromkeys(("source_line", "stack_frame_id"), whole),
}
# As XLA prints nearly all of it: without escapes, in this order.
_USUAL_METADATA = re.compile(
    r'\{op_name="([^"\\]*+)"(?: source_file="([^"\\]*+)")?(?: source_line=(\d{1,9}))?(?: source_\w+=\d+)*+(?: stack_frame_id=(\d{1,9}))?\}'
)


@lru_cache(maxsize=_REMEMBERED)
def parse_metadata(text: str) -> Metadata:
    """``{op_name="jit(f)/dot_general" source_file="m.py" source_line=3 stack_frame_id=7}``"""
    usual = _USUAL_METADATA.fullmatch(text)
    if usual is not None:
        name, file, line, frame = usual.groups("")
        return Metadata(op_name=name, source_file=file, source_line=int(line or 0), stack_frame_id=int(frame or 0))
    fields = _METADATA.findall(braced(text))
    if any(unclosed for _, _, _, unclosed in fields):
        raise Malformed(f"unterminated string in {excerpt(text)}")
    return Metadata(**{name: _KEPT[name](long or short) for name, long, short, _ in fields if name in _KEPT})  # type: ignore[arg-type]


def parse_frontend_attributes(text: str) -> dict[str, str]:
    """``{name="value",other={"raw": "dictionary"}}``"""
    inner = braced(text)
    return {name: unquote(inner[start:end].strip()) for name, start, end in attributes_of(inner)}


_ALIAS = re.compile(r"\{([\d,\s]*)\}\s*:\s*\(\s*(\d+)\s*,\s*\{([\d,\s]*)\}\s*(?:,\s*[a-z\-]+\s*)?\)")


def parse_aliases(text: str) -> tuple[Alias, ...]:
    """``{ {0}: (1, {}, may-alias), {1}: (2, {}, must-alias) }``"""
    return tuple(Alias(_numbers(out), whole(number), _numbers(index)) for out, number, index in _ALIAS.findall(text))


_INTEGER_LISTS = """
dimensions lhs_contracting_dims rhs_contracting_dims lhs_batch_dims rhs_batch_dims lhs_ragged_dims rhs_group_dims dynamic_slice_sizes
slice_sizes fft_length offset_dims collapsed_slice_dims start_index_map operand_batching_dims start_indices_batching_dims
update_window_dims inserted_window_dims scatter_dims_to_operand_dims input_batching_dims scatter_indices_batching_dims
"""
_INTEGERS = """
index iota_dimension feature_group_count batch_group_count channel_id index_vector_dim exponent_bits mantissa_bits feature_index delta
k inferred_dimension num_carries cross_program_prefetch_index parameter_number
"""
_BOOLEANS = """
is_stable is_host_transfer indices_are_sorted unique_indices use_global_device_ids constrain_layout custom_call_has_side_effect largest
lower left_side unit_diagonal is_composite is_reverse is_associative has_dynamic_root
"""
READERS: dict[str, Callable[[str], object]] = {
    **dict.fromkeys(_INTEGER_LISTS.split(), _integers),
    **dict.fromkeys(_INTEGERS.split(), whole),
    **dict.fromkeys(_BOOLEANS.split(), _boolean),
    "epsilon": _float,
    "slice": _slices,
    "window": _window,
    "dim_labels": parse_dim_labels,
    "padding": _padding,
    "replica_groups": parse_replica_groups,
    "source_target_pairs": lambda text: tuple(_integers(item) for item in split(braced(text))),
    "operand_precision": lambda text: tuple(unquote(item) for item in split(braced(text))),
    "metadata": parse_metadata,
    "frontend_attributes": parse_frontend_attributes,
    "output_to_operand_aliasing": lambda text: tuple(OperandAlias(*astuple(alias)) for alias in parse_aliases(text)),
    "operand_layout_constraints": lambda text: tuple(parse_shape(item, {}) for item in split(braced(text))),
    "outfeed_shape": lambda text: parse_shape(text, {}),
}


@lru_cache(maxsize=_REMEMBERED)
def read_attribute(text: str, name: str) -> object | None:
    """An attribute of an instruction, cached because several rules read the same one. One without a reader is its text, without quotes."""
    place = find_attribute(text, name)
    if place is None:
        return None
    start, end = place
    value = text[start:end]
    if name == "replica_groups" and value.startswith("mesh[") and "{" not in value:
        # The text of a mesh that lists its devices contains a comma: mesh['a'=2], device_ids=([2]) {'a'}.
        value = text[start : (find_attribute(text, "device_ids") or place)[1]]
    return READERS.get(name, unquote)(value.strip())


def read_literal(text: str, most: int = MAX_ELEMENTS) -> object | None:
    """The elements of a constant, kept as its element type, a blank, and its text."""
    dtype, _, body = text.partition(" ")
    return parse_literal(body, dtype, most)
