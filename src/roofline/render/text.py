"""Reports as text, for a terminal or a pipe."""

from collections.abc import Sequence

from ..report import Finding, OpInfo, Point, Report
from ..resource import bound_words
from ..selection import Group
from ..units import percent, plain, show
from ..workload import PeakMemory, is_caveat
from .op_table import efficiency_cell, known_flops, more, ops_text
from .tables import PLAIN, Cell, Paper, facts, table

OP_NOTES = 6  # notes on ops shown in a terminal
AT_PEAK = 4  # scopes named in a terminal; the report has them all
FINDINGS = 5  # shown in a terminal; the report has them all


def report_text(
    report: Report,
    paper: Paper = PLAIN,
    top: int = 20,
    shown: Sequence[OpInfo] | None = None,
    grouped: tuple[str, Sequence[Group]] | None = None,
    *,
    columns: Sequence[str] = (),
    whole_s: float | None = None,
    feeds: bool = True,
    extra: Sequence[str] = (),
) -> str:
    """A whole report: what was read, the program, its longest ops (or those ``shown``, or ``grouped``), and what to do next.

    ``columns`` are those of the table of ops, ``whole_s`` what their shares are of; without ``feeds`` the program is shown without infeed
    and outfeed; ``extra`` tables follow that of the ops.
    """
    ops = (
        _groups(*grouped, paper, top, sum(op.weight_s for op in report.ops) if whole_s is None else whole_s)
        if grouped
        else ops_text(report, report.ops if shown is None else shown, paper, top, columns, whole_s)
    )
    parts = [_heading(report, paper), facts(program_facts(report, feeds), paper), ops, *extra, findings_text(report.findings, paper)]
    parts.append(notes_text([*report.input.notes, *report.machine.notes, *op_notes(report.ops if shown is None else shown)], paper))
    return "\n\n".join(part for part in parts if part)


def op_notes(ops: Sequence[OpInfo]) -> list[str]:
    """The caveats of some ops, each once with the ops it is about, the first few of them.

    How an op was counted is no caveat: that is in the report and among the page's details.
    """
    about: dict[str, list[str]] = {}
    for op in ops:
        for note in filter(is_caveat, op.notes):
            about.setdefault(note, []).append(op.name)
    lines = []
    for note, names in list(about.items())[:OP_NOTES]:
        named = list(dict.fromkeys(names))
        lines.append(f"{', '.join(named[:2])}{f' and {len(named) - 2:,} more' if len(named) > 2 else ''}: {note}")
    return [*lines, f"{len(about) - OP_NOTES:,} more notes on ops in --json"] if len(about) > OP_NOTES else lines


def op_text(report: Report, paper: Paper = PLAIN, room: str = "") -> str:
    """One op in full: its ledger, its time on each unit, whether it fits, and what to do next."""
    op = report.ops[0]
    parts = [f"{paper.paint(op.name, 'bold')} on {machine_line(report, [op])}", ledger_text(op, paper), placement_text(report, op, paper)]
    parts += [room, findings_text(report.findings, paper)]
    parts.append(notes_text([*op.notes, *report.machine.notes], paper))
    return "\n\n".join(part for part in parts if part)


def machine_line(report: Report, ops: list[OpInfo]) -> str:
    """The machine and the ceilings that these ops use."""
    used = {roof for op in ops for roof in op.roofs}
    roofs = [ceiling for ceiling in report.machine.ceilings if ceiling.resource in used]
    said = ", ".join(f"{roof.resource} {show(roof.rate, roof.per)} ({roof.provenance})" for roof in roofs)
    return f"{report.machine.name}: {said}" if said else report.machine.name


