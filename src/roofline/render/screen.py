"""A report on one screen: the answer, where the time goes, what to do next, and the ops that lose the most.

It fits a terminal of 100 columns and 28 lines; ``details`` adds the whole sentences of the findings, and all facts and notes.
"""

import re
from collections.abc import Sequence

from ..causes import COMMUNICATION
from ..grouping import GroupTable
from ..grouping.folding import TableRows, by_loss, table_rows
from ..machine import LATENCY
from ..quantities import known_flops
from ..report import Finding, Report
from ..resource import HBM, named
from ..units import number_of, percent, rounded, show
from ..workload import averaged
from .op_table import ops_text
from .predicted_time import predicted_text
from .program_facts import program_facts
from .tables import PLAIN, Paper, facts, shorten, shorten_label, table
from .text import findings_text, groups_text, notes_text, op_notes, saving_s
from .time_bar import WIDEST, bar_text, in_unit, time_parts

LINES = 28
ROWS, FEWEST_ROWS = 10, 3
ROOM = ((4, 2), (3, 2), (3, 1), (2, 1), (1, 1), (1, 0))  # how many findings and notes are shown: the first that leave room for the ops
FINE = 0.01  # of the time of all ops: kinds with less are not listed as fine
FAR = 0.6  # of the roofline: kinds below that have shapes that do not suit the chip
NOTHING = "–"
LONGEST_NAME = 24  # characters of an input that a command is shown with
COLUMNS = ("", "saves", "share", "{per}then", "finding", "where", "ops")
WHERE = 34  # most characters of a place
_ENDS = re.compile(r"[.;] ")  # of sentences, and of their parts


def report_text(
    report: Report,
    paper: Paper = PLAIN,
    top: int | None = None,
    rows: TableRows | None = None,
    grouped: GroupTable | None = None,
    *,
    columns: Sequence[str] = (),
    chart: str = "",
    extra: Sequence[str] = (),
    details: bool = False,
) -> str:
    """A report as text: its sentences, the bar of its time, the findings, the table of ops, and a line about the program.

    The table has these ``rows``, or those ``grouped`` by a key, ``top`` of them or as many as fit; ``columns`` are those of the table of
    ops; ``chart`` comes before the findings, ``extra`` tables after that of the ops.
    """
    whole, paper = paper, paper.no_wider(WIDEST)
    rows = rows or by_loss(table_rows(report))
    notes = [*dict.fromkeys([*op_notes(rows.rows), *report.input.notes, *report.machine.notes])]
    sentences = "\n".join(map(paper.paragraph, (report.summary or report.heading).splitlines()))
    parts = [
        paper.paint(sentences, "bold"),
        "\n".join(filter(None, [bar_text(time_parts(report.main_point), paper), predicted_text(report, paper)])),
        chart,
    ]
    fine = paper.paragraph(fine_line(report)) if fine_line(report) else ""
    if details:
        about = [facts(program_facts(report, grouped.devices if grouped else rows.devices), paper), notes_text(notes, paper)]
        parts.append(findings_text(told_findings(report), paper))
    else:
        for most, noted in ROOM:
            told, about = _findings(report, paper, most), [_program(report, notes, noted, paper)]
            if _lines_left([*parts, told, *about], fine) >= FEWEST_ROWS:
                break
        parts.append(told)
    if top is None:
        top = ROWS if details or chart or extra else min(max(_lines_left([*parts, *about], fine), FEWEST_ROWS), ROWS)
    wide = whole if columns or grouped else paper
    ops = groups_text(grouped, wide, top) if grouped is not None else ops_text(report, rows, wide, top, columns)
    return "\n\n".join(filter(None, [*parts, "\n".join(filter(None, [ops, fine])), *extra, *about]))


def _lines_left(parts: Sequence[str], below: str) -> int:
    """How many rows of a table fit on the screen beside other parts, with its header, a line about more rows, and what is ``below`` it."""
    used = sum(part.count("\n") + 2 for part in parts if part) + (below.count("\n") + 1 if below else 0)
    return LINES - used - 2


def told_findings(report: Report) -> list[Finding]:
    """The findings without those that only say that their ops are as fast as they get, which `fine_line` sums up."""
    has_line = bool(fine_line(report))
    return [finding for finding in report.findings if not (has_line and is_fine(finding))]


