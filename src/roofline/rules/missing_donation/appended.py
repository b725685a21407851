"""Arrays that are copied in full to append a small part: a cache that grows, or drops its oldest position, by concatenation."""

from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from ...cost import NOTHING, less_traffic
from ...graph import NO_KERNEL, RENAMING, Graph, Node, Operator
from ...graph.facts.updates import SMALL, changed, is_updated, takes_place, update_of
from ...workload import Avoidable
from .copies import CLASS, KIND

GROUP = "shifted"
_PARTS = RENAMING | {Operator.SLICE}


class _Join(NamedTuple):
    """A concatenation of an array, or of parts of it, with a small part: the array, how many elements are kept and new, and the node."""

    source: int
    kept: int
    new: int
    node: Node

    def elements(self, graph: Graph) -> int:
        return graph.arrays[self.node.gives[0]].elements

    def bytes(self, graph: Graph) -> float:
        """The bytes of what is kept."""
        return graph.arrays[self.node.gives[0]].bytes * self.kept / self.elements(graph)


def appended_arrays(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that concatenate a small part and what the program, or an iteration of a loop, was given, and hand the result on."""
    joins = [join for node in graph.of(Operator.CONCATENATE) if (join := _join(graph, node)) is not None]
    joined, appended_again = {(join.node.gives[0], join.node.params) for join in joins}, {(join.source, join.node.params) for join in joins}
    by_kernel: dict[int, list[_Join]] = {}
    for join in joins:
        result, axis = join.node.gives[0], join.node.params  # edges along one axis after the other are padding
        if (join.source, axis) in joined or (result, axis) in appended_again or _is_replaced(graph, join):
            by_kernel.setdefault(join.node.kernel, []).append(join)
    for kernel, own in by_kernel.items():
        kept, new = sum(join.kept for join in own), sum(join.new for join in own)
        instead = less_traffic(graph.kernels[kernel].cost, sum(2 * join.bytes(graph) for join in own))
        facts = {"times": round(kept / max(new, 1))}
        avoidable = Avoidable(kind=KIND, instead=instead, facts=facts, unneeded=CLASS, group=GROUP, extra=True)
        yield kernel, avoidable
        for cut in dict.fromkeys(cut for join in own for cut in _cuts(graph, join)):
            yield cut, replace(avoidable, instead=NOTHING)


def _cuts(graph: Graph, join: _Join) -> Iterator[int]:
    """The kernels before a concatenation that only cut out what is kept."""
    for part in join.node.takes:
        for node in graph.between(part, _PARTS):
            is_own = node.kernel in (NO_KERNEL, join.node.kernel)
            if (
                not is_own
                and len(graph.users.get(node.gives[0], ())) == 1
                and all(inner.operator in _PARTS for inner in graph.inside[node.kernel])
            ):
                yield node.kernel


def _join(graph: Graph, node: Node) -> _Join | None:
    """What a concatenation keeps of one array, if that is nearly all of its result; all of it if it is updated then."""
    whole = graph.arrays[node.gives[0]].elements if node.gives else 0
    if node.kernel == NO_KERNEL or not whole:
        return None
    kept: dict[int, int] = {}
    for part in node.takes:
        source = graph.origin(part, _PARTS)
        kept[source] = kept.get(source, 0) + graph.arrays[part].elements
    source = max(kept, key=lambda array: kept[array])
    if not (1 - SMALL) * whole <= kept[source] <= whole:
        return None
    update = update_of(graph, node.gives[0]) if kept[source] == whole else None
    new = changed(graph, update) if update is not None else whole - kept[source]
    return _Join(source, kept[source], new, node) if new else None


def _is_replaced(graph: Graph, join: _Join) -> bool:
    """Whether the result takes the place of what the program, or an iteration of a loop, was given.

    Arrays that were matched by size may be returned, or not: they count where the small part is at the end.
    """
    old, new = join.source, join.node.gives[0]
    is_argument = old not in graph.maker and old not in graph.region_of
    if is_argument and not graph.arrays[new].sure:
        return graph.origin(join.node.takes[0], _PARTS) == old
    return takes_place(graph, new, old) or (is_argument and is_updated(graph, new))
