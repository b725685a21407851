"""Why ops are slower than expected on a chip, as far as a profile shows it: a low clock, extra traffic, the choice of kernel."""

import re
from collections.abc import Iterable, Mapping, Sequence
from math import ceil

from msgspec import Struct

from ..operation import Product, width
from ..resource import HBM
from ..units import approximate
from ..workload import KernelUse
from .expected_times import is_calibrated
from .finding_kinds import CLOCK, KERNEL, PAD, REUSE, TURN
from .kernel_tiles import generation_of, tile_of
from .losses import COMPUTE
from .op_times import OpTime

# The thresholds are choices: a cause is named only if it explains much of an excess, which begins at 1.85 times the expected time.
THROTTLED = 1.5  # times the expected time: if nearly all ops take longer, the clock is low
ENOUGH = 3  # compute-bound ops needed to distinguish a low clock from a slow kernel
NEARLY_ALL = 0.8  # of the time of compute-bound ops
MOVED = 1.3  # times the modelled bytes
PADDED = 1.3  # times the elements of the result
SMALL_TILE = 64 * 64  # elements of a result; libraries use 128 x 128 and more for large products
MANY_TILES = 132 * 128 * 128  # elements of a result that keep every core of an H100 busy with such tiles
EIGHT_BITS = ("int8", "fp8")
LOADED = 16  # bytes of a row that kernels for newer chips load at once
_WITHOUT_MATRIX_UNIT = r"(?i)simt|sgemm|gemv|gemmk1|_fp32_gemm"


class VisibleCause(Struct, frozen=True):
    """A reason visible in the profile, as a sentence, and what helps."""

    sentence: str
    lever: str


def causes(slow: Sequence[OpTime], op_times: Iterable[OpTime], kernels: Iterable[KernelUse], capability: str = "") -> list[VisibleCause]:
    """The visible reasons why ops are too slow, worst op first; ``capability`` is the compute capability of the chip."""
    names: dict[int, list[str]] = {}
    wanted = {one.id for one in slow}
    for use in kernels:
        if use.op_index in wanted:
            names.setdefault(use.op_index, []).append(use.kernel_name)
    found = [_clock(op_times), _counted(slow), _kernel(slow[0], names, capability)]
    return [cause for cause in found if cause is not None]


def _clock(op_times: Iterable[OpTime]) -> VisibleCause | None:
    """Whether all compute-bound ops are slow, as on a device whose clock or power is limited."""
    ratios: list[tuple[float, float]] = []
    for one in op_times:
        if one.prediction is not None and one.cause == COMPUTE and is_calibrated(one.prediction):
            ratios.append((one.spent_s / one.prediction.time_s, one.spent_s))
    if len(ratios) < ENOUGH:
        return None
    whole = sum(seconds for _, seconds in ratios)
    slow = sum(seconds for ratio, seconds in ratios if ratio >= THROTTLED)
    if slow < NEARLY_ALL * whole:
        return None
    sentence = f"So do nearly all of the {len(ratios):,} compute-bound ops: the device's clock or power is probably limited."
    return VisibleCause(sentence, CLOCK)


def _counted(slow: Sequence[OpTime]) -> VisibleCause | None:
    """Whether counters measured more traffic than the ops need."""
    counted = [(float(one.op.counters.cost.known(HBM)), float(one.op.cost.known(HBM))) for one in slow if one.op.counters]
    moved, modelled = (sum(side) for side in zip(*counted, strict=True)) if counted else (0.0, 0.0)
    if not modelled or moved < MOVED * modelled:
        return None
    return VisibleCause(
        f"Counters measured {approximate(moved / modelled, 2)} times the bytes that it has to move: operands are read again.", REUSE
    )


def _kernel(worst: OpTime, names: Mapping[int, Sequence[str]], capability: str) -> VisibleCause | None:
    """What the kernel's name shows about a product: no matrix unit, built for an older chip, or unsuitable tiles."""
    product = worst.op.operation
    if not isinstance(product, Product):
        return None
    for name in names.get(worst.id, ()):
        short = name.removeprefix("void ").removeprefix("cutlass::Kernel2<")[:60]
        if product.compute not in ("fp32", "fp64") and re.search(_WITHOUT_MATRIX_UNIT, name):
            return VisibleCause(f"Its kernel, {short}, does not use the matrix unit.", KERNEL)
        if (made_for := generation_of(name)) and capability and made_for < int(capability.partition(".")[0]):
            sentence = f"Its kernel, {short}, is built for older chips, of compute capability {made_for}; this one has {capability}."
            return VisibleCause(sentence, _for_newer_kernels(product))
        if sentence := _tiles(product, name):
            return VisibleCause(sentence, KERNEL)
    return None


def _for_newer_kernels(product: Product) -> str:
    """What kernels for newer chips need of a product's operands."""
    if product.compute.startswith(EIGHT_BITS):
        return TURN
    least = round(LOADED / max(width(product.left), width(product.right)))
    odd = sorted({round(size) for size in (product.m, product.k, product.n) if size % least})
    return PAD.format(least=least, sizes=", ".join(map(str, odd))) if odd else KERNEL


def _tiles(product: Product, kernel: str) -> str:
    """Whether the tiles of a kernel are too large or too small for a product; empty where they fit."""
    tile = tile_of(kernel)
    if tile is None:
        return ""
    m, n = float(product.m), float(product.n)
    fits = min(
        ceil(m / rows) * rows * ceil(n / columns) * columns for rows, columns in ((tile.rows, tile.columns), (tile.columns, tile.rows))
    )
    if fits > PADDED * m * n:
        times = approximate(fits / (m * n), 2)
        return f"Its kernel computes tiles of {tile.rows}×{tile.columns}, {times} times the {m:.0f}×{n:.0f} of the result."
    if tile.rows * tile.columns <= SMALL_TILE and m * n * float(product.batch) >= MANY_TILES:
        return f"Its kernel computes tiles of {tile.rows}×{tile.columns}, which load operands more often than larger ones."
    return ""
