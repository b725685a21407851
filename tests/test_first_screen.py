"""The first screen of a report, in the terminal and as Markdown: the answer, where the time went, what to do, then the ops."""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

import roofline as rl
from every import every
from roofline.cli import main
from roofline.render.program_facts import program_facts
from roofline.render.screen import LINES, _two_lines, fine_line, report_text
from roofline.render.tables import Paper
from roofline.report import Finding, OpInfo
from roofline.units import rounded, show

PROFILES = Path(__file__).parent / "data" / "h200"
PROGRAM = Path(__file__).parent / "data" / "hlo" / "attention.hlo.gz"


def _out(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["analyze", *words]) == 0
    return capsys.readouterr().out


@every("name", ["jax_train.xplane.pb.gz", "jax_fusion.xplane.pb", "jax_scan.xplane.pb.gz", "jax_offload.xplane.pb.gz"])
@every("width", [80, 100, 200])
def test_it_fits_the_terminal_and_100_columns(name: str, width: int) -> None:
    text = report_text(rl.analyze(PROFILES / name), Paper(width=width), top=1000)
    assert max(len(line) for line in text.splitlines()) <= min(width, 100)


@every(
    ("seconds", "averaged", "said"),
    [
        ([2, 3, 1], 3, "3 complete steps of 1 s to 3 s"),
        ([2, 3, 1], 2, "3 complete steps, 2 of them averaged (2 s to 3 s)"),  # nothing follows the last, so its idle time is unknown
        ([2, 1], 1, "2 complete steps, 1 of them averaged"),
        ([2], 1, "1 complete step"),
    ],
)
def test_the_times_of_steps_are_those_that_are_averaged(seconds: list[int], averaged: int, said: str) -> None:
    sample = rl.analyze("sample:train")
    total, average = (next(point for point in sample.points if point.scope == scope) for scope in ("total", "average"))
    steps = tuple(replace(sample.steps[0], step=n, time_s=time_s, followed=n < averaged) for n, time_s in enumerate(seconds))
    points = (total, average, *(replace(average, scope="step", step=n, time_s=time_s) for n, time_s in enumerate(seconds)))
    facts = dict(program_facts(replace(sample, steps=steps, points=points)))
    assert facts["run"].split("; ")[1].startswith(said + ", 8")  # 878.7 µs recorded before the first


def test_what_is_fine_is_said_only_of_ops_that_take_time() -> None:
    ops = tuple(OpInfo(id=n, rank=n, name=str(n), time_s=time, floor_s=time * 0.8) for n, time in enumerate((99.5, 0.5)))
    fine = tuple(Finding(kind=word, title=f"the {word}", message="", ops=(n,)) for n, word in enumerate(("products", "memory")))
    report = replace(rl.analyze("sample:train"), ops=ops, findings=fine)
    assert fine_line(report) == "Only less work helps products (100% of time, at 80% of roof)."
    both = replace(report, ops=tuple(replace(op, time_s=1.0, floor_s=0.6) for op in ops))
    each = "(50% of time, at 60% of roof)"
    assert fine_line(both) == f"Only less work helps products {each} and memory {each}."
    small = replace(both, findings=(fine[0], replace(fine[1], kind="latency", title="the small ones")))
    assert fine_line(small) == f"Only less work helps products {each}. Only fewer launches help small ones {each}."
    far = replace(both, ops=(ops[0], replace(ops[1], time_s=99.5, floor_s=59.0)))
    assert fine_line(far) == (
        "Only less work helps products (50% of time, at 80% of roof). "
        "Only less work or other shapes help memory (50% of time, at 59% of roof)."
    )


@pytest.mark.parametrize(
    ("own_s", "devices", "said"),
    [
        (1.0, 1, ""),
        (0.5, 1, "ops overlap: their times add up to 2 times the busy time"),
        (1.0, 4, "means over 4 devices"),
        (1.0, None, "means over the devices of each host"),
    ],
)
def test_ops_that_overlap_say_so(own_s: float, devices: int | None, said: str) -> None:
    # Two ops of 1 s each; of a half of them another op ran at the same time.
    ops = tuple(OpInfo(id=n, rank=n, name=str(n), time_s=1.0, self_time_s=own_s) for n in range(2))
    facts = dict(program_facts(replace(rl.analyze("sample:train"), ops=ops), devices=devices))
    assert facts["op times"].startswith(said)
    assert bool(facts["op times"]) == bool(said)


def test_time_stalled_by_dma_is_a_share_of_the_busy_time() -> None:
    report = rl.analyze("sample:train")
    assert "stalled" not in {label for label, text in program_facts(report) if text}  # a GPU
    waits = replace(report, coverage=replace(report.coverage, busy_s=10.0, dma_stall_s=9.6))
    assert dict(program_facts(waits))["stalled"] == "96% of busy time by DMA, waiting for asynchronous copies"


