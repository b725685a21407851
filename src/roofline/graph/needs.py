"""Which elements of its operands an operator needs, if only some of its result is needed, from its axes and shapes.

Elementwise work before a slice is needed for the slice alone. What cannot be exact over-estimates: it is the whole operand, or a number of
elements at unknown positions.
"""

from collections.abc import Sequence
from math import prod

from .axes import IndexMap, Part
from .index_sets import NO_AXES, WHOLE, Axes, Box, Dims, Region, common, count, full_box, loosely, moved, reshaped, reshaped_lines


def along_axes(axes: IndexMap, operands: Sequence[Dims], result: Dims, region: Region) -> tuple[Region, ...]:
    """The part of each operand that lies along the axes of a region of the result."""
    if region.whole:
        region = Region((full_box(result),))
    return tuple([_along(axes, place, dims, result, region) for place, dims in enumerate(operands)])


def _along(axes: IndexMap, operand: int, dims: Dims, result: Dims, region: Region) -> Region:
    """The part of an operand that a region of the result needs. Axes that are not the result's are needed whole."""
    if not dims:
        return WHOLE
    parts = [axes.parts.get((operand, axis)) for axis in range(len(dims))]
    places = [None if part and part.taken is None else place for part, place in zip(parts, axes.axis_of(operand), strict=True)]
    sides = [*zip(places, parts, dims, strict=True)]

    def back(box: Box) -> Box:
        return tuple(range(size) if place is None else _taken(box[place], part) for place, part, size in sides)

    own = {place for place, _, _ in sides if place is not None}
    line = prod(size for place, _, size in sides if place is None)
    repeats = prod(size for axis, size in enumerate(result) if axis in region.lines and axis not in own)
    if len({place for place, _ in axes.parts}) > 1:  # operands side by side: elements at unknown positions are divided among them by size
        cut = [(size, result[part.result]) for _, part, size in sides if part and part.taken is not None]
    else:
        cut = []
    divided = max(1, repeats * prod(whole for _, whole in cut))
    loose = -(-region.loose * prod(size for size, _ in cut) // divided) * line
    lines = [axis for axis, (place, part, _) in enumerate(sides) if place is None or (part is None and place in region.lines)]
    return moved(region, dims, back, loose, lines)


def _taken(side: range, part: Part | None) -> range:
    """The elements of an operand's axis that are these of the result's, in order."""
    if part is None or part.taken is None:
        return side
    kept = common(side, part.placed)
    if not kept:
        return range(0)
    # `common` steps by a multiple of either step, so these divisions are exact.
    first, last = ((place - part.placed.start) // part.placed.step for place in (kept.start, kept[-1]))
    taken = part.taken[first : last + 1 : max(1, kept.step // part.placed.step)]
    return taken if taken.step > 0 else taken[::-1]


def renamed(region: Region, result: Dims, source: Dims, orders: tuple[Sequence[int], Sequence[int]]) -> Region:
    """The same elements under other axes, in the same order; ``orders`` are the axes of the result and of the source, major to minor.

    Between number formats of different sizes it is the same fraction.
    """
    if region.whole:
        return WHOLE
    here, there = orders
    before, after = tuple(result[axis] for axis in here), tuple(source[axis] for axis in there)
    if prod(before) != prod(after):
        return loosely(-(-count(region, result) * prod(after) // max(1, prod(before))))
    boxes, loose = [], region.loose
    for box in region.boxes:
        sides = reshaped(tuple(box[axis] for axis in here), before, after)
        if sides is None:
            loose += prod(map(len, box))
        else:
            boxes.append(tuple(sides[there.index(axis)] for axis in range(len(there))))
    lines = reshaped_lines(frozenset(map(here.index, region.lines)), before, after) if loose == region.loose else ()
    return moved(Region(tuple(boxes), loose), source, lambda box: box, lines=[there[place] for place in lines])


def at_unknown_place(part: Dims, whole: Dims, lines: Axes, region: Region) -> Region:
    """A part of an array at a position that is computed at run time; along ``lines`` it has the whole array."""
    taken = count(region, part)
    return WHOLE if taken >= prod(whole) else loosely(taken, lines if region.whole else NO_AXES)


def taken_whole(part: Dims, whole: Dims) -> Axes:
    """The axes of an array that slices of as many axes take whole, whatever their positions are."""
    return frozenset(axis for axis, (taken, size) in enumerate(zip(part, whole, strict=False)) if taken == size)


def overwritten(target: Dims, update: Dims, region: Region) -> tuple[Region, Region]:
    """The part of an array that an update does not overwrite, and the update."""
    total, written, wanted = prod(target), prod(update), count(region, target)
    kept = loosely(total - written) if region.whole else loosely(min(wanted, total - written))
    return kept, WHOLE if region.whole or wanted >= written else loosely(wanted)


def gathered(table: Dims, slices: Dims, indices: Dims, result: Dims, region: Region) -> tuple[Region, Region]:
    """The slices of a table that are gathered, and their positions."""
    taken, elements, places = count(region, result), max(1, prod(slices)), prod(indices)
    rows = max(1, prod(result) // elements)
    lines = taken_whole(slices, table) if region.whole else NO_AXES
    positions = WHOLE if region.whole else loosely(min(places, taken * -(-places // rows)))
    return loosely(min(prod(table), taken), lines), positions
