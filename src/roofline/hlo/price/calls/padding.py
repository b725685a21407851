"""Zeros that a compiler added to the operands of a library call, and results that it discards: work that is not part of the program.

Libraries require sizes that are multiples of 4, 8 or 16 and padding that is the same on both sides, so compilers pad operands with
zeros and slice the result. A product's FLOP are those of the program, so its operands are followed back through layout changes,
conversions and fusions to a pad with zeros. A pad that the program's author wrote counts as data.
"""

import re
from collections.abc import Iterator

from msgspec import Struct

from ...ir.shapes import Shape
from ...ir.values import Value, Values
from ..types import Site
from .traffic import output

_SAME_ELEMENTS = frozenset(("copy", "convert", "opt-barrier", "reduce-precision"))
# The framework's name of an operation that pads; a pad of the compiler's own is named after the product, or after its operand.
_AUTHORED = re.compile(r"/pad(?:v2)?\Z|constant_pad", re.IGNORECASE)
MOST_STEPS = 64  # instructions followed from a call back to a pad


class Extent(Struct, frozen=True):
    """The data along one dimension of a padded array: ``size`` elements, the first after ``low`` zeros, one every ``step`` positions."""

    size: int
    low: int = 0
    step: int = 1

    def inside(self, outer: "Extent") -> "Extent":
        """This extent, in the coordinates of a larger array in which ``outer`` is the extent of this one."""
        return Extent(self.size, outer.low + self.low * outer.step, self.step * outer.step)


Extents = tuple[Extent, ...]


def whole(shape: Shape) -> Extents:
    """All of an array."""
    return tuple(Extent(size) for size in shape.dims)


def sizes(site: Site, number: int) -> tuple[int, ...]:
    """The size of an operand along each dimension, without padding that the compiler added."""
    return tuple([extent.size for extent in extents(site, number)])


def extents(site: Site, number: int) -> Extents:
    """The extents of an operand without padding that the compiler added."""
    values, value = Values(site.module), Value(site.computation, site.instruction.operands[number])
    extents = whole(value.shape)
    if "pad" not in site.module.opcodes:
        return extents
    axes = tuple(range(len(extents)))  # axes[i] is the dimension of the present value that dimension i of the operand is
    for _ in range(MOST_STEPS):
        value = values.made_by(value)
        inner, order = _padded(values, value), _order(values, value)
        if order is None or (value.opcode == "pad" and inner is None):
            break
        if inner is not None:
            extents = tuple(inner[axis].inside(extent) for extent, axis in zip(extents, axes, strict=True))
        value, axes = values.operand(value, 0), tuple(order[axis] for axis in axes)
    return extents


def _order(values: Values, value: Value) -> tuple[int, ...] | None:
    """Which dimension of its first operand each dimension of a rearranged value is; ``None`` for any other value."""
    instruction, same = value.instruction, tuple(range(value.shape.rank))
    if instruction.opcode == "transpose":
        return instruction.dimensions
    if instruction.opcode == "bitcast":
        return _permutation(instruction.shape, values.operand(value, 0).shape)
    return same if instruction.opcode in _SAME_ELEMENTS or instruction.opcode == "pad" else None


def _permutation(shape: Shape, source: Shape) -> tuple[int, ...] | None:
    """The source's dimension for each dimension of a bitcast, matched by order in memory; ``None`` if it does more than permute them."""
    ours, theirs = _in_memory(shape), _in_memory(source)
    if [shape.dims[axis] for axis in ours] != [source.dims[axis] for axis in theirs] or shape.rank != source.rank:
        return None
    order = dict(zip(ours, theirs, strict=True))
    ones = (axis for axis in range(source.rank) if axis not in theirs)
    return tuple(order[axis] if axis in order else next(ones) for axis in range(shape.rank))


def _in_memory(shape: Shape) -> list[int]:
    """Dimensions longer than 1, from major to minor."""
    return [axis for axis in shape.major_to_minor if shape.dims[axis] != 1]


def _padded(values: Values, value: Value) -> Extents | None:
    """The extents of the data in a pad with zeros that the compiler added; ``None`` for other instructions."""
    instruction = value.instruction
    if instruction.opcode != "pad" or _AUTHORED.search(instruction.op_name):
        return None
    filling = values.origin(values.operand(value, 1), _SAME_ELEMENTS | {"bitcast"}).instruction
    sides = instruction.padding
    is_zero = filling.opcode == "constant" and filling.literal == (0,)
    if not is_zero or any(side.low < 0 or side.high < 0 or side.interior < 0 for side in sides):
        return None
    source = values.operand(value, 0).shape
    return tuple(Extent(size, side.low, side.interior + 1) for size, side in zip(source.dims, sides, strict=True))


def used_extents(site: Site) -> Extents:
    """The extents of a call's first result that the program uses: those of its slices, if all its uses are slices, else all of it."""
    result = output(site)
    uses = [*_uses(site)]
    if not uses or any(use.opcode != "slice" for use in uses):
        return whole(result)
    slices = [tuple(range(cut.start, cut.limit, cut.stride) for cut in use.instruction.slices) for use in uses]
    if any(len(cut) != result.rank or not all(cut) for cut in slices):
        return whole(result)
    lows = [min(side.start for side in sides) for sides in zip(*slices, strict=True)]
    ends = [max(side.stop for side in sides) for sides in zip(*slices, strict=True)]
    return tuple(Extent(end - low, low) for low, end in zip(lows, ends, strict=True))


def _uses(site: Site) -> Iterator[Value]:
    """The uses of the first result of a call, also inside fusions; the computation's root counts as a use."""
    values, computation = Values(site.module), site.computation
    own = next(index for index, instruction in enumerate(computation) if instruction is site.instruction)
    places = [own]
    if site.instruction.shape.is_tuple:
        places = [user for user in values.users(computation, own) if (computation[user].integer("index") or 0) == 0]
    for place in places:
        yield from values.uses(Value(computation, place))
        if place == computation.root:
            yield Value(computation, place)
