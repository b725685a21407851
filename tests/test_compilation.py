"""Compilation is a phase of its own: its steps are marked, and what the compiler tried on the device is not work of the program."""

from pathlib import Path

import pytest

from roofline.analysis import analyze
from roofline.sources.xspace.recording import warm_up
from roofline.workload import Recording
from xspace_profiles import MICROSECOND, Instruction, annotation, by_name, gpu, hlo, host, kernel, launch, programs, recorded
from xspace_writer import Event, Line, Plane

US = MICROSECOND
PROGRAM = programs({7: hlo("jit_f", {"main": [Instruction("x", "parameter"), Instruction("add.1", "add", ("x", "x"))]})})


def stepped(folder: Path, compiled: set[int], steps: int = 4) -> Recording:
    """Steps of 100 µs, of which some compile for 50; each runs an addition of 2 µs."""
    thread, work = list[Event](), list[Event]()
    for number in range(steps):
        at = 100 * number
        thread.append(annotation(number, at * US, 90 * US))
        if number in compiled:
            thread.append(Event("PJRT_Client_Compile", (at + 10) * US, 50 * US))
        thread.append(launch(number + 1, (at + 80) * US))
        work.append(kernel("add_1", (at + 82) * US, 2 * US, hlo_op="add.1", program_id=7, correlation_id=number + 1))
    return recorded(folder, gpu(work), host(thread), PROGRAM)


@pytest.mark.parametrize(
    ("compiled", "steady"),
    [
        (set(), [True, True, True, True]),
        ({0}, [False, True, True, True]),
        ({0, 1}, [False, False, True, True]),
        ({2}, [True, True, True, True]),  # after a steady step it is not a warm-up
        ({0, 2}, [False, True, True, True]),
        ({0, 1, 2}, [True, True, True, True]),  # nor where most steps compile
    ],
)
def test_steps_that_compile_are_warm_up_until_one_does_not(tmp_path: Path, compiled: set[int], steady: list[bool]) -> None:
    recording = stepped(tmp_path, compiled)
    assert {step.step for step in recording.steps if step.compiled} == compiled
    assert [step.steady for step in recording.steps] == steady


def test_the_average_is_of_steady_steps(tmp_path: Path) -> None:
    thread = [
        annotation(0, 0, 500 * US),
        Event("PJRT_Client_Compile", 10 * US, 300 * US),
        launch(1, 20 * US),
        annotation(1, 500 * US, 100 * US),
        launch(2, 510 * US),
        annotation(2, 600 * US, 100 * US),
        launch(3, 610 * US),
    ]
    times = ((1, 30), (2, 520), (3, 620))
    work = [kernel("add_1", at * US, 2 * US, hlo_op="add.1", program_id=7, correlation_id=id) for id, at in times]
    report = analyze(recorded(tmp_path, gpu(work), host(thread), PROGRAM))
    (average,) = [point for point in report.points if point.scope == "average"]
    assert average.time_s == pytest.approx(100e-6)  # step 1; step 0 lasts 490 µs, step 2 was not followed
    assert [(step.compiled, step.steady) for step in report.steps] == [(True, False), (False, True), (False, True)]


def test_what_a_compiler_launched_is_autotuning(tmp_path: Path) -> None:
    main = [annotation(0, 0, 100 * US), Event("PJRT_Client_Compile", 5 * US, 60 * US), launch(1, 10 * US), launch(9, 80 * US)]
    pool = [Event("CompileToBackendResult", 12 * US, 3 * US), launch(2, 20 * US), launch(3, 30 * US)]
    copies = [launch(4, 25 * US)]  # of another thread, which does not compile
    threads = Plane("/host:CPU", [Line("python3", main, id=1), Line("tf_compile_pool/7", pool, id=2), Line("worker", copies, id=3)])
    memset = {"Memset_details": "num_bytes:64"}
    work = [
        kernel("candidate", 11 * US, US, correlation_id=1, hlo_op="dot.1", program_id=99),
        kernel("Memset", 21 * US, US, correlation_id=2, **memset),
        kernel("Memset", 26 * US, US, correlation_id=4, **memset),
        kernel("redzone", 31 * US, US, correlation_id=3),
        kernel("add_1", 82 * US, 2 * US, correlation_id=9, hlo_op="add.1", program_id=7),
    ]
    recording = recorded(tmp_path, gpu(work), threads, PROGRAM)
    ops = by_name(recording)
    assert set(ops) == {"autotuning", "Memset", "add.1"}
    tuned = ops["autotuning"]
    assert (tuned.category, tuned.kernels, tuned.time_s, tuned.priced) == ("autotuning", 3, pytest.approx(3e-6), True)
    # One of the two memsets is the program's own.
    assert (ops["Memset"].count, ops["Memset"].cost["hbm"], ops["Memset"].time_s) == (1, 64, pytest.approx(1e-6))
    assert [(share.key, share.time_s) for share in tuned.by_step] == [(0, pytest.approx(3e-6))]
    assert recording.coverage.priced_s == recording.coverage.busy_s == pytest.approx(6e-6)


def test_a_compilation_says_which_shapes_changed(tmp_path: Path) -> None:
    grown = {
        id: hlo("jit_f", {"main": [Instruction("x", "parameter", dims=(size,)), Instruction("add.1", "add", ("x", "x"), dims=(size,))]})
        for id, size in ((7, 8), (8, 16))
    }
    thread = [launch(1, 9 * US), Event("PjitFunction(f)", 15 * US, 110 * US), Event("PJRT_Client_Compile", 18 * US, 100 * US)]
    thread.append(launch(2, 119 * US))
    work = [
        kernel("add_1", at * US, 10 * US, hlo_op="add.1", program_id=program, correlation_id=id)
        for id, at, program in ((1, 10, 7), (2, 120, 8))
    ]
    (reason,) = recorded(tmp_path, gpu(work), host(thread), programs(grown)).idle
    assert (reason.kind, reason.activity) == ("compile", "f, argument 0: f32[8], f32[16]")


def test_a_run_without_steps_is_not_warm_up() -> None:
    assert warm_up(0, ()) == set()
