"""Tables of ops: CSV, JSON, JSON Lines or Parquet, for counters and spreadsheets of the user's own.

One row per op, amounts as totals over its executions. Quantities may carry their unit (``"12 GB"``, ``"3.1 ms"``) or the column may
(``time [ms]``); a bare number is in base units. Columns, all optional but ``name``:

    name category module scope location phase   text
    count kernels                           how often it ran, and how many kernels that took
    time self_time                          measured seconds
    flops [with unit and dtype]             arithmetic on ``unit`` (matrix) in ``dtype`` (bf16)
    bytes                                   bytes of main memory
    matrix/fp8, l2, nvlink, ici/hop, …      the amount on any resource, by its name (then ``flops`` is only their sum)
    provenance                              where the amounts come from: user, counter, …
    step device                             rows of one op in several steps or on several devices are added up

In ``time``, ``flops`` and ``bytes`` an empty cell is unknown; in a resource's own column it is 0, and ``?`` or null is unknown.
"""

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from ...cost import Amount, Cost, sum_or_unknown
from ...dtypes import dtype
from ...errors import RooflineError, SourceError, did_you_mean, excerpt
from ...machine import Machine
from ...resource import CROSS_LANE_UNITS, HBM, MEMORY_UNITS, UNNAMED_WORK, Resource, named
from ...units import parse
from ...workload import COST_PROVENANCES, Coverage, Op, Recording, Share, StepsOnDevice, Workload
from .rows import PARQUET_MAGIC, Cell, rows_of

WORDS = ("name", "category", "module", "scope", "location", "phase")
NUMBERS = ("count", "kernels")
SAME_OP = ("module", "scope", "name", "category", "location")  # rows that agree in these are of one op
TIMES = ("time", "self_time")
QUANTITIES = (*NUMBERS, *TIMES, "flops", "bytes", "step", "device")
PLAIN = (*WORDS, *QUANTITIES, "unit", "dtype", "provenance")
ALIASES = {
    "op": "name",
    "kernel": "name",
    "operation": "name",
    "time_s": "time",
    "self_time_s": "self_time",
    "duration": "time",
    "flop": "flops",
}
# Columns of exported tables that are results of an analysis: ignored without a note.
RESULTS = (
    *("id", "rank", "rate", "intensity", "ridge", "attainable", "floor_s", "serial_s", "expected_s", "bound", "efficiency"),
    *("label", "lost_s"),
    *("work_provenance", "bytes_provenance", "steps", "devices"),
)
UNKNOWN = ("?", "unknown", "null", "none", "n/a", "nan")
_DEFAULT_DTYPE = "bf16"
INFINITE = float("inf")
_TIME_AND_UNIT = re.compile(r"((?:self_)?time|duration)_([nuµm]s)", re.IGNORECASE)


class Column(Struct, frozen=True):
    """A known column: its place and header, its field or resource, and the unit in its header, which applies to bare numbers."""

    place: int
    header: str
    field: str
    resource: Resource | None = None
    unit: str = ""


def sniff(head: bytes, path: Path) -> bool:
    """Parquet by its magic, JSON by its first bracket, CSV by a header line with a name or a common quantity."""
    if head.startswith(PARQUET_MAGIC):
        return True
    text = head.decode("utf-8-sig", "replace").lstrip()
    if text[:1] in ("[", "{"):
        return True
    first = text.partition("\n")[0]
    headers = [_plain(header) for header in re.split(r"[,;\t]", first)]
    return b"\0" not in head and not {"name", *TIMES, "flops", "bytes"}.isdisjoint(headers)


