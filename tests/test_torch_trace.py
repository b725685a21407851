"""PyTorch profiler traces: what launched each event, which step it belongs to, and what the op behind it costs."""

import gzip
import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from roofline.analysis import analyze
from roofline.cli import main
from roofline.cost import Cost
from roofline.errors import SourceError, UsageError
from roofline.machine import Machine
from roofline.report import OpInfo, Report
from roofline.sources import find, read
from roofline.sources.cache import pack, unpack
from roofline.sources.torch_trace.read import chunks
from roofline.sources.torch_trace.read.capture_files import capture_files
from roofline.sources.torch_trace.recording import read_part
from roofline.torch_prices import forget, register
from roofline.workload import Recording
from torch_writer import BACKWARD, TorchTrace, report_on, training

DATA = Path(__file__).parent / "data"
PRODUCT = 2 * 64 * 32 * 16  # FLOP of each product of `training`


def recording_of(trace: TorchTrace | bytes, tmp_path: Path, **options: object) -> Recording:
    path = tmp_path / "trace.json"
    path.write_bytes(trace if isinstance(trace, bytes) else trace.text())
    return read(path, **options)  # type: ignore[arg-type]


def by_label(report: Report) -> dict[str, OpInfo]:
    return {f"{op.label} {op.phase}".strip(): op for op in report.ops}


def test_each_event_belongs_to_the_op_that_launched_it_and_each_op_counts_once(tmp_path: Path) -> None:
    report = report_on(training(), tmp_path)
    ops = by_label(report)
    forward = ops["mm 64x32, 32x16 bf16 forward"]
    assert (forward.count, forward.kernels, forward.work["matrix/bf16"]) == (3, 3, 3 * PRODUCT)
    assert forward.time_s == pytest.approx(30e-6)
    # A memset and a kernel are one execution; aten::linear and the nodes of autograd launched nothing of their own.
    turned = ops["mm 64x16, 16x32 bf16 backward"]
    assert (turned.count, turned.kernels) == (3, 6)
    assert len(report.ops) == 3
    assert report.coverage.attributed_s == report.coverage.priced_s == report.coverage.busy_s == pytest.approx(93e-6)


def test_steps_are_told_by_launches_not_by_when_the_device_got_to_them(tmp_path: Path) -> None:
    report = report_on(training(), tmp_path)
    assert [(step.name, step.number, step.time_s) for step in report.steps] == [
        ("ProfilerStep", 5, pytest.approx(100e-6)),
        ("ProfilerStep", 6, pytest.approx(100e-6)),
        ("ProfilerStep", 7, pytest.approx(52e-6)),  # to the end of its work: none followed
    ]
    steps = [point for point in report.points if point.scope == "step"]
    assert [point.work["matrix/bf16"] for point in steps] == [3 * PRODUCT] * 3
    assert [point.flops_by_convention for point in steps] == [{"flop_counter": 3 * PRODUCT}] * 3


def test_a_copy_that_runs_ahead_on_another_queue_does_not_begin_its_step(tmp_path: Path) -> None:
    # The host launches a step every 50 µs, the device takes 100 µs for each; the copy of the next batch runs as soon as it is launched.
    trace = training()
    for step in range(3):
        host = 50 * step
        trace.op("aten::copy_", host + 10, 4, [(64, 32), (64, 32)])
        trace.copy("HtoD (Pinned -> Device)", 4096, launched=host + 11, ran=host + 12, took=5)
        trace.events[-1]["tid"] = trace.events[-1]["args"]["stream"] = 20
    steps = report_on(trace, tmp_path).steps
    assert [round(step.time_s * 1e6) for step in steps] == [100, 100, 52]
    # 10 + 10 + 1 + 10, and 5 of the copy; but the device is busy no longer than 31 from the begin of one step to that of the next.
    assert [round(step.busy_s * 1e6) for step in steps] == [31, 31, 31]


def test_modules_and_lines_come_from_the_stack_and_backward_has_those_of_forward(tmp_path: Path) -> None:
    ops = by_label(report_on(training(), tmp_path))
    for label in ("mm 64x32, 32x16 bf16 forward", "mm 32x64, 64x16 bf16 backward"):
        assert (ops[label].scope, ops[label].location) == ("Linear_0", "train.py:10")


def test_what_was_launched_before_the_recording_is_the_tail_of_a_step(tmp_path: Path) -> None:
    trace = training()
    # The last kernel of one step before, and the first and second of the one whose end it is: launches are missing.
    for place, (name, grid, cat) in enumerate((("gemm_bf16", 2, "kernel"), ("memset", 0, "gpu_memset"), ("gemm_bf16", 8, "kernel"))):
        trace.ran(name, 900 + 20 * place, 10, 5000 + place, grid=(grid, 1, 1), cat=cat, **({"bytes": 4} if grid == 0 else {}))
    report = report_on(trace, tmp_path)
    ops = by_label(report)
    assert ops["mm 64x16, 16x32 bf16 backward"].count == ops["mm 32x64, 64x16 bf16 backward"].count == 4
    assert ops["mm 64x32, 32x16 bf16 forward"].count == 3
    assert report.coverage.priced_s == report.coverage.busy_s
    assert [point.work["matrix/bf16"] for point in report.points if point.scope == "step"] == [3 * PRODUCT] * 3


def test_work_like_nothing_that_was_recorded_stays_unattributed(tmp_path: Path) -> None:
    trace = training()
    trace.ran("another_kernel", 900, 10, 5000)
    report = report_on(trace, tmp_path)
    lost = next(op for op in report.ops if op.name == "another_kernel")
    assert "launch was not recorded" in " ".join(lost.notes)
    assert (report.coverage.busy_s or 0) - (report.coverage.attributed_s or 0) == pytest.approx(10e-6)


def test_work_without_a_launch_is_not_that_of_another_device(tmp_path: Path) -> None:
    trace = TorchTrace()
    trace.ran("lost", 10, 3, 99)
    trace.run("other", launched=5, start=40, dur=3, device=-1)  # the first launch, by no op, for a device whose number is a word for none
    part = read_part(trace.write(tmp_path / "trace.json"))
    assert {device.ordinal: device.busy_ps for device in part.devices} == {0: 3_000_000, -1: 3_000_000}


def test_of_launches_with_one_correlation_id_the_last_before_the_work_counts(tmp_path: Path) -> None:
    trace = TorchTrace()
    for start, shape in ((0, (8, 8)), (100, (16, 16))):
        trace.op("aten::mm", start, 5, [shape, shape])
        trace.add("cuda_runtime", "cudaLaunchKernel", start + 1, 1, 100, 1, {"correlation": 7})
        trace.ran("gemm", start + 10, 2, 7)
    ops = by_label(report_on(trace, tmp_path))
    assert {label: op.count for label, op in ops.items()} == {"mm 8x8, 8x8 bf16": 1, "mm 16x16, 16x16 bf16": 1}


