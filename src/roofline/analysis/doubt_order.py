"""Missing rates and unknown costs: which of them could change the bound of a program, or what to do first."""

from collections.abc import Iterable, Sequence

from ..machine import Machine
from ..placement import may_bind
from ..report import Finding, Point
from .advice import UNKNOWN, UNRATED
from .placed_ops import PlacedOps

DECISIVE = 0.5  # of the time: the share of such ops that decides (a choice)


def decisive_doubts(placed: PlacedOps, points: Sequence[Point], machine: Machine) -> set[str]:
    """The kinds of doubts about most of the time: unknown costs, and missing rates of what may bind.

    Where no time was measured, unknown costs decide by the minimum of their ops, and the missing rate of what may bind always decides.
    """
    spans = {point.scope: point for point in points if point.time_s and point.infeed_outfeed}
    point = spans.get("average") or spans.get("total")
    undecided = [id for id, missing in placed.unrated.items() if any(may_bind(resource, machine) for resource in missing)]
    unpriced = [id for id, is_priced in enumerate(placed.priced) if not is_priced]
    if point is None or not point.time_s:
        unknown_s = sum(placed.floor_s[id] for id in unpriced)
        doubts = {UNRATED: bool(undecided), UNKNOWN: bool(unpriced) and unknown_s >= DECISIVE * sum(placed.floor_s)}
    else:
        is_most = point.lost.get("unpriced", 0.0) > DECISIVE * point.time_s
        times, whole_s = placed.time_s, sum(seconds or 0.0 for seconds in placed.time_s)
        undecided_s = sum(times[id] or 0.0 for id in undecided)
        doubts = {UNRATED: not machine.ceilings or undecided_s > DECISIVE * whole_s, UNKNOWN: is_most and bool(unpriced)}
    return {kind for kind, is_decisive in doubts.items() if is_decisive}


def decisive_first(findings: Iterable[Finding], decisive: set[str]) -> tuple[Finding, ...]:
    """The findings, with the doubts that could change the answer first."""
    return tuple(sorted(findings, key=lambda finding: finding.kind not in decisive))
