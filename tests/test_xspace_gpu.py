"""GPU events find their operations: what they name, what they launch together, and what nobody launched."""

import os
from pathlib import Path

import pytest

from roofline.analysis import analyze
from roofline.hlo.price.collectives import Network
from roofline.hlo.price.pricing import Pricer
from roofline.hlo.read.proto import parse_proto
from roofline.resource import UNNAMED_WORK
from roofline.sources.xspace import reading
from roofline.sources.xspace.commands import launching_places
from roofline.sources.xspace.modules import Program
from roofline.workload import Hardware
from xspace_profiles import (
    ADD_BYTES,
    ADD_FLOP,
    MICROSECOND,
    Instruction,
    annotation,
    by_name,
    gpu,
    hlo,
    host,
    kernel,
    launch,
    programs,
    recorded,
)
from xspace_writer import Event, Line, Plane, Unsigned

X = Instruction("x", "parameter")
ADD = Instruction("add.1", "add", ("x", "x"), op_name="jit(f)/layer0/add")
TWICE = hlo("jit_f", {"main": [X, ADD, Instruction("add.2", "add", ("add.1", "x"))]})
US = MICROSECOND


def test_an_event_is_the_instruction_it_names_and_costs_what_that_costs(tmp_path: Path) -> None:
    events = [kernel("add_1", 5 * n * US, 2 * US, hlo_op="add.1", program_id=7, scope_range_id=n, correlation_id=n) for n in range(1, 4)]
    recording = recorded(tmp_path, gpu(events), programs({7: TWICE}))
    (add,) = recording.workload
    assert (add.name, add.module, add.scope, add.count, add.kernels) == ("add.1", "jit_f", "layer0", 3, 3)
    assert add.time_s == add.self_time_s == pytest.approx(6e-6)
    # x is read once, the sum is written: 8 bytes an element.
    assert (add.cost["vector/fp32"], add.cost["hbm"]) == (3 * ADD_FLOP, 3 * 8 * 1024)
    assert (add.work_provenance, add.bytes_provenance) == ("compiler", "compiler")
    assert recording.coverage.busy_s == recording.coverage.attributed_s == recording.coverage.priced_s == pytest.approx(6e-6)
    assert recording.coverage.wall_s == pytest.approx(12e-6)  # from 5 to 17 µs
    assert recording.devices[0].name == "NVIDIA H200"


def test_the_innermost_of_nested_scopes_is_the_operation(tmp_path: Path) -> None:
    recording = recorded(tmp_path, gpu([kernel("k", 0, US, hlo_op="while.3::call.1::add.2", program_id=7)]), programs({7: TWICE}))
    (add,) = recording.workload
    assert (add.name, add.cost["hbm"]) == ("add.2", ADD_BYTES)


def test_modules_of_one_name_are_told_apart_by_their_ids(tmp_path: Path) -> None:
    small = hlo("jit_f", {"main": [X, ADD]}, id=1)
    large = hlo(
        "jit_f", {"main": [Instruction("x", "parameter", dims=(4096,)), Instruction("add.1", "add", ("x", "x"), dims=(4096,))]}, id=0
    )
    events = [kernel("add_1", 0, US, hlo_op="add.1", program_id=1), kernel("add_1", 2 * US, US, hlo_op="add.1", program_id=0)]
    recording = recorded(tmp_path, gpu(events), programs({1: small, 0: large}))
    assert {op.module: op.cost["vector/fp32"] for op in recording.workload} == {"jit_f(1)": 1024, "jit_f(0)": 4096}


def test_ids_are_compared_without_sign(tmp_path: Path) -> None:
    large = 2**64 - 5
    recording = recorded(tmp_path, gpu([kernel("k", 0, US, hlo_op="add.1", program_id=Unsigned(large))]), programs({-5: TWICE}))
    assert recording.workload.ops[0].priced


