"""Idle time in PyTorch traces: Python between ops, compiled functions, and what the profiler itself takes."""

import re
from pathlib import Path

import numpy as np
import pytest

from roofline.analysis import analyze
from roofline.report import Finding
from roofline.sources.torch_trace.recording_cost import slowed_note
from torch_writer import BACKWARD, NODE, SMALL, TorchTrace, findings_on, report_on


def launched_late(frames: int, tmp_path: Path, **head: object) -> Finding:
    """Steps of ten products of 5 µs, each launched 100 µs after the one before, with so many calls of Python in between."""
    trace = TorchTrace(**head)
    for begin in trace.steps(4, 1000):
        trace.frame("model.py(1): forward", begin, 999)
        for at in range(begin + 5, begin + 1000, 100):
            for number in range(frames):
                trace.frame(f"model.py({number + 1}): helper", at + 2 * number, 1)
            trace.product(at + 80, 10, launched=at + 85, ran=at + 88, took=5)
    (finding,) = findings_on(trace, tmp_path, "idle-dispatch")
    return finding


def test_the_time_in_which_the_profiler_records_is_not_to_be_won(tmp_path: Path) -> None:
    # Per launch one op (4 µs), its launch (1 µs) and twenty calls of Python (2 µs each): 45 of 95 µs of idle time, but for the first gap.
    # Where a step ends, the profiler takes another 100 µs, of which 70% of the host's time count.
    finding = launched_late(20, tmp_path)
    assert finding.saving_per_step_s == pytest.approx(950e-6 - 460e-6, rel=0.05)
    assert "About 460 µs of that is profiler overhead" in finding.message
    assert "220 host events per step" in finding.message


def test_without_many_events_nearly_all_of_it_is(tmp_path: Path) -> None:
    finding = launched_late(0, tmp_path)
    assert finding.saving_per_step_s == pytest.approx(950e-6 - 60e-6, rel=0.05)


@pytest.mark.parametrize("waits", [False, True])
def test_a_host_that_records_while_it_is_ahead_would_be_further_ahead(tmp_path: Path, waits: bool) -> None:
    # Two hundred calls of Python (210 of 300 µs, as recording takes 70% at most) while the device is busy, a launch before it is idle, and
    # one that is 240 µs late, with no calls before it: without the profiler it would have come in time.
    trace = TorchTrace()
    for begin in trace.steps(4, 1000):
        trace.frame("train.py(1): step", begin, 999)
        trace.product(begin + 2, 10, launched=begin + 5, ran=begin + 10, took=300)
        for number in range(200):
            trace.frame("train.py(9): helper", begin + 20 + 1.4 * number, 1)
        trace.product(begin + 302, 5, launched=begin + 305, ran=begin + 340, took=320)
        if waits:
            trace.launch(begin + 313, "cudaStreamSynchronize", dur=348)
        trace.op("aten::add", begin + 700, 220, [(8, 4), (8, 4)])
        trace.run("add", launched=begin + 899, start=begin + 900, dur=95)
    idle = [one for one in report_on(trace, tmp_path).idle if one.reason != "latency"]
    share = sum(one.recording_s or 0 for one in idle) / sum(one.time_s for one in idle)
    # All gaps but that of the first step, before which no launch is known.
    assert share == pytest.approx((3 * 240 + 3 * 15 + 5) / (4 * 240 + 3 * 15), rel=0.01) if not waits else share < 0.1


@pytest.mark.parametrize(("launch", "recording"), [(6.2, 250), (4.1, 125), (1.0, 100), (10.4, 500), (50.0, 500)])
def test_a_host_that_launches_slowly_records_slowly(tmp_path: Path, launch: float, recording: int) -> None:
    # An op and ten calls of Python take 25 µs with the launch on a host that launches in 6.2 µs, of which 2 µs are not the host's.
    trace = TorchTrace()
    for begin in range(0, 4000, 1000):
        trace.annotation("train", begin, 999)
        trace.frame("model.py(1): forward", begin, 999)
        for at in range(begin + 5, begin + 1000, 100):
            for number in range(10):
                trace.frame(f"model.py({number + 1}): helper", at + 2 * number, 1)
            trace.op("aten::mm", at + 40, 55, [(8, 4), (4, 2)])
            trace.ran("gemm", at + 93, 5, trace.launch(at + 45, dur=launch))
    idle = report_on(trace, tmp_path).idle[0]
    assert idle.recording_s == pytest.approx(recording * 4e-6, rel=0.05)


def test_a_runtime_call_is_recorded_in_a_quarter_of_the_time_of_an_op(tmp_path: Path) -> None:
    trace = TorchTrace()
    for begin in trace.steps(4, 1000):
        for at in range(begin, begin + 1000, 100):
            for number in range(25):
                trace.launch(at + 2 * number, "cudaEventRecord", dur=1)
            trace.op("aten::mm", at + 80, 15, [(8, 4), (4, 2)])
            trace.ran("gemm", at + 93, 5, trace.launch(at + 83, dur=6.2))
    # Per launch one op (4 µs) and 26 calls (1 µs each), without stacks nine tenths of that; none before the first launch.
    assert report_on(trace, tmp_path).idle[0].recording_s == pytest.approx(39 * 27e-6, rel=0.1)


def test_the_profiler_takes_seven_tenths_of_the_hosts_time_at_most(tmp_path: Path) -> None:
    finding = launched_late(39, tmp_path)  # 83 µs of 100 by their number
    assert finding.saving_per_step_s == pytest.approx(950e-6 - 680e-6, rel=0.05)


