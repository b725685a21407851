"""Where nobody marked steps, each run of the program that takes most of the time begins one."""

from pathlib import Path

import pytest

from roofline.analysis import analyze
from roofline.sources.xspace import program_runs
from roofline.workload import Recording
from xspace_profiles import MICROSECOND, Instruction, gpu, hlo, host, kernel, launch, programs, recorded
from xspace_writer import Event

US = MICROSECOND
BODY = {"main": [Instruction("x", "parameter"), Instruction("add.1", "add", ("x", "x"))]}
PROGRAMS = programs({1: hlo("jit_train", BODY, 1), 2: hlo("jit_check", BODY, 2)}, {1: "jit_train", 2: "jit_check"})
IDS = {"jit_train": 1, "jit_check": 2}


def run(module: str, start: int, device: int = 0) -> Event:
    """The host starts a program."""
    return Event(f"[{device}] GpuExecutable::ExecuteThunks", start * US, 8 * US, {"module_name": module})


def ran(module: str, id: int, start: int, duration: int) -> Event:
    return kernel("add_1", start * US, duration * US, hlo_op="add.1", hlo_module=module, program_id=IDS[module], correlation_id=id)


def recording(folder: Path, *extra: Event) -> Recording:
    """Three runs of training, 100 µs apart, the second followed by a check, and a check before them."""
    calls = [("jit_check", 10), ("jit_train", 100), ("jit_train", 200), ("jit_check", 250), ("jit_train", 300)]
    thread, work = list[Event](extra), list[Event]()
    for id, (module, at) in enumerate(calls, start=1):
        thread += [run(module, at), launch(id, (at + 2) * US)]
        work.append(ran(module, id, at + 10, 30 if module == "jit_train" else 5))
    return recorded(folder, gpu(work), host(thread), PROGRAMS)


def test_averages_and_findings_are_per_step_then(tmp_path: Path) -> None:
    report = analyze(recording(tmp_path))
    average = next(point for point in report.points if point.scope == "average")
    assert average.time_s == pytest.approx(100e-6)
    assert report.summary.startswith("100 µs per step")


def test_too_many_runs_are_no_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_runs, "MOST_RUNS", 2)
    found = recording(tmp_path)
    assert found.steps == ()
    assert "no steps marked, and jit_train ran 3 times: its runs are not shown separately" in found.notes