def test_helpers_of_one_call_are_one_execution(tmp_path: Path) -> None:
    def call(n: int) -> list[Event]:
        stats = {"hlo_op": "add.1", "program_id": 7, "scope_range_id": n}
        memset = {**stats, "Memset_details": "kind:device num_bytes:4 async:1"}
        return [
            kernel("Memset 0", 10 * n * US, US, correlation_id=4 * n, **memset),
            kernel("gemm", (10 * n + 2) * US, 3 * US, correlation_id=4 * n + 1, **stats),
            kernel("reduce", (10 * n + 6) * US, US, correlation_id=4 * n + 2, **stats),
        ]

    recording = recorded(tmp_path, gpu([event for n in range(5) for event in call(n)]), programs({7: TWICE}))
    (add,) = recording.workload
    assert (add.count, add.kernels, add.time_s) == (5, 15, pytest.approx(25e-6))
    assert add.cost["vector/fp32"] == 5 * ADD_FLOP


def test_overlapping_kernels_of_one_execution_count_once_and_self_times_sum_to_busy(tmp_path: Path) -> None:
    # The second begins at 6 while the first runs until 10: 4 µs are hidden. Another operation begins at 12 and hides 2 of its 5.
    events = [
        kernel("a", 0, 10 * US, hlo_op="add.1", program_id=7, scope_range_id=1),
        kernel("b", 6 * US, 8 * US, hlo_op="add.1", program_id=7, scope_range_id=1),
        kernel("c", 12 * US, 5 * US, hlo_op="add.2", program_id=7, scope_range_id=2),
    ]
    recording = recorded(tmp_path, gpu(events), programs({7: TWICE}))
    ops = by_name(recording)
    assert (ops["add.1"].time_s, ops["add.1"].self_time_s) == (pytest.approx(14e-6), pytest.approx(14e-6))
    assert (ops["add.2"].time_s, ops["add.2"].self_time_s) == (pytest.approx(5e-6), pytest.approx(3e-6))
    assert recording.coverage.busy_s == pytest.approx(17e-6)


def test_copies_and_memsets_of_the_runtime_have_rows_and_bytes_of_their_own(tmp_path: Path) -> None:
    def copy(name: str, start: int, source: str, target: str, size: int) -> Event:
        return kernel(name, start, US, memcpy_details=f"kind_src:{source} kind_dst:{target} size:{size} dest:0 async:1")

    events = [
        copy("MemcpyH2D", 0, "pinned", "device", 100),
        copy("MemcpyH2D", 2 * US, "pageable", "device", 50),
        copy("MemcpyD2H", 4 * US, "device", "pinned", 7),
        copy("MemcpyD2D", 6 * US, "device", "device", 30),
        copy("MemcpyP2P", 8 * US, "device", "device", 20),
        kernel("Memset 0", 10 * US, US, Memset_details="kind:device num_bytes:64 async:1"),
    ]
    recording = recorded(tmp_path, gpu(events), programs({7: TWICE}))
    ops = by_name(recording)
    assert (ops["MemcpyH2D"].count, ops["MemcpyH2D"].category, ops["MemcpyH2D"].cost["pcie"]) == (2, "copy", 150)
    assert ops["MemcpyD2H"].cost["pcie"] == 7
    assert ops["MemcpyD2D"].cost["hbm"] == 60  # read and written
    assert ops["MemcpyP2P"].cost["nvlink"] == 20
    assert (ops["Memset"].category, ops["Memset"].cost["hbm"]) == ("memset", 64)
    assert recording.coverage.priced_s == recording.coverage.busy_s


def test_what_nobody_launched_keeps_its_time_at_an_unknown_cost(tmp_path: Path) -> None:
    events = [kernel("mystery", 0, 3 * US), kernel("add_1", 5 * US, US, hlo_op="add.1", program_id=7)]
    recording = recorded(tmp_path, gpu(events), programs({7: TWICE}))
    mystery = by_name(recording)["mystery"]
    assert (mystery.category, mystery.priced, mystery.cost[UNNAMED_WORK]) == ("runtime", False, None)
    assert recording.coverage.attributed_s == recording.coverage.priced_s == pytest.approx(1e-6)
    assert recording.coverage.busy_s == pytest.approx(4e-6)


def test_an_operation_without_its_program_is_known_but_not_priced(tmp_path: Path) -> None:
    events = [
        kernel("k", 0, US, hlo_op="fusion.9", hlo_module="jit_g", program_id=99),
        kernel("k", 2 * US, US, hlo_op="gone", program_id=7),
    ]
    recording = recorded(tmp_path, gpu(events), programs({7: TWICE}))
    ops = by_name(recording)
    assert ops["fusion.9"].notes == ("the profile has no program for it",)
    assert ops["gone"].notes == ("its instruction is not in the program",)
    assert (recording.coverage.attributed_s, recording.coverage.priced_s) == (pytest.approx(2e-6), 0)


