"""`roofline chips`: list, show and compare chips; check a machine file."""

import argparse
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from ..analysis import describe
from ..errors import UsageError
from ..machine import Ceiling, Machine
from ..machines import card, catalogue
from ..machines.lint import LintReport, lint
from ..machines.listing import ChipListing
from ..render.export import Row
from ..render.machines import card_text, chips_text, comparison_text, lint_text
from ..render.tables import Paper
from .options import Parser, chip_name, output_options
from .output import draw, emit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..machines.chip_specs import Card

CHECK_FAILED = 3


def parser() -> Parser:
    made = Parser(
        "chips",
        "List all chips, show some in full, compare several, or check a machine file.",
        "roofline chips h200\n  roofline chips local\n  roofline chips --compare v5p,v6e,h100\n  roofline chips --lint my_chip.toml",
    )
    made.add_argument(
        "name", nargs="*", metavar="NAME|FILE", help="show these in full, with the source of every figure; local is this computer"
    )
    made.add_argument("--compare", metavar="A,B,…", help="show several side by side")
    made.add_argument("--lint", metavar="FILE", action="append", help="check a machine file; exit status 3 if a figure is implausible")
    made.add_argument("--lint-all", action="store_true", help="check every chip of the catalogue")
    output_options(made)
    return made


def run(words: Sequence[str]) -> int:
    args = parser().parse_args(words)
    if sum(map(bool, (args.name, args.compare, args.lint or args.lint_all))) > 1:
        raise UsageError("chips: NAME, --compare and --lint cannot be combined; use one")
    if args.lint or args.lint_all:
        return _check(args)
    if args.compare:
        cards = tuple(_card(name.strip()) for name in args.compare.split(",") if name.strip())
        if len(cards) < 2:
            raise UsageError("chips --compare: give two or more chips, separated by commas")
        machines = tuple(each.machine for each in cards)
        _emit(args, lambda page: comparison_text(machines, page), machines)
    elif args.name:
        cards = tuple(_card(name) for name in args.name)
        machines = tuple(each.machine for each in cards)
        _emit(args, lambda page: "\n\n".join(card_text(each, page) for each in cards), machines)
    else:
        machines = catalogue()
        _emit(args, lambda page: chips_text(machines, page), machines)
    if args.output:
        draw(args, _figure(machines, args.theme))
    return 0


def _card(name: str) -> "Card":
    with chip_name(name):
        return card(name)


def _figure(machines: Sequence[Machine], theme: str) -> "Axes":
    """The rooflines of one chip by memory level, or of several chips; chips without a compute rate are left out."""
    from ..render.plot import hierarchy, rooflines

    rated = [machine for machine in machines if machine.compute and machine.ceiling("hbm")]
    if not rated:
        raise UsageError("chips: no compute rate is known for this chip, so it has no roofline to draw")
    return hierarchy(rated[0], theme=theme) if len(machines) == 1 else rooflines(rated, theme=theme)


def _check(args: argparse.Namespace) -> int:
    """Lint files or the whole catalogue; exit 3 when a figure cannot be right."""
    targets: list[str] = list(args.lint or [])
    if args.lint_all:
        targets += [machine.name for machine in catalogue()]
    for target in args.lint or ():
        with chip_name(target):
            if not os.path.exists(target):
                card(target)
    problems = tuple(problem for target in targets for problem in lint(target))
    emit(args, lambda page: lint_text(targets, problems, page), LintReport(problems=problems), lambda: [asdict(one) for one in problems])
    return CHECK_FAILED if any(problem.severity == "error" for problem in problems) else 0


def _emit(args: argparse.Namespace, text: Callable[[Paper], str], machines: Sequence[Machine]) -> None:
    """Write the machines to the requested outputs; a table has one row per ceiling, with its source."""
    emit(args, text, listing(machines), lambda: ceiling_rows(machines))


def listing(machines: Sequence[Machine]) -> ChipListing:
    """Machines as JSON."""
    return ChipListing(machines=tuple(describe(machine) for machine in machines))


def ceiling_rows(machines: Sequence[Machine]) -> list[Row]:
    """Machines as a table with one row per ceiling."""
    return [_ceiling_row(machine, ceiling) for machine in machines for ceiling in machine.ceilings]


def _ceiling_row(machine: Machine, ceiling: Ceiling) -> Row:
    return {
        "machine": machine.name,
        "scope": machine.scope,
        "resource": ceiling.resource.name,
        "rate": ceiling.rate,
        "per": ceiling.resource.per,
        "sparse": ceiling.sparse,
        "peak": ceiling.peak,
        "count": ceiling.count,
        "provenance": ceiling.provenance,
        "citation": ceiling.citation,
        "note": ceiling.note,
        "p5": ceiling.spread.p5 if ceiling.spread else None,
        "p50": ceiling.spread.p50 if ceiling.spread else None,
        "p95": ceiling.spread.p95 if ceiling.spread else None,
    }
