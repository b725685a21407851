"""PyTorch programs under the profiler: which steps are recorded, and what is left of them."""

import gzip
import json
import os
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import roofline as rl
from fake_torch import FakeTorch
from roofline.capture.hook.roofline_hook_torch import TRACE, TorchRecorder
from roofline.capture.missing_profile import why_no_profile
from roofline.capture.run_folder import collect
from roofline.torch.trace_files import handler


class Program:
    """A program with a stand-in for PyTorch, and what was recorded of it."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.torch = FakeTorch()
        self.recorder = TorchRecorder(str(folder / "1-torch"), **settings)
        self.recorder.process = os.getpid()
        self.recorder.watch(self.torch)
        self.model, self.optimizer = self.torch.nn.Module(10), self.torch.optim.Optimizer()

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self.model()
            self.optimizer.step()

    @property
    def steps(self) -> list[int]:
        """The steps that were recorded whole, from the last profile that was written."""
        trace = json.loads((Path(self.recorder.folder) / TRACE).read_text())["traceEvents"]
        unfinished = self.recorder.unfinished
        return [int(word.partition("#")[2]) for word in trace if word.startswith("leave ProfilerStep") and word != f"leave {unfinished}"]


def test_recording_begins_after_a_step_that_did_not_compile_and_ends_after_ten(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.train(20)
    # Steps 0 and 1 are over when recording begins: the first loads kernels, the second compiled nothing.
    assert program.recorder.state == "done"
    assert program.steps == list(range(2, 12))
    assert program.recorder.notes[0].startswith("recording began after optimizer step 2, which did not compile")


def test_a_step_is_timed_without_the_profiler_after_the_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    program = Program(tmp_path)
    for number in range(20):
        now[0] += 0.02 if number < 12 else 0.019  # not so much faster that these are recorded instead
        program.train(1)
    status = json.loads((Path(program.recorder.folder) / "status.json").read_text())
    assert status["unprofiled_s"] == pytest.approx(0.019)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"steps": 3}, [2, 3, 4]),
        ({"skip": 1, "steps": 2}, [1, 2]),
        ({"skip": 5, "steps": 2}, [5, 6]),
        ({"skip": 18}, [18, 19]),
        ({"from_start": True}, list(range(21))),  # the first call of the model is one: an optimizer may never come
    ],
)
def test_steps_choose_what_is_recorded(tmp_path: Path, settings: dict[str, Any], expected: list[int]) -> None:
    program = Program(tmp_path, **settings)
    program.train(20)
    program.recorder.end()
    assert program.steps == expected


def test_a_step_that_compiles_is_not_the_one_to_begin_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program(tmp_path, steps=1)
    compilations: dict[str, list[float]] = {"compile": []}
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", types.SimpleNamespace(compilation_time_metrics=compilations))  # type: ignore[arg-type]
    for number in range(8):
        if number < 4:
            compilations["compile"].append(0.1)
        program.train(1)
    assert program.steps == [5]  # the fifth step, number 4, is the first that did not compile


def test_a_program_whose_steps_all_compile_is_recorded_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program(tmp_path, steps=1)
    compilations: dict[str, list[float]] = {"compile": []}
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", types.SimpleNamespace(compilation_time_metrics=compilations))  # type: ignore[arg-type]
    for _ in range(10):
        compilations["compile"].append(0.1)
        program.train(1)
    assert program.steps == [8]
    assert "although each of 8 steps compiled" in program.recorder.notes[0]


def test_without_an_optimizer_a_step_is_a_call_of_the_module_with_most_parameters(tmp_path: Path) -> None:
    program = Program(tmp_path, steps=2)
    transform, whole = program.torch.nn.Module(), program.torch.nn.Module(100, inner=program.model)
    for _ in range(6):
        transform()
        program.model()  # smaller, and inside of the other
        whole()
    assert program.steps == [2, 3]
    assert "after call of Module 2" in program.recorder.notes[0]


def test_optimizer_steps_take_the_place_of_calls_that_were_recorded_before(tmp_path: Path) -> None:
    program = Program(tmp_path, steps=2)
    for _ in range(9):
        program.model()  # an evaluation before training
    assert program.recorder.state == "done"
    program.train(5)
    assert program.steps == [2, 3]
    assert program.recorder.notes[0].startswith("recording began after optimizer step 2")


def test_a_capture_of_a_graph_is_recorded_by_itself_and_replays_are_steps(tmp_path: Path) -> None:
    program = Program(tmp_path, steps=2)
    program.train(4)  # to warm up; the last two were recorded
    assert program.recorder.state == "done"
    graph = program.torch.cuda.CUDAGraph()
    graph.capture_begin()
    program.train(1)  # nothing of this runs
    graph.capture_end()
    for _ in range(6):
        graph.replay()
    assert program.steps == [2, 3]
    assert "after replay of a graph 2" in program.recorder.notes[0]
    (capture,) = (Path(program.recorder.folder) / "capture_traces").iterdir()
    assert json.loads(capture.read_text())["traceEvents"][:2] == ["capture", "captured"]
    # Devices are waited for before a recording begins, never during the capture.
    assert not [
        word for word in program.torch.log[program.torch.log.index("capture") : program.torch.log.index("captured")] if "sync" in word
    ]


def test_a_capture_on_another_thread_is_recorded_as_that_thread_s_own(tmp_path: Path) -> None:
    # A profile of all threads lacks the arguments of Inductor's kernels, and graphs of backward passes are captured on autograd's thread.
    program = Program(tmp_path, steps=1)
    asked: list[dict[str, Any]] = []
    usual = program.torch.profiler.profile

    def profile(**options: Any) -> Any:
        asked.append(options)
        return usual(**options)

    program.torch.profiler.profile = profile
    program.torch.profiler._ExperimentalConfig = dict
    graph = program.torch.cuda.CUDAGraph()

    def backward() -> None:
        graph.capture_begin()
        graph.capture_end()
        program.train(3)

    thread = threading.Thread(target=backward)
    thread.start()
    thread.join()
    of_capture, of_steps = asked
    assert "experimental_config" not in of_capture
    assert of_steps["experimental_config"] == {"profile_all_threads": True}


@pytest.mark.parametrize(
    ("settings", "compiled_at", "count"), [({}, None, 1), ({"skip": 6}, None, 5), ({"skip": 6}, 3, 2), ({"skip": 20}, None, 8)]
)
def test_a_trace_says_how_long_steps_took_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], compiled_at: int | None, count: int
) -> None:
    program, clock = Program(tmp_path, steps=2, **settings), [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    metrics: dict[str, list[float]] = {}
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", types.SimpleNamespace(compilation_time_metrics=metrics))
    program.torch.initialised = True
    program.torch.cuda.synchronize = lambda number: clock.__setitem__(0, clock[0] + 0.01)
    for step in range(25):
        clock[0] += 0.5
        if step == compiled_at:
            metrics["compile"] = [1.0]
        program.train(1)
    least_s, with_work_s, steps = json.loads((Path(program.recorder.folder) / TRACE).read_text())["roofline_step_s"]
    assert (least_s, steps) == (pytest.approx(0.5), count)
    assert with_work_s == pytest.approx(0.5 + 0.01 / count)


class Clock:
    """A program whose first step of each length takes 50 ms, because kernels are chosen for it, and whose others take 10."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.program, self.now, self.seen = Program(tmp_path), 100.0, set[int]()
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    def generate(self, lengths: Iterable[int]) -> None:
        for length in lengths:
            self.now += 0.01 if length in self.seen else 0.05
            self.seen.add(length)
            self.program.model(types.SimpleNamespace(shape=(1, length)))


