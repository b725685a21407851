"""A predicted report as text: before and after, and the ops that change the most."""

from ..report import OpInfo, Report
from ..units import rounded, show
from .tables import PLAIN, Paper, table
from .text import notes_text


def what_if_text(report: Report, paper: Paper = PLAIN, top: int = 12) -> str:
    """The sentence, the ops that change the most with their times before and after, and how that is known."""
    changed = [op for op in report.ops if op.time_s is not None and op.before_s is not None and op.time_s != op.before_s]
    changed.sort(key=lambda op: -abs((op.time_s or 0.0) - (op.before_s or 0.0)))
    rows = [[op.label or op.name, _seconds(op.before_s), _seconds(op.time_s), _bounds(op), _term(op)] for op in changed[:top]]
    parts = [
        paper.paint(paper.paragraph(report.summary), "bold"),
        table(["op", "before", "predicted", "nine in ten", "mostly"], rows, paper) if rows else "No op changes.",
        f"… and {len(changed) - top:,} more ops that change" if len(changed) > top else "",
        notes_text([*report.input.notes, *report.machine.notes], paper),
    ]
    return "\n\n".join(part for part in parts if part)


def _seconds(seconds: float | None) -> str:
    return "–" if seconds is None else show(rounded(seconds, 3), "s")


def _bounds(op: OpInfo) -> str:
    if op.expected is None or not op.time_s:
        return ""
    return f"{_seconds(op.expected.low_s)} to {_seconds(op.expected.high_s)}"


def _term(op: OpInfo) -> str:
    """The longest term of a prediction."""
    if not op.time_s:
        return "gone"
    terms = op.expected.terms if op.expected else {}
    return max(terms, key=lambda name: terms[name], default="")
