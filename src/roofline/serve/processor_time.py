"""The processor time used by process groups, on Linux."""

import os
import sys
from pathlib import Path


def processor_time_of_groups(leaders: set[int]) -> dict[int, float]:
    """Seconds by the pid of the group's leader, including children that ended; empty where the system does not report it."""
    if not leaders or sys.platform != "linux":
        return {}
    found = dict.fromkeys(leaders, 0)
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                # Fields after the command's name, which may itself contain parentheses: state, parent, group; ticks are the 12th to 15th.
                words = Path("/proc", entry, "stat").read_text(errors="replace").rpartition(")")[2].split()
                if int(words[2]) in found:
                    found[int(words[2])] += sum(map(int, words[11:15]))
            except (OSError, IndexError, ValueError):
                continue  # the process has just ended
    return {group: ticks / os.sysconf("SC_CLK_TCK") for group, ticks in found.items()}