def test_a_pass_whose_lengths_were_seen_before_takes_the_place_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(tmp_path, monkeypatch)
    clock.generate(range(1, 31))
    assert clock.program.steps == list(range(2, 12))
    assert clock.program.recorder.notes[1].startswith("no two recorded steps have the same shapes")
    clock.generate(range(1, 31))
    # Of the second pass four ends of steps are three times of 10 ms, three more steps are timed again, and the next ten are recorded.
    assert clock.program.steps == list(range(37, 47))
    (note,) = clock.program.recorder.notes
    assert "recording began again after call of Module 37: earlier steps took 50 ms and were discarded, these take 10 ms" in note
    assert "80% of their time was work that is done once" in note  # 40 of 50 ms
    assert not (Path(clock.program.recorder.folder) / "earlier.json").exists()


def test_a_program_that_ends_during_another_recording_keeps_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(tmp_path, monkeypatch)
    clock.generate([*range(1, 31), *range(1, 10)])
    assert clock.program.recorder.state == "recording"
    clock.program.recorder.end()
    assert clock.program.steps == list(range(2, 12))
    assert clock.program.recorder.message()["recorded"] == 10
    assert [note.partition(" ")[0] for note in clock.program.recorder.notes] == ["recording", "no"]


def test_devices_are_waited_for_before_recording_begins(tmp_path: Path) -> None:
    program = Program(tmp_path, steps=1)
    program.torch.initialised = True
    program.train(3)
    log = program.torch.log
    assert "synchronize 0" in log[: log.index("prepare")]
    assert "synchronize 1" not in log  # a device without memory of this process has no context, and gets none


