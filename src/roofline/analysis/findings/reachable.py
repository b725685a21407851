"""The share of each roof that good kernels reach: time beyond it can be saved, the rest is inherent."""

from ...cost import Cost
from ...operation import COMPLEX, GATHERED, INTERLEAVED
from ...resource import TRANSCENDENTAL, vector

# Long streaming kernels (on an H200 copies reach 81%, reads 95%), large matmuls (80% in bf16, sustained), and vector code (a choice).
REACHABLE = {"hbm": 0.9, "matrix": 0.8, "vector": 0.7}
# Fused attention waits for its softmax, a convolution gathers its windows, a sort passes over its keys many times, a Fourier transform
# several times; the steps of a recurrent network, a factorisation or a solve depend on each other. Compilers scatter element by element: on
# an H200 about 125 G of them a second, however they are sorted. Rows of 512 bytes at random places are fetched at a quarter of the
# bandwidth, longer ones at up to three quarters. The windows of a pool overlap, and its gradient looks for their maxima. A fused optimizer
# goes through lists of tensors of all sizes: on an H200 PyTorch's Adam moves 2.0 to 2.8 TB/s of bf16 and 3.4 of fp32. Inductor's kernels
# compute functions (gelu, the exponentials of a softmax) whose FLOP no trace has: they move 2.0 to 2.8 TB/s of bf16, and 1.3 where they
# reduce. cuSPARSELt multiplies 2:4 sparse weights at 55% of twice the dense rate (bf16, 16384 x 4096 x 16384, on an H200).
#
# In 340 recordings on an H200, some of programs with faults, launches of 30 µs or more reach (lower quartile, median, best): attention 27%,
# 35%, 59%; convolutions 42%, 66%, 86%, memory-bound ones 9%, 12%, 86%; sorts 1%, 5%, 12%; Fourier transforms 6%, 33%, 71%; scatters 10%,
# 13%, 39%; gathers 10%, 19%, 96%; pools 10%, 12%, 24%; optimizers 16%, 56%, 96%; Inductor's kernels 39%, 50%, 91%, and where they reduce
# 41%, 61%, 95%; factorisations and solves 0.3% to 36%, for which the share is so low that no time is promised.
OF_CATEGORIES = {
    "attention": 0.55,
    "sparse matmul": 0.55,
    "convolution": 0.4,
    "sort": 0.04,
    "top-k": 0.04,
    "fft": 0.12,
    "recurrent": 0.02,
    "linear algebra": 0.001,
    "scatter": 0.04,
    "gather": 0.25,
    "pooling": 0.1,
    "optimizer": 0.5,
    "pointwise fusion": 0.4,
    "reduction fusion": 0.25,
}
# Few channels keep a convolution from streaming: the first ones of image models reach 5 to 16% on an H200.
OF_BOUND_CATEGORIES = {("convolution", "hbm"): 0.05}
# For a compiler's kernels: an associative scan in one kernel computes most elements several times. XLA's kernels of complex numbers reach
# 22% to 61% on an H200: a sum of products over 8 spectra took 409 µs, and 403 µs apart from what it was fused with.
OF_STREAMED = {GATHERED: OF_CATEGORIES["gather"], INTERLEAVED: 0.12, COMPLEX: 0.22}
# Instructions that take longer on a GPU than a FLOP of its fp32 peak, which counts a multiply-add as two: CUDA C++ Programming Guide,
# arithmetic instructions, compute capability 9.0. Per clock and multiprocessor 128 multiply-adds, 64 integer additions, shifts or logical
# operations, 16 transcendental functions. Random numbers are integer work: threefry takes 120 such operations each.
FLOP_PER_INTEGER, FLOP_PER_TRANSCENDENTAL = 4, 16
OTHERWISE = 0.85  # of links; also of kernels with counters, whatever their unit: between the shares of memory and of the matrix unit
GOOD = 0.6  # of the roof: differences above it come from the compiler's choice of kernel
SEVERAL_KERNELS = frozenset(("sort", "scatter", "recurrent", "linear algebra"))  # categories whose ops run several kernels in sequence
SORT_LAUNCHES = 16  # least number of launches of a sort, however few its keys (a choice: several passes of several kernels)


def reachable(category: str, unit: str | None) -> float:
    """The share of its roof that a good kernel of a category reaches."""
    return OF_BOUND_CATEGORIES.get((category, unit or "")) or OF_CATEGORIES.get(category) or REACHABLE.get(unit or "", OTHERWISE)


def slow_instructions(cost: Cost) -> Cost:
    """The integer and transcendental instructions of a cost, as the fp32 FLOP that a GPU would compute in the same time."""
    flops = 0.0
    for resource, _ in cost.amounts:
        if resource == TRANSCENDENTAL:
            flops += FLOP_PER_TRANSCENDENTAL * cost.known(resource)
        elif resource.unit == "vector" and resource.kind.startswith(("int", "uint")):
            flops += FLOP_PER_INTEGER * cost.known(resource)
    return Cost.of({vector("fp32"): flops})
