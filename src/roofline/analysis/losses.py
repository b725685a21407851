"""Losses: the time of a program beyond the minimum time of its ops, by cause: what a point or a selection of ops loses, once computed.

Minimum times and losses (`causes`) add up to the wall time, summed over devices.
"""

from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct

from ..causes import CAUSES, IDLE, UNNEEDED, UNPRICED
from ..quantities import ROUNDING


class OpLoss(NamedTuple):
    """The self time of an op, the minimum time of its work, and the cause to which the rest is lost.

    ``needed_s`` is the minimum time of its needed work, where not all of it was needed.
    """

    seconds: float
    floor_s: float
    cause: str
    needed_s: float | None = None


class Losses(Struct, frozen=True):
    """A wall time split: at the roofline, and lost by cause, every one of `CAUSES` present."""

    at_roof_s: float
    lost: dict[str, float]


def split_losses(
    losses: Iterable[tuple[float, float, str, float | None]], wall_s: float, busy_s: float | None = None, *, is_all: bool = False
) -> Losses:
    """A wall time split into minimum time and losses; ``losses`` are those of the ops, as `OpLoss`.

    Self times of one stream sum to its busy time. Where streams overlap they sum to more than the busy time, and each op's is taken in
    proportion, so that nothing is lost twice. Where they sum to less, the difference is unpriced, because it is not known what ran; unless
    these are all the ops (``is_all``) and only their parts in a step are inexact. Without a busy time (a source that has no clock) it is
    their sum. Neither is ever more than the wall time.
    """
    ops = list(losses)
    spent = sum([seconds for seconds, _, _, _ in ops])
    busy = min(spent if busy_s is None else busy_s, wall_s)
    share = busy / spent if spent else 1.0
    if share > 1 and not is_all:
        share = 1.0
    at_roof, lost = 0.0, dict.fromkeys(CAUSES, 0.0)
    for seconds, floor_s, cause, needed_s in ops:
        mine = seconds * share
        ran = floor_s if floor_s < mine else mine
        needed = ran if needed_s is None else min(needed_s, ran)
        at_roof += needed
        lost[UNNEEDED] += ran - needed
        lost[cause] += mine - ran
    if busy - spent * share > ROUNDING * busy:
        lost[UNPRICED] += busy - spent * share
    lost[IDLE] += wall_s - busy
    return Losses(at_roof, lost)