def ledger_text(op: OpInfo, paper: Paper = PLAIN) -> str:
    """One row per tensor, then the arithmetic."""
    rows = [[r.tensor, _shape(r.shape), r.dtype, r.access, r.level, show(r.bytes, "B"), _grouped(r.bytes)] for r in op.ledger]
    if not op.ledger:
        rows += [["traffic", "", "", "", name, show(amount, "B"), _grouped(amount)] for name, amount in op.bytes.items()]
    rows += [["work", "", "", "", name, show(amount, "FLOP"), _grouped(amount)] for name, amount in op.work.items()]
    rows += [["hops", "", "", "", name, show(amount, "hop"), _grouped(amount)] for name, amount in op.hops.items()]
    return table(["tensor", "shape", "dtype", "access", "resource", "amount", "exact"], rows, paper, left=5) if rows else ""


def _grouped(amount: float | None) -> str:
    return "unknown" if amount is None else f"{amount:,.0f}"


def _shape(shape: tuple[float, ...]) -> str:
    return " x ".join(plain(size) if size != int(size) else str(int(size)) for size in shape) or "scalar"


def placement_text(report: Report, op: OpInfo, paper: Paper = PLAIN) -> str:
    """Bound, minimum time and efficiency of one op, line by line."""
    share = _peak_share(report, op)
    return facts(
        [
            ("bound", bound_words(op.bound)),
            ("intensity", f"{plain(op.intensity)} FLOP/B" if op.intensity else ""),
            ("ridge", f"{plain(op.ridge)} FLOP/B for {op.unit}/{op.dtype} over hbm" if op.ridge else ""),
            ("minimum time", f"{show(op.floor_s, 's')} (full overlap)"),
            ("serial time", f"{show(op.serial_s, 's')} (no overlap)"),
            ("expected time", f"{show(op.expected_s, 's')} (with the corrections)" if op.expected_s != op.floor_s else ""),
            ("time per unit", ", ".join(f"{unit} {show(seconds, 's')}" for unit, seconds in op.times.items())),
            ("attainable", f"{show(op.attainable, 'FLOP/s')}{share}" if op.attainable else ""),
            ("measured", f"{show(op.time_s, 's')}, roofline efficiency {percent(op.efficiency)}" if op.time_s is not None else ""),
            ("no known rate", f"{', '.join(op.unrated)}: not included, the true minimum may be longer" if op.unrated else ""),
        ],
        paper,
    )


def _peak_share(report: Report, op: OpInfo) -> str:
    peak = next((roof.rate for roof in report.machine.ceilings if roof.resource == f"{op.unit}/{op.dtype}"), None)
    return f", {percent(op.attainable / peak)} of the {op.unit}/{op.dtype} peak" if peak and op.attainable else ""


def _heading(report: Report, paper: Paper) -> str:
    files = ", ".join(report.input.files) or report.input.format
    return f"{paper.paint(files, 'bold')}: {len(report.ops):,} ops on {machine_line(report, list(report.ops))}"


def program_facts(report: Report, feeds: bool = True) -> list[tuple[str, str]]:
    """What is known of the whole program, as labels and sentences; a sentence is empty where it does not apply."""
    points = [point for point in report.points if point.infeed_outfeed == feeds] or list(report.points)
    if not points:
        return []
    total, cover = points[0], report.coverage
    priced = percent(cover.priced_s / cover.busy_s) if cover.priced_s is not None and cover.busy_s else ""
    several = len(report.input.devices) > 1 and total.device_seconds is not None
    summed = f" on {len(report.input.devices)} devices ({show(total.device_seconds, 's')} summed over them)" if several else ""
    per_op = f"{show(total.time_s, 's')}{summed}; per-op roofline: {percent(total.op_efficiency)} of the measured time"
    memory = [("memory", _memory(report.memory)), ("at peak", _at_peak(report.memory))]
    too_much = report.memory is not None and not report.memory.fits
    return [
        *(memory if too_much else []),
        ("time", per_op if total.time_s else ""),
        ("busy", _busy(total)),
        ("lost", _lost(total)),
        ("minimum", f"{show(total.floor_s, 's')} if all ops overlapped, {bound_words(total.bound)}"),
        ("work", _amounts(total, report.ops)),
        ("intensity", f"{plain(total.intensity)} FLOP/B" if total.intensity else ""),
        *([] if too_much else memory),
        ("hardware", _hardware(report)),
        ("steps", _steps(points)),
        ("before steps", f"{show(cover.before_steps_s, 's')} before the first step's device work" if cover.before_steps_s else ""),
        ("op times", "device-seconds: sums over all devices, in the table and in findings, unless per device" if several else ""),
        ("known cost", f"{priced} of busy time" if priced else ""),
    ]