def test_idle_time_that_only_the_profiler_makes_promises_nothing(tmp_path: Path) -> None:
    trace = TorchTrace()
    for begin in trace.steps(4, 1000):
        for at in range(begin + 5, begin + 1000, 100):
            for number in range(8):
                trace.frame(f"model.py({number + 1}): helper", at + 10 * number, 9)
            trace.product(at + 85, 10, launched=at + 86, ran=at + 88, took=85, tensors=[(4096, 4096), (4096, 4096)])
    (finding,) = findings_on(trace, tmp_path, "idle-dispatch")
    assert finding.saving_s is None
    assert "Without the profiler" in finding.message


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        ("<built-in method view of Tensor object at 0x7f>", "dispatch"),
        ("<built-in method __exit__ of torch._C._profiler.RecordFunctionFast object at 0x7f>", "dispatch"),
        ("torch/_functorch/_aot_autograd/runtime_wrappers.py(2529): forward", "dispatch"),
        ("torch/_functorch/_aot_autograd/graph_compile.py(100): aot_stage2", "compile"),
        ("<built-in function sleep>", "input"),
    ],
)
def test_what_runs_between_two_launches(tmp_path: Path, frame: str, reason: str) -> None:
    trace = TorchTrace()
    for at in trace.steps(3, 1000):
        trace.frame("model.py(35): forward", at + 1, 980)
        trace.product(at + 2, 5, launched=at + 3, ran=at + 5, took=50)
        trace.frame(frame, at + 10, 900)
    longest = report_on(trace, tmp_path).idle[0]
    assert longest.reason == reason


def test_python_that_calls_nothing_between_two_close_ops_launches(tmp_path: Path) -> None:
    trace = TorchTrace()
    for begin in trace.steps(3, 1000):
        trace.frame("model.py(35): forward", begin + 1, 980)
        for at in range(begin + 5, begin + 900, 100):
            trace.product(at, 5, launched=at + 1, ran=at + 5, took=5)
    assert report_on(trace, tmp_path).idle[0].reason == "dispatch"


@pytest.mark.parametrize("frame", ["numpy/_core/_methods.py(148): _var", "email/feedparser.py(77): readline", "<built-in method std>"])
def test_a_loader_is_the_reason_whatever_it_calls(tmp_path: Path, frame: str) -> None:
    # A batch is put together by the user's dataset, by libraries and by ops on the host; the copy of it that follows is short.
    trace = TorchTrace()
    for at in trace.steps(3, 3000):
        trace.frame("train.py(20): main", at + 1, 2980)
        trace.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at + 2, 2000)
        trace.frame("data.py(7): __getitem__", at + 10, 1500)
        trace.frame(frame, at + 20, 1400)
        trace.op("aten::stack", at + 1600, 300, [(64, 1000)], dtype="float")
        trace.copy("HtoD (Pageable -> Device)", 256000, launched=at + 2200, ran=at + 2210, took=10)
        trace.product(at + 2230, 5, launched=at + 2231, ran=at + 2235, took=700, tensors=[(64, 1000), (1000, 8)])
    (longest, *_) = report_on(trace, tmp_path).idle
    assert (longest.reason, longest.location) == ("input", "data.py:7")
    assert longest.activity.startswith(("__getitem__", "_var, called", "readline, called", "std, called"))
    assert longest.time_s == pytest.approx(2 * 2.2e-3, rel=0.1)


def test_what_handles_a_value_that_was_read_back_is_no_input(tmp_path: Path) -> None:
    trace = TorchTrace()
    for at in trace.steps(3, 3000):
        trace.product(at + 2, 5, launched=at + 3, ran=at + 5, took=50, tensors=[(64, 1000), (1000, 8)])
        trace.frame("serve.py(18): sample", at + 10, 2900)
        trace.copy("DtoH (Device -> Pageable)", 8 << 20, launched=at + 50, ran=at + 55, took=50, call=60)
        trace.frame("<built-in method argmax of numpy.ndarray object at 0x7f>", at + 120, 2700)
    (longest, *_) = report_on(trace, tmp_path).idle
    assert (longest.reason, longest.location) == ("sync", "serve.py:18")


def test_an_annotation_that_outlasts_a_call_is_not_inside_of_it(tmp_path: Path) -> None:
    # A hook after a call of the model ends one step and begins the next: calls that follow each other are not nested.
    trace = TorchTrace()
    for step in range(4):
        at = 100 * step
        trace.frame("nn.Module: Net_0", at, 98)
        trace.annotation(f"ProfilerStep#{step}", at - 4, 99.5)
        trace.product(at + 10, 5, launched=at + 11, ran=at + 15, took=50, tensors=[(64, 1000), (1000, 8)])
    (op,) = [op for op in report_on(trace, tmp_path).ops if op.name == "aten::mm"]
    assert (op.scope, op.count) == ("Net_0", 4)


@pytest.mark.parametrize(("host_us", "reason"), [(5000, "compile"), (1000, "dispatch")])
def test_plans_that_cudnn_builds_for_new_shapes_are_compilation(tmp_path: Path, host_us: int, reason: str) -> None:
    trace = TorchTrace()
    for step, at in enumerate(trace.steps(4, 10_000)):
        trace.frame("model.py(35): forward", at + 1, 9_980)
        trace.op("aten::_cudnn_attention_forward", at + 2, host_us, [(1, 8, 100 + step, 64)])
        trace.run("cudnn_sdpa", launched=at + host_us, start=at + host_us + 2, dur=9_990 - host_us)
    report = report_on(trace, tmp_path)
    assert report.idle[0].reason == reason
    said = [one.message for one in report.findings if one.kind == "idle-compile"]
    assert [("cuDNN for _cudnn_attention_forward" in message) for message in said] == [True] * (reason == "compile")


