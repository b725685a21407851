"""The words of a page: what Python says of the report in it, and of two runs."""

import json
from pathlib import Path
from typing import Any

from msgspec.structs import replace

import roofline as rl
from roofline.comparison import compare
from roofline.peak_memory import MemorySpace, PeakMemory
from roofline.render.page.words import words_json
from roofline.report import Device, DeviceShare, Finding, IdleInfo, InputInfo, MachineInfo, OpInfo, Predicted, Report
from roofline.workload import Coverage
from toys import parts_of_label


def report(*ops: OpInfo, **details: Any) -> Report:
    return Report(input=InputInfo(format="table"), machine=MachineInfo(name="toy", ceilings=()), ops=ops, **details)


def op(id: int, label: str, time_s: float) -> OpInfo:
    return OpInfo(id=id, rank=id + 1, name=f"op.{id}", time_s=time_s, count=1, scope=label.rpartition("  ")[0], **parts_of_label(label))


def words(after: Report, before: Report | None = None) -> dict[str, Any]:
    comparison = None if before is None else compare(before, after)
    found: dict[str, Any] = json.loads(words_json(after, before, comparison))
    return found


def test_a_finding_has_what_it_saves_and_what_its_change_would_bring() -> None:
    found = Predicted(change="fuse all", before_s=0.02, time_s=0.01, low_s=0.009, high_s=0.012)
    findings = (
        Finding(kind="a", message="", saving_s=0.06, saving_per_step_s=0.01234, predicted=found),
        Finding(kind="b", message="", saving_s=0.06, saving_per_device_s=0.03),
        Finding(kind="c", message=""),
    )
    assert words(report(findings=findings))["findings"] == [
        ["Saves about 10 ms per step", "fuse all (roofline whatif): 20 ms to 10 ms predicted (9 ms to 12 ms)"],
        ["Saves about 30 ms per device", ""],
        ["", ""],
    ]


def test_a_reason_to_be_idle_is_told_as_in_the_terminal() -> None:
    reasons = (
        IdleInfo(reason="input", activity="load_batch", location="data.py:17", gaps=1, time_s=1.0),
        IdleInfo(reason="latency", activity="", gaps=1, time_s=1.0),
    )
    assert words(report(idle=reasons))["idle"] == ["host in Python: load_batch (data.py:17)", "between kernels"]


