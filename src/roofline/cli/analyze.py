"""`roofline analyze`: hold a file of ops against a machine."""

import argparse
from collections.abc import Sequence

from ..analysis import analyze
from ..errors import UsageError
from ..render.export import Row, group_rows, op_rows
from ..render.op_table import COLUMNS, column
from ..render.tables import Paper
from ..render.text import report_text
from ..report import OpInfo, Report
from ..selection import KEYS, PLACES, Group, group, group_parts, narrow, select
from ..units import parse
from ..value import replace
from ..workload import Recording
from .options import Parser, at_least, chosen_corrections, chosen_machine, correction_options, machine_options, output_options
from .output import emit_report
from .reading import host_options, read_input
from .terminal import chart_options, charted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..counters import Comparison
    from ..stragglers import Spread

GROUPS = (*KEYS, *PLACES)
SPREAD = ("op", "name", "category", "exchange", "places", "fastest", "fastest_s", "median_s", "slowest", "slowest_s", "spread", "waiting_s")


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
    corrections = chosen_corrections(args)
    names = [word.strip() for word in args.columns.split(",")] if args.columns else []
    for name in names:
        column(name)  # a wrong name is told before anything is read
    recording = read_input(args, args.path, lambda: chosen_machine(args), salvage=args.salvage)
    if args.counters:
        recording = _counted(recording, args.counters)
    report = analyze(recording, chosen_machine(args, recording.devices), corrections)
    _emit(args, recording, report, names)
    return 0


def _counted(recording: Recording, files: Sequence[str]) -> Recording:
    """The recording with the counters of these files beside the model."""
    from pathlib import Path

    from ..counters import counted
    from ..sources.ncu import read_counters

    found = [read_counters(Path(file)) for file in files]
    joined = counted(recording, [launch for launches, _ in found for launch in launches], ", ".join(files))
    notes = dict.fromkeys(f"counters: {note}" for _, some in found for note in some)
    return replace(joined, notes=(*joined.notes, *notes))


def _emit(args: argparse.Namespace, recording: Recording, report: Report, columns: Sequence[str]) -> None:
    """The report everywhere, and of its ops those that were asked for, as they were asked for."""
    part = narrow(report, step=args.step, device=args.device, host=args.host)
    shown = select(
        part,
        category=args.category,
        bound=args.bound,
        dtype=args.dtype,
        unit=args.unit,
        module=args.module,
        name=args.name,
        min_time_s=None if args.min_time is None else parse(args.min_time, "s"),
        feeds=not args.no_infeed,
    )
    groups = _groups(args, report, shown)
    spread = _spread(args, report, shown)

    def text(page: Paper) -> str:
        return report_text(
            report,
            page,
            args.top,
            shown,
            (args.by, groups) if groups is not None else None,
            columns=columns,
            whole_s=sum(op.time_s or 0.0 for op in part) if part is not report.ops else None,
            feeds=not args.no_infeed,
            extra=[*_against(args, recording, shown, page), *_spread_text(args, spread, page)],
        )

    def rows() -> Sequence[Row]:
        if args.stragglers:
            return [{name: getattr(one, name) for name in SPREAD} for one in spread]
        return group_rows(groups) if groups is not None else op_rows(shown, report)

    emit_report(args, report, charted(args, replace(report, ops=shown), text), rows)


def _groups(args: argparse.Namespace, report: Report, shown: Sequence[OpInfo]) -> tuple[Group, ...] | None:
    if args.by in PLACES:
        if args.step or args.device or args.host:
            raise UsageError(f"--by {args.by} takes ops apart itself; leave out --step, --device and --host")
        return group_parts(report, shown, args.by)
    if args.depth is not None and not args.by:
        raise UsageError("--depth is for --by scope")
    return group(shown, args.by, depth=args.depth) if args.by else None


def _against(args: argparse.Namespace, recording: Recording, shown: Sequence[OpInfo], page: Paper) -> list[str]:
    """The model against the counters, where counters were given."""
    if not args.counters:
        return []
    from ..counters import model_against_counters
    from ..render.measured import counters_text

    rows: dict[int, list[Comparison]] = {}
    for row in model_against_counters(recording.workload):
        rows.setdefault(row.op_index, []).append(row)
    return [counters_text([row for op in shown for row in rows.get(op.id, ())], page, args.top)]


def _spread(args: argparse.Namespace, report: Report, shown: Sequence[OpInfo]) -> "tuple[Spread, ...]":
    if not args.stragglers:
        return ()
    from ..stragglers import spreads

    return spreads(shown, report.by_device, report.input.devices, args.stragglers)


def _spread_text(args: argparse.Namespace, spread: "tuple[Spread, ...]", page: Paper) -> list[str]:
    if not args.stragglers:
        return []
    from ..render.measured import stragglers_text

    return [stragglers_text(spread, args.stragglers, page, args.top)]