def test_a_recurrent_network_launches_for_so_long_and_builds_no_plan(tmp_path: Path) -> None:
    trace = TorchTrace()
    for at in trace.steps(4, 10_000):
        trace.frame("model.py(35): forward", at + 1, 9_980)
        trace.op("aten::_cudnn_rnn", at + 2, 9_000, [(100, 8, 64)])
        for place in range(100):
            trace.run("cell", launched=at + 90 * place + 10, start=at + 90 * place + 15, dur=5)
    report = report_on(trace, tmp_path)
    assert report.idle[0].reason == "dispatch"
    assert not [one for one in report.findings if one.kind == "idle-compile"]


def test_the_profiler_takes_most_of_what_describing_inductors_kernels_takes(tmp_path: Path) -> None:
    trace = TorchTrace()
    for begin in trace.steps(4, 1000):
        trace.frame("model.py(1): forward", begin, 999)
        for at in range(begin + 5, begin + 1000, 100):
            trace.op("triton_poi_fused_add_0", at + 5, 85)
            trace.run("triton_poi_fused_add_0", launched=at + 85, start=at + 88, dur=5)
    (found,) = findings_on(trace, tmp_path, "idle-dispatch")
    # 75 of 100 µs a kernel, as 80 µs to describe it, an op and its launch would leave too little of the host's time.
    assert found.saving_per_step_s == pytest.approx(950e-6 - 740e-6, rel=0.05)


def test_of_a_compiled_programs_calls_the_profiler_takes_most(tmp_path: Path) -> None:
    trace = TorchTrace()
    for begin in trace.steps(4, 2000):
        trace.frame("model.py(1): forward", begin, 1999)
        for at in range(begin + 5, begin + 2000, 200):
            for number in range(80):
                trace.frame(f"torch/_inductor/utils.py({number + 1}): run", at + 2 * number, 1)
            trace.op("triton_poi_fused_add_0" if at == begin + 5 else "aten::mm", at + 180, 10, [(8, 4), (4, 2)])
            trace.run("kernel", launched=at + 185, start=at + 188, dur=5)
    (found,) = findings_on(trace, tmp_path, "idle-dispatch")
    # 166 of each 200 µs by the number of events, but no more than 75% of them.
    assert found.saving_per_step_s == pytest.approx(1950e-6 - 1500e-6, rel=0.1)


def test_what_only_the_first_recorded_step_waits_for_does_not_recur(tmp_path: Path) -> None:
    trace = TorchTrace()
    for at in trace.steps(3, 1000):
        trace.frame("train.py(5): main", at, 999)
        trace.product(at + 2, 5, launched=at + 4, ran=at + 5, took=400 if at else 300)
        trace.product(at + 600, 5, launched=at + 10 if at else at + 604, ran=at + 406 if at else at + 606, took=590)
    report = report_on(trace, tmp_path)
    assert len(report.steps) == 3
    assert not [one for one in report.findings if one.kind == "idle-dispatch"]


@pytest.mark.parametrize(("pause", "reason"), [(300, "dispatch"), (800, "input")])
def test_code_that_nobody_recorded_launches_where_ops_of_any_thread_are_close(tmp_path: Path, pause: int, reason: str) -> None:
    trace = TorchTrace()
    for at in trace.steps(3, 3000):
        trace.product(at + 1, 5, launched=at + 2, ran=at + 5, took=1000)
        trace.product(at + 900, 100, launched=at + 910, ran=at + 1005, took=5, thread=BACKWARD)
        trace.op("aten::add_", at + 1000 + pause, 5, [(8, 4), (8, 4)])
        trace.run("add", launched=at + 1002 + pause, start=at + 1005 + pause, dur=1980 - pause)
    assert report_on(trace, tmp_path).idle[0].reason == reason


@pytest.mark.parametrize("place", ["serve.py(18): sample", "serve.py(30): keep"])
def test_copies_are_told_with_the_wait_of_the_function_that_makes_them(tmp_path: Path, place: str) -> None:
    trace = TorchTrace()
    for at in trace.steps(4, 3000):
        trace.product(at + 2, 5, launched=at + 3, ran=at + 5, took=50, tensors=[(64, 1000), (1000, 8)])
        trace.frame(place, at + 10, 1190)
        trace.op("aten::copy_", at + 40, 1100, [(2 << 20,), (2 << 20,)], dtype="float")
        trace.copy("DtoH (Device -> Pageable)", 8 << 20, launched=at + 50, ran=at + 55, took=1050, call=1060)
        trace.frame("serve.py(18): sample", at + 1201, 1700)
        trace.launch(at + 1202, "cudaStreamSynchronize", dur=1)
        trace.frame("<built-in method argmax of numpy.ndarray object at 0x7f>", at + 1210, 1650)
    found = {one.kind: one for one in report_on(trace, tmp_path).findings if one.saving_s}
    if place.startswith("serve.py(30)"):
        assert found["host-copies"].saving_per_step_s == pytest.approx(1.05e-3, rel=0.05)
        return
    assert "host-copies" not in found
    assert found["idle-sync"].saving_per_step_s == pytest.approx(2.9e-3, rel=0.1)
    assert "The copies there take another 1.05 ms" in found["idle-sync"].message


