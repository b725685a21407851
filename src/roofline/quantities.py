"""Quantities: every name that can be shown, filtered, checked or exported, each with its value, its unit and its meaning.

`OF_OPS` are those of one op: the table in the terminal, the filter, grouping, CSV, the page with its glossary and the documentation take
them from here, and say only which of them they show. `OF_REPORTS` are those of a whole report, for budgets, baselines and comparisons.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from .causes import IDLE, PARTS
from .report import Number, OpInfo, Point, Report
from .reported_op import ROUNDING as ROUNDING
from .resource import HBM, named

# Choices that all views share.
NOTABLE = 0.01  # of a time or an amount: a smaller part, saving or change is not told (steps vary by as much)
CLOSE, FAR = 0.7, 0.4  # of the roofline: at least CLOSE is close to it (good kernels reach 0.7 to 0.9), less than FAR is far from it

TEXT, HARDWARE = "text", "hardware"  # units of what is no number: words, and parts of a chip
SHARE, COUNT, INTENSITY = "1", "", "FLOP/B"
TOTALS = ("count", "self", "minimum", "lost", "flops", "bytes")  # of which a percentage may be one, in a filter


class Named(Struct, frozen=True):
    """A name in filters, in conditions and of columns; its unit, of a number its dimension; and what it means."""

    name: str
    unit: str
    meaning: str


class OfOp(Named, frozen=True, kw_only=True):
    """A quantity of an op: a number or a text, or several texts.

    ``key`` is its name in JSON, CSV and rows of the page, ``title`` its heading there, ``header`` that in the terminal, else its name;
    ``aliases`` are read too. Without ``of`` only the page knows it, because it depends on other rows.
    """

    key: str
    title: str
    header: str = ""
    aliases: tuple[str, ...] = ()
    of: Callable[[OpInfo], Any] | None = None
    on_page: bool = True

    @property
    def is_number(self) -> bool:
        return self.unit not in (TEXT, HARDWARE)

    @property
    def of_total(self) -> str:
        """The quantity of which a percentage is one, if any: self time for times that have no total of their own."""
        return self.name if self.name in TOTALS else "self" if self.unit == "s" else ""


Value = Callable[[OpInfo], Any]


def _op(names: str, unit: str, meaning: str, of: Value | None = None, *, key: str = "", title: str = "", **more: Any) -> OfOp:
    """A quantity with its names, the first of which is its own: a field of an op, or what follows ``of`` its fields."""
    return replace(_row(names, unit, meaning, key=key, title=title), of=of or attrgetter(key or names.split()[0]), **more)


def _row(names: str, unit: str, meaning: str, *, key: str = "", title: str = "") -> OfOp:
    """A quantity that only the page knows; its key is its name, and its title too, unless they are given."""
    name, *aliases = names.split()
    return OfOp(name, unit, meaning, key=key or name, title=title or name.replace("_", " "), aliases=tuple(aliases))


def _over(above: float | None, below: float | None) -> float | None:
    return None if above is None or not below else above / below


def _busiest(kind: str) -> Callable[[OpInfo], float | None]:
    """The highest utilization among units of a kind."""
    return lambda op: max((share for unit, share in op.utilization.items() if getattr(named(unit), kind)), default=None)


def _stalled(op: OpInfo) -> float | None:
    return _over(op.dma_stall_s, op.time_s)


def _predicted(op: OpInfo) -> float | None:
    return op.expected.time_s if op.expected else None


def _bytes(op: OpInfo) -> float | None:
    return op.bytes.get(HBM.name, 0)


def _bandwidth(op: OpInfo) -> float | None:
    return op.bandwidth.get(HBM.name, 0.0 if op.time_s and HBM.name not in op.bytes else None)


OF_OPS = (
    _op("id", COUNT, "number of the op in the report", title="number", on_page=False),
    _op("rank", COUNT, "position by time, longest first"),
    _op("label op", TEXT, "where the op is in the model, what it does, its shapes and number format", title="operation", header="op"),
    _op("name", TEXT, "name of the op in the compiled program or the profile"),
    _op("category", TEXT, "kind of operation"),
    _op("program module", TEXT, "compiled program that the op belongs to", key="module"),
    _op("scope", TEXT, "named scope in the model, such as layer0/attn"),
    _op("location source", TEXT, "file and line of the source code"),
    _op("phase", TEXT, "forward or backward pass, where known"),
    _op("count", COUNT, "executions"),
    _op("kernels", COUNT, "kernel launches"),
    _row("per_step", "s", "kernel time in one step on one device: mean over the averaged steps", key="step_s", title="time per step"),
    _op("time", "s", "kernel time, summed over executions and devices (device-seconds)", key="time_s"),
    _op(
        "self self_time",
        "s",
        "time without that of nested ops and overlap with earlier events on the stream",
        key="self_time_s",
        title="self time",
    ),
    _row("share", SHARE, "self time / self time of all ops in the chosen steps and on the chosen devices"),
    _row("cumulative", SHARE, "share of this op and all longer ones together", title="cumulative share"),
    _row("time_share", SHARE, "time / time of all ops in the chosen steps and on the chosen devices", title="share of total time"),
    _op("mean", "s", "time / executions", lambda op: _over(op.time_s, op.count), key="average_s", title="average time"),
    _op("mean_self", "s", "self time / executions", lambda op: _over(op.own_s, op.count), key="average_self_s", title="average self time"),
    _op("stalled", SHARE, "share of the time in which the core of a TPU waits for DMA", _stalled, key="dma_stall", title="stalled by DMA"),
    _row("per_device", "s", "time / devices that the op ran on", key="device_time_s", title="time per device"),
    _op("bound", HARDWARE, "what takes longest: a compute unit, a memory level, a link, or the latency of a launch", title="bound by"),
    _op(
        "efficiency",
        SHARE,
        "minimum time / time; above 100%, check the count and the ceiling; with ≤ the cost is an upper bound",
        title="roofline efficiency",
    ),
    _op("minimum floor", "s", "roofline bound: the longest time on any unit, with full overlap", key="floor_s", title="minimum time"),
    _op("serial", "s", "sum of the times on all units, with no overlap", key="serial_s", title="serial time"),
    _op("expected", "s", "how long such ops take on this chip, from measurements", _predicted, key="predicted_s", title="expected time"),
    _op("excess", "s", "self time above the interval of the expected time", key="excess_s", title="excess time"),
    _op("lost", "s", "self time above the minimum time of the needed work", key="lost_s", title="time lost"),
    _op("flops work flop", "FLOP", "floating-point operations; a multiply-add is 2, transcendentals apart", title="work", header="work"),
    _op("achieved rate", "FLOP/s", "work / time", key="rate"),
    _row("needed_rate", "FLOP/s", "work that the model needed / time", title="needed FLOP/s"),
    _row(
        "unneeded", SHARE, "share of the work, else of the bytes, that the model did not need", key="unneeded_share", title="unneeded work"
    ),
    _op("attainable optimal", "FLOP/s", "the highest FLOP/s that the ceilings allow: work / minimum time"),
    _op("bytes", "B", "bytes over the selected memory level or link, else over main memory", _bytes),
    _op("bandwidth", "B/s", "achieved bandwidth: bytes / time", _bandwidth),
    _op("intensity", INTENSITY, "arithmetic intensity: work / bytes", header="FLOP/B"),
    _row("bound_intensity", INTENSITY, "work / bytes over the level or link that takes longest", title="intensity at the bottleneck"),
    _op("ridge", INTENSITY, "peak FLOP/s over bandwidth: with a higher intensity an op is compute-bound", title="ridge point"),
    _op("unit", HARDWARE, "compute unit with the longest time"),
    _op("dtype format", TEXT, "number format with the longest time on that unit", title="number format"),
    _op("compute_utilization", SHARE, "share of peak FLOP/s, of the busiest compute unit", _busiest("is_compute")),
    _op("memory_utilization", SHARE, "share of peak bandwidth, of the busiest memory level", _busiest("is_memory")),
    _op("roof", TEXT, "the roofs that limit the op", key="roofs", title="roofs", on_page=False),
    _op("unrated", TEXT, "resources that the op uses but the chip has no rate for", on_page=False),
    _op("level", TEXT, "memory levels and links that its bytes cross", lambda op: tuple(op.bytes), title="levels", on_page=False),
    _op("note", TEXT, "caveats on the op and on how it was counted", key="notes", title="notes", on_page=False),
)


class OfReport(Named, frozen=True, kw_only=True):
    """A quantity of a report: the sum of ``part`` over its ops, else what it has ``of`` the whole, else a ``ratio`` of two sums.

    Amounts are those of one step on one device. ``whole`` ones cannot be asked of some ops. ``measured`` ones need a run on a device. A
    percentage of one that is a share ``of_step`` refers to the step. ``missing`` is why a report may not have it.
    """

    aliases: tuple[str, ...] = ()
    part: Callable[[OpInfo], Number | None] | None = None
    of: Callable[[Report], Number | None] | None = None
    ratio: tuple[str, str] | None = None
    missing: str = "not known for any op"
    whole: bool = False
    measured: bool = False
    of_step: bool = False

    @property
    def explained_by(self) -> str:
        """The quantity whose parts by op explain one of the whole."""
        if self.ratio:
            return "lost"
        return "time" if self.measured and not self.of_step else ""


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
    known = (report.coverage.run_s, report.total.time_s if report.total else None)
    one_device_s = report.coverage.wall_s if len(report.input.devices) < 2 else None  # else it is in device-seconds
    return next((seconds for seconds in (*known, one_device_s) if seconds is not None), None)


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
    return OfReport(name, "s", meaning, part=part, missing=missing, measured=True, **more)


OF_REPORTS = (
    _whole("step", "s", "time of the average step, else of the run", _of_point("time_s"), NOT_MEASURED, aliases=("step time",)),
    _whole("run", "s", "wall clock of the run", run_s, NOT_MEASURED, aliases=("run time",)),
    _sum_measured("time", "measured time of the ops", lambda op: None if op.time_s is None else op.weight_s),
    _sum("minimum time", "s", "minimum time of the ops", attrgetter("floor_s"), aliases=("minimum", "floor")),
    _sum("expected step", "s", "expected time of a step, with idle time where that is predicted", _expected, whole=True),
    _sum("expected time", "s", "expected, else minimum time of the ops", _expected, aliases=("expected",)),
    _sum_measured(
        "excess",
        "time of the ops above their expected times",
        attrgetter("excess_s"),
        "no measured times, or no predictions for this chip",
        of_step=True,
    ),
    _sum_measured("lost", "self time of the ops above the minimum time of their needed work", attrgetter("lost_s"), of_step=True),
    _whole(
        "exposed",
        "s",
        "time of a predicted step in which the core waits for collectives and copies",
        lambda report: sum(op.exposed_s for op in report.ops) if report.predicted else None,
        "no predicted step",
        of_step=True,
    ),
    _whole("idle", "s", PARTS[IDLE].meaning, _idle, NOT_MEASURED, of_step=True),
    _sum("flops", "FLOP", "floating-point operations", known_flops, aliases=("flop", "work")),
    _whole("peak memory", "B", "the most that is in main memory at once", _of_memory("peak_bytes"), NO_MEMORY, aliases=("memory",)),
    _whole("donated memory", "B", "arguments whose memory outputs take over", _of_memory("donated"), NO_MEMORY),
    _sum("launches", COUNT, "kernels, or executions where kernels are not known", launches, aliases=("kernels",)),
    _sum("ops", COUNT, "distinct ops", lambda op: 1),
    _sum("executions", COUNT, "executions of ops", attrgetter("count"), aliases=("count",)),
    _sum("fusions", COUNT, "ops that are fusions", lambda op: int("fusion" in f"{op.category} {op.name}")),
    _whole("findings", COUNT, "findings of any kind", lambda report: len(report.findings), ""),
    _whole("mfu", SHARE, "model FLOP utilization: matrix FLOP that the model needs, over the peak", _of_point("mfu"), NOT_MEASURED),
    _whole("hfu", SHARE, "hardware FLOP utilization: the same of all that ran", _of_point("hfu"), NOT_MEASURED),
    OfReport(
        *("efficiency", SHARE, "minimum time over measured time"),
        of=_of_point("efficiency"),
        ratio=("minimum time", "time"),
        missing=NOT_MEASURED,
        measured=True,
    ),
    OfReport("intensity", INTENSITY, "work over bytes of main memory", ratio=("flops", HBM.name)),
)

OP = {quantity.name: quantity for quantity in OF_OPS}
OP_ALIASES = {alias: quantity.name for quantity in OF_OPS for alias in quantity.aliases}
REPORT = {quantity.name: quantity for quantity in OF_REPORTS}
REPORT_ALIASES = {alias: quantity.name for quantity in OF_REPORTS for alias in quantity.aliases}
