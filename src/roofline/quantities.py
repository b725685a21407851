"""Quantities: every name that can be shown, filtered, checked or exported, each with its value, its unit and its meaning.

`OF_OPS` are those of one op: the table in the terminal, the filter, grouping, CSV, the page with its glossary and the documentation take
them from here, and say only which of them they show. `OF_REPORTS` are those of a whole report, for budgets, baselines and comparisons.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from msgspec import Struct

from .causes import IDLE, PARTS
from .report import Number, OpInfo, Point, Report
from .resource import HBM, named

TEXT, HARDWARE = "text", "hardware"  # units of what is no number: words, and parts of a chip
SECONDS, FLOP, BYTES, RATE, SPEED, INTENSITY, SHARE, COUNT = "s", "FLOP", "B", "FLOP/s", "B/s", "FLOP/B", "1", ""


class Named(Struct, frozen=True):
    """A name in filters, in conditions and of columns; its unit, of a number its dimension; and what it means."""

    name: str
    unit: str
    meaning: str


class OfOp(Named, frozen=True, kw_only=True):
    """A quantity of an op: a number or a text, or several texts.

    ``key`` is its name in JSON, CSV and rows of the page, ``title`` its heading there, ``header`` that in the terminal, else its name;
    ``aliases`` are read too. In a filter a percentage is one ``of_total``, the name of a quantity. Without ``of`` only the page knows it,
    because it depends on other rows.
    """

    key: str
    title: str
    header: str = ""
    aliases: tuple[str, ...] = ()
    of: Callable[[OpInfo], Any] | None = None
    of_total: str = ""
    on_page: bool = True

    @property
    def is_number(self) -> bool:
        return self.unit not in (TEXT, HARDWARE)


Value = Callable[[OpInfo], Any]


def _derived(name: str, unit: str, title: str, meaning: str, of: Value | None, *, key: str = "", **more: Any) -> OfOp:
    """A quantity that follows from fields of an op, or of a view without ``of``."""
    return OfOp(name, unit, meaning, key=key or name, title=title, of=of, **more)


def _field(name: str, unit: str, title: str, meaning: str, *, key: str = "", **more: Any) -> OfOp:
    """A quantity that is a field of an op, with the name ``key``."""
    return _derived(name, unit, title, meaning, attrgetter(key or name), key=key, **more)


def _over(above: float | None, below: float | None) -> float | None:
    return None if above is None or not below else above / below


def _busiest(kind: str) -> Callable[[OpInfo], float | None]:
    """The highest utilization among units of a kind."""
    return lambda op: max((share for unit, share in op.utilization.items() if getattr(named(unit), kind)), default=None)


def _bandwidth(op: OpInfo) -> float | None:
    return op.bandwidth.get(HBM.name, 0.0 if op.time_s and HBM.name not in op.bytes else None)


OF_OPS = (
    _field("id", COUNT, "number", "number of the op in the report", on_page=False),
    _field("rank", COUNT, "rank", "position by time, longest first"),
    _field(
        "label", TEXT, "operation", "where the op is in the model, what it does, its shapes and number format", header="op", aliases=("op",)
    ),
    _field("name", TEXT, "name", "name of the op in the compiled program or the profile"),
    _field("category", TEXT, "category", "kind of operation"),
    _field("program", TEXT, "program", "compiled program that the op belongs to", key="module", aliases=("module",)),
    _field("scope", TEXT, "scope", "named scope in the model, such as layer0/attn"),
    _field("location", TEXT, "location", "file and line of the source code", aliases=("source",)),
    _field("phase", TEXT, "phase", "forward or backward pass, where known"),
    _field("count", COUNT, "count", "executions", of_total="count"),
    _field("kernels", COUNT, "kernels", "kernel launches"),
    _derived(
        "per_step",
        SECONDS,
        "time per step",
        "kernel time in one step on one device: mean over the steps of the average step",
        None,
        key="step_s",
    ),
    _field("time", SECONDS, "time", "kernel time, summed over executions and devices (device-seconds)", key="time_s", of_total="self"),
    _field(
        "self",
        SECONDS,
        "self time",
        "time of an op without that of nested ops and of overlap with earlier events on the stream",
        key="self_time_s",
        aliases=("self_time",),
        of_total="self",
    ),
    _derived("share", SHARE, "share", "self time / self time of all ops in the chosen steps and on the chosen devices", None),
    _derived("cumulative", SHARE, "cumulative share", "share of this op and all longer ones together", None),
    _derived("time_share", SHARE, "share of total time", "time / time of all ops in the chosen steps and on the chosen devices", None),
    _derived("mean", SECONDS, "average time", "time / executions", lambda op: _over(op.time_s, op.count), key="average_s"),
    _derived(
        "mean_self", SECONDS, "average self time", "self time / executions", lambda op: _over(op.own_s, op.count), key="average_self_s"
    ),
    _derived(
        "stalled",
        SHARE,
        "stalled by DMA",
        "share of the time in which the core of a TPU waits for asynchronous copies",
        lambda op: _over(op.dma_stall_s, op.time_s),
        key="dma_stall",
    ),
    _derived("per_device", SECONDS, "time per device", "time / devices that the op ran on", None, key="device_time_s"),
    _field(
        "bound",
        HARDWARE,
        "bound by",
        "the resource on which an op takes longest: a compute unit, a memory level, a link, or the latency of a launch",
    ),
    _field(
        "efficiency",
        SHARE,
        "roofline efficiency",
        "minimum time / time; above 100%, check the count and the ceiling; with ≤ the cost is an upper bound",
    ),
    _field(
        "minimum",
        SECONDS,
        "minimum time",
        "roofline bound: the longest time on any unit, with full overlap; the same work cannot take less on this chip",
        key="floor_s",
        aliases=("floor",),
        of_total="minimum",
    ),
    _field("serial", SECONDS, "serial time", "sum of the times on all units, with no overlap", key="serial_s", of_total="self"),
    _derived(
        "expected",
        SECONDS,
        "expected time",
        "how long ops of this kind and shape take on this chip, from measurements",
        lambda op: op.expected.time_s if op.expected else None,
        key="predicted_s",
        of_total="self",
    ),
    _field("excess", SECONDS, "excess time", "self time above the interval of the expected time", key="excess_s", of_total="self"),
    _field("lost", SECONDS, "time lost", "self time above the minimum time of the needed work", key="lost_s", of_total="lost"),
    _field(
        "flops",
        FLOP,
        "work",
        "floating-point operations; a multiply-add is 2, transcendentals are counted separately",
        header="work",
        aliases=("work", "flop"),
        of_total="flops",
    ),
    _field("achieved", RATE, "achieved", "FLOP/s of an op: its FLOP over its measured time", key="rate", aliases=("rate",)),
    _derived("needed_rate", RATE, "needed FLOP/s", "work that the model needed / time", None),
    _derived(
        "unneeded",
        SHARE,
        "unneeded work",
        "share of the work, or of the bytes of an op without FLOP, that the model did not need",
        None,
        key="unneeded_share",
    ),
    _field(
        "attainable",
        RATE,
        "attainable",
        "the highest FLOP/s that the ceilings allow for an op: its FLOP over its minimum time",
        aliases=("optimal",),
    ),
    _derived(
        "bytes",
        BYTES,
        "bytes",
        "bytes over the selected memory level or link, else over main memory",
        lambda op: op.bytes.get(HBM.name, 0),
        of_total="bytes",
    ),
    _derived("bandwidth", SPEED, "bandwidth", "achieved bandwidth: bytes / time", _bandwidth),
    _field("intensity", INTENSITY, "intensity", "arithmetic intensity: work / bytes", header="FLOP/B"),
    _derived(
        "bound_intensity", INTENSITY, "intensity at the bottleneck", "work / bytes over the memory level or link that takes longest", None
    ),
    _field("ridge", INTENSITY, "ridge point", "peak FLOP/s over bandwidth: with a higher arithmetic intensity an op is compute-bound"),
    _field("unit", HARDWARE, "unit", "compute unit with the longest time"),
    _field("dtype", TEXT, "number format", "number format with the longest time on that unit", aliases=("format",)),
    _derived(
        "compute_utilization", SHARE, "compute utilization", "share of peak FLOP/s, of the busiest compute unit", _busiest("is_compute")
    ),
    _derived(
        "memory_utilization", SHARE, "memory utilization", "share of peak bandwidth, of the busiest memory level", _busiest("is_memory")
    ),
    _field("roof", TEXT, "roofs", "the roofs that limit the op", key="roofs", on_page=False),
    _field("unrated", TEXT, "unrated", "resources that the op uses but the chip has no rate for", on_page=False),
    _derived("level", TEXT, "levels", "memory levels and links that its bytes cross", lambda op: tuple(op.bytes), on_page=False),
    _field("note", TEXT, "notes", "caveats on the op and on how it was counted", key="notes", on_page=False),
)


class OfReport(Named, frozen=True, kw_only=True):
    """A quantity of a report: the sum of ``part`` over its ops, else what it has ``of`` the whole, else a ``ratio`` of two sums.

    Amounts are those of one step on one device. ``whole`` ones cannot be asked of some ops. ``measured`` ones need a run on a device. One
    of the whole may be ``explained_by`` the parts of another. A percentage of one that is a share ``of_step`` refers to the step.
    ``missing`` is why a report may not have it.
    """

    aliases: tuple[str, ...] = ()
    part: Callable[[OpInfo], Number | None] | None = None
    of: Callable[[Report], Number | None] | None = None
    ratio: tuple[str, str] | None = None
    missing: str = "not known for any op"
    whole: bool = False
    measured: bool = False
    explained_by: str = ""
    of_step: bool = False


NO_MEMORY = "peak memory is known only for programs, functions and PyTorch traces with profile_memory=True"
NOT_MEASURED = "no measured times in this report"


def _of_point(field: str) -> Callable[[Report], Number | None]:
    """A field of the average step, or of the whole program."""
    return lambda report: getattr(report.main_point, field, None)


def _idle(report: Report) -> Number | None:
    point = report.main_point
    return point.lost.get("idle") if point and point.time_s is not None else None


def run_s(report: Report) -> Number | None:
    """The wall clock of the run."""
    total = report.total
    return report.coverage.run_s if report.coverage.run_s is not None else total.time_s if total else None


def _of_memory(field: str) -> Callable[[Report], Number | None]:
    return lambda report: getattr(report.memory, field, None)


def _expected(op: OpInfo) -> Number | None:
    return op.expected.time_s if op.expected else op.floor_s


def launches(op: OpInfo) -> Number:
    """Its kernels, or executions where kernels are not known."""
    return op.kernels or op.count


def known_flops(one: OpInfo | Point) -> Number:
    """The known FLOP, all or a part."""
    return sum(amount or 0 for name, amount in (*one.work.items(), *one.known.items()) if named(name).is_arithmetic)


def _whole(name: str, unit: str, meaning: str, of: Callable[[Report], Number | None], missing: str, **more: Any) -> OfReport:
    """A quantity of a whole report; one that is missing where nothing was measured needs a run."""
    return OfReport(name, unit, meaning, of=of, missing=missing, whole=True, measured=missing == NOT_MEASURED, **more)


def _sum(name: str, unit: str, meaning: str, part: Callable[[OpInfo], Number | None], **more: Any) -> OfReport:
    """A quantity that is summed over ops."""
    return OfReport(name, unit, meaning, part=part, **more)


def _sum_measured(name: str, meaning: str, part: Callable[[OpInfo], Number | None], missing: str = NOT_MEASURED, **more: Any) -> OfReport:
    """A time that needs a run."""
    return OfReport(name, SECONDS, meaning, part=part, missing=missing, measured=True, **more)


_MFU, _HFU = (
    "model FLOP utilization: matrix FLOP that the model needs, over the peak",
    "hardware FLOP utilization: the same of all that ran",
)
OF_REPORTS = (
    _whole(
        "step",
        SECONDS,
        "time of the average step; without steps, of the run",
        _of_point("time_s"),
        NOT_MEASURED,
        explained_by="time",
        aliases=("step time",),
    ),
    _whole("run", SECONDS, "wall clock of the run", run_s, NOT_MEASURED, explained_by="time", aliases=("run time",)),
    _sum_measured("time", "measured time of the ops", lambda op: None if op.time_s is None else op.weight_s),
    _sum("minimum time", SECONDS, "minimum time of the ops", attrgetter("floor_s"), aliases=("minimum", "floor")),
    _sum("expected step", SECONDS, "expected time of a step, with idle time where that is predicted", _expected, whole=True),
    _sum(
        "expected time", SECONDS, "expected time of the ops; their minimum time where none is predicted", _expected, aliases=("expected",)
    ),
    _sum_measured(
        "excess",
        "time of the ops above their expected times",
        attrgetter("excess_s"),
        "no measured times, or no predictions for this chip",
        of_step=True,
    ),
    _sum_measured("lost", "self time of the ops above the minimum time of their needed work", attrgetter("lost_s"), of_step=True),
    _whole("idle", SECONDS, PARTS[IDLE].meaning, _idle, NOT_MEASURED, of_step=True),
    _sum("flops", FLOP, "floating-point operations", known_flops, aliases=("flop", "work")),
    _whole(
        "peak memory",
        BYTES,
        "the most that the program holds in main memory at once",
        _of_memory("peak_bytes"),
        NO_MEMORY,
        aliases=("memory",),
    ),
    _whole("donated memory", BYTES, "arguments whose memory outputs take over", _of_memory("donated"), NO_MEMORY),
    _sum("launches", COUNT, "kernels, or executions where kernels are not known", launches, aliases=("kernels",)),
    _sum("ops", COUNT, "distinct ops", lambda op: 1),
    _sum("executions", COUNT, "executions of ops", attrgetter("count"), aliases=("count",)),
    _sum("fusions", COUNT, "ops that are fusions", lambda op: int("fusion" in f"{op.category} {op.name}")),
    _whole("findings", COUNT, "findings of any kind", lambda report: len(report.findings), ""),
    _whole("mfu", SHARE, _MFU, _of_point("mfu"), NOT_MEASURED, explained_by="time"),
    _whole("hfu", SHARE, _HFU, _of_point("hfu"), NOT_MEASURED, explained_by="time"),
    OfReport(
        *("efficiency", SHARE, "minimum time over measured time"),
        of=_of_point("efficiency"),
        ratio=("minimum time", "time"),
        missing=NOT_MEASURED,
        measured=True,
        explained_by="lost",
    ),
    OfReport("intensity", INTENSITY, "work over bytes of main memory", ratio=("flops", HBM.name)),
)

OP = {quantity.name: quantity for quantity in OF_OPS}
OP_ALIASES = {alias: quantity.name for quantity in OF_OPS for alias in quantity.aliases}
REPORT = {quantity.name: quantity for quantity in OF_REPORTS}
REPORT_ALIASES = {alias: quantity.name for quantity in OF_REPORTS for alias in quantity.aliases}
