"""Collectives: bytes through the busiest link, and hops."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from every import every
from roofline.errors import FormulaError
from roofline.formulas import all_gather, all_reduce, all_to_all, permute, reduce_scatter

algorithms = st.sampled_from(["ring", "bidirectional", "torus", "switch"])


@given(st.integers(1, 10**6), st.integers(1, 64), algorithms, st.integers(1, 18))
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(elements: int, over: int, algorithm: str, links: int) -> None:
    options = {"over": over, "algorithm": algorithm, "links": links}
    whole = all_reduce(elements, **options).cost  # type: ignore[arg-type]
    assert whole == reduce_scatter(elements, **options).cost + all_gather(elements, **options).cost  # type: ignore[arg-type]


@pytest.mark.parametrize("collective", [all_gather, reduce_scatter, all_reduce, all_to_all])
@given(st.integers(1, 10**6), algorithms)
def test_one_chip_sends_nothing(collective: object, elements: int, algorithm: str) -> None:
    assert collective(elements, over=1, algorithm=algorithm).cost.amounts == ()  # type: ignore[operator]


def test_a_ring_passes_all_but_a_part() -> None:
    # 8 chips: 7/8 of 1000 bf16 elements, in 7 hops.
    cost = all_gather(1000, over=8).cost
    assert (cost["ici"], cost["ici/hop"]) == (1750, 7)
    assert all_reduce(1000, over=8).cost["ici"] == 3500


def test_both_directions_halve_bytes_and_hops() -> None:
    cost = all_gather(1000, over=8, algorithm="bidirectional").cost
    assert (cost["ici"], cost["ici/hop"]) == (875, 4)


def test_a_pair_of_chips_has_one_link() -> None:
    assert all_gather(1000, over=2, algorithm="bidirectional").cost == all_gather(1000, over=2).cost


def test_a_torus_uses_every_axis_both_ways() -> None:
    # 4 x 4 x 4: 63/64 of the payload over six links; two hops along each axis.
    cost = all_gather(6400, over=4, over_y=4, over_z=4, algorithm="torus").cost
    assert cost["ici"] == Fraction(63, 64) * 12800 / 6
    assert cost["ici/hop"] == 6


def test_parallel_links_share_the_payload() -> None:
    # Eight chips behind a switch with 18 links each.
    cost = all_reduce(1800, over=8, algorithm="switch", links=18, link="nvlink").cost
    assert cost["nvlink"] == 2 * Fraction(7, 8) * 3600 / 18
    assert cost["nvlink/hop"] == 2


def routed(over: int, both: bool) -> Fraction:
    """The busiest link of an all-to-all on a ring, by sending every part along its way; opposite chips split theirs."""
    load: dict[tuple[int, int], Fraction] = {}
    for source in range(over):
        for steps in range(1, over):
            ways = [(1, steps)] if not both or 2 * steps < over else [(-1, over - steps)]
            if both and 2 * steps == over:
                ways = [(1, steps), (-1, steps)]
            for direction, length in ways:
                for step in range(length):
                    link = ((source + direction * step) % over, direction)
                    load[link] = load.get(link, Fraction()) + Fraction(1, over * len(ways))
    return max(load.values())


@every("over", range(3, 12))
def test_an_all_to_all_on_a_ring_is_what_routing_it_gives(over: int) -> None:
    assert all_to_all(1, over=over, dtype="uint8").cost["ici"] == routed(over, both=False)
    assert all_to_all(1, over=over, dtype="uint8", algorithm="bidirectional").cost["ici"] == routed(over, both=True)


def test_an_all_to_all_over_two_directions_is_a_quarter_of_gathering_the_same_array() -> None:
    # An array of 8·1000 elements spread over 8 chips: an eighth of it crosses the busiest link, against nearly a half.
    exchanged = all_to_all(1000, over=8, algorithm="bidirectional").cost["ici"]
    assert exchanged == 8 * 2000 // 8
    gathered = all_gather(8000, over=8, algorithm="bidirectional").cost["ici"]
    assert gathered == Fraction(7, 8) * 16000 / 2


def test_the_longest_axis_of_a_torus_binds_an_all_to_all() -> None:
    assert all_to_all(1000, over=4, over_y=8, algorithm="torus").cost["ici"] == 2000 * 8 // 8
    assert all_to_all(1000, over=8, algorithm="switch").cost["ici"] == Fraction(7, 8) * 2000


def test_a_permute_loads_every_link_it_crosses() -> None:
    cost = permute(1000, distance=3).cost
    assert (cost["ici"], cost["ici/hop"]) == (6000, 3)
    assert permute(1000, links=2).cost["ici"] == 1000


def test_the_chips_own_part_is_counted_when_asked_for() -> None:
    silent, full = all_reduce(1000, over=4), all_reduce(1000, over=4, on_chip=True)
    assert silent.cost.bytes() == 0
    assert any("not counted" in note for note in silent.notes)
    assert full.cost.bytes() == 4000
    assert full.cost["vector/fp32"] == 750
    assert all_gather(1000, over=4, on_chip=True).cost.bytes() == 500 + 2000
    assert reduce_scatter(1000, over=4, on_chip=True).cost.bytes() == 2000 + 500
    assert all_to_all(1000, over=4, on_chip=True).cost.bytes() == permute(1000, on_chip=True).cost.bytes() == 4000


def test_axes_belong_to_a_torus() -> None:
    with pytest.raises(FormulaError, match="all_reduce: over_y and over_z need algorithm 'torus'"):
        all_reduce(1000, over=4, over_y=4)
    with pytest.raises(FormulaError, match=r"all_gather: over is 0\.5; a group needs one chip or more"):
        all_gather(1000, over=0.5)


def test_between_whole_numbers_of_chips_the_equations_go_on() -> None:
    cost = all_to_all(8000, over=Fraction(9, 2), algorithm="bidirectional").cost
    assert cost["ici"] == 16000 * Fraction(9, 2) / 8
    assert cost["ici/hop"] == Fraction(9, 4)