@pytest.mark.parametrize("launches", [False, True])
def test_operators_that_compute_on_the_host_prepare_the_input(tmp_path: Path, launches: bool) -> None:
    trace = TorchTrace()
    for at in trace.steps(4, 10_000):
        trace.op("aten::normal_", at + 10, 4_000, [(4096, 2048)])
        if launches:
            trace.launch(at + 20)
        trace.op("aten::copy_", at + 4_100, 500, [(4096, 2048), (4096, 2048)])
        trace.copy("HtoD (Pageable -> Device)", 16 << 20, launched=at + 4_110, ran=at + 4_112, took=470, call=480)
        trace.product(at + 4_700, 5, launched=at + 4_701, ran=at + 4_705, took=5_200)
    report = report_on(trace, tmp_path)
    longest = report.idle[0]
    assert (longest.reason == "input") == (not launches)
    assert ("normal_" in longest.activity) == (not launches)
    if not launches:
        found = next(one for one in report.findings if one.kind == "idle-input")
        assert "Compute it on the device, or ahead of time" in found.message
        assert "torch.randn(…, device='cuda')" in found.levers[0]


def test_small_copies_to_the_device_that_wait_are_no_values_that_are_read_back(tmp_path: Path) -> None:
    trace = TorchTrace()
    for begin in trace.steps(3, 1000):
        for at in range(begin, begin + 900, 30):
            trace.op("aten::copy_", at + 2, 22, [(64,), (64,)])
            trace.copy("HtoD (Pageable -> Device)", 128, launched=at + 5, ran=at + 13, took=1, call=7)
            trace.launch(at + 13, "cudaStreamSynchronize", dur=7)
        trace.product(begin + 910, 10, launched=begin + 912, ran=begin + 915, took=50)
    found = next(one for one in report_on(trace, tmp_path).findings if one.saving_s)
    assert found.kind == "idle-transfer"
    assert found.title.startswith("the small copies to the device")
    assert "copies to the device" in found.message
    assert "torch.stack(samples).to(device)" in found.levers[0]


def test_a_value_that_is_handled_on_the_host_and_sent_back_is_read_back(tmp_path: Path) -> None:
    trace = TorchTrace()
    for at in trace.steps(4, 10_000):
        trace.frame("train.py(7): clip", at + 1, 9_900)
        trace.product(at + 2, 5, launched=at + 3, ran=at + 5, took=500)
        for at_us, way, size in ((at + 600, "DtoH (Device -> Pageable)", 8 << 20), (at + 5_000, "HtoD (Pageable -> Device)", 16 << 20)):
            trace.op("aten::copy_", at_us, 400, [(2048, 2048), (2048, 2048)])
            trace.copy(way, size, launched=at_us + 10, ran=at_us + 12, took=370, call=380)
        trace.op("aten::clamp", at + 1_010, 3_900, [(2048, 2048)])
        trace.run("gemm", launched=at + 5_500, start=at + 5_510, dur=4_400)
    longest = report_on(trace, tmp_path).idle[0]
    assert (longest.reason, longest.location) == ("sync", "train.py:7")


def test_a_finding_names_every_place_that_has_a_good_part_of_the_wait(tmp_path: Path) -> None:
    trace = TorchTrace()
    for at in trace.steps(4, 1000):
        for place, (name, begin, dur) in enumerate((("forward", 0, 600), ("average", 601, 370), ("log", 972, 25))):
            trace.frame(f"train.py({place + 1}): {name}", at + begin, dur)
            trace.product(at + begin + dur - 15, 10, launched=at + begin + dur - 10, ran=at + begin + dur - 8, took=5)
            trace.op("aten::add", at + begin + 1, dur - 18, [(8, 4), (4, 2)])
            trace.launch(at + begin + 2)
    (finding,) = findings_on(trace, tmp_path, "idle-dispatch")
    assert "in forward (train.py:1, train.py:2)." in finding.message


@pytest.mark.parametrize("waits", [False, True])
def test_a_host_that_would_be_ahead_of_the_device_shortens_the_gaps_after(tmp_path: Path, waits: bool) -> None:
    # Forty calls of Python (82 µs with the op's launch, 65 by what is most) before a gap of 20 µs, then none before one of 60 µs.
    trace = TorchTrace()
    for at in trace.steps(4, 1000):
        trace.frame("train.py(1): step", at, 999)
        for pair in range(5):
            first, second = at + 200 * pair, at + 200 * pair + 100
            for number in range(40):
                trace.frame("train.py(9): helper", first + 2 * number, 1)
            trace.product(first + 82, 10, launched=first + 90, ran=first + 92, took=50)
            if waits:
                trace.launch(first + 95, "cudaStreamSynchronize", dur=1)
            trace.op("aten::add", second + 1, 98, [(8, 4), (8, 4)])
            trace.run("add", launched=second + 98, start=second + 99, dur=70)
    report = report_on(trace, tmp_path)
    own = sum(one.recording_s or 0 for one in report.idle) / sum(one.time_s for one in report.idle if one.reason != "latency")
    assert (own > 0.6) == (not waits)


