"""The order in which findings are told, and in which their changes are made."""

from collections.abc import Iterable, Mapping, Sequence
from math import inf

from msgspec.structs import replace

from ...causes import UNPRICED
from ...machine import Machine
from ...placement import may_bind
from ...report import Finding, Point
from ..placed_ops import PlacedOps
from .kernels import BY_CAUSE
from .single_ops import ABOVE_ROOF, UNKNOWN, UNRATED

DECISIVE = 0.5  # of the time: the share of ops with a missing rate or an unknown cost that decides (a choice)


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
        is_most = point.lost.get(UNPRICED, 0.0) > DECISIVE * point.time_s
        times, whole_s = placed.time_s, sum(seconds or 0.0 for seconds in placed.time_s)
        undecided_s = sum(times[id] or 0.0 for id in undecided)
        doubts = {UNRATED: not machine.ceilings or undecided_s > DECISIVE * whole_s, UNKNOWN: is_most and bool(unpriced)}
    return {kind for kind, is_decisive in doubts.items() if is_decisive}


def in_order(
    findings: Iterable[Finding],
    times: Mapping[int, float | None] | Sequence[float | None],
    floor_s: Sequence[float] = (),
    decisive: Iterable[str] = (),
) -> tuple[Finding, ...]:
    """Findings by seconds: those saved, or the time of suspect ops; missing rates and unknown costs last, unless they are ``decisive``.

    ``times`` are those of the ops, by id, on the same clock as the savings. Suspect ops without any time come first. Findings without a
    saving come by the minimum times of their ops, ``floor_s``, where these are given; those about more than what binds come before.
    """
    first = set(decisive)

    def order(finding: Finding) -> tuple[bool, bool, float, bool, float, str, tuple[int, ...]]:
        is_later, is_last = finding.kind not in first, finding.kind in (UNRATED, UNKNOWN)
        if finding.kind == ABOVE_ROOF:
            known = [seconds for id in finding.ops if (seconds := times[id]) is not None]
            return is_later, is_last, -sum(known) if known else -inf, False, 0.0, finding.kind, finding.ops
        saved = finding.saving_s if finding.saving_per_step_s is None else finding.saving_per_step_s
        least_s = (sum([floor_s[id] for id in finding.ops]) if finding.kind in BY_CAUSE else inf) if floor_s else 0.0
        return is_later, is_last, -(saved or 0.0), True, -least_s, finding.kind, finding.ops

    return tuple(sorted(findings, key=order))


def in_sequence(findings: Sequence[Finding], changes: Sequence[str], before_s: float, times: Sequence[float | None]) -> tuple[Finding, ...]:
    """The findings with the time of a step (else of the run) after their change and all before it.

    First come those with a predicted change, in the order of ``changes``, then the others by their savings, which shrink with their ops.
    ``times`` are those of the ops before. The times never fall below zero, so the savings never sum to more than the time.
    """
    saving = [place for place, finding in enumerate(findings) if _saved_s(finding)]
    predicted = sorted((place for place in saving if findings[place].predicted), key=lambda place: _rank(findings[place], changes))
    done, after, then, time_s = set[str](), dict[int, float](), dict[int, float](), before_s
    for place in predicted:
        found = findings[place].predicted
        if found is not None and found.change not in done:
            is_missing = bool(found.after) and not any(change in found.after for change in done)
            time_s -= (before_s if is_missing else found.before_s) - found.time_s
            after |= {op.op: op.time_s for op in found.ops}
            done.add(found.change)
        then[place] = time_s = max(time_s, 0.0)
    for place in sorted(set(saving) - then.keys(), key=lambda place: -_saved_s(findings[place])):
        was = sum(times[op] or 0.0 for op in findings[place].ops)
        now = sum(after.get(op, times[op]) or 0.0 for op in findings[place].ops)
        then[place] = time_s = max(time_s - _saved_s(findings[place]) * (min(now / was, 1.0) if was else 1.0), 0.0)
    told = (replace(finding, then_s=then.get(place)) for place, finding in enumerate(findings))
    return _within(tuple(told), before_s)


def _within(findings: tuple[Finding, ...], time_s: float) -> tuple[Finding, ...]:
    """The findings, of whose savings those that come last are cut where all together are more than the time.

    Waits that overlap, of several threads or devices, are told in full for each.
    """
    left, cut = time_s, list[Finding]()
    for finding in findings:
        saved_s = _saved_s(finding)
        share = min(left / saved_s, 1.0) if saved_s else 1.0
        left -= share * saved_s
        cut.append(finding if share == 1 else _times(finding, share))
    return tuple(cut)


def _times(finding: Finding, share: float) -> Finding:
    """A finding with a share of its saving."""
    less = (finding.saving_s or 0.0) * (1 - share)
    return replace(
        finding,
        saving_s=(finding.saving_s or 0.0) * share,
        saving_per_step_s=None if finding.saving_per_step_s is None else finding.saving_per_step_s * share,
        saving_per_device_s=None if finding.saving_per_device_s is None else finding.saving_per_device_s * share,
        after_s=None if finding.after_s is None else finding.after_s + less,
    )


def _saved_s(finding: Finding) -> float:
    """The seconds that a finding saves of a step, else of the run on one device."""
    seconds = finding.saving_per_step_s if finding.saving_per_step_s is not None else finding.saving_per_device_s
    return seconds or 0.0


def _rank(finding: Finding, changes: Sequence[str]) -> int:
    return changes.index(finding.predicted.change) if finding.predicted and finding.predicted.change in changes else len(changes)
