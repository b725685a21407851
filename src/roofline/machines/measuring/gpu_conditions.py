"""The state of a GPU according to its driver: clocks, power, temperature, versions. Empty without ``nvidia-smi``."""

import csv
import shutil
import subprocess

QUERY = {
    "driver": "driver_version",
    "power limit": "power.limit",
    "power": "power.draw",
    "temperature": "temperature.gpu",
    "clock": "clocks.sm",
    "highest clock": "clocks.max.sm",
    "memory clock": "clocks.mem",
    "memory": "memory.total",
}
WAIT_S = 10.0


def conditions() -> dict[str, str]:
    """The first NVIDIA GPU as ``nvidia-smi`` describes it now."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return {}
    words = [tool, f"--query-gpu={','.join(QUERY.values())}", "--format=csv,noheader", "--id=0"]
    try:
        output = subprocess.run(words, capture_output=True, text=True, timeout=WAIT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    return parsed(output)


def parsed(output: str) -> dict[str, str]:
    """One line of ``nvidia-smi`` as conditions by name; unknown values are left out.

    >>> parsed("580.1, 700.00 W, 71.5 W, 31, 345 MHz, [N/A], [N/A]")
    {'driver': '580.1', 'power limit': '700.00 W', 'power': '71.5 W', 'temperature': '31 °C', 'clock': '345 MHz'}
    """
    row = next(csv.reader([output.partition("\n")[0]], skipinitialspace=True), [])
    found = {name: value for name, value in zip(QUERY, row, strict=False) if value and "N/A" not in value and "Not" not in value}
    if "temperature" in found:
        found["temperature"] += " °C"
    return found
