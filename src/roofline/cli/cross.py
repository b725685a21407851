"""`roofline cross`: the size at which an operation becomes compute-bound."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from ..formulas import Formula, lookup
from ..ledger import Ledger
from ..machine import Machine
from ..render.tables import Paper, facts
from ..render.text import notes_text
from ..resource import Resource, check_known
from ..solving import INFINITE, Crossing, cross, crossing_report
from ..units import plain
from .formula import add_options, add_sizes, chosen_options, free_and_fixed, intensities, listing, own_network
from .options import Parser, chosen_machine, machine_options, output_options, rated, wrong_value
from .output import draw, emit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DOUBLINGS = 4  # of the size that a figure shows on either side
AROUND = 1000  # where a figure is centred when nothing crosses
EXAMPLE = "roofline cross matmul --free m --k inf --n inf --chip v5e"


def parser(formula: Formula) -> Parser:
    made = Parser(
        f"cross {formula.name}",
        f"The size at which {formula.name} becomes compute-bound.\nGive every dimension except the free ones a size, or inf.",
        EXAMPLE,
    )
    made.add_argument(
        "--free", required=True, metavar="NAME[,NAME…]", help="dimension to vary; several vary together: m,k,n is a square product"
    )
    add_sizes(made, formula, "SIZE|inf")
    made.add_argument("--against", default="hbm", metavar="LEVEL", help="memory level or link to compare compute with (default hbm)")
    add_options(made, formula)
    machine_options(made)
    output_options(made)
    return made


def run(words: Sequence[str]) -> int:
    if not words or words[0] in ("-h", "--help", "--list"):
        sys.stdout.write(f"usage: roofline cross FORMULA --free NAME [--DIMENSION SIZE|inf …]\n\n{listing()}\n\nexample:\n  {EXAMPLE}\n")
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
    report = crossing_report(found, formula.name, machine)
    row = {key: ",".join(map(str, value)) if isinstance(value, tuple) else value for key, value in asdict(report).items()}
    if args.output:
        fixed = {name: INFINITE if size == inf else size for name, size in given.items()}
        draw(args, _figure(found, formula.name, partial(price, **fixed), args))
    emit(args, lambda page: _text(found, formula, machine, given, page, note), report, lambda: [row])
    return 0


def _figure(found: Crossing, name: str, price: Callable[..., Ledger], args: argparse.Namespace) -> "Axes":
    """Intensity by the free size, a few doublings to either side of the crossing."""
    from ..render.plot import intensity_against_size

    middle = found.integer or AROUND
    sizes = sorted({max(1, round(middle * 2 ** (step / 4))) for step in range(-4 * DOUBLINGS, 4 * DOUBLINGS + 1)})
    curve = intensities(price, found.free, sizes, args.against)
    ridge = (f"{' + '.join(map(str, found.compute))} over {args.against}", found.ridge)
    return intensity_against_size({name: [spot for spot in curve if spot[1]]}, [ridge], size=" = ".join(found.free), theme=args.theme)


def _text(found: Crossing, formula: Formula, machine: Machine, given: Mapping[str, object], page: Paper, note: str) -> str:
    fixed = ", ".join(f"{name} = {size}" for name, size in given.items())
    compared = f"{' + '.join(map(str, found.compute))} over {' + '.join(map(str, found.level))}"
    lines = facts(
        [
            ("answer", found.words),
            ("crossover", plain(found.real, 8) if found.real is not None else ""),
            ("first size", f"{found.integer:,}" if found.integer is not None else ""),
            ("intensity", f"{plain(found.intensity)} FLOP/B " + ("at the crossover" if found.crosses else "in the limit")),
            ("ridge", f"{plain(found.ridge)} FLOP/B, {compared}"),
            ("other crossovers", ", ".join(plain(other, 6) for other in found.others)),
            ("no known rate", ", ".join(map(str, found.unrated))),
        ],
        page,
    )
    head = f"{page.paint(formula.name, 'bold')}{f' with {fixed}' if fixed else ''} on {machine.name}"
    return "\n\n".join(part for part in (head, lines, notes_text([*([note] if note else []), *machine.notes], page)) if part)
