"""JAX programs run under the profiler, as they are: what they print, return and record is theirs, and the report follows."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from roofline.capture.program import HOOK, Window, environment, profile, runnable
from roofline.cli import main
from roofline.errors import RooflineError, UsageError

jax = pytest.importorskip("jax")
pytestmark = pytest.mark.jax
# Before, what ran on a CPU does not say in which run of its program, or was not recorded at all (0.6.2 to 0.8.0).
tells_runs = pytest.mark.skipif(jax.__version_info__ < (0, 8, 2), reason="this JAX does not tell runs on a CPU apart")

STEPS, SIDE = 4, 128
PRODUCT = 2 * SIDE**3  # FLOP of one step
PROGRAM = f"""
import os, signal, sys, time
import jax, jax.numpy as jnp

def train(steps={STEPS}):
    f = jax.jit(lambda x: x @ x)
    x = jnp.eye({SIDE})
    for number in range(steps):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            x = f(x)
    return x

"""


@pytest.fixture
def written(tmp_path: Path):
    """A program in a file, by what it does after it has defined `train`."""

    def write(body: str, name: str = "program.py") -> Path:
        path = tmp_path / name
        path.write_text(PROGRAM + body)
        return path

    return write


FROM_START = ("--from-start",)


def capture_words(tmp_path: Path, *command: str | Path, options: Sequence[str] = FROM_START) -> list[str]:
    """`roofline capture` of a command, held against a machine that needs no measuring."""
    ours = [sys.executable, "-m", "roofline", "capture", "-o", str(tmp_path / "run"), "--chip", "epyc-9654", *options]
    return [*ours, "--", *map(str, command)]


def captured(
    tmp_path: Path, *command: str | Path, options: Sequence[str] = FROM_START, **variables: str
) -> subprocess.CompletedProcess[str]:
    """`roofline capture` in a process of its own."""
    words = capture_words(tmp_path, *command, options=options)
    return subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, **variables}, check=False)


def report_in(tmp_path: Path) -> dict:
    return json.loads((tmp_path / "run" / "report.json").read_text())


def products(report: dict) -> float:
    """How many steps' products were recorded."""
    return sum(sum(amount or 0 for amount in op["work"].values()) for op in report["ops"] if op["category"] == "matmul") / PRODUCT


def profiles(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "run").rglob("*.xplane.pb"))


@tells_runs
def test_a_script_runs_as_it_would_and_its_report_follows(tmp_path: Path, written) -> None:
    program = written("print('arguments', sys.argv[1:])\ntrain()\nprint('a word', file=sys.stderr)")
    done = captured(tmp_path, sys.executable, program, "--batch", "64")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("arguments ['--batch', '64']\n")
    assert "a word" in done.stderr
    (file,) = profiles(tmp_path)
    assert file.relative_to(tmp_path).parts[:3] == ("run", "plugins", "profile")
    assert list((tmp_path / "run").glob(".*")) == []  # nothing half-done stays
    report = report_in(tmp_path)
    assert products(report) == STEPS
    assert len([point for point in report["points"] if point["scope"] == "step" and point["infeed_outfeed"]]) == STEPS
    assert "efficiency" in done.stdout  # the usual table
    assert "<!doctype html>" in (tmp_path / "run" / "report.html").read_text("utf-8")[:100]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["module", "file", "console script", "inline"])
def test_whatever_starts_python_is_recorded(tmp_path: Path, written, form: str) -> None:
    program = written("train()", "trains.py")
    script = tmp_path / "trainer"
    script.write_text(f"#!{sys.executable}\nimport trains\n")
    script.chmod(0o755)
    commands = {
        "module": [sys.executable, "-m", "trains"],
        "file": [program],
        "console script": [script],
        "inline": [sys.executable, "-c", "import trains"],
    }
    done = captured(tmp_path, *commands[form], PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert products(report_in(tmp_path)) == STEPS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "status"),
    [("raise ValueError('no')", 1), ("sys.exit(3)", 3), ("os._exit(4)", 4)],
)
def test_a_failure_keeps_its_status_and_what_was_recorded(tmp_path: Path, written, ending: str, status: int) -> None:
    done = captured(tmp_path, sys.executable, written(f"train()\n{ending}"))
    assert done.returncode == status
    assert f"the program failed with exit status {status}" in done.stderr
    assert products(report_in(tmp_path)) == STEPS


