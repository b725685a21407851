"""The registry of formulas: their names, framework names, and parameters.

A formula is a pure function of shapes that returns a `Ledger`. Its positional parameters are dimensions; its keyword-only
parameters are options: number formats, whole numbers, switches, choices or further dimensions. Those that several formulas share are
a `TypedDict`, ``**options: Unpack[…]``, with their defaults. The registry checks every argument before calling the function and
fills in these defaults, so that formulas contain only mathematics.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import cache, wraps
from inspect import Parameter as Argument
from inspect import Signature, getdoc, signature
from math import isfinite
from typing import Annotated, Any, Literal, ParamSpec, get_args, get_origin, get_type_hints

from msgspec import Struct

from ..dtypes import dtype
from ..errors import FormulaError, did_you_mean
from ..ledger import Ledger
from .notation import Dim
from .vocabulary import DIMENSIONS, OPTIONS

Kind = Literal["dim", "format", "int", "float", "bool", "choice"]
Group = Literal[
    "dense", "convolution", "pointwise", "normalisation", "movement", "inference", "transformer", "moe", "training", "collective"
]
GROUPS: tuple[Group, ...] = get_args(Group)
P = ParamSpec("P")


class Parameter(Struct, frozen=True, kw_only=True):
    """One argument of a formula: a positional dimension or a named option.

    ``kind`` says how it is written: a positive number (``dim``), a number format, a whole number, a real number, a switch, or one
    of ``choices``. A default of ``None`` means that the formula derives it; ``meaning`` says how.
    """

    name: str
    kind: Kind
    positional: bool
    required: bool
    default: Any = None
    choices: tuple[str, ...] = ()
    zero: bool = False

    @property
    def meaning(self) -> str:
        """Its meaning, which is the same in all formulas."""
        return (DIMENSIONS if self.positional else OPTIONS)[self.name]

    def check(self, formula: str, value: object) -> None:
        """Refuses an invalid value."""
        if value is None and not self.required and self.default is None:
            return
        if self.kind == "format":
            self._check_format(formula, value)
        elif self.kind == "choice":
            if value not in self.choices:
                hint = did_you_mean(str(value), self.choices) or f"; choose one of {', '.join(self.choices)}"
                raise FormulaError(f"{formula}: {self.name} is {value!r}{hint}")
        elif self.kind == "bool":
            if not isinstance(value, bool):
                raise FormulaError(f"{formula}: {self.name} is {value!r}; give True or False")
        else:
            self._check_number(formula, value)

    def _check_format(self, formula: str, value: object) -> None:
        try:
            dtype(value)  # type: ignore[arg-type]
        except (FormulaError, AttributeError) as error:
            why = error if isinstance(error, FormulaError) else f"{value!r} is not a number format"
            raise FormulaError(f"{formula}: {self.name}: {why}") from None

    def _check_number(self, formula: str, value: object) -> None:
        # `isfinite` converts an int to a float, for which it may be too large.
        number = isinstance(value, (int, Fraction)) or (isinstance(value, float) and isfinite(value))
        if isinstance(value, bool) or not number or (self.kind == "int" and not isinstance(value, int)):
            what = "whole number" if self.kind == "int" else "positive number"
            raise FormulaError(f"{formula}: {self.name} is {value}; {'a dimension' if self.positional else 'it'} is a {what}")
        if value < 0 or (value == 0 and not self.zero):  # type: ignore[operator]
            what = "0 or more" if self.zero else "a positive number"
            raise FormulaError(f"{formula}: {self.name} is {value}; {'a dimension' if self.positional else 'it'} is {what}")


class Formula(Struct, frozen=True, kw_only=True):
    """A registered formula: callable, with its parameters.

    ``example`` is a tuple of realistic dimensions, used by tests, documentation and help.
    """

    name: str
    function: Callable[..., Ledger]
    group: Group
    example: tuple[Dim, ...]
    aliases: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()

    @property
    def summary(self) -> str:
        """The docstring's first line."""
        return self.documentation.partition("\n")[0]

    @property
    def documentation(self) -> str:
        """The whole docstring: equation and assumptions."""
        return getdoc(self.function) or ""

    @property
    def dimensions(self) -> tuple[Parameter, ...]:
        return tuple(parameter for parameter in self.parameters if parameter.positional)

    @property
    def options(self) -> tuple[Parameter, ...]:
        return tuple(parameter for parameter in self.parameters if not parameter.positional)

    @property
    def usage(self) -> str:
        """Its name and dimensions, as a command line spells them."""
        return " ".join([self.name, *(parameter.name.upper() for parameter in self.dimensions)])

    def __call__(self, *dimensions: Dim, **options: Any) -> Ledger:
        """The ledger for these arguments; raises `FormulaError` if they do not match the signature."""
        try:
            signature(self.function).bind(*dimensions, **options)
        except TypeError as error:
            unknown = [name for name in options if name not in {parameter.name for parameter in self.parameters}]
            hint = did_you_mean(unknown[0], [p.name for p in self.parameters]) if unknown else ""
            raise FormulaError(f"{self.name}: {error}{hint or f'; write: {self.usage}'}") from None
        return self.function(*dimensions, **options)


