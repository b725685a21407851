"""`roofline chips`: list, show and compare chips; check a machine file."""

import argparse
import os
from collections.abc import Callable, Sequence
from functools import partial
from math import isclose
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from ..analysis import describe
from ..analysis.ops_on_chips import ChipChoice, OpListing, OpOnChip, ops_on_chips
from ..errors import UsageError
from ..machine import Ceiling, Machine
from ..machines import card, catalogue
from ..machines.lint import LintReport, lint
from ..machines.listing import ChipListing
from ..render.export import Row
from ..render.geometry import Roof, roof
from ..render.machines import card_text, chips_text, comparison_text, lint_text, ops_on_chips_text
from ..render.tables import Paper
from .options import Parser, chip_and_format, chip_name, output_options
from .output import draw, emit, write_message

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..machines.chip_specs import Card

CHECK_FAILED = 3
DRAWN = 0.01  # of its rate: the mark of an operation on a roof may be off by this much


def parser() -> Parser:
    command = Parser(
        "chips",
        "List all chips, show some in full, compare several, by their figures or by operations on them; measure this computer or check a\n"
        "machine file: roofline chips measure, roofline chips lint FILE, roofline chips demo.",
        "roofline chips h200\n  roofline chips local\n  roofline chips --compare v5p,v6e,h100\n"
        "  roofline chips --compare v7x:fp8,v7x,v6e 'matmul 8192 8192 8192' 'layernorm 65536 4096'\n"
        "  roofline chips lint my_chip.toml\n  roofline chips measure --quick",
    )
    command.add_argument(
        "name",
        nargs="*",
        metavar="NAME|FILE|OP",
        help="show these chips in full, with the source of every figure; local is this computer. With --compare: an operation as for "
        "roofline op, in quotes ('matmul 8192 8192 8192 --weights int8'), whose rate, share of peak and bound on each chip are shown",
    )
    command.add_argument(
        "--compare", metavar="A,B,…", help="show several side by side; NAME:fp8 takes matrix work at the fp8 peak of that chip"
    )
    command.add_argument("--lint", metavar="FILE", action="append", help=argparse.SUPPRESS)
    command.add_argument("--lint-all", action="store_true", help=argparse.SUPPRESS)
    output_options(command)
    return command


def run(words: Sequence[str]) -> int:
    is_lint = words[:1] == ["lint"]
    args = parser().parse_args(words[is_lint:])
    if is_lint:
        args.lint, args.lint_all, args.name = args.name, not args.name, []
    if (args.lint or args.lint_all) and (args.name or args.compare):
        raise UsageError("chips: lint cannot be combined with NAME or --compare; use one")
    if args.lint or args.lint_all:
        if not is_lint:
            typed = "--lint" if args.lint else "--lint-all"
            write_message(f"{typed} will go; type: {' '.join(['roofline chips lint', *(args.lint or ())])}")
        return _check(args)
    found: tuple[OpOnChip, ...] = ()
    if args.compare:
        chosen = tuple(_choice(word.strip()) for word in args.compare.split(",") if word.strip())
        if len(chosen) < 2:
            raise UsageError("chips --compare: give two or more chips, separated by commas")
        machines = tuple(each.machine for each in chosen)
        if args.name:
            found = _emit_ops(args, chosen)
        else:
            _emit(args, lambda page: comparison_text(machines, page), machines)
    elif args.name:
        cards = tuple(_card(name) for name in args.name)
        machines = tuple(each.machine for each in cards)
        _emit(args, lambda page: "\n\n".join(card_text(each, page) for each in cards), machines)
    else:
        machines = catalogue()
        _emit(args, lambda page: chips_text(machines, page), machines)
    if args.output:
        draw(args, _figure(machines, found, args.theme))
    return 0


def _choice(word: str) -> ChipChoice:
    """A chip of --compare, with the number format after it, if any."""
    name, number_format = chip_and_format(word)
    return ChipChoice.of(_card(name).machine, number_format)


def _emit_ops(args: argparse.Namespace, chips: Sequence[ChipChoice]) -> tuple[OpOnChip, ...]:
    """Write the table of operations by chips."""
    from .formula import spelled  # takes 30 ms to import, and chips alone do not need it

    machines = tuple(each.machine for each in chips)
    found = ops_on_chips([partial(spelled, words) for words in args.name], chips)
    value = OpListing(machines=listing(machines).machines, operations=found)
    emit(args, lambda page: ops_on_chips_text(found, machines, page), value, lambda: [_op_row(one) for one in found])
    return found


def _op_row(one: OpOnChip) -> Row:
    """An operation on a chip as a row of a table, with its bytes of main memory."""
    return {**asdict(one), "bytes": one.bytes.get("hbm"), "unrated": " ".join(one.unrated)}


def _card(name: str) -> "Card":
    with chip_name(name):
        return card(name)


def _figure(machines: Sequence[Machine], found: Sequence[OpOnChip], theme: str) -> "Axes":
    """The rooflines of one chip by memory level, or of several chips with operations; chips without a compute rate are left out."""
    from ..render.plot import hierarchy, rooflines

    rated = [machine for machine in machines if machine.compute and machine.ceiling("hbm")]
    if not rated:
        raise UsageError("chips: no compute rate is known for this chip, so it has no roofline to draw")
    if len(machines) == 1:
        return hierarchy(rated[0], theme=theme)
    return rooflines(rated, _points(rated, found), theme=theme)


def _points(machines: Sequence[Machine], found: Sequence[OpOnChip]) -> list[tuple[str, float]]:
    """The operations that have the rates of the roofs drawn, with their intensities; others are named in a message."""
    roofs = {machine.name: roof(machine) for machine in machines}
    left_out = {one.operation: None for one in found if one.chip in roofs and not _is_under(roofs[one.chip], one)}
    if left_out:
        write_message(f"not in the figure, as their rates are not those of the roofs drawn: {', '.join(left_out)}")
    return list({one.operation: one.intensity for one in found if one.intensity and one.operation not in left_out}.items())


def _is_under(own: Roof, one: OpOnChip) -> bool:
    return bool(one.intensity and one.rate) and isclose(one.rate or 0.0, own.at(one.intensity or 0.0), rel_tol=DRAWN)


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
