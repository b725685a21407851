"""Which findings explain too much of a quantity: padding adds FLOP and bytes, a wide format only bytes, a host that waits only time."""

from collections.abc import Iterable

from ..report import Finding
from .conditions import Quantity

# Findings about the distance to the roofline, which most programs have: causes of too long a time, but not of a change since a baseline.
DISTANCE = ("memory", "products", "compute", "communication", "latency", "excess", "low-batch")
# Kinds that add FLOP, and those that add only bytes.
_FLOP = "one-hot-product dense-experts masked-attention recomputation padding product-order unused-results duplicated-work"
_ONLY_BYTES = "dense-gradient missing-donation stored-attention wide-format tile-padding repeated-operand layout-copies unfused-chain"
WORK = tuple(_FLOP.split())
BYTES = (*WORK, *_ONLY_BYTES.split())
KERNELS = ("unfused-chain", "layout-copies", "stored-attention", "missing-donation", "recomputation", "duplicated-work", "idle-dispatch")
MEMORY = ("out-of-memory", "missing-donation", "stored-attention", "wide-format", "one-hot-product", "dense-experts", "padding")
_COUNTS = ("launches", "executions", "ops", "fusions")
_MEMORY = ("peak memory", "donated memory")
MINOR = 0.1  # of the largest saving: a finding that saves less is no cause of too long a time
_WAITING = ("step", "run", "mfu", "hfu", "idle", "efficiency", "findings")  # quantities that include idle time


def explaining(findings: Iterable[Finding], quantity: Quantity, ids: Iterable[int], *, changed: bool) -> list[Finding]:
    """The findings that explain too much of a quantity in the ops with these ids, or in any op without ids.

    A measured quantity that misses its limit, and has not ``changed`` since a baseline, is explained by what would save most, wherever it
    is: that includes the distance to the roofline.
    """
    about = [one for one in findings if _explains(one.kind, quantity)]
    mine = set(ids)
    found = [one for one in about if one.kind not in DISTANCE and (not mine or not one.ops or mine & set(one.ops))]
    if changed or quantity.of or quantity.name == "idle" or not quantity.is_measured:
        return found
    notable = MINOR * max((one.saving_s or 0.0 for one in about), default=0.0)
    return [one for one in about if one.saving_s and one.saving_s >= notable] or found


def _explains(kind: str, quantity: Quantity) -> bool:
    """Whether a kind of finding is about this quantity."""
    name, waits = quantity.name, kind.startswith("idle")
    if name == "idle":
        return waits
    if name in _COUNTS:
        return kind in KERNELS
    if name in _MEMORY:
        return kind in MEMORY
    if quantity.is_measured or name == "findings":
        return not waits or (not quantity.of and (name in _WAITING or quantity.is_throughput))
    return kind in (WORK if name == "flops" else BYTES)
