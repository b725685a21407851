"""Folding: layers that do the same work are one row, in a table of one step on one device."""

from pathlib import Path

import pytest
from msgspec.structs import replace

import roofline as rl
from roofline.cost import Cost
from roofline.grouping.folding import Fold, fold, table_rows
from roofline.render.op_table import label, ops_text
from roofline.report import DeviceShare, OpInfo, Report, Step, StepShare
from roofline.workload import Op, Recording, Workload
from toys import label_of, toy


def _op(name: str, label: str, scope: str = "", hbm: float = 10, time_s: float = 2.0, count: float = 1) -> Op:
    return Op(name=name, label=label_of(label), scope=scope, cost=Cost.of({"hbm": hbm}), time_s=time_s, count=count)


def _ops(*ops: Op) -> tuple[OpInfo, ...]:
    return rl.analyze(Recording(workload=Workload(ops), format="table"), toy()).ops


def _labels(*ops: Op) -> dict[str, tuple[int, ...]]:
    return {label(one.op): one.ops for one in fold(_ops(*ops))}


def test_layers_that_do_the_same_work_are_one_row_with_its_count() -> None:
    folded = fold(_ops(*(_op(f"custom-call.{n}", f"layer{n}/mlp  dot 8×4×2 bf16", f"layer{n}/mlp", time_s=2.0 + n) for n in range(4))))
    assert len(folded) == 1
    (one,) = folded
    assert label(one.op) == "layer*/mlp  dot 8×4×2 bf16  ×4"
    assert sorted(one.ops) == [0, 1, 2, 3]
    # Times 2 + 3 + 4 + 5 s; the minimum of each is 10 B at 10 B/s.
    assert (one.op.time_s, one.op.floor_s, one.op.efficiency) == (14.0, 4.0, pytest.approx(4 / 14))
    assert (one.op.bytes["hbm"], one.op.lost_s) == (40, pytest.approx(10.0))
    assert one.op.name == "custom-call.3 and 3 more"


def test_different_sizes_places_and_amounts_stay_apart() -> None:
    found = _labels(
        _op("a.1", "layer0/mlp  dot 8×4×2 bf16", "layer0/mlp"),
        _op("a.2", "layer1/mlp  dot 8×4×4 bf16", "layer1/mlp"),
        _op("a.3", "layer1/attn  dot 8×4×2 bf16", "layer1/attn"),
        _op("a.4", "layer2/mlp  dot 8×4×2 bf16", "layer2/mlp", hbm=20),
    )
    assert len(found) == 4


def test_numbers_of_source_lines_and_sizes_are_not_starred() -> None:
    found = _labels(_op("a", "train.py:1  add fp32[8]"), _op("b", "train.py:2  add fp32[8]"), _op("c", "train.py:1  add fp32[8]"))
    assert found == {"train.py:1  add fp32[8]  ×2": (0, 2), "train.py:2  add fp32[8]": (1,)}


def test_names_of_compilers_fold_without_their_numbering() -> None:
    assert _labels(_op("fusion.1", ""), _op("fusion.2", ""), _op("copy", "")) == {"fusion  ×2": (0, 1), "copy": (2,)}


def test_an_op_in_a_loop_says_how_often_it_ran() -> None:
    assert list(_labels(_op("add", "loop  add fp32[8]", count=400))) == ["loop  add fp32[8]  ×400"]


def test_rows_are_longest_first_after_folding() -> None:
    short = [_op(f"s.{n}", f"layer{n}  add fp32[8]", f"layer{n}", time_s=3.0) for n in range(3)]
    long = _op("l", "loss  sum fp32[8]", time_s=5.0)
    assert [one.op.time_s for one in fold(_ops(long, *short))] == [9.0, 5.0]


def _stepped() -> Report:
    """One op on two devices: 4 s in each of two steps, and 10 s more before them."""
    (op,) = _ops(_op("copy", "", time_s=26.0, hbm=50, count=5))
    report = rl.analyze(Recording(workload=Workload((_op("copy", "", time_s=26.0, hbm=50, count=5),)), format="table"), toy())
    return Report(
        input=report.input,
        machine=report.machine,
        points=report.points,
        ops=(op,),
        steps=tuple(Step(step=n, time_s=5.0, followed=n == 0) for n in (0, 1)),
        by_step=tuple(StepShare(op=0, step=n, count=2, time_s=8.0) for n in (0, 1)),
        by_device=tuple(DeviceShare(op=0, device=n, count=2, time_s=8.0) for n in (0, 1)),
    )


