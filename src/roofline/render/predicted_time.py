"""What a predicted time rests on, how long each engine is busy, and what the core waits for, in two lines."""

from collections.abc import Sequence

from ..report import Report
from ..reported_op import OpInfo
from ..schedule import EngineUse
from ..units import percent, rounded, show
from ..workload import source_line
from .tables import PLAIN, Paper

MOST = 3  # ops that are named
LINKS = "links"
LEAST = 0.001  # of the time: shorter waits are not named


def predicted_text(report: Report, paper: Paper = PLAIN) -> str:
    """The lines about a predicted time; empty for one that was measured."""
    predicted = report.predicted
    if predicted is None or report.changes:
        return ""
    low, high = (show(rounded(seconds, 3), "s") for seconds in (predicted.low_s, predicted.high_s))
    lines = [f"Predicted, not measured: {low} to {high}, by {predicted.evidence}. Busy: {_busy(predicted.engines)}."]
    waits = [(seconds, op) for op in report.ops if (seconds := op.exposed_s) > LEAST * predicted.time_s]
    if waits:
        total = sum(op.exposed_s for op in report.ops)
        longest = sorted(waits, key=lambda wait: -wait[0])[:MOST]
        named_ops = ", ".join(f"{show(rounded(seconds, 3), 's')} {_words(op)}" for seconds, op in longest)
        lines.append(f"Exposed {show(rounded(total, 3), 's')} ({percent(total / predicted.time_s)}): {named_ops}.")
    return "\n".join(map(paper.paragraph, lines))


def _busy(engines: Sequence[EngineUse]) -> str:
    """The busy share of each engine, of the links of an axis the busier way; of links that are all equally busy, once."""
    shares: dict[str, float] = {}
    for engine in engines:
        name = engine.name.rpartition(" ")[0] if engine.name.startswith(LINKS) else engine.name
        shares[name] = max(shares.get(name, 0.0), engine.share)
    words = {name: percent(share) for name, share in shares.items()}
    axes = [name for name in words if name.startswith(LINKS)]
    if len({words[name] for name in axes}) == 1:
        words = {(LINKS if name == axes[0] else name): share for name, share in words.items() if name not in axes[1:]}
    return ", ".join(f"{name} {share}" for name, share in words.items())


def _words(op: OpInfo) -> str:
    where = source_line(op.location)
    return f"{op.category} {op.name}{f' ({where})' if where else ''}"
