"""The JSON contract: what every command writes is what the schema in the package says, and it reads back."""

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest
from msgspec.structs import replace

import roofline as rl
from every import every
from roofline.cli import main
from roofline.cost import NOTHING, Cost
from roofline.render.export import to_json
from roofline.render.schema import report_schema
from roofline.report import SCHEMA, Step
from roofline.rules.words import rule_kinds
from roofline.sources.report_json import read_report
from roofline.workload import Avoidable, Op, Recording, Saves, Usual, Workload

PACKAGE = Path(rl.__file__).parent
SAMPLE = PACKAGE / "samples" / "gpt_training_h200.csv"


def test_the_schema_in_the_package_is_the_one_the_types_give() -> None:
    written = json.loads((PACKAGE / "report.schema.json").read_text())
    assert written == report_schema(), "write it again: make schema"


COMMANDS = [
    ["op", "matmul", "512", "512", "512", "--chip", "v5e"],
    ["op", "all_reduce", "1e9", "--over", "8", "--chip", "v5p"],
    ["op", "layernorm", "65536", "4096", "--chip", "v7x"],
    ["op", "--flops", "2e12", "--bytes", "3e9", "--time", "5ms", "--chip", "h100"],
    ["op", "--bytes", "3e9", "--chip", "h100"],
    ["analyze", str(SAMPLE), "--chip", "h200"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: " ".join(Path(word).name for word in words))
def test_every_report_follows_the_schema(command: list[str], tmp_path: Path) -> None:
    assert main([*command, "--json", str(tmp_path / "report.json")]) == 0
    report = json.loads((tmp_path / "report.json").read_text())
    jsonschema.validate(report, report_schema())
    assert report["schema"] == SCHEMA
    assert next(iter(report)) == "schema"


def test_a_report_reads_back_to_the_same_value(tmp_path: Path) -> None:
    report = rl.analyze(rl.read(SAMPLE), rl.chip("h200"))
    (tmp_path / "report.json").write_bytes(to_json(report))
    assert read_report(tmp_path / "report.json") == report


@pytest.mark.parametrize("command", [*COMMANDS, ["analyze", "sample:train"]], ids=lambda words: " ".join(Path(word).name for word in words))
def test_a_report_that_is_read_and_written_again_is_the_same_bytes(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "report.json", tmp_path / "again.json"
    assert main([*command, "--json", str(first)]) == 0
    capsys.readouterr()
    assert main(["analyze", str(first), "--json", str(second)]) == 0
    assert second.read_bytes() == first.read_bytes()
    assert rl.to_json(rl.analyze(first)) == first.read_bytes()


def test_a_report_from_before_figures_were_called_quoted_still_reads(tmp_path: Path) -> None:
    old = to_json(rl.price([rl.formulas.matmul(8, 8, 8)], rl.chip("h100-sxm"))).replace(b'"quoted"', b'"datasheet"')
    (tmp_path / "old.json").write_bytes(old)
    assert {ceiling.provenance for ceiling in read_report(tmp_path / "old.json").machine.ceilings} >= {"datasheet", "derived"}
    assert rl.to_json(rl.analyze(tmp_path / "old.json")) == old


def test_a_report_can_be_held_against_another_machine(tmp_path: Path) -> None:
    report = rl.analyze(rl.read(SAMPLE), rl.chip("h200"))
    (tmp_path / "report.json").write_bytes(to_json(report))
    again = rl.analyze(rl.read(tmp_path / "report.json"), rl.chip("b200"))
    assert again.machine.name == "b200"
    assert [op.flops for op in again.ops] == [op.flops for op in report.ops]
    assert again.points[0].floor_s < report.points[0].floor_s  # a faster chip


def test_ranks_are_by_time_and_ids_by_row() -> None:
    report = rl.analyze(rl.read(SAMPLE), rl.chip("h200"))
    assert [op.rank for op in report.ops] == list(range(1, len(report.ops) + 1))
    assert sorted(op.id for op in report.ops) == list(range(len(report.ops)))
    times = [op.time_s for op in report.ops]
    assert times == sorted(times, reverse=True)


def test_unknown_is_null_and_not_zero(tmp_path: Path) -> None:
    table = tmp_path / "ops.csv"
    table.write_text("name,time,bytes\nx,1 ms,1 GB\n")
    report = json.loads(to_json(rl.analyze(rl.read(table), rl.chip("h100"))))
    assert report["ops"][0]["flops"] is None
    assert report["ops"][0]["intensity"] is None
    assert report["coverage"]["priced_s"] == 0
    assert "unknown" in [finding["kind"] for finding in report["findings"]]


def test_large_integers_stay_exact_where_json_can_hold_them() -> None:
    report = json.loads(to_json(rl.price([rl.formulas.matmul(2048, 2048, 2048)], rl.chip("v5e"))))
    assert report["ops"][0]["flops"] == 17_179_869_184
    assert report["ops"][0]["bytes"]["hbm"] == 25_165_824
    assert sum(row["bytes"] for row in report["ops"][0]["ledger"]) == report["ops"][0]["bytes"]["hbm"]


def test_something_that_is_not_a_report_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text('{"schema": "roofline.report/1", "input": 3}')
    with pytest.raises(rl.SourceError, match="not a roofline report"):
        rl.read(path)
    path.write_text('{"schema": "roofline.report/9", "input": {"format": "x"}, "machine": {"name": "x", "ceilings": []}}')
    with pytest.raises(rl.SourceError, match="this version reads"):
        rl.read(path)


def test_the_known_part_of_an_unknown_amount_is_kept(tmp_path: Path) -> None:
    # 30 FLOP are known and some more are not: the amount is unknown, and its minimum time is that of the 30.
    toy = rl.Machine.of("toy", {"vector/fp32": 20, "hbm": 10})
    cost = rl.Cost.of({"vector/fp32": 30, "hbm": 5}) + rl.Cost.of({"vector/fp32": None})
    report = rl.analyze(Recording(workload=Workload((Op(name="x", cost=cost),)), format="table"), toy)
    for one in (report.ops[0], report.points[0]):
        assert (one.work, one.known, one.floor_s) == ({"vector/fp32": None}, {"vector/fp32": 30}, 1.5)
    (tmp_path / "report.json").write_bytes(to_json(report))
    assert rl.analyze(rl.read(tmp_path / "report.json"), toy).ops[0].floor_s == 1.5


@every(
    ("step", "title"),
    [
        (Step(step=2, name="train"), "2 train"),
        (Step(step=2, name="train", number=2), "2 train"),
        (Step(step=0, name="ProfilerStep", number=2), "0 (ProfilerStep 2)"),  # --only step= takes 0; the program calls it 2
        (Step(step=1, number=3), "1 (3)"),
        (Step(step=1), "1"),
        (Step(step=1, name="step"), "1"),  # not "step 1 step"
        (Step(step=1, name="step", number=3), "1 (step 3)"),
    ],
)
def test_a_step_is_titled_by_its_key_and_its_name_in_the_program(step: Step, title: str) -> None:
    assert step.title == title
    earlier = {key: value for key, value in msgspec.to_builtins(step).items() if key != "title"}  # reports written before had none
    assert msgspec.convert(earlier, Step).title == title


def test_a_stored_report_keeps_the_findings_of_its_program_on_any_chip(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_bytes(to_json(rl.analyze("sample:train")))
    for chip in ("h200", "h100"):
        again, anew = (rl.analyze(rl.read(path), rl.chip(chip)) for path in (tmp_path / "report.json", "sample:train"))
        told, first = (
            [(finding.kind, finding.ops, finding.levers) for finding in report.findings if finding.kind in rule_kinds()]
            for report in (again, anew)
        )
        assert [kind for kind, *_ in first] == ["stored-attention", "layout-copies"]
        assert told == first
        # Without the program no change is predicted: a saving is then that of the minimum times.
        savings = ([finding.saving_s for finding in report.findings if finding.kind in rule_kinds()] for report in (again, anew))
        assert next(savings) == pytest.approx(next(savings), rel=0.2)
        assert again.points[0].unneeded == anew.points[0].unneeded


def test_avoidable_work_that_this_version_does_not_know_gives_no_finding(tmp_path: Path) -> None:
    layout = Avoidable(kind="layout-copies", instead=NOTHING, why="copies", unneeded="layout", saves=Saves.ALL, usual=Usual.YES, extra=True)
    op = Op(name="copy", cost=Cost.of({"hbm": 1e9}), time_s=1.0, avoidable=(layout,))
    stored = json.loads(to_json(rl.analyze(Recording(workload=Workload((op,)), format="table"), rl.chip("h200"))))
    (tmp_path / "report.json").write_text(json.dumps(stored))
    assert rl.read(tmp_path / "report.json").workload.ops[0].avoidable == (layout,)
    stored["ops"][0]["avoidable"][0] |= {"kind": "../layout", "saves": "otherwise"}
    (tmp_path / "report.json").write_text(json.dumps(stored))
    later = rl.read(tmp_path / "report.json")
    assert later.workload.ops[0].avoidable == (replace(layout, kind="", saves=Saves.IN_PROPORTION),)
    assert "layout-copies" not in {finding.kind for finding in rl.analyze(later, rl.chip("h200")).findings}
