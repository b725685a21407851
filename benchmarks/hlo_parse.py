"""How fast HLO programs are read, and in how much memory.

    python benchmarks/hlo_parse.py [FILE.hlo[.gz] | FILE.pb[.gz] [MEGABYTES]]

Grows a real module: its computations again and again under new names or ids, until it has the size asked for (40 MB). Each measurement
runs in a process of its own; beside the seconds stand ratios to a bare pass over the same bytes, which no reader can beat: its lines for
text, its instructions as bytes for a protobuf.
"""

import gzip
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SMALL = Path(__file__).parent.parent / "tests" / "data" / "hlo" / "random.hlo.gz"
MEGABYTE = 10**6


def grow(text: str, size: int) -> str:
    """The module with its computations repeated under new names until the text has this many characters."""
    head, entry, rest = text.partition("\nENTRY ")
    start = re.search(r"^%?[\w.\-]+ \(.*\{$", head, re.MULTILINE)
    header = head[: start.start()] if start else head + "\n"
    called = head[start.start() :] if start else ""
    block = f"{called}\n{rest}".rstrip() + "\n\n"
    pieces, length, number = [header], len(header), 0
    while length < size:
        suffix = f".copy{number}"
        piece = re.sub(r"%([\w.\-]+)", lambda match, suffix=suffix: f"%{match[1]}{suffix}", block)
        pieces.append(piece)
        length += len(piece)
        number += 1
    return "".join(pieces) + called + entry + rest


def grow_proto(data: bytes, size: int) -> bytes:
    """The module with its computations (field 3) repeated under new ids (their field 5, of which the last counts)."""
    from roofline.hlo.read.proto import unwrap
    from roofline.hlo.read.wire import unpack

    start, end = unwrap(data)
    bodies = [data[begin:stop] for begin, stop in unpack("3m*", data, start, end)[0]]
    pieces, length, number = [data[start:end]], end - start, 2**40
    while length < size:
        for body in bodies:
            number += 1
            body += b"\x28" + _varint(number)
            pieces.append(b"\x1a" + _varint(len(body)) + body)
            length += len(body)
    return b"".join(pieces)


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + _varint(value >> 7)


def bare_pass(path: Path) -> None:
    """Every byte looked at once, in C: lines counted and split, or messages split into theirs."""
    if path.suffix == ".pb":
        from roofline.hlo.read.wire import unpack

        unpack("3(2b*)*", path.read_bytes())
        return
    text = path.read_bytes().decode()
    for line in text.split("\n"):
        line.find("=")


def measure(what: str, path: Path) -> None:
    """One measurement in this process, printed as seconds, peak bytes and instructions."""
    began = time.perf_counter()
    count = 0
    if what == "bare":
        bare_pass(path)
    else:
        from roofline.hlo.read import parse

        module = parse(path.read_bytes(), str(path))
        count = sum(len(computation) for computation in module)
        if what == "asked":
            assert sum(1 for computation in module for instruction in computation if instruction.op_name)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 2**10
    print(seconds, peak, count)


def main() -> None:
    if len(sys.argv) > 2 and sys.argv[1] == "--measure":
        measure(sys.argv[2], Path(sys.argv[3]))
        return
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else SMALL
    size = int(float(sys.argv[2]) * MEGABYTE) if len(sys.argv) > 2 else 40 * MEGABYTE
    data = path.read_bytes()
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    is_proto = path.name.removesuffix(".gz").endswith(".pb")
    grown = Path(tempfile.mkdtemp()) / ("grown.pb" if is_proto else "grown.hlo")
    grown.write_bytes(grow_proto(data, size) if is_proto else grow(data.decode(), size).encode())
    print(f"{path.name} grown to {grown.stat().st_size / MEGABYTE:.1f} MB")
    seconds: dict[str, float] = {}
    try:
        for what, label in (("bare", "a bare pass over the bytes"), ("parse", "parse"), ("asked", "parse, then ask every op_name")):
            runs = [
                subprocess.run([sys.executable, __file__, "--measure", what, str(grown)], capture_output=True, text=True, check=True).stdout
                for _ in range(3)
            ]
            best, peak, count = min((tuple(map(float, run.split())) for run in runs), key=lambda run: run[0])
            seconds[what] = best
            per = f", {best / count * MEGABYTE:.1f} µs an instruction ({count:,.0f})" if count else ""
            print(f"{label:32} {best:6.2f} s  {best / seconds['bare']:5.1f}x bare  {peak / MEGABYTE:6.0f} MB{per}")
    finally:
        grown.unlink()
        grown.parent.rmdir()


if __name__ == "__main__":
    main()
