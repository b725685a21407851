"""`roofline analyze`: compare a profile, program or op table with a chip's limits."""

import argparse
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ..errors import SourceError, UsageError
from ..grouping import KEYS, PLACES
from ..render.op_table import COLUMNS
from ..sources import PROGRAM, find
from ..sources.report_json import stored_report
from ..sources.samples import is_sample
from ..workload import Recording
from .options import (
    BROKEN,
    Parser,
    anonymize_options,
    at_least,
    chosen_corrections,
    chosen_throughput,
    correction_options,
    is_corrected,
    is_page,
    limit_options,
    machine_options,
    machine_to_read,
    names_machine,
    output_options,
    quantity,
    screen_options,
    throughput_options,
)
from .program_options import NEEDS_PROGRAM, chosen_network, chosen_trips, names_program_option, program_options
from .reading import host_options, read_input
from .reporting import EACH_OP, analyze_and_emit, columns, emit_stored
from .slice_options import names_function, record_function, slice_options
from .terminal import chart_options

GROUPS = tuple("program" if key == "module" else key for key in (*KEYS, *PLACES, EACH_OP))


def parser() -> Parser:
    made = Parser(
        "analyze",
        "Compare a profile, program or op table with a chip's limits: bounds, roofline efficiency, what to do next.\n"
        "Reads profiles (.xplane.pb files, run folders, TensorBoard log folders), PyTorch profiler traces (trace.json.gz, folders of\n"
        "ranks), XLA programs (HLO text or protobuf, StableHLO text or bytecode, --xla_dump_to folders), Nsight Compute CSVs, op tables\n"
        "(CSV, JSON, Parquet) and roofline's own JSON reports. MODULE.py:FUNCTION is compiled for a slice of TPUs, without one; exit\n"
        "status 3 if it does not fit.",
        "roofline analyze run/host.xplane.pb --json report.json -o roofline.svg",
    )
    made.add_argument("path", nargs="+", metavar="PATH", help="file, folder or URL (gs://…); the format is detected from the content")
    screen_options(made)
    made.add_argument("--fusion", action="store_true", help="what the compiler left unfused in a program, why, and what that costs")
    reading_options(made)
    host_options(made)
    table_options(made)
    program_options(made)
    slice_options(made)
    machine_options(made)
    correction_options(made)
    output_options(made, page=True)
    anonymize_options(made)
    chart_options(made)
    return made


def reading_options(made: argparse.ArgumentParser) -> None:
    """Options for counters, damaged profiles and the timeline."""
    group = made.add_argument_group("input")
    group.add_argument(
        "--counters",
        action="append",
        default=[],
        metavar="CSV",
        help="compare the model with hardware counters of the same program (from ncu --set full --csv --page raw; may be gzipped); "
        "may be repeated",
    )
    throughput_options(group)
    limit_options(group)
    group.add_argument("--salvage", action="store_true", help="read a damaged profile as far as possible and report where it is damaged")
    group.add_argument(
        "--timeline",
        action="store_true",
        help="show a timeline of each device over a step, and what the host did while the device was idle; JSON has 1000 buckets of a step "
        "and of the run (.html always has them): --timeline --json run.json",
    )


def table_options(made: argparse.ArgumentParser) -> None:
    """Which ops the table shows, how they are grouped, and in which columns."""
    table = made.add_argument_group("table (--json always has everything)")
    table.add_argument("--by", choices=(*GROUPS, "module"), metavar="KEY", help=f"group ops by {', '.join(GROUPS)}")
    table.add_argument("--depth", type=at_least(1), metavar="N", help="scope levels to keep (with --by scope)")
    table.add_argument(
        "--columns",
        metavar="NAMES",
        help=f"comma-separated columns: {', '.join(COLUMNS)}; for a resource: hbm, hbm/s, flop/hbm, counted:hbm",
    )
    table.add_argument(
        "--unfold", action="store_true", help="one row per op, not one for all layers that do the same work (same as --by op)"
    )
    table.add_argument("--name", metavar="REGEX", help="only ops whose label or name matches")
    table.add_argument("--min-time", metavar="TIME", help="only ops that take this long or longer in the whole run")
    for field in ("category", "bound", "dtype", "unit"):
        table.add_argument(f"--{field}", action="append", metavar=field.upper(), help=f"only ops with this {field}; may be repeated")
    table.add_argument(
        "--program", "--module", dest="module", action="append", metavar="NAME", help="only ops of this program; may be repeated"
    )
    table.add_argument("--step", action="append", metavar="STEP", help="only this step, by number or name; may be repeated")
    table.add_argument("--device", action="append", type=int, metavar="ID", help="only this device; may be repeated")
    table.add_argument("--host", action="append", metavar="NAME", help="only this host; may be repeated")
    table.add_argument("--no-infeed", action="store_true", help="exclude infeed/outfeed ops, their time and findings about them")
    table.add_argument(
        "--stragglers", nargs="?", const="device", choices=("device", "host"), help="compare each op's time across devices or hosts"
    )


def run(words: Sequence[str]) -> int:
    args = parser().parse_args(words)
    _check(args)
    if names_function(args):
        recording, is_refused = record_function(args)
        analyze_and_emit(args, recording)
        return BROKEN if is_refused else 0
    if not (names_program_option(args) or names_machine(args) or is_corrected(args) or args.limit or args.counters or len(args.path) > 1):
        kept = stored_report(args.path[0])
        if kept is not None:
            emit_stored(args, kept)
            return 0
    if names_program_option(args):
        recording = _program(args)
    else:
        timeline = args.timeline or bool(args.output and is_page(args.output))
        recording = read_input(args, args.path, machine_to_read(args), salvage=args.salvage, timeline=timeline)
    analyze_and_emit(args, recording)
    return 0


def _program(args: argparse.Namespace) -> Recording:
    """A program, read with the options for programs."""
    from ..sources import programs  # takes 30 ms to import, and profiles do not need it

    trips = chosen_trips(args)
    if len(args.path) > 1 or is_sample(args.path[0]) or find(args.path[0]) is not PROGRAM:
        raise UsageError(f"{NEEDS_PROGRAM} one program (HLO or StableHLO)")
    return programs.read(Path(args.path[0]), machine_to_read(args), network=partial(chosen_network, args), trips=trips)


def _check(args: argparse.Namespace) -> None:
    """Report wrong options before anything is read."""
    chosen_throughput(args)
    if is_corrected(args):
        chosen_corrections(args)
    if args.columns:
        columns(args)
    if args.min_time is not None:
        quantity(args.min_time, "s", "--min-time")
    for name in args.counters:
        if not os.path.exists(name):
            raise SourceError(f"--counters {name}: no such file")