def test_unneeded_bytes_are_a_share_of_all_known_bytes() -> None:
    # Of 1,000 bytes that are known, beside an op whose bytes are not, 100 only change a layout; 50 bytes of a cache count as well.
    report = rl.analyze("sample:train")
    ops = (
        OpInfo(id=0, rank=0, name="copy", bytes={"hbm": 100}, needed={}, unneeded={"layout": 100}),
        OpInfo(id=1, rank=1, name="other", bytes={"hbm": None}),
    )
    points = tuple(replace(one, bytes={"hbm": None, "l3": 50}, known={"hbm": 950}) for one in report.points)
    assert dict(program_facts(replace(report, ops=ops, points=points)))["unneeded"] == "layout 10% of bytes"


def test_a_screen_has_28_lines_at_most_and_whole_levers() -> None:
    tpu = PROFILES.parent / "tpu"
    captures = [*PROFILES.glob("*.xplane.pb*"), *PROFILES.glob("torch_*.json.gz"), *tpu.glob("*.hlo*gz"), *tpu.glob("steps/*.hlo.gz")]
    for path in sorted(captures):
        chip = re.search(r"_(v\d\w?)[_.]", path.name)
        report = rl.analyze(path, chip[1] if chip else None)
        lines = report_text(report, Paper(width=100)).splitlines()
        assert len(lines) <= LINES, path.name
        saving = {finding.kind for finding in report.findings if finding.saving_s}
        advice = [lines[place + 2] for place, line in enumerate(lines[:-2]) if line[:1].isdigit() and saving & {*line.split()}]
        assert not [line for line in advice if line.startswith("   ") and line.endswith("…")], path.name


def test_a_paragraph_that_is_too_long_ends_after_a_sentence_or_is_cut_off() -> None:
    paper = Paper(width=24)
    assert _two_lines("one two three four five six seven. Eight nine ten eleven twelve", paper, "", "  ").splitlines() == [
        "one two three four five",
        "  six seven.",
    ]
    assert _two_lines("one two three four five six seven eight nine ten", paper, "", "  ").splitlines()[1] == "  six seven eight nine…"


def test_a_program_without_times_has_minimum_times_and_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    out = _out(capsys, str(PROGRAM), "--chip", "h200")
    assert out.startswith("Minimum time ")
    report = rl.analyze(str(PROGRAM), "h200")
    least = sum(op.floor_s or 0.0 for op in report.ops)  # one after the other, as the page's bar has them
    assert f"Minimum time {show(rounded(least, 3), 's')} on" in out
    assert not re.search(r"^\[", out, re.MULTILINE)
    assert re.search(r"^op +minimum +share +bound +work +hbm$", out, re.MULTILINE)


def test_a_program_without_any_known_cost_says_so_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "ops.csv"
    file.write_text("name,flops,hbm\nkernel,?,?\n")
    assert main(["analyze", str(file), "--chip", "h100-sxm"]) == 0
    (first, *_) = capsys.readouterr().out.splitlines()
    assert first == "The minimum time on one NVIDIA H100 SXM5 80GB is not known: no op has a known cost."


def test_no_rows_are_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["analyze", "sample:train"], ["analyze", "sample:train", "--by", "scope"], ["compare", "sample:train", "sample:train"]):
        assert main([*words, "--top", "0"]) == 0
        text = capsys.readouterr().out
        assert "efficiency  " not in text
        assert "more; show them" not in text


def test_markdown_has_the_same_in_the_same_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "report.md"
    _out(capsys, "sample:train", "-o", str(file), "--top", "3")
    text = file.read_text()
    assert text.startswith("**28.2 ms per step on one NVIDIA H200")
    places = [text.index(said) for said in ("```text\n[####", "\n| 1 | 4 ms | 14% |", "\n| op | time/step |", "\n- chip: ")]
    assert places == sorted(places)
    assert "| `layer*/mlp dot 8192×8192×2048 bf16 bwd ×8` | 2.81 ms |" in text
    assert text.partition("### Ops")[2].count("\n| `") == 3


def test_markdown_has_the_columns_and_groups_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "report.md"
    _out(capsys, "sample:train", "-o", str(file), "--columns", "label,work,minimum", "--top", "2")
    assert "\n| op | work/step | minimum/step |\n" in file.read_text()
    _out(capsys, "sample:train", "-o", str(file), "--by", "category", "--top", "2")
    text = file.read_text()
    assert "### Ops by category\n\n| category | ops |" in text
    assert "\n| `matmul` | 75 | 75 |" in text
    assert re.search(r"\n… and \d+ more\n", text)
