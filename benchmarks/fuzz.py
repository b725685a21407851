"""Damaged inputs for every reader: anything but an answer or one line of refusal is a bug, and so is a hang or a lot of memory.

    python benchmarks/fuzz.py 1000000 --state fuzz.json      # goes on where the state says it stopped
    python benchmarks/fuzz.py --again 123456                 # one input once more, with its traceback

Each input is made from its number alone: the number picks a reader, a small real file and injuries, some blind (bytes cut, flipped,
repeated), some that know the form (another number in a protobuf, another value in JSON, another cell). Inputs are read in a process of
its own, which may take 5 s and 1 GB for each; one that ends it is told like one that raises.
"""

import argparse
import gzip
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

LONGEST_S, MOST_BYTES = 5.0, 10**9
ROOT = Path(__file__).parent.parent
DATA = ROOT / "tests" / "data"
NUMBERS = (
    *("0", "-1", "1e400", "-0.0", "NaN", "Infinity", "9" * 400, "9" * 5000, "18446744073709551616", "1e308", "0x10", "1_000"),
    *("\u0663", ""),
)
WORDS = (
    *("", "\x1b[2J", "\u202e", "\ud800", "=1+1", "/dev/zero", "../../etc/passwd", "a" * 5000, "\0", "null", "ENTRY", "{", "}"),
    *('"', "'", "\\"),
)
JSON_VALUES = (
    *("null", "true", "[]", "{}", '""', '"\\ud800"', '"=1+1"', "-1", "1e400", "NaN", "-Infinity", "9" * 400, "9" * 5000),
    "[" * 50 + "]" * 50,
    *('{"a": {"a": 1}}', "1.5", '"x"', "0", "1e308", "-0.0"),
)
Mutation = Callable[[bytes, random.Random], bytes]


# ---- what is damaged ----

TABLE = b"""name,category,scope,location,count,time [ms],flops,dtype,bytes,step,device
"a",dot,l0/x,f.py:3,2,1.5,1e9,bf16,1 MB,0,0
b,copy,,,1,2,,,3e6,1,0
"""
HLO = b"""HloModule jit_step, is_scheduled=true, entry_computation_layout={(f32[8,16]{1,0}, f32[16,4]{1,0})->f32[8,4]{1,0}}

%body (p: (s32[], f32[8,4])) -> (s32[], f32[8,4]) {
  %p = (s32[], f32[8,4]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %x = f32[8,4]{1,0} get-tuple-element(%p), index=1
  ROOT %t = (s32[], f32[8,4]{1,0}) tuple(%next, %x)
}

%condition (p.1: (s32[], f32[8,4])) -> pred[] {
  %p.1 = (s32[], f32[8,4]{1,0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%p.1), index=0
  %n = s32[] constant(5)
  ROOT %less = pred[] compare(%i.1, %n), direction=LT
}

ENTRY %main (a: f32[8,16], b: f32[16,4]) -> f32[8,4] {
  %a = f32[8,16]{1,0} parameter(0)
  %b = f32[16,4]{1,0} parameter(1), sharding={devices=[2,1]<=[2]}
  %dot = f32[8,4]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(f)/d"}
  %zero = s32[] constant(0)
  %state = (s32[], f32[8,4]{1,0}) tuple(%zero, %dot)
  %loop = (s32[], f32[8,4]{1,0}) while(%state), condition=%condition, body=%body
  %y = f32[8,4]{1,0} get-tuple-element(%loop), index=1
  %sum = f32[8,4]{1,0} all-reduce(%y), replica_groups=[2,4]<=[8], to_apply=%add
  %window = f32[4,4]{1,0} slice(%sum), slice={[0:8:2], [0:4]}
  %padded = f32[8,4]{1,0} pad(%window, f32[] constant(0)), padding=0_4_0x0_0
  ROOT %r = f32[8,4]{1,0} custom-call(%padded), custom_call_target="Sharding", backend_config={"a": [1, 2]}
}

%add (x.1: f32[], y.1: f32[]) -> f32[] {
  %x.1 = f32[] parameter(0)
  %y.1 = f32[] parameter(1)
  ROOT %s = f32[] add(%x.1, %y.1)
}
"""
MLIR = b"""module @jit_f attributes {mhlo.num_partitions = 1 : i32} {
  func.func public @main(%arg0: tensor<8x16xf32> {mhlo.sharding = "{replicated}"}, %arg1: tensor<16x4xbf16>) -> (tensor<8x4xf32>) {
    %0 = stablehlo.convert %arg1 : (tensor<16x4xbf16>) -> tensor<16x4xf32> loc("f.py":3:1)
    %1 = stablehlo.dot_general %arg0, %0, contracting_dims = [1] x [0] : (tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>
    %cst = stablehlo.constant dense<0.0> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<8x4xf32>
    %3 = stablehlo.maximum %1, %2 : tensor<8x4xf32>
    %4 = func.call @relu(%3) : (tensor<8x4xf32>) -> tensor<8x4xf32>
    return %4 : tensor<8x4xf32>
  }
  func.func private @relu(%arg0: tensor<8x4xf32>) -> tensor<8x4xf32> {
    %0 = stablehlo.exponential %arg0 : tensor<8x4xf32>
    return %0 : tensor<8x4xf32>
  }
}
"""
MACHINE = b"""schema = "roofline.machine/1"
name = "mine"
extends = "h100-sxm"
aliases = ["my card"]
[[compute]]
resource = "matrix/bf16"
rate = "900 TFLOP/s"
provenance = "measured"
source = ["own"]
[[memory]]
level = "hbm"
rate = "3 TB/s"
capacity = "80 GB"
[[link]]
resource = "nvlink"
rate = "25 GB/s"
count = 18
[[limit]]
name = "half"
resource = "hbm"
fraction = 0.5
"""
NCU = b"""
"ID","Process ID","Kernel Name","Stream","Block Size","Grid Size","Device","CC","gpu__time_duration.sum","dram__bytes.sum"
"","","","","","","","","nsecond","Kbyte"
"0","12","gemm(float*)","7","(128, 1, 1)","(64, 2, 1)","0","9.0","4,096","1,234.5"
"1","12","copy","7","(64, 1, 1)","(6, 2, 1)","0","9.0","2048","12"
"""


