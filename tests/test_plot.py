import itertools
import math
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path as FilePath

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.path import Path
from matplotlib.text import Text
from matplotlib.transforms import Affine2D, Bbox
from msgspec.structs import replace

from every import every
from roofline.analysis import analyze
from roofline.comparison import compare
from roofline.comparison.runs import trend
from roofline.cost import Cost
from roofline.errors import OutputError, UsageError
from roofline.formulas import matmul
from roofline.fusing import fuse
from roofline.fusing.op_chain import StageSpec, chain
from roofline.machine import Ceiling, Limit, Machine, Spread
from roofline.machines import load
from roofline.machines.calibrations import calibration_for
from roofline.placement import place
from roofline.prediction.by_size import Sizes
from roofline.render import plot
from roofline.render.geometry import Roof, roof
from roofline.render.plot.style import DARK, LIGHT, Theme, contrast, mixed, short_name
from roofline.report import Report
from roofline.resource import Resource
from roofline.workload import Coverage, Op, Recording, Workload
from test_gpu_measured import CARD as MEASURED_GPU
from toys import toy

V7X = Machine.of(
    "v7x",
    {"matrix/bf16": "2307 TFLOP/s", "matrix/fp8": "4614 TFLOP/s", "vector/fp32": "20 TFLOP/s", "hbm": "7.2 TB/s", "vmem": "150 TB/s"},
    limits=(
        Limit(name="no FMA", resource=Resource("matrix/bf16"), fraction=0.5),
        Limit(name="sustained", resource=Resource("matrix/bf16"), fraction=0.95),
        Limit(name="sustained", resource=Resource("hbm"), fraction=0.9),
        Limit(name="uncoalesced", resource=Resource("hbm"), fraction=0.25),
    ),
)
V6E = Machine.of("v6e", {"matrix/bf16": "918 TFLOP/s", "hbm": "1.6 TB/s"})
V5P = Machine.of("v5p", {"matrix/bf16": "459 TFLOP/s", "hbm": "2.76 TB/s"})
CHIPS = (roof(V7X, "matrix/fp8", name="v7x (fp8)"), roof(V7X, name="v7x (bf16)"), roof(V6E), roof(V5P))
OPS = (("LayerNorm", 1.67), ("Attention QK^T", 107.8), ("MatMul 600", 200.0), ("FFN up", 3120.8))
BF16 = roof(V7X)
MEASURED = tuple((name, x, share * BF16.at(x)) for name, x, share in (("A", 2, 0.92), ("B", 12, 0.55), ("C", 150, 0.35), ("D", 2000, 0.78)))
SQUARE = {"square matmul": [(2.0**power, 2.0**power / 3) for power in range(6, 15)]}
CPP = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>>(int, float)"
GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn"


def _report(count: int, seed: int = 0, *, timed: bool = True) -> Report:
    """Products, pointwise work, copies, transfers and unknown kernels, at random sizes and efficiencies."""
    dice = random.Random(seed)
    chip = Machine.of("h200", {"matrix/bf16": "989 TFLOP/s", "vector/fp32": "67 TFLOP/s", "hbm": "4.8 TB/s", "nvlink": "450 GB/s"})
    ops = []
    for index in range(count):
        size = 10 ** dice.uniform(-1.5, 1.5)
        kind, amounts = dice.choice(
            [
                (GEMM, {"matrix/bf16": 2e12 * size, "hbm": 2e12 * size / 10 ** dice.uniform(1.2, 3.3)}),
                (CPP, {"vector/fp32": 2e9 * size, "hbm": 2e9 * size / 10 ** dice.uniform(-1, 0.8)}),
                ("copy", {"hbm": 1e9 * size}),
                ("all-reduce", {"nvlink": 1e8 * size, "hbm": 2e8 * size}),
                ("custom", {"vector/fp32": None, "hbm": 1e8}),
            ]
        )
        cost = Cost.of(amounts)
        time_s = place(cost, chip).floor_s / dice.uniform(0.05, 1.1) if timed else None
        ops.append(Op(name=f"{kind}.{index}", cost=cost, time_s=time_s, category=kind))
    coverage = Coverage(wall_s=2, busy_s=1, attributed_s=0.98, priced_s=0.93) if timed else Coverage()
    return analyze(Recording(workload=Workload(tuple(ops)), format="table", coverage=coverage), chip)