def read(path: Path, target: Machine | None = None) -> Recording:
    """A table as a recording; errors name the row and the column."""
    headers, rows = rows_of(path)
    if not headers:
        raise SourceError(f"{path}: the table has no rows")
    columns, ignored = _columns(headers, path)
    fields = columns.keys()
    if "name" not in fields:
        raise SourceError(f"{path}: no column 'name'; found {', '.join(repr(str(h)) for h in headers[:8])}")
    if not any(column.resource or column.field in ("flops", "bytes", "time") for column in columns.values()):
        raise SourceError(f"{path}: no column with a time, FLOP or bytes; add 'time', 'flops', 'bytes' or a resource such as 'matrix/bf16'")
    if {"bytes", HBM.name} <= fields:
        raise SourceError(f"{path}: 'bytes' and 'hbm' are both main-memory traffic; keep one")
    table, ops = Table(columns), list[Op]()
    for number, cells in enumerate(rows, 1):
        try:
            ops.append(table.op(cells))
        except RooflineError as error:
            raise SourceError(f"{path}: row {number}: {error}") from None
    if not ops:
        raise SourceError(f"{path}: the table has no rows")
    notes = [f"ignored columns: {', '.join(ignored)}"] if ignored else []
    if table.without_format:
        notes.append(f"{table.without_format:,} of {len(ops):,} rows have FLOP but no dtype; assuming {_DEFAULT_DTYPE}")
    merged = _merge(ops) if fields & {"step", "device"} else tuple(ops)
    return Recording(workload=Workload(merged), format="table", files=(str(path),), coverage=_coverage(merged), notes=tuple(notes))


def _plain(header: str) -> str:
    name = _name_and_unit(header.strip().strip('"'))[0].lower().replace(" ", "_")
    return ALIASES.get(name, name)


def _name_and_unit(header: str) -> tuple[str, str]:
    """A header without the unit in brackets at its end, or of a time after an underscore, and the unit.

    >>> _name_and_unit("time [ms]"), _name_and_unit("bytes"), _name_and_unit("read (l2) (GB)"), _name_and_unit("time_us")
    (('time', 'ms'), ('bytes', ''), ('read (l2)', 'GB'), ('time', 'us'))
    """
    text = header.rstrip()
    if time := _TIME_AND_UNIT.fullmatch(text):
        return time[1], time[2].lower()
    if text.endswith(("]", ")")):
        inside = text[:-1]
        after = max(1, inside.rfind("]") + 1, inside.rfind(")") + 1)
        begins = [place for place in (inside.find("[", after), inside.find("(", after)) if place > 0]
        if begins:
            return inside[: min(begins)].rstrip(), inside[min(begins) + 1 :].strip()
    return header, ""


def _columns(headers: Iterable[str], path: Path) -> tuple[dict[str, Column], list[str]]:
    """The known columns by field, and the headers of the others. One that is nearly a known header is a misspelling: an error."""
    columns: list[Column] = []
    ignored = []
    for place, header in enumerate(headers):
        name, (_, unit) = _plain(header), _name_and_unit(header)
        if name in RESULTS or ":" in name:  # bandwidth:hbm and the like
            continue
        if name in PLAIN:
            columns.append(Column(place, header, name, unit=unit))
        elif _is_resource(name):
            columns.append(Column(place, header, name, Resource(name), unit))
        elif hint := did_you_mean(name, [known for known in PLAIN if known not in ("unit", "step", "device")]):
            raise SourceError(f"{path}: unknown column {header!r}{hint}")
        else:
            ignored.append(header)
    twice = [column.field for column in columns]
    if doubled := sorted({field for field in twice if twice.count(field) > 1}):
        raise SourceError(f"{path}: more than one column gives {', '.join(doubled)}")
    return {column.field: column for column in columns}, ignored


def _is_resource(name: str) -> bool:
    """Whether a header is a resource: a compute unit with a format, a memory level, or a link."""
    unit, _, kind = name.partition("/")
    if unit in ("matrix", "vector"):
        return bool(kind)
    if kind not in ("", "hop") or not re.fullmatch(r"[a-z0-9._]+", unit):
        return False
    return unit.removesuffix(".read").removesuffix(".write") in (*MEMORY_UNITS, *CROSS_LANE_UNITS) or Resource(name).is_link


