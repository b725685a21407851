"""Compare `roofline chips measure --device cpu` with STREAM and with a bare loop of matrix products, on this computer, by turns.

    python benchmarks/measured_cpu.py --rounds 3           # --quick measures for 15 s a round, not for 60
    python benchmarks/measured_cpu.py --turns 10           # the same experiments and references in alternation, in one run

Each round runs STREAM and the products just before and just after the measurement; the ratios are of the measured rate to the better of
the two. A computer that others use may change its speed from minute to minute: how far the rates before and after are apart says so.
There, `--turns` is the fairer comparison: each turn tries both, STREAM's loops on parts of its arrays as short as ours and products of the
same sizes, and the best and the median try of all turns are compared.
Needs a C compiler with OpenMP.
"""

import argparse
import ctypes
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, redirect_stdout
from io import StringIO
from pathlib import Path
from statistics import median

import numpy

from roofline.cli import main
from roofline.machines import _kernels
from roofline.machines.catalogue import read_card
from roofline.machines.cpu import this_cpu
from roofline.machines.measuring.cpu_experiments import REST_S, STREAM_PARTS, WAKE_NS, _Team, cpu_experiments

HERE = Path(__file__).parent
BARE_LOOP = """
import sys, time, numpy
for dtype in ("float32", "float64"):
    rates = []
    for side in map(int, sys.argv[2:]):
        left, right = numpy.random.default_rng(0).random((2, side, side)).astype(dtype)
        out = numpy.zeros_like(left)
        end = time.perf_counter() + float(sys.argv[1])
        while time.perf_counter() < end or not rates:
            began = time.perf_counter()
            numpy.matmul(left, right, out=out)
            rates.append(2 * side**3 / (time.perf_counter() - began))
    print(dtype.replace("float", "fp"), *rates)
"""
SIDES = (1024, 2048)
BYTES = {"copy": 16, "triad": 24}  # of each element, by STREAM's count
PATTERNS = {"copy": "copy of", "triad": "a = b + s x c of"}


def built(folder: Path) -> Path:
    """STREAM, compiled from its definition."""
    program = folder / "stream"
    words = [os.environ.get("CC", "cc"), "-O3", "-march=native", "-fopenmp", str(HERE / "stream.c"), "-o", str(program)]
    subprocess.run(words, check=True)
    return program


def said(*words: str) -> dict[str, list[float]]:
    """What a program says: a name and rates on each line."""
    lines = [line.split() for line in subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()]
    return {name: [float(rate) for rate in rates] for name, *rates in lines}


def bare_loop(seconds: float, sides: Sequence[int] = SIDES) -> dict[str, list[float]]:
    """FLOP/s of products by NumPy, for so long of each side and format."""
    return said(sys.executable, "-c", BARE_LOOP, str(seconds), *map(str, sides))


def reference(stream: Path, seconds: float) -> dict[str, float]:
    """STREAM's copy and triad in B/s, over arrays of four times the last cache each as its rules ask, and the best products by NumPy."""
    last = max((held.total for held in this_cpu().caches), default=0)
    found = said(str(stream), str(max(480, round(12 * last / 1e6)))) | bare_loop(seconds)
    return {name: max(found[name]) for name in (*PATTERNS, "fp32", "fp64")}


def measured(file: Path, quick: bool) -> dict[str, float]:
    """The same rates as `roofline chips measure` finds them."""
    with redirect_stdout(StringIO()):
        main(["chips", "measure", "--device", "cpu", "-o", str(file), *(["--quick"] if quick else [])])
    card = read_card(file)
    memory = card.machine.ceiling("hbm")
    assert memory is not None
    patterns = [(memory.citation, memory.rate), *((other.citation, other.value) for other in memory.others)]
    found = {name: next(rate for words, rate in patterns if words.startswith(start)) for name, start in PATTERNS.items()}
    for limit in card.sustained:
        if limit.limit == "matrix product" and limit.resource is not None:
            found[limit.resource.name.partition("/")[2]] = limit.rate
    for number in ("fp32", "fp64"):  # a matrix product that is itself the roof
        roof = card.machine.ceiling(f"matrix/{number}") or card.machine.ceiling(f"vector/{number}")
        found.setdefault(number, roof.rate if roof else 0.0)
    return found


