"""Sorts of which only a few elements of each row are used: at one end, where a top-k is cheaper, or inside, which is a quantile; or some
that are drawn from what a threshold on the running sum leaves, as in top-p sampling. And sorts that another sort undoes, or a scatter of
what the threshold leaves: the elements to keep are those above it, which a bisection finds without sorting.
"""

from collections.abc import Iterator
from math import prod

from msgspec import Struct, field

from ...cost import NOTHING, Cost
from ...graph import NO_KERNEL, RENAMING, Array, Axes, Graph, Node, Operator, Part
from ...graph.facts.sorts import LAYOUT, is_order, sorted_part
from ...resource import HBM
from ...workload import Avoidable

KIND, CLASS = "unused-results", "unused"
GROUP, QUANTILE, MASKED, SAMPLED = "sorted", "quantile", "masked", "sampled"
MOST_KEPT = 1 / 4  # of a row: a top-k of more takes as long as a sort
TOP_K = 0.5  # of a sort's time that XLA's top-k takes: on an H200 1.0 ms of 1.98, for 50 of each of 256 rows of 128,000
FEW = 1 / 1000  # of a row: fewer elements inside of it are quantiles
LONG = 2**20  # elements of a row of which a much smaller sample gives a good estimate
NEIGHBOURS = 2  # elements between which a quantile is interpolated; a longer slice is not one
PASSES = 24  # over a row, of a bisection down to the last bit of the significand of fp32
_OTHER_ROWS = frozenset((Operator.SORT, Operator.SCATTER, Operator.SCATTER_ADD, Operator.DOT, Operator.CONVOLUTION, Operator.OTHER))
_SAME_PLACE = (Operator.REVERSE, Operator.NEGATE, Operator.CAST, Operator.COPY)