def test_a_profile_of_the_programs_own_comes_first(tmp_path: Path) -> None:
    program = Program(tmp_path, steps=5)
    program.train(4)
    own = program.torch.profiler.profile()
    own.start()
    assert program.recorder.state == "done"
    assert program.steps == [2, 3]
    assert program.recorder.notes[-1] == "the program started its own profile, which ended this recording"
    early = Program(tmp_path / "early", steps=2)
    early.train(2)
    own = early.torch.profiler.profile()
    own.start()  # before a step was recorded
    early.train(3)
    assert early.recorder.state == "waiting"
    own.stop()
    early.train(4)
    assert len(early.steps) == 2
    assert early.recorder.notes[0] == "the program takes its own profile; only steps outside of it are recorded"


def test_what_is_recorded_from_the_start_begins_when_the_program_uses_a_device(tmp_path: Path) -> None:
    program = Program(tmp_path, from_start=True)
    assert program.recorder.state == "waiting"  # the program may still choose its devices
    program.torch.cuda._lazy_init()
    assert program.recorder.state == "recording"


def test_times_begin_and_end_the_recording_between_two_steps(tmp_path: Path) -> None:
    program = Program(tmp_path, delay_s=3600.0, duration_s=3600.0)
    program.train(4)
    assert program.recorder.state == "waiting"
    program.recorder._delay_is_over()
    program.train(3)
    assert program.recorder.state == "recording"
    program.recorder.time_is_up()  # on a thread of its own, which cannot stop the profiler
    assert program.recorder.state == "recording"
    program.train(2)
    assert program.steps == [5, 6, 7]


