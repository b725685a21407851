"""The CPU of this computer as the operating system describes it: model, cores, clock, vector instructions, caches.

The result is the same in every run: clocks are the maximum or the nominal one, never the current one.
"""

import math
import os
import platform
import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from msgspec import Struct

from ..units import BINARY, parse

ASSUMED_CLOCK_HZ = parse("2.5 GHz", "Hz")
APPLE_CLOCK_HZ = parse("3.2 GHz", "Hz")  # of the M1's performance cores; macOS does not report it
VENDORS = {"GenuineIntel": "Intel", "AuthenticAMD": "AMD", "0x41": "Arm", "0x61": "Apple"}
# Part numbers of Arm Ltd. cores in the Linux kernel, arch/arm64/include/asm/cputype.h.
ARM_PARTS = {"0xd0c": "Neoverse N1", "0xd40": "Neoverse V1", "0xd49": "Neoverse N2", "0xd4f": "Neoverse V2"}


class Cache(Struct, frozen=True, kw_only=True):
    """One level of data cache: the bytes of one cache, and the number of such caches that the usable cores have."""

    level: int
    bytes: float
    count: int

    @property
    def total(self) -> float:
        return self.bytes * self.count


class Cpu(Struct, frozen=True, kw_only=True):
    """A CPU: its usable physical cores and hardware threads, clock, vector instructions and caches.

    ``clock_source`` is the origin of the clock; ``family`` is the x86 family, which distinguishes AMD's generations.
    """

    model: str
    vendor: str = ""
    cores: int = 1
    threads: int = 1
    clock_hz: float = ASSUMED_CLOCK_HZ
    clock_source: str = "assumed"
    instructions: frozenset[str] = frozenset()
    family: int = 0
    caches: tuple[Cache, ...] = ()
    memory_bytes: float | None = None

    @property
    def name(self) -> str:
        """The model as a machine's name: ``Intel(R) Xeon(R) Processor @ 2.50GHz`` is ``intel-xeon-processor-2.50ghz``."""
        plain = re.sub(r"\((r|tm|c)\)|\bcpu\b", " ", self.model.lower())
        return re.sub(r"[^a-z0-9.]+", "-", plain).strip("-.") or "cpu"


@cache
def this_cpu() -> Cpu:
    """The CPU of this computer, limited to the cores that this process may use."""
    if sys.platform == "darwin":
        return from_sysctl(_sysctl())
    if sys.platform == "linux":
        return from_linux(Path("/"), sorted(os.sched_getaffinity(0)))
    count = os.cpu_count() or 1
    model = platform.processor() or platform.machine() or "CPU"
    return Cpu(model=model, cores=count, threads=count, instructions=frozenset(_assumed_instructions(platform.machine())))


def from_linux(root: Path, usable: Iterable[int]) -> Cpu:
    """The CPU that Linux describes under ``root``; ``usable`` are the logical CPUs that this process may use."""
    fields = _first_processor(_text(root / "proc/cpuinfo"))
    folder = root / "sys/devices/system/cpu"
    mine = tuple(usable)
    physical = {_text(folder / f"cpu{number}/topology/thread_siblings_list").strip() or str(number) for number in mine}
    cores, threads = len(physical) or 1, len(mine) or 1
    if (quota := _quota(_text(root / "sys/fs/cgroup/cpu.max"))) is not None:
        cores, threads = min(cores, quota), min(threads, quota)
    implementer = fields.get("vendor_id") or fields.get("CPU implementer", "")
    vendor = VENDORS.get(implementer, implementer)
    model = fields.get("model name") or ARM_PARTS.get(fields.get("CPU part", "")) or f"{vendor or platform.machine()} CPU".strip()
    clock_hz, source = _clock(fields, _text(folder / "cpu0/cpufreq/cpuinfo_max_freq"))
    memory = re.search(r"^MemTotal:\s*(\d+) kB", _text(root / "proc/meminfo"), re.MULTILINE)
    family = fields.get("cpu family", "")
    return Cpu(
        model=model,
        vendor=vendor,
        cores=cores,
        threads=threads,
        clock_hz=clock_hz,
        clock_source=source,
        instructions=frozenset((fields.get("flags") or fields.get("Features") or "").split()),
        family=int(family) if family.isdecimal() else 0,
        caches=_caches(folder, mine),
        memory_bytes=int(memory[1]) * BINARY["Ki"] if memory else None,
    )


