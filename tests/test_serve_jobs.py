"""Jobs of the server: what is kept, what a job may take, and that one bad file delays no other."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from live import PATIENCE_S, options, until
from own_thread import in_own_thread
from roofline.cli.served_runs import compare_reports, read_run
from roofline.errors import SourceError
from roofline.files.input_limits import DEFAULT
from roofline.serve.jobs import CHANGED, Answer, Job, Jobs, Limits
from roofline.serve.runs import Run

Progress = Callable[[int, int], None]


def run_named(name: str, path: Path = Path(), size: int = 0) -> Run:
    return Run(id=name, name=name, path=path, kind="table", files=(path,), stamps=((0, size),))


def read(memory: int | None, run: Run, *, progress: Progress) -> Answer:
    """What the jobs of these tests do, by the name of the run."""
    if run.name.startswith("slow"):
        progress(1, 2)
        time.sleep(600)
    if run.name == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if run.name == "broken":
        raise SourceError("host.pb: it is broken")
    return Answer(body=b"x" * 10, summary={"ops": 1})


def with_jobs(work: Callable[[Jobs], Awaitable[None]], **settings: object) -> None:
    """Runs a test with jobs in an event loop."""

    async def whole() -> None:
        jobs = Jobs(read, compare_reports, **settings)  # type: ignore[arg-type]
        try:
            async with asyncio.timeout(PATIENCE_S):
                await work(jobs)
        finally:
            await jobs.close()

    in_own_thread(lambda: asyncio.run(whole()))


async def being_read(job: Job) -> None:
    while job.progress != 0.5:
        await asyncio.sleep(0.02)


async def error_of(job: Job) -> str | None:
    await job.settled()
    return job.error


# What is kept


def test_what_was_asked_for_longest_ago_makes_room() -> None:
    async def work(jobs: Jobs) -> None:
        # Answers of 10 bytes into 25: two fit beside the next, which is not finished when room is made for it.
        for name in "abcd":
            assert await error_of(jobs.report(run_named(name))) is None
        assert [name for name in "abcd" if jobs.known(run_named(name).version)] == ["b", "c", "d"]
        assert jobs.summary(run_named("a").version) == {"ops": 1}

    with_jobs(work, room=25)


def test_a_failure_is_kept_until_it_is_to_be_tried_again() -> None:
    async def work(jobs: Jobs) -> None:
        failed = jobs.report(run_named("broken"))
        assert await error_of(failed) == "host.pb: it is broken"
        assert jobs.report(run_named("broken")) is failed
        jobs.forget_failure(run_named("broken").version)
        assert jobs.report(run_named("broken")) is not failed

    with_jobs(work)


# What a job may take


def test_a_reader_that_dies_spoils_only_its_own_run() -> None:
    async def work(jobs: Jobs) -> None:
        assert "SIGKILL, probably out of memory" in str(await error_of(jobs.report(run_named("killed"))))
        assert await error_of(jobs.report(run_named("good"))) is None

    with_jobs(work)


def test_a_slow_file_delays_no_other_while_there_are_workers() -> None:
    async def work(jobs: Jobs) -> None:
        slow = jobs.report(run_named("slow"))
        await being_read(slow)
        for name in ("broken", "killed", "good"):
            await jobs.report(run_named(name)).settled()
        assert slow.state == "reading"

    with_jobs(work, workers=2)


def test_a_job_that_takes_too_long_is_stopped_with_its_process() -> None:
    async def work(jobs: Jobs) -> None:
        # With one worker, which the next job gets.
        slow = jobs.report(run_named("slow"))
        assert await error_of(slow) == "took longer than 1 s; raise the limit with --job-time"
        assert "time" in str(await error_of(jobs.report(run_named("slow, too"))))

    before = _children_of(os.getpid())
    with_jobs(work, limits=Limits(time_s=1))
    assert _children_of(os.getpid()) <= before


@pytest.mark.skipif(sys.platform != "linux", reason="no other system limits memory")
def test_a_job_that_takes_too_much_memory_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "ops.csv"
    path.write_text("name,time,flops,bytes\n" + "a,1 ms,1,1\n" * 100_000)

    async def whole() -> str | None:
        jobs = Jobs(partial(read_run, options(), DEFAULT), compare_reports, limits=Limits(memory=100_000_000))
        error = await error_of(jobs.report(run_named("a", path)))
        await jobs.close()
        return error

    assert in_own_thread(lambda: asyncio.run(whole())) == "needs more than 100 MB of memory; raise the limit with --job-memory"


def test_a_job_is_cancelled_whether_it_has_begun_or_not() -> None:
    async def work(jobs: Jobs) -> None:
        running = jobs.report(run_named("slow"))
        await being_read(running)
        waiting = jobs.report(run_named("slow, too"))
        assert (running.state, waiting.state) == ("reading", "waiting")
        for job in (waiting, running):
            job.cancel()
            assert await error_of(job) == "cancelled"

    with_jobs(work)


def test_a_new_version_takes_the_place_of_the_one_being_read() -> None:
    async def work(jobs: Jobs) -> None:
        old = jobs.report(run_named("slow"))
        await being_read(old)
        new = jobs.report(run_named("slow", size=4))
        assert await error_of(old) == CHANGED
        await being_read(new)

    with_jobs(work)


def test_closing_ends_what_is_being_read_and_what_waits() -> None:
    jobs_seen = []

    async def work(jobs: Jobs) -> None:
        jobs_seen.extend(jobs.report(run_named(name)) for name in ("slow", "slow, too"))
        await being_read(jobs_seen[0])

    with_jobs(work)
    assert [job.error for job in jobs_seen] == ["the server is stopping"] * 2


# The end of the server

SERVER = """
from roofline.workers import Worker
from test_serve_jobs import sleep
Worker().call(sleep, progress=lambda pid: print(pid, flush=True))
"""


def sleep(progress: Callable[[int], None]) -> None:
    """Runs in the worker of a server: computes for ever."""
    from roofline.workers import end_with_caller

    end_with_caller()
    progress(os.getpid())
    while True:
        continue


@pytest.mark.skipif(sys.platform == "win32", reason="no /proc and no kill")
def test_a_worker_dies_with_its_server() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True, env=environment)
    assert server.stdout is not None
    worker = int(server.stdout.readline())
    assert _is_alive(worker)
    server.kill()
    server.communicate()
    until(lambda: not _is_alive(worker), "dead")


def _is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody asked about does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"


def _children_of(pid: int) -> set[str]:
    """The processes that a process has started and that still run; none where there is no /proc."""
    files = Path(f"/proc/{pid}/task").glob("*/children")
    return {child for file in files for child in file.read_text().split()}
