"""Which axes of a value the program padded, and how much of each is data.

Arrays are padded by `pad`, by concatenating them with a constant, or by writing them into a constant array. The axes are followed through
other products, elementwise operations, reductions, and changes of layout.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from math import prod
from operator import itemgetter
from typing import NamedTuple

from ..ir.shapes import Shape
from ..price.elementwise import ELEMENTWISE
from .kernels import Product, product
from .values import Value, Values

_SAME = ELEMENTWISE | {"copy", "select", "optimization-barrier", "opt-barrier"}
_RESHAPES = frozenset(("reshape", "bitcast"))
_KEEPING = frozenset(("broadcast", "reduce", "slice", "dynamic-slice"))
PADDING_OPS = frozenset(("pad", "concatenate", "dynamic-update-slice", "scatter"))
_NEUTRAL = frozenset(("broadcast", "constant", "iota"))
_DEEPEST = 40
Key = tuple[str, int, str]  # of a value


class PaddedAxis(NamedTuple):
    """A padded axis: the share of it that is data, the source line that padded it, and the position of the data.

    The position is a share of the axis too, or the key of the update that wrote the data, if the position is not a constant. ``is_room``
    tells apart what several indices per row write, such as a token's expert and its place there.
    """

    share: float
    location: str
    place: float | Key = 0.0
    is_room: bool = False


Shares = dict[int, PaddedAxis]


def padded_axes(values: Values, value: Value, seen: dict[Key, Shares], depth: int = 0) -> Shares:
    """The axes of a value that were padded; ``seen`` caches the result of every value."""
    made = values.made_by(value)
    key = made.key
    if key not in seen:
        seen[key] = {}
        seen[key] = _find(values, made, seen, depth) if depth < _DEEPEST else {}
    return seen[key]


def _find(values: Values, made: Value, seen: dict[Key, Shares], depth: int) -> Shares:
    location = values.module.location(made.instruction) if made.opcode in PADDING_OPS else ""
    if made.opcode == "pad":
        interleaved = {axis for axis, side in enumerate(made.instruction.padding) if side.interior}  # another array may be interleaved
        found = _less(values.operand(made, 0).shape.dims, made.shape.dims, location)
        starts = [side.low / size for side, size in zip(made.instruction.padding, made.shape.dims, strict=True)]
        return {axis: padded._replace(place=starts[axis]) for axis, padded in found.items() if axis not in interleaved}
    if made.opcode == "scatter" and _is_constant(values, values.operand(made, 0)):
        return _scattered(made, values.operand(made, 2).shape, location)
    if made.opcode == "dynamic-update-slice" and _is_constant(values, values.operand(made, 0)):
        found = _less(values.operand(made, 1).shape.dims, made.shape.dims, location)
        return {axis: padded._replace(place=_written_at(values, made, axis)) for axis, padded in found.items()}
    if made.opcode == "dynamic-update-slice":
        inner, new = padded_axes(values, values.operand(made, 0), seen, depth + 1), values.operand(made, 1).shape.dims
        written = _less(new, made.shape.dims, location)
        return {
            axis: _together(padded, written[axis]._replace(place=_written_at(values, made, axis)))
            for axis, padded in inner.items()
            if axis in written
        }
    if made.opcode == "concatenate":
        return _concatenated(values, made, location)
    if made.opcode == "transpose":
        inner = padded_axes(values, values.operand(made, 0), seen, depth + 1)
        return {axis: inner[old] for axis, old in enumerate(made.instruction.dimensions) if old in inner}
    if made.opcode in _RESHAPES:
        before = values.operand(made, 0)
        inner = padded_axes(values, before, seen, depth + 1) if before.shape.is_array else {}
        return reshaped(before.shape, made.shape, inner, by_storage=made.opcode == "bitcast")
    if made.opcode in _KEEPING:
        inner = padded_axes(values, values.operand(made, 0), seen, depth + 1)
        return kept(made, values.operand(made, 0).shape, inner) if inner else {}
    if made.opcode in _SAME:
        return _of_elements(values, made, seen, depth)
    inside = product(values, made)
    return _of_product(values, inside, seen, depth) if inside is not None and not inside.groups else {}


def _of_elements(values: Values, made: Value, seen: dict[Key, Shares], depth: int) -> Shares:
    """The padded axes of an elementwise result: those that all operands have, for a multiplication those that any has.

    An operand that is constant along an axis (a bias, a maximum) counts as data there.
    """
    found: Shares | None = None
    for operand in values.operands(made):
        if not operand.shape.is_array or operand.shape.dims != made.shape.dims or values.origin(operand).opcode in _NEUTRAL:
            continue
        axes = padded_axes(values, operand, seen, depth + 1)
        if found is None or made.opcode == "multiply":
            found = {**axes, **{axis: min(padded, axes.get(axis, padded), key=_share) for axis, padded in (found or {}).items()}}
        else:
            found = {axis: _together(padded, axes[axis]) for axis, padded in found.items() if axis in axes}
    return found or {}


def _share(axis: PaddedAxis) -> float:
    return axis.share


def _together(one: PaddedAxis, other: PaddedAxis) -> PaddedAxis:
    """An axis with the data of both, which add up if their positions differ, such as parts of an array in its gradient."""
    longer, both = max(one, other, key=_share), min(one.share + other.share, 1.0)
    if one.place == other.place:
        return longer
    if isinstance(one.place, float) and isinstance(other.place, float):
        start = min(one.place, other.place)
        end = max(one.place + one.share, other.place + other.share)
        return longer._replace(share=min(both, end - start), place=start)
    return longer._replace(share=both)


def _written_at(values: Values, made: Value, axis: int) -> float | Key:
    """Where an update writes along an axis: a share of the axis if it is a constant, else the key of the update."""
    if made.opcode == "dynamic-update-slice" and len(made.instruction.operands) == 2 + len(made.shape.dims):
        start = values.origin(values.operand(made, 2 + axis)).instruction
        if start.opcode == "constant" and start.literal:
            return int(start.literal[0].real) / made.shape.dims[axis]
    return made.key


def _concatenated(values: Values, made: Value, location: str) -> Shares:
    """The axis of a concatenation, if some of the arrays are constants."""
    axis = made.instruction.dimensions[0]
    parts = [(one.shape.dims[axis], _is_constant(values, one)) for one in values.operands(made)]
    filler = sum(size for size, constant in parts if constant)
    if not filler:
        return {}
    before = sum(size for size, _ in takewhile(itemgetter(1), parts))
    return {axis: PaddedAxis(1 - filler / made.shape.dims[axis], location, before / made.shape.dims[axis])}


def _less(data: Sequence[int], whole: Sequence[int], location: str) -> Shares:
    if len(data) != len(whole):
        return {}
    return {axis: PaddedAxis(old / new, location) for axis, (old, new) in enumerate(zip(data, whole, strict=True)) if old < new}


def _scattered(made: Value, updates: Shape, location: str) -> Shares:
    """The axes of which a scatter into a constant array leaves a part, as it writes too few rows; with several indices per row, which
    select a group and a place in it, the largest axis.
    """
    scatter, dims = made.instruction, made.shape.dims
    windows, batch = scatter.integers("update_window_dims"), scatter.integers("input_batching_dims")
    absent = {*scatter.integers("inserted_window_dims"), *batch}
    sizes = dict(zip([axis for axis in range(len(dims)) if axis not in absent], [updates.dims[place] for place in windows], strict=True))
    indexed = [axis for axis in scatter.integers("scatter_dims_to_operand_dims") if dims[axis] > 1]
    others = [(axis, size / dims[axis]) for axis, size in sizes.items() if axis not in indexed]
    found = {axis: PaddedAxis(share, location, made.key) for axis, share in others if share < 1}
    rows = prod(size for place, size in enumerate(updates.dims) if place not in windows) / prod(dims[axis] for axis in batch)
    filled = rows * prod(sizes.get(axis, 1) for axis in indexed) / prod(dims[axis] for axis in indexed)
    if indexed and filled < 1:
        is_room = len(indexed) > 1
        place = 0.0 if is_room else made.key  # rows and their gradients are in the same places
        found[max(indexed, key=dims.__getitem__)] = PaddedAxis(filled, location, place, is_room)
    return found


def _is_constant(values: Values, value: Value) -> bool:
    """Whether a value is a constant, or selects from constants, as zeros that JAX differentiates a scatter into."""
    made = values.origin(value, _RESHAPES | {"broadcast", "convert", "copy"})
    return made.opcode == "constant" or (made.opcode == "select" and all(_is_constant(values, one) for one in values.operands(made)[1:]))


def kept(made: Value, before: Shape, inner: Shares) -> Shares:
    """The padded axes that a broadcast, a reduction or a slice keeps."""
    dimensions = made.instruction.dimensions
    if made.opcode == "broadcast":
        return {dimensions[axis]: padded for axis, padded in inner.items() if axis < len(dimensions)}
    if made.opcode == "reduce":
        left = [axis for axis in range(len(before.dims)) if axis not in dimensions]
        return {place: inner[axis] for place, axis in enumerate(left) if axis in inner}
    same = len(before.dims) == len(made.shape.dims)
    return {axis: padded for axis, padded in inner.items() if same and before.dims[axis] == made.shape.dims[axis]}


def reshaped(before: Shape, after: Shape, shares: Shares, *, by_storage: bool) -> Shares:
    """The padded axes of an array after a reshape: for axes that were merged or split, the share of their group is on its largest axis.

    A bitcast keeps the order of the elements in memory, a reshape that of the dimensions.
    """
    if not shares or (before.dims == after.dims and not by_storage):
        return shares
    ours, theirs = (shape.major_to_minor if by_storage else range(shape.rank) for shape in (before, after))
    found: Shares = {}
    for old, new in _groups([before.dims[axis] for axis in ours], [after.dims[axis] for axis in theirs]):
        mine = [shares[ours[place]] for place in old if ours[place] in shares]
        if mine and new:
            largest = max((theirs[place] for place in new), key=after.dims.__getitem__)
            found[largest] = mine[0]._replace(share=prod(one.share for one in mine))
    return found


def _groups(before: Sequence[int], after: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """The groups of axes before and after a reshape that have the same elements."""
    old, new, one, other = list[int](), list[int](), 1, 1
    left, right = iter(range(len(before))), iter(range(len(after)))
    while True:
        if one <= other:
            axis = next(left, None)
            if axis is None:
                break
            old.append(axis)
            one *= before[axis]
        else:
            axis = next(right, None)
            if axis is None:
                break
            new.append(axis)
            other *= after[axis]
        if one == other and new:
            yield old, new
            old, new, one, other = [], [], 1, 1
    if old and new:
        yield old, new


def _of_product(values: Values, found: Product, seen: dict[Key, Shares], depth: int) -> Shares:
    """The padded axes of a product's result: its batch, the free axes of its left operand, then those of its right."""
    left, right = (padded_axes(values, side, seen, depth + 1) for side in (found.left, found.right))
    axes = [left.get(axis) for axis in (*found.dims.lhs_batch, *free_axes(found.left, found.dims.lhs_contracting, found.dims.lhs_batch))]
    axes += [right.get(axis) for axis in free_axes(found.right, found.dims.rhs_contracting, found.dims.rhs_batch)]
    return {axis: padded for axis, padded in enumerate(axes) if padded is not None}


def free_axes(side: Value, contracting: tuple[int, ...], batch: tuple[int, ...]) -> list[int]:
    return [axis for axis in range(len(side.shape.dims)) if axis not in (*contracting, *batch)]


def share_of(shares: Shares, axes: Iterable[int]) -> float:
    """The share of an array that is data, as far as these axes of it were padded."""
    return prod(shares[axis].share for axis in axes if axis in shares)
