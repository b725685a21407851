import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.errors import MachineError, UsageError
from roofline.machine import Limit, Machine
from roofline.render.geometry import (
    Extent,
    Roof,
    ceilings,
    crossings,
    extent_of,
    feasible,
    gain,
    linear_ticks,
    log_ticks,
    roof,
    title,
    zone,
)
from roofline.resource import Resource
from roofline.units import parse
from toys import toy

rates = st.floats(min_value=1e-3, max_value=1e21)
intensities = st.floats(min_value=1e-9, max_value=1e12)
WIDE = Extent(left=1.0, right=1000.0, bottom=1.0, top=1000.0)
ONE = Roof("toy", peak=100.0, bandwidth=10.0)

# The machines of the guides, per chip.
V7X = Machine.of("v7x", {"matrix/bf16": "2307 TFLOP/s", "matrix/fp8": "4614 TFLOP/s", "hbm": "7.2 TB/s", "vmem": "150 TB/s"})
V6E = Machine.of("v6e", {"matrix/bf16": "918 TFLOP/s", "hbm": "1.6 TB/s"})
V5P = Machine.of("v5p", {"matrix/bf16": "459 TFLOP/s", "hbm": "2.76 TB/s"})


@given(peak=rates, bandwidth=rates, intensity=intensities)
def test_a_roof_is_what_the_machine_can_attain(peak: float, bandwidth: float, intensity: float) -> None:
    machine = Machine.of("any", {"matrix/bf16": peak, "hbm": bandwidth})
    assert roof(machine).at(intensity) == machine.attainable(intensity, "matrix/bf16")
    assert roof(machine).ridge == machine.ridge("matrix/bf16")


@given(peak=rates, bandwidth=rates)
def test_the_corner_stands_exactly_at_the_ridge(peak: float, bandwidth: float) -> None:
    one = Roof("any", peak, bandwidth)
    path = one.polyline(extent_of([one]))
    assert path[1] == (peak / bandwidth, peak)
    assert len(path) == 3


@given(peak=rates, bandwidth=rates, share=st.floats(0, 1))
def test_every_place_on_the_polyline_obeys_the_law(peak: float, bandwidth: float, share: float) -> None:
    one = Roof("any", peak, bandwidth)
    for (x0, y0), (x1, y1) in zip(one.polyline(extent_of([one])), one.polyline(extent_of([one]))[1:], strict=False):
        # Straight on log-log axes: a share of the way in both logarithms.
        x, y = x0 * (x1 / x0) ** share, y0 * (y1 / y0) ** share
        assert y == pytest.approx(one.at(x), rel=1e-9)


def test_a_roof_is_cut_where_the_chart_ends() -> None:
    # 10 B/s reaches 50 FLOP/s at 5 FLOP/B, so a chart from 50 FLOP/s upwards sees the slope from there.
    assert ONE.slant(Extent(left=1, right=1000, bottom=50, top=1000))[0] == (5.0, 50.0)
    # A chart that ends at 5 FLOP/B never sees the ridge at 10.
    assert ONE.polyline(Extent(left=1, right=5, bottom=1, top=1000)) == ((1, 10.0), (5, 50.0))
    assert ONE.flat(Extent(left=1, right=5, bottom=1, top=1000)) == ()
    assert ONE.slant(WIDE, beyond=True)[-1] == (100.0, 1000.0)
    assert ONE.flat(WIDE, before=True) == ((1.0, 100.0), (1000.0, 100.0))


def test_the_guides_ridges() -> None:
    found = [roof(V7X, "matrix/fp8").ridge, roof(V7X).ridge, roof(V6E).ridge, roof(V5P).ridge, roof(V7X, level="vmem").ridge]
    assert [round(ridge, 1) for ridge in found] == [640.8, 320.4, 573.8, 166.3, 15.4]


def test_a_roof_without_a_named_compute_takes_the_usual_one() -> None:
    assert roof(toy()).peak == 100
    assert roof(toy(), "matrix/fp8").peak == 200
    # bf16 on the vector unit runs as fp32 there.
    assert roof(toy(), "vector/bf16").peak == 20
    with pytest.raises(MachineError, match="no known compute rate"):
        roof(Machine.of("memory", {"hbm": 10}))


def test_the_feasible_area_lies_under_the_roof_and_meets_below_the_ridge() -> None:
    left, right = feasible(ONE, WIDE)
    assert left == ((1.0, 10.0), (10.0, 100.0), (10.0, 1.0), (1.0, 1.0))
    assert right == ((10.0, 100.0), (1000.0, 100.0), (1000.0, 1.0), (10.0, 1.0))


@given(peak=rates, slow=rates, times=st.floats(1.5, 1e4))
def test_a_zone_lies_between_its_roofs(peak: float, slow: float, times: float) -> None:
    lower, upper = Roof("hbm", peak, slow), Roof("vmem", peak, slow * times)
    extent = extent_of([lower, upper])
    for x, y in zone(upper, lower, extent):
        assert lower.at(x) * (1 - 1e-9) <= y <= upper.at(x) * (1 + 1e-9) or y == extent.bottom


def test_a_zone_that_is_cut_below_keeps_its_corner() -> None:
    # At the left edge the fast level gives 100 and the slow one 1, below the chart: the area starts in its corner.
    lower, upper = Roof("slow", 1000.0, 1.0), Roof("fast", 1000.0, 100.0)
    assert (1.0, 10.0) in zone(upper, lower, Extent(left=1, right=10_000, bottom=10, top=10_000))


