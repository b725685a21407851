"""The price of a custom call: by the function of its library, or one that a user registered."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from ....cost import Cost
from ....errors import FormulaError, UsageError
from ....ledger import Ledger
from ...ir.platforms import Platform
from ...ir.shapes import Shape
from ...read.backend_config import backend_config
from ..types import Price, Site
from .registry import call
from .traffic import origins, traffic_of, unpriced

PRODUCTS = ("__cublas$gemm", "__cublas$lt$matmul")


class CustomCall(Struct, frozen=True, kw_only=True):
    """A custom call as a user's function receives it.

    ``operands`` and ``results`` are shapes, each with ``dtype``, ``dims``, ``elements`` and ``bytes``; a call that returns a tuple has
    one result per part. ``config`` is the backend configuration as a mapping (from JSON or an MLIR dictionary, empty if it is neither)
    and ``raw_config`` its text.
    """

    target: str
    operands: tuple[Shape, ...]
    results: tuple[Shape, ...]
    config: Mapping[str, object]
    raw_config: str
    platform: Platform

    @property
    def traffic(self) -> Cost:
        """Every operand read once and every result written once, each in its own memory."""
        return traffic_of(self.operands, self.results, self.platform)


UserFunction = Callable[[CustomCall], Cost | Ledger | None]


def register_call(target: str, function: UserFunction) -> None:
    """Price custom calls to ``target`` with your own function: a `CustomCall` in, a `Cost` or `Ledger` out.

    ``target`` may be a prefix that ends in ``*``. If the function returns ``None``, the cost of the call is unknown. A target that already
    has a function is a `UsageError`; `forget_call` removes a user's function.
    """
    call.load()
    if target in call.own:
        raise UsageError(f"the custom call {target!r} already has a function, one of this package's")
    call.register(target, function, "register_call('my_kernel', function)", "forget_call")


def forget_call(target: str) -> None:
    """Removes a function that `register_call` registered."""
    call.forget(target)


def user_targets() -> tuple[str, ...]:
    """Every target and prefix that `register_call` registered, in order of name."""
    return tuple(sorted(call.users))


def known_targets() -> tuple[str, ...]:
    """Every target and prefix of libraries that has a price, in order of name."""
    call.load()
    return tuple(sorted(call.own))


def price_call(site: Site) -> Price | None:
    """The price of one execution of a custom call; ``None`` for an unknown target.

    A call whose configuration does not fit its shapes moves its bytes, and its arithmetic is unknown.
    """
    target = site.instruction.custom_call_target
    if (users := call.users_function(target)) is not None:
        return _price_by_user(site, users)
    handler = call.function(target)
    if handler is None:
        return None
    try:
        return handler(site)
    except FormulaError as misfit:
        return unpriced(site, str(misfit))


def call_key(site: Site) -> tuple[object, ...] | None:
    """What the price of a library's product depends on, as a cache key that equal layers share; ``None`` for other calls.

    It is the call's attributes, its shapes, and which operands are the same array. Where the compiler padded, the price depends on more.
    """
    instruction = site.instruction
    text = instruction.dialect.unread(instruction.raw)
    if text is None or not instruction.custom_call_target.startswith(PRODUCTS) or "pad" in site.module.opcodes or call.users:
        return None
    places: dict[object, int] = {}
    operands = [
        (id(operand.shape), places.setdefault(place, len(places))) for operand, place in zip(site.operands, origins(site), strict=True)
    ]
    return text, id(instruction.shape), *operands  # equal shapes of a module are one object


def _price_by_user(site: Site, function: UserFunction) -> Price | None:
    instruction = site.instruction
    given = CustomCall(
        target=instruction.custom_call_target,
        operands=tuple(operand.shape for operand in site.operands),
        results=instruction.shape.parts if instruction.shape.is_tuple else (instruction.shape,),
        config=backend_config(instruction),
        raw_config=instruction.backend_config_text,
        platform=site.platform,
    )
    answer: Cost | Ledger | None = call.answer(given.target, function, given)
    if answer is None:
        return None
    if isinstance(answer, Ledger):
        return Price(answer.cost, answer.name, answer.notes)
    return Price(answer, "custom call", ("priced by a registered function",))