@pytest.mark.slow
def test_a_program_told_to_stop_leaves_its_profile(tmp_path: Path, written) -> None:
    # 143 is how shells say "killed by signal 15".
    done = captured(tmp_path, sys.executable, written("train()\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(60)"))
    assert done.returncode == 128 + signal.SIGTERM
    assert products(report_in(tmp_path)) == STEPS


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_an_order_to_stop_ends_the_program_and_the_report_follows(tmp_path: Path, written, number: signal.Signals) -> None:
    # Many short naps: a signal that Python receives just before it begins to sleep is noticed only after that.
    program = written("train()\nprint('trained', flush=True)\nwhile True: time.sleep(0.1)")
    words = capture_words(tmp_path, sys.executable, program)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "trained\n"
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # a keyboard's interrupt reaches both
        else:
            process.send_signal(number)  # an order to stop reaches the command, which passes it on
        try:
            process.communicate(timeout=200)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert process.returncode == 128 + number
    assert products(report_in(tmp_path)) == STEPS


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_order_to_stop_that_comes_while_the_program_starts_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    started = subprocess.Popen

    def interrupted(*words, **options):
        os.kill(os.getpid(), number)
        return started(*words, **options)

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    assert profile(["sleep", "60"], tmp_path).status == 128 + number


@pytest.mark.slow
def test_a_hard_crash_is_explained(tmp_path: Path, written) -> None:
    done = captured(tmp_path, sys.executable, written("train()\nos.kill(os.getpid(), signal.SIGKILL)"))
    assert done.returncode == 128 + signal.SIGKILL
    assert "was killed by signal 9 before its profile was written; use --duration to write it while the program runs" in done.stderr
    assert profiles(tmp_path) == []


@pytest.mark.slow
def test_a_duration_writes_the_profile_while_the_program_runs(tmp_path: Path, written) -> None:
    # The program works until the profile is there, then dies without a chance to say anything.
    body = f"""
import pathlib
while not any('"done"' in path.read_text() for path in pathlib.Path({str(tmp_path)!r}).rglob('status.json')):
    train(1)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = captured(tmp_path, sys.executable, written(body), options=["--from-start", "--duration", "3 s"])
    assert done.returncode == 128 + signal.SIGKILL
    assert len(profiles(tmp_path)) == 1
    assert report_in(tmp_path)["ops"]


@tells_runs
def test_steps_are_counted_to_choose_what_is_recorded(tmp_path: Path, written) -> None:
    done = captured(tmp_path, sys.executable, written("train(6)"), options=["--skip", "2", "--steps", "3"])
    assert done.returncode == 0, done.stderr
    assert products(report_in(tmp_path)) == 3
    steps = [point["step"] for point in report_in(tmp_path)["points"] if point["scope"] == "step" and point["infeed_outfeed"]]
    assert len(steps) == 3


GROWS = """
step = jax.jit(lambda x: x @ x)
for number in range(8):
    x = jnp.eye({side} if number < 5 else {side} + 8)
    with {step}:
        step(x).block_until_ready()
"""


@tells_runs
def test_recording_begins_after_a_step_that_did_not_compile(tmp_path: Path, written) -> None:
    body = GROWS.format(side=SIDE, step='jax.profiler.StepTraceAnnotation("train", step_num=number)')
    done = captured(tmp_path, sys.executable, written(body), options=())
    assert done.returncode == 0, done.stderr
    # Step 0 compiles, step 1 does not. A compilation after that, for another shape, is recorded and no warm-up.
    assert "recording began with annotated step 3, after one that did not compile; --from-start records everything" in done.stderr
    steps = report_in(tmp_path)["steps"]
    assert [(step["number"], step["compiled"], step["steady"]) for step in steps] == [(n, n == 5, True) for n in range(2, 8)]


@pytest.mark.slow
def test_without_annotations_a_call_of_the_longest_function_is_a_step(tmp_path: Path, written) -> None:
    body = "import contextlib\n" + GROWS.format(side=4 * SIDE, step="contextlib.nullcontext()")
    done = captured(tmp_path, sys.executable, written(body), options=())
    assert done.returncode == 0, done.stderr
    assert "recording began after a call of" in done.stderr
    assert 0 < products(report_in(tmp_path)) / 4**3 < 8


@pytest.mark.slow
def test_python_calls_name_the_line_that_kept_the_device_waiting(tmp_path: Path, written) -> None:
    body = f"""
