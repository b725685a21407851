"""Compare `roofline measure --device cpu` with STREAM and with a bare loop of matrix products, on this computer, by turns.

    python benchmarks/measured_cpu.py --rounds 3           # --quick measures for 15 s a round, not for 60
    python benchmarks/measured_cpu.py --turns 10           # the same experiments and references in alternation, in one run

Each round runs STREAM and the products just before and just after the measurement; the ratios are of the measured rate to the better of
the two. A computer that others use may change its speed from minute to minute: how far the rates before and after are apart says so.
There, `--turns` is the fairer comparison: each turn tries both, and the best and the median try of all turns are compared.
Needs a C compiler with OpenMP.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from statistics import median

from roofline.cli import main
from roofline.machines.catalogue import read_card
from roofline.machines.cpu import this_cpu
from roofline.machines.cpu_experiments import cpu_experiments

HERE = Path(__file__).parent
BARE_LOOP = """
import statistics, sys, time, numpy
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
    print(dtype.replace("float", "fp"), max(rates))
    print(dtype.replace("float", "median-fp"), statistics.median(rates))
"""
SIDES = (1024, 2048)
PATTERNS = {"copy": "copy of", "triad": "a = b + s x c of"}


def built(folder: Path) -> Path:
    """STREAM, compiled from its definition."""
    program = folder / "stream"
    words = [os.environ.get("CC", "cc"), "-O3", "-march=native", "-fopenmp", str(HERE / "stream.c"), "-o", str(program)]
    subprocess.run(words, check=True)
    return program


def said(*words: str) -> dict[str, float]:
    """What a program says: a name and a rate on each line."""
    lines = subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()
    return {name: float(rate) for name, rate in (line.split() for line in lines)}


def reference(stream: Path, seconds: float, sides: Sequence[int] = SIDES) -> dict[str, float]:
    """STREAM's copy and triad in B/s, over arrays of four times the last cache each as its rules ask, and products by NumPy in FLOP/s.

    Of products the best, and under another name the median.
    """
    last = max((held.total for held in this_cpu().caches), default=0)
    found = said(str(stream), str(max(480, round(12 * last / 1e6)))) | said(sys.executable, "-c", BARE_LOOP, str(seconds), *map(str, sides))
    return {name: found[name] for name in (*PATTERNS, "fp32", "fp64", "median-fp32", "median-fp64")}


def measured(file: Path, quick: bool) -> dict[str, float]:
    """The same rates as `roofline measure` finds them."""
    with redirect_stdout(StringIO()):
        main(["measure", "--device", "cpu", "-o", str(file), *(["--quick"] if quick else [])])
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


def alternate(turns: int, seconds: float) -> None:
    """Our experiments and the references by turns: what else runs on this computer slows both."""
    ours: dict[str, list[float]] = {}
    theirs: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder, cpu_experiments(this_cpu()) as setup:
        stream = built(Path(folder))
        wanted = {**{f"hbm/{name}/": name for name in PATTERNS}, **{f"product/{name}/all": name for name in ("fp32", "fp64")}}
        chosen = [(name, one) for one in setup.experiments for start, name in wanted.items() if one.key.startswith(start)]
        for _, experiment in chosen:
            experiment.run(1)  # the warm-up
        sides = next(one.run.sides for one in setup.experiments if one.key == "product/fp32/all")
        for _ in range(turns):
            for name, experiment in chosen:  # products as long as the bare loop has: the best of more tries is better
                end = time.perf_counter() + (len(sides) * seconds if name.startswith("fp") else 0.0)
                ours.setdefault(name, []).extend(experiment.run(8))
                while time.perf_counter() < end:
                    ours[name].extend(experiment.run(8))
            for name, rate in reference(stream, seconds, sides).items():
                theirs.setdefault(name, []).append(rate)
    print(f"{'':6} {'ours: best':>11} {'median':>8}  {'reference: best':>16} {'median':>8}  {'ratios: best':>13} {'median':>7}  G/s")
    for name, mine in ours.items():
        found = theirs[name]
        usual = median(theirs.get(f"median-{name}", found))  # of STREAM, which tells its best alone, that of the turns
        line = f"{name:6} {max(mine) / 1e9:11.1f} {median(mine) / 1e9:8.1f}  {max(found) / 1e9:16.1f} {usual / 1e9:8.1f}"
        print(f"{line}  {max(mine) / max(found):13.2f} {median(mine) / usual:7.2f}")


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
