"""Measuring: the best of many tries, until none gets better or the time is up; no test depends on how fast this computer is."""

from collections.abc import Iterator
from itertools import count

import pytest
from msgspec.structs import replace

from roofline.errors import MachineError
from roofline.machine import Spread
from roofline.machines.measuring.measurement import Experiment, measure_all, spread_of


class Clock:
    """Seconds that pass only while an experiment runs."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def experiment(self, key: str, rates: Iterator[float], takes_s: float = 1.0) -> Experiment:
        def run(tries: int) -> list[float]:
            self.now += takes_s
            return [next(rates)]

        return Experiment(key=key, how="tried", run=run)


def repeat(value: float) -> Iterator[float]:
    return (value for _ in count())


def test_the_best_try_is_the_rate_and_the_warm_up_does_not_count() -> None:
    clock = Clock()
    rates = iter([1000.0, *(10.0, 12.0, 11.0), *[9.0] * 20])
    (found,) = measure_all([clock.experiment("a", rates)], budget_s=100, clock=clock, patience=5)
    # Warm-up, 10, 12 (better), then five rounds without a better one.
    assert (found.rate, found.tries, found.stable) == (12.0, 7, True)
    assert clock.now == 8.0
    assert found.words == "tried, best of 7"


def test_a_gain_below_one_percent_is_no_better_rate() -> None:
    clock = Clock()
    (found,) = measure_all([clock.experiment("a", (100 + step / 10 for step in count()))], budget_s=100, clock=clock, patience=3)
    assert (found.stable, found.tries) == (True, 4)  # the first, and three that are 0.1% better each
    (rising,) = measure_all([clock.experiment("a", (100.0 * 1.02**step for step in count()))], budget_s=10, clock=clock, patience=3)
    assert not rising.stable


def test_an_experiment_throughout_is_tried_as_long_as_any_other() -> None:
    # The computer is slow in the beginning: whoever is stable after 3 rounds never sees the 20.
    clock = Clock()
    quiet = [10.0] * 6 + [20.0] * 20
    early, late = (clock.experiment(key, iter(quiet)) for key in ("early", "late"))
    rising = clock.experiment("rising", (1.1 ** min(step, 8) for step in count()))
    found = {each.key: each for each in measure_all([early, replace(late, throughout=True), rising], budget_s=100, clock=clock, patience=3)}
    assert (found["early"].rate, found["late"].rate) == (10.0, 20.0)
    assert found["early"].tries == 4
    assert all(each.stable for each in found.values())


def test_the_time_is_bounded() -> None:
    clock = Clock()
    told: list[int] = []
    rising = [clock.experiment(key, (1.1**step for step in count()), takes_s=2) for key in "ab"]
    found = measure_all(rising, budget_s=20, clock=clock, tell=lambda done, total: told.append(done * 100 // total))
    assert clock.now == 20
    assert not any(each.stable for each in found)
    assert told == sorted(told)
    assert told[-1] == 100


def test_experiments_take_turns_and_the_stable_ones_rest() -> None:
    clock = Clock()
    calm, wild = clock.experiment("calm", repeat(5.0)), clock.experiment("wild", (1.1**step for step in count()))
    found = {each.key: each for each in measure_all([calm, wild], budget_s=30, clock=clock, patience=3)}
    assert found["calm"].tries == 4
    assert found["wild"].tries == 30 - 2 - 4
    assert (found["calm"].stable, found["wild"].stable) == (True, False)


def test_the_warm_up_counts_where_the_time_was_up_after_it() -> None:
    clock = Clock()
    (found,) = measure_all([clock.experiment("slow", iter([3.0]), takes_s=50)], budget_s=10, clock=clock)
    assert (found.rate, found.tries, found.stable) == (3.0, 1, False)


def test_a_warm_up_that_takes_all_the_time_leaves_the_last_experiments_out() -> None:
    clock = Clock()
    slow = [clock.experiment(key, repeat(3.0), takes_s=6) for key in "abc"]
    assert [each.key for each in measure_all(slow, budget_s=10, clock=clock)] == ["a", "b"]
    assert clock.now == 12


def test_an_experiment_that_gives_nothing_has_no_result() -> None:
    clock = Clock()
    silent = Experiment(key="gone", how="", run=lambda tries: [])
    assert [each.key for each in measure_all([silent, clock.experiment("a", repeat(1.0))], budget_s=30, clock=clock)] == ["a"]
    with pytest.raises(MachineError, match="nothing to measure"):
        measure_all([], budget_s=1, clock=clock)


def test_percentiles_are_tries() -> None:
    assert spread_of([float(value) for value in range(101)]) == Spread(5.0, 50.0, 95.0)
    assert spread_of([7.0]) == Spread(7.0, 7.0, 7.0)


def test_an_interrupted_measurement_goes_on_from_its_rates_and_its_time() -> None:
    clock, kept = Clock(), dict[str, tuple[list[float], float]]()
    experiment = clock.experiment("a", repeat(10.0))
    (found,) = measure_all(
        [experiment],
        budget_s=10,
        clock=clock,
        patience=100,
        earlier={"a": [12.0, 11.0]},
        earlier_s=6.0,
        keep=lambda key, rates, spent_s: kept.update({key: (list(rates), spent_s)}),
    )
    # One second for the warm-up, and three tries in the rest of the ten.
    assert (found.rate, found.tries) == (12.0, 5)
    assert kept == {"a": ([12.0, 11.0, 10.0, 10.0, 10.0], 10.0)}
