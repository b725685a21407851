"""Formulas on the command line: their dimensions and options, taken from the registry."""

import argparse
import shlex
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from fractions import Fraction
from math import inf
from typing import Any

from ..errors import UnitError, UsageError, did_you_mean
from ..formulas import Formula, all_formulas, lookup
from ..formulas.collective import direct_peers, links_among, wiring
from ..formulas.notation import Dim
from ..formulas.registry import Parameter
from ..ledger import Ledger
from ..machine import Ceiling, Machine
from ..resource import SCALE_UP
from ..units import parse
from .options import Parser

INFINITE = ("inf", "infinity", "∞")
# The link named in errors about a missing rate, by the vendor of a GPU or the kind of chip.
UNRATED_LINKS = {"NVIDIA": "nvlink", "AMD": "xgmi", "cpu": "dcn"}


def add_options(parser: argparse.ArgumentParser, formula: Formula, *, skip: tuple[str, ...] = ()) -> None:
    """An option for each keyword parameter of the formula."""
    group = parser.add_argument_group("formula")
    for parameter in formula.options:
        if parameter.name in skip:
            continue
        flag = f"--{parameter.name.replace('_', '-')}"
        meaning = parameter.meaning or parameter.name.replace("_", " ")
        if parameter.kind == "bool":
            group.add_argument(flag, dest=parameter.name, action=argparse.BooleanOptionalAction, default=parameter.default, help=meaning)
            continue
        default = "" if parameter.default is None else f" (default {parameter.default})"
        group.add_argument(
            flag,
            dest=parameter.name,
            choices=parameter.choices or None,
            metavar=None if parameter.choices else _metavar(parameter),
            required=parameter.required,
            help=f"{meaning}{default}".replace("%", "%%"),
        )


def add_dimensions(parser: argparse.ArgumentParser, formula: Formula) -> None:
    """A positional argument for each dimension of the formula."""
    for parameter in formula.dimensions:
        parser.add_argument(parameter.name, metavar=parameter.name.upper(), help=parameter.meaning.replace("%", "%%"))


def add_sizes(parser: argparse.ArgumentParser, formula: Formula, metavar: str) -> None:
    """An option for each dimension of the formula."""
    for parameter in formula.dimensions:
        parser.add_argument(f"--{parameter.name.replace('_', '-')}", dest=parameter.name, metavar=metavar, help=parameter.meaning)


def free_and_fixed(args: argparse.Namespace, formula: Formula) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The dimensions that vary together, and the sizes of those that were given."""
    fixed = {p.name: number(getattr(args, p.name), p) for p in formula.dimensions if getattr(args, p.name) is not None}
    for parameter in formula.dimensions:
        if fixed.get(parameter.name, inf) != inf:
            parameter.check(formula.name, fixed[parameter.name])
    free = tuple(name.strip() for name in args.free.split(","))
    known = [p.name for p in (*formula.dimensions, *formula.options) if p.kind in ("dim", "int", "float")]
    for name in free:
        if name not in known:
            others = did_you_mean(name, known) or f"; it has {', '.join(known)}"
            raise UsageError(f"--free {name}: {formula.name} has no such dimension{others}")
        if name in fixed:
            raise UsageError(f"--free {name}: {name} also has a value; leave out --{name.replace('_', '-')}")
    if missing := [p.name for p in formula.dimensions if p.required and p.name not in (*free, *fixed)]:
        raise UsageError(f"{formula.name}: missing {', '.join('--' + name.replace('_', '-') for name in missing)}; give each a size")
    return free, fixed


def intensities(price: Callable[..., Ledger], free: Sequence[str], sizes: Iterable[int], level: str) -> list[tuple[float, float]]:
    """Each size with its arithmetic intensity; 0 where there is none."""
    return [(float(size), price(**dict.fromkeys(free, size)).cost.intensity(level) or 0.0) for size in sizes]


def chosen_ledger(args: argparse.Namespace, formula: Formula) -> Ledger:
    """The formula at the sizes and with the options given."""
    sizes = [number(getattr(args, parameter.name), parameter) for parameter in formula.dimensions]
    for parameter, size in zip(formula.dimensions, sizes, strict=True):
        if size == inf:
            raise UsageError(f"{formula.name}: {parameter.name} cannot be infinite here; use roofline op --free for limits")
    return formula(*sizes, **chosen_options(args, formula))


def own_network(args: argparse.Namespace, formula: Formula, machine: Machine) -> str:
    """Use the chip's scale-up link and the best algorithm on it, unless options name others. Returns a note if several links are used."""
    options = {option.name for option in formula.options}
    if "link" not in options:
        return ""
    own = machine.ceiling(args.link) if args.link else next((found for unit in SCALE_UP if (found := machine.ceiling(unit))), None)
    if own is None:
        args.link = args.link or UNRATED_LINKS.get(machine.vendor if machine.kind == "gpu" else machine.kind)
        return ""
    args.link = own.resource.name
    algorithm, links = wiring(own)
    if "algorithm" in options and args.algorithm is None:
        args.algorithm = "torus" if any(getattr(args, side, None) for side in ("over_y", "over_z")) else algorithm
    if args.links is None and links > 1 and getattr(args, "algorithm", algorithm) == algorithm:
        used = links_among(links, direct_peers(own), _chips(args, formula))
        args.links = str(used)
        return links_note(own, used)
    return ""


