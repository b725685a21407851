"""A predicted report as text: before and after, and the ops that change the most."""

from ..report import OpInfo, Report
from ..units import rounded, show
from .tables import PLAIN, Paper, table
from .text import notes_text


def what_if_text(report: Report, paper: Paper = PLAIN, top: int = 12) -> str:
    """The summary, the ops that change the most with their times before and after, and the evidence."""
    changed = [op for op in report.ops if op.time_s is not None and op.before_s is not None and op.time_s != op.before_s]
    changed.sort(key=lambda op: -abs((op.time_s or 0.0) - (op.before_s or 0.0)))
    steps = _executions(report)
    rows = [
        [op.label or op.name, _seconds(op.before_s, steps), _seconds(op.time_s, steps), _bounds(op, steps), _term(op)]
        for op in changed[:top]
    ]
    named = "op, per step" if steps > 1 else "op"
    parts = [
        paper.paint(paper.paragraph(report.summary), "bold"),
        table([named, "before", "predicted", "90% interval", "mostly"], rows, paper) if rows else "No op changes.",
        f"… and {len(changed) - top:,} more ops that change" if len(changed) > top else "",
        notes_text([*report.input.notes, *report.machine.notes], paper),
    ]
    return "\n\n".join(part for part in parts if part)


def _executions(report: Report) -> int:
    """By how much op times are divided: the executions of the average step on all devices, or 1."""
    averages = any(point.scope == "average" for point in report.points)
    return max(len(report.steps) * len(report.input.devices), 1) if averages else 1


def _seconds(seconds: float | None, steps: int) -> str:
    return "–" if seconds is None else show(rounded(seconds / steps, 3), "s")


def _bounds(op: OpInfo, steps: int) -> str:
    if op.expected is None or not op.time_s:
        return ""
    return f"{_seconds(op.expected.low_s, steps)} to {_seconds(op.expected.high_s, steps)}"


def _term(op: OpInfo) -> str:
    """The longest term of a prediction."""
    if not op.time_s:
        return "removed"
    terms = op.expected.terms if op.expected else {}
    return max(terms, key=lambda name: terms[name], default="")