def _amounts(point: Point, ops: Sequence[OpInfo] = ()) -> str:
    """FLOP and bytes; of what is not wholly known the known part, and of how many ``ops`` the rest is missing."""
    flops = show(point.flops, "FLOP")
    if point.flops is None and ops:
        flops = f"{show(known_flops(point), 'FLOP')}{_missing(sum(op.flops is None for op in ops))}"
    said = [flops]
    for level, amount in point.bytes.items():
        if amount is None and ops:
            known = show(point.known.get(level, 0), "B")
            said.append(f"{known} {level}{_missing(sum(level in op.bytes and op.bytes[level] is None for op in ops))}")
        else:
            said.append(f"{show(amount, 'B')} {level}")
    return ", ".join(said)


def _missing(ops: int) -> str:
    return f" and {'one' if ops == 1 else f'{ops:,}'} unknown" if ops else ""


def _memory(memory: PeakMemory | None) -> str:
    """The peak memory, the capacity, and what kinds of arrays it is for."""
    if memory is None:
        return ""
    room = ""
    if memory.capacity_bytes:
        room = f" of {show(memory.capacity_bytes, 'B')} ({percent(memory.peak_bytes / memory.capacity_bytes)})"
    donated = f" ({show(memory.donated, 'B')} in donated arguments)" if memory.donated else ""
    parts = [
        f"{name} {show(size, 'B')}{more}"
        for name, size, more in (
            ("arguments", memory.arguments, ""),
            ("outputs", memory.outputs, donated),
            ("constants", memory.constants, ""),
            ("temporaries", memory.temporaries, ""),
        )
        if size * 1000 > memory.peak_bytes
    ]
    too_much = "" if memory.fits else "does not fit: "
    return f"{too_much}peak {show(memory.peak_bytes, 'B')}{room}: {', '.join(parts)}; by {memory.method}"


def _at_peak(memory: PeakMemory | None) -> str:
    """The scopes whose temporary arrays take most at the peak, and the largest of them."""
    rows = [row for row in memory.at_peak if row.kind == "temporary"] if memory else []
    if not memory or not rows or memory.temporaries * 1000 < memory.peak_bytes:
        return ""
    said = [f"{row.scope or 'no scope'} {show(row.bytes, 'B')}" for row in rows[:AT_PEAK]]
    said += [f"{len(rows) - AT_PEAK} more scopes"] if len(rows) > AT_PEAK else []
    largest = next((one for one in memory.largest if one.kind == "temporary"), None)
    return ", ".join(said) + (f"; largest {largest.name} {largest.shape}, {show(largest.bytes, 'B')}" if largest else "")


def _busy(total: Point) -> str:
    if total.busy_s is None or not total.time_s or total.busy_s >= total.time_s:
        return ""
    return f"{show(total.busy_s, 's')} ({percent(total.busy_s / total.time_s)}); idle {show(total.time_s - total.busy_s, 's')}"


def _lost(total: Point) -> str:
    """The losses, largest first, and the ops' minimum times; together they are the time."""
    if not total.time_s or total.at_roof_s is None:
        return ""
    time_s = total.time_s
    causes = sorted((item for item in total.lost.items() if item[1] > 0), key=lambda item: -item[1])
    said = ", ".join(
        f"{cause.replace('unpriced', 'unknown cost')} {show(seconds, 's')} ({percent(seconds / time_s)})" for cause, seconds in causes
    )
    at_roof = f"{show(total.at_roof_s, 's')} ({percent(total.at_roof_s / time_s)}) is the minimum the model allows"
    return f"{said}; {at_roof}" if said else f"nothing; {at_roof}"


