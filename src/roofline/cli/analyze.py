"""`roofline analyze`: hold a file of ops against a machine."""

import argparse
from collections.abc import Sequence

from .options import Parser, at_least, chosen_corrections, chosen_machine, correction_options, is_corrected, machine_options, output_options
from .reading import host_options, read_input
from .terminal import chart_options

GROUPS = ("category", "scope", "location", "phase", "dtype", "name", "module", "unit", "bound", "step", "device", "host")
COLUMNS = (
    *("rank", "op", "category", "program", "scope", "location", "phase", "count", "kernels", "time", "self", "mean", "share", "unit"),
    *("dtype", "work", "rate", "optimal", "intensity", "ridge", "bound", "floor", "serial", "roof", "from", "counted", "steps", "devices"),
)


def parser() -> Parser:
    made = Parser(
        "analyze",
        "Hold a file of ops against a machine: bounds, efficiency, what to do next.\n"
        "It reads profiles (.xplane.pb files, run folders, TensorBoard log folders), compiled XLA programs (HLO text or protobuf,\n"
        "StableHLO, xla_dump_to folders), Nsight Compute CSVs, tables of ops (CSV, JSON, Parquet) and roofline's own JSON reports.",
        "roofline analyze run/host.xplane.pb --json report.json -o roofline.svg",
    )
    made.add_argument("path", nargs="+", metavar="PATH", help="a file, a folder or an address (gs://…); its format is found by its content")
    made.add_argument("--top", type=at_least(0), default=20, metavar="N", help="ops to show in the table (default 20)")
    reading_options(made)
    host_options(made)
    table_options(made)
    machine_options(made)
    correction_options(made)
    output_options(made, page=True)
    chart_options(made)
    return made


def reading_options(made: argparse.ArgumentParser) -> None:
    """What is read besides the input, and how much is forgiven."""
    group = made.add_argument_group("reading")
    group.add_argument(
        "--counters",
        action="append",
        default=[],
        metavar="CSV",
        help="hardware counters of the same program (ncu --set full --csv --page raw), plain or gzipped, to hold the model against; "
        "may be repeated",
    )
    group.add_argument("--salvage", action="store_true", help="read a damaged profile up to the damage, and say where that is")


def table_options(made: argparse.ArgumentParser) -> None:
    """Which ops the table shows, summed by what, and in which columns."""
    table = made.add_argument_group("the table (--json always has everything)")
    table.add_argument("--by", choices=GROUPS, help="sum the ops by what they have in common, or by where and when they ran")
    table.add_argument("--depth", type=int, metavar="N", help="levels of a scope to keep apart (with --by scope)")
    table.add_argument(
        "--columns",
        metavar="NAMES",
        help=f"columns, with commas: {', '.join(COLUMNS)}, or of a resource: hbm, hbm/s, flop/hbm, counted:hbm",
    )
    table.add_argument("--name", metavar="REGEX", help="only ops whose name matches")
    table.add_argument("--min-time", metavar="TIME", help="only ops that take at least this long")
    for field in ("category", "bound", "dtype", "unit"):
        table.add_argument(f"--{field}", action="append", metavar=field.upper(), help=f"only ops with this {field}; may be repeated")
    table.add_argument("--module", "--program", action="append", metavar="MODULE", help="only ops of this program; may be repeated")
    table.add_argument(
        "--step", action="append", metavar="STEP", help="only what ran in this step, by its number in the report or its name"
    )
    table.add_argument("--device", action="append", type=int, metavar="ID", help="only what ran on this device; may be repeated")
    table.add_argument("--host", action="append", metavar="NAME", help="only what ran on this host; may be repeated")
    table.add_argument("--no-infeed", action="store_true", help="leave infeed and outfeed out, of the program's time too")
    table.add_argument(
        "--stragglers", nargs="?", const="device", choices=("device", "host"), help="how each op differs between devices, or hosts"
    )


def run(words: Sequence[str]) -> int:
    args = parser().parse_args(words)
    _check(args)
    recording = read_input(args, args.path, lambda: chosen_machine(args), salvage=args.salvage)
    from .reporting import answer

    answer(args, recording)
    return 0


def _check(args: argparse.Namespace) -> None:
    """What is wrong with the options is told before anything is read."""
    if is_corrected(args):
        chosen_corrections(args)
    if args.columns:
        from .reporting import columns

        columns(args)
