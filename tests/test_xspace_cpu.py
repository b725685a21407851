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
from xspace_profiles import ADD_FLOP, MICROSECOND, Instruction, annotation, by_name, hlo, host, programs, recorded
from xspace_writer import Event

DATA = Path(__file__).parent / "data" / "cpu"
US = MICROSECOND
RATES = {"vector/fp32": "500 GFLOP/s", "vector/int32": "100 GFLOP/s", "vector/transcendental": "10 GFLOP/s", "hbm": "20 GB/s"}
CPU = Machine.of("cpu", RATES, kind="cpu")
X = Instruction("x", "parameter")
ADD = Instruction("add.1", "add", ("x", "x"))


def thunk(name: str, start: int, duration: int, run: int, device: int = 0, **stats: int | str) -> Event:
    said = {"hlo_op": name, "hlo_module": "jit_f", "program_id": 7, "run_id": run, "device_ordinal": device}
    return Event(name, start, duration, said | stats)


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


def test_what_runs_inside_another_thunk_takes_its_time_from_it(tmp_path: Path) -> None:
    call = [thunk("add.1", 0, 10 * US, 1), thunk("add.2", 2 * US, 3 * US, 1)]
    module = hlo("jit_f", {"main": [X, ADD, Instruction("add.2", "add", ("add.1", "x"))]})
    recording = recorded(tmp_path, host([*call, Event("end: add.1", 20 * US, US)]), programs({7: module}))
    ops = by_name(recording)
    assert (ops["add.1"].time_s, ops["add.1"].self_time_s) == (pytest.approx(1e-5), pytest.approx(7e-6))
    assert recording.coverage.busy_s == pytest.approx(1e-5)


def test_threads_that_work_at_once_are_busy_once(tmp_path: Path) -> None:
    recording = recorded(
        tmp_path, host([thunk("add.1", 0, 4 * US, 1)], [thunk("add.1", 2 * US, 4 * US, 2)]), programs({7: hlo("jit_f", {"main": [X, ADD]})})
    )
    (add,) = recording.workload
    assert (add.count, add.cost["vector/fp32"], add.time_s) == (2, 2 * ADD_FLOP, pytest.approx(8e-6))
    assert recording.coverage.busy_s == pytest.approx(6e-6)


@pytest.mark.parametrize("named", [True, False])
def test_runs_belong_to_the_step_that_started_them_however_late_they_ran(tmp_path: Path, named: bool) -> None:
    starts = [annotation(1, 0, 5 * US), annotation(2, 6 * US, 5 * US)]
    for place, run in ((US, 11), (7 * US, 12)):
        name = "CommonPjRtLoadedExecutable::Execute (jit_f)" if named else "CommonPjRtLoadedExecutable::ExecuteHelperOnSingleDevice"
        starts.append(Event(name, place, US, {"run_id": run} if named else {}))
    main = sorted(starts, key=lambda event: event.offset_ps)
    worker = [thunk("add.1", 20 * US, 3 * US, 11), thunk("add.1", 30 * US, 4 * US, 12)]
    recording = recorded(tmp_path, host(main, worker), programs({7: hlo("jit_f", {"main": [X, ADD]})}))
    first, second = recording.steps
    assert (first.number, first.time_s, first.span_s) == (1, pytest.approx(10e-6), pytest.approx(3e-6))  # until the second starts at 30 µs
    assert (second.number, second.time_s, second.followed) == (2, pytest.approx(4e-6), False)
    assert recording.coverage.before_steps_s == pytest.approx(20e-6)


@pytest.mark.parametrize("ahead", [True, False])
def test_work_that_was_launched_ahead_waits_for_no_value_that_the_host_reads(tmp_path: Path, ahead: bool) -> None:
    # The host waits for the last result while runs start one after the other: what it called before a gap began had only to be scheduled.
    calls = [Event("CommonPjRtLoadedExecutable::ExecuteHelperOnSingleDevice", at, US) for at in (0, 2 * US if ahead else 35 * US)]
    waits = Event("Buffer::Await", 4 * US, 30 * US)
    main = sorted([annotation(1, 0, US), annotation(2, calls[1].offset_ps, US), *calls, waits], key=lambda event: event.offset_ps)
    worker = [thunk("add.1", 10 * US, 3 * US, 11), thunk("add.1", 40 * US, 4 * US, 12)]
    recording = recorded(tmp_path, host(main, worker), programs({7: hlo("jit_f", {"main": [X, ADD]})}))
    assert [reason.kind for reason in recording.idle] == (["latency"] if ahead else ["sync"])


