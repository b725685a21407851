"""What the page embeds beside reports: the catalogue of chips, and the names, units, headings and fallbacks that Python defines."""

from collections.abc import Iterable
from functools import lru_cache

import msgspec

from ...causes import PARTS
from ...errors import UNSAFE
from ...grouping import KEYS
from ...grouping.op_filter import ALIASES, DEEPEST, NUMBERS, PAGE_FIELDS, TEXTS
from ...machine import FALLBACKS, LACKING, LATENCY, LATENCY_TIMES, LAUNCH_LATENCY_S, PROVENANCES, TPU_FALLBACKS, TPU_UNITS
from ...quantities import COUNT, HARDWARE, NOTABLE, OF_OPS, OP, SHARE, TEXT, OfOp
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

Column = tuple[str, str, str, str]


def _column(quantity: OfOp) -> Column:
    """A column of a table on the page: key of a row, heading, how a cell is written, and what it means."""
    return quantity.key, quantity.title, _KINDS.get(quantity.unit, quantity.unit), quantity.meaning


# How a cell is written: as an amount with its dimension, or as one of these; ``ratio`` is that of two amounts.
_KINDS = {TEXT: "text", HARDWARE: "unit", COUNT: "number", SHARE: "share"}
OPS = tuple(_column(quantity) for quantity in OF_OPS if quantity.on_page)
_WORK, _ACHIEVED, _BYTES, _BANDWIDTH, _INTENSITY, _CATEGORY, _PROGRAM = (
    _column(OP[name]) for name in ("flops", "achieved", "bytes", "bandwidth", "intensity", "category", "program")
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
_TITLES = {quantity.key: quantity.title for quantity in OF_OPS} | {"name": "name without number"}
GROUPINGS = tuple((key, _TITLES[key]) for key in KEYS)
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
                "numbers": {name: (quantity.unit, quantity.of_total, quantity.key) for name, quantity in NUMBERS.items()},
                "texts": {name: quantity.key for name, quantity in TEXTS.items()},
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
            "notable_change": NOTABLE,
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
