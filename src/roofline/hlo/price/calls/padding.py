"""Zeros that a compiler added to the operands of a library call, and results that it discards: work that is not part of the program.

Libraries require sizes that are multiples of 4, 8 or 16 and padding that is the same on both sides, so compilers pad operands with
zeros and slice the result. A product's FLOP are those of the program, so its operands are followed back through layout changes,
conversions and fusions to a pad with zeros. A pad that the program's author wrote counts as data.
"""

import re

from msgspec import Struct

from ...ir.module import Computation, HloModule, Instruction
from ...ir.shapes import Shape
from ..types import Site
from .traffic import output

_SAME_ELEMENTS = ("copy", "convert", "opt-barrier", "reduce-precision")
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


class _Value(Struct, frozen=True):
    """An instruction's value, or a part of its tuple, in a computation that others called."""

    computation: Computation
    instruction: Instruction
    part: int | None = None
    caller: "_Value | None" = None

    def operand(self, number: int, part: int | None = None) -> "_Value | None":
        if number >= len(self.instruction.operands):
            return None
        return _Value(self.computation, self.computation[self.instruction.operands[number]], part, self.caller)

    @property
    def shape(self) -> Shape:
        shape = self.instruction.shape
        return shape if self.part is None or self.part >= len(shape.parts) else shape.parts[self.part]


def sizes(site: Site, number: int) -> tuple[int, ...]:
    """The size of an operand along each dimension, without padding that the compiler added."""
    if "pad" not in site.module.opcodes and number < len(site.instruction.operands):
        return site.computation[site.instruction.operands[number]].shape.dims
    return tuple([extent.size for extent in extents(site, number)])


def extents(site: Site, number: int) -> Extents:
    """The extents of an operand without padding that the compiler added."""
    value: _Value | None = _Value(site.computation, site.instruction).operand(number)
    if value is None:
        return ()
    shape = value.shape
    if "pad" not in site.module.opcodes:
        return whole(shape)
    found = list(whole(shape))
    axes = list(range(shape.rank))  # axes[i] is the dimension of the present value that dimension i of the operand is
    for _ in range(MOST_STEPS):
        if value.instruction.opcode == "pad" and value.part is None:
            inner = _pad(value)
            if inner is None:
                break
            found = [inner[axis].inside(extent) for extent, axis in zip(found, axes, strict=True)]
        moved = _step(site.module, value)
        if moved is None:
            break
        value, order = moved
        if value is None or value.shape.rank != len(axes):
            break
        axes = [order[axis] for axis in axes]
    return tuple(found)


def _step(module: HloModule, value: _Value) -> tuple[_Value | None, tuple[int, ...]] | None:
    """The value that this one is a rearrangement of, and which of its dimensions each of these is; ``None`` when it is none."""
    instruction, rank = value.instruction, value.shape.rank
    same = tuple(range(rank))
    opcode = instruction.opcode
    if opcode == "get-tuple-element":
        return value.operand(0, instruction.integer("index", 0)), same
    if opcode == "tuple" and value.part is not None:
        return value.operand(value.part), same
    if opcode == "fusion":
        return _body(module, value), same
    if opcode == "parameter":
        outer = _passed(value)
        return (outer, same) if outer is not None else None
    if opcode in (*_SAME_ELEMENTS, "pad"):
        return value.operand(0), same
    if opcode == "transpose" and sorted(instruction.dimensions) == list(same):
        return value.operand(0), instruction.dimensions
    if opcode == "bitcast" and (source := value.operand(0)) is not None:
        order = _permutation(instruction.shape, source.shape)
        return (source, order) if order is not None else None
    return None


def _passed(parameter: _Value) -> _Value | None:
    """The caller's operand for a parameter."""
    if parameter.caller is None:
        return None
    places = parameter.computation.parameters
    return next(
        (parameter.caller.operand(n) for n, place in enumerate(places) if parameter.computation[place] is parameter.instruction), None
    )


def _body(module: HloModule, value: _Value) -> _Value | None:
    """The root of a fusion's body."""
    called = value.instruction.called("calls")
    if len(called) != 1:
        return None
    body = module.computations[called[0]]
    return _Value(body, body.root_instruction, value.part, value)


