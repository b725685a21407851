"""Reports without infeed and outfeed: points, ops, findings, first sentence and table follow; JSON keeps everything."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from roofline.analysis import analyze
from roofline.analysis.without_feeds import without_feeds
from roofline.cli import main
from roofline.cost import Cost
from roofline.grouping import parts_table
from roofline.report import Report
from roofline.workload import Coverage, Device, Op, Recording, Share, Step, Workload
from toys import toy

CHIP = replace(toy(), name="toy").override({"pcie": 1.0})  # 10 B/s of memory, 100 FLOP/s, a bus of 1 B/s


def recording() -> Recording:
    """Two steps of 12 s: 4 s of infeed, 4 s of a product at its roof, 2 s of a copy to the host, 2 s idle."""

    def op(name: str, category: str, time_s: float, **cost: float) -> Op:
        shares = tuple(Share(key=key, count=1, time_s=time_s) for key in (0, 1))
        amounts = Cost.of({resource.replace("_", "/"): 2 * amount for resource, amount in cost.items()})
        return Op(name=name, category=category, cost=amounts, count=2, time_s=2 * time_s, self_time_s=2 * time_s, by_step=shares)

    ops = (
        op("infeed.1", "infeed", 4.0, pcie=3),
        op("dot.1", "matmul", 4.0, matrix_bf16=400, hbm=1),
        op("copy.1", "host transfer", 2.0, pcie=1),
    )
    steps = tuple(Step(step=key, time_s=12.0, busy_s=10.0, span_s=12.0) for key in (0, 1))
    cover = Coverage(wall_s=24.0, busy_s=20.0, attributed_s=20.0, priced_s=20.0)
    return Recording(workload=Workload(ops), format="xspace", steps=steps, coverage=cover, devices=(Device(id=0, name="toy"),))


def without() -> Report:
    return without_feeds(analyze(recording(), CHIP), recording(), CHIP)


def test_the_first_sentence_is_of_the_time_without_them() -> None:
    assert analyze(recording(), CHIP).summary.startswith("12 s per step on one ")
    assert without().summary.startswith("8 s per step without infeed and outfeed on one ")  # 12 − 4


def test_the_points_are_those_without_them() -> None:
    points = {point.scope: point for point in without().points}
    assert points["average"].time_s == 8.0
    assert points["average"].bytes == {"hbm": 1, "pcie": 1}
    assert not any(point.infeed_outfeed for point in points.values())


def test_findings_are_computed_without_them_and_name_the_same_ops() -> None:
    whole = analyze(recording(), CHIP)
    (copies,) = [finding for finding in whole.findings if finding.kind == "host-copies"]
    assert (copies.ops, copies.saving_per_step_s) == ((0, 2), 6.0)  # 4 s of infeed and 2 s of the copy
    (left,) = [finding for finding in without().findings if finding.kind == "host-copies"]
    assert (left.ops, left.saving_per_step_s) == ((2,), 2.0)
    assert [op.name for op in whole.ops if op.id in left.ops] == ["copy.1"]


def test_of_a_report_alone_findings_about_them_are_left_out_and_a_note_says_so() -> None:
    alone = without_feeds(analyze(recording(), CHIP))
    assert not any(finding.kind == "host-copies" for finding in alone.findings)
    assert alone.input.notes[-1].startswith("left out: 1 finding about infeed or outfeed together with other ops")
    assert [point.time_s for point in alone.points] == [point.time_s for point in without().points]


def test_a_program_without_infeed_stays_as_it_is() -> None:
    ops = tuple(op for op in recording().workload if op.category != "infeed")
    report = analyze(replace(recording(), workload=Workload(ops)), CHIP)
    assert without_feeds(report) is report


def test_shares_are_of_the_time_without_them() -> None:
    table = parts_table(without(), without().ops, "step")
    assert table.shares == [0.5, 0.5]  # 6 of 12 s of op time each


def test_the_command_shows_everything_without_them_and_its_json_keeps_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "ops.csv"
    table.write_text("name,category,time_s,matrix/bf16,hbm,pcie\ninfeed.1,infeed,0.003,0,0,4e7\ndot.1,matmul,0.005,8e11,1e9,0\n")
    assert main(["analyze", str(table), "--chip", "v5e", "--json", str(tmp_path / "whole.json")]) == 0
    assert capsys.readouterr().out.startswith("8 ms on one Google TPU v5e")
    assert main(["analyze", str(table), "--chip", "v5e", "--only", "infeed=no", "--json", str(tmp_path / "part.json")]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("5 ms without infeed and outfeed on one Google TPU v5e")
    assert "infeed.1" not in shown
    assert "pcie" not in shown.split("work", 1)[1]  # the bus carried the infeed alone
    assert (tmp_path / "part.json").read_bytes() == (tmp_path / "whole.json").read_bytes()
