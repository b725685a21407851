"""`roofline compare`: compare two reports op by op."""

import argparse
import os
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from ..analysis import analyze
from ..analysis.budgets import check_change, read_conditions
from ..checking import Check
from ..comparison import compare, median_run
from ..comparison.promises import Kept, promise_line
from ..comparison.runs import Trend, headline_of, trend
from ..comparison.values import Delta
from ..errors import MachineError, OutputError, SourceError, UsageError
from ..machine import Machine
from ..machines.catalogue import catalogue_card
from ..render.budgets import checks_text
from ..render.change_comment import change_comment, change_sentence, trend_markdown, trend_rows, trend_sentence
from ..render.comparison import changes_text, comparison_with_checks
from ..render.export import Row
from ..render.tables import Paper, table
from ..report import Report
from ..sources import PROGRAM, find
from ..sources.files import all_of
from ..sources.pipes import is_pipe
from ..sources.remote import is_remote
from ..sources.report_json import stored_report
from ..sources.samples import is_sample
from .options import (
    BROKEN,
    NOT_KNOWN,
    Parser,
    at_least,
    chosen_price,
    chosen_throughput,
    is_markdown,
    is_page,
    machine_options,
    names_machine,
    output_options,
    throughput_options,
)
from .options.named_values import former
from .options.program_options import NEEDS_PROGRAM, chosen_network, chosen_trips, names_program_option, program_options
from .options.slice_options import COMPILATION, MAKE_IT_FIT, each_slice, functions_of, record_function, slice_options
from .output import draw, emit, write, write_message, write_page
from .reading import opened, read_options


def parser() -> Parser:
    command = Parser(
        "compare",
        "Compare two reports op by op: what got faster, what got slower, what is new. More than two are a trend.\n"
        "Each is a JSON report of roofline, or any file or folder that analyze reads (analyzed for --chip). Programs and formulas without\n"
        "measured times are compared by minimum time, FLOP, bytes, launches and peak memory. MODULE.py:FUNCTION is compiled for a slice\n"
        "of TPUs; several slices or meshes are a version each. Exit status 3: a condition is broken.",
        "roofline compare before.hlo after.hlo --chip h100 --trips while.3=100\n"
        "  roofline compare before.json after.json --require 'time +5%, hbm +2%' -o comment.md\n"
        "  roofline compare train.py:plan --chip v6e:4x4 --compile mesh=fsdp=16/fsdp=4,tensor=4\n"
        "  roofline compare before*.json after*.json --runs 3,5 --require 'step +3%'",
    )
    command.add_argument("files", metavar="FILE", nargs="+", help="reports, profiles, programs or tables: before, after, and later ones")
    command.add_argument("--top", type=at_least(0), default=20, metavar="N", help="ops to show in the table (default 20)")
    command.add_argument(
        "--require",
        action="append",
        default=[],
        metavar="CONDITION",
        help="condition of roofline check on the last report, with the first as its baseline: 'time +5%%, hbm +2%%, mfu -1%%' (time per "
        "step, else of the run), 'no above-roof'; may be repeated",
    )
    former(command, "--fail-on", option="--require", becomes="{}")
    command.add_argument(
        "--runs",
        metavar="N",
        type=_run_counts,
        default=(1,),
        help="number of files that are runs of one version: 3 for all versions, or 3,5 for each; changes within the noise are ignored",
    )
    throughput_options(command)
    read_options(command)
    program_options(command)
    slice_options(command, [value for value in COMPILATION if value.name not in ("save", MAKE_IT_FIT)])
    machine_options(command)
    output_options(command, page=True)
    command.add_argument(
        "--record", metavar="FILE", help="add what findings promised and what arrived to FILE, for roofline validate --promises"
    )
    command.add_argument("--markdown", metavar="FILE", help="write the comment for a pull request as Markdown; - is standard output")
    return command


