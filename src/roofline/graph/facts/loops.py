"""What the arrays in a loop depend on: the results of other iterations, the number of the iteration, or neither."""

from functools import cached_property

from msgspec import Struct

from ..graph import Graph, Region
from ..operators import RENAMING, Array, Operator


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
        waiting = [handed_on for carried, handed_on in pairs if not self._is_stack(carried, handed_on)]
        needed = set[int]()
        while waiting:
            array = waiting.pop()
            node = graph.maker.get(array)
            if array in needed or node is None or graph.region_of.get(array) is None:
                continue
            needed.add(array)
            waiting += node.takes
        made = {array for place in region.nodes for array in graph.nodes[place].gives}
        return frozenset(made - needed)

    def _is_stack(self, carried: int, handed_on: int) -> bool:
        """Whether an iteration writes one slice of a carried array."""
        node = self.graph.made_by(handed_on, Operator.UPDATE)
        if node is None or len(node.takes) < 2 or self.graph.origin(node.takes[0], RENAMING) != carried:
            return False
        return self.graph.arrays[node.takes[1]].shape[:1] == (1,)


def _is_counter(array: Array) -> bool:
    return array.elements == 1 and array.dtype is not None and array.dtype.name.startswith(("int", "uint"))
