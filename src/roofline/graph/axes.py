"""What an operator does to the axes of its arrays: which axes of operands and results are the same, summed, cut or mixed.

Each axis is a product of factors, major to minor, and axes with a factor in common are the same there. A product
C[b,m,n] = A[b,m,k] B[b,k,n] has the factors b, m, n and k: part of C along m needs that part of A alone, a device that has part of A has
that part of C, and where m grows, it grows in both.

>>> axes = product((8, 32), (32, 16), (), [(1, 0)])
>>> axes.operands, axes.results, axes.sizes, axes.summed
([[(0,), (1,)], [(1,), (3,)]], [[(0,), (3,)]], [8, 32, 32, 16], {1})
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from itertools import product as product_of
from math import prod

from msgspec import Struct, field

Dims = tuple[int, ...]
Factors = tuple[int, ...]
Pairs = Sequence[tuple[int, int]]


class Part(Struct, frozen=True):
    """What an axis of an operand has to do with the axis ``result`` of the result, where they are not the same.

    Elements ``taken`` of the operand are the elements ``placed`` of the result; without them, each may depend on all, as after a sort.
    """

    result: int
    taken: range | None = None
    placed: range = range(0)


class IndexMap(Struct):
    """The factors of an operator: their sizes, and those of each axis of each operand and result.

    ``summed`` factors are of operands alone, over which the result is a sum. ``whole`` factors cannot be split: an element along them may
    depend on several of the operand. ``parts`` are those of operands' axes, by operand and axis.
    """

    sizes: list[int] = field(default_factory=list)
    operands: list[list[Factors]] = field(default_factory=list)
    results: list[list[Factors]] = field(default_factory=list)
    summed: set[int] = field(default_factory=set)
    whole: set[int] = field(default_factory=set)
    parts: dict[tuple[int, int], Part] = field(default_factory=dict)

    def new(self, size: int, *, whole: bool = False) -> Factors:
        """An axis of a new factor."""
        self.sizes.append(size)
        if whole:
            self.whole.add(len(self.sizes) - 1)
        return (len(self.sizes) - 1,)

    def split(self, dims: Dims) -> list[Factors]:
        """The axes of an array, each a new factor."""
        return [self.new(size) for size in dims]

    def unsplit(self, dims: Dims) -> list[Factors]:
        """The axes of an array, each a new factor that cannot be split."""
        return [self.new(size, whole=True) for size in dims]

    def dims(self, array: list[Factors]) -> Dims:
        return tuple([prod([self.sizes[factor] for factor in factors]) for factors in array])

    def axis_of(self, operand: int) -> list[int | None]:
        """For each axis of an operand, the axis of the first result that it is, or is a part of."""
        where = {factors: axis for axis, factors in enumerate(self.results[0]) if factors}
        parts = self.parts
        return [
            parts[operand, axis].result if (operand, axis) in parts else where.get(factors)
            for axis, factors in enumerate(self.operands[operand])
        ]


def elementwise(operands: Sequence[Dims], result: Dims, count: int = 1) -> IndexMap:
    """``count`` arrays of one shape, each element of elements at its place.

    An operand with fewer axes has the last ones, and one with a single element along an axis is repeated along it; any other is whole.
    """
    axes = IndexMap()
    same = axes.split(result)
    axes.results = [same] * count
    axes.operands = [_repeated(axes, dims, result, same) for dims in operands]
    return axes


def _repeated(axes: IndexMap, dims: Dims, result: Dims, same: list[Factors]) -> list[Factors]:
    more = len(result) - len(dims)
    if dims == result:
        return same
    if more < 0 or any(size not in (1, whole) for size, whole in zip(dims, result[more:], strict=True)):
        return axes.unsplit(dims)
    return [same[more + axis] if size == result[more + axis] else axes.new(size, whole=True) for axis, size in enumerate(dims)]


def generated(operands: Sequence[Dims], results: Sequence[Dims]) -> IndexMap:
    """Arrays that are made of nothing, or of numbers that have no axes."""
    axes = IndexMap()
    axes.operands, axes.results = [axes.unsplit(dims) for dims in operands], [axes.split(dims) for dims in results]
    return axes


def broadcast(operand: Dims, result: Dims, places: Sequence[int | None]) -> IndexMap:
    """Each axis of the operand is the one of the result in ``places``, or is not known there, or has one element that is repeated."""
    axes = IndexMap()
    spread = axes.split(result)
    kept = {axis: place for axis, place in enumerate(places) if place is not None and result[place] == operand[axis]}
    axes.operands = [[spread[kept[axis]] if axis in kept else axes.new(size, whole=True) for axis, size in enumerate(operand)]]
    axes.results = [spread]
    return axes


def transposed(operand: Dims, order: Sequence[int]) -> IndexMap:
    axes = IndexMap()
    before = axes.split(operand)
    axes.operands, axes.results = [before], [[before[axis] for axis in order]]
    return axes


def reshaped(operand: Dims, result: Dims, orders: tuple[Sequence[int], Sequence[int]] | None = None) -> IndexMap:
    """The same elements in the same order: row-major, or of arrays whose axes have these ``orders`` in memory, major to minor.

    IndexMap are factored as far as their sizes divide each other.
    """
    before, after = orders or (range(len(operand)), range(len(result)))
    axes = IndexMap(operands=[[()] * len(operand)], results=[[()] * len(result)])
    sides = ((axes.operands[0], rest := list(operand)), (axes.results[0], left := list(result)))
    i = j = 0
    while i < len(before) and j < len(after):
        here, there = before[i], after[j]
        small, large = sorted((rest[here], left[there]))
        if small == 1:
            i, j = i + (rest[here] == 1), j + (left[there] == 1)
            continue
        if small < 1 or large % small:
            break
        for (factors, sizes), axis in zip(sides, (here, there), strict=True):
            factors[axis] = (*factors[axis], len(axes.sizes))
            sizes[axis] //= small
        axes.new(small)
    for factors, sizes in sides:
        for axis, size in enumerate(sizes):
            if size != 1:
                factors[axis] = (*factors[axis], *axes.new(size, whole=True))
    return axes


def reduced(operands: Sequence[Dims], gone: Collection[int]) -> IndexMap:
    """Sums along axes that the results do not have: of the first half of the operands, to which those of the other half are added."""
    axes, count = IndexMap(), len(operands) // 2
    dims = axes.split(operands[0])
    axes.summed = {*chain(*(dims[axis] for axis in gone))}
    axes.operands = [dims] * count + [axes.unsplit(start) for start in operands[count:]]
    axes.results = [[factors for axis, factors in enumerate(dims) if axis not in gone]] * count
    return axes


def product(
    left: Dims, right: Dims, batch: Pairs, contracted: Pairs, groups: Collection[int] = (), *, by_group: int | None = None
) -> IndexMap:
    """A product of matrices; a result's axes are batches, then the left's free ones, then the right's.

    Ragged products have a matrix of the right for each group of rows of the left (``groups`` are the right's axes that count them), or
    sum each group to a matrix of its own, of ``by_group`` such groups.
    """
    axes = IndexMap()
    left_axes, right_axes = axes.split(left), axes.split(right)
    for our, other in (*batch, *contracted):
        right_axes[other] = left_axes[our]
    batches, sums = ([left_axes[our] for our, _ in pairs] for pairs in (batch, contracted))
    axes.summed = {*chain(*sums)}
    paired = [*batches, *sums, *(right_axes[axis] for axis in groups)]
    free = [factors for factors in (*left_axes, *right_axes) if factors not in paired]
    per_group = [] if by_group is None else [axes.new(by_group)]
    axes.operands, axes.results = [left_axes, right_axes], [[*per_group, *batches, *free]]
    return axes


class Convolved(Struct, frozen=True, kw_only=True):
    """Which axes of a convolution's input, kernel and output are the batch, the features and the positions."""

    batch: tuple[int, int]  # of input and output
    contracted: tuple[int, int]  # features of input and kernel
    features: tuple[int, int]  # of kernel and output
    positions: Pairs  # of input and output


def convolution(inputs: Dims, kernel: Dims, output: Dims, labels: Convolved, *, is_grouped: bool, is_batched: bool) -> IndexMap:
    """Batches and features as in a product, unless features (``is_grouped``) or batches (``is_batched``) are in groups."""
    axes = IndexMap()
    left, right, result = (axes.unsplit(dims) for dims in (inputs, kernel, output))
    axes.operands, axes.results = [left, right], [result]
    axes.parts = {(0, axis): Part(place) for axis, place in labels.positions}
    if is_batched:
        return axes
    left[labels.batch[0]] = result[labels.batch[1]] = axes.new(inputs[labels.batch[0]])
    if not is_grouped:
        right[labels.features[0]] = result[labels.features[1]] = axes.new(output[labels.features[1]])
        left[labels.contracted[0]] = right[labels.contracted[1]] = axes.new(inputs[labels.contracted[0]])
        axes.summed = {*left[labels.contracted[0]]}
    return axes


def aligned(
    operands: Sequence[Dims], result: Dims, parts: Mapping[tuple[int, int], Part], changed: Collection[int] = (), count: int = 1
) -> IndexMap:
    """Axes of operands and of ``count`` results are the same by their number, unless they are ``changed`` or have a part."""
    axes = IndexMap(parts=dict(parts))
    touched = {
        *changed,
        *(axis for _, axis in parts),
        *(axis for axis, (a, b) in enumerate(zip(operands[0], result, strict=True)) if a != b),
    }
    kept = [axes.new(size, whole=axis in touched) for axis, size in enumerate(result)]

    def like(dims: Dims) -> list[Factors]:
        if len(dims) != len(kept):
            return axes.unsplit(dims)
        return [axes.new(size, whole=True) if axis in touched else kept[axis] for axis, size in enumerate(dims)]

    axes.operands, axes.results = [like(dims) for dims in operands], [kept] * count
    return axes


def mixed(operands: Sequence[Dims], result: Dims, along: Iterable[int], count: int = 1) -> IndexMap:
    """Elements along some axes may depend on all along them, as in a sort, a transform or a window."""
    ranked = [place for place, dims in enumerate(operands) if len(dims) == len(result)]
    return aligned(operands, result, {(place, axis): Part(axis) for axis, place in product_of(along, ranked)}, count=count)


def sliced(operand: Dims, taken: Sequence[range]) -> IndexMap:
    parts = {(0, axis): Part(axis, side, range(len(side))) for axis, side in enumerate(taken) if side != range(operand[axis])}
    return aligned([operand], tuple(map(len, taken)), parts)


def padded(operand: Dims, edges: Sequence[tuple[int, int, int]]) -> IndexMap:
    """With elements added before, after and between those of each axis."""
    parts = {
        (0, axis): Part(axis, range(size), range(low, low + (size - 1) * (inner + 1) + 1, inner + 1))
        for axis, (size, (low, high, inner)) in enumerate(zip(operand, edges, strict=True))
        if low or high or inner
    }
    sizes = (size + low + high + max(size - 1, 0) * inner for size, (low, high, inner) in zip(operand, edges, strict=True))
    return aligned([operand], tuple(sizes), parts)


def backwards(operand: Dims, along: Iterable[int]) -> IndexMap:
    return aligned([operand], operand, {(0, axis): Part(axis, range(operand[axis])[::-1], range(operand[axis])) for axis in along})


def concatenated(operands: Sequence[Dims], axis: int) -> IndexMap:
    parts, size = {}, 0
    for place, dims in enumerate(operands):
        parts[place, axis] = Part(axis, range(dims[axis]), range(size, size + dims[axis]))
        size += dims[axis]
    return aligned(operands, (*operands[0][:axis], size, *operands[0][axis + 1 :]), parts)


def updated(operands: Sequence[Dims]) -> IndexMap:
    """The first operand with the second one in its place somewhere: axes that it covers are its own."""
    axes = IndexMap()
    target, update = operands[:2]
    kept = [axes.new(size, whole=size != part) for size, part in zip(target, update, strict=True)]
    taken = [factors if axes.sizes[factors[0]] == part else axes.new(part, whole=True) for factors, part in zip(kept, update, strict=True)]
    axes.operands, axes.results = [kept, taken], [kept]
    return axes


class Rows(Struct, frozen=True, kw_only=True):
    """How indices name slices of a table: ``vector`` is the axis of the indices along which one place is, ``batching`` are axes that table
    and indices share. Of the slices' ``sizes``, axes in ``dropped`` are no axes of the other array; the others are its axes ``windows``.
    """

    vector: int
    batching: Pairs
    windows: Collection[int]
    dropped: Collection[int]


def _indexed(axes: IndexMap, table: Dims, indices: Dims, rows: Rows) -> tuple[list[Factors], list[Factors], list[Factors]]:
    """The axes of a table and of its indices; then those that enumerate rows."""
    ours, numbers = axes.split(table), axes.split(indices)
    if rows.vector < len(indices):
        numbers[rows.vector] = axes.new(indices[rows.vector], whole=True)
    for own, other in rows.batching:
        ours[own] = numbers[other]
    return ours, numbers, [factors for axis, factors in enumerate(numbers) if axis != rows.vector]


def _slices(
    axes: IndexMap, table: Dims, ours: list[Factors], sizes: Mapping[int, int], of_rows: list[Factors], rows: Rows
) -> list[Factors]:
    """The axes of slices of a table, with these sizes along its axes: those that they take whole are the table's."""
    kept, enumerated = iter(sizes.items()), iter(of_rows)
    slices = []
    for place in range(len(of_rows) + len(rows.windows)):
        if place not in rows.windows:
            slices.append(next(enumerated))
            continue
        axis, size = next(kept)
        if size == table[axis]:
            slices.append(ours[axis])
        else:
            axes.whole.update(ours[axis])
            slices.append(axes.new(size, whole=True))
    return slices


def gathered(table: Dims, indices: Dims, sizes: Sequence[int], rows: Rows) -> IndexMap:
    """Slices of a table. One that is split by rows gives partial sums: rows that a device does not have are zero there."""
    axes, batched = IndexMap(), {own for own, _ in rows.batching}
    ours, numbers, of_rows = _indexed(axes, table, indices, rows)
    axes.summed = {*chain(*(ours[axis] for axis in rows.dropped if table[axis] != 1))}
    kept = {axis: size for axis, size in enumerate(sizes) if axis not in rows.dropped and axis not in batched}
    axes.operands, axes.results = [ours, numbers], [_slices(axes, table, ours, kept, of_rows, rows)]
    return axes


def scattered(tables: Sequence[Dims], indices: Dims, updates: Dims, rows: Rows) -> IndexMap:
    """Slices that are added to tables: split over devices they give partial sums; a table can only be split within rows."""
    axes, table, batched = IndexMap(), tables[0], {own for own, _ in rows.batching}
    ours, numbers, of_rows = _indexed(axes, table, indices, rows)
    kept = [axis for axis in range(len(table)) if axis not in rows.dropped and axis not in batched]
    sizes = dict(zip(kept, (updates[place] for place in sorted(rows.windows)), strict=True))
    slices = _slices(axes, table, ours, sizes, of_rows, rows)
    axes.whole.update(*(ours[axis] for axis in rows.dropped))
    axes.summed = {*chain(*of_rows)}.difference(*(ours[axis] for axis in batched))
    axes.operands = [ours] * len(tables) + [numbers] + [slices] * len(tables)
    axes.results = [ours] * len(tables)
    return axes