def _placements() -> dict[str, object]:
    product = Cost.of({"matrix/bf16": 2 * 8192**3, "hbm": 6 * 8192**2, "vector/fp32": 8192**2})
    norm = Cost.of({"vector/fp32": 10 * 65536 * 4096, "hbm": 6 * 65536 * 4096})
    return {
        "matmul 8192": place(product, V7X, time_s=7e-4),
        CPP: place(norm, V7X, time_s=2.5e-4),
        "copy": place(Cost.of({"hbm": 4e8}), V7X),
    }


def _by_size() -> Sizes:
    chip = load("h200-sxm")
    return Sizes(partial(matmul, k=8192, n=8192), ("m",), chip, calibration_for(chip))


FIGURES: dict[str, Callable[..., Axes]] = {
    "anatomy": lambda **look: plot.anatomy(V7X, **look),
    "rooflines": lambda **look: plot.rooflines(CHIPS, OPS, **look),
    "intensity_against_size": lambda **look: plot.intensity_against_size(SQUARE, CHIPS, **look),
    "fusion_path": lambda **look: plot.fusion_path(V7X, [("4 kernels", 1.25), ("2 kernels", 2.5), ("1 kernel", 5.0)], **look),
    "prediction_and_measurement": lambda **look: plot.prediction_and_measurement(V7X, MEASURED, **look),
    "distance_to_roof": lambda **look: plot.distance_to_roof(
        V7X, [("add", 5, 0.92 * BF16.at(5)), ("mm", 500, 0.25 * BF16.at(500))], **look
    ),
    "hierarchy": lambda **look: plot.hierarchy(V7X, points=[("well tiled", 50.0, 3.5 * BF16.at(50))], **look),
    "communication": lambda **look: plot.communication(V7X, **look),
    "ceilings": lambda **look: plot.ceilings(V7X, **look),
    "time_bars": lambda **look: plot.time_bars(_placements(), **look),
    "roofline_chart": lambda **look: plot.roofline_chart(_report(25), **look),
    "expected_times": lambda **look: plot.expected_times("matmul", _by_size().curve([2**power for power in range(14)]), size="m", **look),
    "trend_chart": lambda **look: plot.trend_chart(trend([[_report(4)], [_report(4, seed=1)], [_report(4)]], "abc"), **look),
    "sweep_chart": lambda **look: plot.sweep_chart(MEASURED_GPU, **look),
    "change_bars": lambda **look: plot.change_bars(compare(_report(4), _report(4, seed=1)), **look),
}
assert set(FIGURES) == set(plot.__all__) - {"save"}


SLACK = 0.5  # pixels by which two things may touch


def _texts(ax: Axes) -> list[Text]:
    """Every text on and around the axes and their strip."""
    found: list[Text] = list(ax.figure.texts)
    for axes in (ax, *ax.child_axes):
        legend = axes.get_legend()
        found += [*axes.texts, axes.xaxis.label, axes.yaxis.label]
        found += [tick.label1 for axis in (axes.xaxis, axes.yaxis) for tick in axis._update_ticks()]  # those in sight
        found += [axes.title, axes._left_title, axes._right_title, *(legend.get_texts() if legend else [])]
    return [text for text in found if text.get_text().strip() and text.get_visible()]


def _boxes(ax: Axes) -> list[tuple[str, Path]]:
    """Where each text really is once drawn, in pixels; turned text by its turned box, without its leader."""
    canvas = FigureCanvasAgg(ax.figure)
    canvas.draw()
    found = []
    for text in _texts(ax):
        angle = text.get_rotation()
        extent = upright = Text.get_window_extent(text, canvas.get_renderer())
        if angle % 90:
            text.set_rotation(0)
            upright = Text.get_window_extent(text, canvas.get_renderer())
            text.set_rotation(angle)
        x, y = (extent.x0 + extent.x1) / 2, (extent.y0 + extent.y1) / 2
        box = Bbox.from_bounds(x - upright.width / 2, y - upright.height / 2, upright.width, upright.height)
        turned = Affine2D().rotate_deg_around(x, y, angle if angle % 90 else 0)
        shrunk = box.padded(-SLACK)
        corners = [(shrunk.x0, shrunk.y0), (shrunk.x1, shrunk.y0), (shrunk.x1, shrunk.y1), (shrunk.x0, shrunk.y1), (shrunk.x0, shrunk.y0)]
        found.append((text.get_text(), turned.transform_path(Path(corners, closed=True))))
    return found


