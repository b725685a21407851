"""The registry of PyTorch operators: which function prices which operator, including functions that users register.

An operator is written exactly (``aten::mm``), or as a pattern with ``*`` (``c10d::*``); exact names come first, longer patterns before
shorter ones. ``aten::add_`` is priced by the function of ``aten::add``, which checks whether the call is in place.
"""

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from typing import TypeVar

from ..cost import Cost
from ..errors import FormulaError, UsageError
from ..ledger import Ledger
from .call import RECORD_SHAPES, Call, NotRecorded, Priced, Pricer
from .memory_copies import copied
from .op_table import PRICES

F = TypeVar("F")

# One file per family; importing it fills the registry.
FAMILIES = (
    *("products", "convolutions", "attention", "elementwise", "copies", "norms", "gathers", "reductions", "pools"),
    *("recurrent", "embedding_bags", "linear_algebra", "transforms", "optimizers", "collectives", "serving", "inductor"),
)

UserFunction = Callable[[Call], Cost | Ledger | Priced | None]

_USERS: dict[str, UserFunction] = {}
UNKNOWN = Priced(cost=None)
NO_SIZES = "recordings do not have the sizes of one of its tensors, as of nested tensors without the jagged layout"
SPARSE = "a sparse tensor: recordings do not tell how many elements it holds"


def register(name: str, function: UserFunction) -> None:
    """Price calls of the operator ``name`` with your own function: a `Call` in, a `Cost`, `Ledger` or `Priced` out.

    ``name`` may contain a ``*``, which matches any characters: ``mylib::*``. Your function takes precedence over this package's; if it
    returns ``None``, the cost of the call is unknown. Registering an operator twice is a `UsageError`; `forget` removes your function.
    """
    if not name or name == "*":
        raise UsageError("an operator needs a name, as in register('mylib::my_op', function)")
    if name in _USERS:
        raise UsageError(f"the operator {name!r} already has a function that you registered; remove it with forget")
    _USERS[name] = function


def forget(name: str) -> None:
    """Removes a function that `register` registered."""
    if name not in _USERS:
        raise UsageError(f"you registered no function for the operator {name!r}")
    del _USERS[name]


def has_price(name: str) -> bool:
    """Whether some function prices this operator, though a recording may not have the arguments that it needs."""
    return has_users_price(name) or _own_function(name) is not None


def has_users_price(name: str) -> bool:
    """Whether a function that a user registered prices an operator, or a kernel that no operator launched."""
    return _find(name, _USERS) is not None


def known_ops() -> tuple[str, ...]:
    """Every operator and pattern of this package that has a price, in order of name."""
    return tuple(sorted(_own()))


def price(call: Call) -> Priced:
    """The price of one call; its cost is ``None`` if it is unknown, with the recording option that would determine it."""
    if (users := _find(call.op, _USERS)) is not None:
        return _price_by_user(call, users)
    function = _own_function(call.op)
    if any(one.sparse for one in call.all_tensors):
        return Priced(cost=None, notes=(SPARSE,) if function else ())
    notes: tuple[str, ...] = ()
    try:
        found = function(call) if function else None
    except NotRecorded:
        found, notes = None, (NO_SIZES,)
    except FormulaError as misfit:
        return Priced(cost=None, notes=(str(misfit).removeprefix(f"{call.op}: "),))
    if found is None and call.kernels and all(kernel.kind != "kernel" for kernel in call.kernels):
        found = copied(call)  # an unknown operator that only copies
    if found is None:
        return Priced(cost=None, missing=RECORD_SHAPES) if function and not call.args else Priced(cost=None, notes=notes)
    return found


def _find(name: str, table: Mapping[str, F]) -> F | None:
    for wanted in (name, name.removesuffix("_")):
        if wanted in table and "*" not in wanted:
            return table[wanted]
    likely = [pattern for pattern in table if "*" in pattern and name.startswith(pattern.partition("*")[0])]  # faster than matching all
    fitting = [pattern for pattern in likely if fnmatchcase(name, pattern)]
    return table[max(fitting, key=len)] if fitting else None


@cache
def _own_function(name: str) -> Pricer | None:
    return _find(name, _own())


@cache
def _own() -> dict[str, Pricer]:
    """The table of this package, filled on first use by importing its families."""
    for family in FAMILIES:
        import_module(f".{family}", __package__)
    return PRICES


def _price_by_user(call: Call, function: UserFunction) -> Priced:
    answer = function(call)
    if answer is None:
        return UNKNOWN
    if isinstance(answer, Priced):
        return answer
    if isinstance(answer, Ledger):
        return Priced(cost=answer.cost, category=answer.name, notes=answer.notes)
    if not isinstance(answer, Cost):
        raise UsageError(f"the function for {call.op!r} returned a {type(answer).__name__}; return a Cost, a Ledger, a Priced or None")
    return Priced(cost=answer, category="custom op", notes=("priced by a registered function",))
