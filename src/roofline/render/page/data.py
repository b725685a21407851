"""What the page embeds beside reports: the catalogue of chips, and the names, units, headings and fallbacks that Python defines."""

from collections.abc import Iterable
from functools import lru_cache

import msgspec

from ...analysis.summary import NOTABLE
from ...causes import PARTS
from ...checking.op_filter import ALIASES, DEEPEST, NUMBERS, PAGE_FIELDS, TEXTS
from ...errors import UNSAFE
from ...machine import FALLBACKS, LACKING, LATENCY, LATENCY_TIMES, LAUNCH_LATENCY_S, PROVENANCES, TPU_FALLBACKS, TPU_UNITS
from ...report import CeilingInfo, MachineInfo
from ...resource import COMPUTE_UNITS, CROSS_LANE_UNITS, LINK_UNITS, MEMORY_UNITS
from ...selection import NUMBERING
from ...units import BINARY, DECIMAL, EXAMPLES, UNITS
from ...workload import AUTOTUNING, FEEDS, UPPER_BOUND
from ..counters import DIFFERS
from ..export import COLUMNS
from ..geometry import title
from ..time_bar import SHOWN
from .terms import TERMS, UNNEEDED

# Columns of the page's tables: key of a row, heading, how a cell is written (a dimension, or one of text, unit, number, share, ratio),
# and what it means.
_WORK = ("flops", "work", "FLOP", "arithmetic, excluding transcendentals")
_ACHIEVED = ("rate", "achieved", "FLOP/s", "work / time")
_BYTES = ("bytes", "bytes", "B", "bytes over the selected memory level or link")
_BANDWIDTH = ("bandwidth", "bandwidth", "B/s", "achieved bandwidth: bytes / time")
_INTENSITY = ("intensity", "intensity", "FLOP/B", "arithmetic intensity: work / bytes")
_CATEGORY = ("category", "category", "text", "kind of operation")
_PROGRAM = ("module", "program", "text", "compiled program that the op belongs to")
OPS = (
    ("rank", "rank", "number", "position by time, longest first"),
    ("label", "operation", "text", "where the op is in the model, what it does, its shapes and number format"),
    ("name", "name", "text", "name of the op in the compiled program or the profile"),
    _CATEGORY,
    _PROGRAM,
    ("scope", "scope", "text", "named scope in the model"),
    ("location", "location", "text", "file and line of the source code"),
    ("phase", "phase", "text", "forward or backward pass, where known"),
    ("count", "count", "number", "executions"),
    ("kernels", "kernels", "number", "kernel launches"),
    ("step_s", "time per step", "s", "kernel time in one step on one device: mean over the steps of the average step"),
    ("time_s", "time", "s", "kernel time, summed over executions and devices (device-seconds)"),
    ("self_time_s", "self time", "s", "time excluding nested ops and overlap with earlier events on the stream"),
    ("share", "share", "share", "self time / self time of all ops in the chosen steps and on the chosen devices"),
    ("cumulative", "cumulative share", "share", "share of this op and all longer ones together"),
    ("time_share", "share of total time", "share", "time / time of all ops in the chosen steps and on the chosen devices"),
    ("average_s", "average time", "s", "time / executions"),
    ("average_self_s", "average self time", "s", "self time / executions"),
    ("dma_stall", "stalled by DMA", "share", "share of the time in which the core of a TPU waits for asynchronous copies"),
    ("device_time_s", "time per device", "s", "time / devices that the op ran on"),
    ("bound", "bound by", "unit", "the unit with the longest time, or latency"),
    (
        "efficiency",
        "roofline efficiency",
        "share",
        "minimum time / time; above 100%, check the count and the ceiling; with ≤ the cost is an upper bound",
    ),
    ("floor_s", "minimum time", "s", "roofline bound: the longest time on any unit, with full overlap"),
    ("serial_s", "serial time", "s", "sum of the times on all units, with no overlap"),
    ("lost_s", "time lost", "s", "self time above the minimum time of the needed work"),
    _WORK,
    _ACHIEVED,
    ("needed_rate", "needed FLOP/s", "FLOP/s", "work that the model needed / time"),
    ("unneeded_share", "unneeded work", "share", "share of the work, or of the bytes of an op without FLOP, that the model did not need"),
    ("attainable", "attainable", "FLOP/s", "work / minimum time"),
    _BYTES,
    _BANDWIDTH,
    _INTENSITY,
    ("bound_intensity", "intensity at the bottleneck", "FLOP/B", "work / bytes over the memory level or link that takes longest"),
    ("ridge", "ridge point", "FLOP/B", "arithmetic intensity from which the op is compute-bound"),
    ("unit", "unit", "unit", "compute unit with the longest time"),
    ("dtype", "number format", "text", "number format with the longest time on that unit"),
    ("compute_utilization", "compute utilization", "share", "share of peak FLOP/s, of the busiest compute unit"),
    ("memory_utilization", "memory utilization", "share", "share of peak bandwidth, of the busiest memory level"),
)
# Columns of every memory level and link that the report has, and of what counters saw; {} is its name.
LEVELS = (
    ("bandwidth", "{} bandwidth", "B/s", "bytes over {} / time"),
    ("intensity", "{} intensity", "FLOP/B", "work / bytes over {}"),
)
COUNTED = (
    ("counted", "{} counted", "", "amount measured by hardware counters: {}"),
    ("ratio", "{} counted / modelled", "ratio", "counted / modelled: {}; above 1, more was moved or computed than the program needs"),
)
PROGRAM = (
    ("name", "part", "text", "the whole program, hardware counters, the average step or one step"),
    ("time_s", "time", "s", "wall time including idle time, mean over devices; a step lasts until the next one starts on the device"),
    ("slowest_s", "slowest device", "s", "wall time on the slowest device"),
    ("span_s", "device span", "s", "from the first device work to the last, mean over devices"),
    ("busy_s", "busy", "s", "time in which at least one op ran, mean over devices"),
    ("device_seconds", "device-seconds", "s", "wall time summed over devices"),
    _WORK,
    _ACHIEVED,
    _BYTES,
    _BANDWIDTH,
    _INTENSITY,
    ("bound", "bound by", "unit", "the unit with the longest time"),
    ("floor_s", "minimum if overlapped", "s", "roofline bound of all the work if all ops overlapped"),
    ("efficiency", "roofline efficiency", "share", "minimum if all ops overlapped / time"),
    ("op_efficiency", "per-op roofline", "share", "the ops' minimum times / time, where ops that overlap share the time in which they ran"),
    ("peak_share", "compute utilization", "share", "share of peak FLOP/s, of the busiest compute unit"),
    ("memory_utilization", "memory utilization", "share", "share of peak bandwidth, of the busiest memory level"),
    ("link_utilization", "link utilization", "share", "share of peak bandwidth, of the busiest link"),
)
DIFFERENCES = (
    ("label", "operation", "text", "where the op is in the model and what it does, or the category where ops were matched by category"),
    ("before_floor_s", "minimum before", "s", "minimum time before"),
    ("after_floor_s", "minimum after", "s", "minimum time after"),
    ("floor_change_s", "change of minimum", "s", "minimum time after minus before; negative is less"),
    ("before_s", "before", "s", "self time before"),
    ("after_s", "after", "s", "self time after"),
    ("change_s", "change", "s", "after minus before; negative is faster"),
    ("share", "share of change", "share", "share of the total change; negative if it goes the other way"),
    ("speedup", "speedup", "ratio", "time before / time after"),
    ("before_flops", "work before", "FLOP", "known FLOP before"),
    ("after_flops", "work after", "FLOP", "known FLOP after"),
    ("before_hbm", "hbm before", "B", "known main-memory bytes before"),
    ("after_hbm", "hbm after", "B", "known main-memory bytes after"),
    ("before_launches", "launches before", "number", "kernel launches before"),
    ("after_launches", "launches after", "number", "kernel launches after"),
    ("before_efficiency", "efficiency before", "share", "roofline efficiency before"),
    ("after_efficiency", "efficiency after", "share", "roofline efficiency after"),
    ("before_bound", "bound before", "unit", "what bounded the op before"),
    ("after_bound", "bound after", "unit", "what bounds the op after"),
    ("name", "name", "text", "name of the op, or the category where ops were matched by category"),
    _CATEGORY,
    _PROGRAM,
    ("matched", "matched by", "text", "how ops of the two runs were matched"),
)
GROUPINGS = (  # of `grouping.KEYS`
    ("category", "category"),
    ("scope", "scope"),
    ("location", "location"),
    ("name", "name without number"),
    ("module", "program"),
    ("phase", "phase"),
    ("dtype", "number format"),
    ("unit", "unit"),
    ("bound", "bound"),
)
FILTER_EXAMPLES = (  # of the filter language, as the page offers them
    ("fusion", "the name or the scope contains this text, ignoring case"),
    ('"layer norm"', "the name or the scope contains this phrase"),
    ("layer*/attn", "the scope is this one, or below it"),
    ("/^fusion\\.\\d+$/i", "the name or the scope matches a regular expression"),
    ("efficiency<0.5", "compare numbers with < <= > >= = !=; 50% is 0.5"),
    ("time>1%", "percentage of the total; also self, minimum, lost, flops, bytes, count"),
    ("flops>1G bytes<2MB time>=10us", "values take units and prefixes; all conditions must hold"),
    ("category:fusion", "the field contains this text; also bound, dtype, unit, scope, phase, program, location"),
    ("bound=hbm,l2", "the field equals one of these values; none means no value"),
    ("step:3 device:0", "the op ran in this step, on this device"),
    ("-copy or not (bound=hbm)", "and, or, not, - and parentheses"),
)
POINTS = {
    "total": "whole program",
    "hardware": "hardware counters",
    "average": "average step",
    "step": "step",
    "before": "before the first step",
}
NOTABLE_CHANGE = 0.01  # of the time: smaller changes of an op have no arrow on the chart of two runs
LONGEST_CITATION = 48  # letters: the page says where a figure comes from, the catalogue says it in full