@pytest.mark.parametrize(
    ("launches", "reads", "took", "wait", "first"),
    [
        (8, 6, 55, 10, "sync"),  # the device is slower than the host, which would get ahead but for the reads
        (8, 6, 2, 100, "dispatch"),  # the host is slower: without reads it would launch late too
        (60, 1, 2, 10, "dispatch"),
    ],
)
def test_launches_between_reads_in_a_row_wait_for_the_reads(
    tmp_path: Path, launches: int, reads: int, took: int, wait: int, first: str
) -> None:
    # Each launch takes the host 50 µs; after some of them a value is read, as by .item() in every layer or x[mask] in a loop.
    trace, at, done = TorchTrace(), 0.0, 0.0
    for step in range(4):
        begin = at
        for _ in range(reads):
            for _ in range(launches):
                ran = max(done, at + 48)
                trace.product(at + 1, 48, launched=at + 45, ran=ran, took=took)
                at, done = at + 50, ran + took
            copied = max(done, at + wait)
            trace.frame("model.py(3): check", at + 1, copied - at + 28)
            trace.op("aten::item", at + 2, copied - at + 26, [()])
            trace.op("aten::_local_scalar_dense", at + 3, copied - at + 24, [()])
            trace.copy("DtoH (Device -> Pageable)", 4, launched=at + 4, ran=copied, took=1)
            trace.launch(at + 6, "cudaStreamSynchronize", dur=copied - at)
            at, done = copied + 30, copied + 1
        trace.annotation(f"ProfilerStep#{step}", begin, at - begin - 1)
    findings = [one for one in report_on(trace, tmp_path).findings if one.saving_s and one.kind.startswith("idle")]
    assert findings[0].kind == f"idle-{first}"
    assert ("check, which calls item() on a device value (model.py:3)" in findings[0].message) == (first == "sync")
    assert ("Values are read back in every step (model.py:3)" in findings[0].message) == (first == "dispatch" and reads > 1)


def test_launches_in_a_model_name_who_called_it(tmp_path: Path) -> None:
    trace = TorchTrace()
    for begin in trace.steps(3, 1000):
        trace.frame("src/generate.py(26): next_token", begin, 998)
        trace.frame("nn.Module: GPT_0", begin + 1, 990)
        trace.frame("src/model.py(13): forward", begin + 2, 980)
        for at in range(begin + 5, begin + 900, 100):
            trace.product(at, 90, launched=at + 85, ran=at + 88, took=5)
    (found,) = findings_on(trace, tmp_path, "idle-dispatch")
    assert "in forward, called from next_token (generate.py:26) (model.py:13)" in found.message


@pytest.mark.parametrize(("length", "kind"), [(1000, "idle-dispatch"), (20000, "idle-input")])
def test_short_code_of_a_module_is_part_of_launching(tmp_path: Path, length: int, kind: str) -> None:
    trace = TorchTrace()
    for begin in trace.steps(4, length):
        trace.frame("src/generate.py(26): next_token", begin, length - 2)
        trace.frame("nn.Module: GPT_0", begin + 1, length - 10)
        trace.frame("src/model.py(13): forward", begin + 2, length - 20)
        trace.product(begin + length - 50, 10, launched=begin + length - 45, ran=begin + length - 42, took=20)
    assert next(one.kind for one in report_on(trace, tmp_path).findings if one.kind.startswith("idle")) == kind


@pytest.mark.parametrize(("frame", "saved"), [(None, 950 - 40 - 50), ("model.py(1): forward", 950 - 50 - 50)])
def test_without_stacks_recording_takes_less(tmp_path: Path, frame: str | None, saved: int) -> None:
    # Per launch one op and the launch: 6 µs with stacks, 5 without; and about 50 µs where a step ends.
    trace = TorchTrace()
    for begin in trace.steps(4, 1000):
        if frame:
            trace.frame(frame, begin, 999)
        for at in range(begin + 5, begin + 1000, 100):
            trace.product(at + 5, 85, launched=at + 85, ran=at + 88, took=5)
    (found,) = findings_on(trace, tmp_path, "idle-dispatch")
    assert found.saving_per_step_s == pytest.approx(saved * 1e-6, rel=0.01)


def test_what_recording_a_compiler_costs_is_not_taken_off(tmp_path: Path) -> None:
    trace = TorchTrace()
    for at in trace.steps(4, 2000):
        trace.frame("model.py(1): forward", at, 1998)
        trace.frame("torch/_inductor/compile_fx.py(700): compile_fx_inner", at + 10, 1900)
        for number in range(900):
            trace.frame(f"torch/_inductor/ir.py({number + 1}): realize", at + 20 + 2 * number, 1)
        trace.product(at + 1950, 10, launched=at + 1955, ran=at + 1958, took=5)
    (found,) = findings_on(trace, tmp_path, "idle-compile")
    assert "profiler" not in found.message
    assert found.saving_s == pytest.approx(3 * 1995e-6, rel=0.05)


def test_autotuning_is_a_loss_of_its_own_and_part_of_what_a_compilation_costs(tmp_path: Path) -> None:
    trace = TorchTrace()
    for at in trace.steps(4, 2000):
        trace.frame("model.py(1): forward", at, 1998)
        trace.frame("torch/_inductor/compile_fx.py(700): compile_fx_inner", at + 10, 1900)
        trace.op("CachingAutotuner.benchmark_all_configs", at + 500, 1000)
        trace.op("aten::zero_", at + 510, 8, [(1024, 1024)])
        trace.run("candidate", launched=at + 512, start=at + 600, dur=800)
        trace.product(at + 1950, 10, launched=at + 1955, ran=at + 1958, took=5)
    report = report_on(trace, tmp_path)
    (average,) = [point for point in report.points if point.scope == "average"]
    assert (average.lost["autotuning"], average.lost["latency"]) == (pytest.approx(800e-6), pytest.approx(0, abs=10e-6))
    (found,) = [one for one in report.findings if one.kind == "idle-compile"]
    assert "Autotuning takes another 800 µs of 2 ms per step on the device." in found.message
    # A step of 2000 µs, of which 5 are the program's own work: 800 of autotuning, and nearly all of the rest of waiting.
    assert found.saving_per_step_s == pytest.approx(1990e-6, rel=0.02)
    assert [report.ops[id].name for id in found.ops] == ["autotuning"]


