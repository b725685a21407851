"""Idle time in PyTorch traces: Python between ops, compiled functions, and what the profiler itself takes."""

import re
from pathlib import Path

import numpy as np
import pytest

from roofline.analysis import analyze
from roofline.report import Finding
from roofline.sources.torch_trace.recording_cost import slowed_note
from torch_writer import TorchTrace, report_on


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


def test_what_only_the_first_recorded_step_waits_for_does_not_recur(tmp_path: Path) -> None:
    trace = TorchTrace()
    for at in trace.steps(3, 1000):
        trace.frame("train.py(5): main", at, 999)
        trace.product(at + 2, 5, launched=at + 4, ran=at + 5, took=400 if at else 300)
        trace.product(at + 600, 5, launched=at + 10 if at else at + 604, ran=at + 406 if at else at + 606, took=590)
    report = report_on(trace, tmp_path)
    assert len(report.steps) == 3
    assert not [one for one in report.findings if one.kind == "idle-dispatch"]


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


@pytest.mark.parametrize(("said", "is_noted"), [([600e-6, 600e-6, 8], True), ([600e-6, 600e-6, 1], False), ([950e-6, 950e-6, 8], False)])
def test_a_note_says_how_long_a_step_takes_without_the_profiler(said: list[float], is_noted: bool) -> None:
    begins = np.arange(5) * 1_000_000  # a step of 1 ms
    assert slowed_note(begins, (said[0], said[1], int(said[2]))) == (
        ["the profiler slows the host: without it a step took 600 µs (8 steps that were not recorded)"] if is_noted else []
    )


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