class Table(Struct):
    """The columns of a table, by field; ``without_format`` counts the rows that have FLOP and no number format."""

    columns: Mapping[str, Column]
    without_format: int = 0
    resources: list[Column] = field(default_factory=list)
    names_arithmetic: bool = False

    def __post_init__(self) -> None:
        self.resources = [column for column in self.columns.values() if column.resource is not None]
        self.names_arithmetic = any(column.resource is not None and column.resource.is_arithmetic for column in self.resources)

    def op(self, cells: Sequence[Cell]) -> Op:
        """The op of a row."""
        name = self.word(cells, "name")
        if not name:
            raise SourceError("no name")
        count, time_s = self.number(cells, "count", "1"), self.number(cells, "time", "s")
        provenance = self.word(cells, "provenance") or "user"
        if provenance not in COST_PROVENANCES:
            raise SourceError(f"unknown provenance {provenance!r}; use one of {', '.join(COST_PROVENANCES)}")
        return Op(
            name=name,
            category=self.word(cells, "category"),
            module=self.word(cells, "module"),
            scope=self.word(cells, "scope"),
            location=self.word(cells, "location"),
            phase=self.word(cells, "phase"),
            cost=self.cost(cells),
            count=1 if count is None else count,
            kernels=self.number(cells, "kernels", "1"),
            time_s=time_s,
            self_time_s=self.number(cells, "self_time", "s"),
            by_step=self.share(cells, "step", count, time_s),
            by_device=self.share(cells, "device", count, time_s),
            work_provenance=provenance,
            bytes_provenance=provenance,
        )

    def word(self, cells: Sequence[Cell], name: str) -> str:
        """A cell of text, equal ones as one object; empty if the table has no such column."""
        column = self.columns.get(name)
        cell = "" if column is None else cells[column.place]
        return sys.intern(cell) if isinstance(cell, str) else "" if cell is None else str(cell)

    def number(self, cells: Sequence[Cell], name: str, dimension: str) -> float | None:
        """A quantity in base units; ``None`` if the cell is empty or unknown, or the table has no such column."""
        column = self.columns.get(name)
        return None if column is None else _quantity(cells[column.place], column, dimension)

    def share(self, cells: Sequence[Cell], name: str, count: float | None, time_s: float | None) -> tuple[Share, ...]:
        """The step or the device of a row, with its executions and time."""
        key = self.number(cells, name, "1")
        return () if key is None else (Share(key=int(key), count=1 if count is None else count, time_s=time_s or 0.0),)

    def cost(self, cells: Sequence[Cell]) -> Cost:
        """The cost of a row. Without a column for arithmetic, the arithmetic is unknown; likewise for bytes."""
        amounts: dict[Resource, Amount | None] = {}
        for column in self.resources:
            cell = cells[column.place]
            assert column.resource is not None
            amounts[column.resource] = 0 if cell == "" else _quantity(cell, column, column.resource.measure)
        if "bytes" in self.columns or not any(resource.measure == "B" for resource in amounts):
            amounts[HBM] = self.number(cells, "bytes", "B")
        if not self.names_arithmetic:  # else 'flops' repeats their sum
            number, flops = self.word(cells, "dtype"), self.number(cells, "flops", "FLOP")
            self.without_format += bool(flops and not number)
            known = "flops" in self.columns
            amounts[_work_resource(self.word(cells, "unit") or "matrix", number or _DEFAULT_DTYPE) if known else UNNAMED_WORK] = flops
        return Cost.of(amounts)


@lru_cache(maxsize=1_000)  # rows repeat their formats
def _work_resource(unit: str, number: str) -> Resource:
    if unit not in ("matrix", "vector"):
        raise SourceError(f"unit {unit!r} is not a compute unit; write 'matrix' or 'vector'")
    return named(f"{unit}/{dtype(number).rate}")