def _chips(args: argparse.Namespace, formula: Formula) -> Dim:
    """How many chips take part in an exchange: two where each sends to one other, infinite where the number is varied."""
    over = next((option for option in formula.options if option.name == "over"), None)
    if over is None:
        return 2
    return inf if "over" in getattr(args, "free", "").split(",") else number(str(args.over or over.default), over)


def links_note(link: Ceiling, used: int) -> str:
    """How many of a chip's links an exchange uses."""
    peers = direct_peers(link)
    if used < link.count and peers:
        return f"uses {used} of {link.count} {link.resource} links of the chip: those to the other chips of the group"
    return f"uses all {used} {link.resource} links of the chip ({'one to each peer' if used == peers else 'switched'})"


def spelled(words: str, machine: Machine | None = None) -> Ledger:
    """An operation written in one string, as in ``--op "matmul 600 600 600 --weights int8"``, on the links of a machine."""
    name, *rest = shlex.split(words) or [""]
    formula = lookup(name)
    parser = Parser(f"op {formula.name}", formula.summary, f"--op '{formula.name} {' '.join(map(str, formula.example))}'")
    add_dimensions(parser, formula)
    add_options(parser, formula)
    args = parser.parse_args(rest)
    if machine is not None:
        own_network(args, formula, machine)
    return chosen_ledger(args, formula).named(words)


def chosen_options(args: argparse.Namespace, formula: Formula) -> dict[str, Any]:
    """The given keyword arguments; others keep the formula's defaults."""
    options: dict[str, Any] = {}
    for parameter in formula.options:
        value = getattr(args, parameter.name, None)
        if value is not None and value != parameter.default:
            options[parameter.name] = value if parameter.kind in ("bool", "format", "choice") else number(value, parameter)
            parameter.check(formula.name, options[parameter.name])
    return options


def number(text: str, parameter: Parameter) -> Dim:
    """A dimension or a number as a person writes it: 8192, 8_192, 1e6, 64Ki, 1/2; ``inf`` is infinite."""
    word = text.strip()
    if word.lower() in INFINITE:
        return inf
    try:
        if "/" in word:
            value = Fraction(word)
            return value.numerator if value.denominator == 1 else value
        return int(word.replace(",", ""))
    except (ValueError, ZeroDivisionError):
        pass
    amount = _amount(word, parameter)
    return int(amount) if amount.is_integer() else amount


def _amount(word: str, parameter: Parameter) -> float:
    """A number with a prefix, such as 64Ki, in bytes, such as 1GB, or in exponent form."""
    for text, dimension in ((word, "1"), (word, "B"), (f"{word}B", "B")):
        with suppress(UnitError):
            return parse(text, dimension)
    raise UsageError(f"{parameter.name}: {word!r} is not a number; write 8192, 64Ki or 1e6")


def _metavar(parameter: Parameter) -> str:
    return {"format": "FORMAT", "int": "N", "float": "X", "dim": "N"}.get(parameter.kind, "VALUE")


def listing() -> str:
    """Every formula by group, as help shows it."""
    lines: list[str] = []
    groups: dict[str, list[Formula]] = {}
    for formula in all_formulas():
        groups.setdefault(formula.group, []).append(formula)
    widest = max(len(formula.usage) for formula in all_formulas())
    for group, members in groups.items():
        lines += [f"{group}:", *(f"  {member.usage.ljust(widest)}  {member.summary}" for member in members)]
    return "\n".join(lines)
