"""roofline: how far an accelerator program is from what the hardware allows, why, and what to do next.

    >>> import roofline as rl
    >>> report = rl.price([rl.formulas.matmul(8192, 8192, 8192, weights="int8")], rl.chip("v5e"))
    >>> report.ops[0].bound, round(report.ops[0].intensity)
    ('matrix', 3277)

Everything users need is here; other modules may move. Each name is imported when it is first used, so that ``import roofline`` and
the command line start at once.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from . import formulas
    from .advice import explain
    from .analysis import analyze, price
    from .capturing import capture
    from .comparison import compare
    from .cost import Cost
    from .dtypes import dtype
    from .errors import FormulaError, MachineError, MissingExtra, RooflineError, SourceError, UnitError, UsageError
    from .fusing import StageSpec, chain, fuse
    from .fusing import best as best_fusion
    from .hlo.calls import CustomCall, register_call
    from .ledger import Ledger, Row
    from .machine import Limit, Machine
    from .machines import catalogue
    from .machines import load as chip
    from .placement import Corrections, Placement, fit, place
    from .report import Finding, Report
    from .resource import Resource
    from .solving import Crossing, cross
    from .sources import read
    from .workload import Op, Recording, Workload

__all__ = [
    "Corrections",
    "Cost",
    "Crossing",
    "CustomCall",
    "Finding",
    "FormulaError",
    "Ledger",
    "Limit",
    "Machine",
    "MachineError",
    "MissingExtra",
    "Op",
    "Placement",
    "Recording",
    "Report",
    "Resource",
    "RooflineError",
    "Row",
    "SourceError",
    "StageSpec",
    "UnitError",
    "UsageError",
    "Workload",
    "analyze",
    "best_fusion",
    "capture",
    "catalogue",
    "chain",
    "chip",
    "compare",
    "cross",
    "dtype",
    "explain",
    "fit",
    "formulas",
    "fuse",
    "place",
    "price",
    "read",
    "register_call",
]

# module -> its public names, and the name there where it differs
_DOOR = {
    "advice": ("explain",),
    "analysis": (
        "analyze",
        "price",
    ),
    "capturing": ("capture",),
    "comparison": ("compare",),
    "cost": ("Cost",),
    "dtypes": ("dtype",),
    "errors": (
        "FormulaError",
        "MachineError",
        "MissingExtra",
        "RooflineError",
        "SourceError",
        "UnitError",
        "UsageError",
    ),
    "fusing": (
        "StageSpec",
        "chain",
        "fuse",
        "best_fusion",
    ),
    "hlo.calls": ("CustomCall", "register_call"),
    "ledger": (
        "Ledger",
        "Row",
    ),
    "machine": (
        "Limit",
        "Machine",
    ),
    "machines": (
        "catalogue",
        "chip",
    ),
    "placement": (
        "Corrections",
        "Placement",
        "fit",
        "place",
    ),
    "report": (
        "Finding",
        "Report",
    ),
    "resource": ("Resource",),
    "solving": (
        "Crossing",
        "cross",
    ),
    "sources": ("read",),
    "workload": (
        "Op",
        "Recording",
        "Workload",
    ),
}
_HOME = {name: module for module, names in _DOOR.items() for name in names}
_RENAMED = {"chip": "load", "best_fusion": "best"}


def __getattr__(name: str) -> "Any":
    from importlib import import_module

    if name == "formulas":
        return import_module(".formulas", __name__)
    if name not in _HOME:
        raise AttributeError(f"module 'roofline' has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), _RENAMED.get(name, name))


def __dir__() -> list[str]:
    return sorted(__all__)
