"""Hardware counters: a CSV that Nsight Compute printed (``ncu --csv``, pages ``raw`` and ``details``), plain or gzipped.

On its own it is a recording: one op per kernel, with its launches, time, FLOP of all pipes and formats, and bytes of main memory, L2 and L1
as counted. Together with a profile, its launches are matched to the profile's operations. Nsight Compute runs kernels
one at a time and flushes caches before each, so it measures cold caches.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from ...cost import Cost, sum_or_unknown
from ...errors import FormulaError, SourceError
from ...files.input_limits import check_limit
from ...machine import Machine
from ...resource import HBM, Resource
from ...units import parse, rounded, show
from ...workload import COUNTED, UNPRICED, Coverage, Device, Hardware, Launch, Op, Recording, Share, Workload
from ..files import all_of
from .csv_table import TIME, Entry, decode, entries, is_header, writes_decimal_commas
from .metrics import L1, L2, NAME, UNNAMED_MATRIX, VECTOR, Metrics, Plan, bytes_over, cost_of, is_used, peaks, plan
from .usage import is_usage, usage_of

PROFILER_MESSAGES = ("==PROF==", "==WARNING==", "==ERROR==")
COLLECT = "ncu --set full --csv --page raw"
COLD_CACHES = "counted by Nsight Compute, one kernel at a time with caches flushed before each (its default): traffic with cold caches"
LOCAL = ("127.0.0.1", "localhost", "::1")
KILOHERTZ = int(parse("1 kHz", "Hz"))
BITS_PER_BYTE = 8
MOST_GRIDS = 3  # listed in a note
CLOCK, NEARLY = "sm__cycles_elapsed.avg.per_second", 0.9  # of the highest clock


def sniff(head: bytes, path: Path) -> bool:
    """A header line of a table of launches, or a message of the profiler before it."""
    lines = decode(head).splitlines()
    return any(is_header(line) for line in lines) or any(line.startswith(PROFILER_MESSAGES) for line in lines)


def read(path: Path, target: Machine | None = None) -> Recording:
    """The kernels of a counter file as ops, in the order of their first launch."""
    table = _Table(path)
    launches = table.launches()
    kernels: dict[str, list[Launch]] = {}
    for launch in launches:
        kernels.setdefault(launch.name, []).append(launch)
    ops = tuple(_op(name, some) for name, some in kernels.items())
    times = [(op.time_s, op.priced) for op in ops]
    busy = sum_or_unknown([time_s for time_s, _ in times])
    return Recording(
        workload=Workload(ops),
        format="ncu",
        files=(str(path),),
        hosts=table.hosts,
        devices=table.devices(),
        coverage=Coverage(
            busy_s=busy,
            attributed_s=busy,
            priced_s=None if busy is None else sum((time_s or 0.0 for time_s, priced in times if priced), 0.0),
        ),
        notes=table.notes(launches),
    )


def read_counters(path: Path) -> tuple[tuple[Launch, ...], tuple[str, ...]]:
    """Every launch that was counted, in order, and notes on how they were counted."""
    table = _Table(path)
    launches = table.launches()
    return launches, table.notes(launches)


class _Table:
    """A parsed file: the entries of its launches and how to read them."""

    __slots__ = ("_entries", "_metrics", "_path", "_plan")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries = _entries(path)
        commas = writes_decimal_commas(cell for entry in self._entries for cell in entry.numbers)
        self._metrics = [Metrics(entry, str(path), commas=commas) for entry in self._entries]
        self._plan: Plan = plan({name for entry in self._entries for name in entry.cells})

    def launches(self) -> tuple[Launch, ...]:
        found: list[Launch] = []
        for entry, metrics in zip(self._entries, self._metrics, strict=True):
            found += [self._launch(entry, metrics)] * entry.launches
        return tuple(found)

    def _launch(self, entry: Entry, metrics: Metrics) -> Launch:
        time = metrics.time
        try:
            cost = cost_of(metrics, self._plan, _capability(entry))
        except FormulaError as error:
            raise SourceError(f"{self._path}: row {entry.row}: {error}") from None
        return Launch(
            name=entry.words.get("Kernel Name", "") or "(unnamed)",
            cost=cost,
            time_s=None if time is None else float(time),
            grid=_dimensions(entry.words.get("Grid Size", "")),
            block=_dimensions(entry.words.get("Block Size", "")),
            device=_device(entry),
            usage=usage_of(metrics),
        )

    @property
    def hosts(self) -> tuple[str, ...]:
        names = dict.fromkeys(entry.words.get("Host Name", "") for entry in self._entries)
        return tuple(name for name in names if name and name not in LOCAL)

    def devices(self) -> tuple[Device, ...]:
        """The devices, each with its highest peaks over all launches, since clocks fall under load."""
        names: dict[int, str] = {}
        hosts: dict[int, str] = {}
        rates: dict[int, dict[str, float]] = {}
        hardware: dict[int, Hardware] = {}
        for entry, metrics in zip(self._entries, self._metrics, strict=True):
            device = _device(entry)
            names[device] = names.get(device) or metrics.word(NAME)
            host = entry.words.get("Host Name", "")
            hosts.setdefault(device, "" if host in LOCAL else host)
            hardware.setdefault(device, _hardware(entry, metrics))
            mine = rates.setdefault(device, {})
            for resource, rate in peaks(metrics, self._plan, _capability(entry)):
                mine[resource] = max(rate, mine.get(resource, 0.0))
        return tuple(
            Device(id=device, name=names[device], host=hosts[device], rates=rates[device], hardware=hardware[device])
            for device in sorted(names)
        )

    def notes(self, launches: Sequence[Launch]) -> tuple[str, ...]:
        """Notes on how the numbers were counted, and on what was not counted."""
        notes = [COLD_CACHES]
        if any(entry.launches > 1 for entry in self._entries):
            notes.append("a summary: each launch of a kernel has the average over all its launches")
        for level in (L2, L1):
            ways = {caveat for metrics in self._metrics for moved, caveat in (bytes_over(metrics, level),) if moved is not None and caveat}
            notes += [f"{level} bytes: {caveat}" for caveat in sorted(ways)]
        if (slow := self._locked_clock()) is not None:
            notes.append(slow)
        missing = [label for label, absent in self._missing(launches) if absent]
        if missing:
            notes.append(f"not counted: {', '.join(missing)}; collect everything with: {COLLECT}")
        return tuple(notes)

    def _locked_clock(self) -> str | None:
        """A note if the SMs ran at a lower clock than the device can: Nsight Compute sets the base clock unless told otherwise."""
        clocks = [float(clock) for metrics in self._metrics if (clock := metrics.get(CLOCK))]
        highest = [device.hardware.clock_hz for device in self.devices() if device.hardware and device.hardware.clock_hz]
        if not clocks or not highest or max(clocks) >= NEARLY * max(highest):
            return None
        least, most = (show(rounded(clock, 3), "Hz") for clock in (min(clocks), max(clocks)))
        between = most if least == most else f"{least} to {most}"
        return (
            f"the SMs ran at {between}, while the chip reaches {show(rounded(max(highest), 3), 'Hz')}: compute-bound kernels look slower "
            "than they are; Nsight Compute sets the base clock unless called with --clock-control none"
        )

    def _missing(self, launches: Sequence[Launch]) -> Iterable[tuple[str, bool]]:
        unknown = {resource for launch in launches for resource in launch.cost.unknown}
        yield f"time ({TIME})", any(launch.time_s is None for launch in launches)
        yield "tensor operations of every format (sm__ops_path_tensor_src_*.sum)", UNNAMED_MATRIX in unknown
        for kind, ops in VECTOR.items():
            names = "{" + ",".join(op for op, _ in ops[:3]) + "}"
            yield f"{kind} arithmetic (smsp__sass_thread_inst_executed_op_{names}_pred_on.sum)", Resource(f"vector/{kind}") in unknown
        yield "bytes of main memory (dram__bytes.sum)", HBM in unknown
        for level, name in ((L2, "lts__t_sectors_srcunit_tex.sum"), (L1, "l1tex__t_bytes.sum")):
            yield f"bytes of {level} ({name})", all(bytes_over(metrics, level)[0] is None for metrics in self._metrics)


def _entries(path: Path) -> list[Entry]:
    data = all_of(path)
    check_limit("values", sum(map(data.count, (b",", b"\n"))), str(path))
    text = decode(data)
    found = entries(text, lambda name: is_used(name) or is_usage(name), str(path))
    if found:
        return found
    if any(is_header(line) for line in text.splitlines()):
        raise SourceError(f"{path}: no kernels in the table; check that the profiled range launches any")
    raise SourceError(f"{path}: no kernel table; create one with: {COLLECT}")


def _op(name: str, launches: list[Launch]) -> Op:
    """All launches of one kernel."""
    times = [launch.time_s for launch in launches if launch.time_s is not None]
    time_s = sum(times) if len(times) == len(launches) else None
    shares: dict[int, list[Launch]] = {}
    for launch in launches:
        shares.setdefault(launch.device, []).append(launch)
    cost: Cost = sum((launch.cost for launch in launches), Cost())
    return Op(
        name=name,
        cost=cost,
        count=len(launches),
        kernels=len(launches),
        time_s=time_s,
        self_time_s=time_s,
        category="kernel",
        work_provenance="counter",
        bytes_provenance="counter",
        counted=tuple(launches),
        by_device=tuple(
            Share(key=device, count=len(mine), time_s=sum(launch.time_s or 0.0 for launch in mine))
            for device, mine in sorted(shares.items())
        ),
        notes=(*_shape_notes(launches), *(() if cost.is_known else (f"{UNPRICED}collect its counters with {COLLECT}",))),
    )


def _shape_notes(launches: list[Launch]) -> tuple[str, ...]:
    shapes = dict.fromkeys((launch.grid, launch.block) for launch in launches if launch.grid)
    shown = [f"grid {_joined(grid)}" + (f" block {_joined(block)}" if block else "") for grid, block in list(shapes)[:MOST_GRIDS] if grid]
    more = len(shapes) - len(shown)
    return (COUNTED + "; ".join(shown) + (f" and {more:,} more" if more else ""),) if shown else ()


def _joined(sizes: tuple[int, ...]) -> str:
    return "x".join(map(str, sizes))


def _dimensions(text: str) -> tuple[int, ...] | None:
    """``(2, 66, 1)`` as numbers."""
    sizes = re.findall(r"\d{1,10}", text)
    return tuple(int(size) for size in sizes) or None


def _device(entry: Entry) -> int:
    found = re.search(r"\d{1,9}", entry.words.get("Device", ""))
    return int(found[0]) if found else 0


def _hardware(entry: Entry, metrics: Metrics) -> Hardware:
    """The device's hardware, from its attributes if they were collected."""
    cores, clock, memory = (metrics.get(f"device__attribute_{name}") for name in ("multiprocessor_count", "clock_rate", "total_memory"))
    memory_clock, width = (metrics.get(f"device__attribute_{name}") for name in ("memory_clock_rate", "global_memory_bus_width"))
    # Memory transfers data twice per cycle; the width of the bus is in bits.
    bandwidth = 2 * memory_clock * KILOHERTZ * width / BITS_PER_BYTE if memory_clock and width else None
    return Hardware(
        vendor="NVIDIA",
        capability=entry.words.get("CC", ""),
        cores=int(cores) if cores else None,
        clock_hz=float(clock * KILOHERTZ) if clock else None,
        memory_bytes=float(memory) if memory else None,
        bandwidth=float(bandwidth) if bandwidth else None,
    )


def _capability(entry: Entry) -> float | None:
    found = re.fullmatch(r"\d{1,3}\.\d{1,2}", entry.words.get("CC", ""))
    return float(found[0]) if found else None
