"""XLA on a CPU: thunks on threads are operations too, which no other tool shows."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from roofline.analysis import analyze
from roofline.grouping import group_parts
from roofline.machine import Machine
from roofline.selection import narrow
from roofline.sources import read
from roofline.sources.xspace import cpu
from xspace_profiles import by_name

DATA = Path(__file__).parent / "data" / "cpu"
RATES = {"vector/fp32": "500 GFLOP/s", "vector/int32": "100 GFLOP/s", "vector/transcendental": "10 GFLOP/s", "hbm": "20 GB/s"}
CPU = Machine.of("cpu", RATES, kind="cpu")


def test_a_real_capture_has_every_operation_as_often_as_it_ran() -> None:
    recording = read(DATA / "jax_one.xplane.pb.gz")
    ops = by_name(recording)
    counts = {name: op.count for name, op in ops.items()}
    # Four runs; a loop of three; the branch that was taken, and only that; a sort is two thunks and one execution.
    assert counts == {
        **dict.fromkeys(
            ("copy.1", "copy.8", "sort.0", "while.5", "cond.5.clone", "convert_bitcast_fusion", "ynn_fusion.3", "ynn_fusion.4"), 4
        ),
        **dict.fromkeys(("ynn_fusion", "ynn_fusion.1", "wrapped_add", "wrapped_add.1", "wrapped_tanh"), 12),
    }
    assert ops["sort.0"].kernels == 8
    # Products of 256 x 256 x 512, two in the loop and one in the branch.
    product = 2 * 256 * 256 * 512
    flops = [ops[name].cost["matrix/fp32"] for name in ("ynn_fusion", "ynn_fusion.1", "ynn_fusion.3")]
    assert flops == [12 * product, 12 * product, 4 * product]
    assert (ops["while.5"].cost.amounts, ops["cond.5.clone"].cost.amounts) == ((), ())
    assert [(step.name, step.number, step.complete) for step in recording.steps] == [("train", number, True) for number in range(4)]
    assert [share.count for share in ops["ynn_fusion"].by_step] == [3, 3, 3, 3]
    assert recording.coverage.attributed_s == recording.coverage.priced_s == recording.coverage.busy_s
    assert ops["ynn_fusion"].location.endswith("small.py:7")


def test_several_devices_of_one_host_are_told_apart() -> None:
    recording = read(DATA / "jax_four.xplane.pb.gz")
    assert [(device.id, device.name) for device in recording.devices] == [(number, "CPU") for number in range(4)]
    ops = by_name(recording)
    assert [(share.key, share.count) for share in ops["ynn_fusion"].by_device] == [(number, 4) for number in range(4)]
    reduce = next(op for op in recording.workload if op.category == "all-reduce")
    assert (reduce.count, reduce.cost["dcn/hop"]) == (16, 32)


def test_devices_that_share_a_cpu_are_not_called_so_many_cpus() -> None:
    report = analyze(read(DATA / "jax_four.xplane.pb.gz", CPU), CPU)
    assert " per step on four devices of one cpu; " in report.summary
    assert any(note.startswith("4 devices share one CPU") for note in report.input.notes)
    one = analyze(read(DATA / "jax_one.xplane.pb.gz", CPU), CPU)
    assert " per step on one cpu; " in one.summary
    assert not any("share one CPU" in note for note in one.input.notes)


def test_a_step_on_a_device_has_the_time_that_was_measured_there() -> None:
    report = analyze(read(DATA / "jax_four.xplane.pb.gz"), "h100-sxm")
    parts = {(step, device): narrow(report, step=[step], device=[device]) for step in range(4) for device in range(4)}
    for op in report.ops:
        times = [one.time_s or 0 for ops in parts.values() for one in ops if one.id == op.id]
        assert sum(times) == pytest.approx(op.time_s)
        assert len(set(times)) > 4  # and no product of the shares of steps and devices
    on_one = group_parts(report, report.ops, "step", device=[1])
    assert [group.time_s for group in on_one] == [pytest.approx(sum(op.time_s or 0 for op in parts[step, 1])) for step in range(4)]
    (whole,) = group_parts(report, report.ops, "host", step=[2])
    assert whole.time_s == pytest.approx(sum(op.time_s or 0 for op in narrow(report, step=[2])))


@pytest.mark.parametrize("capture", ["jax_one", "jax_four"])
def test_without_marks_each_run_of_the_longest_program_begins_a_step(capture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = DATA / f"{capture}.xplane.pb.gz"
    marked = read(path)
    whole = cpu.read_host
    monkeypatch.setattr(cpu, "read_host", lambda *args, **options: replace(whole(*args, **options), annotations=()))
    found = read(path)
    assert len(found.steps) == len(marked.steps)
    assert [step.time_s for step in found.steps] == pytest.approx([step.time_s for step in marked.steps], rel=0.05)
    assert any(note.startswith("no steps marked: each run of jit_") for note in found.notes)


def test_a_step_of_ops_that_overlap_has_nothing_unknown() -> None:
    report = analyze(read(DATA / "jax_one.xplane.pb.gz"), CPU)
    average = next(point for point in report.points if point.scope == "average")
    assert average.lost["unpriced"] == 0


def test_products_on_a_chip_without_a_matrix_unit_are_products() -> None:
    report = analyze(read(DATA / "jax_one.xplane.pb.gz"), CPU)
    ops = {op.id: op.category for op in report.ops}
    for finding in report.findings:
        if finding.kind in ("products", "compute"):
            assert {ops[id] == "matmul" for id in finding.ops} == {finding.kind == "products"}
    assert any(finding.kind == "products" for finding in report.findings)
