"""Measuring rates: each experiment is tried again and again, all in turn, until none gets better.

Whatever else runs on a computer only slows an experiment down, so the best try is the rate, and tries spread over the whole measurement
are the most likely to meet a quiet moment. A rate is stable when its best has not risen by 1% for several rounds; the time is bounded
all the same, and a result says whether it was stable when the time was up.
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from ..errors import MachineError
from ..machine import Spread

BETTER = 1.01  # what counts as a better rate
TOLD_OF = 1000
TRIES = 4  # of an experiment, before the next one has its turn
PATIENCE = 5  # rounds without a better one, after which a rate is stable


class Experiment(Struct, frozen=True, kw_only=True):
    """Something to try: ``run`` makes so many tries and returns the rate of each. ``how`` says what it does, in words.

    One that goes on ``throughout`` is tried as long as any other is, stable or not: a shared computer may be slow for seconds.
    """

    key: str
    how: str
    run: Callable[[int], Sequence[float]]
    throughout: bool = False


class Result(Struct, frozen=True, kw_only=True):
    """What an experiment gave: the best rate, how the tries spread, how many they were, and whether the best was stable."""

    key: str
    how: str
    rate: float
    spread: Spread
    tries: int
    stable: bool

    @property
    def words(self) -> str:
        """How the rate was measured."""
        return f"{self.how}, best of {self.tries:,}"


def measure_all(
    experiments: Sequence[Experiment],
    *,
    budget_s: float,
    clock: Callable[[], float],
    tell: Callable[[int, int], None] = lambda done, total: None,
    patience: int = PATIENCE,
    earlier: Mapping[str, Sequence[float]] | None = None,
    earlier_s: float = 0.0,
    keep: Callable[[str, Sequence[float], float], None] = lambda key, rates, spent_s: None,
) -> list[Result]:
    """Every experiment's result; one that gives no rate has none.

    Rounds go on until all are stable or the budget is spent. The first is a warm-up and counts only where no other followed; on a very
    busy computer the last experiments may not even have that. ``tell`` hears how much of the budget is spent. An interrupted measurement
    goes on from the rates that it had ``earlier``, after ``earlier_s`` of its budget; ``keep`` gets those of an experiment and the time.
    """
    if not experiments:
        raise MachineError("there is nothing to measure on this computer")
    began = clock() - earlier_s
    rates: dict[str, list[float]] = {each.key: list((earlier or {}).get(each.key, ())) for each in experiments}
    warm_up = {each.key: list(each.run(1)) for each in experiments if clock() - began < budget_s}
    waited = dict.fromkeys(rates, 0)  # rounds since the best rate rose
    spent = clock() - began
    while spent < budget_s and min(waited.values()) < patience:
        for each in experiments:
            if (waited[each.key] >= patience and not each.throughout) or spent >= budget_s:
                continue
            found = list(each.run(TRIES))
            best = max(rates[each.key], default=0.0)
            waited[each.key] = 0 if max(found, default=0.0) > best * BETTER else waited[each.key] + 1
            rates[each.key] += found
            spent = clock() - began
            keep(each.key, rates[each.key], spent)
            tell(min(TOLD_OF, round(TOLD_OF * spent / budget_s)), TOLD_OF)
    results = []
    for each in experiments:
        mine = rates[each.key] or warm_up.get(each.key)
        if mine:
            results.append(
                Result(
                    key=each.key,
                    how=each.how,
                    rate=max(mine),
                    spread=spread_of(mine),
                    tries=len(mine),
                    stable=waited[each.key] >= patience,
                )
            )
    return results


def spread_of(rates: Sequence[float]) -> Spread:
    """The 5th, 50th and 95th percentile, each the nearest try.

    >>> spread_of([5.0, 1.0, 3.0, 2.0, 4.0])
    Spread(p5=1.0, p50=3.0, p95=5.0)
    """
    ordered = sorted(rates)
    return Spread(*(ordered[round(share * (len(ordered) - 1))] for share in (0.05, 0.5, 0.95)))
