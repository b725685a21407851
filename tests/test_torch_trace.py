"""PyTorch profiler traces: what launched each event, which step it belongs to, and what the op behind it costs."""

import gzip
import json
import random
from pathlib import Path

import pytest

from roofline.analysis import analyze
from roofline.cli import main
from roofline.cost import Cost
from roofline.errors import SourceError, UsageError
from roofline.machine import Machine
from roofline.sources import find, read
from roofline.sources.cache import pack, unpack
from roofline.sources.torch_trace.read import chunks
from roofline.sources.torch_trace.read.capture_files import capture_files
from roofline.sources.torch_trace.recording import read_part
from roofline.torch_prices import forget, register
from roofline.workload import Recording
from torch_writer import TorchTrace, report_on, training

DATA = Path(__file__).parent / "data"


def recording_of(trace: TorchTrace | bytes, tmp_path: Path, **options: object) -> Recording:
    path = tmp_path / "trace.json"
    path.write_bytes(trace if isinstance(trace, bytes) else trace.text())
    return read(path, **options)  # type: ignore[arg-type]


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


def test_kernels_are_told_apart_within_a_step_so_that_counters_follow_their_order(tmp_path: Path) -> None:
    trace = TorchTrace()
    for begin in trace.steps(2, 100):
        for place, shape in enumerate(((8, 4), (16, 4), (8, 4))):
            at = begin + 10 * place
            trace.product(at, 5, launched=at + 1, ran=at + 5, took=2, tensors=[shape, (4, 2)])
    kernels = sorted(recording_of(trace, tmp_path).kernels, key=lambda use: use.order)
    first = kernels[0].op_index
    assert [(use.op_index == first, use.nth, use.count) for use in kernels] == [(True, 0, 2), (False, 0, 2), (True, 1, 2)]


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


@pytest.mark.parametrize(("length", "bound"), [(20, "latency"), (200, "hbm")])
def test_an_op_of_microseconds_on_a_cpu_is_bound_by_its_call(tmp_path: Path, length: float, bound: str) -> None:
    trace = TorchTrace()
    trace.op("aten::add", 0, length, [(64, 64), (64, 64)], dtype="float", values=["1"])
    # 49 kB take 1.5 µs from memory; PyTorch and its profiler take about 5 µs to call any operator.
    report = analyze(trace.write(tmp_path / "t.json"), Machine.of("cpu", {"vector/fp32": 320e9, "hbm": 32e9}, kind="cpu"))
    assert (report.ops[0].bound, report.machine.launch_latency_s) == (bound, 5e-6)


def test_a_gpu_program_without_device_events_is_refused(tmp_path: Path) -> None:
    trace = TorchTrace()
    trace.op("aten::mm", 0, 5, [(8, 4), (4, 2)])
    trace.launch(1)
    with pytest.raises(SourceError, match=r"no device activity.*ProfilerActivity\.CUDA"):
        recording_of(trace, tmp_path)


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
