"""Products and convolutions whose rows are not a multiple of one load, so that matrix units get them piece by piece."""

from collections.abc import Iterator

from ...graph import NO_KERNEL, Graph, Operator, Sizes, Windows
from ...graph.facts.products import largest_products
from ...workload import Avoidable, Facts, Saves

KIND = "odd-sizes"
LOAD_BITS = 128  # one load of a row: 8 elements of bf16
SMALL = 64  # up to this size padding costs as much as it saves (a choice)


def unaligned_sizes(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The products and convolutions with a size that is not a multiple of a load, but large enough to be padded at little cost."""
    products = [(product, _sizes(product.sizes), "matrices") for product in largest_products(graph).values()]
    convolutions = [(node, node.params.channels, "channels") for node in graph.of(Operator.CONVOLUTION) if isinstance(node.params, Windows)]
    for node, sizes, cause in products + convolutions:
        dtype = graph.arrays[node.takes[0]].dtype
        if dtype is None or min(sizes) <= SMALL or node.kernel == NO_KERNEL:
            continue
        step = LOAD_BITS // max(dtype.bits, 1)
        odd = [size for size in sizes if size % step]
        if odd:
            facts = Facts(sizes=" and ".join(str(size) for size in dict.fromkeys(odd)), step=step)
            yield node.kernel, Avoidable(kind=KIND, instead=graph.cost(node), cause=cause, facts=facts, saves=Saves.GOOD_PRODUCT)


def _sizes(product: Sizes) -> tuple[int, ...]:
    """The sizes that decide on the kernel of a product: of a few rows, as in decoding, those of the weights."""
    few, many = sorted((product.rows, product.columns))
    return (product.depth, many) if 1 < few <= SMALL and not product.groups else (product.rows, product.depth, product.columns)
