"""A small file that says much is refused in one line, with the option that raises the limit; nothing takes more than linear time."""

import gzip
import os
import shutil
import signal
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest

from every import every
from roofline.cli import main
from roofline.errors import SourceError, UsageError
from roofline.files.input_limits import DEFAULT, Limits, parse_limits, set_limits
from roofline.hlo.read import parse_all
from roofline.hlo.read.wire import unpack
from roofline.sources import read
from roofline.sources.torch_trace.read import chunks
from roofline.sources.xspace.scan import RowsOf, TotalsOf, open_bytes, open_space, read_rows, read_totals
from roofline.sources.xspace.space import Space
from xspace_writer import Event, Line, Plane, bytes_field, number_field, space

DATA = Path(__file__).parent / "data"
TABLE = b"name,time,hbm\n"


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    """Limits that tests reach soon."""
    set_limits(Limits(size=10**6, values=5000, rows=1000, instructions=200, messages=1000))
    yield
    set_limits(DEFAULT)


HLO = "HloModule m\nENTRY e {\n  a0 = f32[2]{0} parameter(0)\n"
MLIR = "module @m {\n func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
BOMBS = {
    "size of a table": (TABLE + b" " * 2 * 10**6, "larger than 1,000,000 bytes", "size"),
    "size of a program": (HLO.encode() + b"\n" * 2 * 10**6, "larger than 1,000,000 bytes", "size"),
    "size of a report": (b'{"schema": "roofline.report/1"' + b" " * 2 * 10**6, "larger than 1,000,000 bytes", "size"),
    "cells": (TABLE + b"a,1,1\n" * 3000, "more than 5,000 values", "values"),
    "rows": (TABLE + b"a,1,1\n" * 1500, "more than 1,000 rows", "rows"),
    "rows of JSON Lines": (b'{"name": "a", "time": 1}\n' * 1500, "more than 1,000 rows", "rows"),
    "lists in JSON": (b'[{"name": [' + b"[],[]," * 3000, "more than 5,000 values", "values"),
    "a column for each row": (b"".join(b'{"name": "a", "c%d": 1}\n' % n for n in range(200)), "more than 5,000 values", "values"),
    "lists in a report": (b'{"schema": "roofline.report/1", "ops": [' + b"{}," * 9000 + b"{}]}", "more than 5,000 values", "values"),
    "HLO": (
        (HLO + "".join(f"  a{n} = f32[2]{{0}} negate(a{n - 1})\n" for n in range(1, 500)) + "}\n").encode(),
        "more than 200 instructions",
        "instructions",
    ),
    "StableHLO": ((MLIR + " %0 = stablehlo.abs %a : tensor<4xf32>\n" * 500).encode(), "more than 200 instructions", "instructions"),
}


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzipped"])
def test_what_holds_too_much_is_refused_with_the_option_that_raises_the_limit(name: str, packed: bool, tmp_path: Path) -> None:
    data, said, option = BOMBS[name]
    path = tmp_path / "bomb"
    path.write_bytes(gzip.compress(data) if packed else data)
    with pytest.raises(SourceError, match=rf"bomb: .*{said}; if you trust the file, raise the limit: --read max-{option}=\d+\Z"):
        read(path)


def test_a_program_in_a_protobuf_has_so_many_instructions_too() -> None:
    # An empty instruction takes two bytes of the file and a kilobyte of memory.
    empty = bytes_field(3, bytes_field(1, b"c") + bytes_field(2, b"") * 5000)
    with pytest.raises(SourceError, match=r"more than 200 instructions; .* --read max-instructions=400"):
        parse_all(bytes_field(1, b"m") + bytes_field(2, b"e") + empty, "bomb")


@every("field", [1, 3, 4, 5, 6])
def test_a_profile_has_so_many_planes_lines_and_names(field: int) -> None:
    plane = bytes_field(2, b"/device:GPU:0") + bytes_field(field, b"") * 2000
    data = bytes_field(1, b"") * 2000 if field == 1 else bytes_field(1, plane)
    with pytest.raises(SourceError, match=r"bomb: more than 1,000 messages; .* --read max-messages=2000"):
        open_bytes(data, "bomb")


