"""Connections: idle, half-sent and stuck ones are dropped, too many make room for the next, and none of it is logged."""

import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from live import HELD_BACK, PATIENCE_S, client, process, runs, until
from roofline.serve import connections

IDLE_S = 0.3


@contextmanager
def connected(server: httpx.Client, sent: bytes = b"") -> Iterator[socket.socket]:
    with socket.create_connection((str(server.base_url.host), int(server.base_url.port or 0)), timeout=PATIENCE_S) as made:
        made.sendall(sent)
        yield made


def is_dropped(made: socket.socket) -> bool:
    """Whether the server has ended it, within the patience of the socket."""
    try:
        while made.recv(1 << 16):
            continue
    except ConnectionError:
        return True
    return True


@pytest.mark.parametrize(
    "sent", [b"", b"GET", b"GET / HTTP/1.1\r\nHost: x", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf"]
)
def test_idle_and_half_sent_connections_are_dropped(tmp_path: Path, sent: bytes) -> None:
    with client(tmp_path, idle_s=IDLE_S) as server, connected(server, sent) as made:
        assert is_dropped(made)


def test_a_request_that_comes_byte_by_byte_is_dropped(tmp_path: Path) -> None:
    def trickle(made: socket.socket) -> None:
        for _ in range(200):
            made.sendall(b"x")
            time.sleep(0.05)

    with client(tmp_path, idle_s=IDLE_S) as server, connected(server, b"GET / HTTP/1.1\r\nX: ") as made, pytest.raises(ConnectionError):
        trickle(made)


def test_an_answer_that_is_waited_for_is_not_idle(tmp_path: Path) -> None:
    path = tmp_path / "ops.csv"
    path.write_text("name,time,flops,bytes\nmatmul,2 ms,1 GFLOP,10 MB\n")
    with client(path, worker=(sys.executable, "-c", HELD_BACK), idle_s=IDLE_S) as server:
        (row,) = runs(server).values()
        host = f"127.0.0.1:{server.base_url.port}"
        with connected(server, f"GET {row['json']} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()) as made:
            time.sleep(3 * IDLE_S)
            (tmp_path / "go").touch()
            assert made.recv(64).startswith(b"HTTP/1.1 200")


def test_an_answer_that_nobody_takes_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = list[object]()
    end = connections.Connection.connection_lost
    monkeypatch.setattr(connections.Connection, "connection_lost", lambda self, error: lost.append(self) or end(self, error))
    # Ten megabytes, more than the system holds for a connection.
    (tmp_path / "ops.csv").write_text("name,time,flops,bytes\n")
    large = "import sys; sys.stdin.readline(); print('x' * 10_000_000)"
    with client(tmp_path / "ops.csv", worker=(sys.executable, "-c", large), idle_s=IDLE_S) as server:
        (row,) = runs(server).values()
        host = f"127.0.0.1:{server.base_url.port}"
        with connected(server, f"GET {row['json']} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()) as made:
            until(lambda: len(lost) == 2, "both dropped: that which asked for the list, and this one")
            taken = 0
            try:
                while piece := made.recv(1 << 20):
                    taken += len(piece)
            except ConnectionError:
                pass
            assert taken < 10_000_000


def test_when_there_are_too_many_the_longest_idle_makes_room(tmp_path: Path) -> None:
    with client(tmp_path, most=5) as server, ExitStack() as stack:
        made = [stack.enter_context(connected(server)) for _ in range(20)]
        for _ in range(5):
            assert httpx.get(f"{server.base_url}/index.json", timeout=PATIENCE_S).status_code == 200
        assert is_dropped(made[0])


# A server that may have few files open, and does not know it.
NARROW = """
import resource, sys
from roofline.serve import application
from roofline.serve.connections import server
from roofline.serve.listen import bind
sock = bind(0)
port = sock.getsockname()[1]
app = application(sys.argv[1:], worker=("none",), port=port)
made = server(app, most=1000)
resource.setrlimit(resource.RLIMIT_NOFILE, (30, 30))
print(f"serving at http://127.0.0.1:{port}/", file=sys.stderr, flush=True)
made.run(sockets=[sock])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no such limit")
def test_at_the_limit_of_descriptors_it_waits_and_logs_nothing(tmp_path: Path) -> None:
    with process(str(tmp_path), program=NARROW) as (made, home):
        url = httpx.URL(home)
        with ExitStack() as stack:
            for _ in range(60):
                stack.enter_context(socket.create_connection((url.host, int(url.port or 0)), timeout=PATIENCE_S))
            time.sleep(0.5)
        until(lambda: httpx.get(f"{home}/favicon.ico", timeout=PATIENCE_S).status_code == 200, "served")
        made.terminate()
        _, talk = made.communicate(timeout=PATIENCE_S)
        assert talk == ""


def test_the_limit_on_open_files_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, 1024))
    monkeypatch.setattr(resource, "setrlimit", lambda which, both: asked.append(both))
    assert connections._most_connections() == 1024 - connections.SPARE
    assert asked == [(1024, 1024)]
