"""`roofline analyze --fusion`: what the compiler left unfused in a program, why, and what that costs."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import asdict

from ...analysis import analyze
from ...hlo.fusion.fusion_report import Boundary, Fragmentation, FusionReport, FusionReports, KernelShare, fusion_report
from ...machine import Machine
from ...render.op_table import more
from ...render.tables import Paper, facts, table
from ...render.text import notes_text
from ...sources.hlo_dump import read_modules
from ...sources.programs import check_trips, loop_names, prepared, read, target_machine
from ...units import percent, plain, show
from ..options import Parser, at_least, machine_of, machine_options, output_options
from ..options.program_options import chosen_network, chosen_trips, program_options
from ..output import draw, emit
from ..progress import progress
from ..reading import read_options


def parser() -> Parser:
    command = Parser(
        "analyze --fusion",
        "What the compiler left unfused: tensors that one kernel writes and another reads, the reason, and the time that fusing\n"
        "them would save; kernels by avoidable traffic; how fragmented the program is.",
        "roofline analyze --fusion program.hlo --chip h200",
    )
    command.add_argument("path", metavar="PROGRAM", help="HLO or StableHLO file, or a folder written by --xla_dump_to")
    command.add_argument("--top", type=at_least(0), default=12, metavar="N", help="rows to show in each table (default 12)")
    program_options(command)
    read_options(command, files=False)
    machine_options(command)
    output_options(command)
    return command


def run(words: Sequence[str]) -> int:
    args = parser().parse_args(words)
    path, trips = Path(args.path), chosen_trips(args)
    reports = []
    with progress(f"analyzing {args.path}"):
        modules = list(read_modules(path))
        check_trips(trips, loop_names(modules))
        target = machine_of(args)
        _, devices, compiled = target_machine(path, modules, target)
        machine = target(devices) if callable(target) else target
        network = chosen_network(args, machine)
        for module in modules:
            ready, platform, notes = prepared(module, machine)
            reports.append((fusion_report(ready, platform, machine, link=network, trips=trips), [*compiled, *notes]))
    if args.output:
        from ...render.plot import roofline_chart

        draw(
            args,
            roofline_chart(analyze(read(path, machine, network=partial(chosen_network, args), trips=trips), machine), theme=args.theme),
        )
    emit(
        args,
        lambda page: "\n\n\n".join(_text(report, machine, [*notes, *machine.notes], args.top, page) for report, notes in reports),
        FusionReports(reports=tuple(report for report, _ in reports)),
        lambda: [{**asdict(one), "consumers": " ".join(one.consumers)} for report, _ in reports for one in report.boundaries],
    )
    return 0


def _text(report: FusionReport, machine: Machine, notes: list[str], top: int, page: Paper) -> str:
    parts = [
        f"{page.paint(report.module, 'bold')} for {report.platform} on {machine.name}",
        _fragmentation(report.fragmentation, page),
        _boundaries(report.boundaries, top, page),
        _kernels(report.kernels, top, page),
        notes_text([*report.notes, *notes], page),
    ]
    return "\n\n".join(part for part in parts if part)


def _fragmentation(found: Fragmentation, page: Paper) -> str:
    small = ""
    if found.small_kernels is not None:
        small = f"{found.small_kernels:,} with a minimum time below one launch latency ({show(found.launch_latency_s, 's')})"
        small += f", {percent(found.small_bytes_share)} of the bytes and {percent(found.small_floor_share)} of the minimum time"
    median = show(None if found.median_bytes is None else float(found.median_bytes), "B")
    return facts(
        [
            ("kernels", f"{found.kernels:,} launches of {found.distinct:,} kernels"),
            ("median kernel", f"{median}, minimum time {show(found.median_floor_s, 's')}"),
            ("small kernels", small),
            ("by scope", ", ".join(f"{scope or '(none)'} {count:,}" for scope, count in found.scopes[:6])),
        ],
        page,
    )


def _boundaries(found: Sequence[Boundary], top: int, page: Paper) -> str:
    if not found:
        return "no tensor passes from one kernel to another: nothing is left to fuse"
    rows = [
        [
            one.producer,
            _consumers(one.consumers),
            one.reason,
            plain(one.count),
            show(one.written_bytes + one.read_bytes, "B"),
            show(one.avoidable_bytes, "B"),
            show(one.gain_s, "s"),
        ]
        for one in found[:top]
    ]
    title = page.paint("Tensors passed between kernels", "bold")
    headers = ["from", "to", "reason", "count", "traffic", "avoidable", "saving"]
    return f"{title}\n{table(headers, rows, page, left=3)}{more(len(found) - top)}"


def _consumers(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more" if names else "–"


def _kernels(found: Sequence[KernelShare], top: int, page: Paper) -> str:
    ranked = [one for one in found if one.avoidable_bytes]
    if not ranked:
        return ""
    rows = [
        [one.name, one.category, plain(one.count), show(float(one.bytes), "B"), show(one.avoidable_bytes, "B"), show(one.floor_s, "s")]
        for one in ranked[:top]
    ]
    title = page.paint("Kernels by avoidable traffic", "bold")
    headers = ["kernel", "category", "count", "traffic", "avoidable", "minimum"]
    return f"{title}\n{table(headers, rows, page, left=2)}{more(len(ranked) - top)}"
