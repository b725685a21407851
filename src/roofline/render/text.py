"""Parts of a report as text, for a terminal or a pipe: one op in full, groups of ops, findings in sentences, notes."""

import re
from collections.abc import Sequence

from ..grouping import GroupTable
from ..report import Expected, Finding, OpInfo, Report
from ..resource import bound_words
from ..units import percent, plain, rounded, show
from ..workload import is_caveat, is_upper_bound
from .op_table import efficiency_cell, efficiency_text, more
from .program_facts import machine_line
from .tables import PLAIN, Cell, Paper, facts, table

_FOLDED = re.compile(r" and [\d,]+ more$")  # in the name of ops that share a row
OP_NOTES = 6  # notes on ops shown in a terminal


def op_notes(ops: Sequence[OpInfo]) -> list[str]:
    """The first few caveats of some ops, each once with the ops it is about.

    Notes on how an op was counted are not shown here, only in the report and in the page's details.
    """
    about: dict[str, list[str]] = {}
    for op in ops:
        for note in op.notes:
            if is_caveat(note):
                about.setdefault(note, []).append(_FOLDED.sub("", op.name))
    lines = []
    for note, names in list(about.items())[:OP_NOTES]:
        named = list(dict.fromkeys(names))
        lines.append(f"{', '.join(named[:2])}{f' and {len(named) - 2:,} more' if len(named) > 2 else ''}: {note}")
    return [*lines, f"{len(about) - OP_NOTES:,} more on ops in --json"] if len(about) > OP_NOTES else lines


def op_text(report: Report, paper: Paper = PLAIN, room: str = "") -> str:
    """One op in full: its ledger, its time on each unit, whether it fits in memory, and what to do next."""
    op = report.ops[0]
    parts = [f"{paper.paint(op.name, 'bold')} on {machine_line(report, [op])}", ledger_text(op, paper), placement_text(report, op, paper)]
    parts += [room, findings_text(report.findings, paper)]
    parts.append(notes_text([*op.notes, *report.machine.notes], paper))
    return "\n\n".join(part for part in parts if part)


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
    share, efficiency = _peak_share(report, op), efficiency_text(op.efficiency, is_upper_bound(op.notes))
    return facts(
        [
            ("bound", bound_words(op.bound)),
            ("intensity", f"{plain(op.intensity)} FLOP/B" if op.intensity else ""),
            ("ridge", f"{plain(op.ridge)} FLOP/B for {op.unit}/{op.dtype} over hbm" if op.ridge else ""),
            ("minimum time", f"{show(op.floor_s, 's')} (full overlap)"),
            ("serial time", f"{show(op.serial_s, 's')} (no overlap)"),
            ("corrected time", f"{show(op.expected_s, 's')} (the minimum with the corrections)" if op.expected_s != op.floor_s else ""),
            ("expected time", expected_text(op.expected)),
            ("parts alone", terms_text(op.expected)),
            ("time per unit", ", ".join(f"{unit} {show(seconds, 's')}" for unit, seconds in op.times.items())),
            ("attainable", f"{show(op.attainable, 'FLOP/s')}{share}" if op.attainable else ""),
            ("measured", f"{show(op.time_s, 's')}, roofline efficiency {efficiency}" if op.time_s is not None else ""),
            ("no known rate", f"{', '.join(op.unrated)}: not included, the true minimum may be longer" if op.unrated else ""),
        ],
        paper,
    )


def expected_text(expected: Expected | None) -> str:
    """A prediction with its bounds."""
    if expected is None:
        return ""
    low, high = (show(rounded(seconds, 3), "s") for seconds in (expected.low_s, expected.high_s))
    return f"{show(rounded(expected.time_s, 3), 's')} (90% interval: {low} to {high})"


def terms_text(expected: Expected | None) -> str:
    """The terms of a prediction, longest first, and its evidence."""
    if expected is None:
        return ""
    longest = sorted(expected.terms.items(), key=lambda term: -term[1])
    terms = ", ".join(f"{name} {show(rounded(seconds, 3), 's')}" for name, seconds in longest)
    return f"{terms}; {expected.evidence}"


