"""How fast profiles are read, beside a bare pass in C that only looks at every field.

    python benchmarks/xspace_scan.py [PROFILE.xplane.pb EVENTS...]

Grows a real profile: the events of every device line again and again, one copy after the other in time, until there are as many as asked
for. Each measurement runs in a process of its own. The profiles are those of `../shared/data`, unless one is named.
"""

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
DATA = HERE.parent.parent / "shared" / "data"
RUNS = (  # profile, numbers of events
    (DATA / "third_party" / "tpu_v6e_psum.xplane.pb", (200_000, 1_500_000, 10_000_000)),
    (DATA / "h200" / "jax_train.xplane.pb", (200_000, 1_500_000)),
)
MEGABYTE, MILLISECOND, NANOSECOND = 10**6, 1e-3, 1e-9
TRIES = 5
GAP_PS = 10**6

VARINT, EIGHT, BYTES = 0, 1, 2
COUNTED = ("correlation_id", "run_id")  # differ from launch to launch, so from copy to copy
SHIFTED = ("device_offset_ps",)  # times

GPU_KEYS = ("program_id", "hlo_op", "unique_hlo_op_id", "cuda_graph_id", "cuda_graph_node_id")
GPU_EXECUTIONS = ("correlation_id", "scope_range_id")


def varint(value: int) -> bytes:
    """A number in the wire format."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def fields(data: bytes) -> Iterator[tuple[int, int, int | bytes, bytes]]:
    """Number, wire type, payload, and all bytes of each field."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at, value, shift = at + 1, value | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                return value

    while at < len(data):
        begin, tag = at, number()
        payload: int | bytes
        if tag & 7 == VARINT:
            payload = number()
        else:
            length = 8 if tag & 7 == EIGHT else number()
            payload = data[at : at + length]
            at += length
        yield tag >> 3, tag & 7, payload, data[begin:at]


def delimited(number: int, payload: bytes) -> bytes:
    """A field of bytes."""
    return varint(number << 3 | BYTES) + varint(len(payload)) + payload


class Template:
    """An event, cut into what stays the same and the numbers that grow from copy to copy."""

    def __init__(self, event: bytes, names: dict[int, str]) -> None:
        self.pieces: list[bytes] = []  # before, between and behind the numbers
        self.numbers: list[tuple[int, str, bytes]] = []  # value, what it is, tag and what stands before it in a stat
        self.end, offset, rest = 0, 0, bytearray()
        for number, _, payload, whole in fields(event):
            if number == 2:
                offset = int(payload)
                self._cut(rest, offset, "time", b"")
            elif number == 4 and (stat := self._stat(bytes(payload), names)):
                self._cut(rest, *stat)
            else:
                if number == 3:
                    self.end = int(payload)
                rest += whole
        self.pieces.append(bytes(rest))
        self.end += offset

    def _cut(self, rest: bytearray, value: int, what: str, before: bytes) -> None:
        self.pieces.append(bytes(rest))
        self.numbers.append((value, what, before))
        rest.clear()

    def _stat(self, stat: bytes, names: dict[int, str]) -> tuple[int, str, bytes] | None:
        parts = {number: payload for number, _, payload, _ in fields(stat)}
        name = names.get(int(parts[1]), "")
        kind = next((number for number in (3, 4) if number in parts), None)
        if kind is None or name not in (*COUNTED, *SHIFTED):
            return None
        what = "count" if name in COUNTED else "time"
        return int(parts[kind]), what, b"\x08" + varint(int(parts[1])) + bytes([kind << 3])

    def copy(self, shift: dict[str, int]) -> bytes:
        """The event, as a field of a line, with its numbers shifted."""
        out = bytearray()
        for piece, (value, what, before) in zip(self.pieces, self.numbers, strict=False):
            out += piece
            number = varint((value + shift[what]) % 2**64)
            out += delimited(4, before + number) if before else b"\x10" + number
        out += self.pieces[-1]
        return b"\x22" + varint(len(out)) + out


def grow_plane(plane: bytes, copies: int) -> tuple[bytes, int]:
    """A device's plane with the events of each line repeated, and how many there are."""
    names = {}
    for number, _, payload, _ in fields(plane):
        if number == 5:
            entry = {field: value for field, _, value, _ in fields(bytes(payload))}
            names[int(entry[1])] = next((bytes(text).decode() for field, _, text, _ in fields(bytes(entry[2])) if field == 2), "")
    out, count = bytearray(), 0
    for number, _, payload, whole in fields(plane):
        if number != 3:
            out += whole
            continue
        parts = list(fields(bytes(payload)))
        templates = [Template(bytes(part), names) for field, _, part, _ in parts if field == 4]
        span = max((template.end for template in templates), default=0) + GAP_PS
        stride = 1 + max((value for template in templates for value, what, _ in template.numbers if what == "count"), default=0)
        line = bytearray(b"".join(whole for field, _, _, whole in parts if field < 4))
        for copy in range(copies):
            shift = {"time": copy * span, "count": copy * stride}
            line += b"".join([template.copy(shift) for template in templates])
        line += b"".join(whole for field, _, _, whole in parts if field > 4)
        out += delimited(3, bytes(line))
        count += copies * len(templates)
    return bytes(out), count


