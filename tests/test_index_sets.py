"""Demand, against carrying every single element from parameters to results."""

from itertools import product
from math import prod

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from priced import fused
from roofline.graph.index_sets import WHOLE, boxed, common, count, joined, loosely, reshaped, reshaped_lines

DIMS = st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple)


def ranges(size: int) -> st.SearchStrategy[range]:
    return st.builds(range, st.integers(0, size - 1), st.integers(0, size), st.integers(1, 3))


@given(
    st.builds(range, st.integers(0, 30), st.integers(0, 60), st.integers(1, 7)),
    st.builds(range, st.integers(0, 30), st.integers(0, 60), st.integers(1, 7)),
)
def test_what_two_progressions_share_is_what_is_in_both(one: range, other: range) -> None:
    assert set(common(one, other)) == set(one) & set(other)


@given(st.data(), DIMS)
def test_a_union_of_boxes_is_counted_exactly(data: st.DataObject, dims: tuple[int, ...]) -> None:
    boxes = data.draw(st.lists(st.tuples(*(ranges(size) for size in dims)), max_size=5))
    region = loosely(0)
    for box in boxes:
        region = joined(region, boxed((box,), dims))
    assert count(region, dims) == len({place for box in boxes for place in product(*box)})


@given(st.data(), DIMS, DIMS)
def test_a_reshaped_box_holds_the_same_elements(data: st.DataObject, dims: tuple[int, ...], other: tuple[int, ...]) -> None:
    after = other if prod(other) == prod(dims) else (prod(dims),)
    box = data.draw(st.tuples(*(ranges(size) for size in dims)).filter(all))
    found = reshaped(box, dims, after)
    if found is not None:
        marked = np.zeros(dims, bool)
        marked[np.ix_(*box)] = True
        assert set(product(*found)) == set(zip(*(axis.tolist() for axis in np.nonzero(marked.reshape(after))), strict=True))


def test_loose_elements_never_exceed_the_array() -> None:
    assert count(joined(loosely(7), loosely(8)), (10,)) == 10
    assert joined(loosely(3), WHOLE) is WHOLE


def test_rows_at_unknown_places_stay_whole_rows() -> None:
    rows = joined(loosely(30, frozenset((1,))), loosely(20, frozenset((0, 1))))
    assert (rows.loose, rows.lines) == (50, {1})
    assert joined(rows, boxed(((range(1), range(5)),), (8, 10))).lines == {1}, "boxes have their own places"
    assert not joined(rows, loosely(3)).lines
    assert reshaped_lines(frozenset((1,)), (16, 8), (4, 4, 2, 4)) == {2, 3}
    assert reshaped_lines(frozenset((2, 3)), (4, 4, 2, 4), (16, 8)) == {1}
    assert reshaped_lines(frozenset((3,)), (4, 4, 2, 4), (16, 8)) == set(), "half of a row"