def _findings(report: Report, paper: Paper, most: int) -> str:
    """The first findings as rows, each with its first lever, or with what it says where it saves nothing; and where to read more."""
    told = told_findings(report)
    if not told:
        return ""
    cells = finding_cells(report, told[:most])
    heading, *rows = table(cells[0], cells[1:], paper, left=0, elastic=len(COLUMNS) - 2).splitlines()
    lines = [heading]
    for row, finding in zip(rows, told, strict=False):
        lines.append(row)
        lines += _under(finding, paper)
    return "\n".join([*lines, f"   {paper.paint(_read_more(report, told, most, paper.width - 3), 'dim')}"])


def _under(finding: Finding, paper: Paper) -> list[str]:
    """What to do about a finding, or what it says where it saves nothing, in two lines at most."""
    return _two_lines(text, paper, "   ", "   ").splitlines() if (text := advice(finding)) else []


def finding_cells(report: Report, findings: Sequence[Finding]) -> list[list[str]]:
    """The table of findings: its header, and a row for each finding, with texts padded to be aligned to the left."""
    per = "step " if any(finding.saving_per_step_s for finding in findings) else ""
    rows = [[header.format(per=per) for header in COLUMNS]]
    for number, finding in enumerate(findings, start=1):
        ops = f"{len(finding.ops):,}" if finding.ops else ""
        rows.append([str(number), *_saving_cells(report, finding), finding.kind, shorten_label(finding.where, WHERE), ops])
    for column in range(3, 6):
        widest = max(len(row[column]) for row in rows)
        for row in rows:
            row[column] = row[column].ljust(widest)
    return rows


def _saving_cells(report: Report, finding: Finding) -> tuple[str, str, str]:
    """What a finding saves, which share of the time that is, and the time then, with its interval where it was predicted."""
    saved_s = saving_s(finding)
    if (predicted := finding.predicted) is not None:
        after_s = predicted.time_s
        interval = f" ({in_unit(predicted.low_s, after_s, 3)}-{in_unit(predicted.high_s, after_s, 3)})"
        return _shown_saving(saved_s, predicted.before_s, interval)
    return _shown_saving(saved_s, _time_before(report, finding), "") if saved_s else (NOTHING, "", NOTHING)


def _shown_saving(saved_s: float, before_s: float | None, interval: str) -> tuple[str, str, str]:
    saves = show(rounded(saved_s, 2), "s")
    if not before_s:
        return saves, "", NOTHING
    return saves, percent(saved_s / before_s), f"{show(rounded(before_s - saved_s, 3), 's')}{interval}"


def _time_before(report: Report, finding: Finding) -> float | None:
    """The time from which a finding saves: that of a step where its saving is of one, else of the run; its minimum where it was not run."""
    point = report.main_point if finding.saving_per_step_s else report.total
    return (point.time_s or point.floors_s) if point else None


def advice(finding: Finding) -> str:
    """The first thing to do about a finding; what it says, where it saves nothing."""
    return finding.levers[0] if finding.levers and (finding.saving_s or finding.predicted) else finding.message


def _read_more(report: Report, told: Sequence[Finding], most: int, width: int) -> str:
    """Where to read more about the findings: commands, as many as fit."""
    more = [f"{len(told) - most:,} more with --details"] if len(told) > most else []
    first = next((finding for finding in told if finding.saving_s), told[0])
    commands = [f"roofline explain {first.kind}"]
    if first.predicted is not None:
        name = next((file for file in report.input.files if len(file) <= LONGEST_NAME), "RUN")
        commands.append(" ".join(filter(None, ["roofline whatif", name, first.predicted.after, first.predicted.change])))
    lines = ["; ".join([*more, f"more: {' · '.join(commands[:count])}"]) for count in (2, 1)]
    return lines[0] if len(lines[0]) <= width else lines[1]


def is_fine(finding: Finding) -> bool:
    """Whether a finding says that its ops cannot run faster on this chip."""
    return finding.saving_s is None and not finding.levers and bool(finding.title) and bool(finding.ops)