def run(words: Sequence[str]) -> int:
    args = parser().parse_args(words)
    chosen_throughput(args), chosen_price(args)  # raise an error before anything is read
    functions = _functions(args)
    names = _versions(args)
    _check_program_options(args)
    reports: dict[str, Report] = {}
    machines: list[Machine] = []
    # A profile names its machine, and a program is analyzed for the same one.
    for name in sorted(dict.fromkeys(args.files), key=_is_program):
        reports[name] = _compiled(functions[name]) if name in functions else _report(args, name, machines)
    versions = [[reports[name] for name in runs] for runs in names]
    checks = _limits(args, versions, names[0][0]) if args.require else ()
    if len(versions) > 2:
        _emit_trend(args, trend(versions, [runs[0] for runs in names]), checks)
    else:
        _emit_change(args, versions, names, checks)
    return BROKEN if any(one.holds is False for one in checks) else NOT_KNOWN if any(one.holds is None for one in checks) else 0


def _run_counts(text: str) -> tuple[int, ...]:
    return tuple(at_least(1)(word.strip()) for word in text.split(","))


def _functions(args: argparse.Namespace) -> dict[str, argparse.Namespace]:
    """The options of each function to compile, by its name in the comparison: with the slice and the mesh, where there are several.

    The files of the arguments then have these names.
    """
    functions = functions_of(args, args.files)
    if not functions:
        return {}
    each = list(each_slice(args))
    if len(each) > 1 and len(functions) < len(args.files):
        raise UsageError("compare: several slices or meshes are for functions alone, which are compiled for each")
    found, files = {}, []
    for name in args.files:
        for own in each if name in functions else ():
            several = [[one.chip for one in each], [",".join(one.mesh or ()) for one in each]]
            words = [of_all[each.index(own)] for of_all in several if len({*of_all}) > 1]
            label = " ".join([name, *words])
            found[label] = argparse.Namespace(**{**vars(own), "path": [name]})
            files.append(label)
        files += [] if name in functions else [name]
    args.files = files
    return found


def _compiled(own: argparse.Namespace) -> Report:
    """The report on a function that is compiled for a slice."""
    recording, _, place = record_function(own, own.path[0])
    return analyze(recording, place.machine, per_step=chosen_throughput(own), price=chosen_price(own))