def test_a_table_is_of_one_step_on_one_device() -> None:
    rows = table_rows(_stepped())
    assert (rows.per, rows.devices) == ("step", 2)
    # The step that another follows: 8 s on two devices.
    assert (rows.rows[0].time_s, rows.rows[0].count, rows.whole_s) == (4.0, 1, 4.0)
    assert "time/step" in ops_text(_stepped(), rows).splitlines()[0]


def test_without_steps_it_is_the_run() -> None:
    report = rl.analyze(Recording(workload=Workload((_op("copy", ""),)), format="table"), toy())
    rows = table_rows(report)
    assert (rows.per, rows.rows[0].time_s) == ("", 2.0)
    assert "time/step" not in ops_text(report, rows)


def test_folded_rows_of_a_real_run_hold_its_time_and_losses() -> None:
    report = rl.analyze("sample:train")
    rows, apart = table_rows(report), table_rows(report, folded=False)
    assert len(rows.rows) < len(apart.rows) / 3
    average = next(point for point in report.points if point.scope == "average")
    assert sum(op.weight_s for op in rows.rows) == pytest.approx(average.busy_s, rel=1e-3)
    lost = sum(op.lost_s or 0.0 for op in rows.rows)
    assert lost == pytest.approx(sum(average.lost.values()) - average.lost["idle"], rel=1e-3)
    assert any(label(op).startswith("layer*/mlp  dot 8192×2048×8192 bf16") and op.count == 4 for op in rows.rows)


def test_the_ids_of_folds_are_all_ops_once() -> None:
    ops = rl.analyze("sample:train").ops
    folds: tuple[Fold, ...] = fold(ops)
    assert sorted(id for one in folds for id in one.ops) == sorted(op.id for op in ops)


def test_unfold_shows_layers_apart(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from roofline.cli import main

    out = []
    for words in ([], ["--unfold"], ["--by", "op"]):
        assert main(["analyze", "sample:train", "--top", "300", *words]) == 0
        out.append(capsys.readouterr().out)
    assert "layer*/mlp  dot 8192×2048×8192 bf16  fwd  ×4" in out[0]
    assert "layer3/mlp  dot 8192×2048×8192 bf16  fwd" in out[1]
    assert out[1] == out[2]


def test_a_report_has_its_folds_by_label_and_ops() -> None:
    report = rl.analyze("sample:train")
    layers = next(one for one in report.folds if one.label.startswith("layer*/mlp  dot "))
    assert layers.label.endswith("  ×8 in 4 layers")
    assert any(one.label.endswith("  ×4 layers") for one in report.folds)
    found = {op.id: op for op in report.ops}
    assert {found[id].scope for id in layers.ops} == {f"layer{number}/mlp" for number in range(4)}
    folded = {one.ops for one in fold(report.ops) if len(one.ops) > 1}
    assert {one.ops for one in report.folds} == folded


def _layers(count: int) -> Report:
    ops = [_op(f"custom-call.{n}", f"layer{n}/mlp  dot 8×4×2 bf16", f"layer{n}/mlp", time_s=2.0 + n) for n in range(count)]
    return rl.analyze(Recording(workload=Workload((*ops, _op("copy", "", time_s=9.0))), format="table"), toy())


def test_nothing_folds_to_nothing() -> None:
    assert fold(()) == ()
    assert table_rows(_layers(2), ()).rows == ()


def test_a_table_takes_the_folds_of_its_report(monkeypatch: pytest.MonkeyPatch) -> None:
    report = _layers(4)
    expected = tuple(one.op for one in fold(report.ops))
    monkeypatch.setattr("roofline.grouping.folding._same_work", None)  # what folding anew would call
    assert table_rows(report).rows == expected


def test_a_table_of_some_ops_of_a_report_is_folded_anew() -> None:
    report = _layers(4)
    part = replace(report, ops=tuple(op for op in report.ops if op.id != 1))
    assert [(label(op), op.time_s) for op in table_rows(part).rows] == [("layer*/mlp  dot 8×4×2 bf16  ×3", 11.0), ("copy", 9.0)]


def test_no_ops_make_no_rows() -> None:
    assert fold(()) == ()
