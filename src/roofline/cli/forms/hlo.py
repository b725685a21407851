"""`roofline analyze`: cost of an XLA program by scope, source location, category or phase, without running it."""

from collections.abc import Sequence
from functools import partial
from math import fsum

from ...analysis import open_report
from ...grouping import group, group_table
from ...render.export import group_rows, op_rows
from ...render.markdown import to_markdown
from ...render.screen import report_text
from ..options import (
    Parser,
    anonymize_options,
    at_least,
    chosen_corrections,
    correction_options,
    machine_of,
    machine_options,
    output_options,
    screen_options,
)
from ..options.program_options import chosen_network, chosen_trips, program_options
from ..output import emit_report, shared
from ..progress import progress
from ..reading import read_options

# the option's value -> the field of an op
KEYS = {
    "scope": "scope",
    "location": "location",
    "source": "location",
    "category": "category",
    "phase": "phase",
    "dtype": "dtype",
    "bound": "bound",
    "name": "name",
}


def parser() -> Parser:
    command = Parser(
        "hlo",
        "Cost of an XLA program: FLOP and bytes of every instruction that runs, with loops and calls multiplied out.\n"
        "Reads HLO text or protobuf, StableHLO (text, MLIR bytecode, portable artifacts, jax.export files), plain or gzipped,\n"
        "or a folder written by --xla_dump_to. Needs no JAX.",
        "roofline analyze program.hlo --by scope --chip h200",
    )
    command.add_argument("path", metavar="PROGRAM", help="the file or folder")
    command.add_argument("--by", choices=KEYS, metavar="KEY", help="group ops by scope, location, category, phase, dtype, bound or name")
    command.add_argument("--depth", type=at_least(1), metavar="N", help="scope levels to keep (with --by scope)")
    screen_options(command)
    program_options(command)
    read_options(command, files=False)
    machine_options(command)
    correction_options(command)
    output_options(command, page=True)
    anonymize_options(command)
    return command


def run(words: Sequence[str]) -> int:
    args = parser().parse_args(words)
    corrections = chosen_corrections(args)
    with progress(f"analyzing {args.path}"):
        network, trips = partial(chosen_network, args), chosen_trips(args)
        (report,) = shared(args, open_report(args.path, machine_of(args), corrections, again=True, network=network, trips=trips).report)
    groups = group(report.ops, KEYS[args.by], depth=args.depth) if args.by else None
    grouped = group_table(KEYS[args.by], groups, fsum(op.weight_s for op in report.ops)) if groups is not None else None
    emit_report(
        args,
        report,
        lambda page: report_text(report, page, args.top, None, grouped, details=args.details),
        rows=lambda: group_rows(groups) if groups is not None else op_rows(report.ops),
        markdown=lambda: to_markdown(report, None, None, grouped),
    )
    return 0