def sorted_parts(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The sorts of which every user takes a few elements of each row."""
    for sort in graph.of(Operator.SORT):
        keys, axis = graph.arrays[sort.takes[0]] if sort.takes else None, sort.params
        if keys is None or sort.kernel == NO_KERNEL or not isinstance(axis, int) or not keys.shape:
            continue
        row, results = keys.shape[axis], [array for array in sort.gives if graph.arrays[array].shape == keys.shape]  # no workspace
        most, group = max((_kept(graph, array, axis) for array in results), default=row), GROUP
        taken = min(sum(_taken(graph, array, axis) for array in results), row)
        if taken <= FEW * row < most and row >= LONG:
            most, group = taken, QUANTILE
        if not 0 < most <= MOST_KEPT * row:
            continue
        cost = graph.cost(sort)
        amounts = {resource: amount for resource, amount in cost.amounts if resource != HBM}
        instead = Cost.of({**amounts, HBM: min(keys.bytes, cost.known(HBM))})
        if graph.is_fused and group == GROUP:
            instead = cost * TOP_K
        facts = {"row": row, "used": most}
        yield sort.kernel, Avoidable(kind=KIND, instead=instead, facts=facts, unneeded=CLASS, group=group)


def undone_sorts(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The sorts that keep some elements of each row in its first order, and the kernels between them."""
    for second in graph.of(Operator.SORT, Operator.SCATTER) if graph.of(Operator.SORT) else ():
        first = _undone(graph, second)
        if first is None:
            continue
        between = _between(graph, first.kernel, second.kernel)
        if not _users(graph, first.kernel) <= between:
            continue
        avoidable = Avoidable(kind=KIND, instead=NOTHING, unneeded=CLASS, group=MASKED)
        yield from ((kernel, avoidable) for kernel in sorted(between))
        besides = Cost.of({HBM: PASSES * graph.arrays[first.takes[0]].bytes})
        yield first.kernel, Avoidable(kind=KIND, instead=NOTHING, unneeded=CLASS, group=MASKED, besides=besides)


class _Rows(Struct):
    """What a program computes of sorted rows, element by element: the arrays, the kernels, how many elements are ``drawn`` of each row, and
    whether elements of a row are chosen by a threshold on its running sum.
    """

    arrays: list[int]
    kernels: dict[int, None] = field(default_factory=dict)
    drawn: int = 0
    is_masked: bool = False


def drawn_sorts(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The sorts of which a few elements are drawn that a threshold on the running sum leaves, and the kernels on whole sorted rows."""
    for sort in graph.of(Operator.SORT) if graph.of(Operator.SCAN, Operator.WINDOW) else ():
        rows, axis = _whole_rows(graph, sort), sort.params
        if rows is None or sort.kernel == NO_KERNEL or not isinstance(axis, int):
            continue
        keys = graph.arrays[sort.takes[0]]
        row = keys.shape[axis]
        if not rows.is_masked or not 0 < rows.drawn <= MOST_KEPT * row:
            continue
        facts = {"row": row, "used": rows.drawn}
        for kernel in {sort.kernel: None, **rows.kernels}:
            cost = graph.kernels[kernel].cost
            moved = min(keys.bytes, cost.known(HBM)) if kernel == sort.kernel else cost.known(HBM) * rows.drawn / row
            instead = Cost.of({**{resource: amount for resource, amount in cost.amounts if resource != HBM}, HBM: moved})
            yield kernel, Avoidable(kind=KIND, instead=instead, cause="drawn", facts=facts, unneeded=CLASS, group=SAMPLED)


def _whole_rows(graph: Graph, sort: Node) -> _Rows | None:
    """What is computed of sorted rows until a few elements of each are left; ``None`` if whole rows are used in another way."""
    keys, axis = graph.arrays[sort.takes[0]] if sort.takes else Array(()), sort.params
    if not isinstance(axis, int) or not keys.shape:
        return None
    rows = _Rows([array for array in sort.gives if graph.arrays[array].shape == keys.shape])
    sums, choices = set[int](), set[int]()
    for array in rows.arrays:  # which grows
        if graph.is_handed_on(array):
            return None
        for user in graph.users.get(array, ()):
            results = [result for result in user.gives if graph.arrays[result].shape == keys.shape]
            if user.operator in (Operator.REDUCE, Operator.GATHER, Operator.RANDOM, Operator.SLICE) and user.takes[0] == array:
                if not _leaves_few(graph, user, axis):
                    return None
                is_drawn = user.operator in (Operator.GATHER, Operator.RANDOM)
                rows.drawn = max(rows.drawn, graph.arrays[user.gives[0]].shape[axis] if is_drawn else 0)
                continue
            if user.operator in _OTHER_ROWS or len(results) != len(user.gives):
                return None
            if array in sums and user.operator == Operator.COMPARE:
                choices.update(results)
            elif array in sums or user.operator in (Operator.SCAN, Operator.WINDOW):
                sums.update(results)
            elif array in choices:
                rows.is_masked |= user.operator not in _SAME_PLACE
                choices.update(results if user.operator in _SAME_PLACE else ())
            rows.arrays += [result for result in results if result not in rows.arrays]
            rows.kernels[user.kernel] = None
    rows.kernels.pop(NO_KERNEL, None)
    return rows


def _leaves_few(graph: Graph, node: Node, axis: int) -> bool:
    """Whether a node takes few elements of each row along an axis, or one number of it."""
    whole = graph.arrays[node.takes[0]].shape
    if node.operator == Operator.REDUCE:
        return isinstance(node.params, Axes) and node.params.axes == (axis,)
    part = graph.arrays[node.gives[0]].shape if node.gives else ()
    is_along_axis = len(part) == len(whole) and all(
        size == other for place, (size, other) in enumerate(zip(part, whole, strict=True)) if place != axis
    )
    return is_along_axis and part[axis] <= MOST_KEPT * whole[axis]


def _after(graph: Graph, node: Node, axis: int) -> int | None:
    """The axis of a node's result that is one of its first operand."""
    if node.operator in _SAME_PLACE:
        return axis
    if node.operator not in RENAMING:
        return None
    result = node.gives[0]
    return next((place for place in range(len(graph.arrays[result].shape)) if graph.axis_before(node, result, place) == axis), None)


def _kept(graph: Graph, array: int, axis: int) -> int:
    """How many elements at one end of each sorted row hold those that are used; all of them unless every use is a slice."""
    row = graph.arrays[array].shape[axis]
    if graph.is_handed_on(array):
        return row
    kept = 0
    for user in graph.users.get(array, ()):
        after = _after(graph, user, axis)
        if user.operator == Operator.SLICE and isinstance(cut := user.params, Part):
            kept = max(kept, min(cut.limits[axis], row - cut.starts[axis]))
        elif user.operator == Operator.SLICE and user.takes[0] == array and _cuts_only(graph, user, axis):
            kept = max(kept, graph.arrays[user.gives[0]].shape[axis])
        else:
            kept = max(kept, row if after is None else _kept(graph, user.gives[0], after))
    return kept


def _cuts_only(graph: Graph, cut: Node, axis: int) -> bool:
    """Whether a slice whose place is not known has whole rows of all other axes."""
    whole, part = graph.arrays[cut.takes[0]].shape, graph.arrays[cut.gives[0]].shape
    return len(whole) == len(part) and all(
        less == size or place == axis for place, (less, size) in enumerate(zip(part, whole, strict=True))
    )


def _taken(graph: Graph, array: int, axis: int) -> int:
    """How many elements of each sorted row are used, wherever they are; all of them unless every use is a slice or a gather."""
    shape = graph.arrays[array].shape
    row = shape[axis]
    if graph.is_handed_on(array):
        return row
    taken = 0
    for user in graph.users.get(array, ()):
        after = _after(graph, user, axis)
        if user.operator in (Operator.SLICE, Operator.GATHER) and user.takes[0] == array:
            elements = max(graph.arrays[user.gives[0]].elements * row // max(prod(shape), 1), 1)
            taken += row if user.operator == Operator.SLICE and elements > NEIGHBOURS else elements
        else:
            taken += row if after is None else _taken(graph, user.gives[0], after)
    return min(taken, row)


def _undone(graph: Graph, second: Node) -> Node | None:
    """The sort whose order another one restores, after some of the sorted keys were replaced by a constant, or a scatter of a mask."""
    is_scatter = second.operator == Operator.SCATTER
    places = 1 if is_scatter else 0
    if len(second.takes) <= places + 1 or second.kernel == NO_KERNEL:
        return None
    first, number = sorted_part(graph, second.takes[places]) or (None, 0)
    if first is None or not number or first.kernel in (NO_KERNEL, second.kernel) or not isinstance(first.params, int):
        return None
    if graph.arrays[first.takes[0]].shape != graph.arrays[second.takes[0]].shape or not is_order(graph, first, number):
        return None
    if is_scatter:
        return first if graph.made_by(second.takes[-1], Operator.COMPARE, through=LAYOUT | {Operator.UPDATE}) is not None else None
    select = graph.made_by(second.takes[1], Operator.SELECT, through=LAYOUT)
    if select is None:
        return None
    sides = select.takes[1:]
    is_masked = any(sorted_part(graph, taken) == (first, 0) and graph.distinct(other) == 1 for taken, other in (sides, sides[::-1]))
    return first if is_masked else None


def _users(graph: Graph, kernel: int) -> set[int]:
    """The kernels that use what a kernel makes; `NO_KERNEL` for any other use."""
    users, waiting = set[int](), graph.written(kernel)
    for array in waiting:  # which grows
        if graph.is_handed_on(array):
            users.add(NO_KERNEL)
        for user in graph.users.get(array, ()):
            if user.kernel == NO_KERNEL:
                waiting += [result for result in user.gives if result not in waiting]
            elif user.kernel != kernel:
                users.add(user.kernel)
    return users


def _between(graph: Graph, first: int, second: int) -> set[int]:
    """The second kernel, and those between that only it needs."""
    after = {first}
    for kernel in range(first, second):
        if kernel in after:
            after |= _users(graph, kernel)
    between = {second}
    for kernel in range(second - 1, first, -1):
        if kernel in after and (users := _users(graph, kernel)) and users <= between:
            between.add(kernel)
    return between