def test_an_op_without_a_price_goes_by_the_op_around_it(tmp_path: Path) -> None:
    trace = TorchTrace()
    trace.op("aten::mm", 0, 30, [(8, 4), (4, 2)])
    trace.op("mylib::part_one", 1, 5, [(8, 4)])
    trace.run("one", launched=2, start=50, dur=5)
    trace.op("mylib::part_two", 10, 5, [(8, 4)])
    trace.run("two", launched=11, start=60, dur=5)
    (op,) = report_on(trace, tmp_path).ops
    assert (op.name, op.count, op.kernels, op.flops) == ("aten::mm", 1, 2, 128)


def test_a_tensor_that_an_op_takes_twice_is_read_once(tmp_path: Path) -> None:
    trace = TorchTrace()
    trace.op("aten::isnan", 10, 9, [(1024, 1024)])
    trace.op("aten::ne", 11, 7, [(1024, 1024), (1024, 1024)])
    trace.run("elementwise", launched=12, start=20, dur=5)
    trace.op("aten::ne", 31, 7, [(1024, 1024), (1024, 1024)])
    trace.run("elementwise", launched=32, start=40, dur=5)
    # 2 B read and 1 B written an element; two tensors where nothing says that they are one
    assert {op.name: op.bytes["hbm"] for op in report_on(trace, tmp_path).ops} == {"aten::isnan": 3 * 2**20, "aten::ne": 5 * 2**20}


def test_what_a_compiler_measures_is_no_work_of_the_program(tmp_path: Path) -> None:
    trace = TorchTrace()
    trace.op("CachingAutotuner.benchmark_all_configs", 10, 50)
    for at in (12, 22):
        trace.op("aten::zero_", at, 8, [(1024, 1024)])
        trace.op("aten::fill_", at + 1, 6, [(1024, 1024)])
        trace.run("fill", launched=at + 2, start=at + 20, dur=5)
    trace.op("aten::fill_", 71, 7, [(1024, 1024)])
    trace.run("fill", launched=72, start=80, dur=5)
    ops = {op.name: op for op in report_on(trace, tmp_path).ops}
    assert ops["aten::fill_"].bytes == {"hbm": 2 * 2**20}
    assert (ops["autotuning"].count, ops["autotuning"].bytes, ops["autotuning"].category) == (2, {}, "autotuning")


def test_an_op_nobody_can_price_keeps_its_time_and_the_report_says_what_would_tell(tmp_path: Path) -> None:
    trace = TorchTrace()
    trace.op("mylib::strange", 0, 5, [(8, 4)])
    trace.run("strange", launched=1, start=50, dur=5)
    trace.op("aten::mm", 10, 5)
    trace.run("gemm", launched=11, start=60, dur=5)
    report = report_on(trace, tmp_path)
    assert report.coverage.attributed_s == pytest.approx(10e-6)
    assert report.coverage.priced_s == 0
    assert any("record_shapes=True" in note for op in report.ops if op.name == "aten::mm" for note in op.notes)


def test_a_kernel_that_python_launched_without_an_op_is_a_row_of_its_own(tmp_path: Path) -> None:
    trace = training()
    trace.run("my_triton_kernel", launched=45, start=1060, dur=5)
    op = next(op for op in report_on(trace, tmp_path).ops if op.name == "my_triton_kernel")
    assert (op.count, op.category, op.bytes) == (1, "kernel", {"hbm": None})


def test_a_kernel_without_an_op_may_have_a_price_of_the_users(tmp_path: Path) -> None:
    trace = TorchTrace()
    trace.run("my_triton_kernel", launched=10, start=20, dur=5, grid=(16, 1, 1))
    register("my_triton_kernel", lambda call: Cost.of({"hbm": 1024 * call.kernels[0].grid[0]}))
    try:
        (priced,) = report_on(trace, tmp_path).ops
    finally:
        forget("my_triton_kernel")
    assert (priced.name, priced.bytes, priced.notes) == ("my_triton_kernel", {"hbm": 16 * 1024}, ("priced by a registered function",))
    (unpriced,) = report_on(trace, tmp_path).ops
    assert unpriced.bytes == {"hbm": None}


def test_a_server_without_profiler_steps_has_its_recurring_annotation_as_steps(tmp_path: Path) -> None:
    trace = TorchTrace()
    for step in range(3):
        trace.annotation(f"step[DECODE bs={32 - step}]", 100 * step, 90)
        trace.annotation("sampler", 100 * step + 50, 10)
        trace.op("aten::mm", 100 * step + 10, 20, [(8, 4), (4, 2)])
        trace.run("gemm", launched=100 * step + 12, start=100 * step + 40, dur=10)
    report = report_on(trace, tmp_path)
    assert [step.name for step in report.steps] == ["step[DECODE bs=32]", "step[DECODE bs=31]", "step[DECODE bs=30]"]


UNCAPTURED = {"Memset (Device)", "gemm", "relu_kernel"}  # the events of a replay


def graph_trace(*, captured: bool) -> TorchTrace:
    trace = TorchTrace()
    if captured:
        trace.launch(0, "cudaStreamBeginCapture")
        trace.op("aten::mm", 10, 10, [(8, 4), (4, 2)])
        trace.launch(11, "cudaMemsetAsync")
        trace.launch(12)
        trace.op("aten::relu", 30, 10, [(8, 2)])
        trace.launch(31)
        trace.launch(50, "cudaStreamEndCapture")
    for replay in range(2):
        launch = trace.launch(100 + 100 * replay, "cudaGraphLaunch")
        start = 110 + 100 * replay
        trace.ran("Memset (Device)", start, 1, launch, cat="gpu_memset", bytes=16)
        trace.ran("gemm", start + 2, 5, launch)
        trace.ran("relu_kernel", start + 8, 5, launch)
    return trace


def test_a_replay_of_a_graph_is_led_to_the_ops_of_its_capture(tmp_path: Path) -> None:
    report = report_on(graph_trace(captured=True), tmp_path)
    found = {op.name: (op.count, op.kernels, op.flops) for op in report.ops}
    assert found["aten::mm"] == (2, 4, 2 * 128)
    assert found["aten::relu"][:2] == (2, 2)
    assert report.coverage.priced_s == report.coverage.busy_s


def test_peak_memory_is_the_most_that_a_device_had_allocated(tmp_path: Path) -> None:
    trace = training()
    trace.allocation(5, 3_000, 8_192)
    trace.allocation(6, 5_000, 8_192)
    trace.allocation(7, 1_000, 16_384)
    trace.allocation(8, 10**12, 0, device_type=0)  # the host's
    memory = report_on(trace, tmp_path).memory
    assert memory is not None
    assert (memory.peak_bytes, memory.reserved, memory.method) == (5_000, 16_384, "allocations in the profile")
    assert report_on(training(), tmp_path).memory is None


