"""`roofline compare`: compare two reports op by op."""

import argparse
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ..analysis import analyze
from ..analysis.throughput import with_throughput
from ..comparison import Delta, compare
from ..errors import MachineError, UsageError
from ..machine import Machine
from ..machines.catalogue import catalogue_card
from ..render.changes import changes_markdown, changes_text
from ..render.export import Row
from ..report import Report
from ..sources import PROGRAM, find
from ..sources.files import all_of
from ..sources.pipes import is_pipe
from ..sources.remote import is_remote
from ..sources.report_json import stored_report
from ..sources.samples import is_sample
from ..workload import Recording
from .options import (
    Parser,
    at_least,
    chosen_machine,
    chosen_throughput,
    is_markdown,
    is_page,
    limit_options,
    machine_options,
    names_machine,
    output_options,
    throughput_options,
)
from .output import draw, emit, write, write_page
from .program_options import NEEDS_PROGRAM, chosen_network, chosen_trips, names_program_option, program_options
from .reading import host_options, read_input


def parser() -> Parser:
    made = Parser(
        "compare",
        "Compare two reports op by op: what got faster, what got slower, what is new.\n"
        "Each is a JSON report of roofline, or any file or folder that analyze reads (analysed for --chip). Programs and formulas without\n"
        "measured times are compared by minimum time, FLOP, bytes, launches and peak memory.",
        "roofline compare before.hlo after.hlo --chip h100 --trips while.3=100",
    )
    made.add_argument("before", metavar="A", help="the report, profile, program or table before")
    made.add_argument("after", metavar="B", help="the one after")
    made.add_argument("--top", type=at_least(0), default=20, metavar="N", help="ops to show in the table (default 20)")
    throughput_options(made)
    limit_options(made)
    host_options(made)
    program_options(made)
    machine_options(made)
    output_options(made, page=True)
    made.add_argument("--markdown", metavar="FILE", help="write the comparison as Markdown, for a pull request; - is standard output")
    return made


def run(words: Sequence[str]) -> int:
    args = parser().parse_args(words)
    per_step = chosen_throughput(args)
    _check_program_options(args)
    reports: dict[str, Report] = {}
    machines: list[Machine] = []
    # What was measured says which machine it ran on, and a program is analysed for that one.
    for name in sorted((args.before, args.after), key=_is_program):
        reports[name] = with_throughput(_report(args, name, machines), per_step)
    before, after = reports[args.before], reports[args.after]
    found = compare(before, after, (args.before, args.after))
    if args.output and is_page(args.output):
        from ..render.page.report_page import comparison_page

        write_page(args, comparison_page(before, after, written=(_written(args, args.before), _written(args, args.after))))
    elif args.output and is_markdown(args.output):
        write_page(args, changes_markdown(found, args.top))
    elif args.output:
        from ..render.plot import change_bars

        draw(args, change_bars(found, theme=args.theme))
    as_markdown = changes_markdown(found, args.top)
    if args.markdown and args.markdown != "-":
        write(args.markdown, as_markdown.encode())
    emit(
        args,
        lambda page: as_markdown.rstrip("\n") if args.markdown == "-" else changes_text(found, page, args.top),
        found,
        lambda: [_row(delta) for delta in found.deltas],
    )
    return 0


def _check_program_options(args: argparse.Namespace) -> None:
    """Refuse options about programs where neither is one, and a trip count of a loop that neither has."""
    if not names_program_option(args):
        return
    named = [Path(name) for name in dict.fromkeys((args.before, args.after)) if _is_program(name)]
    if not named:
        raise UsageError(f"{NEEDS_PROGRAM} programs (HLO or StableHLO), and neither of these is one")
    if args.trips:
        from ..sources.hlo_dump import read_modules
        from ..sources.programs import check_trips, loop_names

        check_trips(chosen_trips(args), [loop for path in named for loop in loop_names(read_modules(path))])


def _program(args: argparse.Namespace, path: Path, machine: Machine) -> Recording:
    """A program, read with the options that only programs have; of the trip counts those of its own loops."""
    from ..sources import programs  # 30 ms that profiles do not need
    from ..sources.hlo_dump import read_modules

    own = programs.loop_names(read_modules(path)) if args.trips else []
    trips = {loop: count for loop, count in chosen_trips(args).items() if loop in own}
    return programs.read(path, machine, network=chosen_network(args, machine), trips=trips)


def _is_program(name: str) -> bool:
    """Whether a file or folder holds programs, which run on any machine."""
    return not is_remote(name) and not is_sample(name) and (is_pipe(name) or os.path.exists(name)) and find(name) is PROGRAM


def _report(args: argparse.Namespace, name: str, machines: list[Machine]) -> Report:
    """The report in a file, or on it. A report keeps its machine, unless another is asked for; ``machines`` are those of earlier ones."""
    if not names_machine(args) and (kept := stored_report(name)) is not None:
        with suppress(MachineError):  # a machine of the user's own is not in the catalogue
            machines.append(catalogue_card(kept.machine.name).machine)
        return kept
    same = None if names_machine(args) or not machines else machines[0]
    if names_program_option(args) and _is_program(name):
        recording = _program(args, Path(name), same or chosen_machine(args))
    else:
        recording = read_input(args, [name], lambda: same or chosen_machine(args))
    machine = same if same and _is_program(name) else chosen_machine(args, recording.devices)
    machines.append(machine)
    return analyze(recording, machine)


def _written(args: argparse.Namespace, name: str) -> bytes | None:
    """The bytes of a report that is kept as it was written, so that a page holds those and no others."""
    path = Path(name)
    kept = not names_machine(args) and (is_pipe(name) or path.is_file()) and stored_report(name) is not None
    return all_of(path) if kept else None


def _row(delta: Delta) -> Row:
    return {
        "label": delta.label,
        "name": delta.name,
        "module": delta.module,
        "category": delta.category,
        "matched": delta.matched,
        "before_s": delta.before.time_s,
        "after_s": delta.after.time_s,
        "change_s": delta.change_s,
        "share": delta.share,
        "efficiency_before": delta.before.efficiency,
        "efficiency_after": delta.after.efficiency,
        "bound_before": delta.before.bound,
        "bound_after": delta.after.bound,
        "floor_before_s": delta.before.floor_s,
        "floor_after_s": delta.after.floor_s,
        "floor_change_s": delta.floor_change_s,
        "flops_before": delta.before.flops,
        "flops_after": delta.after.flops,
        "hbm_before": delta.before.bytes.get("hbm", 0),
        "hbm_after": delta.after.bytes.get("hbm", 0),
        "launches_before": delta.before.launches,
        "launches_after": delta.after.launches,
    }