def test_devices_and_hosts_that_are_slower_than_the_others_are_stragglers() -> None:
    devices = tuple(Device(id=id, name="chip", host="ab"[id // 2]) for id in range(4))
    shares = tuple(DeviceShare(op=0, device=id, count=1, time_s=seconds) for id, seconds in enumerate((1.0, 1.0, 1.0, 2.0)))
    found = report(op(0, "dot", 5.0), by_device=shares)
    several = replace(found, input=replace(found.input, devices=devices))
    # The median device takes 1 s; the hosts take 2 s and 3 s, with a median of 2.5 s.
    assert words(several)["stragglers"] == {
        "devices": [["3", "straggler: takes 2 times as long as the median"]],
        "hosts": [["b", "straggler: takes 1.2 times as long as the median"]],
    }
    assert words(found)["stragglers"] == {}


def test_peak_memory_and_what_is_known_are_key_figures_of_both_runs() -> None:
    memory = PeakMemory(peak_bytes=90, capacity_bytes=100, method="buffer assignment")
    known = report(memory=memory, coverage=Coverage(busy_s=10.0, priced_s=9.97))  # 99.7% reads 100%: not worth a figure
    assert words(known)["figures"] == [["Peak memory", "90 B", "90% of 100 B", "memory"]]
    too_much = report(memory=replace(memory, peak_bytes=120), coverage=Coverage(busy_s=10.0, priced_s=5.0))
    stalled = report(coverage=Coverage(busy_s=10.0, dma_stall_s=9.6))  # of a TPU, by asynchronous copies
    assert words(stalled)["figures"] == [["Stalled by DMA", "96%", "of busy time", "stalled"]]
    assert words(report(coverage=Coverage(busy_s=10.0, dma_stall_s=0.0)))["figures"] == []
    found = words(known, too_much)
    assert found["before_figures"] == [
        ["Peak memory", "120 B", "does not fit: 120% of 100 B", "memory"],
        ["Known cost", "50%", "of busy time", "priced"],
    ]
    assert found["figures"] == words(known)["figures"]
    assert words(report(memory=replace(memory, capacity_bytes=None)))["figures"][0][2] == "buffer assignment"


def test_two_runs_have_a_verdict_with_the_ops_that_changed_most_equal_ones_as_one() -> None:
    layers = [f"layer{number}/mlp  dot" for number in range(2)]
    before = report(*(op(id, label, 1.0) for id, label in enumerate([*layers, "less  add", "same  add"])))
    after = report(op(0, layers[0], 3.0), op(1, layers[1], 3.0), op(2, "less  add", 0.5), op(3, "same  add", 1.001))
    # 4 s before, 7.501 s after; the layers take 2 s more each.
    assert words(after, before)["comparison"]["verdict"] == (
        "1.88x as long by op time: 4 s → 7.501 s. Largest increase: layer*/mlp dot ×2, 4 s. Largest decrease: less add, 500 ms."
    )
    assert words(before, before)["comparison"]["verdict"] == "As fast as before by op time: 4 s → 4 s."


def test_the_verdict_does_not_repeat_what_an_op_was_before() -> None:
    # One op with another shape, and two layers with another shape each.
    for before, after, said in (
        (["mlp  dot 4×4"], ["mlp  dot 8×8"], "mlp dot 8×8, 2 s."),
        (["layer0  dot 4×4", "layer1  dot 4×4"], ["layer0  dot 8×8", "layer1  dot 8×8"], "layer* dot 8×8 ×2, 4 s."),
    ):
        sides = [report(*(op(id, label, time_s) for id, label in enumerate(labels))) for labels, time_s in ((after, 3.0), (before, 1.0))]
        assert words(*sides)["comparison"]["verdict"].endswith(f"Largest increase: {said}")


def test_how_full_vmem_is_is_a_key_figure() -> None:
    spaces = (
        MemorySpace(space="vmem", peak_bytes=30, arrays_bytes=20, scoped_bytes=10, capacity_bytes=40),
        MemorySpace(space="smem", peak_bytes=1, arrays_bytes=1, scoped_bytes=0),
    )
    found = report(memory=PeakMemory(peak_bytes=90, capacity_bytes=100, method="liveness over the schedule", spaces=spaces))
    # The other memory has no known capacity.
    assert words(found)["figures"][1:] == [["Peak VMEM", "30 B", "75% of 40 B", "vmem"]]


def test_the_figures_of_two_runs_have_their_change_and_whether_it_is_better() -> None:
    figures = words(report(op(0, "a", 1.0)), report(op(0, "a", 2.0)))["comparison"]["figures"]
    assert [["op time", "2 s", "1 s", "−1 s (−50%)"], "green"] in figures


def test_the_ops_that_changed_are_rows_with_a_value_for_every_column_slower_ones_first() -> None:
    before = report(op(0, "same", 1.0), op(1, "slower", 1.0), op(2, "faster", 3.0), op(3, "gone", 1.0), op(4, "slowest", 1.0))
    after = report(op(0, "same", 1.0), op(1, "slower", 2.0), op(2, "faster", 1.0), op(5, "new", 4.0), op(4, "slowest", 8.0))
    found = words(after, before)["comparison"]
    assert [(row["label"], row["before_s"], row["after_s"], row["speedup"]) for row in found["rows"]] == [
        ("slowest", 1.0, 8.0, 1 / 8),
        ("new", None, 4.0, None),  # a side without ops has no time
        ("slower", 1.0, 2.0, 1 / 2),
        ("faster", 3.0, 1.0, 3.0),
        ("gone", 1.0, None, None),
    ]
    assert all(set(found["columns"]) <= set(row) for row in found["rows"])
    assert "change_s" in found["columns"]
    assert "floor_change_s" not in found["columns"]


def test_without_measured_times_the_columns_are_those_of_minimum_times_and_costs() -> None:
    before, after = (
        report(OpInfo(id=0, rank=1, name="op", floor_s=floor_s, work={"matrix/bf16": floor_s * 10}, count=1)) for floor_s in (1.0, 2.0)
    )
    found = words(after, before)["comparison"]
    assert {"before_floor_s", "after_floor_s", "floor_change_s", "after_flops", "after_hbm", "after_launches"} <= set(found["columns"])
    assert not {"before_s", "after_s", "change_s", "speedup"} & set(found["columns"])
    (row,) = found["rows"]
    assert (row["floor_change_s"], row["before_flops"], row["after_flops"]) == (1.0, 10.0, 20.0)


def test_a_predicted_step_has_its_interval_and_what_is_exposed() -> None:
    found = words(rl.analyze(Path(__file__).parent / "data" / "tpu" / "hidden_gathers_v5e_2x2.hlo.gz", "v5e:2x2"))["figures"]
    remarks = {word: remark for word, _, remark, _ in found}
    assert remarks["Predicted"] == "not measured"
    assert remarks["Exposed"].endswith("% of the time")