def _hardware(report: Report) -> str:
    """What hardware counters measured, and for how much of the program."""
    seen = next((point for point in report.points if point.scope == "hardware"), None)
    if seen is None:
        return ""
    cover = report.coverage
    if cover.counted_s is None:
        busy = ", ".join(f"{unit} {percent(share)}" for unit, share in seen.utilization.items())
        return f"busy, from whole-chip counters: {busy}"
    share = f"; covers {percent(cover.counted_s / cover.busy_s)} of busy time" if cover.busy_s else ""
    return f"{_amounts(seen)} counted, {bound_words(seen.bound)}, roofline efficiency {percent(seen.efficiency)}{share}"


def _steps(points: Sequence[Point]) -> str:
    """How many steps, how long they lasted from one to the next, and how much of that the devices worked."""
    steps = [point.time_s for point in points if point.scope == "step" and point.time_s is not None]
    average = next((point for point in points if point.scope == "average"), None)
    if average is None or not steps:
        return ""
    span = f" ({show(min(steps), 's')} to {show(max(steps), 's')})" if len(steps) > 1 else ""
    parts = [f"{len(steps):,} complete, mean {show(average.time_s, 's')}{span}"]
    if average.slowest_s is not None and average.slowest_s != average.time_s:
        parts.append(f"slowest device {show(average.slowest_s, 's')}")
    if average.span_s is not None and average.busy_s is not None:
        parts.append(f"device span {show(average.span_s, 's')}, busy {show(average.busy_s, 's')}")
    if average.efficiency:
        parts.append(f"roofline efficiency {percent(average.efficiency)}")
    return ", ".join(parts)


def _groups(by: str, groups: Sequence[Group], paper: Paper, top: int, whole_s: float) -> str:
    timed = any(one.time_s for one in groups)
    rows: list[list[str | Cell]] = []
    for one in groups[:top]:
        row: list[str | Cell] = [
            one.key or "(none)",
            f"{len(one.ops):,}",
            plain(one.count),
            show(one.flops, "FLOP"),
            show(one.bytes.get("hbm"), "B"),
        ]
        row += [one.bound or "–", show(one.floor_s, "s")]
        if timed:
            row += [show(one.time_s, "s"), _share(one.self_time_s, whole_s), efficiency_cell(one.efficiency)]
        else:
            row.append(_share(one.floor_s, whole_s))
        rows.append(row)
    headers = [by, "ops", "count", "work", "hbm", "bound", "minimum", *(["time", "share", "efficiency"] if timed else ["share"])]
    return table(headers, rows, paper) + more(len(groups) - top)


def _share(part: float | None, whole: float) -> str:
    return percent(part / whole) if part is not None and whole else "–"


def findings_text(findings: tuple[Finding, ...], paper: Paper = PLAIN) -> str:
    """The first few findings, each with what to do about it."""
    if not findings:
        return ""
    blocks = [paper.paint("What to do next", "bold")]
    for number, finding in enumerate(findings[:FINDINGS], start=1):
        blocks.append(paper.paragraph(f"{_saving(finding)}{finding.message}", f"{number:>2}. ", "    "))
        blocks += [paper.paragraph(lever, "    - ", "      ") for lever in finding.levers]
    if len(findings) > FINDINGS:
        blocks.append(f"    … and {len(findings) - FINDINGS} more in --json")
    return "\n".join(blocks)


def _saving(finding: Finding) -> str:
    """What a finding could save: on the clock of each device, and summed over devices where that is more."""
    if not finding.saving_s:
        return ""
    each = finding.saving_per_device_s
    if each is None or each == finding.saving_s:
        return f"saves up to {show(finding.saving_s, 's')}: "
    return f"saves up to {show(each, 's')} per device ({show(finding.saving_s, 's')} summed over devices): "


def notes_text(notes: list[str], paper: Paper = PLAIN) -> str:
    """Notes and assumptions, each once."""
    return "\n".join(paper.paint(paper.paragraph(note, "note: ", "      "), "dim") for note in dict.fromkeys(notes))
