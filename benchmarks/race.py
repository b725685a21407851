"""The race against XProf: the same profile through `roofline analyze PROFILE --json FILE` and through XProf's roofline tool, in one run.

    python -m venv xp && xp/bin/pip install xprof
    .venv/bin/python benchmarks/race.py xp/bin/python [TPU_CAPTURE.xplane.pb]

The profiles are grown from real ones: an H200 training run of ours (tests/data/h200) to 200 thousand and 1.5 million device events, and
a TPU capture of yours, if you name one, to 200 thousand, 1.5 and 10 million. Every measurement runs in a process of its own: whole
commands, from file to JSON, start-up included, with their peak memory; and in one process the reading alone, beside a bare pass in C
over every field of the same bytes (bare_scan.c). Ours are the best of five, XProf the best of two; at 10 million events it needs
minutes and gigabytes.

On 2 cores (x86_64) of a shared cloud machine, XProf 2.24, with the TPU v6e capture of openxla/xprof's test data:

          profile      events    MB  ours s    MB  XProf s     MB  faster  smaller  read s  bare s  ratio
    H200 training     200,100    24   0.170    30     1.51    389      9x      13x   0.080   0.049   1.6x
    H200 training   1,499,880   174   0.224    41     8.74   2265     39x      55x   0.185   0.335   0.6x
              TPU     201,231     9   0.088    18     0.94    280     11x      16x   0.011   0.009   1.2x
              TPU   1,498,053    62   0.124    31     6.49   1782     52x      58x   0.055   0.116   0.5x
              TPU  10,001,926   418   0.383    43    53.62  11520    140x     271x   0.410   0.812   0.5x

The goals: 40 times faster at 1.5 million events, 80 times at 10 million, reading within 3 times the bare scan. The table is of the
version that imported the rest while it read. Since then imports are plain: at 1.5 million events six races in a row gave 34 to 49x
(median 39x; ours 0.12 to 0.15 s, XProf 4.2 to 6.4 s), one at 10 million 102x (0.38 s and 54 MB against 38.9 s and 10,954 MB). Half of
the time that is left at 1.5 million events is Python starting. XProf prices nothing of a GPU's program, and its chart is empty.
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

from timing import KIBIBYTE, MEGABYTE, timed

HERE = Path(__file__).parent
TRAINING = HERE.parent / "tests" / "data" / "h200" / "jax_train.xplane.pb.gz"
GPU_EVENTS, TPU_EVENTS = (200_000, 1_500_000), (200_000, 1_500_000, 10_000_000)
OUR_TRIES, THEIR_TRIES = 5, 2
COLUMNS = "profile", "events", "MB", "ours s", "MB", "XProf s", "MB", "faster", "smaller", "read s", "bare s", "ratio"
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


def race(profile: Path, xprof: str, bare: Path) -> list[str]:
    """One row of the table, from the third column on."""
    roofline = Path(sys.executable).with_name("roofline")
    ours = timed([roofline, "analyze", profile, "--json", os.devnull], OUR_TRIES)
    theirs = timed([xprof, "-c", XPROF, profile], THEIR_TRIES)
    reading = figures([sys.executable, __file__, "--read", profile])[0]
    walking = min(figures([bare, profile])[0] for _ in range(OUR_TRIES))
    return [
        *(f"{profile.stat().st_size / MEGABYTE:.0f}", f"{ours[0]:.3f}", f"{ours[1]:.0f}", f"{theirs[0]:.2f}", f"{theirs[1]:.0f}"),
        *(f"{theirs[0] / ours[0]:.0f}x", f"{theirs[1] / ours[1]:.0f}x", f"{reading:.3f}", f"{walking:.3f}", f"{reading / walking:.1f}x"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("xprof", help="a Python that has xprof")
    parser.add_argument("tpu", nargs="?", type=Path, help="a TPU's capture (.xplane.pb)")
    parser.add_argument("--most", type=int, default=10**7, help="leave out profiles of more events than this")
    args = parser.parse_args()
    print("".join(f"{name:>{width}}" for name, width in zip(COLUMNS, WIDTHS, strict=True)))
    with tempfile.TemporaryDirectory() as folder:
        bare, grown, training = Path(folder, "bare_scan"), Path(folder, "grown.xplane.pb"), Path(folder, "training.xplane.pb")
        subprocess.run(["cc", "-O3", "-o", bare, HERE / "bare_scan.c"], check=True)
        training.write_bytes(gzip.decompress(TRAINING.read_bytes()))
        captures = [("H200 training", training, GPU_EVENTS), *([("TPU", args.tpu, TPU_EVENTS)] if args.tpu else [])]
        for name, source, sizes in captures:
            for size in (size for size in sizes if size <= args.most):
                # In a process of its own: a child's peak memory begins at what its parent holds.
                (events,) = figures([sys.executable, HERE / "xspace_scan.py", "--grow", source, grown, str(size)])
                row = [name, f"{events:,.0f}", *race(grown, args.xprof, bare)]
                print("".join(f"{cell:>{width}}" for cell, width in zip(row, WIDTHS, strict=True)), flush=True)


WIDTHS = 13, 12, 6, 8, 6, 9, 7, 8, 9, 8, 8, 7

if __name__ == "__main__":
    read_alone(Path(sys.argv[2])) if sys.argv[1:2] == ["--read"] else main()
