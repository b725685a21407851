"""Shapes of the kernels that measure a GPU, the same through Triton and Pallas: elements of a block, warps, programs for each core; and the
largest working set."""

from ...units import parse

BLOCKS = ((2048, 8, 8), (4096, 8, 4), (4096, 8, 8), (8192, 8, 4))  # to try
ALL_AT_ONCE = 4  # most programs per core that run concurrently for sure: later ones would make the working set look smaller
PER_CORE, PER_CORE_PALLAS = (2048, 16, 1), (4096, 16, 1)  # where each core reads its own share, through Triton and through Pallas
REGISTER_BLOCK, PROGRAMS_PER_CORE, REPEATS = 8 * 128, 8, 256  # elements per program: eight per thread
LARGEST = parse("4 GiB", "B")
SHARE = 16  # a working set has at most this fraction (1/16) of the memory


def largest_set(memory: float | None) -> float:
    """Bytes of the largest working set on a device with ``memory`` bytes."""
    return min(LARGEST, (memory or parse("256 MiB", "B")) / SHARE)
