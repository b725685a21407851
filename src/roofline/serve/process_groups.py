"""The memory and the processor time used by process groups: from ``/proc`` on Linux, the memory from ``ps`` on other Unix systems."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ..units import parse

KIBIBYTE = int(parse("1 KiB", "B"))
_OWN = re.compile(r"^(?:RssAnon|RssShmem|VmSwap):\s*(\d+) kB", re.MULTILINE)  # without file-backed pages, which the system can drop


def memory_of_groups(leaders: set[int]) -> dict[int, int]:
    """Bytes by the pid of the group's leader; 0 where the system does not report it."""
    if not leaders:
        return {}
    rows = _from_proc(leaders) if sys.platform == "linux" else _from_ps()
    found = dict.fromkeys(leaders, 0)
    for group, size in rows:
        if group in found:
            found[group] += size
    return found


def processor_time_of_groups(leaders: set[int]) -> dict[int, float]:
    """Seconds by the pid of the group's leader, including children that ended; empty where the system does not report it."""
    if not leaders or sys.platform != "linux":
        return {}
    found = dict.fromkeys(leaders, 0)
    for _, group, words in _processes(leaders):
        with suppress(IndexError, ValueError):
            found[group] += sum(map(int, words[11:15]))
    return {group: ticks / os.sysconf("SC_CLK_TCK") for group, ticks in found.items()}


def _processes(leaders: set[int]) -> Iterator[tuple[Path, int, list[str]]]:
    """The processes of some groups: the folder in ``/proc``, the group, and the fields of ``stat`` after the command's name.

    These are the state, the parent and the group; ticks are the 12th to 15th. The name may itself contain parentheses.
    """
    for entry in filter(str.isdecimal, os.listdir("/proc")):
        folder = Path("/proc", entry)
        with suppress(OSError, IndexError, ValueError):  # the process has just ended
            words = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if int(words[2]) in leaders:
                yield folder, int(words[2]), words


def _from_proc(leaders: set[int]) -> list[tuple[int, int]]:
    rows = []
    for folder, group, _ in _processes(leaders):
        with suppress(OSError):
            rows.append((group, sum(map(int, _OWN.findall((folder / "status").read_text(errors="replace")))) * KIBIBYTE))
    return rows


def _from_ps() -> list[tuple[int, int]]:
    try:
        output = subprocess.run(["ps", "-A", "-o", "pgid=,rss="], capture_output=True, text=True, timeout=5).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    words = [line.split() for line in output.splitlines()]
    return [(int(pair[0]), int(pair[1]) * KIBIBYTE) for pair in words if len(pair) == 2 and all(word.isdecimal() for word in pair)]
