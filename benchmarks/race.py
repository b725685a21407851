"""The race against XProf: the same profile through `roofline analyze PROFILE --json FILE` and through XProf's roofline tool, in one run.

    python -m venv xp && xp/bin/pip install xprof
    .venv/bin/python benchmarks/race.py xp/bin/python [TPU_CAPTURE.xplane.pb]

The profiles are grown from real ones: an H200 training run of ours (tests/data/h200) to 200 thousand and 1.5 million device events, and
a TPU capture of yours, if you name one, to 200 thousand, 1.5 and 10 million, and to 2 million events of its host. Every measurement
runs in a process of its own: whole commands, from file to JSON, start-up included, with their peak memory; and in one process the
reading alone, beside a bare pass in C over every field of the same bytes (bare_scan.c). Ours and XProf's take turns, so that both meet
the same machine. `faster` and `smaller` compare the best runs; `cpu` compares processor time, which a busy machine changes less, from
the worst of ours against the best of XProf's to the other way round. At 10 million events XProf needs minutes and gigabytes. The last
lines say which goals were met.

On 2 cores (x86_64) of a cloud machine that others kept busy (a load of 7 to 13), with the TPU v6e capture of openxla/xprof's test data:

          profile      events    MB  ours s    MB  XProf s     MB  faster         cpu  smaller  read s  bare s  ratio
              TPU     201,231     9   0.408    33     3.04    281      7x     7 to 8x       9x   0.102   0.029   3.5x
              TPU   1,498,053    62   1.512    39    32.32   1782     21x   22 to 41x      46x   0.650   0.373   1.7x
       TPU's host   2,004,080    53   1.088    60    11.15    751     10x     4 to 8x      13x   0.596   0.265   2.2x

A busy machine keeps short commands waiting longer than long ones. Twelve runs of ours and three of XProf there at 1.5 million events took
0.32 to 0.63 s of processor time (median 0.45) against 12.3 to 16.7 s (median 13.3): 30 times at the medians, 38 at the best. More than
half of ours is Python starting. On a quieter machine an earlier version gave 34 to 49x at 1.5 million and 102x at 10 million events.
XProf prices nothing of a GPU's program, and its chart is empty.
"""

import argparse
import gzip
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from timing import KIBIBYTE, MEGABYTE, run

HERE = Path(__file__).parent
TRAINING = HERE.parent / "tests" / "data" / "h200" / "jax_train.xplane.pb.gz"
GPU_EVENTS, TPU_EVENTS, HOST_EVENTS = (200_000, 1_500_000), (200_000, 1_500_000, 10_000_000), 2_000_000
OUR_TRIES, THEIR_TRIES = 6, 2
FASTER = {1_500_000: 40, 10_000_000: 80}  # goals: times faster than XProf on a TPU's profile of about so many events
MOST_SCANS, MOST_HELP_S = 3, 0.1
COLUMNS = "profile", "events", "MB", "ours s", "MB", "XProf s", "MB", "faster", "cpu", "smaller", "read s", "bare s", "ratio"
WIDTHS = 13, 12, 6, 8, 6, 9, 7, 8, 12, 9, 8, 8, 7
ROOFLINE = [sys.executable, "-c", "import sys; from roofline.cli import main; sys.exit(main())"]
XPROF = """
import sys
from xprof.convert.raw_to_tool_data import xspace_to_tool_data
data, _ = xspace_to_tool_data([sys.argv[1]], "roofline_model", {"use_saved_result": False})
assert data, "XProf gave nothing"
"""


def figures(command: Sequence[str | Path]) -> list[float]:
    """The numbers that a command prints."""
    return [float(word) for word in subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()]


def read_alone(profile: Path) -> None:
    """In this process: seconds of reading a profile into a recording, the best of several."""
    from roofline.sources import read

    seconds = []
    for _ in range(OUR_TRIES):
        start = time.perf_counter()
        read(profile)
        seconds.append(time.perf_counter() - start)
    print(min(seconds), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIBIBYTE)