def fine_line(report: Report) -> str:
    """Kinds of ops that cannot run faster on this chip, in one line, and what helps: fewer kernels where launches take the time, other
    shapes where theirs keep them far from the roofline, other work beside exchanges.
    """
    fine = [finding for finding in report.findings if is_fine(finding)]
    if not fine:
        return ""
    ops = {op.id: op for op in report.ops}
    whole = sum(op.weight_s for op in report.ops)
    near, far, small, exchanged = list[str](), list[str](), list[str](), list[str]()
    for finding in fine:
        about = [ops[id] for id in finding.ops if id in ops]
        spent = sum(op.weight_s for op in about)
        if spent > FINE * whole:
            took = sum(op.time_s or 0.0 for op in about) or spent  # longer than what was spent where ops overlap
            reached = sum(op.floor_s or 0.0 for op in about) / took
            kinds = {LATENCY: small, COMMUNICATION: exchanged}.get(finding.kind, far if reached < FAR else near)
            kinds.append(f"{finding.title.removeprefix('the ')} ({percent(spent / whole)} of time, at {percent(reached)} of roof)")
    lines = [
        ("Only less work helps", near),
        ("Only less work or other shapes help", far),
        ("Only fewer launches help", small),
        ("Only fewer bytes or other work beside it help", exchanged),
    ]
    return " ".join(f"{what} {' and '.join(kinds)}." for what, kinds in lines if kinds)


def _program(report: Report, notes: Sequence[str], noted: int, paper: Paper) -> str:
    """What was analysed, on which machine, and how much work a step has; the first notes, and where the rest is."""
    lines = [paper.paint(_two_lines(note, paper, "note: ", "      "), "dim") for note in notes[:noted]]
    others = f"; {number_of(len(notes) - noted, 'more note')}" if len(notes) > noted else ""
    return "\n".join([paper.paragraph(f"{_program_line(report)} · more with --details{others}"), *lines])


def _program_line(report: Report) -> str:
    """The number of ops, the chip with the roofs that they use, the steps, and the work."""
    used = {roof for op in report.ops for roof in op.roofs}
    roofs = [ceiling for ceiling in report.machine.ceilings if ceiling.resource in used]
    main = [*[roof for roof in roofs if named(roof.resource).is_compute][:1], *[roof for roof in roofs if roof.resource == HBM.name]]
    rates = ", ".join(f"{show(rounded(roof.rate, 3), roof.per)} {roof.resource.removeprefix('matrix/')}" for roof in main)
    parts = [f"{number_of(len(report.ops), 'op')} on {report.machine.name}{f' ({rates})' if rates else ''}"]
    if (steps := averaged(report.steps)) and len(report.steps) > 1:
        parts.append(f"{len(report.steps):,} steps, {len(steps):,} averaged")
    point = report.main_point
    if point is not None:
        moved = point.bytes.get("hbm", 0)
        least = "at least " if point.flops is None or moved is None else ""
        moved = point.known.get("hbm", 0) if moved is None else moved
        work = f"{least}{show(rounded(known_flops(point), 4), 'FLOP')}, {show(rounded(moved, 3), 'B')} hbm"
        parts.append(f"{work}{' per step' if point.scope == 'average' else ''}")
    if (peak := report.memory) is not None:
        room = f" of {show(rounded(peak.capacity_bytes, 3), 'B')}" if peak.capacity_bytes else ""
        parts.append(f"peak memory {show(rounded(peak.peak_bytes, 4), 'B')}{room}")
    return ", ".join(parts)


def _two_lines(text: str, paper: Paper, first: str, rest: str) -> str:
    """A paragraph of at most two lines: a longer one ends after a sentence or a part of one, or is cut off where none ends."""
    line, *more = paper.paragraph(text, first, rest).splitlines()
    second = rest + " ".join(part.strip() for part in more)
    if len(second) > paper.width and (ends := [end.start() for end in _ENDS.finditer(second, 0, paper.width)]):
        second = f"{second[: ends[-1]]}."
    return "\n".join([line, *([shorten_end(second, paper.width)] if more else [])])


def shorten_end(text: str, width: int) -> str:
    """Text that fits into a line.

    >>> shorten_end("use one layout throughout", 12)
    'use one lay…'
    """
    line = shorten(text, 10**6)
    return line if len(line) <= width else f"{line[: width - 1].rstrip()}…"
