"""Kernels without products that compute in fp64, or read or write fp64 arrays: in fp32 they move half the bytes."""

from collections.abc import Iterator

from ...cost import NOTHING, Cost, less_traffic
from ...graph import RENAMING, Graph, Node, Operator
from ...resource import HBM, Resource
from ...workload import Avoidable, Saves
from .products import CLASS, KIND, double_group, multiplying

_DOUBLE, _SINGLE = "fp64", "fp32"


def doubles(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels in fp64, and their cost in fp32; a cast between the two would not be needed."""
    if not any(_is_double(graph, array) for array in range(len(graph.arrays))):
        return
    group, products = double_group(graph), {kernel for kernel, _ in multiplying(graph)}
    for kernel in graph.inside:
        if kernel in products:
            continue
        cost = graph.kernels[kernel].cost
        double = [array for array in (*graph.read(kernel), *graph.written(kernel)) if _is_double(graph, array)]
        if graph.only(kernel, RENAMING) and any(_changes_to_double(graph, node) for node in graph.inside[kernel]):
            yield kernel, Avoidable(kind=KIND, instead=NOTHING, unneeded=CLASS, group=group)
        elif double or any(resource.kind == _DOUBLE for resource, _ in cost.amounts):
            less = min(sum(graph.arrays[array].bytes for array in double), cost.known(HBM)) / 2
            multiplies = any(resource.unit == "matrix" for resource, _ in cost.amounts)
            saves = Saves.IN_PROPORTION if multiplies else Saves.GOOD_VECTOR
            yield kernel, Avoidable(kind=KIND, instead=less_traffic(_in_single(cost), less), group=group, saves=saves)


def _is_double(graph: Graph, array: int) -> bool:
    number, elements = graph.arrays[array].dtype, graph.arrays[array].elements
    return number is not None and number.name == _DOUBLE and elements > 1


def _changes_to_double(graph: Graph, node: Node) -> bool:
    """Whether a node casts to fp64, or from it."""
    return node.operator == Operator.CAST and _is_double(graph, node.takes[0]) != _is_double(graph, node.gives[0])


def _in_single(cost: Cost) -> Cost:
    """A cost with its work in fp64 in fp32."""
    amounts: dict[Resource, float] = {}
    for resource, amount in cost.amounts:
        here = Resource(f"{resource.unit}/{_SINGLE}") if resource.kind == _DOUBLE else resource
        amounts[here] = amounts.get(here, 0) + amount
    return Cost.of(amounts)