def test_a_graph_works_in_the_memory_of_its_capture(tmp_path: Path) -> None:
    capture, run = graph_trace(captured=True), graph_trace(captured=False)
    capture.allocation(20, 7_000, 8_192)
    run.allocation(100, 2_000, 8_192)
    folder = tmp_path / "capture_traces"
    folder.mkdir()
    capture.write(folder / "trace.json")
    memory = report_on(run, tmp_path).memory
    assert memory is not None
    assert memory.peak_bytes == 7_000


def test_a_step_that_captures_a_graph_is_warm_up_with_those_before_it(tmp_path: Path) -> None:
    def steps(count: int, captures: int) -> list[tuple[bool, bool]]:
        trace = training(count)
        trace.launch(50 * captures + 2, "cudaStreamBeginCapture")
        trace.launch(50 * captures + 3, "cudaStreamEndCapture")
        return [(step.compiled, step.steady) for step in report_on(trace, tmp_path).steps]

    assert steps(5, captures=1) == [(False, False), (False, False), *[(False, True)] * 3]
    assert steps(7, captures=3) == [*[(False, False)] * 4, *[(False, True)] * 3]  # after three steps without a graph
    assert steps(3, captures=2) == [(False, True)] * 3  # no step is left that could be the usual one


def test_a_step_that_compiles_is_warm_up(tmp_path: Path) -> None:
    trace = training(4)
    trace.frame("torch/_dynamo/convert_frame.py(1200): __call__", 2, 10)
    trace.frame("torch/_inductor/compile_fx.py(1870): run", 52, 10)  # what runs a compiled function that is a graph
    report = report_on(trace, tmp_path)
    assert [(step.compiled, step.steady) for step in report.steps] == [(True, False), *[(False, True)] * 3]


def test_an_annotation_that_outlasts_the_function_it_begins_in_is_not_inside_of_it(tmp_path: Path) -> None:
    # Each annotation begins while the function that ended the one before still runs, as where a wrapper ends and begins steps.
    trace = TorchTrace()
    trace.frame("train.py(3): main", 0, 500)
    for step in range(3):
        start = 100 * step + 20
        trace.frame("hooks.py(7): next_step", start - 10, 20)
        trace.annotation("token", start, 95)
        trace.op("aten::mm", start + 30, 20, [(8, 4), (4, 2)])
        trace.run("gemm", launched=start + 32, start=start + 40, dur=10)
    report = report_on(trace, tmp_path)
    (op,) = report.ops
    assert (op.scope, op.location, op.count) == ("token", "train.py:3", 3)
    assert len(report.steps) == 3


def test_a_replay_whose_capture_was_not_recorded_has_a_row_for_each_kernel(tmp_path: Path) -> None:
    report = report_on(graph_trace(captured=False), tmp_path)
    found = {op.name: op for op in report.ops}
    assert {name: (op.count, op.kernels) for name, op in found.items()} == dict.fromkeys(UNCAPTURED, (2, 2))
    assert {found[name].category for name in ("gemm", "relu_kernel")} == {"graph replay"}
    assert found["Memset (Device)"].bytes == {"hbm": 2 * 16}  # the event has its bytes
    (unknown,) = [one for one in report.findings if one.kind == "unknown"]
    assert unknown.levers[0].startswith("also record the step that captures the graph, here or in a trace beside this one")
    assert report.coverage.attributed_s == report.coverage.busy_s
    assert report.coverage.priced_s == pytest.approx(2e-6)  # of 22 µs


def test_numbers_that_pytorch_cannot_hold_are_not_taken_for_sizes(tmp_path: Path) -> None:
    trace = TorchTrace()
    trace.op("aten::mm", 10, 5, tensors=[(8, 10**400), (10**400, 2)])
    trace.run("gemm", launched=12, start=20, dur=3)
    trace.op("record_param_comms", 40, 4)
    trace.events[-1]["args"] |= {"Collective name": "allreduce", "In msg nelems": 10**400, "dtype": "Float", "Group size": 8}
    trace.run("ncclDevKernel_AllReduce", launched=42, start=50, dur=3)
    report = report_on(trace, tmp_path)
    assert [(op.name, op.flops) for op in report.ops] == [("aten::mm", None), ("record_param_comms", None)]