class Drawn:
    """A body of random operations on one parameter, and which of its elements each value holds: sets of numbers, element by element."""

    def __init__(self, dims: tuple[int, ...]) -> None:
        self.lines = ["  %zero = f32[] constant(0)", "  %v0 = f32[" + ",".join(map(str, dims)) + "] copy(%p0)"]
        value = np.empty(dims, object)
        for place, index in enumerate(np.ndindex(*dims)):
            value[index] = frozenset((place,))
        self.value = value
        self.values = [value]
        self.has_reshape = False

    def add(self, text: str, value: np.ndarray) -> None:
        name = len(self.lines) - 1
        shape = "f32[" + ",".join(map(str, value.shape)) + "]"
        self.lines.append(f"  %v{name} = {shape} {text}")
        self.value = value
        self.values.append(value)

    @property
    def last(self) -> str:
        return f"%v{len(self.lines) - 2}"

    def slice(self, data: st.DataObject, dims: tuple[int, ...]) -> None:
        cuts = [data.draw(ranges(size).filter(bool)) for size in dims]
        text = ", ".join(f"[{cut.start}:{cut.stop}:{cut.step}]" for cut in cuts)
        self.add(f"slice({self.last}), slice={{{text}}}", self.value[np.ix_(*cuts)])

    def pad(self, data: st.DataObject, dims: tuple[int, ...]) -> None:
        pads = [(data.draw(st.integers(-min(1, size - 1), 2)), data.draw(st.integers(0, 2)), data.draw(st.integers(0, 1))) for size in dims]
        value = self.value
        for axis, (low, high, inside) in enumerate(pads):
            size = value.shape[axis]
            after = np.full(
                (*value.shape[:axis], (size - 1) * (inside + 1) + 1 + low + high, *value.shape[axis + 1 :]), frozenset(), object
            )
            for place in range(size):
                where = place * (inside + 1) + low
                if 0 <= where < after.shape[axis]:
                    after[(slice(None),) * axis + (where,)] = value[(slice(None),) * axis + (place,)]
            value = after
        text = "x".join("_".join(map(str, pad)) for pad in pads)
        self.add(f"pad({self.last}, %zero), padding={text}", value)

    def reverse(self, data: st.DataObject, dims: tuple[int, ...]) -> None:
        axes = data.draw(st.sets(st.integers(0, len(dims) - 1)))
        self.add(f"reverse({self.last}), dimensions={{{','.join(map(str, axes))}}}", np.flip(self.value, tuple(axes)))

    def transpose(self, data: st.DataObject, dims: tuple[int, ...]) -> None:
        order = data.draw(st.permutations(range(len(dims))))
        self.add(f"transpose({self.last}), dimensions={{{','.join(map(str, order))}}}", self.value.transpose(order))

    def broadcast(self, data: st.DataObject, dims: tuple[int, ...]) -> None:
        where = data.draw(st.integers(0, len(dims)))
        axes = [axis + (axis >= where) for axis in range(len(dims))]
        wide = np.repeat(np.expand_dims(self.value, where), 2, where)
        self.add(f"broadcast({self.last}), dimensions={{{','.join(map(str, axes))}}}", wide)

    def concatenate(self, data: st.DataObject, dims: tuple[int, ...]) -> None:
        axis = data.draw(st.integers(0, len(dims) - 1))
        self.add(f"concatenate({self.last}, {self.last}), dimensions={{{axis}}}", np.concatenate((self.value, self.value), axis))

    def reshape(self, data: st.DataObject, dims: tuple[int, ...]) -> None:
        flat = data.draw(st.booleans())
        after = (prod(dims),) if flat else (*dims[:-1], 1, dims[-1])
        self.has_reshape = self.has_reshape or flat
        self.add(f"reshape({self.last})", self.value.reshape(after))

    def reduce(self, data: st.DataObject, dims: tuple[int, ...]) -> None:
        axis = data.draw(st.integers(0, len(dims) - 1))
        if len(dims) > 1:
            gathered = np.empty(dims[:axis] + dims[axis + 1 :], object)
            for index in np.ndindex(*gathered.shape):
                line = self.value[(*index[:axis], slice(None), *index[axis:])]
                gathered[index] = frozenset().union(*line)
            self.add(f"reduce({self.last}, %zero), dimensions={{{axis}}}", gathered)

    def mix(self, data: st.DataObject, dims: tuple[int, ...]) -> None:
        """The sum with any value of the same dimensions, this one included."""
        alike = [place for place, value in enumerate(self.values) if value.shape == dims]
        other = data.draw(st.sampled_from(alike))
        union = np.empty(dims, object)
        for index in np.ndindex(*dims):
            union[index] = self.value[index] | self.values[other][index]
        self.add(f"add({self.last}, %v{other})", union)


STEPS = ["slice", "slice", "pad", "reverse", "transpose", "broadcast", "concatenate", "reshape", "reduce", "mix", "mix"]


@given(st.data(), DIMS)
def test_a_fusion_reads_the_elements_its_results_depend_on(data: st.DataObject, dims: tuple[int, ...]) -> None:
    body = Drawn(dims)
    for _ in range(data.draw(st.integers(1, 8))):
        kind = data.draw(st.sampled_from(STEPS))
        getattr(body, kind)(data, body.value.shape)
        if body.value.size > 400 or body.value.size == 0:
            break
    shape = "f32[" + ",".join(map(str, body.value.shape)) + "]"
    lines = [*body.lines, f"  ROOT %root = {shape} copy({body.last})"]
    read = fused("\n".join(lines), shape, "f32[" + ",".join(map(str, dims)) + "]").cost.bytes() - 4 * body.value.size
    needed = len(frozenset().union(*body.value.ravel().tolist()))
    assert needed <= read // 4 <= prod(dims)
    if not body.has_reshape:
        assert read == 4 * needed


@given(st.data(), DIMS)
def test_a_row_at_an_unknown_place_needs_no_more_than_is_counted(data: st.DataObject, dims: tuple[int, ...]) -> None:
    body = Drawn(dims)
    for _ in range(data.draw(st.integers(1, 6))):
        getattr(body, data.draw(st.sampled_from(STEPS)))(data, body.value.shape)
        if body.value.size > 400 or body.value.size == 0:
            break
    if body.value.size == 0:
        return
    rows, *rest = body.value.shape
    row = "f32[" + ",".join(map(str, (1, *rest))) + "]"
    places = ", ".join(["%p1", *["%none"] * len(rest)])
    sizes = ",".join(map(str, (1, *rest)))
    lines = ["  %none = s32[] constant(0)", *body.lines]
    lines.append(f"  ROOT %root = {row} dynamic-slice({body.last}, {places}), dynamic_slice_sizes={{{sizes}}}")
    moved = fused("\n".join(lines), row, "f32[" + ",".join(map(str, dims)) + "]", "s32[]").cost.bytes()
    read = (moved - 4 * prod(rest) - 4) // 4
    needed = max(len(frozenset().union(*body.value[place : place + 1].ravel().tolist())) for place in range(rows))
    assert needed <= read <= prod(dims)
