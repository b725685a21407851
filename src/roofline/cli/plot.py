"""`roofline plot`: draw a figure."""

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from ..errors import UsageError, did_you_mean
from ..formulas import Formula, lookup
from ..ledger import Ledger
from ..machine import Machine
from ..machines.calibrations import calibration_for
from ..placement import place
from ..prediction.by_size import Sizes
from ..render.geometry import Roof, roof
from ..units import parse
from .forms import fuse
from .formula import add_options, add_sizes, chosen_options, free_and_fixed, intensities, own_network, spelled
from .options import Parser, chip_and_format, chosen_machine, figure_options, machine_options, wrong_value
from .output import draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SEVERAL_CHIPS = ("chips", "sizes")  # figures with --chips
SIZES = 33  # samples of a curve against size


def run(words: Sequence[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        sys.stdout.write(_help())
        return 0 if words else 2
    name, *rest = words
    if name == "fusion":
        return _fusion(rest)
    args = parser(name, rest).parse_args(rest)
    with wrong_value(f"plot {name}"):
        draw(args, FIGURES[name].draw(args, args.theme))
    return 0


def parser(name: str, words: Sequence[str]) -> Parser:
    """The options of a figure; some depend on the words that follow its name."""
    if name == "fusion":
        return fuse.parser()
    if name not in FIGURES:
        raise UsageError(f"plot: no figure named {name!r}{did_you_mean(name, FIGURES) or '; figures: ' + ', '.join(FIGURES)}")
    figure = FIGURES[name]
    command = Parser(f"plot {name}", figure.summary, f"roofline plot {name} {figure.example} -o {name}.svg")
    figure.arguments(command, words)
    machine_options(command, chip=name not in SEVERAL_CHIPS)
    if name not in ("times", "expected", "sweep"):
        command.add_argument("--compute", metavar="RESOURCE", help="compute ceiling, such as matrix/fp8 (default: bf16, else the fastest)")
    if name not in ("times", "hierarchy", "expected", "sweep"):
        command.add_argument("--level", default="hbm", metavar="LEVEL", help="memory level or link (default hbm)")
    figure_options(command, required=True)
    return command


def _help() -> str:
    widest = max(map(len, [*FIGURES, "fusion"]))
    lines = [f"  {name.ljust(widest)}  {figure.summary}" for name, figure in FIGURES.items()]
    lines.append(f"  {'fusion'.ljust(widest)}  a chain of ops from unfused to fused (same arguments as roofline op chain)")
    usage = "usage: roofline plot FIGURE [options] -o FILE   (details: roofline plot FIGURE --help)"
    return "\n".join(["Draw a figure.", "", usage, "", *lines, "", "example:", "  roofline plot anatomy --chip v7x -o anatomy.svg", ""])


def _fusion(words: Sequence[str]) -> int:
    if "-o" not in words and "--output" not in words and not {"-h", "--help"} & set(words):
        raise UsageError("plot fusion: no output file; add -o FILE")
    return fuse.run(words)


class Figure(NamedTuple):
    """One kind of figure: its arguments and how it is drawn."""

    summary: str
    example: str
    arguments: Callable[[Parser, Sequence[str]], None]
    draw: Callable[..., "Axes"]


def _no_arguments(parser: Parser, words: Sequence[str]) -> None:
    """A figure of the machine alone."""


def _anatomy(args: argparse.Namespace, theme: str) -> "Axes":
    from ..render.plot import anatomy

    return anatomy(chosen_machine(args), compute=args.compute, level=args.level, theme=theme)


def _chip_arguments(parser: Parser, words: Sequence[str]) -> None:
    parser.add_argument("--chips", required=True, metavar="A,B,…", help="chips to draw; NAME:fp8 uses the fp8 peak of that chip")
    parser.add_argument("--op", action="append", default=[], metavar="'FORMULA SIZES…'", help="operation to mark on every roofline")
    parser.add_argument("--point", action="append", default=[], metavar="NAME,INTENSITY", help="point to mark on every roofline")


def _roofs(args: argparse.Namespace) -> list[Roof]:
    """One roof per chip, with ``--set`` applied to each."""
    roofs = []
    for word in args.chips.split(","):
        name, number_format = chip_and_format(word.strip())
        machine = chosen_machine(argparse.Namespace(**{**vars(args), "chip": name}))
        compute = f"matrix/{number_format}" if number_format else args.compute
        shown = f"{machine.name} {number_format}" if number_format else machine.name
        roofs.append(roof(machine, compute, args.level, shown))
    return roofs


def _chips(args: argparse.Namespace, theme: str) -> "Axes":
    from ..render.plot import rooflines

    points = [(name, intensity) for name, intensity, _ in _points(args.point)]
    for words in args.op:
        intensity = spelled(words).cost.intensity(args.level)
        if not intensity:
            raise UsageError(f"--op {words!r} has no FLOP or no {args.level} traffic, so it has no arithmetic intensity to draw")
        points.append((words, intensity))
    return rooflines(_roofs(args), points, theme=theme)


def _size_arguments(parser: Parser, words: Sequence[str]) -> None:
    parser.add_argument("formula", metavar="FORMULA", help="operation whose size varies")
    if not words or words[0].startswith("-"):
        return
    _varied(parser, words[0])
    parser.add_argument("--chips", required=True, metavar="A,B,…", help="chips whose ridge points are drawn; NAME:fp8 uses the fp8 peak")


def _expected_arguments(parser: Parser, words: Sequence[str]) -> None:
    parser.add_argument("formula", metavar="FORMULA", help="operation whose size varies")
    if words and not words[0].startswith("-"):
        _varied(parser, words[0])
        parser.add_argument("--floor", metavar="TIME", help="how long the smallest op takes on your machine, such as 3.1us")


def _varied(parser: Parser, name: str) -> None:
    """A formula with free dimensions, and the range of their sizes."""
    formula = lookup(name)
    parser.add_argument("--free", required=True, metavar="NAME[,NAME…]", help="dimension on the x axis; m,k,n vary together")
    add_sizes(parser, formula, "SIZE")
    add_options(parser, formula, skip=("compute", "level"))
    parser.add_argument("--from", dest="smallest", type=int, default=64, metavar="N", help="smallest size (default 64)")
    parser.add_argument("--to", dest="largest", type=int, default=16384, metavar="N", help="largest size (default 16384)")


def _sizes(args: argparse.Namespace, theme: str) -> "Axes":
    from ..render.plot import intensity_against_size

    formula = lookup(args.formula)
    price, free = _price(args, formula)
    curve = intensities(price, free, _range(args), args.level)
    return intensity_against_size({formula.name: curve}, _roofs(args), size=" = ".join(free), theme=theme)


def _expected(args: argparse.Namespace, theme: str) -> "Axes":
    from ..render.plot import expected_times

    formula, machine = lookup(args.formula), chosen_machine(args)
    own_network(args, formula, machine)
    price, free = _price(args, formula)
    floor_s = None if args.floor is None else parse(args.floor, "s")
    curve = Sizes(price, free, machine, calibration_for(machine, floor_s)).curve(_range(args))
    return expected_times(formula.name, curve, size=" = ".join(free), machine=machine.name, theme=theme)


def _price(args: argparse.Namespace, formula: Formula) -> tuple[Callable[..., Ledger], tuple[str, ...]]:
    """The formula with the sizes and options that were given, and its free dimensions."""
    free, fixed = free_and_fixed(args, formula)
    if infinite := [name for name, size in fixed.items() if size == inf]:
        raise UsageError(f"plot: {infinite[0]} cannot be infinite here; use roofline op --free for limits")
    return partial(formula.function, **chosen_options(args, formula), **fixed), free


def _range(args: argparse.Namespace) -> list[int]:
    """Sizes from --from to --to, evenly spaced on a logarithmic axis."""
    if not 0 < args.smallest < args.largest:
        raise UsageError(f"--from {args.smallest} --to {args.largest}: not a range; give the smaller size first")
    ratio = args.largest / args.smallest
    return sorted({round(args.smallest * ratio ** (step / (SIZES - 1))) for step in range(SIZES)})


def _point_arguments(parser: Parser, words: Sequence[str]) -> None:
    parser.add_argument(
        "--point",
        action="append",
        required=True,
        metavar="NAME,INTENSITY,RATE",
        help="measured kernel; RATE in FLOP/s, or 92%% of the attainable rate",
    )


def _points(words: Sequence[str]) -> list[tuple[str, float, str]]:
    points = []
    for word in words:
        parts = [part.strip() for part in word.split(",")]
        if len(parts) not in (2, 3):
            raise UsageError(f"--point {word!r}: write NAME,INTENSITY or NAME,INTENSITY,RATE")
        points.append((parts[0], parse(parts[1], "FLOP/B"), parts[2] if len(parts) == 3 else ""))
    return points


def _measured(args: argparse.Namespace, machine: Machine) -> list[tuple[str, float, float]]:
    """Points with rates; a percentage is of the attainable rate at that intensity."""
    one = roof(machine, args.compute, getattr(args, "level", "hbm"))
    measured = []
    for name, intensity, rate in _points(args.point):
        if not rate:
            raise UsageError(f"--point {name!r}: no rate; write NAME,INTENSITY,RATE")
        measured.append((name, intensity, parse(rate, "1") * one.at(intensity) if rate.endswith("%") else parse(rate, "FLOP/s")))
    return measured


def _measurements(args: argparse.Namespace, theme: str) -> "Axes":
    from ..render.plot import prediction_and_measurement

    machine = chosen_machine(args)
    return prediction_and_measurement(roof(machine, args.compute, args.level), _measured(args, machine), theme=theme)


def _distance(args: argparse.Namespace, theme: str) -> "Axes":
    from ..render.plot import distance_to_roof

    machine = chosen_machine(args)
    return distance_to_roof(roof(machine, args.compute, args.level), _measured(args, machine), theme=theme)


def _hierarchy_arguments(parser: Parser, words: Sequence[str]) -> None:
    parser.add_argument("--levels", metavar="A,B,…", help="memory levels to draw (default: all with a known rate)")
    parser.add_argument("--point", action="append", default=[], metavar="NAME,INTENSITY,RATE", help="measured kernel to mark")


def _hierarchy(args: argparse.Namespace, theme: str) -> "Axes":
    from ..render.plot import hierarchy

    machine = chosen_machine(args)
    levels = [level.strip() for level in args.levels.split(",")] if args.levels else None
    return hierarchy(machine, levels, compute=args.compute, points=_measured(args, machine), theme=theme)


def _communication_arguments(parser: Parser, words: Sequence[str]) -> None:
    parser.add_argument(
        "--fractions", default="0.2,0.4,0.6", metavar="F,F,…", help="fractions of time spent communicating (default 0.2,0.4,0.6)"
    )


def _communication(args: argparse.Namespace, theme: str) -> "Axes":
    from ..render.plot import communication

    fractions = [parse(word, "1") for word in args.fractions.split(",")]
    return communication(chosen_machine(args), fractions, compute=args.compute, level=args.level, theme=theme)


def _ceilings(args: argparse.Namespace, theme: str) -> "Axes":
    from ..render.plot import ceilings

    return ceilings(chosen_machine(args), compute=args.compute, level=args.level, theme=theme)


def _time_arguments(parser: Parser, words: Sequence[str]) -> None:
    parser.add_argument("--op", action="append", required=True, metavar="'FORMULA SIZES…'", help="operation to draw")


def _times(args: argparse.Namespace, theme: str) -> "Axes":
    from ..render.plot import time_bars

    machine = chosen_machine(args)
    return time_bars([(words, place(spelled(words, machine).cost, machine)) for words in args.op], theme=theme)


def _sweep(args: argparse.Namespace, theme: str) -> "Axes":
    from ..machines.catalogue import card
    from ..render.plot import sweep_chart

    if args.chip is None:
        raise UsageError("plot sweep: no chip; name a measured one: --chip FILE.toml, --chip local or --chip local-gpu")
    return sweep_chart(card(args.chip), theme=theme)


FIGURES = {
    "anatomy": Figure("one chip's roofline: memory-bound and compute-bound regions, ridge point", "--chip v7x", _no_arguments, _anatomy),
    "chips": Figure(
        "rooflines of several chips, with operations marked", "--chips v7x,v6e,v5p --op 'matmul 600 600 600'", _chip_arguments, _chips
    ),
    "sizes": Figure(
        "arithmetic intensity by size, with the chips' ridge points", "matmul --free m,k,n --chips v7x,v6e,v5p", _size_arguments, _sizes
    ),
    "expected": Figure(
        "minimum and expected time by size, with bounds", "matmul --free m --k 8192 --n 8192 --chip h200", _expected_arguments, _expected
    ),
    "measurements": Figure("measured and attainable rates", "--chip v7x --point 'softmax,2,92%'", _point_arguments, _measurements),
    "distance": Figure(
        "roofline efficiency of measured kernels", "--chip v7x --point 'add,5,92%' --point 'matmul,500,25%'", _point_arguments, _distance
    ),
    "hierarchy": Figure("one roofline per memory level", "--chip h100", _hierarchy_arguments, _hierarchy),
    "communication": Figure("roofline lowered by communication", "--chip v7x", _communication_arguments, _communication),
    "ceilings": Figure("named lower ceilings of a chip", "--chip h100 --compute vector/fp32", _no_arguments, _ceilings),
    "sweep": Figure("bandwidth of a measured chip by working set, with the levels found", "--chip h200.toml", _no_arguments, _sweep),
    "times": Figure("time on each unit, minimum and serial time", "--chip v5e --op 'matmul 240 8192 8192'", _time_arguments, _times),
}
