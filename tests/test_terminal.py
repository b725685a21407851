"""The chart as text: dots stand in the cells of their numbers, nothing is wider than asked, and no report is too odd for it."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from every import every
from roofline.analysis import analyze
from roofline.cli import main
from roofline.cost import Cost
from roofline.machine import Machine
from roofline.machines.detection import of_device
from roofline.render.chart import chart
from roofline.render.tables import Paper
from roofline.render.terminal import ASCII, BRAILLE, NARROWEST, WIDEST, Canvas, chart_text
from roofline.report import Report
from roofline.sources import read
from roofline.workload import Op, Recording, Workload
from toys import toy

DATA = Path(__file__).parent / "data" / "h200"
PAINT = re.compile(r"\x1b\[[\d;]*m")


def _report(*ops: Op, machine: Machine | None = None) -> Report:
    return analyze(Recording(workload=Workload(ops), format="table"), machine or toy())


def _op(name: str, time_s: float | None, **amounts: float | None) -> Op:
    return Op(name=name, cost=Cost.of({key.replace("__", "/"): amount for key, amount in amounts.items()}), time_s=time_s)


def _rows(text: str) -> list[str]:
    """What stands right of the upright axis, row by row from the top."""
    lines = text.splitlines()[2:]
    end = next(number for number, line in enumerate(lines) if "+-" in line or "└" in line)
    rows = [re.split(r"[|+│┤]", line)[-1] for line in lines[:end]]
    return [re.sub(r"(matrix bf16|vector fp32|HBM) [\d.]+ \w+/s", lambda name: " " * len(name[0]), row) for row in rows]


def _where(text: str, mark: str) -> tuple[int, int]:
    (found,) = [(row, line.index(mark)) for row, line in enumerate(_rows(text)) if mark in line]
    return found


def test_an_op_stands_in_the_cell_of_its_intensity_and_rate() -> None:
    report = _report(_op("a", 2.0, matrix__bf16=50, hbm=10), _op("b", 1.0, matrix__bf16=80, hbm=1))
    text = chart_text(report, Paper(80), glyphs=ASCII)
    extent, rows = chart(report).extent, _rows(text)
    columns = 80 - len("FLOP/s") - 1  # the rest is the axis with its numbers
    for mark, intensity, rate in (("1", 5.0, 25.0), ("2", 80.0, 80.0)):
        across, along = extent.unit(intensity, rate)
        assert _where(text, mark) == (int((1 - along) * len(rows)), int(across * columns))


def test_an_op_on_its_roof_stands_on_the_line_and_a_slower_one_below_it() -> None:
    # At 5 FLOP/B memory allows 50 FLOP/s: 1 s for 50 FLOP is on the slope, 10 s a decade below it.
    on, below = (_report(_op("a", seconds, matrix__bf16=50, hbm=10)) for seconds in (1.0, 10.0))
    on_rows, below_rows = (_rows(chart_text(report, Paper(100), glyphs=ASCII)) for report in (on, below))
    assert re.search(r"/1|1/", next(row for row in on_rows if "1" in row))
    assert not re.search(r"/1|1/", next(row for row in below_rows if "1" in row))


def test_the_ridge_is_where_slope_and_flat_meet() -> None:
    report = _report(_op("a", 2.0, matrix__bf16=50, hbm=10))
    canvas = Canvas(60, 20, chart(report).extent)
    canvas.draw(chart(report).roofs[0].polyline(canvas.extent), ASCII)
    row, column = canvas.cell(10.0, 100.0)
    assert canvas.lines[row, column] in ("/", "-")
    assert canvas.lines[row, column + 3] == "-"
    assert (row, column - 8) not in canvas.lines
    assert any((below, column - 8) in canvas.lines for below in range(row + 1, 20))


def test_ops_without_flop_stand_in_the_strip_at_their_share_of_bandwidth() -> None:
    # 10 B at 10 B/s take 1 s at best; 4 s were measured: a quarter of the bandwidth.
    text = chart_text(_report(_op("copy", 4.0, hbm=10), _op("mm", 2.0, matrix__bf16=50, hbm=10)), Paper(80), glyphs=ASCII)
    (line,) = [line for line in text.splitlines() if re.match(r"\s*\d*%?[|+]1", line)]
    assert line.startswith(" 25%+1")
    assert "no FLOP" in text
    assert "fraction of bandwidth" in text


def test_marks_are_the_rows_of_the_table_and_the_key_says_who_stands_behind_whom() -> None:
    same = [_op(f"same{number}", 4.0 - number, matrix__bf16=50 * (4 - number), hbm=10 * (4 - number)) for number in range(2)]
    text = chart_text(_report(*same, _op("unknown", 3.5, matrix__bf16=None, hbm=1)), Paper(80))
    assert re.search(r"^1 +same0", text, re.MULTILINE)
    # Row 2 of the table is the op of unknown work, which has no place on the chart; row 3 stands where row 1 does.
    assert re.search(r"^3→1 +same1", text, re.MULTILINE)
    assert "unknown" not in [line.split()[1] for line in text.splitlines() if line.startswith(("1", "2", "3"))]
    assert "3→1: 3 is behind 1." in text
    assert "Not drawn: 1 op with unknown work." in text


def test_shares_in_the_key_are_those_of_the_table_also_where_ops_overlap_or_are_filtered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "ops.csv"
    # 3 s and 1 s of the run are those of a and b alone: times of overlapping ops add up to more.
    file.write_text("name,category,flops,hbm,time,self_time\na,dot,50,10,4 s,3 s\nb,add,50,10,4 s,1 s\n")
    for words in ([], ["--filter", "category=dot"]):
        assert main(["analyze", str(file), "--chip", "h100", "--chart", *words]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[2] for line in lines if re.match(r"1 +a ", line)] == ["75%"]
        assert [line.split()[3] for line in lines if line.startswith("a  ")] == ["75%"]


def test_roofs_axes_and_units_are_named() -> None:
    text = chart_text(_report(_op("a", 2.0, matrix__bf16=50, hbm=10)), Paper(100))
    for word in ("matrix bf16 100 FLOP/s", "HBM 10 B/s", "FLOP/B of HBM", "toy, over HBM", "whole program"):
        assert word in text
    assert text.splitlines()[1].strip() == "FLOP/s"


def test_colour_follows_what_binds_and_only_on_paper_that_takes_it() -> None:
    report = _report(_op("memory", 2.0, matrix__bf16=50, hbm=10), _op("compute", 1.0, matrix__bf16=80, hbm=1))
    plain, painted = chart_text(report, Paper(80)), chart_text(report, Paper(80, colour=True))
    assert "\x1b" not in plain
    assert PAINT.sub("", painted) == plain
    assert "\x1b[33m1\x1b[0m" in painted
    assert "\x1b[36m2\x1b[0m" in painted


def test_a_machine_without_a_roof_has_no_chart_and_the_text_says_why() -> None:
    memory = Machine.of("memory", {"hbm": 10})
    assert chart_text(_report(_op("copy", 4.0, hbm=10), machine=memory), Paper(80)).startswith("no chart: memory has no known compute rate")


def test_a_report_without_ops_still_shows_its_roof() -> None:
    text = chart_text(_report(), Paper(60))
    assert "matrix bf16" in text
    assert all(len(line) <= 60 for line in text.splitlines())


@every("name", ["jax_train.xplane.pb.gz", "jax_fusion.xplane.pb", "jax_scan.xplane.pb.gz", "jax_offload.xplane.pb.gz"])
@every("width", [40, 72, 100, 200])
def test_real_captures_fit_any_terminal(name: str, width: int) -> None:
    recording = read(DATA / name)
    report = analyze(recording, of_device(recording.devices[0]))
    drawn = chart(report)
    for glyphs in (BRAILLE, ASCII):
        text = chart_text(report, Paper(width), glyphs=glyphs)
        assert max(map(len, text.splitlines())) <= width
        # The op that takes the most time has the first mark, on the chart or in the strip.
        if any(mark.op == report.ops[0].id for mark in drawn.marks):
            assert re.search(rf"^1 +{re.escape(report.ops[0].label[:3])}", text, re.MULTILINE)


numbers = st.none() | st.floats(min_value=1e-30, max_value=1e30) | st.just(0.0)
operations = st.builds(
    lambda name, time_s, flops, moved, sent: _op(name, time_s, matrix__bf16=flops, hbm=moved, ici=sent),
    st.text(max_size=60),
    st.none() | st.floats(min_value=1e-15, max_value=1e15),
    numbers,
    numbers,
    numbers,
)


@given(st.lists(operations, max_size=20), st.integers(0, 300), st.booleans(), st.integers(0, 60))
def test_no_report_is_too_odd_and_no_line_too_wide(ops: list[Op], width: int, colour: bool, numbered: int) -> None:
    report = _report(*ops)
    for glyphs in (BRAILLE, ASCII):
        text = PAINT.sub("", chart_text(report, Paper(width, colour), numbered=numbered, glyphs=glyphs))
        assert max(map(len, text.splitlines())) <= min(max(width, NARROWEST), WIDEST)


def test_the_command_draws_what_is_shown_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(DATA / "jax_fusion.xplane.pb")
    assert main(["analyze", path]) == 0
    assert "FLOP/B of HBM" not in capsys.readouterr().out
    assert main(["analyze", path, "--chart", "--filter", "name:loop_multiply"]) == 0
    out = capsys.readouterr().out
    assert "FLOP/B of HBM" in out
    assert re.search(r"^1 +jax_programs.py:\d+  mul bf16", out, re.MULTILINE)
    assert out.index("FLOP/B of HBM") < out.index("saves  share")  # under the sentence and the bar
    assert not re.search(r"^2 +jax_programs", out, re.MULTILINE)
    assert main(["analyze", path, "--ascii"]) == 0
    assert "⠤" not in (ascii_chart := capsys.readouterr().out)
    assert "FLOP/B of HBM" in ascii_chart