def compare(rounds: int, quick: bool, seconds: float) -> None:
    ratios: dict[str, list[float]] = {}
    print(f"{'':6} {'before':>9} {'measured':>9} {'after':>9}  {'ratio':>6}  G/s")
    with tempfile.TemporaryDirectory() as folder:
        stream = built(Path(folder))
        for number in range(rounds):
            before = reference(stream, seconds)
            ours = measured(Path(folder) / f"{number}.toml", quick)
            after = reference(stream, seconds)
            for name, rate in ours.items():
                ratio = rate / max(before[name], after[name])
                ratios.setdefault(name, []).append(ratio)
                print(f"{name:6} {before[name] / 1e9:9.1f} {rate / 1e9:9.1f} {after[name] / 1e9:9.1f}  {ratio:6.2f}", flush=True)
    for name, found in ratios.items():
        print(f"{name}: measured is {median(found):.2f} of the reference ({min(found):.2f} to {max(found):.2f} in {len(found)} rounds)")


class StreamLoops:
    """STREAM's copy and triad in tries as short as ours, by the same threads on arrays of their own, which they touched first."""

    def __init__(self, folder: Path, team: _Team, size: float) -> None:
        library = folder / "loops.so"
        words = [os.environ.get("CC", "cc"), "-O3", "-march=native", "-shared", "-fPIC", str(HERE / "stream_loops.c"), "-o", str(library)]
        subprocess.run(words, check=True)
        self.library, self.team, self.turn = ctypes.CDLL(str(library)), team, 0
        self.part = round(size / 24 / STREAM_PARTS)
        self.arrays = team._each(lambda place: [numpy.ones(self.part * STREAM_PARTS) for _ in range(3)])

    def run(self, name: str, tries: int) -> list[float]:
        """B/s of each try; as of ours, the first in a row does not count."""
        return [self._once(name) for _ in range(tries + 1)][1:]

    def _once(self, name: str) -> float:
        self.turn = (self.turn + 1) % STREAM_PARTS
        time.sleep(REST_S)
        at = _kernels.clock_ns() + WAKE_NS * (self.team.threads + 1)

        def loop(place: int) -> tuple[int, int]:
            ends = (ctypes.c_long * 2)()
            arrays = [ctypes.c_void_p(each[self.turn * self.part :].ctypes.data) for each in self.arrays[place]]
            getattr(self.library, name)(*arrays, ctypes.c_long(self.part), ctypes.c_long(at), ends)
            return ends[0], ends[1]

        ends = self.team._each(loop)
        moved = self.team.threads * self.part * BYTES[name]
        return moved / (max(end for _, end in ends) - min(begin for begin, _ in ends)) * 1e9


def alternate(turns: int, seconds: float) -> None:
    """Our experiments and the references by turns, as often and as long: what else runs on this computer slows both."""
    ours: dict[str, list[float]] = {}
    theirs: dict[str, list[float]] = {}
    cpu = this_cpu()
    with tempfile.TemporaryDirectory() as folder, cpu_experiments(cpu) as setup, ExitStack() as stack:
        by_key = {one.key: one for one in setup.experiments}
        streams = {name: next(one for key, one in by_key.items() if key.startswith(f"hbm/{name}/")) for name in PATTERNS}
        products = {name: by_key[f"product/{name}/all"] for name in ("fp32", "fp64")}
        loops = StreamLoops(Path(folder), _Team(stack, cpu.threads), int(streams["triad"].key.rpartition("/")[2]))
        for experiment in (*streams.values(), *products.values()):
            experiment.run(1)  # the warm-up
        for _ in range(turns):
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                for name, experiment in streams.items():
                    ours.setdefault(name, []).extend(experiment.run(8))
                    theirs.setdefault(name, []).extend(loops.run(name, 8))
            sides = products["fp32"].run.sides
            for name, experiment in products.items():
                end = time.perf_counter() + len(sides) * seconds
                while time.perf_counter() < end:
                    ours.setdefault(name, []).extend(experiment.run(8))
            for name, rates in bare_loop(seconds, sides).items():
                theirs.setdefault(name, []).extend(rates)
    print(f"{'':6} {'ours: best':>11} {'median':>8}  {'reference: best':>16} {'median':>8}  {'ratios: best':>13} {'median':>7}  G/s")
    for name, mine in ours.items():
        found = theirs[name]
        line = f"{name:6} {max(mine) / 1e9:11.1f} {median(mine) / 1e9:8.1f}  {max(found) / 1e9:16.1f} {median(found) / 1e9:8.1f}"
        print(f"{line}  {max(mine) / max(found):13.2f} {median(mine) / median(found):7.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="measure for 15 s, not for 60")
    parser.add_argument("--seconds", type=float, default=2.0, help="of the bare loop of products, for each size and number format")
    parser.add_argument("--turns", type=int, help="try the experiments and the references by turns, so many, instead")
    args = parser.parse_args()
    if args.turns:
        alternate(args.turns, args.seconds)
        sys.exit()
    compare(args.rounds, args.quick, args.seconds)