def load_batch():
    time.sleep(0.05)
    return jnp.eye({SIDE})

def run():
    step = jax.jit(lambda x: x @ x)
    for number in range(6):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            step(load_batch())

run()
"""
    program = written(body)
    line = program.read_text().splitlines().index("def load_batch():") + 1
    done = captured(tmp_path, sys.executable, program, options=["--python"])
    assert done.returncode == 0, done.stderr
    first = report_in(tmp_path)["idle"][0]
    assert (first["reason"], first["activity"]) == ("input", "time.sleep, called from load_batch")
    assert first["location"] == f"program.py:{line}"


CALLS = 6
UNANNOTATED = f"""
f = jax.jit(lambda x: x @ x)
x = jnp.eye({SIDE})
for _ in range({CALLS}): x = f(x)
"""


@pytest.mark.slow
@tells_runs
@pytest.mark.parametrize(("after", "recorded"), [("print(float(x.sum()))", CALLS - 2), ("train(6)", 4)])
def test_a_function_that_compiles_soon_after_the_loop_does_not_lose_its_recording(
    tmp_path: Path, written, after: str, recorded: int
) -> None:
    """The first call compiles and the second shows that no other does; annotated steps take the place of calls."""
    done = captured(tmp_path, sys.executable, written(UNANNOTATED + after), options=())
    assert done.returncode == 0, done.stderr
    assert len(profiles(tmp_path)) == 1
    assert products(report_in(tmp_path)) == recorded


@pytest.mark.slow
@tells_runs
def test_from_the_start_the_step_that_compiled_is_warm_up(tmp_path: Path, written) -> None:
    body = GROWS.format(side=SIDE, step='jax.profiler.StepTraceAnnotation("train", step_num=number)')
    done = captured(tmp_path, sys.executable, written(body))
    assert done.returncode == 0, done.stderr
    # Recording starts when the first program is compiled, which is one of jnp.eye.
    steps = report_in(tmp_path)["steps"]
    assert [(step["number"], step["compiled"], step["steady"]) for step in steps] == [(n, n in (0, 5), n != 0) for n in range(8)]


@pytest.mark.slow
def test_a_program_whose_steps_all_compile_is_recorded_all_the_same(tmp_path: Path, written) -> None:
    body = """
step = jax.jit(lambda x: x @ x)
for number in range(11):
    x = jnp.eye(8 + number)
    with jax.profiler.StepTraceAnnotation("train", step_num=number):
        step(x).block_until_ready()