def from_sysctl(values: Mapping[str, str]) -> Cpu:
    """The CPU that macOS describes."""

    def number(name: str) -> int:
        text = values.get(name, "")
        return int(text) if text.isdecimal() else 0

    model = values.get("machdep.cpu.brand_string") or "Apple CPU"
    is_apple = model.startswith("Apple")
    clock = number("hw.cpufrequency_max")
    assumed = APPLE_CLOCK_HZ if is_apple else ASSUMED_CLOCK_HZ
    cores, threads = number("hw.physicalcpu") or 1, number("hw.logicalcpu") or 1
    sharing = {1: 1, 2: number("hw.perflevel0.cpusperl2") or 1, 3: cores}
    sizes = {level: number(f"hw.perflevel0.l{level}{kind}cachesize") or number(f"hw.l{level}{kind}cachesize") for level, kind in _SIZES}
    has = {name.rpartition(".")[2].lower() for name, value in values.items() if name.startswith("hw.optional.") and value == "1"}
    renamed = {word.removesuffix("_0") for word in has}  # avx2_0
    return Cpu(
        model=model,
        vendor="Apple" if is_apple else "Intel",
        cores=cores,
        threads=threads,
        clock_hz=clock or assumed,
        clock_source="highest clock" if clock else "assumed",
        instructions=frozenset(renamed | ({"asimd"} if is_apple else set())),
        caches=tuple(
            Cache(level=level, bytes=size, count=math.ceil(cores / sharing[level])) for level, size in sorted(sizes.items()) if size
        ),
        memory_bytes=number("hw.memsize") or None,
    )


_SIZES = ((1, "d"), (2, ""), (3, ""))


def _sysctl() -> dict[str, str]:
    import subprocess  # only needed on macOS

    try:
        text = subprocess.run(["sysctl", "hw", "machdep.cpu"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return {}
    return {name: value.strip() for name, colon, value in (line.partition(":") for line in text.splitlines()) if colon}


def _first_processor(text: str) -> dict[str, str]:
    """The fields of the first processor of /proc/cpuinfo."""
    lines = text.partition("\n\n")[0].splitlines()
    return {name.strip(): value.strip() for name, colon, value in (line.partition(":") for line in lines) if colon}


def _clock(fields: Mapping[str, str], highest_khz: str) -> tuple[float, str]:
    """A clock that is the same in every run, and its origin."""
    if highest_khz.strip().isdecimal():
        return parse(f"{highest_khz.strip()} kHz", "Hz"), "highest clock"
    if found := re.search(r"@\s*([\d.]+\s*[GM]Hz)", fields.get("model name", "")):
        return parse(found[1], "Hz"), "nominal clock, in the model's name"
    ticks = fields.get("bogomips", "")
    if "GenuineIntel" in fields.values() or "AuthenticAMD" in fields.values():
        try:
            return round(float(ticks) / 2, -1) * parse("1 MHz", "Hz"), "nominal clock, from the time-stamp counter"
        except ValueError:
            pass
    return ASSUMED_CLOCK_HZ, "assumed"


def _caches(folder: Path, usable: Iterable[int]) -> tuple[Cache, ...]:
    """The data caches of the usable CPUs, level by level; those that several CPUs share count once."""
    found: dict[int, dict[str, float]] = {}
    for number in usable:
        for index in sorted((folder / f"cpu{number}/cache").glob("index[0-9]*")):
            level, size = _text(index / "level").strip(), _text(index / "size").strip()
            if _text(index / "type").strip() in ("Data", "Unified") and level.isdecimal() and (bytes := _size(size)):
                shared = _text(index / "shared_cpu_list").strip() or str(number)
                found.setdefault(int(level), {})[shared] = bytes
    return tuple(Cache(level=level, bytes=max(instances.values()), count=len(instances)) for level, instances in sorted(found.items()))


def _size(text: str) -> float | None:
    found = re.fullmatch(r"(\d+)([KMG]?)", text)
    return int(found[1]) * (BINARY[f"{found[2]}i"] if found[2] else 1) if found else None


def _quota(text: str) -> int | None:
    """The CPUs that a container may use, rounded up."""
    found = re.fullmatch(r"(\d+) (\d+)", text.strip())
    return max(1, math.ceil(int(found[1]) / int(found[2]))) if found else None


def _assumed_instructions(machine: str) -> tuple[str, ...]:
    """The instruction sets assumed where the system does not list them: those that nearly all such CPUs have."""
    return ("asimd",) if machine.lower() in ("arm64", "aarch64") else ("avx2", "fma")


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