def profile() -> bytes:
    """A small profile of a GPU, with a step, a launch and a program."""
    sys.path.insert(0, str(ROOT / "tests"))
    from xspace_writer import Event, Line, Plane, Unsigned, space

    launch = {"correlation_id": 7, "_r": 1, "step_num": 3, "step_name": "train"}
    kernel = {"correlation_id": 7, "hlo_op": "dot.1", "hlo_module": "jit_f", "program_id": 5, "kernel_details": "grid:1,1,1 block:8,1,1"}
    device = Plane(
        "/device:GPU:0",
        [Line("Stream #1", [Event("gemm", 1000 * n, 900, kernel) for n in range(3)], timestamp_ns=5), Line("Steps", [Event("3", 0, 3000)])],
        stats={"peak_teraflops_per_second": 900.0, "device_type": "NVIDIA H100 80GB HBM3", "clock_rate": Unsigned(1980000)},
    )
    host = Plane("/host:CPU", [Line("python", [Event("train", 0, 4000, launch), Event("cuLaunchKernel", 10, 5, launch)])])
    return space([device, host], hostnames=["host"])


def torch_trace() -> bytes:
    """A small trace of the PyTorch profiler."""
    sys.path.insert(0, str(ROOT / "tests"))
    from torch_writer import TorchTrace

    trace = TorchTrace()
    trace.op("aten::mm", 10, 5, tensors=[(8, 4), (4, 2)])
    trace.run("gemm", launched=12, start=20, dur=3)
    text = trace.text()
    return text if isinstance(text, bytes) else str(text).encode()


def report() -> bytes:
    """The report on the small table."""
    import roofline

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "ops.csv")
        path.write_bytes(TABLE)
        return bytes(roofline.to_json(roofline.analyze(path, "h100")))


def parquet() -> bytes:
    """The small table as Parquet."""
    import io

    import pyarrow
    from pyarrow import parquet as files

    out = io.BytesIO()
    files.write_table(pyarrow.table({"name": ["a", "b"], "time": [1.0, 2.0], "bytes": [3, None]}), out)
    return out.getvalue()


