"""The memory used by process groups: from ``/proc`` on Linux, from ``ps`` on other Unix systems."""

import os
import re
import subprocess
import sys
from pathlib import Path

from ..units import parse

KIBIBYTE = int(parse("1 KiB", "B"))
_OWN = re.compile(r"^(?:RssAnon|RssShmem|VmSwap):\s*(\d+) kB", re.MULTILINE)  # without file-backed pages, which the system can drop


def memory_of_groups(leaders: set[int]) -> dict[int, int]:
    """Bytes by the pid of the group's leader; empty where the system does not report it."""
    if not leaders:
        return {}
    rows = _from_proc(leaders) if sys.platform == "linux" else _from_ps()
    found = dict.fromkeys(leaders, 0)
    for group, size in rows:
        if group in found:
            found[group] += size
    return found


def _from_proc(leaders: set[int]) -> list[tuple[int, int]]:
    rows = []
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            folder = Path("/proc", entry)
            try:
                # The group is the third field after the command's name, which may itself contain parentheses.
                group = int((folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[2])
                if group in leaders:
                    rows.append((group, sum(map(int, _OWN.findall((folder / "status").read_text(errors="replace")))) * KIBIBYTE))
            except (OSError, IndexError, ValueError):
                continue  # the process has just ended
    return rows


def _from_ps() -> list[tuple[int, int]]:
    try:
        output = subprocess.run(["ps", "-A", "-o", "pgid=,rss="], capture_output=True, text=True, timeout=5).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    words = [line.split() for line in output.splitlines()]
    return [(int(pair[0]), int(pair[1]) * KIBIBYTE) for pair in words if len(pair) == 2 and all(word.isdecimal() for word in pair)]
