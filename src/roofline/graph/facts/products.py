"""The products that kernels compute."""

from ..graph import NO_KERNEL, Graph, Node
from ..operators import Operator


def largest_products(graph: Graph) -> dict[int, Node]:
    """The product that each kernel computes, the largest if there are several."""
    products = sorted(graph.of(Operator.DOT), key=lambda product: product.sizes.multiplications)
    return {product.kernel: product for product in products if product.kernel != NO_KERNEL}
