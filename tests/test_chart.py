from msgspec.structs import replace

from roofline.analysis import analyze
from roofline.cost import Cost
from roofline.machine import Machine
from roofline.render.chart import Chart, Dot, chart
from roofline.report import Report
from roofline.workload import Coverage, Op, Recording, Workload
from toys import toy


def _report(*ops: Op, machine: Machine | None = None, coverage: Coverage | None = None) -> Report:
    recording = Recording(workload=Workload(ops), format="table", coverage=coverage or Coverage())
    return analyze(recording, machine or toy())


def _op(name: str, time_s: float | None, **amounts: float | None) -> Op:
    spelled = {key.replace("__", "/"): amount for key, amount in amounts.items()}
    return Op(name=name, cost=Cost.of(spelled), time_s=time_s)


def _drawn(*ops: Op) -> Chart:
    return chart(_report(*ops))


def test_a_measured_op_stands_at_its_intensity_and_its_measured_rate() -> None:
    # 50 FLOP over 10 B in 2 s: 5 FLOP/B and 25 FLOP/s, half of the 50 that memory allows.
    (dot,) = _drawn(_op("mm", 2.0, matrix__bf16=50, hbm=10)).dots
    assert (dot.intensity, dot.rate, dot.bound, dot.efficiency) == (5.0, 25.0, "hbm", 0.5)


def test_an_op_without_a_time_stands_on_its_roof() -> None:
    drawn = _drawn(_op("mm", None, matrix__bf16=50, hbm=10))
    assert not drawn.timed
    assert drawn.dots[0].rate == drawn.roofs[0].at(5.0) == 50.0


def test_work_without_flop_stands_in_the_strip_at_its_share_of_bandwidth() -> None:
    # 10 B at 10 B/s take 1 s at best; 4 s were measured.
    drawn = _drawn(_op("copy", 4.0, hbm=10), _op("send", None, ici=3))
    assert drawn.dots == ()
    assert [(dot.name, dot.share, dot.bound) for dot in drawn.strip] == [("copy", 0.25, "hbm"), ("send", 1.0, "ici")]


def test_an_op_whose_cost_is_an_upper_bound_is_not_above_its_roof() -> None:
    # 50 FLOP over 10 B take at least 1 s, and the copy of 10 B as long; 0.5 s were measured.
    fast = (_op("mm", 0.5, matrix__bf16=50, hbm=10), _op("copy", 0.5, hbm=10))
    sure, bounded = _drawn(*fast), _drawn(*(replace(op, notes=("upper bound: the grid's blocks",)) for op in fast))
    assert (sure.dots[0].rate, sure.strip[0].share) == (100.0, 2.0)
    assert (bounded.dots[0].rate, bounded.strip[0].share) == (50.0, 1.0)
    assert (bounded.dots[0].efficiency, bounded.dots[0].upper_bound, sure.dots[0].upper_bound) == (2.0, True, False)


def test_the_roofs_are_those_that_the_arithmetic_runs_under() -> None:
    drawn = _drawn(
        _op("bf16", 2.0, matrix__bf16=50, hbm=10),
        _op("tf32 runs on the vector unit", 2.0, matrix__tf32=50, hbm=10),
        _op("mostly vector", 2.0, matrix__bf16=1, vector__fp32=50, hbm=10),
    )
    assert [(one.compute, one.peak) for one in drawn.roofs] == [("matrix/bf16", 100.0), ("vector/fp32", 20.0)]
    # Nobody uses fp8, so its roof at 200 is not drawn.
    assert all(one.peak < 200 for one in drawn.roofs)


def test_what_is_not_drawn_is_counted_with_its_reason() -> None:
    drawn = _drawn(
        _op("unknown", 1.0, matrix__bf16=None, hbm=10),
        _op("unknown too", 1.0, matrix__bf16=None, hbm=10),
        _op("on chip", 1.0, matrix__bf16=10),
        _op("traffic unknown", 1.0, matrix__bf16=10, hbm=None),
    )
    assert dict(drawn.left_out) == {"with unknown work": 2, "without HBM traffic": 1, "with unknown HBM traffic": 1}
    assert drawn.caption == "Not drawn: 2 ops with unknown work, 1 op without HBM traffic, 1 op with unknown HBM traffic."


def test_the_caption_says_how_much_is_explained() -> None:
    coverage = Coverage(wall_s=5, busy_s=4, attributed_s=3, priced_s=2)
    drawn = chart(_report(_op("mm", 2.0, matrix__bf16=50, hbm=10), coverage=coverage))
    assert drawn.caption == "75% of busy time is matched to ops; 50% of it has a known cost."


def test_the_heaviest_dot_comes_first_and_everything_is_in_sight() -> None:
    drawn = _drawn(_op("small", 2.0, matrix__bf16=50, hbm=10), _op("large", 200.0, matrix__bf16=7000, hbm=1))
    assert [dot.name for dot in drawn.dots] == ["large", "small"]
    assert drawn.total == 202.0
    assert all(0 < side < 1 for dot in drawn.dots for side in drawn.extent.unit(dot.intensity, dot.rate))


def test_a_tiny_op_far_away_is_beyond_the_axes_and_counted() -> None:
    # 0.1 s of 100.1 s is below a quarter of 1%; its 1e-6 FLOP/B and 0.01 FLOP/s would stretch both axes.
    large, tiny = _op("large", 100.0, matrix__bf16=7000, hbm=70), _op("tiny", 0.1, vector__fp32=1e-3, hbm=1e3)
    drawn = _drawn(large, tiny)
    assert [dot.name for dot in drawn.outside] == ["tiny"]
    assert drawn.extent.left > 1e-3
    assert drawn.extent.bottom > 0.01
    assert drawn.caption == "At the edge: 1 op (0.1% of time) beyond the axes."
    # With a third of the time it is what the chart is about.
    assert _drawn(large, _op("tiny", 50.0, vector__fp32=1e-3, hbm=1e3)).outside == ()


def test_some_time_very_far_from_every_ridge_is_beyond_the_axes_too() -> None:
    # 1e-8 FLOP/B, eight decades left of the ridge: 5% of the time is left out, 20% is not.
    for seconds, outside in ((5.0, ["scalar"]), (20.0, [])):
        drawn = _drawn(_op("large", 100.0 - seconds, matrix__bf16=7000, hbm=70), _op("scalar", seconds, vector__fp32=1e-6, hbm=100))
        assert [dot.name for dot in drawn.outside] == outside


def test_axes_show_ops_that_take_no_time_where_none_takes_any() -> None:
    assert _drawn(_op("far", None, vector__fp32=1e-3, hbm=1e3)).outside == ()


def test_the_whole_program_is_a_dot_of_its_own() -> None:
    drawn = _drawn(_op("a", 2.0, matrix__bf16=50, hbm=10), _op("b", 3.0, matrix__bf16=50, hbm=10))
    assert isinstance(drawn.program, Dot)
    assert drawn.program.intensity == 5.0


def test_a_report_without_ops_still_has_its_roof() -> None:
    drawn = chart(_report())
    assert [one.compute for one in drawn.roofs] == ["matrix/bf16"]
    assert drawn.marks == ()