def _quantity(cell: Cell, column: Column, dimension: str) -> float | None:
    """A cell in base units; ``None`` if it is empty or unknown."""
    if not column.unit and type(cell) in (str, int, float):
        try:
            number = float(cell)  # type: ignore[arg-type]  # it is not None
        except (ValueError, OverflowError):
            pass
        else:
            if 0 <= number < INFINITE:
                return number
    if cell is None or (isinstance(cell, str) and cell.strip().lower() in ("", *UNKNOWN)):
        return None
    if isinstance(cell, float) and cell != cell:  # NaN is how data frames write a missing number
        return None
    text = f"{cell} {column.unit}" if column.unit and re.fullmatch(r"[-+\d.,_eE]+", str(cell).strip()) else cell
    try:
        number = parse(text, dimension)
    except RooflineError as error:
        raise SourceError(f"column {column.header!r}: {error}") from None
    if number == INFINITE:
        raise SourceError(f"column {column.header!r}: {excerpt(str(cell))} is infinite; leave the cell empty if it is unknown")
    return number


def _merge(ops: Sequence[Op]) -> tuple[Op, ...]:
    """Merges the rows that differ only in step or device into one op each."""
    same: dict[tuple[str, ...], list[Op]] = {}
    for op in ops:
        same.setdefault(tuple([getattr(op, name) for name in SAME_OP]), []).append(op)
    several = len({share.key for op in ops for share in op.by_device}) > 1
    return tuple([_sum(rows, several) for rows in same.values()])


def _sum(rows: Sequence[Op], several: bool) -> Op:
    """The rows of one op added up. ``several`` is whether the table has more than one device."""
    if len(rows) == 1 and not several:
        return rows[0]
    return replace(
        rows[0],
        cost=Cost.total(op.cost for op in rows),
        count=sum(op.count for op in rows),
        kernels=sum_or_unknown([op.kernels for op in rows]),
        time_s=sum_or_unknown([op.time_s for op in rows]),
        self_time_s=sum_or_unknown([op.self_time_s for op in rows]),
        by_step=_shares(chain.from_iterable(op.by_step for op in rows)),
        by_device=_shares(chain.from_iterable(op.by_device for op in rows)),
        by_step_and_device=_on_devices(rows) if several else (),
    )


def _shares(shares: Iterable[Share]) -> tuple[Share, ...]:
    """Shares added up by their keys."""
    counts: dict[int, float] = {}
    times: dict[int, float] = {}
    for share in shares:
        counts[share.key] = counts.get(share.key, 0) + share.count
        times[share.key] = times.get(share.key, 0.0) + share.time_s
    return tuple([Share(key=key, count=counts[key], time_s=times[key]) for key in sorted(counts)])


def _on_devices(rows: Sequence[Op]) -> tuple[StepsOnDevice, ...]:
    """The share of an op in each step on each device, from its rows that have both."""
    parts: dict[int, list[Share]] = {}
    for op in rows:
        for on in op.by_device:
            parts.setdefault(on.key, []).extend(op.by_step)
    return tuple(_on_device(device, _shares(shares)) for device, shares in sorted(parts.items()) if shares)


def _on_device(device: int, shares: tuple[Share, ...]) -> StepsOnDevice:
    return StepsOnDevice(
        device=device,
        steps=tuple(share.key for share in shares),
        counts=tuple(share.count for share in shares),
        times_s=tuple(share.time_s for share in shares),
    )


def _coverage(ops: Sequence[Op]) -> Coverage:
    """The coverage of a table. It has durations but no start times: their sum is taken as busy time, and wall time is unknown."""
    timed = [op for op in ops if op.time_s is not None]
    if not timed:
        return Coverage()
    known_s, priced_s = (sum(op.own_s for op in some) for some in (timed, [op for op in timed if op.priced]))
    return Coverage(busy_s=known_s, attributed_s=known_s, priced_s=priced_s)
