"""Half-open connections: how long the server keeps them, and how it serves others meanwhile.

    python benchmarks/half_open.py [CONNECTIONS]

Starts `roofline serve` on a small folder, opens CONNECTIONS (3,000) that send half a request, and asks for the list of runs every 0.2 s
until all of them are dropped. Fails if that takes more than 20 s, if a request fails, or if the server logs anything. On two busy cores all
3,000 were dropped 15.5 s after the last one was opened; of 73 requests meanwhile the slowest took 46 ms.
"""

import resource
import select
import socket
import subprocess
import sys
import tempfile
import time
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

LONGEST_S = 20.0
EVERY_S = 0.2
TABLE = "name,time,flops,bytes\nmatmul,2 ms,1 GFLOP,10 MB\n"


def half_open(port: int, count: int) -> list[socket.socket]:
    """Connections that have each sent half a request."""
    made = []
    for _ in range(count):
        one = socket.create_connection(("127.0.0.1", port), timeout=60)
        one.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1")
        made.append(one)
    return made


def dropped(connections: list[socket.socket]) -> list[socket.socket]:
    """Those of them that the server has ended."""
    poll = select.poll()
    by_number = {one.fileno(): one for one in connections}
    for number in by_number:
        poll.register(number, select.POLLIN | select.POLLHUP)
    return [by_number[number] for number, _ in poll.poll(0)]


def asked(port: int) -> float:
    """Seconds until the list of runs was there."""
    began = time.perf_counter()
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/index.json")
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    if answer.status != 200 or b"ops.csv" not in body:
        raise SystemExit(f"the list of runs came with status {answer.status}")
    return time.perf_counter() - began


def main(count: int) -> int:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "ops.csv").write_text(TABLE)
        command = [sys.executable, "-m", "roofline", "serve", folder, "--port", "0", "--no-token"]
        server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            assert server.stderr is not None
            port = urlsplit(server.stderr.readline().split(" at ")[1].split()[0]).port
            assert port is not None
            alone = min(asked(port) for _ in range(10))
            began = time.perf_counter()
            left = half_open(port, count)
            opened = time.perf_counter()
            print(f"{count:,} half-open connections in {opened - began:.1f} s")
            waits = []
            while left and time.perf_counter() - opened < 2 * LONGEST_S:
                waits.append(asked(port))
                gone = dropped(left)
                for one in gone:
                    one.close()
                left = [one for one in left if one.fileno() >= 0]
                time.sleep(EVERY_S)
            took = time.perf_counter() - opened
            server.terminate()
            said = server.communicate()[1]
        finally:
            server.kill()
            server.wait()
    print(f"all but {len(left):,} dropped {took:.1f} s after the last was opened")
    median = sorted(waits)[len(waits) // 2]
    print(f"{len(waits)} requests meanwhile: median {median:.3f} s, longest {max(waits):.3f} s; alone {alone:.3f} s")
    print(f"{len(said):,} characters logged")
    return 1 if left or took > LONGEST_S or said else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 3_000))
