"""roofline: how far an accelerator program is from what the hardware allows, why, and what to do next.

    >>> import roofline as rl
    >>> report = rl.price([rl.formulas.matmul(8192, 8192, 8192, weights="int8")], rl.chip("v5e"))
    >>> report.ops[0].bound, round(report.ops[0].intensity)
    ('matrix', 3277)

Everything users need is here; other modules may move. A name is imported when it is first used, so that ``import roofline`` and the
command line start at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .capture import capture as capture
from .errors import FormulaError as FormulaError
from .errors import MachineError as MachineError
from .errors import MissingExtra as MissingExtra
from .errors import OutputError as OutputError
from .errors import RooflineError as RooflineError
from .errors import SourceError as SourceError
from .errors import UnitError as UnitError
from .errors import UsageError as UsageError
from .integrations import show_reports_in_notebooks
from .integrations.kernel_blocks import blocks as blocks
from .plan import plan as plan
from .plan import plan_serving as plan_serving

if TYPE_CHECKING:
    from . import formulas as formulas
    from . import jax as jax
    from . import torch as torch
    from . import units as units
    from .analysis import analyze as analyze
    from .analysis import price as price
    from .analysis.budgets import check as check
    from .analysis.findings.single_ops import explain as explain
    from .analysis.validation import validate as validate
    from .checking import BudgetCheck as BudgetCheck
    from .checking.baselines import Baseline as Baseline
    from .checking.baselines import baseline_of as baseline  # noqa: F401
    from .comparison import compare as compare
    from .cost import Cost as Cost
    from .dtypes import dtype as dtype
    from .fusing import best as best_fusion  # noqa: F401
    from .fusing import fuse as fuse
    from .fusing.op_chain import StageSpec as StageSpec
    from .fusing.op_chain import chain as chain
    from .hlo.price.calls import CustomCall as CustomCall
    from .hlo.price.calls import forget_call as forget_call
    from .hlo.price.calls import register_call as register_call
    from .integrations.changed_program import what_if as what_if
    from .integrations.notebook import show as show
    from .ledger import Ledger as Ledger
    from .ledger import Row as Row
    from .machine import Limit as Limit
    from .machine import Machine as Machine
    from .machines import catalogue as catalogue
    from .machines import load as chip  # noqa: F401
    from .placement import Corrections as Corrections
    from .placement import Placement as Placement
    from .placement import fit as fit
    from .placement import place as place
    from .render.export import to_json as to_json
    from .render.views import plot as plot
    from .render.views import rows as rows
    from .render.views import save as save
    from .render.views import text as text
    from .report import Finding as Finding
    from .report import Report as Report
    from .resource import Resource as Resource
    from .solving import Crossing as Crossing
    from .solving import cross as cross
    from .sources import read as read
    from .torch_prices import forget as forget_op  # noqa: F401
    from .torch_prices import register as register_op  # noqa: F401
    from .workload import Op as Op
    from .workload import Recording as Recording
    from .workload import Workload as Workload

# name -> module, and the name there where it differs
_HOMES = {
    **dict.fromkeys(("analyze", "price"), "analysis"),
    "explain": "analysis.findings.single_ops",
    "check": "analysis.budgets",
    "baseline": "checking.baselines:baseline_of",
    "validate": "analysis.validation",
    "what_if": "integrations.changed_program",
    "Baseline": "checking.baselines",
    "BudgetCheck": "checking",
    "compare": "comparison",
    "Cost": "cost",
    "dtype": "dtypes",
    **dict.fromkeys(("StageSpec", "chain"), "fusing.op_chain"),
    "fuse": "fusing",
    "best_fusion": "fusing:best",
    **dict.fromkeys(("CustomCall", "forget_call", "register_call"), "hlo.price.calls"),
    **dict.fromkeys(("Ledger", "Row"), "ledger"),
    **dict.fromkeys(("Limit", "Machine"), "machine"),
    "catalogue": "machines",
    "chip": "machines:load",
    **dict.fromkeys(("Corrections", "Placement", "fit", "place"), "placement"),
    **dict.fromkeys(("Finding", "Report"), "report"),
    "Resource": "resource",
    **dict.fromkeys(("Crossing", "cross"), "solving"),
    "read": "sources",
    "show": "integrations.notebook",
    **dict.fromkeys(("plot", "rows", "save", "text"), "render.views"),
    "to_json": "render.export",
    "forget_op": "torch_prices:forget",
    "register_op": "torch_prices:register",
    **dict.fromkeys(("Op", "Recording", "Workload"), "workload"),
}
_MODULES = ("formulas", "jax", "torch", "units")
_ERRORS = ("FormulaError", "MachineError", "MissingExtra", "OutputError", "RooflineError", "SourceError", "UnitError", "UsageError")
__all__ = sorted([*_HOMES, *_MODULES, *_ERRORS, "blocks", "capture", "plan", "plan_serving"])


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    if name not in _HOMES:
        raise AttributeError(f"module 'roofline' has no attribute {name!r}")
    module, _, there = _HOMES[name].partition(":")
    return getattr(import_module(f".{module}", __name__), there or name)


def __dir__() -> list[str]:
    return __all__


show_reports_in_notebooks()