def _marks(ax: Axes) -> list[tuple[float, float, float]]:
    """Every mark as a place and a radius, in pixels."""
    scale = ax.figure.dpi / 72
    found = []
    for axes in (ax, *ax.child_axes):
        for line in axes.lines:
            if line.get_marker() not in ("none", "None", ""):
                ((x, y),) = axes.transData.transform(np.column_stack(line.get_data()))
                found.append((x, y, line.get_markersize() / 2 * scale))
        for dots in axes.collections:
            if "dots" in (dots.get_gid() or ""):
                places = dots.get_offset_transform().transform(dots.get_offsets())
                found += [(x, y, math.sqrt(area) / 2 * scale) for (x, y), area in zip(places, dots.get_sizes(), strict=True)]
    return found


def _faults(ax: Axes, *, paper: bool = True) -> list[tuple[str, ...]]:
    """Texts that touch each other, a mark, or the edge of the paper."""
    boxes, marks = _boxes(ax), _marks(ax)
    width, height = ax.figure.bbox.size
    found = [(one, other) for (one, a), (other, b) in itertools.combinations(boxes, 2) if a.intersects_path(b)]
    for text, box in boxes:
        (x, y), radii = np.array([mark[:2] for mark in marks]).reshape(-1, 2).T, np.array([mark[2] for mark in marks])
        # The distance of a mark from the box, in the box's own directions.
        (x0, y0), (x1, y1), (x2, y2) = box.vertices[0], box.vertices[1], box.vertices[3]
        wide, high = math.hypot(x1 - x0, y1 - y0), math.hypot(x2 - x0, y2 - y0)
        along = ((x - x0) * (x1 - x0) + (y - y0) * (y1 - y0)) / wide
        up = ((x - x0) * (x2 - x0) + (y - y0) * (y2 - y0)) / high
        away = np.hypot(np.clip(along, 0, wide) - along, np.clip(up, 0, high) - up)
        found += [(text, f"mark {x[place]:.0f} {y[place]:.0f}") for place in np.flatnonzero(away < radii - SLACK)]
        if paper and not all(0 <= x <= width and 0 <= y <= height for x, y in box.vertices):
            found.append((text, "paper"))
    return found


def _lines(ax: Axes, kind: str) -> list[Line2D]:
    return [line for line in ax.lines if (line.get_gid() or "").startswith(f"{kind}-")]


def _path(line: Line2D) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in zip(*line.get_data(), strict=True)]


@pytest.mark.parametrize("name", FIGURES)
def test_nothing_overlaps_in_any_figure_and_everything_is_on_the_paper(name: str) -> None:
    ax = FIGURES[name](theme="dark" if len(name) % 2 else "light")  # themes differ in colours alone
    assert _faults(ax) == []
    assert ax.get_title(loc="left")
    assert ax.get_xlabel()


@every("name", FIGURES)
def test_a_figure_goes_into_the_axes_it_is_given(name: str) -> None:
    figure = Figure(figsize=(9, 6))
    figure.subplots_adjust(left=0.3, bottom=0.25, top=0.75)
    given = figure.add_subplot()
    assert FIGURES[name](ax=given) is given
    assert tuple(figure.get_size_inches()) == (9, 6)
    assert _faults(given, paper=False) == []


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6))])
def test_nothing_overlaps_for_points_anywhere_with_long_names(seed: int) -> None:
    dice = random.Random(seed)
    one = Roof("chip", 10 ** dice.uniform(10, 16), 10 ** dice.uniform(9, 13.5), "matrix/bf16", "hbm")
    count, spread = dice.choice([1, 3, 8, 30, 200]), dice.choice([0.01, 0.5, 2.0])
    names = [dice.choice(["op", GEMM, CPP]) + str(index) for index in range(count)]
    places = [one.ridge * 10 ** dice.gauss(-0.5, spread) for _ in names]
    points = [(name, x, one.at(x) * dice.uniform(0.02, 1.2)) for name, x in zip(names, places, strict=True)]
    assert _faults(plot.prediction_and_measurement(one, points)) == []
    assert _faults(plot.rooflines([one, *CHIPS[: dice.randint(0, 4)]], zip(names, places, strict=True))) == []
    assert _faults(plot.distance_to_roof(one, points[:5])) == []


