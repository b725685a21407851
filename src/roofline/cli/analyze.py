"""`roofline analyze`: hold a file of ops against a machine."""

from collections.abc import Sequence

from ..analysis import analyze
from ..errors import UsageError
from ..render.export import group_rows, op_rows
from ..render.text import report_text
from ..selection import group, select
from ..sources import read
from ..units import parse
from ..workload import Recording
from .options import Parser, chosen_corrections, chosen_machine, correction_options, machine_options, output_options
from .output import emit_report

GROUPS = ("category", "scope", "location", "phase", "dtype", "name", "module", "unit", "bound")


def parser() -> Parser:
    made = Parser(
        "analyze",
        "Hold a file of ops against a machine: bounds, efficiency, what to do next.\n"
        "It reads profiles (.xplane.pb files, run folders, TensorBoard log folders), compiled XLA programs (HLO text or protobuf,\n"
        "StableHLO, xla_dump_to folders), Nsight Compute CSVs, tables of ops (CSV, JSON, Parquet) and roofline's own JSON reports.",
        "roofline analyze run/host.xplane.pb --json report.json -o roofline.svg",
    )
    made.add_argument("path", nargs="+", metavar="PATH", help="the file; its format is found by its content")
    made.add_argument("--top", type=int, default=20, metavar="N", help="ops to show in the table (default 20)")
    table = made.add_argument_group("the table (--json always has everything)")
    table.add_argument("--by", choices=GROUPS, help="sum the ops by what they have in common")
    table.add_argument("--name", metavar="REGEX", help="only ops whose name matches")
    table.add_argument("--min-time", metavar="TIME", help="only ops that take at least this long")
    for field in ("category", "bound", "dtype", "unit", "module"):
        table.add_argument(f"--{field}", action="append", metavar=field.upper(), help=f"only ops with this {field}; may be repeated")
    machine_options(made)
    correction_options(made)
    output_options(made)
    return made


def _hosts(paths: Sequence[str]) -> Recording:
    """Several files: the hosts of one run, if all of them are profiles."""
    if not all(path.removesuffix(".gz").endswith(".xplane.pb") for path in paths):
        raise UsageError(
            "several files are the hosts of one run and end in .xplane.pb; hold two inputs against each other with: roofline compare A B"
        )
    from ..sources.xspace.recording import read_many

    return read_many(paths)


def run(words: Sequence[str]) -> int:
    args = parser().parse_args(words)
    corrections = chosen_corrections(args)
    recording = read(args.path[0], lambda: chosen_machine(args)) if len(args.path) == 1 else _hosts(args.path)
    report = analyze(recording, chosen_machine(args, recording.devices), corrections)
    shown = select(
        report.ops,
        category=args.category,
        bound=args.bound,
        dtype=args.dtype,
        unit=args.unit,
        module=args.module,
        name=args.name,
        min_time_s=None if args.min_time is None else parse(args.min_time, "s"),
    )
    groups = group(shown, args.by) if args.by else None
    emit_report(
        args,
        report,
        lambda page: report_text(report, page, args.top, shown, (args.by, groups) if groups is not None else None),
        rows=lambda: group_rows(groups) if groups is not None else op_rows(shown),
    )
    return 0
