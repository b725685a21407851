"""Measuring rates: all experiments are repeated in turn until none improves.

Other work on a computer only slows an experiment down, so the best try is the rate, and tries spread over the whole measurement are most
likely to include a quiet moment. A rate is stable when its best has not risen by 1% for several rounds; the time is limited, and a result
records whether it was stable by then.
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from ...errors import MachineError
from ...machine import Spread

BETTER = 1.01  # factor from which a rate counts as better
PROGRESS_STEPS = 1000
TRIES = 4  # tries of an experiment per round
PATIENCE = 5  # rounds without improvement after which a rate is stable


class Experiment(Struct, frozen=True, kw_only=True):
    """An experiment: ``run`` makes a number of tries and returns the rate of each; ``how`` describes it.

    One with ``throughout`` is repeated as long as any other, even if it is stable, because a shared computer may be slow for seconds.
    """

    key: str
    how: str
    run: Callable[[int], Sequence[float]]
    throughout: bool = False


class Result(Struct, frozen=True, kw_only=True):
    """The result of an experiment: the best rate, the spread and number of tries, and whether the best was stable."""

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
    """The result of every experiment that gave a rate.

    Rounds continue until all are stable or the budget is used. The first round is a warm-up and counts only if no other follows; on a very
    busy computer the last experiments may not even get that. ``tell`` is called with the used budget. An interrupted measurement resumes
    from its ``earlier`` rates, after ``earlier_s`` of its budget; ``keep`` is called with the rates of an experiment and the time, to store
    them.
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
            tell(min(PROGRESS_STEPS, round(PROGRESS_STEPS * spent / budget_s)), PROGRESS_STEPS)
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
    """The 5th, 50th and 95th percentile (nearest rank).

    >>> spread_of([5.0, 1.0, 3.0, 2.0, 4.0])
    Spread(p5=1.0, p50=3.0, p95=5.0)
    """
    ordered = sorted(rates)
    return Spread(*(ordered[round(share * (len(ordered) - 1))] for share in (0.05, 0.5, 0.95)))
