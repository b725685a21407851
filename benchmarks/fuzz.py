"""Damaged inputs for every reader: anything but an answer or one line of refusal is a bug, and so is a hang or a lot of memory.

    python benchmarks/fuzz.py 1000000 --state fuzz.json      # goes on where the state says it stopped
    python benchmarks/fuzz.py --again 123456                 # one input once more, with its traceback
    python benchmarks/fuzz.py 100000 --only "torch trace"    # inputs of one reader; the same numbers are other inputs then

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

sys.path.insert(0, str(Path(__file__).parent))
from fuzz_files import (
    HLO,
    MACHINE,
    MLIR,
    NCU,
    NCU_LONG,
    TABLE,
    baseline,
    calibration,
    cpu_profile,
    gpu_profile,
    json_rows,
    parquet,
    report,
    small_files,
    torch_traces,
    tpu_profile,
)
from fuzz_injuries import blind, json_values, proto_fields, text_tokens

LONGEST_S, MOST_BYTES = 5.0, 10**9
Mutation = Callable[[bytes, random.Random], bytes]


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
    "table csv": Reader(16, lambda: [TABLE], TEXT, "ops.csv"),
    "table json": Reader(12, lambda: [json.dumps(json_rows()).encode()], JSON, "ops.json"),
    "table jsonl": Reader(12, lambda: ["\n".join(map(json.dumps, json_rows())).encode()], JSON, "ops.jsonl"),
    "hlo text": Reader(
        12, lambda: [HLO] * 12 + small_files("hlo", ".hlo", 6_000) + small_files("hlo_gpu", ".txt", 4_500), TEXT, "step.hlo"
    ),
    "stablehlo text": Reader(10, lambda: [MLIR] * 8 + small_files("hlo", ".stablehlo", 6_000), TEXT, "step.mlir"),
    "stablehlo bytecode": Reader(4, lambda: small_files("bytecode", "bc", 8_000), (blind,), "step.mlirbc"),
    "jax export": Reader(1, lambda: small_files("bytecode", "exported"), (blind,), "step.jax"),
    "hlo proto": Reader(4, lambda: small_files("hlo", ".pb", 8_000), PROTO, "step.hlo.pb"),
    "machine": Reader(3, lambda: [MACHINE], TEXT, "mine.toml", "load"),
    "calibration": Reader(1, lambda: [calibration()], TEXT, "mine.toml", "calibration"),
    "baseline": Reader(2, lambda: [baseline()], JSON, "baseline.json", "baseline"),
    "torch trace": Reader(14, torch_traces, JSON, "step.pt.trace.json"),
    "ncu csv": Reader(7, lambda: [NCU, NCU_LONG], TEXT, "counters.csv"),
    "xspace": Reader(14, lambda: [gpu_profile(), tpu_profile(), cpu_profile()], PROTO, "host.xplane.pb"),
    "report": Reader(5, lambda: [report()], JSON, "report.json"),
    "parquet": Reader(1, lambda: [parquet()], (blind,), "ops.parquet", "parquet"),
}
ALSO_ANALYSED = 20  # one in so many of what was read is analysed too
SALVAGED = 3  # one profile in so many is read as far as it goes
only = ""  # the reader that all inputs are for, if one
PACKED = 11  # one input in so many is gzipped, and may be damaged once more


def made(number: int) -> tuple[str, bytes]:
    """The reader and the bytes of an input, from its number alone."""
    source = random.Random(number)
    name = only or source.choices(list(READERS), [reader.weight for reader in READERS.values()])[0]
    reader = READERS[name]
    data = source.choice(reader.made)
    for _ in range(source.choice((1, 1, 2, 4))):
        data = source.choice(reader.injuries)(data, source)
    if number % PACKED == 0 and reader.read == "read":
        data = gzip.compress(data, 1, mtime=0)
        data = blind(data, source) if source.random() < 0.5 else data
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
    from roofline.errors import SourceError
    from roofline.input_limits import DEFAULT
    from roofline.machines import load
    from roofline.machines.calibrations import read_calibration
    from roofline.sources import read
    from roofline.sources.baseline_json import read_baseline
    from roofline.sources.parquet import Task, columns_of

    if reader.read == "load":
        load(str(path))
    elif reader.read == "calibration":
        read_calibration(path)
    elif reader.read == "baseline":
        read_baseline(path)
    elif reader.read == "parquet":
        kind, said = columns_of(Task(str(path), DEFAULT, data))
        if kind == "refused":
            raise SourceError(str(said))
    else:
        chip = load("h100-sxm")
        recording = read(path, chip, salvage=number % SALVAGED == 0, timeline=number % ALSO_ANALYSED == 0)
        if number % ALSO_ANALYSED == 0:
            found = roofline.analyze(recording, chip)
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


def cpu_s(process: int) -> float:
    """The seconds of a processor that a process has had; where the system does not tell, as many as one may wish."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return float("inf")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def watch(first: int, count: int, outcomes: Counter[str], failures: list[list[object]]) -> int:
    """Runs a worker over some numbers; the number to go on with."""
    import selectors

    words = [sys.executable, __file__, "--worker", str(first), str(count), "--only", only]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    eyes = selectors.DefaultSelector()
    eyes.register(process.stdout, selectors.EVENT_READ)
    at, rest, patience_s, used_s = first, b"", 12 * LONGEST_S, 0.0  # starting takes a while
    while True:
        if not eyes.select(patience_s):
            if cpu_s(process.pid) - used_s < patience_s / 4:  # the computer is busy with others
                continue
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
            patience_s, used_s = 6 * LONGEST_S, cpu_s(process.pid)
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
    parser.add_argument("--only", metavar="READER", default="", help=f"inputs of one reader only: {', '.join(READERS)}")
    parser.add_argument("--worker", nargs=2, type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only and args.only not in READERS:
        parser.error(f"--only: no reader named {args.only!r}")
    global only
    only = args.only
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