def _peak_share(report: Report, op: OpInfo) -> str:
    """The part of a peak that its own work attains; other units may do work besides."""
    name = f"{op.unit}/{op.dtype}"
    peak = next((roof.rate for roof in report.machine.ceilings if roof.resource == name), None)
    work = op.work.get(name)
    if not (peak and op.attainable and op.flops and work):
        return ""
    others = " on all units" if work < op.flops else ""
    return f"{others}, {percent(op.attainable * work / op.flops / peak)} of the {name} peak"


def groups_text(grouped: GroupTable, paper: Paper, top: int) -> str:
    return table(*group_cells(grouped, top), paper) + more(len(grouped.groups) - top) if top else ""


def group_cells(grouped: GroupTable, top: int) -> tuple[list[str], list[list[str | Cell]]]:
    """The headers and the rows of a table of groups, which name what shares are of where it is not the table's own time."""
    timed = any(one.time_s for one in grouped.groups)
    rows: list[list[str | Cell]] = []
    for one, share in zip(grouped.groups[:top], grouped.shares, strict=False):
        row: list[str | Cell] = [
            one.key or "(none)",
            f"{len(one.ops):,}",
            plain(one.count),
            show(one.flops, "FLOP"),
            show(one.bytes.get("hbm"), "B"),
        ]
        row += [one.bound or "–", show(one.floor_s, "s")]
        if timed:
            row += [show(one.time_s, "s"), percent(share), efficiency_cell(one.efficiency, one.upper_bound)]
        else:
            row.append(percent(share))
        rows.append(row)
    step, whole = f"/{grouped.per}" if grouped.per else "", f" of {grouped.whole}" if grouped.whole else ""
    headers = [grouped.by, "ops", f"count{step}", f"work{step}", f"hbm{step}", "bound", f"minimum{step}"]
    headers += [f"time{step}", f"share{whole}", "efficiency"] if timed else [f"share{whole}"]
    return headers, rows


def findings_text(findings: Sequence[Finding], paper: Paper = PLAIN) -> str:
    """The findings in whole sentences, each with its saving and its levers."""
    blocks = [paper.paint("What to do next", "bold")] if findings else []
    for number, finding in enumerate(findings, start=1):
        blocks.append(paper.paragraph(": ".join(filter(None, [saving_text(finding), finding.message])), f"{number:>2}. ", "    "))
        blocks += [paper.paragraph(line, "    - ", "      ") for line in (predicted_text(finding), *finding.levers) if line]
    sequence = sequence_text(findings)
    return "\n".join([*blocks, *([paper.paragraph(sequence, "", "    ")] if sequence else [])])


def sequence_text(findings: Sequence[Finding]) -> str:
    """The times after one change after the other, in one line; empty for fewer than two."""
    made = sorted((finding for finding in findings if finding.then_s is not None), key=lambda finding: -(finding.then_s or 0.0))
    if len(made) < 2:
        return ""
    steps = [f"{number}. {finding.kind} to {show(rounded(finding.then_s, 3), 's')}" for number, finding in enumerate(made, start=1)]
    return f"One after the other: {', '.join(steps)}"


def saving_text(finding: Finding) -> str:
    """The saving of a finding, shown before its message: as predicted where it is; per step, else per device."""
    if not finding.saving_s:
        return ""
    is_per_device = finding.saving_per_device_s not in (None, finding.saving_s)
    where = " per step" if finding.saving_per_step_s else " per device" * is_per_device
    return f"saves about {show(rounded(saving_s(finding), 2), 's')}{where}"


def saving_s(finding: Finding) -> float:
    """The seconds that a finding saves, as predicted where its change is: of a step, else of the run on one device."""
    if finding.predicted is not None:
        return finding.predicted.before_s - finding.predicted.time_s
    return finding.saving_per_step_s or finding.saving_per_device_s or finding.saving_s or 0.0


def predicted_text(finding: Finding) -> str:
    """The predicted effect of the change that a finding recommends."""
    if (found := finding.predicted) is None:
        return ""
    before, after, low, high = (show(rounded(seconds, 3), "s") for seconds in (found.before_s, found.time_s, found.low_s, found.high_s))
    then = f"after {found.after}, " if found.after else ""
    return f"{then}{found.change} (roofline whatif): {before} to {after} predicted ({low} to {high})"


def notes_text(notes: list[str], paper: Paper = PLAIN) -> str:
    """Notes and assumptions, each once."""
    return "\n".join(paper.paint(paper.paragraph(note, "note: ", "      "), "dim") for note in dict.fromkeys(notes))
