"""What operators do to axes, against NumPy: where a factor is split, the parts of the operands give the part of the result."""

from collections.abc import Callable, Sequence
from math import prod

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from every import every
from roofline.graph import axes as to
from roofline.graph.axes import Factors, IndexMap, Rows

Array = np.ndarray  # type: ignore[type-arg]
Operator = Callable[..., Array]
SIZES = st.lists(st.sampled_from((1, 2, 3, 4, 6)), min_size=1, max_size=3).map(tuple)
NUMBERS = np.random.default_rng(33)


def numbers(*dims: int) -> Array:
    return NUMBERS.integers(1, 9, dims)


def part(array: Array, axes: Sequence[Factors], mapping: IndexMap, factor: int, place: int) -> Array:
    """The elements of an array at one place along a factor, which stays as an axis of one element."""
    factors = [each for axis in axes for each in axis]
    if factor not in factors:
        return array
    spread = array.reshape([mapping.sizes[each] for each in factors])
    taken = np.take(spread, [place], factors.index(factor))
    return taken.reshape([prod(1 if each == factor else mapping.sizes[each] for each in axis) for axis in axes])


def check(mapping: IndexMap, operator: Operator, *operands: Array) -> None:
    """Each factor that can be split, split: a part of the result needs parts of the operands, and a sum is the sum of its parts."""
    result = operator(*operands)
    assert [mapping.dims(axes) for axes in mapping.operands] == [operand.shape for operand in operands]
    assert mapping.dims(mapping.results[0]) == result.shape
    for factor, size in enumerate(mapping.sizes):
        if factor in mapping.whole:
            continue
        parts = []
        for place in range(size):
            taken = [part(operand, axes, mapping, factor, place) for operand, axes in zip(operands, mapping.operands, strict=True)]
            parts.append(operator(*taken))
        if factor in mapping.summed:
            assert (sum(parts) == result).all()
        for place, made in enumerate(parts if factor not in mapping.summed else ()):
            assert (made == part(result, mapping.results[0], mapping, factor, place)).all()


@given(SIZES, st.data())
def test_moved_and_summed_axes_split_as_their_arrays_do(dims: tuple[int, ...], data: st.DataObject) -> None:
    array = numbers(*dims)
    order = data.draw(st.permutations(range(len(dims))))
    check(to.transposed(dims, order), lambda x: x.transpose(order), array)
    check(to.elementwise([dims, dims], dims), np.multiply, array, array)
    gone = data.draw(st.sets(st.sampled_from(range(len(dims)))))
    check(to.reduced([dims, ()], gone), lambda x, _: x.sum(tuple(gone)), array, numbers())
    axis = data.draw(st.sampled_from(range(len(dims))))
    check(to.concatenated([dims, dims], axis), lambda x, y: np.concatenate((x, y), axis), array, array)
    check(to.mixed([dims], dims, [axis]), lambda x: np.sort(x, axis), array)
    check(to.backwards(dims, [axis]), lambda x: np.flip(x, axis), array)
    edges = [(1, 2, 0) if place == axis else (0, 0, 0) for place in range(len(dims))]
    check(to.padded(dims, edges), lambda x: np.pad(x, [edge[:2] for edge in edges]), array)
    half = [range(0, size, 2) if place == axis else range(size) for place, size in enumerate(dims)]
    cut = tuple(slice(None, None, 2) if place == axis else slice(None) for place in range(len(dims)))
    check(to.sliced(dims, half), lambda x: x[cut], array)


@given(SIZES, st.data())
def test_a_reshape_splits_as_far_as_sizes_divide(dims: tuple[int, ...], data: st.DataObject) -> None:
    primes = [factor for size in dims for factor in {6: (2, 3), 4: (2, 2)}.get(size, (size,))]
    after = data.draw(st.permutations(primes))
    mapping = to.reshaped(dims, tuple(after))
    for axes, sizes in ((mapping.operands[0], dims), (mapping.results[0], after)):
        assert mapping.dims(axes) == tuple(sizes)
    positions = np.arange(prod(dims))
    shared = {factor for axis in mapping.operands[0] for factor in axis} & {factor for axis in mapping.results[0] for factor in axis}
    for factor in shared:
        for place in range(mapping.sizes[factor]):
            ours = part(positions.reshape(dims), mapping.operands[0], mapping, factor, place)
            theirs = part(positions.reshape(after), mapping.results[0], mapping, factor, place)
            assert {*ours.flat} == {*theirs.flat}


def test_a_reshape_of_sizes_that_do_not_divide_has_no_axis_in_common() -> None:
    mapping = to.reshaped((2, 6, 4), (2, 4, 6))
    assert {factor for axis in mapping.operands[0] for factor in axis} & {factor for axis in mapping.results[0] for factor in axis} == {0}


@every("batch", [(), ((0, 0),)])
def test_a_product_has_batches_rows_columns_and_a_sum(batch: tuple[tuple[int, int], ...]) -> None:
    left, right = numbers(2, 3, 4), numbers(2, 4, 5)
    spelling = "brk,bkc->brc" if batch else "ark,bkc->arbc"
    mapping = to.product(left.shape, right.shape, batch, [(2, 1)])
    check(mapping, lambda a, b: np.einsum(spelling, a, b), left, right)


def test_rows_of_a_table_split_with_their_indices_and_a_table_by_rows_into_partial_sums() -> None:
    table, places = numbers(4, 3), np.array([[2], [0], [2]])
    rows = Rows(vector=1, batching=(), windows=(1,), dropped=(0,))
    mapping = to.gathered(table.shape, places.shape, (1, 3), rows)
    assert mapping.summed == {*mapping.operands[0][0]}
    mapping.whole |= mapping.summed  # a part of a table has other places
    check(mapping, lambda x, at: x[at[:, 0]], table, places)