"""
    done = captured(tmp_path, sys.executable, written(body), options=())
    assert done.returncode == 0, done.stderr
    assert "recording began although each of 8 annotated steps compiled" in done.stderr
    steps = report_in(tmp_path)["steps"]
    assert [(step["number"], step["compiled"], step["steady"]) for step in steps] == [(n, True, True) for n in (8, 9, 10)]


def test_calls_of_jitted_functions_are_seen_until_nobody_watches() -> None:
    import jax
    import jax.numpy as jnp

    from roofline.capture.hook.roofline_hook_jax_calls import watch_calls

    twice = jax.jit(lambda x: 2 * x)
    x, seen = jnp.float32(3), list[object]()
    twice(x)  # from here on JAX runs it without Python

    def called(function, call, args, kwargs):
        seen.append(function)
        return call(function, *args, **kwargs)

    stop = watch_calls(jax, called)
    assert float(twice(x)) == 6
    assert twice in seen
    stop()
    seen.clear()
    assert float(twice(x)) == 6
    assert not seen


PREPARED = "f = jax.jit(jnp.cumsum)\nf(f(jnp.ones(8)))"
COMPILED = "ended before a step ran without compiling; use --from-start to record everything"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "options", "said"),
    [
        ("train()", ["--delay", "1 h"], "ended before the delay was over; use a shorter --delay"),
        ("train()", ["--skip", "9"], f"ended after {STEPS} annotated steps; use a smaller --skip"),
        ("", [], "ended without running anything on a device with JAX"),
        ("train(1)", [], COMPILED),
        (f"{PREPARED}\nprint(jax.jit(lambda x: jax.lax.fori_loop(0, 20, lambda _, x: x @ x, x))(jnp.eye(1024))[0, 0])", [], COMPILED),
        (PREPARED, [], "nothing ran on a device while the program was recorded; use --from-start"),
    ],
)
def test_a_program_that_ends_too_early_says_why_nothing_was_recorded(
    tmp_path: Path, written, body: str, options: list[str], said: str
) -> None:
    done = captured(tmp_path, sys.executable, written(body), options=options)
    assert done.returncode == 1
    assert said in done.stderr


def test_a_program_without_jax_is_an_error_of_one_line(tmp_path: Path) -> None:
    done = captured(tmp_path, sys.executable, "-c", "print('hello')")
    assert (done.returncode, done.stdout) == (1, "hello\n")
    assert "ended without importing JAX or PyTorch, so nothing was recorded" in done.stderr
    assert done.stderr.count("\n") == 1
    failed = captured(tmp_path, sys.executable, "-I", "-c", "raise SystemExit(7)")
    assert failed.returncode == 7
    assert "-I, -E and -S" in failed.stderr


@pytest.mark.slow
def test_devices_are_still_the_programs_to_configure(tmp_path: Path, written) -> None:
    # JAX refuses this once its devices have started, so the profiler must not have started them at import.
    done = captured(tmp_path, sys.executable, written("jax.config.update('jax_num_cpu_devices', 3)\nprint(len(jax.devices()))\ntrain()"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("3\n")


@pytest.mark.slow
def test_a_profile_of_the_programs_own_comes_first(tmp_path: Path, written) -> None:
    body = f"train()\nwith jax.profiler.trace({str(tmp_path / 'own')!r}):\n    train(2)"
    done = captured(tmp_path, sys.executable, written(body))
    assert done.returncode == 0, done.stderr
    assert "the program started its own profile, which ended this recording" in done.stderr
    assert len(list((tmp_path / "own").rglob("*.xplane.pb"))) == 1
    assert products(report_in(tmp_path)) == STEPS


@pytest.mark.slow
def test_the_environments_own_customisation_still_runs_and_the_path_is_its_own(tmp_path: Path, written) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.customised = True\n")
    done = captured(tmp_path, sys.executable, written("print(sys.customised, sys.path[1])\ntrain()"), PYTHONPATH=str(tmp_path))
    assert done.stdout.startswith(f"True {tmp_path}\n"), done.stderr


@pytest.mark.slow
def test_processes_of_a_program_are_hosts_of_one_run(tmp_path: Path, written) -> None:
    body = """
if __name__ == "__main__":
    import multiprocessing
    workers = [multiprocessing.get_context("spawn").Process(target=train) for _ in range(2)]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