def test_what_is_recorded_while_the_host_would_wait_anyway_costs_nothing(tmp_path: Path) -> None:
    # Products of 100 µs; the host launches each in 20 µs, with a call of Python for each, waits for it, and goes on 30 µs after its end.
    trace = TorchTrace()
    for begin in trace.steps(4, 1300):
        for at in range(begin, begin + 1300, 130):
            for number in range(5):
                trace.frame(f"model.py({number + 1}): helper", at + 3 * number, 2)
            trace.product(at + 16, 4, launched=at + 18, ran=at + 20, took=100, tensors=[(4096, 4096), (4096, 4096)])
            trace.frame("model.py(9): log", at + 22, 107)
            trace.launch(at + 23, "cudaDeviceSynchronize", dur=99)
    (found,) = findings_on(trace, tmp_path, "idle-sync")
    # After each wait five calls, an op and its launch: 16 µs of 30. All that the host did before would be 22 µs, bound by its 55%.
    assert found.saving_per_step_s == pytest.approx(10 * 14e-6, rel=0.1)


@pytest.mark.parametrize(("outer", "words"), [("aten::index", "indexes with a boolean mask"), ("aten::where", "calls nonzero() on a")])
def test_a_boolean_mask_is_named_as_the_user_wrote_it(tmp_path: Path, outer: str, words: str) -> None:
    trace = TorchTrace()
    for at in trace.steps(3, 1000):
        trace.frame("loss.py(4): masked", at + 1, 900)
        trace.op(outer, at + 2, 600, [(64, 8), (64,)])
        trace.op("aten::nonzero", at + 3, 590, [(64,)])
        trace.run("nonzero_kernel", launched=at + 5, start=at + 10, dur=20)
        trace.launch(at + 12, "cudaStreamSynchronize", dur=570)
        trace.product(at + 700, 5, launched=at + 701, ran=at + 705, took=5)
    (found,) = findings_on(trace, tmp_path, "idle-sync")
    assert f"masked, which {words}" in found.message
    assert ("mask the result" in found.message) == (outer == "aten::index")


@pytest.mark.parametrize(("host_us", "period", "reason"), [(10, 3000, "sync"), (30, 2560, "sync"), (60, 3000, "dispatch")])
def test_gaps_after_a_read_are_the_reads_where_the_host_would_be_ahead(tmp_path: Path, host_us: int, period: int, reason: str) -> None:
    """Forty launches after a read in each step: small kernels first, each of which ends before the next is launched, then large ones."""
    trace = TorchTrace()
    for at in trace.steps(5, period):
        trace.frame("train.py(4): main", at, period - 10)
        device = at
        for place in range(40):
            began = at + host_us * place
            trace.op("aten::mm", began + 1, host_us - 2, [(8, 4), (4, 2)])
            device = max(device, began + host_us)
            dur = 4 if place < 20 else 70
            trace.run("gemm", launched=began + host_us - 5, start=device, dur=dur)
            device += dur
        waits = at + 40 * host_us + 5
        trace.frame("train.py(9): log", waits, device - waits + 5)
        trace.op("aten::item", waits + 1, device - waits + 3)
        trace.launch(waits + 2, "cudaStreamSynchronize", dur=device - waits)
    idle = report_on(trace, tmp_path).idle
    after_the_first = {one.reason: one.time_s for one in idle if one.reason in ("sync", "dispatch")}
    assert max(after_the_first, key=after_the_first.__getitem__) == reason
    assert [one.location for one in idle if one.reason == "sync"][:1] == ["train.py:9"]


@pytest.mark.parametrize(
    ("said", "saved"),
    [
        (None, 950 - 460),
        ([600e-6, 600e-6, 1], 950 - 400 - 60),  # by the steps before it took less than its events cost; but one step is no measure
        ([600e-6, 600e-6, 8], 950 - 400),
        ([200e-6, 200e-6, 1], 950 - 800),  # it took more
        ([200e-6, 900e-6, 8], 950 - 460),  # somewhere in between
        ("nonsense", 950 - 460),
    ],
)
def test_steps_before_the_recording_tell_what_it_took(tmp_path: Path, said: object, saved: int) -> None:
    finding = launched_late(20, tmp_path, **({"roofline_step_s": said} if said else {}))
    assert finding.saving_per_step_s == pytest.approx(saved * 1e-6, rel=0.05)


@pytest.mark.parametrize(("said", "is_noted"), [([600e-6, 600e-6, 8], True), ([600e-6, 600e-6, 1], False), ([950e-6, 950e-6, 8], False)])
def test_a_note_says_how_long_a_step_takes_without_the_profiler(said: list[float], is_noted: bool) -> None:
    begins = np.arange(5) * 1_000_000  # a step of 1 ms
    assert slowed_note(begins, (said[0], said[1], int(said[2]))) == (
        ["the profiler slows the host: without it a step took 600 µs (8 steps before the recording)"] if is_noted else []
    )


@pytest.mark.parametrize(("call", "reason"), [("cudaMalloc", "sync"), ("cudaFree", "sync"), ("cudaFuncGetAttributes", "dispatch")])
def test_the_device_waits_for_memory_that_steps_allocate(tmp_path: Path, call: str, reason: str) -> None:
    trace = TorchTrace()
    for at in trace.steps(4, 1000):
        trace.frame("train.py(7): step", at, 998)
        trace.op("aten::empty", at + 5, 600, [(8, 4)])
        trace.launch(at + 8, call, dur=590)
        trace.product(at + 610, 10, launched=at + 612, ran=at + 615, took=370)
    report = report_on(trace, tmp_path)
    assert report.idle[0].reason == reason
    found = [one for one in report.findings if one.kind == "idle-sync"]
    assert bool(found) == (reason == "sync")
    if found:
        assert "in step, which allocates or frees device memory (train.py:7)" in found[0].message
        assert "empty_cache" in found[0].levers[0]


