"""A predicted report as text: before and after, and the ops that change the most."""

from math import inf

from ..report import OpInfo, Report
from ..selection import per_step
from ..units import rounded, show
from .tables import PLAIN, Paper, table
from .text import notes_text


def what_if_text(report: Report, paper: Paper = PLAIN, top: int = 12) -> str:
    """The summary, the ops that change the most with their times before and after, and the evidence."""
    changed = [op for op in report.ops if op.time_s is not None and op.before_s is not None and op.time_s != op.before_s]
    changed.sort(key=lambda op: -min(abs((op.time_s or 0.0) - (op.before_s or 0.0)), op.exposed_s if _is_span(op) else inf))
    averages = any(point.scope == "average" for point in report.points)
    shares = _shares(report) if averages else {}
    mean = 1 / max(len(report.steps) * len(report.input.devices), 1) if averages else 1.0  # of ops that a change adds
    rows = [
        [op.label or op.name, _seconds(op.before_s, share), _seconds(op.time_s, share), _bounds(op, share), _term(op)]
        for op in changed[:top]
        for share in [shares.get(op.id, mean)]
    ]
    named = "op, per step" if averages and len(report.steps) > 1 else "op"
    parts = [
        paper.paint(paper.paragraph(report.summary), "bold"),
        table([named, "before", "predicted", "90% interval", "mostly"], rows, paper) if rows else "No op changes.",
        f"… and {len(changed) - top:,} more" if len(changed) > top else "",
        notes_text([*report.input.notes, *report.machine.notes], paper),
    ]
    return "\n\n".join(part for part in parts if part)


def _shares(report: Report) -> dict[int, float]:
    """How much of each op is in an average step on one device, by the executions there: some ran before the first step."""
    counts = {op.id: op.count for op in report.ops}
    return {op.id: op.count / counts[op.id] for op in per_step(report) or () if counts[op.id]}


def _seconds(seconds: float | None, share: float) -> str:
    return "–" if seconds is None else show(rounded(seconds * share, 3), "s")


def _is_span(op: OpInfo) -> bool:
    """Whether the time of an op is from its start to its end beside others, which what it does may be a small part of."""
    return op.compiled is not None and op.compiled.beside


def _bounds(op: OpInfo, share: float) -> str:
    if op.expected is None or not op.time_s or _is_span(op):
        return ""
    return f"{_seconds(op.expected.low_s, share)} to {_seconds(op.expected.high_s, share)}"


def _term(op: OpInfo) -> str:
    """The longest term of a prediction."""
    if not op.time_s:
        return "removed"
    terms = op.expected.terms if op.expected else {}
    return max(terms, key=lambda name: terms[name], default="")