@every(("count", "timed"), [(0, True), (1, True), (200, True), (40, False)])
def test_nothing_overlaps_in_the_chart_of_a_report(count: int, timed: bool) -> None:
    assert _faults(plot.roofline_chart(_report(count, seed=count, timed=timed))) == []


def test_the_check_for_overlaps_sees_them() -> None:
    ax = plot.prediction_and_measurement(V7X, MEASURED)
    ax.text(MEASURED[0][1], MEASURED[0][2], "on a mark", ha="center", va="center")
    ax.text(0.5, 0.5, "one", transform=ax.transAxes)
    ax.text(0.5, 0.5, "two", transform=ax.transAxes)
    ax.text(2.0, 0.5, "off the paper", transform=ax.transAxes)
    assert {words for fault in _faults(ax) for words in fault} >= {"on a mark", "one", "two", "off the paper"}


def test_points_in_one_place_are_named_once() -> None:
    ax = plot.prediction_and_measurement(V7X, [(f"twin {index}", 10.0, BF16.at(10) / 2) for index in range(20)])
    assert [text for text, _ in _boxes(ax) if "twin" in text] == ["twin 0\nefficiency 50%\nand 19 more here"]
    assert _faults(ax) == []


def test_marks_without_room_for_a_label_are_named_in_the_caption() -> None:
    names = [f"{GEMM}{index}" for index in range(24)]
    ax = plot.prediction_and_measurement(V7X, [(name, 10.0 * 1.02**index, BF16.at(10) / 2) for index, name in enumerate(names)])
    (caption,) = [text.get_text().replace("\n", " ") for text in _texts(ax) if "No room for" in text.get_text()]
    written = [short_name(name) for name in names if any(text.get_text().startswith(short_name(name)) for text in ax.texts)]
    assert 0 < len(written) < len(names)
    assert f"No room for {len(names) - len(written)} labels" in caption
    assert all((short_name(name) in caption) != (short_name(name) in written) for name in names)
    assert _faults(ax) == []


@every(
    "machine",
    [
        Machine.of("tiny", {"matrix/bf16": 5, "hbm": 3}),
        Machine.of("lopsided", {"matrix/bf16": 3e21, "hbm": 2e3}),
        Machine.of(
            "a machine whose name is longer than any title should ever have to be, and then some more", {"vector/fp32": 1, "hbm": 9}
        ),
    ],
)
def test_extreme_machines_are_still_drawn_cleanly(machine: Machine) -> None:
    assert _faults(plot.anatomy(machine)) == []
    assert _faults(plot.prediction_and_measurement(machine, [("far left", 1e-9, 1e-6), ("far right", 1e24, 1e22)])) == []


def test_the_drawn_roof_is_the_law_with_its_corner_at_the_ridge() -> None:
    ax = plot.rooflines(CHIPS)
    drawn = {line.get_label(): _path(line) for line in _lines(ax, "roof")}
    for machine, name in ((V6E, "v6e"), (V5P, "v5p")):
        assert (machine.ridge("matrix/bf16"), machine.rate("matrix/bf16")) in drawn[name]
        assert all(y == pytest.approx(machine.attainable(x, "matrix/bf16")) for x, y in drawn[name])
    # v7x has one memory and two peaks: the second slope lies on the first, in dashes, and its flat starts at its own ridge.
    assert drawn["v7x (bf16)"][0] == roof(V7X).corner
    assert _path(_lines(ax, "shared-slant")[0])[-1] == roof(V7X).corner


