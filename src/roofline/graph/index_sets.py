"""Which elements of an array are needed: all of it, boxes at known positions, and loose elements at unknown positions.

A slice needs a box; a gather needs a number of elements whose positions are known only at run time, in whole rows if it takes rows. Boxes
may overlap and have strides; the union of a few is counted exactly.

>>> halves = joined(boxed(((range(0, 6),),), (10,)), boxed(((range(4, 10),),), (10,)))
>>> count(halves, (10,)), count(loosely(3), (10,)), count(WHOLE, (10,))
(10, 3, 10)
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import combinations
from math import gcd, prod

from msgspec import Struct

Box = tuple[range, ...]
Dims = tuple[int, ...]
Axes = frozenset[int]
NO_AXES: Axes = frozenset()

MOST_BOXES = 8  # whose union is counted by inclusion and exclusion, over up to 2^8 intersections; further boxes count as disjoint


class Region(Struct, frozen=True):
    """Some elements of an array: all of it, or ``boxes`` and ``loose`` more elements, which extend over all of the dimensions ``lines``."""

    boxes: tuple[Box, ...] = ()
    loose: int = 0
    whole: bool = False
    lines: Axes = NO_AXES

    def __bool__(self) -> bool:
        return self.whole or bool(self.boxes) or self.loose > 0


NOTHING = Region()
WHOLE = Region(whole=True)


def loosely(elements: int, lines: Axes = NO_AXES) -> Region:
    """A number of elements at unknown positions, which extend over all of the dimensions ``lines``."""
    return Region(loose=max(0, elements), lines=lines)


def boxed(boxes: tuple[Box, ...], dims: Dims, loose: int = 0, lines: Axes = NO_AXES) -> Region:
    """The elements in these boxes of an array; `WHOLE` if one box covers it, without boxes that are empty."""
    kept = tuple(dict.fromkeys(box for box in boxes if all(box)))
    if any(all(len(side) >= size for side, size in zip(box, dims, strict=True)) for box in kept):
        return WHOLE
    return Region(kept, loose, lines=lines if loose else NO_AXES)


def joined(first: Region, other: Region) -> Region:
    """The union of two regions. Loose elements add up: an upper bound, which `count` limits to the size of the array."""
    if first.whole or other.whole:
        return WHOLE
    if not first or not other:
        return first or other
    boxes = tuple(dict.fromkeys(first.boxes + other.boxes))
    extra = sum(_size(box) for box in boxes[MOST_BOXES:])
    lines = [region.lines for region in (first, other) if region.loose]
    return Region(boxes[:MOST_BOXES], first.loose + other.loose + extra, lines=lines[0] & lines[-1] if lines and not extra else NO_AXES)


def count(region: Region, dims: Dims) -> int:
    """How many elements of an array of these dimensions the region holds."""
    size = prod(dims)
    if region.whole:
        return size
    return min(size, _union(region.boxes) + region.loose)


def full_box(dims: Dims) -> Box:
    """Every element, as a box."""
    return tuple(range(size) for size in dims)


def moved(
    region: Region, dims: Dims, step: Callable[[Box], Box | None], loose: int | None = None, lines: Iterable[int] = NO_AXES
) -> Region:
    """The region of another array: ``step`` maps each box to a box there, or to ``None`` if it has no elements there.

    ``dims`` are the other array's dimensions, ``loose`` the number of its loose elements (by default as many), and ``lines`` the dimensions
    over which they extend.
    """
    if region.whole:
        return WHOLE
    boxes = tuple(box for old in region.boxes if (box := step(old)) is not None)
    return boxed(boxes, dims, min(region.loose if loose is None else loose, prod(dims)), frozenset(lines))


def _size(box: Box) -> int:
    return prod(map(len, box))


def _union(boxes: tuple[Box, ...]) -> int:
    """How many elements lie in any of a few boxes, by inclusion and exclusion."""
    if len(boxes) < 2:
        return _size(boxes[0]) if boxes else 0
    total = 0
    for many in range(1, len(boxes) + 1):
        shared = sum(_size(box) for some in combinations(boxes, many) if (box := _common(some)))
        if not shared:
            break
        total += shared if many % 2 else -shared
    return total


def _common(boxes: tuple[Box, ...]) -> Box:
    """The elements in all of these boxes; empty when there are none."""
    shared = boxes[0]
    for box in boxes[1:]:
        shared = tuple(common(first, other) for first, other in zip(shared, box, strict=True))
        if not all(shared):
            return ()
    return shared


def common(left: range, right: range) -> range:
    """The numbers in both progressions.

    >>> common(range(0, 20, 2), range(1, 20, 3)), common(range(0, 9, 2), range(1, 9, 2))
    (range(4, 20, 6), range(0, 0))
    """
    if left.step == right.step == 1:
        return range(max(left.start, right.start), max(left.start, right.start, min(left.stop, right.stop)))
    shared = gcd(left.step, right.step)
    gap = right.start - left.start
    if gap % shared or not left or not right:
        return range(0)
    # one.start + one.step * n meets other.start modulo other.step: n is gap/shared times the inverse of one.step/shared.
    period = right.step // shared
    steps = gap // shared * pow(left.step // shared, -1, period) % period if period > 1 else 0
    step = left.step * period
    first = left.start + left.step * steps
    low = max(left.start, right.start)
    if first < low:
        first += -(-(low - first) // step) * step
    return range(first, max(first, min(left.stop, right.stop)), step)


def reshaped(box: Box, before: Dims, after: Dims) -> Box | None:
    """The box in an array of the same elements in the same order under other dimensions; ``None`` where it is not a box there.

    >>> reshaped((range(4, 8), range(16)), (8, 16), (2, 64))
    (range(1, 2), range(0, 64))
    >>> reshaped((range(2, 3), range(3)), (4, 6), (24,)), reshaped((range(4), range(3)), (4, 6), (24,))
    ((range(12, 15),), None)
    >>> reshaped((range(4), range(5, 6)), (4, 6), (24,)), reshaped((range(5, 24, 6),), (24,), (4, 6))
    ((range(5, 24, 6),), (range(0, 4), range(5, 6)))
    """
    if prod(before) != prod(after) or not prod(before):
        return None
    result: list[range] = []
    for here, there in runs(before, after):
        sides = _reshaped_run(box[here], before[here], after[there])
        if sides is None:
            return None
        result += sides
    return tuple(result)


def runs(before: Dims, after: Dims) -> Iterator[tuple[slice, slice]]:
    """The shortest runs of dimensions before and after a reshape that have equally many elements; none if the sizes differ.

    >>> [(here.stop, there.stop) for here, there in runs((16, 1024, 8), (16384, 8))]
    [(2, 1), (3, 2)]
    """
    if prod(before) != prod(after) or not prod(before):
        return
    left, right = 0, 0
    while left < len(before) or right < len(after):
        start, begin = left, right
        here, there = 1, 1
        while (left, right) == (start, begin) or here != there or (left < len(before) and before[left] == 1):
            if left < len(before) and (here <= there or right == len(after)):
                here *= before[left]
                left += 1
            else:
                there *= after[right]
                right += 1
        yield slice(start, left), slice(begin, right)


def reshaped_lines(lines: Axes, before: Dims, after: Dims) -> set[int]:
    """The dimensions ``lines`` after a reshape: those over all of which elements extend."""
    extended: set[int] = set()
    for here, there in runs(before, after):
        if all(axis in lines or before[axis] == 1 for axis in range(here.start, here.stop)):
            extended.update(range(there.start, there.stop))
    return extended


def _reshaped_run(sides: Box, before: Dims, after: Dims) -> Box | None:
    if all(len(side) == size for side, size in zip(sides, before, strict=True)):
        return full_box(after)
    kept = [side for side, size in zip(sides, before, strict=True) if size != 1]
    if len(kept) == 1 and sum(size != 1 for size in after) == 1:
        return tuple(kept[0] if size != 1 else range(1) for size in after)
    run = _interval(sides, before)
    return None if run is None else _box(run, after)


def _interval(sides: Box, dims: Dims) -> range | None:
    """The box as a range of row-major positions, if they are at equal distances."""
    first, length, step, stride = 0, 1, 1, 1
    for side, size in zip(reversed(sides), reversed(dims), strict=True):
        first += side.start * stride
        if len(side) > 1 and length > 1 and side.step * stride != step * length:
            return None
        if len(side) > 1:
            step = side.step * stride if length == 1 else step
            length *= len(side)
        stride *= size
    return range(first, first + length * step, step)


def _box(run: range, dims: Dims) -> Box | None:
    """A range of row-major positions as a box, if it is one."""
    start, length, step = run.start, len(run), run.step
    sides: list[range] = []
    for size in reversed(dims):
        here = start % size
        if length == 1 or step % size == 0:
            sides.append(range(here, here + 1))
            step = max(1, step // size)
        elif size % step == 0 and here < step and length % (size // step) == 0:
            sides.append(range(here, size, step))
            length //= size // step
            step = 1
        elif here + (length - 1) * step < size:
            sides.append(range(here, here + (length - 1) * step + 1, step))
            length, step = 1, 1
        else:
            return None
        start //= size
    return tuple(reversed(sides))