def small_files(folder: str, suffix: str, most: int = 40_000) -> list[bytes]:
    """Real files of the tests below a size."""
    found = [path.read_bytes() for path in sorted((DATA / folder).glob(f"*{suffix}*"))]
    plain = [gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data for data in found]
    return [data for data in plain if len(data) <= most]


# ---- injuries ----


def blind(data: bytes, source: random.Random) -> bytes:
    """Bytes cut off, removed, changed, repeated or moved."""
    at, length = source.randrange(len(data) + 1), source.choice((1, 1, 2, 8, 64, 512))
    kind = source.randrange(6)
    piece = data[at : at + length]
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + data[at + length :]
    if kind == 2:
        return data[:at] + source.randbytes(min(length, 8)) + data[at + length :]
    if kind == 3:
        return data[:at] + piece * source.choice((2, 3, 300)) + data[at:]
    if kind == 4:
        to = source.randrange(len(data) + 1)
        return data[:to] + piece + data[to:]
    return data[:at] + source.choice((b"{", b"}", b"(", b"[", b"\n", b'"', b",", b"\0", b"\xff")) * source.choice((1, 3, 2000)) + data[at:]


def text_tokens(data: bytes, source: random.Random) -> bytes:
    """A number or a word exchanged for an odd one or for another of the text; a line lost or repeated."""
    text = data.decode("utf-8", "surrogateescape")
    kind = source.randrange(4)
    if kind == 3:
        lines = text.split("\n")
        one, other = source.randrange(len(lines)), source.randrange(len(lines))
        lines[one] = source.choice((lines[other], "", lines[one] + "\n" + lines[one]))
        return "\n".join(lines).encode("utf-8", "surrogatepass")
    found = list(re.finditer(r"-?\d+(?:\.\d+)?" if kind == 0 else r"[\w.\-]+", text))
    if not found:
        return blind(data, source)
    match = source.choice(found)
    new = source.choice(NUMBERS if kind == 0 else WORDS) if kind < 2 else source.choice(found)[0]
    return (text[: match.start()] + new + text[match.end() :]).encode("utf-8", "surrogatepass")


def json_values(data: bytes, source: random.Random) -> bytes:
    """A value of JSON, or a key, exchanged for an odd one."""
    text = data.decode("utf-8", "replace")
    found = list(re.finditer(r'(?<=[:\[,])\s*(?:"[^"\\]*"|-?\d[\d.eE+\-]*|true|false|null|\[\]|\{\})', text))
    if not found:
        return blind(data, source)
    match = source.choice(found)
    return (text[: match.start()] + source.choice(JSON_VALUES) + text[match.end() :]).encode()


