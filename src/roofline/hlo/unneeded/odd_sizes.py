"""Products and convolutions of sizes that kernels are slow at: rows that are not a multiple of 16 bytes, windows as large as images,
matrices of a few elements, a single channel.
"""

from collections.abc import Iterator
from math import prod

from ...workload import Avoidable, Facts, Saves
from .kernels import Kernels
from .values import Value

KIND, WINDOWS = "odd-sizes", "windows"
TINY, STENCIL, SOLVED = "tiny", "stencil", "tiny solves"
_MOST_TAPS = 27  # of a stencil: 3 × 3 × 3
_FORWARD = ("__cudnn$convForward", "__cudnn$convBiasActivationForward")
_LARGE_WINDOW = 8 * 8  # larger than the 7 × 7 of forward convolutions
_SOLVES = ("cholesky", "triangular-solve")
_SOLVERS = ("cusolver_potrf", "cusolver_trsm", "__cublas$triangularSolve")
_SMALL_ORDER, _MANY_MATRICES = 8, 1_000  # matrices whose factorisation a compiler can unroll, and so many that each thread has its own
_LOAD_BITS = 128  # one load of a row: 8 elements of bf16
_SMALL = 64


def odd_sizes(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The products and convolutions with a size that is not a multiple of a load, but large enough to be padded at little cost."""
    products = [(index, one.left, (one.rows, one.depth, one.columns), "matrices") for index, one in kernels.products.items()]
    convolutions = [(index, one.left, one.channels, "channels") for index, one in kernels.convolutions.items()]
    for index, left, sizes, cause in products + convolutions:
        if not left.shape.is_array:
            continue
        step = _LOAD_BITS // max(left.shape.number.bits, 1)
        odd = [size for size in sizes if size % step and size > _SMALL]
        if odd and min(sizes) > _SMALL:
            facts = Facts(sizes=" and ".join(str(size) for size in dict.fromkeys(odd)), step=step)
            yield index, Avoidable(kind=KIND, instead=kernels.costs[index], cause=cause, facts=facts, saves=Saves.GOOD_PRODUCT)


def large_windows(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The library's forward convolutions whose window is larger than their result: gradients of weights that XLA did not recognise.

    The gradients of a dilated or transposed convolution are computed so; those of others run as backward convolutions. Windows that do
    not overlap cut an image into patches.
    """
    for index in kernels.convolutions:
        instruction = kernels.computation[index]
        labels = instruction.convolution
        sizes = [one.size for one in instruction.window]
        if instruction.custom_call_target not in _FORWARD or labels is None or prod(sizes) < _LARGE_WINDOW:
            continue
        if all(one.stride >= one.size for one in instruction.window):
            continue
        made = Value(kernels.computation, index).shape.dims
        image = [made[axis] for axis in labels.output_spatial if axis < len(made)]
        if prod(image) < prod(sizes):
            window, weights = ("×".join(map(str, some)) for some in (sizes, image))
            facts = {"weights": weights, "window": window}
            yield index, Avoidable(kind=KIND, instead=kernels.costs[index], facts=facts, group=WINDOWS, saves=Saves.GOOD_KERNEL)


def tiny_products(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The products with matrices of a few elements, and the convolutions of one channel: elementwise products and sums do the same.

    Kernels for matrices pad each of them to a tile; elementwise code moves the same bytes, and fuses with what is around it.
    """
    if kernels.platform != "gpu":
        return
    for index, found in kernels.products.items():
        if found.is_tiny and not found.is_of_vectors:
            yield (
                index,
                Avoidable(
                    kind=KIND,
                    instead=kernels.costs[index],
                    facts={"product": str(found)},
                    group=TINY,
                    saves=Saves.GOOD_STREAM,
                ),
            )
    for index, convolution in kernels.convolutions.items():
        sizes = [one.size for one in kernels.computation[index].window]
        if convolution.is_stencil and prod(sizes) <= _MOST_TAPS:
            facts = {"window": "×".join(map(str, sizes))}
            yield index, Avoidable(kind=KIND, instead=kernels.costs[index], facts=facts, group=STENCIL, saves=Saves.GOOD_STREAM)


def tiny_solves(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The Cholesky factorisations and triangular solves of many tiny matrices: written out, each thread computes one of them.

    On an H200, 100,000 systems of 8 × 8 took 0.64 ms with the library, and 0.10 ms as elementwise operations on arrays over the batch.
    """
    if kernels.platform != "gpu":
        return
    for index in kernels.costs:
        instruction = kernels.computation[index]
        if instruction.opcode not in _SOLVES and not (instruction.custom_call_target or "").startswith(_SOLVERS):
            continue
        dims = kernels.computation[instruction.operands[0]].shape.dims if instruction.operands else ()
        count, matrix = prod(dims[:-2]), dims[-2:]
        if matrix and max(matrix) <= _SMALL_ORDER and count >= _MANY_MATRICES:
            facts = {"matrices": count, "rows": matrix[0], "columns": matrix[-1]}
            yield index, Avoidable(kind=KIND, instead=kernels.costs[index], facts=facts, group=SOLVED, saves=Saves.GOOD_STREAM)
