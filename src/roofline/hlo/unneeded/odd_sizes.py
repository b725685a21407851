"""Products of sizes that no matrix unit loads well: rows of elements that do not fill 16 bytes."""

from collections.abc import Iterator

from ...workload import Avoidable
from .kernels import Kernels

KIND = "odd-sizes"
_LOAD_BITS = 128  # one load of a row: 8 elements of bf16
_SMALL = 64


def odd_sizes(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The products with a size that is no multiple of a load, where it is large enough to be padded at little cost."""
    for index, found in kernels.products.items():
        if not found.left.shape.is_array:
            continue
        step = _LOAD_BITS // max(found.left.shape.number.bits, 1)
        sizes = (found.rows, found.depth, found.columns)
        odd = [size for size in sizes if size % step and size > _SMALL]
        if odd and min(sizes) > _SMALL:
            word = " and ".join(str(size) for size in dict.fromkeys(odd))
            why = f"multiplies matrices of sizes ({word}) that are no multiple of {step}"
            yield index, Avoidable(kind=KIND, instead=kernels.costs[index], why=why)
