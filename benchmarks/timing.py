"""What a whole command takes: seconds and peak memory, start-up included."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

MEGABYTE, KIBIBYTE = 10**6, 2**10


def timed(command: Sequence[str | Path], tries: int) -> tuple[float, float]:
    """Seconds and peak megabytes of a command, the fastest of several runs."""
    runs = []
    for _ in range(tries):
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        complaint = process.stderr.read() if process.stderr else b""
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
        if status:
            sys.exit(f"failed: {' '.join(map(str, command))}\n{complaint.decode(errors='replace')}")
        runs.append((time.perf_counter() - start, usage.ru_maxrss * KIBIBYTE / MEGABYTE))
    return min(runs)