def test_the_gain_is_bounded_by_the_roof_and_the_unfused_rate() -> None:
    # From 5 FLOP/B (50 FLOP/s) over the ridge at 10 to 20 (100 FLOP/s).
    assert gain(ONE, 5, 20) == ((5, 50), (10, 100), (20, 100), (20, 50))


def test_ceilings_are_the_limits_that_lower_this_roof_highest_first() -> None:
    limits = (
        Limit(name="no FMA", resource=Resource("matrix/bf16"), fraction=0.5),
        Limit(name="strided", resource=Resource("hbm"), fraction=0.25),
        Limit(name="sustained", resource=Resource("matrix/bf16"), fraction=0.9),
        Limit(name="sustained", resource=Resource("hbm"), fraction=0.8),
        Limit(name="elsewhere", resource=Resource("ici"), fraction=0.5),
    )
    machine = Machine.of("toy", {"matrix/bf16": 100, "hbm": 10, "ici": 1}, limits=limits)
    assert [(one.name, one.peak, one.bandwidth) for one in ceilings(machine)] == [
        ("strided", 100, 2.5),
        ("sustained", 90, 8),
        ("no FMA", 50, 10),
    ]


@given(st.lists(st.tuples(intensities, rates), max_size=5), st.lists(st.tuples(rates, rates), min_size=1, max_size=4))
def test_a_chart_shows_every_ridge_and_every_point(spots: list[tuple[float, float]], chips: list[tuple[float, float]]) -> None:
    roofs = [Roof("any", peak, bandwidth) for peak, bandwidth in chips]
    extent = extent_of(roofs, spots)
    for x, y in [*spots, *(one.corner for one in roofs)]:
        across, along = extent.unit(x, y)
        assert 0 < across < 1
        assert 0 < along < 1
        back = extent.place(across, along)
        assert back == (pytest.approx(x, rel=1e-6), pytest.approx(y, rel=1e-6))


def test_what_has_no_place_is_refused() -> None:
    with pytest.raises(UsageError, match="no roofline to draw"):
        extent_of([])
    with pytest.raises(UsageError, match="cannot draw a point"):
        extent_of([ONE], [(0.0, 5.0)])
    with pytest.raises(UsageError, match="is empty"):
        Extent(left=1, right=1, bottom=1, top=2)
    with pytest.raises(MachineError, match="finite and above 0"):
        Roof("bad", math.inf, 1.0)


def test_a_square_product_crosses_each_ridge_at_three_times_its_intensity() -> None:
    curve = [(2.0**power, 2.0**power / 3) for power in range(6, 15)]
    for one, expected in ((roof(V7X, "matrix/fp8"), 1922.5), (roof(V7X), 961.25), (roof(V6E), 1721.25), (roof(V5P), 498.9)):
        assert crossings(curve, one.ridge) == (pytest.approx(expected, abs=0.02),)


def test_crossings_are_found_both_ways_and_at_samples() -> None:
    assert crossings([(1, 1), (2, 4), (4, 1)], 2) == (pytest.approx(math.sqrt(2)), pytest.approx(2 * math.sqrt(2)))
    assert crossings([(1, 1), (2, 4)], 4) == (2,)
    assert crossings([(1, 1), (2, 4)], 5) == ()


@given(st.floats(1e-12, 1e20), st.floats(1.01, 1e15), st.sampled_from(["FLOP/s", "FLOP/B", "s", ""]))
def test_log_ticks_are_inside_in_order_and_numbered(low: float, ratio: float, dimension: str) -> None:
    high = low * ratio
    ticks = log_ticks(low, high, dimension)
    places = [tick.at for tick in ticks]
    numbered = [tick.label for tick in ticks if tick.label]
    assert places == sorted(set(places))
    assert all(low * 0.999 <= at <= high * 1.001 for at in places)
    assert 2 <= len(numbered) <= 12
    assert len(set(numbered)) == len(numbered)


def test_rates_read_with_prefixes() -> None:
    labels = [tick.label for tick in log_ticks(parse("50 GFLOP/s", "FLOP/s"), parse("3 PFLOP/s", "FLOP/s"), "FLOP/s") if tick.label]
    assert labels == ["100 G", "1 T", "10 T", "100 T", "1 P"]
    assert [tick.label for tick in log_ticks(0.05, 20_000, "FLOP/B") if tick.label] == ["0.1", "1", "10", "100", "1,000", "10,000"]
    assert [tick.label for tick in log_ticks(64, 1024, base=2)] == ["64", "128", "256", "512", "1,024"]


def test_many_decades_are_numbered_every_second_or_third() -> None:
    numbered = [tick.at for tick in log_ticks(1, 10**18, "FLOP/s") if tick.label]
    assert numbered == [10.0**power for power in range(0, 19, 3)]


def test_linear_ticks_are_round_and_start_at_0() -> None:
    assert [tick.at for tick in linear_ticks(0, 7, "")] == [0, 2, 4, 6]
    assert [tick.label for tick in linear_ticks(0, parse("3 ms", "s"), "s")] == ["0", "1 ms", "2 ms", "3 ms"]
    assert [tick.label for tick in linear_ticks(0, 1.06, "%")] == ["0%", "25%", "50%", "75%", "100%"]


def test_resources_read_as_people_write_them() -> None:
    assert [title(name) for name in ("hbm", "l2", "vector/fp32", "pcie", "host", "latency")] == [
        "HBM",
        "L2",
        "vector fp32",
        "PCIe",
        "host",
        "latency",
    ]
