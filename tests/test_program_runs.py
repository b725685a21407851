"""Where nobody marked steps, each run of the program that takes most of the time begins one."""

from pathlib import Path

import pytest

from roofline.analysis import analyze
from roofline.sources.xspace import program_runs
from roofline.workload import Recording
from xspace_profiles import MICROSECOND, Instruction, annotation, gpu, hlo, host, kernel, launch, programs, recorded
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


def test_each_run_of_the_longest_program_begins_a_step_which_lasts_until_the_next(tmp_path: Path) -> None:
    found = recording(tmp_path)
    assert [(step.name, step.number, step.complete) for step in found.steps] == [("jit_train", number, True) for number in range(3)]
    assert [step.time_s for step in found.steps] == [pytest.approx(100e-6), pytest.approx(100e-6), pytest.approx(30e-6)]
    check = next(op for op in found.workload if op.module == "jit_check")
    assert [(share.key, share.count) for share in check.by_step] == [(1, 1)]  # the one before the first training step belongs to none
    assert found.coverage.before_steps_s == pytest.approx(90e-6)
    assert "no steps marked: each run of jit_train begins a step" in found.notes


def test_averages_and_findings_are_per_step_then(tmp_path: Path) -> None:
    report = analyze(recording(tmp_path))
    average = next(point for point in report.points if point.scope == "average")
    assert average.time_s == pytest.approx(100e-6)
    assert report.summary.startswith("100 µs per step")


def test_copies_of_arguments_in_the_call_of_a_program_belong_to_its_step(tmp_path: Path) -> None:
    thread, work = list[Event](), list[Event]()
    for number, at in enumerate((0, 100, 200)):
        # The call begins at 0, copies for 60 µs and then runs the program for 30 µs.
        thread += [Event("PjitFunction(train)", at * US, 90 * US), Event("PjitFunction(train)", at * US + 1, 89 * US)]
        thread += [launch(2 * number + 1, (at + 2) * US), run("jit_train", at + 70), launch(2 * number + 2, (at + 72) * US)]
        copy = kernel(
            "MemcpyH2D", (at + 5) * US, 60 * US, correlation_id=2 * number + 1, memcpy_details="kind_src:pageable kind_dst:device size:4"
        )
        work += [copy, ran("jit_train", 2 * number + 2, at + 75, 30)]
    found = recorded(tmp_path, gpu(work), host(sorted(thread, key=lambda event: event.offset_ps)), PROGRAMS)
    assert [step.time_s for step in found.steps] == [pytest.approx(100e-6), pytest.approx(100e-6), pytest.approx(100e-6)]
    assert all([(share.key, share.count) for share in op.by_step] == [(0, 1), (1, 1), (2, 1)] for op in found.workload)


def test_a_step_does_not_begin_at_the_call_if_something_else_ran_since(tmp_path: Path) -> None:
    # Each call lasts 90 µs; while it compiles, another thread runs a check.
    calls = [("jit_check", 30), ("jit_train", 60), ("jit_check", 130), ("jit_train", 160)]
    thread, other = [Event("PjitFunction(train)", 0, 90 * US), Event("PjitFunction(train)", 100 * US, 90 * US)], list[Event]()
    for id, (module, at) in enumerate(calls, 1):
        (thread if module == "jit_train" else other).extend((run(module, at), launch(id, (at + 1) * US)))
    work = [ran(module, id, at + 5, 20 if module == "jit_train" else 5) for id, (module, at) in enumerate(calls, 1)]
    found = recorded(tmp_path, gpu(work), host(sorted(thread, key=lambda event: event.offset_ps), other), PROGRAMS)
    assert [step.time_s for step in found.steps] == [pytest.approx(100e-6), pytest.approx(20e-6)]


def test_annotated_steps_are_believed(tmp_path: Path) -> None:
    found = recording(tmp_path, annotation(4, 90 * US, 300 * US))
    assert [(step.name, step.number) for step in found.steps] == [("train", 4)]


def test_a_step_cut_off_by_the_end_of_the_recording_is_not_complete(tmp_path: Path) -> None:
    calls = [("jit_train", 0), ("jit_train", 100), ("jit_check", 120)]
    thread = [event for id, (module, at) in enumerate(calls, 1) for event in (run(module, at), launch(id, (at + 1) * US))]
    work = [ran("jit_train", 1, 10, 30), ran("jit_train", 2, 110, 30)]
    found = recorded(tmp_path, gpu(work), host(thread), PROGRAMS)
    assert [step.complete for step in found.steps] == [True, False]


def test_devices_that_run_a_program_together_run_one_step(tmp_path: Path) -> None:
    first = [event for n in range(3) for event in (run("jit_train", 100 * n), launch(2 * n + 1, (100 * n + 2) * US))]
    second = [event for n in range(3) for event in (run("jit_train", 100 * n - 1 + (n == 0), 1), launch(2 * n + 2, (100 * n + 1) * US))]
    planes = [gpu([ran("jit_train", 2 * n + 1 + k, 100 * n + 10, 30) for n in range(3)], number=k) for k in (0, 1)]
    found = recorded(tmp_path, *planes, host(first, second), PROGRAMS)
    assert [step.time_s for step in found.steps] == [pytest.approx(100e-6), pytest.approx(100e-6), pytest.approx(30e-6)]
    assert all([(share.key, share.count) for share in op.by_step] == [(0, 2), (1, 2), (2, 2)] for op in found.workload)


def test_too_many_runs_are_no_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_runs, "MOST_RUNS", 2)
    found = recording(tmp_path)
    assert found.steps == ()
    assert "no steps marked, and jit_train ran 3 times: its runs are not shown separately" in found.notes


def test_one_run_is_no_step(tmp_path: Path) -> None:
    found = recorded(tmp_path, gpu([ran("jit_train", 1, 10, 30)]), host([run("jit_train", 0), launch(1, 1 * US)]), PROGRAMS)
    assert (found.steps, found.notes) == ((), ())
