"""Damaged inputs for every reader: anything but an answer or one line of refusal is a bug, and so is a hang or a lot of memory.

    python benchmarks/fuzz.py 1000000 --state fuzz.json      # goes on where the state says it stopped
    python benchmarks/fuzz.py 1000000 --state fuzz.json --jobs 16 --seconds 300
    python benchmarks/fuzz.py --again 123456                 # one input once more, with its traceback
    python benchmarks/fuzz.py 100000 --only "torch trace"    # inputs of one reader; the same numbers are other inputs then

Each input is made from its number alone: the number picks a reader, a small real file and injuries, some blind (bytes cut, flipped,
repeated), some that know the form (another number in a protobuf, another value in JSON, another cell). Inputs are read in
processes of their own, 20,000 in each, which may take 5 s and 1 GB for each input; one that ends its process is told like one that raises.
"""

import argparse
import gzip
import json
import random
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))
from fuzz_files import (
    HAS_PYARROW,
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
    tpu_programs,
)
from fuzz_injuries import blind, json_values, kernel_code, program_parts, proto_fields, text_tokens
from fuzz_jobs import LONGEST_S, State, run, tell

if TYPE_CHECKING:
    from roofline.machine import Machine

MOST_BYTES = 10**9
Mutation = Callable[[bytes, random.Random], bytes]


# ---- readers ----


class Reader:
    """A kind of input: how often it is drawn, files to damage, how to, what reads it, and the chips that it is read for in turn."""

    def __init__(
        self,
        weight: int,
        files: Callable[[], list[bytes]],
        injuries: tuple[Mutation, ...],
        name: str,
        read: str = "read",
        chips: tuple[str, ...] = ("h100-sxm",),
    ) -> None:
        self.weight, self.files, self.injuries, self.name, self.read, self.chips = weight, files, injuries, name, read, chips
        self._made: list[bytes] | None = None

    @property
    def made(self) -> list[bytes]:
        if self._made is None:
            self._made = self.files()
        return self._made


TPUS, ANY = ("v5e", "v5p-8", "v6e-16"), ("h100-sxm", "v5e")
PROGRAM = (blind, text_tokens, program_parts, program_parts)
TEXT, PROTO, JSON = (blind, text_tokens, text_tokens), (blind, proto_fields, proto_fields), (blind, json_values, json_values)
READERS = {
    "table csv": Reader(16, lambda: [TABLE], TEXT, "ops.csv"),
    "table json": Reader(12, lambda: [json.dumps(json_rows()).encode()], JSON, "ops.json"),
    "table jsonl": Reader(12, lambda: ["\n".join(map(json.dumps, json_rows())).encode()], JSON, "ops.jsonl"),
    "hlo text": Reader(
        12, lambda: [HLO] * 12 + small_files("hlo", ".hlo", 6_000) + small_files("hlo_gpu", ".txt", 4_500), PROGRAM, "step.hlo", chips=ANY
    ),
    "stablehlo text": Reader(10, lambda: [MLIR] * 8 + small_files("hlo", ".stablehlo", 6_000), TEXT, "step.mlir", chips=ANY),
    "stablehlo bytecode": Reader(4, lambda: small_files("bytecode", "bc", 8_000), (blind,), "step.mlirbc", chips=ANY),
    "jax export": Reader(1, lambda: small_files("bytecode", "exported"), (blind,), "step.jax", chips=ANY),
    "hlo proto": Reader(4, lambda: small_files("hlo", ".pb", 8_000), PROTO, "step.hlo.pb", chips=ANY),
    "tpu program": Reader(8, lambda: tpu_programs(".hlo"), PROGRAM, "step.hlo", chips=TPUS),
    "tpu proto": Reader(3, lambda: tpu_programs(".pb"), PROTO, "step.hlo.pb", chips=TPUS),
    "pallas": Reader(4, lambda: small_files("pallas", ".pb"), (kernel_code, kernel_code, blind, proto_fields), "step.hlo.pb", chips=TPUS),
    "machine": Reader(3, lambda: [MACHINE], TEXT, "mine.toml", "load"),
    "calibration": Reader(1, lambda: [calibration()], TEXT, "mine.toml", "calibration"),
    "baseline": Reader(2, lambda: [baseline()], JSON, "baseline.json", "baseline"),
    "torch trace": Reader(14, torch_traces, JSON, "step.pt.trace.json"),
    "ncu csv": Reader(7, lambda: [NCU, NCU_LONG], TEXT, "counters.csv"),
    "xspace": Reader(14, lambda: [gpu_profile(), tpu_profile(), cpu_profile()], PROTO, "host.xplane.pb"),
    "report": Reader(5, lambda: [report()], JSON, "report.json"),
    "parquet": Reader(1, lambda: [parquet()] if HAS_PYARROW else [b""], (blind,), "ops.parquet", "parquet"),
}
ALSO_ANALYSED = 20  # one in so many of what was read is analyzed too
SALVAGED = 3  # one profile in so many is read as far as it goes
only = ""  # the reader that all inputs are for, if one
ASKED = 2  # one input in so many is read for the machine of its devices
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
    """How one input ends: ``read``, ``refused``, ``skipped`` if what reads it is not installed, or what is wrong about that."""
    from roofline import rule_failures
    from roofline.errors import RooflineError

    rule_failures.are_raised = True
    name, data = made(number)
    if READERS[name].read == "parquet" and not HAS_PYARROW:
        return "skipped", ""
    path = folder / READERS[name].name
    path.unlink(missing_ok=True)  # some file systems wait for the disk when a file is written over
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
    from roofline.machines.calibrations import read_calibration
    from roofline.sources import read
    from roofline.sources.baseline_json import read_baseline
    from roofline.sources.table.parquet import columns_of

    if reader.read == "load":
        load(str(path))
    elif reader.read == "calibration":
        read_calibration(path)
    elif reader.read == "baseline":
        read_baseline(path)
    elif reader.read == "parquet":
        columns_of(data, str(path))
    else:
        drawn = number // (ALSO_ANALYSED * ASKED)  # so that each chip has inputs of each kind
        chip = _chip(reader.chips[drawn % len(reader.chips)])
        target = chip if number % ASKED else lambda _: chip  # the machine, or what finds it for the devices that are read
        recording = read(path, target, salvage=number % SALVAGED == 0, timeline=number % ALSO_ANALYSED == 0)
        if number % ALSO_ANALYSED == 0:
            found = roofline.analyze(recording, chip)
            roofline.text(found)
            roofline.to_json(found)


