"""States that are copied in full to put their rows in another order: the cache of a beam search, after every token.

A state is what a program, or an iteration of a loop, gets, updates or attends to, and hands on. A program that only shuffles its arguments
does what it is for.
"""

from collections.abc import Iterator

from ...cost import NOTHING, less_traffic
from ...graph import NO_KERNEL, Graph, Node, Operator, Region, Rows
from ...graph.facts.updates import targets
from ...units import parse
from ...workload import Avoidable, Usual
from .gathered_blocks import CLASS

KIND = "layout-copies"
GROUP, IN_LOOP = "reordered", "reordered in a loop"
LEAST = parse("1 MB", "B")  # of what is copied
_MOST_UPDATES = 16  # updates of a state that are followed before it is reordered
_KEYS = 1  # the place of keys among the operands of attention, and of the second factor of a product


def reordered_rows(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that gather all rows of a state and hand them on, and those that copy the result."""
    moved: dict[int, float] = {}
    groups: dict[int, str] = {}
    for gather in graph.of(Operator.GATHER):
        group = _group(graph, gather) if gather.kernel != NO_KERNEL and _takes_all_rows(graph, gather) else ""
        if not group:
            continue
        moved[gather.kernel] = moved.get(gather.kernel, 0) + 2 * graph.arrays[gather.gives[0]].bytes
        groups[gather.kernel] = group
        for user, _ in graph.uses(gather.gives[0], (Operator.VIEW,)):
            if user.operator == Operator.COPY and user.kernel not in (NO_KERNEL, gather.kernel):
                yield user.kernel, Avoidable(kind=KIND, instead=NOTHING, unneeded=CLASS, group=group, usual=Usual.UNLESS_ASKED)
    for kernel, traffic in moved.items():
        instead = less_traffic(graph.kernels[kernel].cost, traffic)
        yield kernel, Avoidable(kind=KIND, instead=instead, unneeded=CLASS, group=groups[kernel], usual=Usual.UNLESS_ASKED)


def _takes_all_rows(graph: Graph, gather: Node) -> bool:
    """Whether a gather takes as many whole rows as its operand has."""
    source, result = graph.arrays[gather.takes[0]], graph.arrays[gather.gives[0]] if gather.gives else None
    if result is None or result.bytes < LEAST or source.elements != result.elements or len(source.shape) < 2:
        return False
    if isinstance(gather.params, int):
        return True
    sizes = gather.params.sizes if isinstance(gather.params, Rows) else ()
    return sum(size > 1 for size in sizes) >= sum(size > 1 for size in source.shape) - 1


def _group(graph: Graph, gather: Node) -> str:
    """Where a gather reorders a state that is handed on; empty if it does not."""
    states = _states(graph, gather.takes[0])
    state, result = states[-1], gather.gives[0]
    region = graph.region_of.get(state)
    is_used = len(states) > 1 or state in graph.donated or any(_is_attended(graph, array) for array in states)
    if state in graph.maker or not is_used:
        return ""
    if region is None:
        is_returned = any(user.operator == Operator.RESULT for user, _ in graph.uses(result))
        return GROUP if is_returned and result not in graph.region_of else ""
    return IN_LOOP if any(graph.origin(array) == result for array in region.handed_on) else ""


def _states(graph: Graph, array: int) -> list[int]:
    """An array, and what it was before parts of it were updated, perhaps in a loop; the first is the last one."""
    loops = {final: (region, place) for region in graph.regions for place, final in enumerate(region.final)}
    states = [graph.origin(array)]
    for _ in range(_MOST_UPDATES):
        before = _before(graph, states[-1], loops)
        if before is None:
            break
        states.append(graph.origin(before))
    return states


def _before(graph: Graph, array: int, loops: dict[int, tuple[Region, int]]) -> int | None:
    """An array before a part of it was updated, or before a loop that carries it."""
    if array in loops:
        region, place = loops[array]
        return region.initial[place]
    maker = graph.maker.get(array)
    return targets(maker)[0] if maker is not None and targets(maker) else None


def _is_attended(graph: Graph, array: int) -> bool:
    """Whether attention takes an array as keys or values, or a batch of products as its second factors."""
    for user, name in graph.uses(array):
        is_product = user.operator == Operator.DOT and user.sizes.batch > 1
        if (is_product or user.operator == Operator.ATTENTION) and name in user.takes[_KEYS : _KEYS + 2]:
            return True
    return False