def _permutation(shape: Shape, source: Shape) -> tuple[int, ...] | None:
    """The source's dimension for each dimension of a bitcast, matched by order in memory; ``None`` if it does more than permute them."""
    mine, theirs = _in_memory(shape), _in_memory(source)
    if [shape.dims[axis] for axis in mine] != [source.dims[axis] for axis in theirs] or shape.rank != source.rank:
        return None
    order = dict(zip(mine, theirs, strict=True))
    ones = (axis for axis in range(source.rank) if axis not in theirs)
    return tuple(order[axis] if axis in order else next(ones) for axis in range(shape.rank))


def _in_memory(shape: Shape) -> list[int]:
    """Dimensions longer than 1, from major to minor."""
    return [axis for axis in shape.major_to_minor if shape.dims[axis] != 1]


def _pad(value: _Value) -> Extents | None:
    """The extents of the data in a pad with zeros that the compiler added; ``None`` for other instructions."""
    instruction, source, filling = value.instruction, value.operand(0), value.operand(1)
    sides = instruction.padding
    if (
        _AUTHORED.search(instruction.op_name)
        or source is None
        or filling is None
        or len(sides) != source.shape.rank
        or not _is_zero(filling)
    ):
        return None
    if any(side.low < 0 or side.high < 0 or side.interior < 0 for side in sides):
        return None
    return tuple(Extent(size, side.low, side.interior + 1) for size, side in zip(source.shape.dims, sides, strict=True))


def _is_zero(value: _Value | None) -> bool:
    """Whether a scalar is a constant 0."""
    for _ in range(MOST_STEPS):
        if value is None or value.instruction.opcode == "constant":
            break
        if value.instruction.opcode == "parameter":
            value = _passed(value)
        elif value.instruction.opcode in ("bitcast", *_SAME_ELEMENTS):
            value = value.operand(0)
        else:
            return False
    return value is not None and value.instruction.literal == (0,)


def used_extents(site: Site) -> Extents:
    """The extents of a call's first result that the program uses: those of its slices, if all its uses are slices, else all of it."""
    made = output(site)
    slices: list[tuple[range, ...]] = []
    for held in _values_of(site):
        cuts = _cuts(site, held, made.rank)
        if cuts is None:
            return whole(made)
        slices += cuts
    if not slices:
        return whole(made)
    lows = [min(side.start for side in sides) for sides in zip(*slices, strict=True)]
    ends = [max(side.stop for side in sides) for sides in zip(*slices, strict=True)]
    return tuple(Extent(end - low, low) for low, end in zip(lows, ends, strict=True))


def _values_of(site: Site) -> list[int]:
    """The instructions whose value is the first result of a call."""
    own = next(index for index, one in enumerate(site.computation) if one.name == site.instruction.name)
    if not site.instruction.shape.is_tuple:
        return [own]
    return [
        index
        for index, one in enumerate(site.computation)
        if one.opcode == "get-tuple-element" and one.operands == (own,) and one.integer("index", 0) == 0
    ]


def _cuts(site: Site, value: int, rank: int) -> list[tuple[range, ...]] | None:
    """The ranges that each slice of a value takes; ``None`` if it has other uses."""
    if site.computation.root == value:
        return None
    slices: list[Instruction] = []
    for user in site.computation:
        if value not in user.operands:
            continue
        taken = [user] if user.opcode == "slice" else _inside(site.module, user, value)
        if not taken:
            return None
        slices += taken
    cuts = [tuple(range(cut.start, cut.limit, cut.stride) for cut in one.slices) for one in slices]
    return cuts if all(len(cut) == rank and all(side.start < side.stop for side in cut) for cut in cuts) else None


def _inside(module: HloModule, fusion: Instruction, value: int) -> list[Instruction]:
    """The slices that a fusion takes of one of its operands; none if it is not a fusion, or uses the operand otherwise."""
    called = fusion.called("calls")
    if fusion.opcode != "fusion" or len(called) != 1:
        return []
    body = module.computations[called[0]]
    found: list[Instruction] = []
    for place, one in enumerate(fusion.operands):
        if one != value:
            continue
        users = [user for user in body if place < len(body.parameters) and body.parameters[place] in user.operands]
        if not users or any(user.opcode != "slice" for user in users):
            return []
        found += users
    return found