def test_the_anatomy_shows_slope_flat_extensions_ridge_and_both_regions() -> None:
    ax = plot.anatomy(V7X)
    (slant,), (flat,), (ridge,) = (_lines(ax, kind) for kind in ("slant", "flat", "ridge"))
    assert _path(slant)[-1] == _path(flat)[0] == _path(ridge)[0] == BF16.corner
    assert len(_lines(ax, "extension")) == 2
    assert {patch.get_gid() for patch in ax.patches} == {"memory-bound-1", "compute-bound-1"}
    assert {"memory-bound", "compute-bound", "ridge point\n320.4 FLOP/B", "HBM 7.2 TB/s"} <= {text.get_text() for text in _texts(ax)}


def test_the_anatomy_of_a_measured_machine_shows_the_spread_of_its_tries() -> None:
    compute = Ceiling(resource=Resource("matrix/fp32"), rate=100.0, provenance="measured", spread=Spread(p5=50.0, p50=80.0, p95=95.0))
    memory = Ceiling(resource=Resource("hbm"), rate=10.0, provenance="measured", spread=Spread(p5=4.0, p50=8.0, p95=9.5))
    ax = plot.anatomy(Machine(name="mine", ceilings=(compute, memory)))
    (band,) = (patch for patch in ax.patches if patch.get_gid() == "spread-1")
    corners = {(round(x, 6), round(y, 6)) for x, y in band.get_xy()}  # type: ignore[attr-defined]
    assert {(10.0, 95.0), (12.5, 50.0)} <= corners  # the ridge at the 95th percentile, and the one at the 5th
    assert _faults(ax) == []
    quoted = plot.anatomy(Machine(name="theirs", ceilings=(replace(compute, spread=None), replace(memory, spread=None))))
    assert not any(patch.get_gid() == "spread-1" for patch in quoted.patches)


def test_operations_stand_at_their_attainable_rates() -> None:
    marks = {place for line in _lines(plot.rooflines(CHIPS, OPS), "dot") for place in _path(line)}
    # Two of the four roofs share their slope, so operations left of both ridges have three marks, the others four.
    assert marks == {(x, one.at(x)) for _, x in OPS for one in CHIPS}
    assert len(marks) == 3 * 3 + 4


def test_crossings_are_named_by_the_first_size_beyond_the_ridge() -> None:
    ax = plot.intensity_against_size(SQUARE, CHIPS)
    # Three times the ridges: 1922.5, 961.25, 1721.25 and 498.9, rounded up.
    assert {"1,923", "962", "1,722", "499"} <= {text.get_text() for text in _texts(ax)}
    crossed = sorted(_path(line)[0][0] for line in _lines(ax, "crossing"))
    assert crossed == pytest.approx([498.9, 961.25, 1721.25, 1922.5], abs=0.02)


def test_fusing_four_kernels_into_one_is_four_times_the_rate() -> None:
    ax = FIGURES["fusion_path"]()
    assert "1 kernel, 4x\n5 FLOP/B, 36 TFLOP/s" in [text.get_text() for text in ax.texts]
    # 20 FLOP an element over 16, 8 and 4 bytes: 9, 18 and 36 TFLOP/s at 7.2 TB/s.
    rates = [_path(line)[0][1] for line in _lines(ax, "dot")]
    assert rates == pytest.approx([9e12, 18e12, 36e12])
    (area,) = (patch for patch in ax.patches if patch.get_gid() == "gain-1")
    assert area.get_xy()[:, 0].min() == pytest.approx(1.25)
    assert area.get_xy()[:, 0].max() == pytest.approx(5)


def test_fusions_of_a_chain_are_drawn_under_the_unit_that_runs_them() -> None:
    line = chain((4096, 4096), "bf16", [StageSpec("a", 8), StageSpec("b", 8)], compute="vector/fp32")
    ax = plot.fusion_path(V7X, [fuse(line, [1, 1], V7X), fuse(line, [2], V7X)])
    assert "vector fp32 20 TFLOP/s" in [text.get_text() for text in ax.texts]
    # 8 FLOP over 4 B an element, then 16 over 4.
    assert [_path(dot)[0][0] for dot in _lines(ax, "dot")] == [2.0, 4.0]