def proto_fields(data: bytes, source: random.Random) -> bytes:
    """A field of a protobuf, at any depth, removed, repeated, or with another number or other bytes."""
    places = fields_of(data)
    for _ in range(source.randrange(8)):  # into a message inside
        inner = [one for one in places if one[1] == 2 and one[3] - one[2] > 1 and one[0] < 16]  # whose tag is one byte
        if not inner:
            break
        _, _, begin, end, start = source.choice(inner)
        changed = proto_fields(data[begin:end], source)
        return data[:start] + varint(data[start] & 0xF8 | 2) + varint(len(changed)) + changed + data[end:]
    if not places:
        return blind(data, source)
    _number, wire, begin, end, start = source.choice(places)
    kind = source.randrange(4)
    if kind == 0:
        return data[:start] + data[end:]
    if kind == 1:
        return data[:end] + data[start:end] * source.choice((1, 5, 200)) + data[end:]
    if kind == 2 and wire == 0:
        return data[:begin] + varint(source.choice((0, 1, 127, 2**31, 2**32, 2**63, 2**64 - 1, source.randrange(2**64)))) + data[end:]
    return data[:begin] + source.randbytes(end - begin) + data[end:]


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def fields_of(data: bytes) -> list[tuple[int, int, int, int, int]]:
    """Number, wire type, begin and end of the value, and start of each field, as far as they go."""
    found, at = [], 0

    def number(at: int) -> tuple[int, int]:
        value = shift = 0
        while at < len(data) and shift < 70:
            value |= (data[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if data[at - 1] < 128:
                return value, at
        return -1, at

    while at < len(data):
        start = at
        tag, at = number(at)
        wire = tag & 7
        if tag < 8 or wire not in (0, 1, 2, 5):
            break
        begin = at
        if wire == 0:
            value, at = number(at)
            if value < 0:
                break
        elif wire == 2:
            length, begin = number(at)
            at = begin + length
            if length < 0 or at > len(data):
                break
        else:
            at += 8 if wire == 1 else 4
            if at > len(data):
                break
        found.append((tag >> 3, wire, begin, at, start))
    return found


# ---- readers ----


class Reader:
    """A kind of input: how often it is drawn, files to damage, how to, and what reads it."""

    def __init__(
        self, weight: int, files: Callable[[], list[bytes]], injuries: tuple[Mutation, ...], name: str, read: str = "read"
    ) -> None:
        self.weight, self.files, self.injuries, self.name, self.read = weight, files, injuries, name, read
        self._made: list[bytes] | None = None

    @property
    def made(self) -> list[bytes]:
        if self._made is None:
            self._made = self.files()
        return self._made


TEXT, PROTO, JSON = (blind, text_tokens, text_tokens), (blind, proto_fields, proto_fields), (blind, json_values, json_values)
READERS = {
    "table csv": Reader(20, lambda: [TABLE], TEXT, "ops.csv"),
    "table json": Reader(15, lambda: [json.dumps(json_rows()).encode()], JSON, "ops.json"),
    "table jsonl": Reader(15, lambda: ["\n".join(map(json.dumps, json_rows())).encode()], JSON, "ops.jsonl"),
    "hlo text": Reader(12, lambda: [HLO], TEXT, "step.hlo"),
    "stablehlo text": Reader(12, lambda: [MLIR], TEXT, "step.mlir"),
    "stablehlo bytecode": Reader(4, lambda: small_files("bytecode", "bc", 8_000), (blind,), "step.mlirbc"),
    "hlo proto": Reader(4, lambda: small_files("hlo", ".pb", 8_000), PROTO, "step.hlo.pb"),
    "machine": Reader(4, lambda: [MACHINE], TEXT, "mine.toml", "load"),
    "torch trace": Reader(6, lambda: [torch_trace()], JSON, "step.pt.trace.json"),
    "ncu csv": Reader(8, lambda: [NCU], TEXT, "counters.csv"),
    "xspace": Reader(12, lambda: [profile()], PROTO, "host.xplane.pb"),
    "report": Reader(6, lambda: [report()], JSON, "report.json"),
    "parquet": Reader(1, lambda: [parquet()], (blind,), "ops.parquet", "parquet"),
}
ALSO_ANALYSED = 20  # one in so many of what was read is analysed too


def json_rows() -> list[dict[str, object]]:
    return [
        {"name": "a", "count": 2, "time": "1.5 ms", "flops": 1e9, "dtype": "bf16", "bytes": 1000, "step": 0, "device": 0},
        {"name": "b", "scope": "l0/x", "time": 2, "matrix/bf16": 5, "bytes": None},
    ]


def made(number: int) -> tuple[str, bytes]:
    """The reader and the bytes of an input, from its number alone."""
    source = random.Random(number)
    name = source.choices(list(READERS), [reader.weight for reader in READERS.values()])[0]
    reader = READERS[name]
    data = source.choice(reader.made)
    for _ in range(source.choice((1, 1, 2, 4))):
        data = source.choice(reader.injuries)(data, source)
    return name, data


def outcome(number: int, folder: Path) -> tuple[str, str]:
    """How one input ends: ``read``, ``refused``, or what is wrong about that."""
    from roofline.errors import RooflineError

    name, data = made(number)
    path = folder / READERS[name].name
    path.write_bytes(data)
    try:
        _read(READERS[name], path, data, number)
    except RooflineError as error:
        said = str(error)
        wrong = "\n" in said or len(said) > 2000 or re.search(r"[\x00-\x1f\ud800-\udfff\u202e]", said)
        return ("refused badly" if wrong else "refused"), said[:300]
    except Exception as error:
        return type(error).__name__, traceback.format_exc()
    return "read", ""


def _read(reader: Reader, path: Path, data: bytes, number: int) -> None:
    import roofline
    from roofline.machines import load
    from roofline.sources import read

    if reader.read == "load":
        load(str(path))
    elif reader.read == "parquet":
        from roofline.errors import SourceError
        from roofline.input_limits import DEFAULT
        from roofline.sources.parquet import _answer, _Task

        kind, said = _answer(_Task(str(path), DEFAULT, data))
        if kind == "refused":
            raise SourceError(str(said))
    elif number % ALSO_ANALYSED:
        read(path, load("h100-sxm"))
    else:
        found = roofline.analyze(read(path, load("h100-sxm")), load("h100-sxm"))
        roofline.text(found)
        roofline.to_json(found)


# ---- many of them ----


def work(first: int, count: int) -> None:
    """What a worker does: tell each number before it is read, then how it ended."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (4 * MOST_BYTES, 4 * MOST_BYTES))
    with tempfile.TemporaryDirectory() as folder:
        for number in range(first, first + count):
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()
            began = time.process_time()
            kind, said = outcome(number, Path(folder))
            if time.process_time() - began > LONGEST_S:
                kind, said = "slow", f"{time.process_time() - began:.1f} s"
            if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 > MOST_BYTES:
                kind, said = "memory", f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss} KiB"
            sys.stdout.write(json.dumps([kind, said if kind not in ("read", "refused") else ""]) + "\n")
            if kind == "memory":
                return


def watch(first: int, count: int, outcomes: Counter[str], failures: list[list[object]]) -> int:
    """Runs a worker over some numbers; the number to go on with."""
    import selectors

    words = [sys.executable, __file__, "--worker", str(first), str(count)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    eyes = selectors.DefaultSelector()
    eyes.register(process.stdout, selectors.EVENT_READ)
    at, rest, patience_s = first, b"", 12 * LONGEST_S  # starting takes a while, and the computer may be busy
    while True:
        if not eyes.select(patience_s):
            process.kill()
            process.wait()
            outcomes["hang"] += 1
            failures.append([at, made(at)[0], "hang", ""])
            return at + 1
        piece = process.stdout.read()
        if not piece:
            break
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.isdigit():
                at = int(line)
                continue
            patience_s = 6 * LONGEST_S
            kind, said = json.loads(line)
            outcomes[kind] += 1
            if kind not in ("read", "refused"):
                failures.append([at, made(at)[0], kind, said])
    if process.wait():
        outcomes["crash"] += 1
        failures.append([at, made(at)[0], "crash", f"status {process.returncode}"])
    return at + 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", nargs="?", type=int, default=20_000, help="inputs in all")
    parser.add_argument("--state", help="a file with how far it is; goes on from there")
    parser.add_argument("--first", type=int, default=0, help="the number of the first input")
    parser.add_argument("--again", type=int, metavar="NUMBER", help="read one input once more")
    parser.add_argument("--worker", nargs=2, type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(*args.worker)
        return 0
    if args.again is not None:
        with tempfile.TemporaryDirectory() as folder:
            print(*made(args.again), *outcome(args.again, Path(folder)), sep="\n")
        return 0
    state = {"next": args.first, "outcomes": {}, "failures": []}
    if args.state and Path(args.state).exists():
        state = json.loads(Path(args.state).read_text())
    outcomes, failures, at = Counter(state["outcomes"]), state["failures"], state["next"]
    while at < args.first + args.count:
        known = len(failures)
        at = watch(at, min(2000, args.first + args.count - at), outcomes, failures)
        for number, name, kind, said in failures[known:]:
            print(f"{number} ({name}): {kind}: {said.strip().splitlines()[-1] if said else ''}")
        if args.state:
            Path(args.state).write_text(json.dumps({"next": at, "outcomes": outcomes, "failures": failures}))
    print(f"{at:,} inputs: {dict(outcomes)}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