def test_memory_that_is_freed_outside_of_ops_is_told_without_stacks(tmp_path: Path) -> None:
    trace = TorchTrace()
    for step in range(4):  # without annotations either: the optimizer tells steps
        at = 2000 * step
        trace.product(at + 10, 10, launched=at + 12, ran=at + 15, took=370)
        trace.annotation("Optimizer.step#SGD.step", at + 30, 20)
        for begin in range(at + 400, at + 1900, 100):
            trace.launch(begin, "cudaFree", dur=99)
    (found,) = findings_on(trace, tmp_path, "idle-sync")
    assert "in code that allocates or frees device memory" in found.message
    assert (found.saving_per_step_s or 0) > 1400e-6


@pytest.mark.parametrize(("checked", "is_told"), [(4, True), (1, False)])
def test_anomaly_detection_checks_what_every_node_returns(tmp_path: Path, checked: int, is_told: bool) -> None:
    trace = TorchTrace()
    for begin in trace.steps(4, 2000):
        trace.frame("train.py(7): step", begin, 1998)
        if is_told:
            trace.frame("torch/fx/traceback.py(415): format_stack", begin + 5, 300)
        trace.product(begin + 400, 10, launched=begin + 402, ran=begin + 405, took=5)
        for node in range(4):
            at = begin + 500 + 300 * node
            trace.op(f"{NODE}MmBackward0", at, 290, thread=BACKWARD)
            trace.product(at + 1, 10, launched=at + 2, ran=at + 5, took=5, thread=BACKWARD)
            if node < checked:
                trace.op("aten::isnan", at + 100, 20, [(8, 4)], thread=BACKWARD)
                trace.run("elementwise", launched=at + 101, start=at + 105, dur=5, thread=BACKWARD)
                trace.op("aten::item", at + 150, 130, thread=BACKWARD)
    found = [one for one in report_on(trace, tmp_path).findings if "anomaly detection" in one.message]
    assert bool(found) == is_told
    if found:
        assert found[0].kind == "idle-sync"
        assert (found[0].saving_per_step_s or 0) > 1200e-6
        assert "set_detect_anomaly" in found[0].levers[0]


@pytest.mark.parametrize("is_blocking", [True, False])
def test_launches_that_last_as_long_as_their_kernels_wait_for_these(tmp_path: Path, is_blocking: bool) -> None:
    trace = TorchTrace()
    for begin in trace.steps(4, 2000):
        trace.frame("train.py(7): step", begin, 1998)
        for at in range(begin + 10, begin + 1900, 100):  # kernels of 50 µs, and 50 µs of the host after each
            trace.op("aten::mm", at, 56, SMALL)
            trace.ran("gemm", at + 4, 50, trace.launch(at + 1, dur=55 if is_blocking else 6))
    found = [one for one in findings_on(trace, tmp_path, "idle-sync") if "CUDA_LAUNCH_BLOCKING" in one.message]
    assert bool(found) == is_blocking
    if found:
        # 19 gaps a step, of 50 µs, less 4 µs that the op that follows took the profiler, 1 µs for its launch.
        assert found[0].saving_per_step_s == pytest.approx(19 * 45e-6, rel=0.1)
        assert "unset CUDA_LAUNCH_BLOCKING" in found[0].levers[0]


def test_repeats_by_a_tensor_wait_for_their_sum(tmp_path: Path) -> None:
    trace = TorchTrace()
    for at in trace.steps(4, 1000):
        trace.product(at + 1, 10, launched=at + 2, ran=at + 5, took=300)
        trace.op("aten::repeat_interleave", at + 20, 900)
        trace.op("aten::item", at + 21, 890)
        trace.launch(at + 22, "cudaStreamSynchronize", dur=880)
    (found,) = findings_on(trace, tmp_path, "idle-sync")
    assert "calls repeat_interleave() on a device value" in found.message
    assert "output_size" in found.levers[0]


@pytest.mark.parametrize("inner", ["aten::_helper", "aten::item"])
@pytest.mark.parametrize(("name", "is_told"), [("aten::cholesky_solve", True), ("aten::to", False), ("aten::item", False)])
def test_an_operator_that_waits_by_itself_is_named(tmp_path: Path, name: str, is_told: bool, inner: str) -> None:
    trace = TorchTrace()
    for at in trace.steps(4, 1000):
        trace.product(at + 1, 10, launched=at + 2, ran=at + 5, took=300)
        trace.op(name, at + 20, 900)
        trace.op("aten::copy_" if name == "aten::to" else inner, at + 21, 890)
        trace.launch(at + 22, "cudaStreamSynchronize", dur=880)
    (found,) = findings_on(trace, tmp_path, "idle-sync")
    assert ("calls cholesky_solve, which waits for the device" in found.message) == is_told
    assert ("preferred_linalg_library" in found.levers[0]) == is_told


@pytest.mark.parametrize(
    ("name", "waits", "is_told"),
    [("aten::cudnn_convolution", 4, True), ("aten::convolution_backward", 4, True), ("aten::cudnn_convolution", 1, False)],
)
def test_a_convolution_that_times_its_kernels_tries_them(tmp_path: Path, name: str, waits: int, is_told: bool) -> None:
    trace = TorchTrace()
    for at in trace.steps(4, 1000):
        trace.op(name, at + 1, 900)
        for kernel in range(4):
            trace.run("sm90_xmma_fprop", launched=at + 100 + 200 * kernel, start=at + 105 + 200 * kernel, dur=5)
            if kernel < waits:
                trace.launch(at + 102 + 200 * kernel, "cudaEventSynchronize", dur=10)
    found = findings_on(trace, tmp_path, "idle-compile")
    assert bool(found) == is_told
    if found:
        assert f"the host ran trials of kernels for {name.removeprefix('aten::')}" in found[0].message
        assert "cudnn.benchmark = False" in found[0].levers[0]
        assert (found[0].saving_per_step_s or 0) > 700e-6