def test_measurements_and_their_roofs_are_joined_and_named() -> None:
    ax = FIGURES["prediction_and_measurement"]()
    best, found = ([_path(line)[0] for line in _lines(ax, kind)] for kind in ("prediction", "measured"))
    assert best == [(x, BF16.at(x)) for _, x, _ in MEASURED]
    assert found == [(x, rate) for _, x, rate in MEASURED]
    words = {text.get_text() for text in ax.texts}
    assert {"A\nefficiency 92%", "B\nefficiency 55%", "C\nefficiency 35%", "D\nefficiency 78%"} <= words


def test_gaps_are_eight_and_seventy_five_percent() -> None:
    words = {text.get_text() for text in FIGURES["distance_to_roof"]().texts}
    assert {"8% gap", "75% gap", "add\nmemory-bound, efficiency 92%", "mm\ncompute-bound, efficiency 25%"} <= words


def test_the_hierarchy_has_a_slope_a_level_and_a_zone_between_each_pair() -> None:
    ax = FIGURES["hierarchy"]()
    ends = {_path(line)[-1] for line in _lines(ax, "slant")}
    # Ridges at 2307 / 7.2 = 320 and 2307 / 150 = 15 FLOP/B.
    assert ends == {(V7X.ridge("matrix/bf16", level), V7X.rate("matrix/bf16")) for level in ("hbm", "vmem")}
    assert [patch.get_gid() for patch in ax.patches] == ["zone-1"]
    # At 50 FLOP/B memory allows 360 TFLOP/s; 3.5 times that is 1260.
    assert {"HBM roofline: 360 TFLOP/s", "well tiled: 1.26 PFLOP/s\n3.5x the HBM roofline"} <= {text.get_text() for text in ax.texts}


def test_communication_lowers_the_roof_by_its_share() -> None:
    roofs = [_path(line) for line in _lines(FIGURES["communication"](), "roof")]
    peak = V7X.rate("matrix/bf16")
    assert [path[-1][1] for path in roofs] == pytest.approx([peak, 0.8 * peak, 0.6 * peak, 0.4 * peak])
    # Slope and flat fall together, so the ridge stays.
    assert [path[1][0] for path in roofs] == pytest.approx([BF16.ridge] * 4)


def test_ceilings_lie_inside_the_roof() -> None:
    lower = _lines(FIGURES["ceilings"](), "ceiling")
    assert {line.get_label() for line in lower} == {"no FMA", "sustained", "uncoalesced"}
    assert all(y <= BF16.at(x) * 1.000001 for line in lower for x, y in _path(line))
    with pytest.raises(UsageError, match="has no lower ceiling"):
        plot.ceilings(V6E)


def test_bars_are_as_long_as_the_times_and_bounds_stand_at_their_ends() -> None:
    # 50 FLOP at 100 FLOP/s is 0.5 s, 10 B at 10 B/s is 1 s: T_min 1 s, T_max 1.5 s.
    ax = plot.time_bars({"op": place(Cost.of({"matrix/bf16": 50, "hbm": 10}), toy(), time_s=2.0)})
    assert [bar.get_width() for bar in ax.patches] == [1.0, 0.5]
    assert [_path(_lines(ax, kind)[0])[0][0] for kind in ("floor", "serial", "measured")] == [1.0, 1.5, 2.0]
    assert ax.get_xlim()[0] == 0
    with pytest.raises(UsageError, match="nothing to draw"):
        plot.time_bars({"idle": place(Cost(), toy())})


def test_the_chart_of_a_report_has_dots_a_strip_roofs_and_coverage() -> None:
    report = _report(25)
    ax = plot.roofline_chart(report)
    (dots,) = (found for found in ax.collections if (found.get_gid() or "").startswith("dots"))
    timed = [op for op in report.ops if op.flops and op.time_s]
    assert len(dots.get_offsets()) == len(timed)
    assert {(float(x), float(y)) for x, y in dots.get_offsets()} == {(op.intensity, op.flops / op.time_s) for op in timed}
    (strip,) = ax.child_axes
    assert strip.get_ylabel() == "fraction of bandwidth"
    words = " ".join(text.get_text() for text in _texts(ax))
    assert "98% of busy time is matched to ops; 93% of it has a known cost" in words
    assert "memory-bound (hbm)" in words


