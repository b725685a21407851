"""Servers for tests: the application in this process, or as a process of its own with a real socket."""

import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from typing import Any

import httpx

from roofline.cli.serve import parser
from roofline.cli.served_runs import compare_reports, read_run
from roofline.files.input_limits import DEFAULT
from roofline.serve import application
from roofline.serve.jobs import Answer, Limits
from roofline.serve.listen import bind, server
from roofline.serve.runs import Run

DATA = Path(__file__).parent / "data"
PATIENCE_S = 120  # a busy machine is slow, not wrong
SCAN = DATA / "h200" / "jax_scan.xplane.pb.gz"


def options(*words: str) -> Namespace:
    return parser().parse_args(words)


USUAL = partial(read_run, options(), DEFAULT)


def held_back(memory: int | None, run: Run, *, progress: Callable[[int, int], None]) -> Answer:
    """Is at 43%, and goes on when the file has a companion called "go"."""
    progress(43, 100)
    while not run.path.with_name("go").exists():
        time.sleep(0.02)
    return Answer(body=b'{"schema": "roofline.report/1"}')


@contextmanager
def client(
    *roots: Path,
    read: Callable[..., Answer] = USUAL,
    compare: Callable[..., Answer] = compare_reports,
    token: str | None = None,
    **limits: Any,
) -> Iterator[httpx.Client]:
    """Requests to a server in a thread of this process, which ends with them."""
    with bind(0) as listening:
        port = listening.getsockname()[1]
        app = application(
            roots, read_run=read, compare_reports=compare, port=port, token=token, workers=limits.pop("workers", 1), limits=Limits(**limits)
        )
        uvicorn = server(app)
        thread = Thread(target=uvicorn.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as asking:
                yield asking
        finally:
            uvicorn.should_exit = True
            thread.join()


def bare(server: httpx.Client, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    """Status and body of a request whose path goes out as it is, dots and all."""
    connection = HTTPConnection(str(server.base_url.host), server.base_url.port, timeout=PATIENCE_S)
    connection.putrequest(method, path, skip_host="host" in headers)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    try:
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@contextmanager
def process(*words: str, program: str = "") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`roofline serve` as a process of its own, and its address; or another program that says where it listens in the same way."""
    command = [sys.executable, *(("-c", program) if program else ("-m", "roofline", "serve", "--no-token")), *words]
    serving = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert serving.stderr is not None
        said = serving.stderr.readline()
        assert "http://" in said, said + serving.stderr.read()
        yield serving, "http://" + said.split("http://")[1].split()[0].rstrip("/")
    finally:
        serving.kill()
        serving.communicate()


def runs(server: httpx.Client) -> dict[str, dict[str, object]]:
    """The runs in the list, by their names."""
    return {row["name"]: row for row in server.get("/index.json").json()["runs"]}


def until(true: object, what: str, seconds: float = PATIENCE_S) -> object:
    """The first true answer of a function that is asked again and again."""
    assert callable(true)
    end = time.monotonic() + seconds
    while not (answer := true()):
        assert time.monotonic() < end, f"still not: {what}"
        time.sleep(0.02)
    return answer