def test_a_program_that_cannot_be_read_is_a_note(tmp_path: Path) -> None:
    recording = recorded(tmp_path, gpu([kernel("k", 0, US, hlo_op="add.1", program_id=7)]), programs({7: TWICE[: len(TWICE) // 2]}))
    assert not recording.workload.ops[0].priced
    assert any("jit_f(7)" in note and "is unknown" in note for note in recording.notes)


@pytest.mark.parametrize("asked", [True, False])
def test_a_program_read_ahead_is_spoken_of_only_if_events_ask_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: bool) -> None:
    events = [kernel("k", 0, US, hlo_op="add.1", program_id=7), *([kernel("k", 2 * US, US, hlo_op="sub.1", program_id=8)] if asked else [])]
    embedded = programs({7: TWICE, 8: hlo("jit_g", {"main": [X, ADD]})[:-20]}, {8: "jit_g"})
    executed = host([Event("GpuExecutable::ExecuteThunks", n * US, US, {"module_name": name}) for n, name in enumerate(("jit_g", "jit_f"))])
    plain = recorded(tmp_path, gpu(events), embedded, executed)
    monkeypatch.setattr(reading, "THREAD_BYTES", 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    assert recorded(tmp_path, gpu(events), embedded, executed) == plain
    assert any("jit_g(8)" in note for note in plain.notes) == asked


def test_a_program_is_priced_ahead_to_the_bottom_of_its_loops(tmp_path: Path) -> None:
    body = [Instruction("p", "parameter"), Instruction("add.9", "add", ("p", "p"))]
    condition = [Instruction("q", "parameter"), Instruction("less", "compare", ("q", "q"), dtype="pred")]
    main = [X, Instruction("while.1", "while", ("x",), ("body", "condition"))]
    module = parse_proto(hlo("jit_f", {"body": body, "condition": condition, "main": main}))
    program = Program(7, module, "gpu", Pricer(module, "gpu", Network.of(None, "gpu")), "7")
    # The loop, then what it calls; parameters launch nothing.
    assert {program.instruction(place).name for place in launching_places(program)} == {"while.1", "add.9", "less"}


def test_a_loops_own_copies_do_not_cost_what_its_body_costs(tmp_path: Path) -> None:
    body = [Instruction("p", "parameter"), Instruction("add.9", "add", ("p", "p"))]
    condition = [Instruction("q", "parameter"), Instruction("less", "compare", ("q", "q"), dtype="pred")]
    module = hlo(
        "jit_f", {"body": body, "condition": condition, "main": [X, Instruction("while.1", "while", ("x",), ("body", "condition"))]}
    )
    details = "kind_src:device kind_dst:pinned size:1 dest:0 async:1"
    events = [kernel("MemcpyD2H", 0, US, hlo_op="while.1", program_id=7, memcpy_details=details)]
    events += [kernel("add", (2 + n) * US, US, hlo_op="add.9", program_id=7, scope_range_id=n) for n in range(4)]
    ops = by_name(recorded(tmp_path, gpu(events), programs({7: module})))
    assert (ops["while.1"].category, ops["while.1"].cost.amounts) == ("while", ())
    assert ops["add.9"].cost["vector/fp32"] == 4 * ADD_FLOP  # as often as it ran, whatever the trip count


def test_an_asynchronous_instruction_is_the_one_that_starts_it(tmp_path: Path) -> None:
    inner = [Instruction("p", "parameter"), Instruction("add.5", "add", ("p", "p"))]
    start = Instruction("add-start", "async-start", ("x",), ("inner",))
    module = hlo("jit_f", {"inner": inner, "main": [X, start, Instruction("add-done", "async-done", ("add-start",))]})
    (op,) = recorded(tmp_path, gpu([kernel("k", 0, US, hlo_op="add.5", program_id=7)]), programs({7: module})).workload
    assert (op.name, op.cost["vector/fp32"]) == ("add-start", ADD_FLOP)


def test_without_scopes_executions_are_the_runs_of_the_module(tmp_path: Path) -> None:
    # AMD: a kernel launched three times an execution, in two runs; names end in .kd, and the bandwidth is not the real one.
    amd = {"device_vendor": "AMD", "memory_bandwidth": 10**12}
    events = [kernel("sort.kd", n * US, US // 2, hlo_op="add.1", hlo_module="jit_f", program_id=7, correlation_id=n) for n in range(6)]
    runs = [Event("[0] GpuExecutable::ExecuteThunks", n * US, US, {"module_name": "jit_f"}) for n in range(2)]
    recording = recorded(tmp_path, gpu(events, stats=amd), programs({7: TWICE}), host(runs))
    (sort,) = recording.workload
    assert (sort.count, sort.kernels, sort.cost["vector/fp32"]) == (2, 6, 2 * ADD_FLOP)
    assert recording.devices[0].rates == {}


def test_a_gpu_says_what_its_hardware_is(tmp_path: Path) -> None:
    said = {"core_count": 304, "clock_rate": 2_100_000, "memory_size": 206_141_652_992, "memory_bandwidth": 2_662_400_000_000}
    amd = {**said, "gpu_device_name": "", "device_vendor": "AMD", "compute_cap_major": 9, "compute_cap_minor": 4}
    events = [kernel("add.kd", 0, US, hlo_op="add.1", program_id=7)]
    recording = recorded(tmp_path, gpu(events, stats=amd), programs({7: TWICE}))
    # ROCm counts one transfer a cycle where the memory makes two.
    assert recording.devices[0].hardware == Hardware(
        vendor="AMD", capability="9.4", cores=304, clock_hz=2.1e9, memory_bytes=206_141_652_992, bandwidth=5.3248e12
    )
    report = analyze(recording)
    assert report.machine.name == "mi300x"
    assert any("identified as mi300x by its hardware" in note for note in report.machine.notes)


def test_streams_that_overlap_are_busy_once(tmp_path: Path) -> None:
    one = [kernel("a", 0, 10 * US, hlo_op="add.1", program_id=7)]
    two = [kernel("b", 5 * US, 10 * US, hlo_op="add.2", program_id=7)]
    recording = recorded(tmp_path, gpu(one, two), programs({7: TWICE}))
    assert recording.coverage.busy_s == recording.coverage.wall_s == pytest.approx(15e-6)
    assert sum(op.time_s or 0 for op in recording.workload) == pytest.approx(20e-6)


def test_an_operation_on_several_streams_ran_on_each(tmp_path: Path) -> None:
    one = [kernel("a", n * 10 * US, US, hlo_op="add.1", program_id=7, scope_range_id=n) for n in range(3)]
    two = [kernel("a", (n * 10 + 5) * US, US, hlo_op="add.1", program_id=7, scope_range_id=100 + n) for n in range(2)]
    (add,) = recorded(tmp_path, gpu(one, two), programs({7: TWICE})).workload
    assert (add.count, add.kernels) == (5, 5)


def test_several_gpus_share_rows_and_keep_their_parts(tmp_path: Path) -> None:
    def ran(times: int) -> list[Event]:
        return [kernel("a", n * 10 * US, US, hlo_op="add.1", program_id=7, scope_range_id=n) for n in range(times)]

    recording = recorded(tmp_path, gpu(ran(2), number=4), gpu(ran(3), number=6), programs({7: TWICE}))
    (add,) = recording.workload
    assert [(share.key, share.count) for share in add.by_device] == [(4, 2), (6, 3)]
    assert [device.id for device in recording.devices] == [4, 6]
    assert (add.count, add.cost["vector/fp32"]) == (5, 5 * ADD_FLOP)
    # 11 µs and 21 µs from first to last.
    assert recording.coverage.wall_s == pytest.approx(32e-6)


def test_lines_that_tools_add_and_events_that_are_no_work_are_left_out(tmp_path: Path) -> None:
    work = [kernel("a", 0, US, hlo_op="add.1", program_id=7), kernel("MemoryAlloc", 2 * US, 50 * US)]
    plane = gpu(work)
    derived = [Line("XLA Ops", [Event("add.1", 0, US)], id=9), Line("Steps", [Event("0", 0, US)], id=0xDEADBEEF - 2**32)]
    counters = [Line("_counters_", [Event("power", 0, US)], id=77), Line("Framework Ops - from #1", [Event("x", 0, US)], id=5)]
    recording = recorded(tmp_path, Plane(plane.name, [*plane.lines, *derived, *counters], plane.stats), programs({7: TWICE}))
    assert [op.name for op in recording.workload] == ["add.1"]
    assert recording.coverage.wall_s == pytest.approx(1e-6)


def test_steps_are_annotations_and_launches_in_them_belong_to_them_from_any_thread(tmp_path: Path) -> None:
    main = [annotation(3, 0, 10 * US), launch(1, US), launch(2, 2 * US), annotation(3, 20 * US, 10 * US), launch(4, 21 * US)]
    other = [launch(3, 5 * US)]  # a copy from another thread, in the first step
    events = [
        kernel("a", 30 * US, US, hlo_op="add.1", program_id=7, scope_range_id=1, correlation_id=1),
        kernel("b", 32 * US, US, hlo_op="add.2", program_id=7, scope_range_id=2, correlation_id=2),
        kernel("a", 34 * US, 2 * US, hlo_op="add.1", program_id=7, scope_range_id=3, correlation_id=3),
        kernel("a", 40 * US, 3 * US, hlo_op="add.1", program_id=7, scope_range_id=4, correlation_id=4),
    ]
    recording = recorded(tmp_path, gpu(events), programs({7: TWICE}), host(main, other))
    assert [(step.key, step.name, step.number, step.complete) for step in recording.steps] == [(0, "train", 3, True), (1, "train", 3, True)]
    first, second = recording.steps
    assert (first.span_s, first.busy_s) == (pytest.approx(6e-6), pytest.approx(4e-6))  # 30 to 36, of which two gaps of 1
    assert (first.time_s, first.followed) == (pytest.approx(10e-6), True)  # until the next starts at 40
    assert (second.time_s, second.span_s, second.busy_s) == (pytest.approx(3e-6), pytest.approx(3e-6), pytest.approx(3e-6))
    assert not second.followed
    assert recording.coverage.before_steps_s == pytest.approx(30e-6)  # from the first annotation
    add = by_name(recording)["add.1"]
    assert [(share.key, share.count, share.time_s) for share in add.by_step] == [(0, 2, pytest.approx(3e-6)), (1, 1, pytest.approx(3e-6))]


def test_a_step_whose_last_launch_never_ran_is_not_complete(tmp_path: Path) -> None:
    main = [
        annotation(0, 0, 10 * US),
        launch(1, US),
        launch(2, 2 * US),
        annotation(1, 20 * US, 10 * US),
        launch(3, 21 * US),
        launch(4, 22 * US),
    ]
    events = [kernel("a", (30 + n) * US, US, hlo_op="add.1", program_id=7, correlation_id=n) for n in (1, 2, 3)]
    recording = recorded(tmp_path, gpu(events), programs({7: TWICE}), host(main))
    assert [step.complete for step in recording.steps] == [True, False]


def test_an_annotation_inside_another_is_no_step_of_its_own(tmp_path: Path) -> None:
    main = [annotation(0, 0, 10 * US), annotation(7, US, 2 * US, "inner"), launch(1, 2 * US)]
    recording = recorded(
        tmp_path, gpu([kernel("a", 0, US, hlo_op="add.1", program_id=7, correlation_id=1)]), programs({7: TWICE}), host(main)
    )
    assert [step.name for step in recording.steps] == ["train"]


def test_steps_of_two_threads_that_overlap_keep_their_own_launches(tmp_path: Path) -> None:
    one = [annotation(0, 0, 100 * US, "one"), launch(1, 10 * US), launch(3, 30 * US)]
    two = [annotation(0, 0, 100 * US, "two"), launch(2, 20 * US), launch(4, 40 * US)]
    events = [kernel("a", n * 10 * US, n * US, hlo_op="add.1", program_id=7, correlation_id=n, scope_range_id=n) for n in (1, 2, 3, 4)]
    recording = recorded(tmp_path, gpu(events), programs({7: TWICE}), host(one, two))
    (add,) = recording.workload
    assert [(share.key, share.time_s) for share in add.by_step] == [(0, pytest.approx(4e-6)), (1, pytest.approx(6e-6))]


def test_a_step_keeps_its_launches_beside_short_steps_of_another_thread(tmp_path: Path) -> None:
    long = [annotation(0, 0, 100 * US, "long"), *(launch(10 + n, (15 + 20 * n) * US) for n in range(4))]
    short = [annotation(n, (10 + 20 * n) * US, 10 * US, "short") for n in range(4)]  # none of them overlaps the next
    events = [kernel("a", n * 10 * US, US, hlo_op="add.1", program_id=7, correlation_id=10 + n, scope_range_id=n) for n in range(4)]
    recording = recorded(tmp_path, gpu(events), programs({7: TWICE}), host(long, short))
    (add,) = recording.workload
    assert [recording.steps[share.key].name for share in add.by_step] == ["long"]
    assert add.by_step[0].count == 4


def test_a_step_whose_streams_overlap_is_busy_once(tmp_path: Path) -> None:
    main = [
        annotation(0, 0, 10 * US),
        launch(1, US),
        launch(2, 2 * US),
        launch(3, 3 * US),
        annotation(1, 20 * US, 10 * US),
        launch(4, 21 * US),
    ]
    one = [
        kernel("a", 0, 10 * US, hlo_op="add.1", program_id=7, scope_range_id=1, correlation_id=1),
        kernel("a", 20 * US, 10 * US, hlo_op="add.1", program_id=7, scope_range_id=3, correlation_id=3),
        kernel("a", 40 * US, 5 * US, hlo_op="add.1", program_id=7, scope_range_id=4, correlation_id=4),
    ]
    two = [kernel("b", 5 * US, 8 * US, hlo_op="add.2", program_id=7, scope_range_id=2, correlation_id=2)]
    recording = recorded(tmp_path, gpu(one, two), programs({7: TWICE}), host(main))
    first, second = recording.steps
    assert (first.span_s, first.time_s) == (pytest.approx(30e-6), pytest.approx(40e-6))
    assert first.busy_s == pytest.approx(23e-6), "0 to 13 and 20 to 30; the streams' own times sum to 28"
    assert second.busy_s == pytest.approx(5e-6)


def test_a_copy_that_runs_ahead_on_another_stream_does_not_begin_its_step(tmp_path: Path) -> None:
    # The host launches both steps at once; the copy of the next batch runs then, the program of the second step after that of the first.
    first = [annotation(0, 0, 4 * US), launch(1, US), launch(2, 2 * US)]
    second = [annotation(1, 5 * US, 4 * US), launch(3, 6 * US), launch(4, 7 * US)]
    one = [
        kernel("a", 10 * US, 30 * US, hlo_op="add.1", program_id=7, scope_range_id=1, correlation_id=1),
        kernel("a", 40 * US, 30 * US, hlo_op="add.1", program_id=7, scope_range_id=3, correlation_id=4),
    ]
    two = [
        kernel("b", 3 * US, 2 * US, hlo_op="add.2", program_id=7, scope_range_id=2, correlation_id=2),
        kernel("b", 8 * US, 2 * US, hlo_op="add.2", program_id=7, scope_range_id=4, correlation_id=3),
    ]
    recording = recorded(tmp_path, gpu(one, two), programs({7: TWICE}), host([*first, *second]))
    assert [step.time_s for step in recording.steps] == [pytest.approx(30e-6), pytest.approx(30e-6)]


def test_a_step_is_busy_with_its_own_work_only(tmp_path: Path) -> None:
    first = [annotation(0, 0, 10 * US), launch(1, US), launch(2, 2 * US), launch(3, 3 * US)]
    second = [annotation(1, 20 * US, 10 * US), launch(4, 21 * US)]
    one = [
        kernel("a", 0, 10 * US, hlo_op="add.1", program_id=7, correlation_id=1),
        kernel("a", 28 * US, 2 * US, hlo_op="add.1", program_id=7, correlation_id=3),
    ]
    two = [
        kernel("b", 5 * US, 4 * US, hlo_op="add.2", program_id=7, correlation_id=2),
        kernel("b", 9 * US, 21 * US, hlo_op="add.2", program_id=7, correlation_id=4),
    ]
    recording = recorded(tmp_path, gpu(one, two), programs({7: TWICE}), host([*first, *second]))
    # The first step runs from 0 to 10 (5 to 9 on both streams) and from 28 to 30; the device is busy all the time, with the second.
    assert [step.busy_s for step in recording.steps] == [pytest.approx(12e-6), pytest.approx(21e-6)]
    assert recording.coverage.busy_s == pytest.approx(30e-6)