def _table(*ops: Op) -> Report:
    return analyze(Recording(workload=Workload(ops), format="table"), V7X)


def test_ops_beyond_the_axes_are_pointed_to_from_the_edge() -> None:
    large = Op(name="large", time_s=1.0, cost=Cost.of({"matrix/bf16": 1e14, "hbm": 1e11}))
    tiny = Op(name="tiny", time_s=1e-4, cost=Cost.of({"vector/fp32": 1.0, "hbm": 1e6}))
    ax = plot.roofline_chart(_table(large, tiny))
    (pointer,) = _lines(ax, "pointer")
    ((x, y),) = _path(pointer)
    low, _ = ax.get_xlim()
    assert x == pytest.approx(low), "at the left edge"
    assert ax.get_ylim()[0] <= y
    assert "At the edge: 1 op (0.01% of time) beyond the axes." in [text.get_text() for text in _texts(ax)]
    assert _faults(ax) == []


def test_crowded_ops_without_flop_are_numbered_once_a_name() -> None:
    copies = [
        Op(name=name, time_s=1e-3 * (1 + 0.001 * number), cost=Cost.of({"hbm": 5e9}))
        for number in range(40)
        for name in ("copy of weights", "copy of states")
    ]
    ax = plot.roofline_chart(_table(*copies))
    (caption,) = [text.get_text() for text in _texts(ax) if "copy of" in text.get_text()]
    key = [line for line in caption.splitlines() if "copy of" in line]
    assert [line.split(": ")[0] for line in key] == ["1  copy of weights", "2  copy of states"]
    assert all("40 ops, 50% of time" in line for line in key)
    assert _faults(ax) == []


def test_areas_are_as_times() -> None:
    chip = toy()
    ops = tuple(Op(name=str(time), cost=Cost.of({"matrix/bf16": 50, "hbm": 10}), time_s=time) for time in (40.0, 10.0))
    ax = plot.roofline_chart(analyze(Recording(workload=Workload(ops), format="table"), chip))
    (dots,) = (found for found in ax.collections if (found.get_gid() or "").startswith("dots"))
    assert dots.get_sizes()[0] == pytest.approx(4 * dots.get_sizes()[1])


@every("name", ["$x_1$ & <b>", "日本語カーネル", "_hidden", "two\nlines\tand tabs", "", "%d{}\\frac{1}{2}"])
def test_names_from_other_programs_are_drawn_as_they_are(name: str) -> None:
    op = Op(name=name, cost=Cost.of({"matrix/bf16": 50, "hbm": 10}), time_s=2.0, category=name)
    ax = plot.roofline_chart(analyze(Recording(workload=Workload((op,)), format="table"), toy()))
    assert _faults(ax) == []
    assert all(not text.get_parse_math() for text in ax.texts)


@every("theme", [LIGHT, DARK])
def test_text_and_lines_stand_out_from_the_paper(theme: Theme) -> None:
    papers = [theme.background, *(mixed(theme.background, colour, theme.shade) for colour in theme.series)]
    assert all(contrast(text, paper) >= 4.5 for text in (theme.ink, theme.muted) for paper in papers)
    assert all(contrast(colour, theme.background) >= 3 for colour in (*theme.series, theme.muted))
    for colour in theme.series:
        assert contrast(theme.lettering(colour), mixed(theme.background, colour, theme.shade)) >= 4.5


def test_contrast_is_that_of_wcag() -> None:
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21)
    assert contrast("#777777", "#777777") == 1
    assert contrast("#767676", "#FFFFFF") == pytest.approx(4.54, abs=0.01)


# Machado, Oliveira and Fernandes 2009, full severity, on linear RGB.
BLINDNESS = {
    "none": np.eye(3),
    "protanopia": np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]),
    "deuteranopia": np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]),
    "tritanopia": np.array([[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]),
}


