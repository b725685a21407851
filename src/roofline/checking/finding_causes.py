"""Which findings explain too much of a quantity: padding adds FLOP and bytes, a wide format only bytes, a host that waits only time."""

from collections.abc import Iterable

from ..report import Finding
from .conditions import Quantity

# Findings about the distance to the roofline, which most programs have; only other kinds count as causes.
DISTANCE = ("memory", "products", "compute", "communication", "latency", "excess", "low-batch")
WORK = (  # kinds that add FLOP
    "one-hot-product",
    "dense-experts",
    "masked-attention",
    "recomputation",
    "padding",
    "product-order",
    "unused-results",
    "duplicated-work",
)
BYTES = (
    *WORK,
    "dense-gradient",
    "missing-donation",
    "stored-attention",
    "wide-format",
    "tile-padding",
    "repeated-operand",
    "layout-copies",
    "unfused-chain",
)
KERNELS = ("unfused-chain", "layout-copies", "stored-attention", "missing-donation", "recomputation", "duplicated-work", "idle-dispatch")
MEMORY = ("out-of-memory", "missing-donation", "stored-attention", "wide-format", "one-hot-product", "dense-experts", "padding")
_COUNTS = ("launches", "executions", "ops", "fusions")
_MEMORY = ("peak memory", "donated memory")
_WAITING = ("step", "run", "mfu", "hfu", "idle", "efficiency", "findings")  # quantities that include idle time


def explaining(findings: Iterable[Finding], quantity: Quantity, ids: Iterable[int]) -> list[Finding]:
    """The findings that explain too much of a quantity in the ops with these ids, or in any op without ids."""
    mine = set(ids)
    explaining_findings = [one for one in findings if one.kind not in DISTANCE and _explains(one.kind, quantity)]
    return [one for one in explaining_findings if not mine or not one.ops or mine & set(one.ops)]


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
