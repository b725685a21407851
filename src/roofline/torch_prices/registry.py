"""The price of a PyTorch operator: by the function of its family, or one that a user registered."""

from collections.abc import Callable

from ..cost import Cost
from ..errors import FormulaError
from ..ledger import Ledger
from .call import RECORD_SHAPES, Call, NotRecorded, Priced, Pricer
from .memory_copies import copied
from .op_table import op

UserFunction = Callable[[Call], Cost | Ledger | Priced | None]

UNKNOWN = Priced(cost=None)
NO_SIZES = "recordings do not have the sizes of one of its tensors, as of nested tensors without the jagged layout"
SPARSE = "a sparse tensor: recordings do not tell how many elements it holds"


def register(name: str, function: UserFunction) -> None:
    """Price calls of the operator ``name`` with your own function: a `Call` in, a `Cost`, `Ledger` or `Priced` out.

    ``name`` may contain a ``*``, which matches any characters: ``mylib::*``. Your function takes precedence over this package's; if it
    returns ``None``, the cost of the call is unknown. Registering an operator twice is a `UsageError`; `forget` removes your function.
    """
    op.register(name, function, "register('mylib::my_op', function)", "forget")


def forget(name: str) -> None:
    """Removes a function that `register` registered."""
    op.forget(name)


def has_price(name: str) -> bool:
    """Whether some function prices this operator, though a recording may not have the arguments that it needs."""
    return has_users_price(name) or _function(name) is not None


def has_users_price(name: str) -> bool:
    """Whether a function that a user registered prices an operator, or a kernel that no operator launched."""
    return op.users_function(*_spellings(name)) is not None


def known_ops() -> tuple[str, ...]:
    """Every operator and pattern of this package that has a price, in order of name."""
    op.load()
    return tuple(sorted(op.own))


def price(call: Call) -> Priced:
    """The price of one call; its cost is ``None`` if it is unknown, with the recording option that would determine it."""
    if (users := op.users_function(*_spellings(call.op))) is not None:
        return _price_by_user(call, users)
    function = _function(call.op)
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


def _spellings(name: str) -> tuple[str, str]:
    return name, name.removesuffix("_")


def _function(name: str) -> Pricer | None:
    return op.function(*_spellings(name))


def _price_by_user(call: Call, function: UserFunction) -> Priced:
    answer: Cost | Ledger | Priced | None = op.answer(call.op, function, call, Priced)
    if answer is None:
        return UNKNOWN
    if isinstance(answer, Priced):
        return answer
    if isinstance(answer, Ledger):
        return Priced(cost=answer.cost, category=answer.name, notes=answer.notes)
    return Priced(cost=answer, category="custom op", notes=("priced by a registered function",))
