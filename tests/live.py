"""Servers for tests: the application in this process, or as a process of its own with a real socket."""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread

import httpx

from roofline.serve import application
from roofline.serve.connections import IDLE_S, MOST, server
from roofline.serve.listen import bind

WORKER = (sys.executable, "-m", "roofline.cli.serve_worker")
DATA = Path(__file__).parent / "data"
PATIENCE_S = 120  # a busy machine is slow, not wrong
SCAN = DATA / "h200" / "jax_scan.xplane.pb.gz"
# Says that it is at 43%, and goes on when the file that it is given has a companion called "go".
HELD_BACK = """
import json, sys, time
from pathlib import Path
path = Path(json.loads(sys.stdin.readline())["path"])
print("progress 0.43", file=sys.stderr, flush=True)
while not path.with_name("go").exists(): time.sleep(0.02)
print('{"schema": "roofline.report/1"}')
"""


@contextmanager
def client(
    *roots: Path, worker: Sequence[str] = WORKER, idle_s: float = IDLE_S, most: int = MOST, token: str | None = None
) -> Iterator[httpx.Client]:
    """Requests to a server in a thread of this process, which ends with them."""
    with bind(0) as listening:
        port = listening.getsockname()[1]
        app = application(roots, worker=worker, port=port, token=token)
        made = server(app, idle_s=idle_s, most=most)
        thread = Thread(target=made.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as asking:
                yield asking
        finally:
            made.should_exit = True
            thread.join()


def bare(server: httpx.Client, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    """Status and body of a request whose path goes out as it is, dots and all."""
    made = HTTPConnection(str(server.base_url.host), server.base_url.port, timeout=PATIENCE_S)
    made.putrequest(method, path, skip_host="host" in headers)
    for name, value in headers.items():
        made.putheader(name, value)
    made.endheaders()
    answer = made.getresponse()
    try:
        return answer.status, answer.read().decode()
    finally:
        made.close()


@contextmanager
def process(*words: str, program: str = "") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`roofline serve` as a process of its own, and its address; or another program that says where it listens in the same way."""
    command = [sys.executable, *(("-c", program) if program else ("-m", "roofline", "serve", "--no-token")), *words]
    made = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert made.stderr is not None
        said = made.stderr.readline()
        assert "http://" in said, said + made.stderr.read()
        yield made, "http://" + said.split("http://")[1].split()[0].rstrip("/")
    finally:
        made.kill()
        made.communicate()


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