def _lab(colour: str, seen: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of a colour as seen."""
    channels = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    linear = np.clip(seen @ np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4), 0, 1)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ linear / np.array([0.9505, 1, 1.089])
    cube = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * cube[1] - 16, 500 * (cube[0] - cube[1]), 200 * (cube[1] - cube[2])])


@every("kind", BLINDNESS)
@every("theme", [LIGHT, DARK])
def test_series_stay_apart_for_colour_blind_readers(theme: Theme, kind: str) -> None:
    # A difference of 2 to 3 is just noticeable; 15 is plain at a glance.
    for one, other in itertools.combinations(theme.series, 2):
        assert np.linalg.norm(_lab(one, BLINDNESS[kind]) - _lab(other, BLINDNESS[kind])) > 15


def test_drawing_leaves_global_state_alone() -> None:
    before = dict(matplotlib.rcParams)
    for name in ("anatomy", "roofline_chart", "time_bars"):
        FIGURES[name](theme="dark")
        assert dict(matplotlib.rcParams) == before, name


WILD = {
    "font.size": 22, "font.family": "serif", "lines.linewidth": 9, "lines.marker": "x", "axes.grid": True, "xtick.top": True,
    "legend.frameon": True, "legend.handleheight": 3, "text.color": "red", "axes.axisbelow": False, "savefig.bbox": "tight",
    "savefig.transparent": True, "savefig.facecolor": "red", "figure.autolayout": True, "patch.force_edgecolor": True,
    "svg.fonttype": "none", "svg.hashsalt": "other", "axes.facecolor": "black", "axes.titlelocation": "right",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_the_same_bytes_every_time_whatever_the_user_has_set(name: str, tmp_path: FilePath) -> None:
    first = plot.save(FIGURES[name](), tmp_path / "first.svg").read_bytes()
    with matplotlib.rc_context(WILD):
        second = plot.save(FIGURES[name](), tmp_path / "second.svg").read_bytes()
    assert first == second
    assert b"<dc:date>" not in first
    assert b"<text" not in first  # letters are outlines, so no reader needs the typeface


@pytest.mark.parametrize(("suffix", "magic"), [("svg", b"<?xml"), ("png", b"\x89PNG"), ("PDF", b"%PDF")])
def test_the_extension_picks_the_format(suffix: str, magic: bytes, tmp_path: FilePath) -> None:
    written = plot.save(plot.anatomy(V7X).figure, tmp_path / f"figure.{suffix}")
    assert written.read_bytes().startswith(magic)


def test_a_format_we_do_not_write_is_refused_in_one_line(tmp_path: FilePath) -> None:
    with pytest.raises(UsageError, match=r"figure\.svgz: no figure format named 'svgz'; did you mean 'svg'\?"):
        plot.save(plot.anatomy(V7X), tmp_path / "figure.svgz")
    with pytest.raises(UsageError, match=r"write one of \.svg, \.png, \.pdf"):
        plot.save(plot.anatomy(V7X), tmp_path / "figure")
    with pytest.raises(OutputError, match="cannot write"):
        plot.save(plot.anatomy(V7X), tmp_path / "no folder" / "figure.svg")


def test_requests_that_make_no_sense_are_refused() -> None:
    for draw, words in (
        (lambda: plot.anatomy(V7X, theme="drak"), "did you mean 'dark'"),
        (lambda: plot.rooflines([]), "no roofline to draw"),
        (lambda: plot.rooflines([V7X], [("bad", -1.0)]), "cannot draw a point"),
        (lambda: plot.fusion_path(V7X, []), "give scenarios"),
        (lambda: plot.prediction_and_measurement(V7X, []), "no measured point"),
        (lambda: plot.intensity_against_size({}, CHIPS), "give a curve and a ridge"),
        (lambda: plot.intensity_against_size({"one": [(1, 1)]}, CHIPS), "two or more \\(size, intensity\\) samples"),
        (lambda: plot.hierarchy(V7X, []), "no memory level to draw"),
    ):
        with pytest.raises(UsageError, match=words):
            draw()


def test_a_sweep_shows_each_pattern_and_the_levels_that_were_found() -> None:
    ax = FIGURES["sweep_chart"]()
    kinds = [str(line.get_gid()).rstrip("0123456789-") for line in ax.lines]
    assert sum(kind.startswith("sweep") for kind in kinds) == 4  # read, write, copy, read per core
    assert {text.get_text().partition(" ")[0] for text in _texts(ax)} >= {"l1", "l2", "hbm"}