def test_tried_kernels_are_no_work_of_the_convolution(tmp_path: Path) -> None:
    """A convolution tries three kernels, each with a warm-up of the same kernels, and then runs the last of them, which takes 20 µs."""
    x, weight = (64, 64, 56, 56), (64, 64, 3, 3)
    trace = TorchTrace()
    for begin in trace.steps(4, 1000):
        trace.op("aten::cudnn_convolution", begin + 1, 900, [x, weight, [1, 1], [1, 1], [1, 1]])
        at = begin + 10
        trace.run("layout", launched=at - 5, start=at - 4, dur=4)  # before the trials: the convolution's own
        for kernel, took in (("a", 60), ("b", 80), ("c", 20)):
            for _ in ("warm-up", "timed"):
                trace.run("memset", launched=at, start=at + 1, dur=1)
                trace.run(kernel, launched=at + 2, start=at + 3, dur=took)
                at += 90
            trace.launch(at - 10, "cudaEventSynchronize", dur=9)
        trace.run("memset", launched=at, start=at + 1, dur=1)
        trace.run("c", launched=at + 2, start=at + 3, dur=20)
    report = report_on(trace, tmp_path)
    took = {op.name: (op.time_s or 0.0) / 4 for op in report.ops}
    assert took == {"autotuning": pytest.approx(2 * (60 + 80 + 20 + 3) * 1e-6), "aten::cudnn_convolution": pytest.approx(25e-6)}
    first, *_ = report.findings
    assert first.kind == "idle-compile"
    assert "Autotuning takes another 326 µs of 1 ms per step on the device." in first.message


def test_compiled_code_that_graph_breaks_cut_into_parts(tmp_path: Path) -> None:
    trace = TorchTrace()
    for begin in trace.steps(4, 1000):
        trace.frame("train.py(5): main", begin, 999)
        for at in range(begin + 5, begin + 1000, 100):
            trace.frame("model.py(16): torch_dynamo_resume_in_forward_at_16", at, 94)
            trace.product(at + 5, 88, launched=at + 85, ran=at + 88, took=5)
    (found,) = findings_on(trace, tmp_path, "idle-dispatch")
    assert "in forward after a graph break (model.py:16)" in found.message
    assert "TORCH_LOGS=graph_breaks" in found.levers[0]


def on_the_cpu(frames: int, tmp_path: Path, **head: object) -> list[Finding]:
    """Four steps on the CPU of ten products of 60 µs, with 40 µs and so many calls of Python between two of them."""
    trace = TorchTrace(**head)
    for begin in trace.steps(4, 1000):
        trace.frame("model.py(1): forward", begin, 999)
        for at in range(begin, begin + 1000, 100):
            for number in range(frames):
                trace.frame(f"model.py({number + 1}): helper", at + 62 + 3 * number, 1)
            trace.op("aten::mm", at, 60, [(64, 64), (64, 64)], dtype="float")
    report = analyze(trace.write(tmp_path / "trace.json"), "xeon-8480plus")
    return [one for one in report.findings if one.kind == "idle-dispatch"]


def test_between_ops_on_the_cpu_the_profiler_takes_time_too(tmp_path: Path) -> None:
    # Per gap of 40 µs an op (4 µs) and six calls (2 µs each): 16 of them are the profiler's.
    (finding,) = on_the_cpu(6, tmp_path)
    assert finding.saving_per_step_s == pytest.approx(10 * (40e-6 - 16e-6), rel=0.05)
    assert "About 160 µs of that is profiler overhead: it recorded 72 host events per step" in finding.message, "two begin each step"


def test_steps_before_the_recording_tell_what_it_took_on_the_cpu_as_well(tmp_path: Path) -> None:
    # A step took 0.7 ms before and takes 1 ms: 300 of the 400 µs between ops.
    (finding,) = on_the_cpu(6, tmp_path, roofline_step_s=[0.0007, 0.0007, 3])
    assert finding.saving_per_step_s == pytest.approx(100e-6, rel=0.1)


def test_ops_on_the_cpu_are_not_launched_and_have_no_graph(tmp_path: Path) -> None:
    (finding,) = on_the_cpu(0, tmp_path)
    said = " ".join((finding.message, *finding.levers))
    assert "ran between operators, in forward" in said
    assert "torch.compile(model)" in said
    assert not re.search(r"launch|kernel|CUDA|graph|reduce-overhead", said)


def test_a_slow_view_on_the_cpu_is_not_input(tmp_path: Path) -> None:
    trace = TorchTrace()
    for begin in trace.steps(3, 2000):
        trace.frame("model.py(1): forward", begin, 1999)
        trace.op("aten::mm", begin, 500, [(64, 64), (64, 64)], dtype="float")
        trace.op("aten::as_strided", begin + 600, 300, [(64, 64)], dtype="float")
        trace.op("aten::mm", begin + 1000, 900, [(64, 64), (64, 64)], dtype="float")
    report = analyze(trace.write(tmp_path / "trace.json"), "xeon-8480plus")
    assert {one.reason for one in report.idle} == {"dispatch"}
