"""The processor time that groups of processes have used, as Linux tells it."""

import os
import sys
from pathlib import Path


def processor_time_of_groups(leaders: set[int]) -> dict[int, float]:
    """Seconds by the number of a group's leader, of children that ended too; nothing where the system does not tell."""
    if not leaders or sys.platform != "linux":
        return {}
    found = dict.fromkeys(leaders, 0)
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                # After the command's name, which may hold anything: state, parent, group; then ticks as the 12th to 15th word.
                words = Path("/proc", entry, "stat").read_text(errors="replace").rpartition(")")[2].split()
                if int(words[2]) in found:
                    found[int(words[2])] += sum(map(int, words[11:15]))
            except (OSError, IndexError, ValueError):
                continue  # it has just ended
    return {group: ticks / os.sysconf("SC_CLK_TCK") for group, ticks in found.items()}
