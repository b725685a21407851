"""What the arrays in a loop depend on: the results of other iterations, the number of the iteration, or neither."""

from collections.abc import Iterator
from functools import cached_property

from msgspec import Struct

from ..graph import NO_KERNEL, Graph, Node, Region
from ..operators import Array, Operator

MOST_UNROLLED = 100  # iterations of a loop that can be unrolled: one over layers, not over positions or time; a choice


class Iteration(Struct, dict=True):
    """One iteration of a loop, and what its arrays are computed from among the arrays that it gets."""

    graph: Graph
    region: Region

    @cached_property
    def _sources(self) -> dict[int, int]:
        """For each array the carried ones that it is computed from: a bit each."""
        graph, nodes = self.graph, self.region.nodes
        inner = [region for region in graph.regions if region is not self.region and region.nodes.start in nodes]
        before = {array: start for region in inner for array, start in zip(region.carried, region.initial, strict=True)}
        after = {array: handed_on for region in inner for array, handed_on in zip(region.final, region.handed_on, strict=True)}
        sources = {array: 1 << place for place, array in enumerate(self.region.carried)}
        for place in nodes:
            node = graph.nodes[place]
            taken = [*node.takes, *(after[array] for array in node.gives if array in after)]
            bits = 0
            for array in taken:
                bits |= sources.get(array, sources.get(before.get(array, array), 0))
            sources |= dict.fromkeys(node.gives, bits)
        return sources

    @cached_property
    def _changing(self) -> int:
        """The bits of carried arrays that are more than a counter."""
        arrays = [self.graph.arrays[array] for array in self.region.carried]
        return sum(1 << place for place, array in enumerate(arrays) if not _is_counter(array))

    @property
    def changing(self) -> list[int]:
        """The arrays that an iteration hands on in the place of those that it gets, but for counters."""
        pairs = zip(self.region.carried, self.region.handed_on, strict=True)
        return [handed_on for carried, handed_on in pairs if not _is_counter(self.graph.arrays[carried])]

    def is_free(self, array: int) -> bool:
        """Whether an array does not depend on the results of other iterations."""
        return not self._sources.get(array, 0) & self._changing

    def is_constant(self, array: int) -> bool:
        """Whether an array is the same in every iteration."""
        return not self._sources.get(array, 0)

    @cached_property
    def stacked(self) -> frozenset[int]:
        """The arrays for results alone that the loop stacks, one slice for each iteration: no later iteration waits for them."""
        graph, region = self.graph, self.region
        pairs = zip(region.carried, region.handed_on, strict=True)
        waiting = [handed_on for carried, handed_on in pairs if _writer(graph, carried, handed_on) is None]
        needed = set[int]()
        while waiting:
            array = waiting.pop()
            node = graph.maker.get(array)
            if array in needed or node is None or graph.region_of.get(array) is None:
                continue
            needed.add(array)
            waiting += node.takes
        results = {array for place in region.nodes for array in graph.nodes[place].gives}
        return frozenset(results - needed)


def _is_counter(array: Array) -> bool:
    return array.elements == 1 and array.dtype is not None and array.dtype.name.startswith(("int", "uint"))


class Stack(Struct, frozen=True):
    """An array of which each iteration of a loop writes one slice: before the loop, in an iteration, after it, and the node that writes."""

    region: Region
    initial: int
    carried: int
    final: int
    writer: Node

    @property
    def slice(self) -> int:
        """What an iteration writes."""
        return self.writer.takes[1]

    def filler(self, graph: Graph) -> int:
        """The kernel that makes the array before the first iteration."""
        maker = graph.maker.get(graph.origin(self.initial, (Operator.VIEW,)))
        return maker.kernel if maker is not None else NO_KERNEL


def stacks(graph: Graph) -> Iterator[Stack]:
    """The arrays that loops write slice by slice."""
    for region in graph.regions:
        for initial, carried, handed_on, final in zip(region.initial, region.carried, region.handed_on, region.final, strict=True):
            if (writer := _writer(graph, carried, handed_on)) is not None:
                yield Stack(region, initial, carried, final, writer)


def _writer(graph: Graph, carried: int, handed_on: int) -> Node | None:
    """The node that writes one slice of a carried array; ``None`` if an iteration does anything else to it."""
    node = graph.made_by(handed_on, Operator.UPDATE)
    if node is None or len(node.takes) < 2 or graph.origin(node.takes[0]) != carried:
        return None
    return node if graph.arrays[node.takes[1]].shape[:1] == (1,) else None