"""
    done = captured(tmp_path, sys.executable, written(body))
    assert done.returncode == 0, done.stderr
    files = profiles(tmp_path)
    assert len(files) == len({file.name for file in files}) == 2
    assert len({file.parent for file in files}) == 1
    assert products(report_in(tmp_path)) == 2 * STEPS


@pytest.mark.slow
def test_data_on_standard_output_is_not_mixed_with_the_programs(tmp_path: Path, written) -> None:
    done = captured(tmp_path, sys.executable, written("print('a word')\ntrain()"), options=["--json", "-"])
    assert json.loads(done.stdout)["schema"] == "roofline.report/1"
    assert "a word" in done.stderr


def test_what_cannot_be_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in [
        (["--"], "no program given"),
        (["--", "no-such-program"], "'no-such-program' not found"),
        (["--delay", "1s", "--steps", "2", "--", "python"], "--delay and --skip cannot be combined"),
        (["--steps", "0", "--", "python"], "steps to record 1 or more"),
        (["--from-start", "--skip", "2", "--", "python"], "--from-start cannot be combined with --delay or --skip"),
        (["--chip", "h10", "--", "python"], "did you mean"),
        (["--stepz", "2", "--", "python"], "unrecognized arguments: --stepz"),
    ]:
        assert main(["capture", "-o", str(tmp_path / "run"), *words]) in (1, 2)
        assert said in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_refused_before_the_program_runs(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot write the profile"):
        profile([sys.executable, "-c", "raise SystemExit(9)"], tmp_path / "file" / "run")


def test_a_file_that_is_no_program_itself_is_run_by_this_python(tmp_path: Path) -> None:
    plain = tmp_path / "plain.py"
    plain.touch()
    assert runnable([str(plain), "x"]) == [sys.executable, str(plain), "x"]
    plain.chmod(0o755)
    assert runnable([str(plain)]) == [str(plain)]


def test_the_programs_own_path_stays_behind_the_hook() -> None:
    made = environment({"PYTHONPATH": "mine", "HOME": "/home"}, {"folder": "f"})
    assert made["PYTHONPATH"].split(os.pathsep) == [str(HOOK), "mine"]
    assert environment({}, {})["PYTHONPATH"] == str(HOOK)
    assert made["HOME"] == "/home"
    # Nothing of the package itself becomes importable by a bare name.
    assert sorted(path.name for path in HOOK.glob("*.py")) == [
        "__init__.py",
        "roofline_hook.py",
        "roofline_hook_jax.py",
        "roofline_hook_jax_calls.py",
        "roofline_hook_jax_libtpu.py",
        "roofline_hook_jax_work.py",
        "roofline_hook_recorder.py",
        "roofline_hook_step.py",
        "roofline_hook_torch.py",
        "roofline_hook_torch_graphs.py",
        "roofline_hook_torch_later.py",
        "roofline_hook_torch_profiler.py",
        "roofline_hook_torch_steps.py",
        "roofline_hook_torch_tensors.py",
        "sitecustomize.py",
    ]


def test_a_window_is_by_time_or_by_steps() -> None:
    with pytest.raises(UsageError):
        Window(delay_s=1, skip=2)
    with pytest.raises(UsageError):
        Window(skip=-1)


def test_a_block_is_captured_and_nothing_around_it(tmp_path: Path) -> None:
    import jax
    import jax.numpy as jnp

    import roofline as rl
    import roofline.cli.capture  # a module of this name must not hide the function

    f = jax.jit(lambda x: x @ x)
    x = f(f(jnp.eye(SIDE)))
    with rl.capture(tmp_path / "run", chip="epyc-9654", name="mine") as run:
        with pytest.raises(UsageError, match="after the with block"):
            _ = run.report
        for _ in range(3):
            x = f(x)
    x = f(x)
    assert [file.relative_to(tmp_path).parts[:4] for file in run.files] == [("run", "plugins", "profile", "mine")]
    work = sum(sum(a or 0 for a in op.work.values()) for op in run.report.ops if op.category == "matmul")
    assert work == 3 * PRODUCT
    assert run.report is run.report  # made once
    with pytest.raises(UsageError, match="can be used once"), run:
        pass


def test_an_error_in_the_block_passes_and_the_profile_stays(tmp_path: Path) -> None:
    import jax.numpy as jnp

    import roofline as rl

    run = rl.capture(chip="epyc-9654")

    def fail() -> None:
        with run:
            jnp.eye(SIDE) @ jnp.eye(SIDE)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert run.report.ops


def test_one_profile_at_a_time(tmp_path: Path) -> None:
    import jax.numpy as jnp

    import roofline as rl

    with rl.capture(tmp_path / "outer") as outer:
        with pytest.raises(UsageError, match="one profile at a time"), rl.capture(tmp_path / "inner"):
            pass
        jnp.eye(SIDE) @ jnp.eye(SIDE)
    assert list((tmp_path / "inner").iterdir()) == []
    assert len(outer.files) == 1


def test_an_empty_block_says_that_nothing_ran(tmp_path: Path) -> None:
    import roofline as rl

    with rl.capture(tmp_path) as run:
        pass
    with pytest.raises(RooflineError, match="no device activity"):
        _ = run.report
