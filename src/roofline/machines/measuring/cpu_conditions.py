"""The state of a CPU while it is measured: clock, governor, power limit, temperature, as far as the system reports them."""

import re
from pathlib import Path

from ...units import DECIMAL, show

_PROC, _SYS = Path("/proc"), Path("/sys")
_CPUFREQ, _RAPL = "devices/system/cpu/cpu0/cpufreq", "class/powercap/intel-rapl:0"


def cpu_conditions(proc: Path = _PROC, sys: Path = _SYS) -> dict[str, str]:
    """The current conditions of a CPU, by name, as text."""
    found = {
        "clock": _clock(proc, sys),
        "governor": _text(sys / _CPUFREQ / "scaling_governor"),
        "power limit": _scaled(sys / _RAPL / "constraint_0_power_limit_uw", DECIMAL["M"], "W"),
        "temperature": _temperature(sys),
    }
    return {name: value for name, value in found.items() if value}


def _clock(proc: Path, sys: Path) -> str:
    """The clock of the first core: from its driver (in kHz), else from the kernel (in MHz)."""
    khz = _number(_text(sys / _CPUFREQ / "scaling_cur_freq"))
    match = re.search(r"^cpu MHz\s*:\s*([\d.]+)", _text(proc / "cpuinfo"), re.MULTILINE)
    hz = khz * DECIMAL["k"] if khz else float(match[1]) * DECIMAL["M"] if match else 0.0
    return show(hz, "Hz", 3) if hz else ""


def _temperature(sys: Path) -> str:
    """The temperature of the package's warmest sensor; sensors report thousandths of a degree."""
    zones = [zone for zone in sorted((sys / "class/thermal").glob("thermal_zone*")) if re.search("pkg|cpu", _text(zone / "type"))]
    degrees = [_number(_text(zone / "temp")) / DECIMAL["k"] for zone in zones]
    return f"{max(degrees):.0f} °C" if any(degrees) else ""


def _scaled(file: Path, scale: float, unit: str) -> str:
    amount = _number(_text(file))
    return show(amount / scale, unit, 3) if amount else ""


def _number(text: str) -> float:
    return float(text) if re.fullmatch(r"\d+(\.\d*)?", text) else 0.0


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8").strip()
    except (OSError, ValueError):
        return ""