@cache
def _chip(name: str) -> "Machine":
    from roofline.machines import load

    return load(name)


# ---- many of them ----


def work(folder: Path, first: int, end: int) -> None:
    """What a worker does: read its inputs in turn and tell how each ended."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (4 * MOST_BYTES, 4 * MOST_BYTES))
    for number in range(first, end):
        began = time.process_time()
        kind, said = outcome(number, folder)
        if time.process_time() - began > LONGEST_S:
            kind, said = "slow", f"{time.process_time() - began:.1f} s"
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 > MOST_BYTES:
            kind, said = "memory", f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss} KiB"
        tell(kind, said)
        if kind == "memory":
            return


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", nargs="?", type=int, default=20_000, help="inputs in all")
    parser.add_argument("--state", type=Path, help="a file with how far it is; goes on from there")
    parser.add_argument("--first", type=int, default=0, help="the number of the first input")
    parser.add_argument("--jobs", type=int, default=1, help="inputs that are read at once")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stops then; a run with the same --state goes on")
    parser.add_argument("--again", type=int, metavar="NUMBER", help="read one input once more")
    parser.add_argument("--only", metavar="READER", default="", help=f"inputs of one reader only: {', '.join(READERS)}")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only and args.only not in READERS:
        parser.error(f"--only: no reader named {args.only!r}")
    global only
    only = args.only
    if args.worker:
        folder, first, end = args.worker
        work(Path(folder), int(first), int(end))
        return 0
    if args.again is not None:
        with tempfile.TemporaryDirectory() as folder:
            print(*made(args.again), *outcome(args.again, Path(folder)), sep="\n")
        return 0
    state = State(args.first, args.count, args.state)
    words = [sys.executable, __file__, "--only", only, "--worker"]
    run(state, words, lambda number: made(number)[0], args.jobs, args.seconds)
    left = sum(end - first for first, end in state.left)
    print(f"{state.outcomes.total():,} inputs, {left:,} left: {dict(state.outcomes)}")
    return 1 if state.failures else 0


if __name__ == "__main__":
    sys.exit(main())
