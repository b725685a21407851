"""What experiments on a GPU share, through PyTorch with Triton and through JAX with Pallas: shapes of kernels (elements of a block, warps,
programs for each core), working sets, and how often they are passed over.
"""

import math
from collections.abc import Callable

from ...units import parse

WORD = 4  # bytes of fp32
COPY = int(parse("256 MiB", "B"))
CACHED = int(parse("16 MiB", "B"))  # a working set that fits any L2
VERBS = {"read": "read", "per_core": "read by each core of its own share", "write": "fill", "copy": "copy"}
EXPERIMENTS = ("product", "stream", "vector", "launch", "small", "host", "peer", "all-reduce")
MOST_PASSES, MORE_PASSES = 100_000, 100  # passes over a working set per try, and largest factor over those of the try before

BLOCKS = ((2048, 8, 8), (4096, 8, 4), (4096, 8, 8), (8192, 8, 4))  # to try
ALL_AT_ONCE = 4  # most programs per core that run concurrently for sure: later ones would make the working set look smaller
PER_CORE, PER_CORE_PALLAS = (2048, 16, 1), (4096, 16, 1)  # where each core reads its own share, through Triton and through Pallas
REGISTER_BLOCK, PROGRAMS_PER_CORE, REPEATS = 8 * 128, 8, 256  # elements per program: eight per thread
LARGEST = parse("4 GiB", "B")
SHARE = 16  # a working set has at most this fraction (1/16) of the memory


def largest_set(memory: float | None) -> float:
    """Bytes of the largest working set on a device with ``memory`` bytes."""
    return min(LARGEST, (memory or parse("256 MiB", "B")) / SHARE)


def enough_passes(seconds_of: Callable[[int], float], try_s: float) -> int:
    """How many passes over a working set take about ``try_s``; ``seconds_of`` runs so many, the first time to compile the kernel."""
    passes = 1
    seconds_of(passes)
    while (took := seconds_of(passes)) < try_s / 2 and passes < MOST_PASSES:  # the first is mostly overhead
        passes = min(MOST_PASSES, math.ceil(passes * min(try_s / took, MORE_PASSES)))
    return passes


def product_words(m: int, n: int, k: int, zeros: bool, held: bool) -> str:
    """How products of these sizes are measured."""
    return f"{m} x {k} by {k} x {n} products, {'zeros' if zeros else 'random operands'}, {'held' if held else 'in bursts'}"


def copy_words(direction: str, pinned: bool) -> str:
    """How copies between the host and the device are measured."""
    return f"copies {'from' if direction == 'in' else 'to'} {'pinned' if pinned else 'pageable'} host memory"
