"""`roofline op FORMULA --free NAME`: the size at which an operation becomes compute-bound."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from msgspec.structs import asdict, replace

from ...errors import UsageError
from ...formulas import Formula, lookup
from ...ledger import Ledger
from ...machine import Machine
from ...machines.calibrations import calibration_for
from ...prediction.by_size import Sizes
from ...render.tables import Paper, facts
from ...render.text import notes_text
from ...resource import Resource, check_known
from ...solving import INFINITE, Crossing, ExpectedCrossing, cross, crossing_report
from ...units import plain
from ..formula import add_options, add_sizes, chosen_options, free_and_fixed, intensities, listing, own_network
from ..options import Parser, chosen_machine, machine_options, output_options, rated, wrong_value
from ..output import draw, emit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DOUBLINGS = 4  # of the size, shown in a figure on either side of the crossing
AROUND = 1000  # centre of a figure without a crossing
EXAMPLE = "roofline op matmul --free m --k inf --n inf --chip v5e"


def parser(formula: Formula) -> Parser:
    command = Parser(
        f"op {formula.name}",
        f"The size at which {formula.name} becomes compute-bound.\nGive every dimension except the free ones a size, or inf.",
        EXAMPLE,
    )
    command.add_argument(
        "--free", required=True, metavar="NAME[,NAME…]", help="dimension to vary; several vary together: m,k,n is a square matmul"
    )
    add_sizes(command, formula, "SIZE|inf")
    command.add_argument("--against", default="hbm", metavar="LEVEL", help="memory level or link to compare compute with (default hbm)")
    command.add_argument(
        "--expected",
        action="store_true",
        help="also give the size from which the expected time is compute-bound, launch included; needs finite dimensions",
    )
    add_options(command, formula)
    machine_options(command)
    output_options(command)
    return command


def run(words: Sequence[str]) -> int:
    if not words or words[0] in ("-h", "--help", "--list"):
        sys.stdout.write(f"usage: roofline op FORMULA --free NAME [--DIMENSION SIZE|inf …]\n\n{listing()}\n\nexample:\n  {EXAMPLE}\n")
        return 0 if words else 2
    formula = lookup(words[0])
    args = parser(formula).parse_args(words[1:])
    free, given = free_and_fixed(args, formula)
    machine = chosen_machine(args)
    note = own_network(args, formula, machine)
    price = partial(formula.function, **chosen_options(args, formula))
    check_known(Resource(args.against), rated(machine), "--against")
    with wrong_value("--against"):
        found = cross(price, free, machine, level=args.against, **given)
    sizes = _expected_sizes(args, price, free, given, machine)
    if sizes is not None:
        found = replace(found, expected=ExpectedCrossing(first=sizes.first_compute_bound(), evidence=sizes.at(AROUND).prediction.evidence))
    report = crossing_report(found, formula.name, machine)
    row = {key: ",".join(map(str, value)) if isinstance(value, tuple) else value for key, value in asdict(report).items()}
    row["expected"] = found.expected.first if found.expected else None
    if args.output:
        fixed = {name: INFINITE if size == inf else size for name, size in given.items()}
        draw(
            args,
            _expected_figure(found, formula.name, sizes, args) if sizes else _figure(found, formula.name, partial(price, **fixed), args),
        )
    emit(args, lambda page: _text(found, formula, machine, given, page, note), report, lambda: [row])
    return 0


def _expected_sizes(
    args: argparse.Namespace, price: Callable[..., Ledger], free: Sequence[str], given: Mapping[str, object], machine: Machine
) -> Sizes | None:
    """The expected time of the formula by size, if requested."""
    if not args.expected:
        return None
    if infinite := [name for name, size in given.items() if size == inf]:
        raise UsageError(f"--expected: {infinite[0]} is infinite, and so is the time; give it a size")
    return Sizes(partial(price, **given), free, machine, calibration_for(machine))


def _expected_figure(found: Crossing, name: str, sizes: Sizes, args: argparse.Namespace) -> "Axes":
    """Minimum and expected time by the free size, a few doublings to either side of the crossing."""
    from ...render.plot import expected_times

    first = found.expected.first if found.expected else None
    curve = sizes.curve(_around(first or AROUND))
    return expected_times(name, curve, size=" = ".join(found.free), machine=sizes.machine.name, theme=args.theme)


def _around(middle: int) -> list[int]:
    return sorted({max(1, round(middle * 2 ** (step / 4))) for step in range(-4 * DOUBLINGS, 4 * DOUBLINGS + 1)})


def _figure(found: Crossing, name: str, price: Callable[..., Ledger], args: argparse.Namespace) -> "Axes":
    """Intensity by the free size, a few doublings to either side of the crossing."""
    from ...render.plot import intensity_against_size

    curve = intensities(price, found.free, _around(found.integer or AROUND), args.against)
    ridge = (f"{' + '.join(map(str, found.compute))} over {args.against}", found.ridge)
    return intensity_against_size({name: [spot for spot in curve if spot[1]]}, [ridge], size=" = ".join(found.free), theme=args.theme)


def _expected_words(found: Crossing) -> str:
    if found.expected is None:
        return ""
    name, first = " = ".join(found.free), found.expected.first
    if first is None:
        return f"never compute-bound in expected time: memory or the launch takes longer for every {name}"
    return f"compute-bound in expected time for {name} ≥ {first:,}; {found.expected.evidence}"


def _text(found: Crossing, formula: Formula, machine: Machine, given: Mapping[str, object], page: Paper, note: str) -> str:
    fixed = ", ".join(f"{name} = {size}" for name, size in given.items())
    compared = f"{' + '.join(map(str, found.compute))} over {' + '.join(map(str, found.level))}"
    lines = facts(
        [
            ("answer", found.words),
            ("expected", _expected_words(found)),
            ("crossover", plain(found.real, 8) if found.real is not None else ""),
            ("last size" if found.regime == "compute below" else "first size", f"{found.integer:,}" if found.integer is not None else ""),
            ("intensity", f"{plain(found.intensity)} FLOP/B " + ("at the crossover" if found.crosses else "in the limit")),
            ("ridge", f"{plain(found.ridge)} FLOP/B, {compared}"),
            ("other crossovers", ", ".join(plain(other, 6) for other in found.others)),
            ("no known rate", ", ".join(map(str, found.unrated))),
        ],
        page,
    )
    head = f"{page.paint(formula.name, 'bold')}{f' with {fixed}' if fixed else ''} on {machine.name}"
    return "\n\n".join(part for part in (head, lines, notes_text([*([note] if note else []), *machine.notes], page)) if part)