FORMULAS: dict[str, Formula] = {}
_ALIASES: dict[str, str] = {}


def formula(
    name: str, *, group: Group, example: tuple[Dim, ...], aliases: tuple[str, ...] = (), zero: tuple[str, ...] = ()
) -> Callable[[Callable[P, Ledger]], Callable[P, Ledger]]:
    """Register a function of shapes under a name and its aliases; ``zero`` names the options that may be 0.

    Registering a name twice is an error.
    """

    def register(function: Callable[P, Ledger]) -> Callable[P, Ledger]:
        stated = signature(function)
        own = [argument for argument in stated.parameters.values() if argument.kind is not Argument.VAR_KEYWORD]
        unpacked = [argument.annotation for argument in stated.parameters.values() if argument.kind is Argument.VAR_KEYWORD]
        shared = [option for annotation in unpacked for option in _options(annotation)]
        whole = stated.replace(parameters=[*own, *shared])
        parameters = _parameters(whole, zero)
        by_name = {parameter.name: parameter for parameter in parameters}
        defaults = {option.name: option.default for option in shared}

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> Ledger:
            for parameter, given in zip(parameters, args, strict=False):
                parameter.check(name, given)
            for key, given in kwargs.items():
                if key not in by_name:
                    raise TypeError(f"{name}() got an unexpected keyword argument {key!r}")
                by_name[key].check(name, given)
            return function(*args, **{**defaults, **kwargs})

        checked.__signature__ = whole  # type: ignore[attr-defined]
        _add(Formula(name=name, function=checked, group=group, example=example, aliases=aliases, parameters=parameters))
        return checked

    return register


@cache
def _options(annotation: Any) -> tuple[Argument, ...]:
    """The options of a `TypedDict` that is unpacked: ``Annotated`` ones have that default, others ``None``."""
    (shared,) = get_args(annotation)
    options = []
    for name, hint in get_type_hints(shared, include_extras=True).items():
        kind, default = get_args(hint) if get_origin(hint) is Annotated else (hint, None)
        options.append(Argument(name, Argument.KEYWORD_ONLY, default=default, annotation=kind))
    return tuple(options)


def _parameters(whole: Signature, zero: tuple[str, ...]) -> tuple[Parameter, ...]:
    """The parameters of a formula: dimensions, then options after a ``*``."""
    kinds: dict[Any, Kind] = {Dim: "dim", Dim | None: "dim", str | None: "format", int: "int", float: "float", bool: "bool"}
    found = []
    for name, given in whole.parameters.items():
        positional, required = given.kind is given.POSITIONAL_OR_KEYWORD, given.default is given.empty
        choices = get_args(given.annotation) if get_origin(given.annotation) is Literal else ()
        kind = "choice" if choices else kinds.get(given.annotation)
        if kind is None or (positional and kind != "dim"):
            raise TypeError(f"{name}: a formula's parameter cannot be annotated {given.annotation}")
        found.append(
            Parameter(
                name=name,
                kind=kind,
                positional=positional,
                required=required,
                default=None if required else given.default,
                choices=choices,
                zero=name in zero,
            )
        )
    return tuple(found)


def _add(new: Formula) -> None:
    spellings = [_plain(spelling) for spelling in (new.name, *new.aliases)]
    for spelling in spellings:
        if spelling in _ALIASES:
            raise ValueError(f"the name {spelling!r} is already used by the formula {_ALIASES[spelling]!r}; choose another")
    _ALIASES.update(dict.fromkeys(spellings, new.name))
    FORMULAS[new.name] = new


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_")


def lookup(name: str) -> Formula:
    """The formula with this name, alias or framework name."""
    found = _ALIASES.get(_plain(name))
    if found is None:
        raise FormulaError(f"no formula named {name!r}{did_you_mean(name, _ALIASES) or '; known: ' + ', '.join(sorted(FORMULAS))}")
    return FORMULAS[found]


def all_formulas() -> tuple[Formula, ...]:
    """Every formula, in the order of the groups."""
    return tuple(one for group in GROUPS for one in FORMULAS.values() if one.group == group)
