"""What a whole command takes: seconds, seconds of processor time and peak memory, start-up included."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

MEGABYTE, KIBIBYTE = 10**6, 2**10
# Modules are compiled at the first run, as after an installation, and not again at each.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


class Taken(NamedTuple):
    """One run: seconds, seconds of processor time (which a busy machine changes less), peak megabytes."""

    seconds: float
    processor: float
    megabytes: float


def run(command: Sequence[str | Path]) -> Taken:
    """What one run of a command takes."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=ENVIRONMENT)
    complaint = process.stderr.read() if process.stderr else b""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    if status:
        sys.exit(f"failed: {' '.join(map(str, command))}\n{complaint.decode(errors='replace')}")
    return Taken(time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * KIBIBYTE / MEGABYTE)


def timed(command: Sequence[str | Path], tries: int) -> tuple[float, float]:
    """Seconds and peak megabytes of a command, the fastest of several runs."""
    best = min(run(command) for _ in range(tries))
    return best.seconds, best.megabytes