def test_a_collective_crosses_links_and_hides_behind_compute(tmp_path: Path) -> None:
    trace = training(1, distributedInfo={"rank": 3, "world_size": 8})
    fields = {"Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000, "dtype": "BFloat16", "Group size": 8}
    trace.op("record_param_comms", 41, 4)
    trace.events[-1]["args"] |= fields
    trace.run("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", launched=42, start=995, dur=30, stream=20, **fields)
    recording = recording_of(trace, tmp_path)
    assert [device.id for device in recording.devices] == [3]
    op = next(op for op in recording.workload if op.name == "record_param_comms")
    # 2·(8 − 1)/8 of 2,000 bytes on the busiest link, or less with reduction in the switch.
    assert 0 < (op.cost.bytes("nvlink") or 0) <= 3500
    # Of 30 µs two products of 10 µs run beside it; 995 to 1000 and 1010 to 1020 are exposed, 1020 to 1025 is not.
    assert (op.time_s, op.self_time_s) == (pytest.approx(30e-6), pytest.approx(15e-6))


@pytest.mark.parametrize("words", [[], ["--chip", "h200"], ["--set", "hbm=4 TB/s"]])
def test_a_collective_uses_all_links_of_the_chip_that_the_trace_names(tmp_path: Path, words: list[str]) -> None:
    trace = training(1, distributedInfo={"rank": 0, "world_size": 8})
    fields = {"Collective name": "allreduce", "In msg nelems": 9000, "Out msg nelems": 9000, "dtype": "BFloat16", "Group size": 8}
    trace.op("record_param_comms", 41, 4)
    trace.events[-1]["args"] |= fields
    trace.run("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", launched=42, start=995, dur=30, stream=20, **fields)
    path, kept = trace.write(tmp_path / "trace.json"), tmp_path / "report.json"
    assert main(["analyze", str(path), "--json", str(kept), *words]) == 0
    sent = 2 * 7 / 8 * 18000 / 18  # over 18 links
    for report in (analyze(kept), analyze(path)):
        assert [op.bytes["nvlink"] for op in report.ops if op.name == "record_param_comms"] == [sent]


def test_a_copy_into_another_layout_is_a_finding(tmp_path: Path) -> None:
    trace = TorchTrace()
    shape = (8192, 8192)
    for at in trace.steps(2, 1000):
        trace.op("aten::copy_", at + 1, 5, [shape, shape], strides=[(8192, 1), (1, 8192)])
        trace.run("copy", launched=at + 2, start=at + 10, dur=1000)
    report = report_on(trace, tmp_path)
    assert next(one for one in report.findings if one.saving_s).kind == "layout-copies"


@pytest.mark.parametrize(
    ("first", "second", "reason", "word"),
    [
        (("aten::item", "cudaStreamSynchronize"), "", "sync", "item"),
        (("", ""), "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "input", "DataLoader"),
    ],
)
def test_idle_time_is_explained_by_what_the_host_did(tmp_path: Path, first: tuple[str, str], second: str, reason: str, word: str) -> None:
    trace = TorchTrace()
    for at in trace.steps(3, 10_000):
        trace.op("aten::mm", at + 10, 10, [(8, 4), (4, 2)])
        trace.run("gemm", launched=at + 12, start=at + 20, dur=100)
        if first[0]:
            trace.op(first[0], at + 30, 9_000)
            trace.launch(at + 40, first[1], dur=8_500)
        if second:
            trace.annotation(second, at + 200, 8_500)
    longest = report_on(trace, tmp_path).idle[0]
    assert longest.reason == reason
    assert word in longest.activity


def test_kernels_are_told_apart_within_a_step_so_that_counters_follow_their_order(tmp_path: Path) -> None:
    trace = TorchTrace()
    for begin in trace.steps(2, 100):
        for place, shape in enumerate(((8, 4), (16, 4), (8, 4))):
            at = begin + 10 * place
            trace.product(at, 5, launched=at + 1, ran=at + 5, took=2, tensors=[shape, (4, 2)])
    kernels = sorted(recording_of(trace, tmp_path).kernels, key=lambda use: use.order)
    first = kernels[0].op_index
    assert [(use.op_index == first, use.nth, use.count) for use in kernels] == [(True, 0, 2), (False, 0, 2), (True, 1, 2)]


def test_advice_speaks_of_pytorch(tmp_path: Path) -> None:
    trace = TorchTrace()
    for begin in trace.steps(3, 1000):
        for at in range(begin, begin + 800, 100):
            trace.product(at + 10, 80, launched=at + 80, ran=at + 82, took=5)
    first = next(one for one in report_on(trace, tmp_path).findings if one.saving_s)
    assert (first.kind, first.title[:11]) == ("idle-dispatch", "the kernels")
    assert "torch.compile" in first.levers[0]


# Captures on an H200


def test_a_training_step_is_counted_to_the_last_digit() -> None:
    report = analyze(DATA / "h200" / "torch_eager.json.gz")
    steps = [point for point in report.points if point.scope == "step"]
    assert [point.work["matrix/bf16"] for point in steps] == [13_597_866_459_136] * 3
    assert [point.needed and point.needed["matrix/bf16"] for point in steps] == [13_529_146_982_400] * 3
    assert [point.flops_by_convention for point in steps] == [{"flop_counter": 14_078_902_796_288}] * 3
    # The union of the events of each step, in ms: 358 of 1,354 events; 280 more were launched before the recording.
    assert [round((point.busy_s or 0) * 1e3, 3) for point in steps] == [28.601, 29.1, 28.883]
    assert report.coverage.busy_s == pytest.approx(102.866076e-3)
    assert report.coverage.attributed_s == report.coverage.priced_s == report.coverage.busy_s
    assert max(op.efficiency or 0 for op in report.ops) <= 1.02


def test_counters_of_a_step_line_up_with_its_kernels() -> None:
    report = analyze(DATA / "h200" / "torch_eager.json.gz", counters=[DATA / "ncu_torch_eager.csv.gz"])
    assert "counters: 200 of 200 launches matched to 45 of 50 ops with kernels" in report.input.notes
    # Products that run the same kernel with the same grid, and differ only in their shapes: the order tells them apart.
    ratios = [op.counters.ratio["matrix"] for op in report.ops if op.name == "aten::addmm" and op.counters]
    assert ratios == [1, 1, 1, 1]


def test_copies_round_products_are_the_first_finding() -> None:
    report = analyze(DATA / "h200" / "torch_contig.json.gz")
    assert next(one for one in report.findings if one.saving_s).kind == "layout-copies"


# The file


def test_a_trace_is_known_by_its_content(tmp_path: Path) -> None:
    path = training().write(tmp_path / "anything.txt")
    assert find(path).name == "torch"
    assert find(training().write(tmp_path / "packed.gz")).name == "torch"
    bare = tmp_path / "bare"
    bare.write_bytes(json.dumps(training().events).encode())
    assert find(bare).name == "torch"


def test_a_bare_list_and_a_file_with_sorted_or_indented_keys_say_the_same(tmp_path: Path) -> None:
    trace = training()
    expected = recording_of(trace, tmp_path).workload
    whole = {**trace.head, "traceEvents": trace.events}
    for text in (json.dumps(trace.events), json.dumps(whole, indent=2), json.dumps(whole, sort_keys=True), json.dumps(whole) + "\n"):
        assert recording_of(text.encode(), tmp_path).workload == expected


def test_reading_in_small_chunks_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = training(8)
    expected = recording_of(trace, tmp_path).workload
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 500)
    monkeypatch.setattr(chunks, "TAIL_BYTES", 100)
    assert recording_of(trace, tmp_path).workload == expected
    assert recording_of(gzip.compress(trace.text()), tmp_path).workload == expected


def test_the_end_of_a_long_event_is_looked_for_only_a_few_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace, looked = training(), list[int]()
    expected = recording_of(trace, tmp_path).workload
    trace.events.insert(0, {"ph": "i", "name": "n" * 500_000, "ts": 0})
    last_cut = chunks._last_cut
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 500)
    monkeypatch.setattr(chunks, "_last_cut", lambda text: looked.append(len(text)) or last_cut(text))  # type: ignore[func-returns-value]
    assert recording_of(trace, tmp_path).workload == expected
    assert sum(looked) < 3 * 500_000  # of text; at every block of it, 250 million


def test_what_is_said_after_the_events_counts_too(tmp_path: Path) -> None:
    trace = training()
    info = trace.head.pop("deviceProperties")
    text = json.dumps({**trace.head, "traceEvents": trace.events, "deviceProperties": info, "distributedInfo": {"rank": 5}})
    recording = recording_of(text.encode(), tmp_path)
    assert (recording.devices[0].name, recording.hosts) == ("NVIDIA H200", ("rank 5",))


def test_traces_of_2022_have_other_categories_and_whole_microseconds(tmp_path: Path) -> None:
    trace = TorchTrace(base=1_661_203_462_000_000)
    trace.op("aten::mm", 0, 5, [(8, 4), (4, 2)], dtype="float", cat="Operator")
    trace.launch(1)
    trace.events[-1]["cat"] = "Runtime"
    trace.ran("sgemm", 9, 3, 1, cat="Kernel")
    report = report_on(trace, tmp_path)
    assert [(op.name, op.time_s, op.flops) for op in report.ops] == [("aten::mm", pytest.approx(3e-6), 128)]


def test_absolute_microseconds_with_decimals_keep_every_nanosecond(tmp_path: Path) -> None:
    text = training(1).text().decode()
    for event in training(1).events:
        absolute = f'"ts": 1698767890{event["ts"]:06}.001, "dur": {event["dur"]}.003'
        text = text.replace(f'"ts": {event["ts"]}, "dur": {event["dur"]}', absolute, 1)
    recording = recording_of(text.encode(), tmp_path)
    # As floats these are off by up to 125 ns.
    assert recording.coverage.busy_s == pytest.approx(31e-6 + 4 * 3e-9, abs=1e-12)


