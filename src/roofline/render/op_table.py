"""The table of ops: which columns there are, and how a cell of each is written.

A column is one of `COLUMNS`, or is made from a resource: ``hbm`` is its amount, ``hbm/s`` its rate by the op's own time, ``flop/hbm`` the
intensity over it, ``counted:hbm`` what hardware counters measured.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from ..errors import UnitError, UsageError, did_you_mean
from ..grouping.folding import TableRows
from ..quantities import CLOSE, COUNT, FAR, INTENSITY, OP, OP_ALIASES, SHARE, TEXT, OfOp, known_flops
from ..report import Expected, OpInfo, Report
from ..resource import CROSS_LANE_UNITS, MEMORY_UNITS, Resource
from ..units import percent, plain, show
from ..workload import is_upper_bound
from .tables import PLAIN, Cell, Paper, table

TIMED = ("label", "time", "share", "bound", "efficiency", "lost")
UNTIMED = ("label", "minimum", "share", "bound", "flops", "hbm")
COMPILED = ("label", "expected", "minimum", "share", "bound", "flops", "hbm")  # of a program whose compiler estimated its own ops
PER_STEP = ("count", "kernels", "time", "self", "minimum", "serial", "lost", "flops")  # columns that are per step where there are steps
PHASES = {"forward": "fwd", "backward": "bwd"}
OFTEN = 1.5  # executions (per step where there are steps) from which a label shows their number
NOTHING = "–"


class Context(Struct, frozen=True, kw_only=True):
    """What a cell needs besides its own op: the time that shares are of, and where each op ran.

    ``twofold`` are labels shared by rows of several phases.
    """

    whole_s: float
    twofold: frozenset[str]
    steps: Mapping[int, str]
    devices: Mapping[int, str]


Write = Callable[[OpInfo, Context], str | Cell]


class Column(Struct, frozen=True):
    """A column: its header and how it formats a cell; text is left-aligned."""

    header: str
    write: Write
    words: bool = False


def _share(op: OpInfo, context: Context) -> str:
    return percent(op.weight_s / context.whole_s) if context.whole_s else NOTHING


def _interval(expected: Expected) -> str:
    return f"{show(expected.low_s, 's')} to {show(expected.high_s, 's')}"


def _counted(op: OpInfo, context: Context) -> str:
    counters = op.counters
    return NOTHING if counters is None else "all" if counters.launches is None else f"{counters.launches:,} of {counters.of:,}"


def label(op: OpInfo, *, phase: bool = False) -> str:
    """The label of an op, with its ``phase`` if requested, and its number of executions."""
    often = plain(op.count, 3) if op.count >= OFTEN else ""
    parts = [op.label or op.name, PHASES.get(op.phase, op.phase) if phase else "", f"×{often}" if often else ""]
    return "  ".join(filter(None, parts))


def _at_least(amount: float | None, known: float, unit: str) -> str:
    """An amount; if it is not fully known, its known part."""
    return f"≥ {show(known, unit)}" if amount is None and known else show(amount, unit)


def _cell(quantity: OfOp) -> Write:
    """How the cell of a quantity is written."""
    of, unit = quantity.of, quantity.unit
    assert of
    if not quantity.is_number:
        return lambda op, context: _words(of(op))
    if unit == SHARE:
        return lambda op, context: percent(of(op))
    if unit in (COUNT, INTENSITY):
        return lambda op, context: plain(value) if (value := of(op)) or (value == 0 and unit == COUNT) else NOTHING
    return lambda op, context: show(value, unit) if (value := of(op)) is not None else NOTHING


def _words(value: str | Sequence[str] | None) -> str:
    return (value if isinstance(value, str) else ", ".join(value or ())) or NOTHING


# Cells that say more than their quantity, and columns that are none: where a cost comes from, where an op ran.
_CELLS: Mapping[str, Write] = {
    "rank": lambda op, context: str(op.rank),
    "label": lambda op, context: label(op, phase=op.label in context.twofold),
    "share": _share,
    "flops": lambda op, context: _at_least(op.flops, known_flops(op), "FLOP"),
    "minimum": lambda op, context: show(op.floor_s, "s") if op.times else NOTHING,
    "serial": lambda op, context: show(op.serial_s, "s") if op.times else NOTHING,
    "efficiency": lambda op, context: efficiency_cell(op.efficiency, is_upper_bound(op.notes)),
    "interval": lambda op, context: _interval(op.expected) if op.expected else NOTHING,
    "from": lambda op, context: "/".join(dict.fromkeys(op.provenance.values())) or NOTHING,
    "counted": _counted,
    "steps": lambda op, context: context.steps.get(op.id, NOTHING),
    "devices": lambda op, context: context.devices.get(op.id, NOTHING),
}
COLUMNS: Mapping[str, Column] = {
    **{
        name: Column(quantity.header or name, _CELLS.get(name) or _cell(quantity), quantity.unit == TEXT)
        for name, quantity in OP.items()
        if quantity.of or name in _CELLS
    },
    **{name: Column(name, write) for name, write in _CELLS.items() if name not in OP},
}
ALIASES = {"step": "steps", "device": "devices", **OP_ALIASES}


def column(name: str) -> Column:
    """A column by its name, or one made from a resource."""
    word = ALIASES.get(name, name)
    made = COLUMNS.get(word) or _of_resource(word)
    if made is None:
        hint = did_you_mean(word, COLUMNS) or f"; columns: {', '.join(COLUMNS)}; for a resource: hbm, hbm/s, flop/hbm, counted:hbm"
        raise UsageError(f"no column named {name!r}{hint}")
    return made


def _of_resource(word: str) -> Column | None:
    """A column about one resource; ``None`` for a word that names none."""
    counted, intensity, rate = word.startswith("counted:"), word.startswith("flop/"), word.endswith("/s")
    resource = _known(word.removeprefix("counted:") if counted else word.removeprefix("flop/") if intensity else word.removesuffix("/s"))
    if resource is None:
        return None
    if counted:
        return Column(f"counted {resource}", lambda op, context: _amount(_counted_amounts(op), resource))
    if intensity:
        return Column(f"FLOP/B {resource}", lambda op, context: _plain(op.intensities.get(resource.name)))
    if rate:
        return Column(f"{resource} {resource.per}", lambda op, context: _rate(op, resource))
    return Column(resource.name, lambda op, context: _amount(op.amounts, resource, op.known))


def _known(name: str) -> Resource | None:
    """A known resource; an unknown memory name is treated as a misspelling."""
    try:
        resource = Resource(name)
    except UnitError:
        return None
    is_known = resource.is_compute or resource.is_link or resource.unit.partition(".")[0] in (*MEMORY_UNITS, *CROSS_LANE_UNITS)
    return resource if is_known else None


def _counted_amounts(op: OpInfo) -> dict[str, float | None]:
    return {**op.counters.work, **op.counters.bytes} if op.counters else {}


def _mine(amounts: Mapping[str, float | None], resource: Resource) -> list[float | None]:
    """All traffic of a resource: ``vmem`` sums reads and writes."""
    return [amount for name, amount in amounts.items() if name == resource.name or name.startswith(f"{resource.name}.")]


def _amount(amounts: Mapping[str, float | None], resource: Resource, known: Mapping[str, float | None] = {}) -> str:
    mine = _mine(amounts, resource)
    if not mine:
        return NOTHING
    whole = sum(amount or 0 for amount in mine)
    return _at_least(None if None in mine else whole, whole + sum(amount or 0 for amount in _mine(known, resource)), resource.measure)


def _rate(op: OpInfo, resource: Resource) -> str:
    mine = _mine(op.amounts, resource)
    if not mine or None in mine or not op.time_s:
        return NOTHING
    return show(sum(amount or 0 for amount in mine) / op.time_s, resource.per)


def _plain(number: float | None) -> str:
    return NOTHING if number is None else plain(number)


def ops_text(report: Report, table_of: TableRows, paper: Paper = PLAIN, top: int = 20, columns: Sequence[str] = ()) -> str:
    """The first ``top`` rows of a table of ops, in these columns; nothing for none."""
    if not table_of.rows:
        return "no op matches these filters" if report.ops else ""
    if not top:
        return ""
    names = list(columns) or usual_columns(report)
    # Leading text columns are left-aligned.
    left = next((place for place, name in enumerate(names) if not column(name).words), len(names))
    labels = [place for place, name in enumerate(names) if ALIASES.get(name, name) in ("label", "name")]
    cells, heads = op_cells(report, table_of, names, top), headers(names, table_of.per)
    if table_of.order and heads[0] == COLUMNS["label"].header:
        heads[0] += f", by {table_of.order}"
    return table(heads, cells, paper, left=max(left, 1), elastic=(labels or [0])[0]) + more(len(table_of.rows) - top)


def headers(names: Sequence[str], per: str = "") -> list[str]:
    """The headers of these columns, with a mark on those that are per step."""
    with_headers = [(ALIASES.get(name, name), column(name).header) for name in names]
    return [f"{header}/{per}" if per and (name in PER_STEP or _is_amount(name)) else header for name, header in with_headers]


def _is_amount(name: str) -> bool:
    """Whether a column is the amount of a resource."""
    return name not in COLUMNS and name not in ALIASES and not name.startswith("flop/") and not name.endswith("/s")


def usual_columns(report: Report) -> list[str]:
    """The default columns."""
    if any(op.time_s for op in report.ops):
        return list(TIMED)
    return list(COMPILED if any(op.compiled and op.compiled.cycles for op in report.ops) else UNTIMED)


def op_cells(report: Report, table_of: TableRows, names: Sequence[str], top: int) -> list[list[str | Cell]]:
    """The cells of the first ``top`` rows of a table of ops."""
    shown = list(table_of.rows[:top])
    phases: dict[str, set[str]] = {op.label: set() for op in shown}
    for op in table_of.rows:
        if op.label in phases:
            phases[op.label].add(op.phase)
    context = Context(
        whole_s=table_of.whole_s,
        twofold=frozenset(op_label for op_label, found in phases.items() if len(found) > 1),
        steps=places((share.op, share.step) for share in report.by_step) if {"step", "steps"} & {*names} else {},
        devices=places((share.op, share.device) for share in report.by_device) if {"device", "devices"} & {*names} else {},
    )
    chosen = [column(name) for name in names]
    return [[one.write(op, context) for one in chosen] for op in shown]


def places(shares: Iterable[tuple[int, int]]) -> dict[int, str]:
    """Where each op ran, from pairs of an op and a step or device."""
    found: dict[int, list[int]] = {}
    for op, key in shares:
        found.setdefault(op, []).append(key)
    return {op: ranges(keys) for op, keys in found.items()}


def ranges(keys: Iterable[int]) -> str:
    """Whole numbers with consecutive ones as ranges.

    >>> ranges([4, 0, 1, 2, 7, 8])
    '0-2 4 7-8'
    """
    runs: list[list[int]] = []
    for key in sorted(set(keys)):
        if runs and key == runs[-1][1] + 1:
            runs[-1][1] = key
        else:
            runs.append([key, key])
    return " ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def more(left: int) -> str:
    """The line about rows that a table leaves out."""
    return f"\n… and {left:,} more; show them with --top, --json or --csv" if left > 0 else ""


def efficiency_cell(efficiency: float | None, upper_bound: bool = False) -> Cell:
    """An efficiency, coloured by how close it is to 1; above 1 is suspect. An ``upper_bound`` is coloured only where it is low."""
    if efficiency is None:
        return Cell(percent(None))
    style = "red" if efficiency < FAR else "" if upper_bound else "yellow" if efficiency > 1 else "green" if efficiency >= CLOSE else ""
    return Cell(efficiency_text(efficiency, upper_bound), style)


def efficiency_text(efficiency: float | None, upper_bound: bool = False) -> str:
    """An efficiency for people; that of a cost that is an ``upper_bound`` is one too, and at most 100%.

    >>> efficiency_text(0.72), efficiency_text(0.72, upper_bound=True), efficiency_text(1.3, upper_bound=True)
    ('72%', '≤ 72%', '≤ 100%')
    """
    return f"≤ {percent(min(efficiency, 1.0))}" if upper_bound and efficiency is not None else percent(efficiency)
