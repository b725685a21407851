"""What a predicted time rests on, how long each engine is busy, and what the core waits for, in two lines."""

from ..op_parts import exposed_s
from ..report import Report
from ..reported_op import OpInfo
from ..units import percent, rounded, show
from ..workload import source_line
from .tables import PLAIN, Paper

MOST = 3  # ops that are named
LEAST = 0.001  # of the time: shorter waits are not named


def predicted_text(report: Report, paper: Paper = PLAIN) -> str:
    """The lines about a predicted time; empty for one that was measured."""
    predicted = report.predicted
    if predicted is None or report.changes:
        return ""
    low, high = (show(rounded(seconds, 3), "s") for seconds in (predicted.low_s, predicted.high_s))
    engines = ", ".join(f"{engine.name} {percent(engine.share)}" for engine in predicted.engines)
    lines = [f"Predicted, not measured: {low} to {high}, by {predicted.evidence}. Busy: {engines}."]
    waits = [(seconds, op) for op in report.ops if (seconds := exposed_s(op)) > LEAST * predicted.time_s]
    if waits:
        total = sum(seconds for seconds, _ in waits)
        longest = sorted(waits, key=lambda wait: -wait[0])[:MOST]
        named_ops = ", ".join(f"{show(rounded(seconds, 3), 's')} {_words(op)}" for seconds, op in longest)
        lines.append(f"Exposed {show(rounded(total, 3), 's')} ({percent(total / predicted.time_s)}): {named_ops}.")
    return "\n".join(map(paper.paragraph, lines))


def _words(op: OpInfo) -> str:
    where = source_line(op.location)
    return f"{op.category} {op.name}{f' ({where})' if where else ''}"
