"""The price of a custom call: by the function of its library, or one that a user registered.

Exact targets come before prefixes, longer prefixes before shorter ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TypeVar

from msgspec import Struct

from ....cost import Cost
from ....errors import FormulaError, UsageError
from ....ledger import Ledger
from ...ir.platforms import Platform
from ...ir.shapes import Shape
from ...read.backend_config import backend_config
from ..types import Price, Site
from .registry import EXACT, PREFIXES
from .traffic import origins, traffic_of, unpriced

F = TypeVar("F")

# One file per library; importing it fills the registry.
LIBRARIES = (
    *("annotations", "cublas", "cudnn", "fmha", "lapack", "mosaic", "onednn", "random_numbers", "sorting", "sparse"),
    *("transformer_engine", "triton"),
)
# Prefixes of targets that belong to one library: only that file is imported for them, all files for any other target.
BEGINNINGS = {"__cublas$": "cublas", "__cudnn$conv": "cudnn", "__cudnn$fmha": "fmha", "__onednn$": "onednn", "tpu_custom_call": "mosaic"}
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

_USERS: dict[str, UserFunction] = {}
_IMPORTED: set[str] = set()


def register_call(target: str, function: UserFunction) -> None:
    """Price custom calls to ``target`` with your own function: a `CustomCall` in, a `Cost` or `Ledger` out.

    ``target`` may be a prefix that ends in ``*``. If the function returns ``None``, the cost of the call is unknown. A target that already
    has a function is a `UsageError`; `forget_call` removes a user's function.
    """
    if not target or target == "*":
        raise UsageError("a custom call needs a target, as in register_call('my_kernel', function)")
    _import(LIBRARIES)
    if target in _USERS or target in EXACT or target in PREFIXES:
        owner = "one of yours" if target in _USERS else "one of this package's"
        raise UsageError(f"the custom call {target!r} already has a function, {owner}; remove yours with forget_call")
    _USERS[target] = function


def forget_call(target: str) -> None:
    """Removes a function that `register_call` registered."""
    if target not in _USERS:
        raise UsageError(f"you registered no function for the custom call {target!r}")
    del _USERS[target]


def user_targets() -> tuple[str, ...]:
    """Every target and prefix that `register_call` registered, in order of name."""
    return tuple(sorted(_USERS))


def known_targets() -> tuple[str, ...]:
    """Every target and prefix of libraries that has a price, in order of name."""
    _import(LIBRARIES)
    return tuple(sorted((*EXACT, *PREFIXES)))


def price_call(site: Site) -> Price | None:
    """The price of one execution of a custom call; ``None`` for an unknown target.

    A call whose configuration does not fit its shapes moves its bytes, and its arithmetic is unknown.
    """
    target = site.instruction.custom_call_target
    if (function := _find(target, _USERS, _USERS)) is not None:
        return _price_by_user(site, function)
    _import(next(((file,) for beginning, file in BEGINNINGS.items() if target.startswith(beginning)), LIBRARIES))
    handler = _find(target, EXACT, PREFIXES)
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
    if text is None or not instruction.custom_call_target.startswith(PRODUCTS) or "pad" in site.module.opcodes or _USERS:
        return None
    places: dict[object, int] = {}
    operands = [(id(one.shape), places.setdefault(place, len(places))) for one, place in zip(site.operands, origins(site), strict=True)]
    return text, id(instruction.shape), *operands  # equal shapes of a module are one object


def _import(files: tuple[str, ...]) -> None:
    """Imports the files of these libraries, unless they are imported already."""
    for file in files:
        if file not in _IMPORTED:
            import_module(f".{file}", __package__)
            _IMPORTED.add(file)


def _find(target: str, exact: Mapping[str, F], prefixes: Mapping[str, F]) -> F | None:
    if target in exact and not target.endswith("*"):
        return exact[target]
    fitting = [prefix for prefix in prefixes if prefix.endswith("*") and target.startswith(prefix[:-1])]
    return prefixes[max(fitting, key=len)] if fitting else None


def _price_by_user(site: Site, function: UserFunction) -> Price | None:
    instruction = site.instruction
    answer = function(
        CustomCall(
            target=instruction.custom_call_target,
            operands=tuple(operand.shape for operand in site.operands),
            results=instruction.shape.parts if instruction.shape.is_tuple else (instruction.shape,),
            config=backend_config(instruction),
            raw_config=instruction.backend_config_text,
            platform=site.platform,
        )
    )
    if answer is None:
        return None
    if isinstance(answer, Ledger):
        return Price(answer.cost, answer.name, answer.notes)
    if not isinstance(answer, Cost):
        raise UsageError(
            f"the function for {instruction.custom_call_target!r} returned a {type(answer).__name__}; return a Cost, a Ledger or None"
        )
    return Price(answer, "custom call", ("priced by a registered function",))
