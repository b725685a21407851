"""Products and convolutions of sizes that no matrix unit loads well: rows of elements that do not fill 16 bytes."""

from collections.abc import Iterator

from ...workload import Avoidable
from .kernels import Kernels

KIND = "odd-sizes"
_LOAD_BITS = 128  # one load of a row: 8 elements of bf16
_SMALL = 64


def odd_sizes(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The products and convolutions with a size that is not a multiple of a load, where it is large enough to be padded at little cost."""
    products = [(index, one.left, (one.rows, one.depth, one.columns), "matrices of sizes") for index, one in kernels.products.items()]
    convolutions = [(index, one.left, one.channels, "channels") for index, one in kernels.convolutions.items()]
    for index, left, sizes, what in products + convolutions:
        if not left.shape.is_array:
            continue
        step = _LOAD_BITS // max(left.shape.number.bits, 1)
        odd = [size for size in sizes if size % step and size > _SMALL]
        if odd and min(sizes) > _SMALL:
            word = " and ".join(str(size) for size in dict.fromkeys(odd))
            why = f"multiplies {what} ({word}) that are not multiples of {step}"
            yield index, Avoidable(kind=KIND, instead=kernels.costs[index], why=why)