def test_the_option_raises_a_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert parse_limits(["rows=1M", "size=2 GB", "values=3k"]) == Limits(size=2 * 10**9, values=3000, rows=10**6)
    for wrong in ("rows", "rows=", "rows=-1", "lines=3", "size=12 FLOP", "rows=1e400"):
        with pytest.raises(UsageError, match="--read max-"):
            parse_limits([wrong])
    (tmp_path / "ops.csv").write_bytes(TABLE + b"a,1,1\n" * 20)
    assert main(["analyze", str(tmp_path / "ops.csv"), "--chip", "h100", "--read", "max-rows=10"]) == 1
    assert "more than 10 rows" in capsys.readouterr().err
    assert main(["analyze", str(tmp_path / "ops.csv"), "--chip", "h100", "--read", "max-rows=30"]) == 0


@every("command", ["analyze", "capture", "compare", "fusion-report", "hlo", "serve", "whatif"])
def test_every_command_that_reads_files_has_the_option(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--read", "max-nonsense=1", "x", *(["y"] if command in ("compare", "whatif") else [])]) == 2
    assert "--read max-nonsense=1: write one of max-size=N" in capsys.readouterr().err


def ratio(odd: Callable[[], object], plain: Callable[[], object]) -> float:
    """How many times longer one takes than the other, the best of three each; of the processor, which other programs may keep busy."""

    def seconds(work: Callable[[], object]) -> float:
        began = time.process_time()
        work()
        return time.process_time() - began

    return min(seconds(odd) for _ in range(3)) / min(seconds(plain) for _ in range(3))


def test_nobody_can_choose_ids_that_share_a_place_in_the_scanners_tables() -> None:
    # With hashes that are the same in every process, these ids would all have had the hash 0 in their low 24 bits.
    start, factor, bits = 0x51ED270B7A4F1C35, 0x9E3779B97F4A7C15, 2**64

    def unshifted(value: int, by: int) -> int:
        found = value
        for _ in range(64 // by + 1):
            found = value ^ found >> by
        return found

    chosen = [start ^ unshifted(unshifted(n << 24, 32), 29) * pow(factor, -1, bits) % bits for n in range(20000)]
    data = space([Plane("/device:GPU:0", [Line("ops", [Event("k", 0, 1)])])])
    set_limits(DEFAULT)
    with open_bytes(data, "toy") as opened:
        line = opened.planes[0].lines[0]

        def only(ids: list[int]) -> object:
            return read_rows(opened, [RowsOf(line=line, only=array("q", [id - bits if id >= bits // 2 else id for id in ids]))])

        assert ratio(lambda: only(chosen), lambda: only(list(range(20000)))) < 10


def test_ids_of_one_name_are_looked_up_and_not_searched() -> None:
    # 20,000 ids of stat metadata are called alike; every event has the last of them.
    set_limits(DEFAULT)
    names = b"".join(
        bytes_field(5, number_field(1, id) + bytes_field(2, number_field(1, id) + bytes_field(2, b"run_id"))) for id in range(2000, 22000)
    )
    event = number_field(1, 1) + number_field(2, 5) + number_field(3, 1)

    def profile(id: int) -> bytes:
        events = bytes_field(4, event + bytes_field(4, number_field(1, id) + number_field(4, 7))) * 20000
        return bytes_field(1, bytes_field(2, b"/device:GPU:0") + bytes_field(3, bytes_field(2, b"ops") + events) + names)

    def rows(data: bytes) -> object:
        with open_bytes(data, "toy") as opened:
            (found,) = read_rows(opened, [RowsOf(line=opened.planes[0].lines[0], stats=("run_id",))])
            assert found.stats["run_id"].values[-1] == 7
            return found

    last, first = profile(21999), profile(2000)
    assert ratio(lambda: rows(last), lambda: rows(first)) < 5


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not shorten a file that is mapped")
@pytest.mark.parametrize("left", [0, 100, 5000, 60_000])
def test_a_profile_that_becomes_shorter_while_it_is_read_is_an_error(left: int, tmp_path: Path) -> None:
    set_limits(DEFAULT)
    path = tmp_path / "host.xplane.pb"
    shutil.copy(DATA / "h200" / "jax_fusion.xplane.pb", path)

    def look(opened: Space) -> None:
        os.truncate(path, left)
        for plane in opened.planes:
            assert plane.event_names is not None

    with pytest.raises(SourceError, match=r"host\.xplane\.pb: became shorter while it was read"), open_space(path) as opened:
        look(opened)


SHORTENED = """
import faulthandler, mmap, os, shutil, sys
from roofline.errors import SourceError
from roofline.sources.xspace.scan import open_space

def read():
    shutil.copy(sys.argv[1], "host.xplane.pb")
    try:
        with open_space("host.xplane.pb") as opened:
            os.truncate("host.xplane.pb", 0)
            [plane.event_names for plane in opened.planes]
    except SourceError:
        print("an error", flush=True)

if sys.argv[2] != "later":
    faulthandler.enable()
read()
if sys.argv[2] == "anew":
    faulthandler.disable()
faulthandler.enable()
read()
with open(sys.argv[1], "rb") as source, open("other", "w+b") as file:
    file.write(source.read())
    file.flush()
    mapped = mmap.mmap(file.fileno(), 0)
    os.truncate("other", 0)
    mapped[-1]  # not a profile's, so faulthandler says where, and the process ends
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not shorten a file that is mapped")
@pytest.mark.parametrize("enabled", ["before", "later", "anew"])
def test_a_profile_is_read_whenever_another_handler_of_bus_errors_is_installed(enabled: str, tmp_path: Path) -> None:
    profile = DATA / "h200" / "jax_fusion.xplane.pb"
    ran = subprocess.run([sys.executable, "-c", SHORTENED, str(profile), enabled], cwd=tmp_path, capture_output=True, text=True)
    assert ran.stdout == "an error\n" * 2, ran.stderr
    assert (ran.returncode, ran.stderr.count("Bus error")) == (-signal.SIGBUS, 1)


def test_a_profile_that_grows_is_read_to_where_it_was(tmp_path: Path) -> None:
    set_limits(DEFAULT)
    path = tmp_path / "host.xplane.pb"
    shutil.copy(DATA / "h200" / "jax_fusion.xplane.pb", path)
    with open_space(path) as opened:
        with path.open("ab") as file:
            file.write(b"\xff" * 10_000)
        assert all(plane.event_names is not None for plane in opened.planes)


def command(*words: str, data: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "roofline", *words], input=data, capture_output=True, check=False)


def test_standard_input_and_pipes_are_read_whole(tmp_path: Path) -> None:
    # Sniffing takes 64 KiB, which a pipe does not give a second time.
    rows = b"".join(b'{"name": "op%d", "time": 1e-3, "bytes": 1e6}\n' % n for n in range(3000))
    assert len(rows) > 2**17
    told = command("analyze", "-", "--chip", "h100", "--csv", "-", data=rows)
    assert (told.returncode, told.stdout.count(b"\n")) == (0, 3001), told.stderr
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = Thread(target=lambda: pipe.write_bytes((DATA / "h200" / "jax_fusion.xplane.pb").read_bytes()), daemon=True)
    writer.start()
    set_limits(DEFAULT)
    assert read(pipe).devices


def test_a_trace_whose_events_never_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(DEFAULT)
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 2**12)
    monkeypatch.setattr(chunks, "MOST_HEAD_BYTES", 2**16)
    path = tmp_path / "step.pt.trace.json.gz"
    head = b'{"schemaVersion": 1, "traceEvents": [{"ph": "X", "name": "'
    path.write_bytes(gzip.compress(head + b"a" * 2**20))
    with pytest.raises(SourceError, match="no event ends within"):
        read(path)
    monkeypatch.setattr(chunks, "MOST_UNPACKED_BYTES", 2**15)
    set_limits(Limits(size=2**15))
    with pytest.raises(SourceError, match=r"unpacks to more than 32,768 bytes; .*--read max-size=65536"):
        read(path)


LONG_LINE = bytes_field(2, b"Stream #1(Compute)") + bytes_field(4, number_field(1, 1) + number_field(2, 7) + number_field(3, 5)) * 2_000_000
LONG_LIST = bytes_field(1, b"") * 1_000_000


def scan() -> None:
    """The totals of many events."""
    with open_bytes(bytes_field(1, bytes_field(2, b"/device:GPU:0") + bytes_field(3, LONG_LINE)), "long") as opened:
        (line,) = opened.planes[0].lines
        read_totals(opened, [TotalsOf(line=line)], threads=1)


def index() -> None:
    """The index of a plane with many statistics."""
    open_bytes(bytes_field(1, bytes_field(2, b"/device:GPU:0") + bytes_field(6, b"") * 4_500_000), "long").close()


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="a timer that interrupts is of POSIX")
@pytest.mark.parametrize("work", [scan, index, lambda: unpack("1(1t 2i 3i)*", LONG_LIST)], ids=["scan", "index", "wire"])
def test_work_in_c_answers_an_interrupt(work: Callable[[], object]) -> None:
    """A timer that rings every millisecond is heard again and again; work that never listens hears it once, when it is done."""
    set_limits(DEFAULT)
    heard: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: heard.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        work()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(heard) > 5