def catalogue_json(machines: Iterable[MachineInfo]) -> bytes:
    """The machines as compact JSON: names, launch latency, and every ceiling with its provenance and the first of its sources.

    A ceiling is ``[resource, rate, number of its source]``; the ``sources`` are pairs of provenance and citation, which many share.
    """
    sources: dict[tuple[str, str], int] = {}
    chips = [_machine(one, sources) for one in machines]
    return msgspec.json.encode({"sources": list(sources), "chips": chips})


@lru_cache(maxsize=1)
def vocabulary_json() -> bytes:
    """What the page would otherwise have to define a second time, as compact JSON."""
    kinds = {"compute": COMPUTE_UNITS, "cross-lane": CROSS_LANE_UNITS, "link": LINK_UNITS, "memory": MEMORY_UNITS, "": (LATENCY,)}
    return msgspec.json.encode(
        {
            "units": {unit: (title(unit), kind) for kind, units in kinds.items() for unit in units},
            "fallbacks": FALLBACKS,
            "tpu_fallbacks": TPU_FALLBACKS,
            "tpu_units": TPU_UNITS,
            "lacking": LACKING,
            "provenances": PROVENANCES,
            "latency": {"launch_s": LAUNCH_LATENCY_S, "times": LATENCY_TIMES},
            "quantities": UNITS,
            "prefixes": {**DECIMAL, **BINARY},
            "numbering": NUMBERING,
            "unsafe": UNSAFE,
            "feeds": FEEDS,
            "autotuning": AUTOTUNING,
            "upper_bound": UPPER_BOUND,
            "filter": {
                "numbers": {name: (dimension, whole) for name, (_, dimension, whole) in NUMBERS.items()},
                "texts": tuple(TEXTS),
                "page_fields": PAGE_FIELDS,
                "aliases": ALIASES,
                "deepest": DEEPEST,
                "examples": EXAMPLES,
                "help": FILTER_EXAMPLES,
            },
            "columns": {"ops": OPS, "program": PROGRAM, "differences": DIFFERENCES, "levels": LEVELS, "counted": COUNTED},
            "groupings": GROUPINGS,
            "points": POINTS,
            "causes": PARTS,
            "notable_loss": NOTABLE,
            "named_share": SHOWN,
            "unneeded": UNNEEDED,
            "terms": TERMS,
            "notable_change": NOTABLE_CHANGE,
            "counters_differ": DIFFERS,
            "csv": COLUMNS,
        }
    )


def _machine(one: MachineInfo, sources: dict[tuple[str, str], int]) -> dict[str, object]:
    return {
        "name": one.name,
        "title": one.title,
        "kind": one.kind,
        "matrix_unit": one.matrix_unit,
        "launch_latency_s": one.launch_latency_s,
        "ceilings": [_ceiling(each, sources) for each in one.ceilings],
    }


def _ceiling(one: CeilingInfo, sources: dict[tuple[str, str], int]) -> tuple[str, float, int]:
    return one.resource, one.rate, sources.setdefault((one.provenance, _short(one.citation)), len(sources))


def _short(citation: str) -> str:
    """The name of the first source, without the place in it."""
    first = citation.split(";")[0].split(",")[0].strip()
    return first if len(first) <= LONGEST_CITATION else f"{first[: LONGEST_CITATION - 1].rstrip()}…"