def race(profile: Path, xprof: str, bare: Path) -> tuple[list[str], float, float]:
    """One row of the table, from the third column on; how many times faster ours is, and how many bare scans its reading takes."""
    ours, theirs = [], []
    for _ in range(THEIR_TRIES):
        ours += [run([*ROOFLINE, "analyze", profile, "--json", os.devnull]) for _ in range(OUR_TRIES // THEIR_TRIES)]
        theirs.append(run([xprof, "-c", XPROF, profile]))
    reading = figures([sys.executable, __file__, "--read", profile])[0]
    walking = min(figures([bare, profile])[0] for _ in range(OUR_TRIES))
    our, their = min(ours), min(theirs)
    our_cpu, their_cpu = sorted(one.processor for one in ours), sorted(one.processor for one in theirs)
    row = [
        *(f"{profile.stat().st_size / MEGABYTE:.0f}", f"{our.seconds:.3f}", f"{our.megabytes:.0f}"),
        *(f"{their.seconds:.2f}", f"{their.megabytes:.0f}", f"{their.seconds / our.seconds:.0f}x"),
        f"{their_cpu[0] / our_cpu[-1]:.0f} to {their_cpu[-1] / our_cpu[0]:.0f}x",
        *(f"{their.megabytes / our.megabytes:.0f}x", f"{reading:.3f}", f"{walking:.3f}", f"{reading / walking:.1f}x"),
    ]
    return row, their.seconds / our.seconds, reading / walking


def goal(what: str, is_met: bool) -> None:
    print(f"{'met   ' if is_met else 'MISSED'} {what}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("xprof", help="a Python that has xprof")
    parser.add_argument("tpu", nargs="?", type=Path, help="a TPU's capture (.xplane.pb)")
    parser.add_argument("--most", type=int, default=10**7, help="leave out profiles of more events than this")
    parser.add_argument("--only-tpu", action="store_true", help="leave out the profiles grown from the H200 run")
    args = parser.parse_args()
    print("".join(f"{name:>{width}}" for name, width in zip(COLUMNS, WIDTHS, strict=True)))
    faster, scans = dict[int, float](), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        bare, grown, training = Path(folder, "bare_scan"), Path(folder, "grown.xplane.pb"), Path(folder, "training.xplane.pb")
        subprocess.run(["cc", "-O3", "-o", bare, HERE / "bare_scan.c"], check=True)
        training.write_bytes(gzip.decompress(TRAINING.read_bytes()))
        profiles = [] if args.only_tpu else [("H200 training", training, size, "/device:") for size in GPU_EVENTS]
        if args.tpu:
            profiles += [("TPU", args.tpu, size, "/device:") for size in TPU_EVENTS]
            profiles.append(("TPU's host", args.tpu, HOST_EVENTS, "/host:CPU"))
        for name, source, size, planes in (one for one in profiles if one[2] <= args.most):
            # In a process of its own: a child's peak memory begins at what its parent holds.
            (events,) = figures([sys.executable, HERE / "xspace_scan.py", "--grow", source, grown, str(size), planes])
            cells, times, ratio = race(grown, args.xprof, bare)
            row = [name, f"{events:,.0f}", *cells]
            print("".join(f"{cell:>{width}}" for cell, width in zip(row, WIDTHS, strict=True)), flush=True)
            scans.append(ratio)
            if name == "TPU":
                faster[size] = times
    help_s = min(run([*ROOFLINE, "--help"]).seconds for _ in range(OUR_TRIES))
    for size, times in faster.items():
        if size in FASTER:
            goal(f"{FASTER[size]} times faster than XProf at {size:,} events: {times:.0f}", times >= FASTER[size])
    goal(f"reading within {MOST_SCANS} bare scans: {max(scans):.1f} at most", max(scans) <= MOST_SCANS)
    goal(f"help within {MOST_HELP_S} s: {help_s:.3f}", help_s <= MOST_HELP_S)


if __name__ == "__main__":
    read_alone(Path(sys.argv[2])) if sys.argv[1:2] == ["--read"] else main()
