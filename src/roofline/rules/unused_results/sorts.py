"""Sorts of which only a few elements of each row are used: at one end, where a top-k is cheaper, or inside, which is a quantile; and sorts
that another sort undoes, as in top-p sampling: the elements to keep are those above a threshold, which a bisection finds without sorting.
"""

from collections.abc import Iterator
from math import prod

from ...cost import NOTHING, Cost
from ...graph import NO_KERNEL, RENAMING, Graph, Node, Operator, Part
from ...graph.facts.one_hot import counts
from ...graph.facts.sorts import LAYOUT, sorted_part
from ...resource import HBM
from ...workload import Avoidable

KIND, CLASS = "unused-results", "unused"
GROUP, QUANTILE, MASKED = "sorted", "quantile", "masked"
MOST_KEPT = 1 / 4  # of a row: a top-k of more takes as long as a sort
FEW = 1 / 1000  # of a row: fewer elements inside of it are quantiles
LONG = 2**20  # elements of a row of which a much smaller sample gives a good estimate
NEIGHBOURS = 2  # elements between which a quantile is interpolated; a longer slice is not one
PASSES = 24  # over a row, of a bisection down to the last bit of the significand of fp32
_SAME_PLACE = (Operator.REVERSE, Operator.NEGATE, Operator.CAST, Operator.COPY)


def sorted_parts(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The sorts of which every user takes a few elements of each row."""
    for sort in graph.of(Operator.SORT):
        keys, axis = graph.arrays[sort.takes[0]] if sort.takes else None, sort.params
        if keys is None or sort.kernel == NO_KERNEL or not isinstance(axis, int) or not keys.shape:
            continue
        row, results = keys.shape[axis], [array for array in sort.gives if graph.arrays[array].shape == keys.shape]  # no workspace
        most, group = max((_kept(graph, array, axis) for array in results), default=row), GROUP
        if not 0 < most <= MOST_KEPT * row:
            most, group = min(sum(_taken(graph, array, axis) for array in results), row), QUANTILE
            if not 0 < most <= FEW * row or row < LONG:
                continue
        cost = graph.cost(sort)
        amounts = {resource: amount for resource, amount in cost.amounts if resource != HBM}
        instead = Cost.of({**amounts, HBM: min(keys.bytes, cost.known(HBM))})
        facts = {"row": row, "used": most}
        yield sort.kernel, Avoidable(kind=KIND, instead=instead, facts=facts, unneeded=CLASS, group=group)


def undone_sorts(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The sorts that keep some elements of each row in its first order, and the kernels between them."""
    for second in graph.of(Operator.SORT):
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


def _after(graph: Graph, node: Node, axis: int) -> int | None:
    """The axis of a node's result that is one of its first operand."""
    if node.operator in _SAME_PLACE:
        return axis
    if node.operator not in RENAMING:
        return None
    result = node.gives[0]
    return next((place for place in range(len(graph.arrays[result].shape)) if graph.axis_before(node, result, place) == axis), None)


def _kept(graph: Graph, array: int, axis: int) -> int:
    """How many elements at one end of each sorted row are used; all of them unless every use is a slice."""
    row = graph.arrays[array].shape[axis]
    if graph.is_handed_on(array):
        return row
    kept = 0
    for user in graph.users.get(array, ()):
        after = _after(graph, user, axis)
        if user.operator == Operator.SLICE and isinstance(cut := user.params, Part):
            is_end = cut.strides[axis] == 1 and (cut.starts[axis] == 0 or cut.limits[axis] == row)
            kept = max(kept, cut.limits[axis] - cut.starts[axis] if is_end else row)
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
            each = max(graph.arrays[user.gives[0]].elements * row // max(prod(shape), 1), 1)
            taken += row if user.operator == Operator.SLICE and each > NEIGHBOURS else each
        else:
            taken += row if after is None else _taken(graph, user.gives[0], after)
    return min(taken, row)


def _undone(graph: Graph, second: Node) -> Node | None:
    """The sort whose order another one restores, after some of the sorted keys were replaced by a constant."""
    if len(second.takes) < 2 or second.kernel == NO_KERNEL:
        return None
    first, number = sorted_part(graph, second.takes[0]) or (None, 0)
    if first is None or not 0 < number < len(first.takes) or first.kernel == NO_KERNEL or not isinstance(first.params, int):
        return None
    if graph.arrays[first.takes[0]].shape != graph.arrays[second.takes[0]].shape or not counts(graph, first.takes[number], first.params):
        return None
    select = graph.made_by(second.takes[1], Operator.SELECT, through=LAYOUT)
    if select is None:
        return None
    sides = select.takes[1:]
    is_masked = any(sorted_part(graph, taken) == (first, 0) and graph.distinct(other) == 1 for taken, other in (sides, sides[::-1]))
    return first if is_masked else None


def _users(graph: Graph, kernel: int) -> set[int]:
    """The kernels that use what a kernel makes; `NO_KERNEL` for any other use."""
    written = graph.written(kernel)
    others = {node.kernel for array in written for node, _ in graph.uses(array)} - {kernel}
    return others | {NO_KERNEL for array in written if graph.is_handed_on(array)}


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
