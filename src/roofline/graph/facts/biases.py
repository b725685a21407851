"""Biases that the kernels of products add to the results."""

from ...cost import NOTHING, Cost
from ...resource import HBM
from ..graph import Graph, Node
from ..operators import Operator

_COSTLY = (
    Operator.ELEMENTWISE,
    Operator.EXPONENTIAL,
    Operator.SQUARE_ROOT,
    Operator.SOFTMAX,
    Operator.LOG_SOFTMAX,
)  # that a kernel does not compute twice for free
_BYTES = 2  # of a number of 16 bits


def added_bias(graph: Graph, product: Node) -> Node | None:
    """The sum of a product's result and an array of fewer axes in the kernel of the product."""
    for node, name in graph.uses(product.gives[0]):
        if node.kernel != product.kernel or node.operator != Operator.ADD:
            continue
        for array in node.takes:
            spread = graph.maker.get(array)
            if array == name or spread is None or spread.operator != Operator.BROADCAST or spread.kernel != product.kernel:
                continue
            if 0 < len(graph.arrays[spread.takes[0]].shape) < len(graph.arrays[array].shape):
                return node
    return None


def bias_kernel(graph: Graph, product: Node) -> Cost:
    """The cost of a kernel that adds a product's bias to its result in 16 bits; nothing if the product's own kernel adds none."""
    if added_bias(graph, product) is None:
        return NOTHING
    return Cost.of({HBM: 2 * _BYTES * graph.arrays[product.gives[0]].elements})


def function_kernels(graph: Graph, products: dict[int, Node]) -> frozenset[int]:
    """Of the kernels of products those that add a bias, and compute a costly function of the sum."""
    return frozenset(
        kernel
        for kernel, product in products.items()
        if any(node.operator in _COSTLY for node in graph.inside[kernel]) and added_bias(graph, product) is not None
    )