def events_of(plane: bytes) -> int:
    return sum(field == 4 for number, _, line, _ in fields(plane) if number == 3 for field, _, _, _ in fields(bytes(line)))


def grow(source: Path, target: Path, events: int, planes: str = "/device:") -> int:
    """Writes the profile with about this many events in the planes whose names begin so; returns how many there are."""
    space = list(fields(source.read_bytes()))
    wanted = [planes.encode() in bytes(plane)[:64] if number == 1 else False for number, _, plane, _ in space]
    few = sum(events_of(bytes(plane)) for (_, _, plane, _), grows in zip(space, wanted, strict=True) if grows)
    count = 0
    with target.open("wb") as file:
        for (_, _, plane, whole), grows in zip(space, wanted, strict=True):
            if not grows:
                file.write(whole)
                continue
            grown, more = grow_plane(bytes(plane), max(1, round(events / few)))
            file.write(delimited(1, grown))
            count += more
    return count


def scan(path: Path) -> int:
    """What a roofline needs of a profile: ops of every device summed up, runs of modules, launches on the host."""
    from roofline.sources.xspace.scan import RowsOf, TotalsOf, open_space, read_rows, read_totals

    with open_space(path) as space:
        requests, rows = [], []
        for plane in space.planes:
            for line in plane.lines:
                if plane.name.startswith("/device:GPU:") and line.name.startswith("Stream"):
                    requests.append(TotalsOf(line=line, by=GPU_KEYS, distinct=GPU_EXECUTIONS, intervals=True))
                elif plane.name.startswith("/device:TPU:") and line.name == "XLA Ops":
                    requests.append(TotalsOf(line=line, device_clock=True, nested=True, intervals=True))
                elif plane.name.startswith("/device:TPU:") and line.name == "XLA Modules":
                    rows.append(RowsOf(line=line, stats=("run_id",)))
                elif plane.name == "/host:CPU":
                    rows.append(RowsOf(line=line, stats=("correlation_id", "step_num"), having=("_r", "correlation_id", "num_commands")))
        tables = read_totals(space, requests)
        read_rows(space, rows)
        return sum(sum(table.count) for table in tables)


def measure(path: Path) -> None:
    """One measurement in this process: seconds, peak bytes, events summed up."""
    import roofline.sources.xspace.scan  # noqa: F401  importing is timed elsewhere

    began = time.perf_counter()
    count = scan(path)
    seconds = time.perf_counter() - began
    print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 2**10, count)


def best(command: list[str]) -> list[float]:
    """The figures of the fastest of several runs."""
    runs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(TRIES)]
    return min(([float(figure) for figure in run.split()] for run in runs), key=lambda figures: figures[0])


def main() -> None:
    if sys.argv[1:2] == ["--measure"]:
        measure(Path(sys.argv[2]))
        return
    if sys.argv[1:2] == ["--grow"]:
        print(grow(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]), *sys.argv[5:]))
        return
    runs = ((Path(sys.argv[1]), tuple(map(int, sys.argv[2:]))),) if len(sys.argv) > 2 else RUNS
    with tempfile.TemporaryDirectory() as folder:
        bare, grown = Path(folder) / "bare_scan", Path(folder) / "grown.xplane.pb"
        subprocess.run(["cc", "-O3", "-o", str(bare), str(HERE / "bare_scan.c")], check=True)
        for source, sizes in runs:
            for size in sizes:
                # In a process of its own: a child's peak memory begins at what its parent holds.
                growing = [sys.executable, __file__, "--grow", str(source), str(grown), str(size)]
                events = int(subprocess.run(growing, capture_output=True, text=True, check=True).stdout)
                megabytes = grown.stat().st_size / MEGABYTE
                print(f"{source.name}: {events:,} device events, {megabytes:.0f} MB")
                walking, adding, peak, walked, _ = best([str(bare), str(grown)])
                print(f"  bytes added up {adding / MILLISECOND:8.1f} ms")
                report("every field", walking, peak, walked, walking)
                seconds, peak, _ = best([sys.executable, __file__, "--measure", str(grown)])
                report("scan", seconds, peak, events, walking)


def report(what: str, seconds: float, peak: float, events: float, bare: float) -> None:
    each = f"{seconds / events / NANOSECOND:5.1f} ns an event"
    print(f"  {what:14} {seconds / MILLISECOND:8.1f} ms  {seconds / bare:4.2f}x  {each}  {peak / MEGABYTE:6.0f} MB")


if __name__ == "__main__":
    main()
