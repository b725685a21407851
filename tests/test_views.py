"""The public door's views of a report: files by extension, figures, text, rows, Markdown, and what a notebook shows."""

import json
import subprocess
import sys
import webbrowser
from pathlib import Path
from urllib.request import urlopen

import matplotlib.pyplot as plt
import pytest

import roofline as rl
from roofline.cost import Cost
from roofline.grouping import group, group_table
from roofline.grouping.folding import table_rows
from roofline.render.op_table import op_cells
from roofline.render.screen import report_text
from roofline.render.text import group_cells
from roofline.report import WrittenOp
from roofline.workload import COUNTED, Op, Recording, Workload
from toys import toy

DATA = Path(__file__).parent / "data"
SAMPLE = "sample:train"
BEGINNINGS = {
    "html": b"<!doctype html>",
    "json": b'{\n "schema": "roofline.report/1"',
    "csv": b"id,rank,label,name,",
    "parquet": b"PAR1",
    "md": b"**28.2 ms per step on one NVIDIA H200",
    "txt": b"28.2 ms per step on one NVIDIA H200",
    "svg": b"<?xml",
    "png": b"\x89PNG",
    "pdf": b"%PDF",
}


@pytest.fixture(scope="module")
def report() -> rl.Report:
    return rl.analyze(SAMPLE)


@pytest.mark.parametrize("kind", BEGINNINGS)
def test_the_extension_says_as_what_a_report_is_saved(kind: str, report: rl.Report, tmp_path: Path) -> None:
    written = rl.save(report, tmp_path / f"report.{kind}")
    assert written.read_bytes().lower().startswith(BEGINNINGS[kind].lower())


def test_json_is_what_the_command_writes(report: rl.Report, tmp_path: Path) -> None:
    assert rl.save(report, tmp_path / "report.json").read_bytes() == rl.to_json(report)
    assert len(json.loads(rl.to_json(report))["ops"]) == len(report.ops)


def test_an_unknown_extension_and_a_missing_folder_are_one_line(report: rl.Report, tmp_path: Path) -> None:
    with pytest.raises(rl.UsageError, match=r"no format named 'htm'; did you mean 'html'\?"):
        rl.save(report, tmp_path / "report.htm")
    with pytest.raises(rl.OutputError, match="cannot write"):
        rl.save(report, tmp_path / "no" / "report.json")


def test_plot_draws_on_the_given_axes(report: rl.Report) -> None:
    figure, ax = plt.subplots()
    assert rl.plot(report, ax) is ax
    plt.close(figure)


def test_printing_a_report_is_a_short_summary(report: rl.Report) -> None:
    lines = str(report).splitlines()
    assert lines[0] == "sample:train on h200-sxm, 231 ops"
    assert "\n".join(lines[1:3]) == report.summary
    assert lines[1].startswith("28.2 ms per step on one NVIDIA H200")
    assert len(lines) == 6  # and three findings
    assert repr(report) == "<Report: sample:train on h200-sxm, 231 ops>"


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames_take_the_rows_of_a_report(library: str, report: rl.Report) -> None:
    frame = pytest.importorskip(library).DataFrame(report.ops)
    assert list(frame.columns) == list(WrittenOp.__struct_fields__)
    assert list(frame["time_s"]) == [op.time_s for op in report.ops]
    assert frame["work"][0]["matrix/bf16"] == report.ops[0].work["matrix/bf16"]
    assert len(pytest.importorskip(library).DataFrame(report.findings)) == len(report.findings)


def test_markdown_shows_names_as_they_are() -> None:
    hostile = Op(name="a|b_c*<script>\n# x", cost=Cost.of({"matrix/bf16": 50, "hbm": 10}), time_s=2.0)
    report = rl.analyze(Recording(workload=Workload((hostile,)), format="table"), toy())
    from roofline.render.markdown import to_markdown

    row = next(line for line in to_markdown(report).splitlines() if line.startswith("| a"))
    assert row.startswith(r"| a\|b\_c\*\<script\> \# x | ")
    assert row.replace(r"\|", "").count("|") == 7  # six cells


def test_an_upper_bound_is_shown_as_one_and_never_above_the_roof() -> None:
    # 30 B and 7.2 B at 10 B/s: minimum times of 3 s and 0.72 s, for costs that are at most that.
    upper = ("upper bound: the grid's blocks",)
    ops = [Op(name=name, category=name, cost=Cost.of({"hbm": amount}), time_s=1.0, notes=upper) for name, amount in (("a", 30), ("b", 7.2))]
    exact = Op(name="c", category="c", cost=Cost.of({"hbm": 30}), time_s=1.0)
    report = rl.analyze(Recording(workload=Workload((*ops, exact)), format="table"), toy())
    written = ["≤ 100%", "≤ 72%", "300%"]
    cells = op_cells(report, table_rows(report), ["name", "efficiency"], top=3)
    assert sorted((row[0], row[1].text) for row in cells) == [*zip("abc", written, strict=True)]  # as text and in Markdown
    groups = group_cells(group_table("category", group(report.ops, "category"), 3.0), 3)[1]
    assert sorted((row[0], row[-1].text) for row in groups) == [*zip("abc", written, strict=True)]
    assert [op.efficiency for op in report.ops] == pytest.approx([3.0, 0.72, 3.0])


def test_a_path_a_list_and_a_recording_give_the_same_report() -> None:
    path = DATA / "h200" / "jax_fusion.xplane.pb"
    whole = rl.analyze(path)
    assert rl.analyze([str(path)]) == whole == rl.analyze(rl.read(path))
    assert whole.machine.name == "h200-sxm"  # the profile's own device


def test_a_program_without_a_chip_is_analysed_for_the_default_and_says_so() -> None:
    report = rl.analyze(DATA / "hlo" / "attention.hlo.gz")
    assert "no chip given: using h100-sxm" in report.machine.notes


def test_show_opens_the_page_in_a_browser(report: rl.Report, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    rl.show(report)
    with urlopen(opened[0]) as page:  # a folder's name may have letters that an address does not
        assert page.read().startswith(b"<!doctype html>")


@pytest.mark.slow
def test_ipython_shows_a_report_as_its_page() -> None:
    pytest.importorskip("IPython")
    program = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
import roofline as rl
report = rl.price([rl.formulas.matmul(64, 64, 64)], rl.chip("v5e"))
data, _ = shell.display_formatter.format(report)
print("iframe" in data["text/html"], "matmul" in data["text/plain"])
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.split() == ["True", "True"], run.stderr


def test_caveats_of_ops_reach_the_terminal_and_how_they_were_counted_does_not() -> None:
    notes = ("trip count of while.3 unknown: counted once; give it with --trips while.3=N", f"{COUNTED}as one op from start to done")
    op = Op(name="copy", cost=Cost.of({"hbm": 10}), time_s=2.0, notes=notes)
    report = rl.analyze(Recording(workload=Workload((op,)), format="table"), toy())
    text = report_text(report)
    assert "note: copy: trip count of while.3 unknown" in text
    assert "from start to done" not in text
    assert report.ops[0].notes == notes  # JSON and the page have both