def test_a_model_that_is_traced_does_not_run(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.torch.tracing = object()
    for _ in range(5):
        program.model()
    assert (program.recorder.seen, program.torch.log) == (0, [])


def test_a_trace_is_packed_under_the_name_of_its_rank_with_its_captures(tmp_path: Path) -> None:
    staging = tmp_path / "staging"
    for process, rank in ((7, 0), (8, 1)):
        mine = staging / f"{process}-torch"
        (mine / "capture_traces").mkdir(parents=True)
        (mine / "capture_traces" / "0001.json").write_text("{}")
        lines = ['{"roofline_step_s": [0.02, 0.03, 1],', '{"name": "ProfilerStep#3"}', '{"name": "ProfilerStep#4", "cat": "cpu_op"}', ""]
        (mine / TRACE).write_text("\n".join(lines))
        (mine / "status.json").write_text(json.dumps({"rank": rank, "unfinished": "ProfilerStep#4", "recorded": 0, "unprofiled_s": 0.01}))
    run, files = collect(staging, tmp_path / "run", "mine")
    assert [file.name.partition(".")[0].rpartition("_")[2] for file in files] == ["rank0", "rank1"]
    text = gzip.decompress(files[0].read_bytes())
    assert b'"ProfilerStep#3"' in text
    assert b'"ProfilerStep#4 (unfinished)"' in text
    assert b'"roofline_step_s": [0.01, 0.01, 3]' in text  # of three steps after the recording
    assert len(list((run / "capture_traces").glob("*_rank?.0001.json.gz"))) == 2


def test_a_recording_in_which_nothing_ran_is_not_kept(tmp_path: Path) -> None:
    mine = tmp_path / "staging" / "7-torch"
    mine.mkdir(parents=True)
    (mine / TRACE).write_text('{"cat": "python_function"}\n')
    (mine / "status.json").write_text(json.dumps({"rank": None, "unfinished": "", "recorded": 0}))
    assert collect(tmp_path / "staging", tmp_path / "run")[1] == ()


def test_why_there_is_no_trace_is_one_line() -> None:
    said = {"framework": "PyTorch", "state": "waiting", "ran": False, "steps": 0, "own_profiles": 0, "notes": []}

    def why(**changes: Any) -> str:
        return why_no_profile(["python", "t.py"], 0, [{**said, **changes}], delayed=False, skipping=True)

    assert "without an optimizer step, a call of a module or an annotation; use --from-start" in why()
    assert "took its own profile" in why(own_profiles=1)
    assert "after 4 steps; use a smaller --skip, or mark steps with torch.profiler.record_function" in why(ran=True, steps=4)


class Exporting:
    def export_chrome_trace(self, path: str) -> None:
        Path(path).write_text('{"traceEvents": []}')


def test_each_cycle_is_a_run_and_ranks_share_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x7")
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        write = handler(tmp_path)
        write(Exporting())
        write(Exporting())
    runs = sorted((tmp_path / "plugins" / "profile").iterdir())
    assert [run.name for run in runs] == ["job_x7", "job_x7_2"]
    assert [len(list(run.iterdir())) for run in runs] == [2, 2]


def test_an_unknown_framework_is_refused() -> None:
    with pytest.raises(rl.UsageError, match="one of: jax, torch"):
        rl.capture(framework="tensorflow")


PROGRAM = """
import sys, torch
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 8))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(8):
    optimizer.zero_grad()
    model(torch.randn(16, 32)).sum().backward()
    optimizer.step()
print('trained')
sys.exit(3)
"""
# Two products forward, and in backward both for the second layer and the weights' alone for the first: its input needs no gradient.
PRODUCTS = 2 * 16 * (2 * 32 * 64 + 3 * 64 * 8)


@pytest.mark.torch
def test_a_program_runs_as_it_would_and_its_report_follows(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    words = [sys.executable, "-m", "roofline", "capture", "-o", str(tmp_path / "run"), "--chip", "epyc-9654", "--steps", "3", "--"]
    done = subprocess.run([*words, sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert done.stdout.startswith("trained\n")
    assert "recording began after optimizer step 2" in done.stderr
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert [step["number"] for step in report["steps"]] == [2, 3, 4]
    products = [op for op in report["ops"] if op["category"] == "matmul"]
    assert sum(sum(amount for name, amount in op["work"].items() if name.startswith("matrix/")) for op in products) == 3 * PRODUCTS
    assert any("Linear_0" in (op["scope"] or "") for op in products)
    assert not any("roofline_hook" in (op["location"] or "") for op in report["ops"])
    (trace,) = (tmp_path / "run").glob("plugins/profile/*/*.gz")
    events = json.loads(gzip.decompress(trace.read_bytes()))
    ids = {op[0]: op for op in events["roofline_tensors"]["ops"]}
    products = [event["args"] for event in events["traceEvents"] if event["name"] in ("aten::mm", "aten::addmm")]
    assert all(len(ids[product["External id"]][1]) == 2 * len([dims for dims in product["Input Dims"] if dims]) for product in products)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
def test_a_block_is_captured_and_a_handler_writes_what_analyze_reads(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    a = torch.randn(64, 64)
    with rl.capture(tmp_path / "block", chip="epyc-9654", framework="torch") as run:
        for _ in range(3):
            a @ a
    (product,) = (op for op in run.report.ops if op.category == "matmul")
    assert (product.count, product.flops) == (3, 3 * 2 * 64**3)
    schedule = torch.profiler.schedule(wait=1, warmup=0, active=1, repeat=2)
    with torch.profiler.profile(record_shapes=True, schedule=schedule, on_trace_ready=rl.torch.handler(tmp_path / "cycles")) as profiler:
        for _ in range(4):
            a @ a
            profiler.step()
    runs = sorted((tmp_path / "cycles" / "plugins" / "profile").iterdir())
    assert len(runs) == 2
    (product,) = (op for op in rl.analyze(runs[0], "epyc-9654").ops if op.category == "matmul")
    assert product.flops == 2 * 64**3