def _versions(args: argparse.Namespace) -> list[list[str]]:
    """The files of each version."""
    files, counts = list(args.files), list(args.runs)
    if len(files) < 2:
        raise UsageError(f"compare: {files[0]} is the only input; give two runs or more: roofline compare before.json after.json")
    if len(counts) == 1:
        counts *= max(-(-len(files) // counts[0]), 2)
    if sum(counts) != len(files) or len(counts) < 2:
        raise UsageError(f"compare: {len(files)} files are not {', '.join(map(str, counts))} runs of {len(counts)} versions; see --runs")
    return [[files.pop(0) for _ in range(count)] for count in counts]


def _limits(args: argparse.Namespace, versions: Sequence[Sequence[Report]], file: str) -> tuple[Check, ...]:
    """The conditions, checked on the first and the last version."""
    limits = read_conditions(args.require, headline_of([*versions[0], *versions[-1]]))
    return check_change(versions[0], versions[-1], limits, file).checks


def _emit_change(
    args: argparse.Namespace,
    versions: list[list[Report]],
    names: list[list[str]],
    checks: tuple[Check, ...],
) -> None:
    places = [median_run(runs) for runs in versions]
    before, after = (runs[place] for runs, place in zip(versions, places, strict=True))
    first, last = (of[place] for of, place in zip(names, places, strict=True))
    found = compare(versions[0], versions[1], (first, last))

    if args.record:
        _record(args.record, found.promises)

    def comment() -> str:
        return change_comment(found.changes, checks, found.notes, found.promises)

    if args.output and is_page(args.output):
        from ..render.page.large_reports import left_out
        from ..render.page.report_page import comparison_page

        write_page(args, comparison_page(before, after, written=(_written(args, first), _written(args, last))))
        for name, report in ((first, before), (last, after)):
            if note := left_out(report):
                write_message(f"{name}: {note}")
    elif args.output and is_markdown(args.output):
        write_page(args, comment())
    elif args.output:
        from ..render.plot import change_bars

        draw(args, change_bars(found, theme=args.theme))
    if args.markdown and args.markdown != "-":
        write(args.markdown, comment().encode())

    def text(page: Paper) -> str:
        if args.markdown == "-":
            return comment().rstrip("\n")
        noise = [change_sentence(found.changes)] if max(map(len, versions)) > 1 else []
        return "\n\n".join(filter(None, [changes_text(found, page, args.top), *noise, checks_text(checks)]))

    value = comparison_with_checks(found, checks) if args.json else found
    emit(args, text, value, lambda: [_row(delta) for delta in found.deltas])


def _record(file: str, promises: Kept | None) -> None:
    """Add a pair to a file of promises."""
    if promises is None:
        raise UsageError(
            f"compare: --record {file}: these reports have no measured times of the same kind, so no promise was kept or broken"
        )
    try:
        with open(file, "ab") as lines:
            lines.write(promise_line(promises))
    except OSError as error:
        raise OutputError(f"{file}: {error.strerror}") from None


def _emit_trend(args: argparse.Namespace, found: Trend, checks: tuple[Check, ...]) -> None:
    if args.output and is_page(args.output):
        raise UsageError(f"compare: {args.output}: a page compares two reports; write a trend to .md, .svg, .png or .pdf")
    if args.output and is_markdown(args.output):
        write_page(args, trend_markdown(found))
    elif args.output:
        from ..render.plot import trend_chart

        draw(args, trend_chart(found, theme=args.theme))
    if args.markdown and args.markdown != "-":
        write(args.markdown, trend_markdown(found).encode())

    def text(page: Paper) -> str:
        if args.markdown == "-":
            return trend_markdown(found).rstrip("\n")
        return "\n\n".join(filter(None, [trend_sentence(found), table(*trend_rows(found), page), checks_text(checks)]))

    def rows() -> list[Row]:
        return [
            {"version": version, **{name: one.mean if (one := row[place]) else None for name, row in found.values.items()}}
            for place, version in enumerate(found.versions)
        ]

    emit(args, text, {**msgspec.to_builtins(found), "checks": checks}, rows)


def _check_program_options(args: argparse.Namespace) -> None:
    """Raise an error for program options without a program, and for trip counts of a loop that no program has."""
    if not names_program_option(args):
        return
    named = [Path(name) for name in dict.fromkeys(args.files) if _is_program(name)]
    missing = [name for name in args.files if not (is_remote(name) or is_sample(name) or is_pipe(name) or os.path.exists(name))]
    if missing:
        raise SourceError(f"{missing[0]}: no such file")
    if not named:
        raise UsageError(f"{NEEDS_PROGRAM} programs (HLO or StableHLO), and none of these is one")
    if args.trips:
        from ..sources.hlo_dump import read_modules
        from ..sources.programs import check_trips, loop_names

        check_trips(chosen_trips(args), [loop for path in named for loop in loop_names(read_modules(path))])


def _of_program(args: argparse.Namespace, path: Path) -> dict[str, Any]:
    """What the options say about a program: the network, and the trip counts of its own loops."""
    from ..sources.hlo_dump import read_modules  # takes 30 ms to import, and profiles do not need it
    from ..sources.programs import loop_names

    own = loop_names(read_modules(path)) if args.trips else []
    trips = {loop: count for loop, count in chosen_trips(args).items() if loop in own}
    return {"network": partial(chosen_network, args), "trips": trips}


def _is_program(name: str) -> bool:
    """Whether a file or folder holds programs, which run on any machine."""
    return not is_remote(name) and not is_sample(name) and (is_pipe(name) or os.path.exists(name)) and find(name) is PROGRAM


def _report(args: argparse.Namespace, name: str, machines: list[Machine]) -> Report:
    """The report stored in a file, or made from it.

    A stored report keeps its machine unless another is requested; ``machines`` are those of earlier inputs.
    """
    is_program = _is_program(name)
    same = machines[0] if machines and is_program and not names_machine(args) else None
    more = _of_program(args, Path(name)) if is_program and names_program_option(args) else {}
    report, _, machine = opened(args, [name], usual=same, **more)
    if machine is not None:
        machines.append(machine)
    else:
        with suppress(MachineError):  # a user's machine file is not in the catalogue
            machines.append(catalogue_card(report.machine.name).machine)
    return report


def _written(args: argparse.Namespace, name: str) -> bytes | None:
    """The bytes of a stored report, which a page embeds unchanged."""
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