def test_a_truncated_trace_is_an_error_and_what_was_whole_with_salvage(tmp_path: Path) -> None:
    text = training(8).text()
    whole = recording_of(text, tmp_path)
    for cut in (text[: len(text) // 2], text[: text.rindex(b"}, {") + 1], gzip.compress(text)[:-50]):
        with pytest.raises(SourceError, match=r"truncated.*--read salvage"):
            recording_of(cut, tmp_path)
        found = recording_of(cut, tmp_path, salvage=True)
        assert 0 < len(found.kernels) <= len(whole.kernels)
        assert "truncated" in " ".join(found.notes)


def test_an_event_with_unescaped_quotes_is_skipped_and_told(tmp_path: Path) -> None:
    trace = training()
    expected = recording_of(trace, tmp_path).workload
    bad = b'{"ph": "X", "cat": "cpu_op", "name": "op "quoted" name", "pid": 1, "tid": 1, "ts": 1, "dur": 2}'
    text = trace.text()
    middle = text.index(b"}, {") + 1
    last = text.rindex(b"}]") + 1
    for place in (middle, last):
        recording = recording_of(text[:place] + b", " + bad + text[place:], tmp_path)
        assert recording.workload == expected
        assert any("one event is not valid JSON and was skipped" in note for note in recording.notes)


def test_a_program_on_the_cpu_has_its_innermost_ops_as_work() -> None:
    report = analyze(DATA / "torch_cpu.json.gz", "h200")
    # Two products forward; backward two of the second layer and one of the first: each 2·32·64·128 FLOP.
    steps = [point for point in report.points if point.scope == "step"]
    assert [point.work["matrix/fp32"] for point in steps] == [5 * 2 * 32 * 64 * 128] * 2
    products = {(op.name, op.scope, op.phase) for op in report.ops if op.name in ("aten::mm", "aten::addmm")}
    assert ("aten::addmm", "Block_0/Linear_0", "forward") in products
    assert ("aten::mm", "Block_0/Linear_1", "backward") in products
    assert {op.location for op in report.ops if op.name == "aten::addmm"} == {"train.py:7"}


def test_a_trace_of_an_accelerator_whose_events_are_not_read_is_no_program_on_the_cpu(tmp_path: Path) -> None:
    trace = TorchTrace()
    trace.op("aten::mm", 10, 5, tensors=[(8, 4), (4, 2)])
    trace.add("mtia_ccp_events", "pe_exe", 20, 5, 17, 3, {"stream": 1})
    with pytest.raises(SourceError, match=r"accelerator whose events roofline does not read \(mtia_ccp_events\)"):
        recording_of(trace, tmp_path)


def test_a_convolution_on_the_cpu_is_work_with_what_it_calls(tmp_path: Path) -> None:
    trace = TorchTrace()
    image, filters = (2, 4, 10, 10), (8, 4, 3, 3)
    window = ["[1, 1]", "[1, 1]", "[1, 1]", "1"]
    for step in range(3):  # in one step the copy takes longer than the rest
        at, copied = 1000 * step, 300 if step == 1 else 10
        trace.annotation(f"ProfilerStep#{step}", at, 900)
        trace.op("aten::conv2d", at + 1, 400, [image, filters, (8,)], dtype="float", values=window)
        trace.op("aten::convolution", at + 2, 398, [image, filters, (8,)], dtype="float", values=[*window[:3], "False", "[0, 0]", "1"])
        trace.op("aten::mkldnn_convolution", at + 3, 390, [image, filters, (8,)], dtype="float", values=window)
        trace.op("aten::empty", at + 4, 2)
        trace.op("aten::contiguous", at + 8, copied + 2, [image], dtype="float")
        trace.op("aten::copy_", at + 9, copied, [image, image], dtype="float")
        flags = [*window[:3], "True", "[0, 0]", "1", "False", "False", "True", "True"]  # transposed; the last one allows tf32
        trace.op("aten::_convolution", at + 450, 40, [image, (4, 8, 3, 3), (8,)], dtype="float", values=flags)
        trace.op("aten::mm", at + 500, 50, [(8, 4), (4, 2)], dtype="float")
        trace.op("aten::resolve_conj", at + 501, 1, [(8, 4)], dtype="float")
        trace.op("aten::relu", at + 600, 100, [image], dtype="float")
        trace.op("aten::clamp_min", at + 601, 90, [image], dtype="float", values=["0"])
    report = analyze(trace.write(tmp_path / "t.json"), "h200")
    seconds = {op.name: (op.count, round(op.self_time_s * 1e6)) for op in report.ops}
    lengths = {"aten::mkldnn_convolution": 390, "aten::_convolution": 40, "aten::mm": 50, "aten::clamp_min": 90}
    assert seconds == {name: (3, 3 * length) for name, length in lengths.items()}
    convolution = next(op for op in report.ops if op.name == "aten::mkldnn_convolution")
    # Of 3x3 taps, those at an edge of 10 pixels lie outside: 28 of 30 on each axis.
    assert convolution.work["matrix/fp32"] == 3 * 2 * 2 * 8 * 4 * 28 * 28
    assert not any("tf32" in note for op in report.ops for note in op.notes)


def test_views_and_questions_are_no_work_of_a_cpu(tmp_path: Path) -> None:
    trace = TorchTrace()
    trace.op("aten::_conj", 120, 10, [(16, 192)], dtype="c10::complex<float>")
    trace.op("aten::dropout", 140, 10, [(16, 192)], dtype="float", values=["0.", "True"])
    trace.op("aten::cudnn_is_acceptable", 160, 10, [(16, 192)], dtype="float")
    trace.op("aten::unsafe_split", 0, 50, [(16, 192)], dtype="float", values=["64", "1"])
    trace.op("aten::unsafe_chunk", 60, 50, [(16, 192)], dtype="float", values=["3", "1"])
    trace.op("aten::mm", 200, 20, [(8, 4), (4, 2)])
    assert [op.name for op in analyze(trace.write(tmp_path / "t.json"), "h200").ops] == ["aten::mm"]


def test_the_divergence_of_a_tensor_reads_it_once_where_it_is_both_operands(tmp_path: Path) -> None:
    trace = TorchTrace()
    sizes = [(64, 64), (64, 64)]
    trace.op("aten::kl_div", 0, 100, sizes, dtype="float")
    trace.op("aten::xlogy", 5, 40, sizes, dtype="float")  # of the target and the target
    trace.op("aten::mul", 50, 40, sizes, dtype="float")
    trace.op("aten::xlogy", 200, 40, sizes, dtype="float")  # of any two
    report = analyze(trace.write(tmp_path / "t.json"), "h200")
    each = 4 * 64 * 64
    assert sorted((op.name, op.bytes["hbm"]) for op in report.ops) == [
        ("aten::mul", 3 * each),
        ("aten::xlogy", 2 * each),
        ("aten::xlogy", 3 * each),
    ]


def listed(trace: TorchTrace, name: str, at: float, lists: Sequence[Sequence[Sequence[int]]], *values: str) -> None:
    """An op over lists of tensors, as traces have it: without their number formats."""
    given = {
        "Input Dims": [*lists, *([] for _ in values)],
        "Input type": [*("TensorList" for _ in lists), *("Scalar" for _ in values)],
        "Input Strides": [[[1] * len(one) for one in some] for some in lists],
        "Concrete Inputs": [*("" for _ in lists), *values],
    }
    trace.add("cpu_op", name, at, 50, 100, 1, {"External id": 1, **given})


@pytest.mark.parametrize("dtype", ["float", "c10::BFloat16"])
def test_a_cpu_concatenates_in_the_number_format_of_its_result(tmp_path: Path, dtype: str) -> None:
    trace = TorchTrace()
    listed(trace, "aten::cat", 0, [[(8, 16), (8, 48)]], "1")
    trace.op("aten::narrow", 5, 10, [(8, 16)], dtype="double", values=["1", "0", "16"])  # of something else
    trace.op("aten::narrow", 16, 10, [(8, 64)], dtype=dtype, values=["1", "0", "16"])
    (op,) = analyze(trace.write(tmp_path / "t.json"), "h200").ops
    # 8·64 elements are read and written.
    assert op.bytes["hbm"] == 2 * 8 * 64 * (4 if dtype == "float" else 2)


@pytest.mark.parametrize("formats", [(), ("float",), ("float", "c10::BFloat16")])
def test_a_fused_optimizer_on_a_cpu_updates_weights_in_the_number_format_of_the_gradients(tmp_path: Path, formats: Sequence[str]) -> None:
    trace = TorchTrace()
    for place, number in enumerate(formats):
        trace.op("torch::autograd::AccumulateGrad", 10 * place, 5, [(8, 16)], dtype=number)
    listed(trace, "aten::_fused_adam_", 100, [[(8, 16)]] * 4, "0.001")
    op = next(op for op in analyze(trace.write(tmp_path / "t.json"), "h200").ops if op.name == "aten::_fused_adam_")
    if len(formats) == 1:  # weights, gradients and two moments are read, all but the gradients written
        assert (op.bytes["hbm"], op.notes) == (7 * 4 * 8 * 16, ("weights and state counted in the number format of the gradients",))
    else:
        assert (op.bytes["hbm"], op.notes) == (None, ("traces do not have the number formats of lists of tensors",))


@pytest.mark.parametrize(("length", "bound"), [(20, "latency"), (200, "hbm")])
def test_an_op_of_microseconds_on_a_cpu_is_bound_by_its_call(tmp_path: Path, length: float, bound: str) -> None:
    trace = TorchTrace()
    trace.op("aten::add", 0, length, [(64, 64), (64, 64)], dtype="float", values=["1"])
    # 49 kB take 1.5 µs from memory; PyTorch and its profiler take about 5 µs to call any operator.
    report = analyze(trace.write(tmp_path / "t.json"), Machine.of("cpu", {"vector/fp32": 320e9, "hbm": 32e9}, kind="cpu"))
    assert (report.ops[0].bound, report.machine.launch_latency_s) == (bound, 5e-6)


def test_an_op_that_checkpointing_stopped_did_not_run(tmp_path: Path) -> None:
    # The second product is computed again as far as its inputs, which the hook of checkpointing detaches; the addition calls no op anyway.
    trace = TorchTrace()
    for at, calls in ((0, ("aten::expand", "aten::copy_")), (100, ("aten::detach", "detach")), (200, ("aten::detach", "aten::copy_"))):
        trace.op("aten::addmm", at, 50, [(2,), (8, 4), (4, 2)], dtype="float")
        for place, name in enumerate(calls):
            trace.op(name, at + 5 + 10 * place, 5, [(8, 4), (8, 4)], dtype="float")
        trace.op("aten::add", at + 60, 20, [(8, 4), (8, 4)], dtype="float")
        trace.op("aten::detach", at + 61, 5, [(8, 4)], dtype="float")
    counts = {op.name: op.count for op in analyze(trace.write(tmp_path / "t.json"), "h200").ops}
    assert counts == {"aten::addmm": 2, "aten::add": 3}


def test_a_sparse_tensor_is_one_without_strides(tmp_path: Path) -> None:
    trace = TorchTrace()
    trace.op("aten::add_", 0, 20, [(1000, 64), (1000, 64)], dtype="float", values=["1"])
    trace.op("aten::add_", 30, 20, [(1000, 64), (1000, 64)], dtype="float", strides=[(64, 1), ()], values=["1"])
    dense, sparse = sorted(analyze(trace.write(tmp_path / "t.json"), "h200").ops, key=lambda op: op.bytes.get("hbm") is None)
    assert (dense.bytes["hbm"], dense.count, sparse.bytes.get("hbm"), sparse.count) == (3 * 4 * 1000 * 64, 1, None, 1)
    assert any("a sparse tensor" in note for note in sparse.notes)


def test_a_call_whose_return_was_not_recorded_ends_with_its_caller(tmp_path: Path) -> None:
    # The profiler has such calls last until its end, and the next steps would be inside of them.
    trace = TorchTrace()
    for begin in trace.steps(3, 1000):
        trace.frame("nn.Module: Net_0", begin + 1, 500)
        trace.frame("<built-in method apply of FunctionMeta object at 0x1>", begin + 2, 3000 - begin - 2)
        trace.product(begin + 10, 5, launched=begin + 12, ran=begin + 20, took=100)
    (op,) = report_on(trace, tmp_path).ops
    assert (op.scope, op.count) == ("Net_0", 3)


def updates(trace: TorchTrace, at: float) -> None:
    """A training step of 100 µs on the CPU: two products, then an optimizer of ten small ops; all but 10 µs of it is work."""
    for place in range(2):
        trace.op("aten::mm", at + 35 * place, 35, [(8, 4), (4, 2)], dtype="float")
    trace.annotation("Optimizer.zero_grad#SGD.zero_grad", at + 70, 5)
    trace.annotation("Optimizer.step#SGD.step", at + 75, 21)
    for place in range(10):
        trace.op("aten::add_", at + 75 + 2 * place, 2, [(8,), (8,)], dtype="float", values=["1"])


def test_steps_end_with_those_of_the_optimizer_where_none_are_annotated(tmp_path: Path) -> None:
    trace = TorchTrace()
    for at in range(0, 400, 100):
        updates(trace, at)
    report = analyze(trace.write(tmp_path / "t.json"), "h200")
    average = next(point for point in report.points if point.scope == "average")
    assert [step.number for step in report.steps] == [1, 2, 3]
    assert average.time_s == pytest.approx(100e-6)
    assert average.busy_s == pytest.approx(90e-6), "the products count as well as the optimizer, which has most of the ops"
    assert average.work["matrix/fp32"] == 2 * 2 * 8 * 4 * 2


def test_of_two_optimizers_steps_end_with_the_one_that_runs_least_often(tmp_path: Path) -> None:
    trace = TorchTrace()
    for at in range(0, 400, 100):
        updates(trace, at)
        if at % 200:
            trace.annotation("Optimizer.step#Adam.step", at + 97, 2)
    report = analyze(trace.write(tmp_path / "t.json"), "h200")
    assert [round((step.time_s or 0) * 1e6) for step in report.steps] == [195]  # until its last op ends


@pytest.mark.parametrize("by", ["ops", "gradients"])
def test_optimizers_of_one_class_that_take_turns_make_one_step(tmp_path: Path, by: str) -> None:
    # A discriminator's update of 12 ops, then a generator's of 14, or with gradients for both; both by SGD.
    trace = TorchTrace()
    for at in range(0, 1000, 200):
        updates(trace, at)
        for place in range(2):
            if by == "ops":
                trace.op("aten::mm", at + 96 + 2 * place, 2, [(8, 4), (4, 2)], dtype="float")
            else:
                trace.op("torch::autograd::AccumulateGrad", at + 96 + 2 * place, 2, [(8, 4)], dtype="float")
        updates(trace, at + 100)
    report = analyze(trace.write(tmp_path / "t.json"), "h200")
    assert [round((step.time_s or 0) * 1e6) for step in report.steps] == [200, 200, 200, 195]  # the last until its last op ends


def test_what_follows_an_annotation_that_recurs_belongs_to_its_step(tmp_path: Path) -> None:
    # The forward pass is annotated, and has more ops than the backward pass, which takes as long.
    trace = TorchTrace()
    for at in range(0, 400, 100):
        trace.annotation("forward", at, 40)
        for place in range(4):
            trace.op("aten::mm", at + 10 * place, 10, [(8, 4), (4, 2)], dtype="float")
        trace.op("aten::mm", at + 50, 40, [(4, 8), (8, 2)], dtype="float")
    report = analyze(trace.write(tmp_path / "t.json"), "h200")
    average = next(point for point in report.points if point.scope == "average")
    assert (average.time_s, average.busy_s) == (pytest.approx(100e-6), pytest.approx(80e-6))


def test_compiled_graphs_that_alternate_are_one_step(tmp_path: Path) -> None:
    trace = TorchTrace()
    for at in range(0, 400, 100):
        for graph, begin, count in (("fforward", at, 2), ("fbackward", at + 40, 3)):
            trace.annotation(f"## Call CompiledFxGraph {graph} ##", begin, 38)
            for place in range(count):
                trace.product(begin + 1 + 10 * place, 8, launched=begin + 2 + 10 * place, ran=begin + 5 + 10 * place, took=9)
    report = report_on(trace, tmp_path)
    average = next(point for point in report.points if point.scope == "average")
    assert (average.time_s, average.busy_s) == (pytest.approx(100e-6), pytest.approx(5 * 9e-6))


def test_a_gpu_program_without_device_events_is_refused(tmp_path: Path) -> None:
    trace = TorchTrace()
    trace.op("aten::mm", 0, 5, [(8, 4), (4, 2)])
    trace.launch(1)
    with pytest.raises(SourceError, match=r"no device activity.*ProfilerActivity\.CUDA"):
        recording_of(trace, tmp_path)


def test_events_of_a_device_alone_are_rows_by_kernel(tmp_path: Path) -> None:
    trace = TorchTrace()
    trace.ran("kernel_a", 0, 5, 1)
    trace.ran("kernel_a", 10, 5, 2)
    report = report_on(trace, tmp_path)
    assert [(op.name, op.count) for op in report.ops] == [("kernel_a", 2)]
    assert report.coverage.attributed_s == 0


# Ranks


def test_a_folder_of_traces_is_one_run_of_ranks(tmp_path: Path) -> None:
    for rank in range(2):
        training(distributedInfo={"rank": rank, "world_size": 2}).write(tmp_path / f"host_{rank}.17000{rank}.pt.trace.json")
    (tmp_path / "graph_capture.1.pt.trace.json").write_text("{}")
    report = analyze(tmp_path)
    assert [(device.id, device.host) for device in report.input.devices] == [(0, "rank 0"), (1, "rank 1")]
    assert len(report.steps) == 3
    assert {op.count for op in report.ops} == {6}
    files = [tmp_path / "host_0.170000.pt.trace.json", tmp_path / "host_1.170001.pt.trace.json"]
    assert len(read(files).devices) == 2
    with pytest.raises(UsageError, match="of one run"):
        read([files[0], tmp_path / "graph_capture.1.pt.trace.json"])


def test_what_a_collective_takes_longer_than_on_the_shortest_rank_is_waiting(tmp_path: Path) -> None:
    for rank, dur in enumerate((10, 40)):
        trace = TorchTrace(distributedInfo={"rank": rank, "world_size": 2})
        fields = {"Collective name": "allreduce", "In msg nelems": 1000, "dtype": "Float", "Group size": 2}
        trace.op("record_param_comms", 0, 5)
        trace.events[-1]["args"] |= fields
        trace.run("ncclDevKernel_Generic", launched=1, start=50, dur=dur, **fields)
        trace.write(tmp_path / f"rank{rank}.json")
    alone = read(tmp_path / "rank1.json")
    assert any("include waiting" in note for note in alone.notes)
    together = read(tmp_path)
    assert [note for note in together.notes if "waiting" in note] == [
        "collectives take 50 µs on all ranks together, of which 30 µs (60%) is waiting: longer than on the rank that took least"
    ]


def test_two_recordings_of_one_worker_are_not_one_run(tmp_path: Path) -> None:
    for stamp in (1, 2):
        training().write(tmp_path / f"host_7.{stamp}.pt.trace.json")
    with pytest.raises(SourceError, match="2 traces of host_7"):
        read(tmp_path)


def test_a_part_survives_the_cache(tmp_path: Path) -> None:
    part = read_part(training().write(tmp_path / "trace.json"), timeline=True)
    assert unpack(pack(part)) == part


def test_a_timeline_adds_up_to_busy_time(tmp_path: Path) -> None:
    recording = recording_of(training(), tmp_path, timeline=True)
    step, run = recording.timeline
    assert (step.step, run.step) == (0, None)
    assert sum(run.busy_s) == pytest.approx(recording.coverage.busy_s)
    assert sum(map(sum, run.ops_s)) == pytest.approx(recording.coverage.busy_s)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_traces_give_an_answer_or_one_line(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    text = training(2).text()
    words = [b"null", b"-1", b"1e300", b'""', b"[]", b"{}", b'"x"', b"9" * 30, b"true", b'"\\ud800"', b"\xff", b",", b"}", b"]"]
    lines: list[str] = []
    for _ in range(60):
        damaged = bytearray(text)
        for _ in range(chance.randint(1, 4)):
            begin = chance.randrange(len(damaged))
            damaged[begin : begin + chance.choice((0, 1, 3, 40))] = chance.choice(words)
        try:
            recording = recording_of(bytes(damaged), tmp_path, salvage=chance.random() < 0.5)
        except SourceError as error:
            lines.append(str(error))
        else:
            assert (recording.coverage.busy_s or 0) <= (recording.coverage.wall_s or 0) * (1 + 1e-9)
    assert not any("\n" in line for line in lines)


def test_threads_of_backward_do_not_hide_what_the_main_thread_launched(tmp_path: Path) -> None:
    trace = TorchTrace()
    trace.op("aten::mm", 0, 50, [(8, 4), (4, 2)])
    trace.op("aten::relu", 10, 5, [(8, 2)], thread=BACKWARD)
    trace.run("gemm", launched=12, start=60, dur=5)
    assert [op.name for op in report_on(trace, tmp_path).ops] == ["aten::mm"]


def test_captures_of_graphs_may_lie_beside_the_trace(tmp_path: Path) -> None:
    replays, captures = graph_trace(captured=False), graph_trace(captured=True)
    captures.events = [event for event in captures.events if event["ts"] < 100]
    alone = analyze(replays.write(tmp_path / "run.json"))
    assert {op.name for op in alone.ops} == UNCAPTURED
    (tmp_path / "capture_traces").mkdir()
    captures.write(tmp_path / "capture_traces" / "graphs.json.gz")
    for path in (tmp_path / "run.json", tmp_path):
        report = analyze(path)
        assert {op.name: op.count for op in report.ops} == {"aten::mm": 2, "aten::relu": 2}
        assert report.coverage.priced_s == report.coverage.busy_s
        assert "captures of graphs are from graphs.json.gz" in report.input.notes


def test_each_process_of_a_run_has_captures_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "capture_traces").mkdir()
    trace = graph_trace(captured=False).write(tmp_path / "host_rank0.1700000000000.pt.trace.json")
    capture = graph_trace(captured=True)
    capture.events = [event for event in capture.events if event["ts"] < 100]
    for number in range(12):  # of another rank, and more than are read of an unknown one
        capture.write(tmp_path / "capture_traces" / f"host_rank00.{number:04d}.json")
    for number in (1, 2):
        capture.write(tmp_path / "capture_traces" / f"host_rank0.{number:04d}.json.gz")
    assert [file.name for file in capture_files(trace)] == ["host_rank0.0001.json.gz", "host_rank0.0002.json.gz"]
    report = analyze(trace)
    assert {op.name for op in report.ops} == {"aten::mm", "aten::relu"}
    assert "captures of graphs are from host_rank0.0001.json.gz and 1 more" in report.input.notes


def test_what_compiled_code_does_before_its_kernels_is_no_work_of_a_cpu(tmp_path: Path) -> None:
    trace = TorchTrace()
    trace.op("TorchDynamo Cache Lookup", 0, 50, [])
    trace.op("Torch-Compiled Region: 0/0", 60, 50, [])
    trace.op("Pregraph bytecode", 61, 10, [])
    trace.op("aten::mm", 80, 20, [(8, 4), (4, 2)])
    assert [op.name for op in analyze(trace.write(tmp_path / "t.json"), "h200").ops] == ["aten::mm"]


@pytest.mark.parametrize("has_frames", [True, False])
def test_kernels_that_inductor_compiled_are_work_of_a_cpu(tmp_path: Path, has_frames: bool) -> None:
    # In a call of 100 µs a product takes 20 and Python before it 5; the kernels take the rest, if calls of Python do not tell of 60.
    trace = TorchTrace()
    for at in trace.steps(3, 200):
        trace.annotation("## Call CompiledFxGraph fzopnrxgabcdef ##", at + 10, 100)
        trace.op("aten::mm", at + 15, 20, [(8, 4), (4, 2)])
        if has_frames:
            trace.frame("/tmp/torchinductor_me/hu/chuumxt2rmacjkvk5ssguzw5s2o7m6utqlotttepoegej3vmf6jh.py(277): call", at + 11, 98)
            trace.frame("<built-in function kernel>", at + 40, 60)
            trace.frame("<built-in function _empty_strided_cpu>", at + 102, 2)
        trace.frame("<built-in function kernel>", at + 150, 10)  # of others
    report = analyze(trace.write(tmp_path / "t.json"), "h200")
    kernels = next(op for op in report.ops if op.name != "aten::mm")
    assert (kernels.name, kernels.label, kernels.count) == ("inductor::compiled kernels fzopnr", "compiled kernels fzopnr", 3)
    assert kernels.self_time_s == pytest.approx(3 * (60e-6 if has_frames else 80e-6))
    assert kernels.bytes == {"hbm": None}
    assert not any("record_shapes" in note for note in (*kernels.notes, *report.input.notes))
    assert sum(op.self_time_s or 0 for op in report.ops) == pytest.approx(report.coverage.busy_s)


@pytest.mark.parametrize("has_gloo", [True, False])
def test_collectives_of_gloo_are_work_of_a_cpu_that_ops_may_cover(tmp_path: Path, has_gloo: bool) -> None:
    # The all-reduce of 1,000 fp32 over 2 ranks takes 100 µs on Gloo's thread, of which a product covers 30; the op only asks for it.
    trace = TorchTrace(distributedInfo={"backend": "gloo", "rank": 0, "world_size": 2})
    for at in trace.steps(3, 300):
        trace.op("c10d::allreduce_", at + 10, 8)
        trace.op("aten::mm", at + 20, 30, [(8, 4), (4, 2)], dtype="float")
        if has_gloo:
            trace.op("gloo:all_reduce", at + 15, 100, [(1000,)], dtype="float", thread=7, cat="user_annotation")
    ops = {op.name: op for op in analyze(trace.write(tmp_path / "t.json"), "xeon-8480plus").ops}
    assert set(ops) == {"aten::mm", "gloo:all_reduce" if has_gloo else "c10d::allreduce_"}
    if has_gloo:
        found = ops["gloo:all_reduce"]
        assert (found.category, found.count) == ("collective", 3)
        assert (found.time_s, found.self_time_s) == (pytest.approx(300e-6), pytest.approx(210e-6))
        assert found.bytes == {"dcn": 3 * 4000}  # half to the other rank and half back, of each


def test_captures_of_another_rank_do_not_count(tmp_path: Path) -> None:
    replays, captures = graph_trace(captured=False), graph_trace(captured=True)
    replays.head["distributedInfo"], captures.head["distributedInfo"] = {"rank": 0}, {"rank": 1}
    captures.write(tmp_path / "capture_1.json")
    assert {op.name for op in analyze(replays.write(tmp_path / "run.json")).ops} == UNCAPTURED


def test_the_cache_notices_captures_that_come_later(tmp_path: Path) -> None:
    trace = graph_trace(captured=False).write(tmp_path / "run.json")
    cache = tmp_path / "cache"
    assert {op.name for op in read(trace, cache=cache).workload} == UNCAPTURED
    graph_trace(captured=True).write(tmp_path / "capture.json")
    assert len(read(trace, cache=cache).workload) == 2