def test_runs_of_several_programs_belong_to_the_calls_of_their_own(tmp_path: Path) -> None:
    # f is called in both steps, g before and between; ids of runs are those of no order.
    def call(name: str, at: int) -> list[Event]:
        return [
            Event(f"PjitFunction({name})", at, US),
            Event("CommonPjRtLoadedExecutable::ExecuteHelperOnSingleDevice", at + US // 4, US // 2),
        ]

    main = [*call("<lambda>", 0), annotation(1, 2 * US, 3 * US), *call("f", 3 * US), *call("<lambda>", 6 * US)]
    main += [annotation(2, 8 * US, 3 * US), *call("f", 9 * US)]
    other = {"hlo_module": "jit__lambda", "program_id": 8}
    worker = [thunk("add.1", 20 * US, US, 90, **other), thunk("add.1", 22 * US, US, 5), thunk("add.1", 24 * US, US, 91, **other)]
    worker += [thunk("add.1", 26 * US, US, 6)]
    module, lambda_ = hlo("jit_f", {"main": [X, ADD]}), hlo("jit__lambda", {"main": [X, ADD]})
    recording = recorded(tmp_path, host(main, worker), programs({7: module, 8: lambda_}))
    shares = {op.module: [(share.key, share.count) for share in op.by_step] for op in recording.workload}
    assert shares == {"jit_f": [(0, 1), (1, 1)], "jit__lambda": []}


def test_work_ends_with_the_event_that_says_so_on_any_thread(tmp_path: Path) -> None:
    one = [thunk("add.1", 0, US, 1, _p=41), thunk("add.2", 4 * US, US, 1, _p=42)]
    two = [Event("end: add.1", 10 * US, 0, {"_c": 41}), Event("end: add.2", 8 * US, 0, {"_c": 42})]
    module = hlo("jit_f", {"main": [X, ADD, Instruction("add.2", "add", ("add.1", "x"))]})
    recording = recorded(tmp_path, host(one, two), programs({7: module}))
    ops = by_name(recording)
    assert (ops["add.1"].time_s, ops["add.2"].time_s) == (pytest.approx(10e-6), pytest.approx(4e-6))
    # Between 4 and 8 µs both run: each has half.
    assert (ops["add.1"].self_time_s, ops["add.2"].self_time_s) == (pytest.approx(8e-6), pytest.approx(2e-6))
    assert recording.coverage.busy_s == pytest.approx(10e-6)


def test_no_work_goes_on_after_its_run_was_over_on_its_device(tmp_path: Path) -> None:
    # The thread that ends the work of device 0 loses its core until 9 µs, though the run was over at 5 µs; that of device 1 has no wait.
    one = [thunk("add.1", 0, US, 1, _p=41), thunk("add.1", 0, US, 1, device=1, _p=42)]
    two = [Event("end: add.1", 9 * US, 0, {"_c": 41}), Event("end: add.1", 7 * US, 0, {"_c": 42})]
    wait = [Event("ThunkExecutor::Execute (wait for completion)", US, 4 * US, {"run_id": 1, "device_ordinal": 0})]
    module = hlo("jit_f", {"main": [X, ADD]})
    (add,) = recorded(tmp_path, host(one[:1], one[1:], two, wait), programs({7: module})).workload
    assert sorted(share.time_s for share in add.by_device) == pytest.approx([5e-6, 7e-6])


def test_a_thunk_without_its_program_keeps_its_time(tmp_path: Path) -> None:
    recording = recorded(tmp_path, host([thunk("fusion.9", 0, 3 * US, 1)]))
    (lost,) = recording.workload
    assert (lost.name, lost.priced, lost.time_s) == ("fusion.9", False, pytest.approx(3e-6))


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


def test_a_program_that_only_shares_the_name_of_the_longest_begins_no_step(tmp_path: Path) -> None:
    # jax.jit(jax.value_and_grad(f)) and jax.jit(f) are both jit_f: three runs of the one with four ops, 40 µs apart, each with one of f.
    adds = [Instruction(f"add.{number}", "add", ("x", "x")) for number in range(1, 5)]
    events = []
    for run in range(3):
        begin = 40 * run * US
        events += [thunk(add.name, begin + 5 * place * US, 5 * US, 10 + run) for place, add in enumerate(adds)]
        events.append(thunk("add.1", begin + 25 * US, 5 * US, 20 + run, program_id=8))
    modules = {7: hlo("jit_f", {"main": [X, *adds]}), 8: hlo("jit_f", {"main": [X, adds[0]]})}
    recording = recorded(tmp_path, host(events), programs(modules))
    assert [step.time_s for step in recording.steps] == pytest.approx([40e-6, 40e-6, 30e-6])


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
