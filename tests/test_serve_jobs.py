"""Jobs and workers: what is kept, what a job may take, and that no job waits long for another."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from live import PATIENCE_S, WORKER, until
from roofline.serve import jobs as jobs_module
from roofline.serve import process_groups, workers
from roofline.serve.jobs import Jobs
from roofline.serve.process_groups import memory_of_groups, processor_time_of_groups
from roofline.serve.workers import Job, Limits
from roofline.sources.runs import Run

SLEEP = "print('progress 0.5', file=sys.stderr, flush=True)\nimport time\ntime.sleep(600)"
BAD_SLEEPS = f"if request['path'].startswith('bad'):\n    {SLEEP.replace(chr(10), chr(10) + '    ')}\nprint('fine')"


# What is kept


def a_run(name: str, *files: Path, size: int = 0) -> Run:
    return Run(id=name, name=name, path=Path(name), kind="table", files=files, stamps=tuple((0, size) for _ in files))


def talking(program: str) -> tuple[str, str, str]:
    return sys.executable, "-c", f"import sys, json\nrequest = json.loads(sys.stdin.readline())\n{program}"


def test_what_was_asked_for_longest_ago_makes_room() -> None:
    # 4 answers of 10 bytes into 25: the two last ones fit.
    jobs = Jobs(talking("print('x' * 9)"), room=25)
    made = [a_run(name) for name in "abcd"]
    for run in made:
        assert jobs.report(run).outcome.result(PATIENCE_S).body == b"x" * 9 + b"\n"
    assert [run.id for run in made if jobs.known(run.version)] == ["c", "d"]
    jobs.close()


def test_one_version_is_read_once() -> None:
    jobs = Jobs(talking("print('x')"))
    assert jobs.report(a_run("a")) is jobs.report(a_run("a"))
    jobs.close()


# What a job may take


def test_a_reader_that_dies_spoils_only_its_own_run() -> None:
    program = "import os, signal\nif request['path'] == 'bad': os.kill(os.getpid(), signal.SIGKILL)\nprint('fine')"
    jobs = Jobs(talking(program))
    assert "SIGKILL" in (jobs.report(a_run("bad")).outcome.result(PATIENCE_S).error or "")
    assert jobs.report(a_run("good")).outcome.result(PATIENCE_S).body == b"fine\n"
    jobs.close()


def test_a_reader_that_raises_gives_its_last_line() -> None:
    jobs = Jobs(talking("raise SystemExit('roofline: host.pb: it is broken')"))
    assert jobs.report(a_run("a")).outcome.result(PATIENCE_S).error == "host.pb: it is broken"
    jobs.close()


def test_a_reader_that_cannot_start_is_an_error_too() -> None:
    jobs = Jobs(["/nowhere/python"])
    assert "cannot start the worker" in (jobs.report(a_run("a")).outcome.result(PATIENCE_S).error or "")
    jobs.close()


def test_closing_ends_what_is_being_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "SLICE_S", 600.0)
    jobs = Jobs(talking("print('progress 0.5', file=sys.stderr, flush=True)\nimport time\ntime.sleep(600)"))
    running = jobs.report(a_run("a"))
    until(lambda: running.progress == 0.5, "being read")
    waiting = jobs.report(a_run("b"))
    jobs.close()
    assert running.state == "failed"
    assert waiting.progress is None


def test_failures_too_are_kept_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "MOST_JOBS", 2)
    jobs = Jobs(talking("raise SystemExit('no')"))
    for name in "abcd":
        assert jobs.report(a_run(name)).outcome.result(PATIENCE_S).error
    assert sum(jobs.known(a_run(name).version) is not None for name in "abcd") <= 2
    jobs.close()


def test_a_job_that_takes_too_long_is_stopped() -> None:
    jobs = Jobs(talking(SLEEP), limits=Limits(time_s=0.2))
    assert jobs.report(a_run("a")).outcome.result(PATIENCE_S).error == "took longer than 0.2 s; raise the limit with --job-time"
    jobs.close()


@pytest.mark.skipif(sys.platform == "win32", reason="the system does not tell")
def test_a_job_that_takes_too_much_memory_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "ops.csv"
    path.write_text("name,time,flops,bytes\n" + "a,1 ms,1,1\n" * 100_000)
    jobs = Jobs(WORKER, limits=Limits(memory=40 * 2**20))
    run = Run(id="a", name="a", path=path, kind="table", files=(path,), stamps=((0, 0),))
    assert jobs.report(run).outcome.result(PATIENCE_S).error == "needs more than 41.94 MB of memory; raise the limit with --job-memory"
    jobs.close()


@pytest.mark.skipif(sys.platform == "win32", reason="no ps")
def test_memory_is_that_of_a_process_and_of_those_it_started() -> None:
    program = "import subprocess, sys, time; held = bytearray(b'x' * (40 << 20)); print(flush=True); "
    parent = program + f"made = subprocess.Popen([sys.executable, '-c', {program + 'time.sleep(600)'!r}]); time.sleep(600)"
    made = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, start_new_session=True)
    assert made.stdout is not None
    try:
        made.stdout.readline()
        made.stdout.readline()
        found = [memory_of_groups({made.pid})[made.pid]]
        if shutil.which("ps"):
            rows = until(process_groups._from_ps, "told by ps")  # which a busy machine may keep waiting longer than a server does
            found.append(sum(size for group, size in rows if group == made.pid))
    finally:
        os.killpg(made.pid, signal.SIGKILL)
        made.wait()
        made.stdout.close()
    assert all(80 * 2**20 < size < 200 * 2**20 for size in found), found


def test_a_job_is_cancelled_whether_it_has_begun_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "SLICE_S", 600.0)
    jobs = Jobs(talking(SLEEP))
    running = jobs.report(a_run("a"))
    until(lambda: running.progress == 0.5, "being read")
    waiting = jobs.report(a_run("b"))
    for job in (waiting, running):
        jobs.cancel(job.key)
        assert job.outcome.result(PATIENCE_S).error == "cancelled"
    assert waiting.progress is None
    jobs.close()


def test_a_job_is_dropped_when_its_file_goes_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "CHECK_EVERY_S", 0.05)
    monkeypatch.setattr(workers, "SLICE_S", 600.0)
    files = [tmp_path / name for name in "ab"]
    for file in files:
        file.touch()
    jobs = Jobs(talking(SLEEP))
    running = jobs.report(a_run("a", files[0]))
    until(lambda: running.progress == 0.5, "being read")
    waiting = jobs.report(a_run("b", files[1]))
    for file, job in zip(files[::-1], (waiting, running), strict=True):
        file.unlink()
        if job is running:
            assert job.outcome.result(PATIENCE_S).error == f"{file}: no longer exists; reload the list of runs"
    assert waiting.outcome.result(PATIENCE_S).error == f"{files[1]}: no longer exists; reload the list of runs"
    jobs.close()


def test_a_new_version_takes_the_place_of_the_one_being_read(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.touch()
    jobs = Jobs(talking(f"if not open(request['files'][0]).read(): {SLEEP.replace(chr(10), ';')}\nprint('new')"))
    old = jobs.report(a_run("a", path))
    until(lambda: old.progress == 0.5, "being read")
    path.write_text("more")
    new = jobs.report(Run(id="a", name="a", path=path, kind="table", files=(path,), stamps=((1, 4),)))
    assert new.outcome.result(PATIENCE_S).body == b"new\n"
    assert old.outcome.result(PATIENCE_S).error == jobs_module.CHANGED
    jobs.close()


def test_a_job_is_tried_again_after_its_worker_died(tmp_path: Path) -> None:
    program = (
        f"import os, signal\nfrom pathlib import Path\nmark = Path({str(tmp_path / 'mark')!r})\n"
        "if not mark.exists():\n    mark.touch()\n    os.kill(os.getpid(), signal.SIGTERM)\nprint('fine')"
    )
    jobs = Jobs(talking(program))
    assert jobs.report(a_run("a")).outcome.result(PATIENCE_S).body == b"fine\n"
    jobs.close()


def test_a_failure_is_kept_until_it_is_to_be_tried_again() -> None:
    jobs = Jobs(talking("raise SystemExit('no')"))
    failed = jobs.report(a_run("a"))
    assert failed.outcome.result(PATIENCE_S).error
    assert jobs.report(a_run("a")) is failed
    jobs.forget_failure(failed.key)
    assert jobs.report(a_run("a")) is not failed
    jobs.close()


@pytest.mark.parametrize("bad", [1, 3])
def test_slow_files_never_block_the_next(monkeypatch: pytest.MonkeyPatch, bad: int) -> None:
    # With one worker; the slow ones never end by themselves, and sleep.
    monkeypatch.setattr(workers, "SLICE_S", 0.1)
    monkeypatch.setattr(workers, "ASLEEP", 8.0)
    monkeypatch.setattr(workers, "TICK_S", 0.01)
    jobs = Jobs(talking(BAD_SLEEPS))
    slow = [jobs.report(a_run(f"bad{number}")) for number in range(bad)]
    for number in range(2):
        assert jobs.report(a_run(f"good{number}")).outcome.result(PATIENCE_S).body == b"fine\n"
    assert not any(job.outcome.done() for job in slow)
    assert sum(job.process is not None for job in slow) <= 2
    jobs.close()


def test_of_new_files_the_smallest_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # With one worker, the places for a slow and a new job are taken when the others are asked for.
    monkeypatch.setattr(workers, "SLICE_S", 0.1)
    monkeypatch.setattr(workers, "ASLEEP", 8.0)
    monkeypatch.setattr(workers, "TICK_S", 0.01)
    begun, start = list[str](), workers.Workers._start
    monkeypatch.setattr(workers.Workers, "_start", lambda self, job: begun.append(job.request["path"]) or start(self, job))
    jobs = Jobs(talking(BAD_SLEEPS))
    for number in range(2):
        jobs.report(a_run(f"bad{number}"))
    until(lambda: {"bad0", "bad1"} <= {*begun}, "both places to be taken")
    with jobs._workers._changed:  # none begins before all are asked for
        before = len(begun)
        for number in range(2, 9):
            jobs.report(a_run(f"bad{number}", tmp_path, size=1_000))
        small = jobs.report(a_run("good", tmp_path, size=10))
    assert small.outcome.result(PATIENCE_S).body == b"fine\n"
    assert next(name for name in begun[before:] if name not in ("bad0", "bad1")) == "good"
    jobs.close()


def test_a_turn_is_processor_time_where_the_system_tells_it() -> None:
    job = Job(key="a", since=100.0, processor_s=0.1)
    assert not job.has_used_its_slice(102.0)  # which was kept waiting by others
    job.processor_s = 0.6
    assert job.has_used_its_slice(102.0)
    job.times_stopped = 1
    assert not job.has_used_its_slice(102.0)  # one that was stopped has a turn four times as long
    job.times_stopped, job.processor_s = 0, 0.0
    assert job.has_used_its_slice(111.0)  # it may sleep
    job.processor_s = None
    assert job.has_used_its_slice(100.6)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells it")
def test_processor_time_is_that_of_a_process_and_of_those_it_started() -> None:
    busy = "import time; end = time.process_time() + 0.2\nwhile time.process_time() < end: pass\nprint(flush=True)\ntime.sleep(600)"
    parent = f"import subprocess, sys; made = subprocess.Popen([sys.executable, '-c', {busy!r}]); exec({busy!r})"
    made = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, start_new_session=True)
    assert made.stdout is not None
    try:
        made.stdout.readline()
        made.stdout.readline()
        assert 0.4 <= processor_time_of_groups({made.pid})[made.pid] < 5
    finally:
        os.killpg(made.pid, signal.SIGKILL)
        made.wait()
        made.stdout.close()
    assert processor_time_of_groups(set()) == {}


def test_a_slow_job_goes_on_beside_new_ones_and_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "SLICE_S", 0.1)
    jobs = Jobs(talking(BAD_SLEEPS))
    slow = jobs.report(a_run("bad"))
    until(lambda: slow.slow, "taken for slow")
    for number in range(3):
        assert jobs.report(a_run(f"good{number}")).outcome.result(PATIENCE_S).body == b"fine\n"
    assert slow.times_stopped == 0  # it was never stopped
    assert slow.process is not None
    assert os.getpriority(os.PRIO_PROCESS, slow.process.pid) == workers.LOWEST_PRIORITY
    jobs.close()


def test_slow_jobs_that_nobody_waits_for_are_not_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "SLICE_S", 0.05)
    jobs = Jobs(talking("import time\ntime.sleep(1)\nprint('fine')"))
    both = [jobs.report(a_run(name)) for name in "ab"]
    assert [job.outcome.result(PATIENCE_S).body for job in both] == [b"fine\n"] * 2
    assert [job.times_stopped for job in both] == [0, 0]
    jobs.close()


def test_a_job_that_made_room_begins_again_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Three that need half a second each, a turn of 0.1 s and one worker: turns of 0.1, 0.4 and 1.6 s are enough for all.
    monkeypatch.setattr(workers, "SLICE_S", 0.1)
    jobs = Jobs(talking("import time\ntime.sleep(0.5)\nprint('fine')"))
    made = [jobs.report(a_run(name)) for name in "abc"]
    assert [job.outcome.result(PATIENCE_S).body for job in made] == [b"fine\n"] * 3
    jobs.close()


def test_words_that_look_like_a_summary_do_not_end_the_listening() -> None:
    jobs = Jobs(talking("print('summary {not JSON}\\n' + 'x' * 200_000 + '\\nit is broken', file=sys.stderr)\nsys.exit(1)"))
    assert jobs.report(a_run("a")).outcome.result(PATIENCE_S).error == "it is broken"
    jobs.close()


# The end of the server

LEFT_ALONE = """
import subprocess, sys
made = subprocess.Popen([sys.executable, "-m", "roofline.cli.serve_worker"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                        start_new_session=True)
made.stdin.write(REQUEST)
made.stdin.flush()
print(made.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
@pytest.mark.parametrize("by_system", [True, False])
def test_a_worker_dies_with_its_server(tmp_path: Path, by_system: bool) -> None:
    # A worker that waits for a pipe nobody writes to; without Linux's help, the end of its standard input tells it.
    os.mkfifo(tmp_path / "ops.csv")
    request = f'{{"verb": "analyze", "path": "{tmp_path / "ops.csv"}", "kind": "table", "files": []}}\n'.encode()
    program = LEFT_ALONE.replace("REQUEST", repr(request))
    if not by_system:
        program = program.replace('"-m", "roofline.cli.serve_worker"', '"-c", WORKER')
        run = "from roofline.cli import serve_worker; serve_worker._die_with_parent = lambda: None; serve_worker.main([])"
        program = f"WORKER = {run!r}\n{program}"
    server = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    worker = int(server.stdout.readline())
    time.sleep(0.2)
    assert _alive(worker)
    server.kill()
    server.communicate()
    until(lambda: not _alive(worker), "dead")


def _alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody asked about does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    try:
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
