"""Ops that take longer than expected on a chip, and why, as far as a profile shows it: a low clock, extra traffic, the choice of kernel."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil

from msgspec import Struct

from ...causes import COMPUTE
from ...operation import Product, width
from ...resource import HBM
from ...workload import Fact, KernelUse
from ..expected_times import is_calibrated
from ..op_times import OpTime
from .clock import Clock
from .evidence import LEVERS, Evidence, Note, Saving
from .kernel_tiles import generation_of, tile_of

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


COMPILED = "compiled"  # the case of the levers for kernels that a compiler generated
FUSION = "fusion"  # suffix of the categories of these


class VisibleCause(Struct, frozen=True):
    """A reason visible in the profile, and the case whose lever helps."""

    note: Note
    case: str
    facts: Mapping[str, Fact] = {}


def excess_evidence(
    slow: Sequence[tuple[OpTime, float]], clock: Clock, why: Callable[[Sequence[OpTime]], list[VisibleCause]]
) -> list[Evidence]:
    """Ops that take longer than expected on this chip, for each family of predictions, the op with the most excess first."""
    families: dict[str, list[tuple[OpTime, float]]] = {}
    for one, seconds in slow:
        families.setdefault(one.prediction.family if one.prediction else "", []).append((one, seconds))
    found = []
    for members in families.values():
        saving = Saving.of([one.id for one, _ in members], [seconds for _, seconds in members], clock)
        if saving.steps_s < clock.notable_s:
            continue
        members.sort(key=lambda each: -each[1])
        ops, (worst, excess_s) = [one for one, _ in members], members[0]
        causes = why(ops)
        cases = tuple(cause.case for cause in causes) or ((COMPILED,) if worst.op.category.endswith(FUSION) else LEVERS)
        facts = {name: fact for cause in causes for name, fact in cause.facts.items()}
        facts["times"] = worst.spent_s / (worst.spent_s - excess_s)
        notes = tuple(cause.note for cause in causes)
        found.append(Evidence(kind="excess", ops=[one.id for one in ops], facts=facts, saved=saving, levers=cases, notes=notes))
    return found


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
    return VisibleCause(Note("slow-clock", {"ops": len(ratios)}), "clock")


def _counted(slow: Sequence[OpTime]) -> VisibleCause | None:
    """Whether counters measured more traffic than the ops need."""
    counted = [(float(one.op.counters.cost.known(HBM)), float(one.op.cost.known(HBM))) for one in slow if one.op.counters]
    moved, modelled = (sum(side) for side in zip(*counted, strict=True)) if counted else (0.0, 0.0)
    if not modelled or moved < MOVED * modelled:
        return None
    return VisibleCause(Note("read-again", {"times": moved / modelled}), "reuse")


def _kernel(worst: OpTime, names: Mapping[int, Sequence[str]], capability: str) -> VisibleCause | None:
    """What the kernel's name shows about a product: no matrix unit, built for an older chip, or unsuitable tiles."""
    product = worst.op.operation
    if not isinstance(product, Product):
        return None
    for name in names.get(worst.id, ()):
        short = name.removeprefix("void ").removeprefix("cutlass::Kernel2<")[:60]
        if product.compute not in ("fp32", "fp64") and re.search(_WITHOUT_MATRIX_UNIT, name):
            return VisibleCause(Note("no-matrix-unit", {"kernel": short}), "kernel")
        if (built := generation_of(name)) and capability and built < int(capability.partition(".")[0]):
            note = Note("older-chips", {"kernel": short, "built": built, "capability": capability})
            return VisibleCause(note, *_for_newer_kernels(product))
        if (tiles := _tiles(product, name)) is not None:
            return VisibleCause(tiles, "kernel")
    return None


def _for_newer_kernels(product: Product) -> tuple[str, Mapping[str, Fact]]:
    """What kernels for newer chips need of a product's operands: the case of the levers, with its facts."""
    if product.compute.startswith(EIGHT_BITS):
        return "turn", {}
    least = round(LOADED / max(width(product.left), width(product.right)))
    odd = sorted({round(size) for size in (product.m, product.k, product.n) if size % least})
    return ("pad", {"least": least, "sizes": ", ".join(map(str, odd))}) if odd else ("kernel", {})


def _tiles(product: Product, kernel: str) -> Note | None:
    """Whether the tiles of a kernel are too large or too small for a product."""
    tile = tile_of(kernel)
    if tile is None:
        return None
    m, n = float(product.m), float(product.n)
    fits = min(
        ceil(m / rows) * rows * ceil(n / columns) * columns for rows, columns in ((tile.rows, tile.columns), (tile.columns, tile.rows))
    )
    if fits > PADDED * m * n:
        return Note("large-tiles", {"rows": tile.rows, "columns": tile.columns, "times": fits / (m * n), "m": m, "n": n})
    if tile.rows * tile.columns <= SMALL_TILE and m * n * float(product.batch) >= MANY_TILES:
        return Note("small-tiles", {"rows": tile.rows, "columns": tile.columns})
    return None
