"""Which elements of each array are needed, followed from the results of a program and the uses of arrays back to their makers."""

from collections.abc import Mapping

from ..graph import Graph, Node
from ..index_sets import NOTHING, WHOLE, Region, joined
from ..operators import Operator
from .operand_needs import operand_needs


def needed_elements(graph: Graph) -> dict[int, Region]:
    """The needed elements of each array. Those that nothing takes are needed whole, for an effect that is not in the graph."""
    regions: dict[int, Region] = dict.fromkeys(graph.results, WHOLE)
    loops = {region.final: region for region in graph.regions}
    seen = set[tuple[int, Region, tuple[int, ...]]]()
    for node in reversed(graph.nodes):
        if node.operator == Operator.LOOP and node.gives in loops:
            regions |= dict.fromkeys(loops[node.gives].handed_on, WHOLE)
        for operand, part in zip(node.takes, operand_needs(graph, node, needed_results(graph, node, regions)), strict=True):
            if part.whole or (part.loose and _is_outside(graph, operand, node)):
                regions[operand] = WHOLE
            elif part and (same := (operand, part, node.takes[1:] or node.gives)) not in seen:  # two slices at the same positions
                regions[operand] = joined(regions.get(operand, NOTHING), part)
                seen.add(same)
    return regions


def _is_outside(graph: Graph, operand: int, node: Node) -> bool:
    """Whether an operand is made outside of the loop that a node is in, whose iterations may need different elements of it."""
    region = graph.region_of.get(node.gives[0]) if node.gives else None
    return region is not None and graph.region_of.get(operand) is not region


def needed_results(graph: Graph, node: Node, regions: Mapping[int, Region]) -> Region:
    """The needed elements of the results of a node, which have the same axes but for those that nothing takes, such as a workspace."""
    region, is_taken = NOTHING, False
    for array in node.gives:
        if array in graph.users or array in regions:
            region, is_taken = joined(region, regions.get(array, NOTHING)), True
    return region if is_taken else WHOLE
