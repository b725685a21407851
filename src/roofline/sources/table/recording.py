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
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import cast

from msgspec import Struct, field
from msgspec.structs import replace

from ...cost import Cost, sum_or_unknown
from ...dtypes import dtype
from ...errors import RooflineError, SourceError, did_you_mean, excerpt
from ...machine import Machine
from ...resource import CROSS_LANE_UNITS, HBM, MEMORY_UNITS, UNNAMED_WORK, Resource, named
from ...units import parse, parse_plain
from ...workload import COST_PROVENANCES, Coverage, Op, Recording, Share, StepsOnDevice, Workload
from .columns import PARQUET_MAGIC, Cell, columns_of

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
    """A known column: its field or resource, and the unit in its header, which applies to bare numbers."""

    header: str
    field: str
    resource: Resource | None = None
    unit: str = ""


Columns = dict[str, Column]  # by field


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
    cells = columns_of(path, _holds_numbers)
    count = len(next(iter(cells.values()), ()))
    if not count:
        raise SourceError(f"{path}: the table has no rows")
    found, ignored = _columns(cells, path)
    columns = {column.field: column for column in found}
    fields = columns.keys()
    if "name" not in fields:
        raise SourceError(f"{path}: no column 'name'; found {', '.join(repr(str(h)) for h in list(cells)[:8])}")
    if not any(column.resource or column.field in ("flops", "bytes", "time") for column in columns.values()):
        raise SourceError(f"{path}: no column with a time, FLOP or bytes; add 'time', 'flops', 'bytes' or a resource such as 'matrix/bf16'")
    table = Table(cells, columns, count)
    ops = _ops(table)
    if table.errors:
        number, error = min(table.errors, key=lambda one: one[0])
        raise SourceError(f"{path}: row {number}: {error}")
    notes = [f"ignored columns: {', '.join(ignored)}"] if ignored else []
    named = any(column.resource and column.resource.is_arithmetic for column in columns.values())
    if "flops" in fields and not named and (bare := _without_format(table)):
        notes.append(f"{bare:,} of {count:,} rows have FLOP but no dtype; assuming {_DEFAULT_DTYPE}")
    if fields & {"step", "device"}:
        ops = _merge(ops)
    return Recording(workload=Workload(ops), format="table", files=(str(path),), coverage=_coverage(ops), notes=tuple(notes))


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


def _columns(headers: Iterable[str], path: Path) -> tuple[list[Column], list[str]]:
    """The known columns, and the headers of the others. A header that is nearly a known one is taken for a misspelling: an error."""
    columns, ignored = [], []
    for header in headers:
        name, (_, unit) = _plain(header), _name_and_unit(header)
        if name in RESULTS or ":" in name:  # bandwidth:hbm and the like
            continue
        if name in PLAIN:
            columns.append(Column(header, name, unit=unit))
        elif _is_resource(name):
            columns.append(Column(header, name, Resource(name), unit))
        elif hint := did_you_mean(name, [known for known in PLAIN if known not in ("unit", "step", "device")]):
            raise SourceError(f"{path}: unknown column {header!r}{hint}")
        else:
            ignored.append(header)
    twice = [column.field for column in columns]
    if doubled := sorted({field for field in twice if twice.count(field) > 1}):
        raise SourceError(f"{path}: more than one column gives {', '.join(doubled)}")
    return columns, ignored


def _is_resource(name: str) -> bool:
    """Whether a header is a resource: a compute unit with a format, a memory level, or a link."""
    unit, _, kind = name.partition("/")
    if unit in ("matrix", "vector"):
        return bool(kind)
    if kind not in ("", "hop") or not re.fullmatch(r"[a-z0-9._]+", unit):
        return False
    return unit.removesuffix(".read").removesuffix(".write") in (*MEMORY_UNITS, *CROSS_LANE_UNITS) or Resource(name).is_link


def _holds_numbers(header: str) -> bool:
    """Whether the cells of a column are quantities in base units."""
    name, (_, unit) = _plain(header), _name_and_unit(header)
    return not unit and (name in QUANTITIES or (name not in (*PLAIN, *RESULTS) and ":" not in name and _is_resource(name)))


class Table(Struct, frozen=True):
    """The cells of a table by header, its columns by field, and the errors found: the number of the row, and the message."""

    cells: Mapping[str, Sequence[Cell]]
    columns: Columns
    count: int
    errors: list[tuple[int, str]] = field(default_factory=list)

    def words(self, name: str) -> list[str]:
        """A column of text; empty texts if the table has no such column."""
        column = self.columns.get(name)
        if column is None:
            return [""] * self.count
        cells = self.cells[column.header]
        if {*map(type, cells)} != {str}:
            cells = ["" if cell is None else str(cell) for cell in cells]
        return list(cast(Sequence[str], cells))

    def numbers(self, name: str, dimension: str) -> list[float | None]:
        """A column of quantities in base units; ``None`` if a cell is empty or unknown, or the table has no such column."""
        column = self.columns.get(name)
        if column is None:
            return [None] * self.count
        cells = self.cells[column.header]
        return _plain_numbers(cells, column) or self._quantities(cells, column, dimension)

    def amounts(self, column: Column, resource: Resource) -> list[float | None]:
        """The column of a resource, in which an empty cell is 0."""
        cells = self.cells[column.header]
        if (plain := _plain_numbers(cells, column)) is not None:
            return plain
        numbers = self._quantities(cells, column, resource.measure)
        return [0.0 if isinstance(cell, str) and not cell.strip() else number for cell, number in zip(cells, numbers, strict=True)]

    def _quantities(self, cells: Sequence[Cell], column: Column, dimension: str) -> list[float | None]:
        """Cells in base units; an invalid cell is reported once, for its first row."""
        if {*map(type, cells)} != {str}:
            return [self._number(row, cell, column, dimension) for row, cell in enumerate(cells, start=1)]
        words = cast(Sequence[str], cells)
        numbers = parse_plain(words, dimension, column.unit)
        known: dict[str, float | None] = {}
        for place in [place for place, number in enumerate(numbers) if number is None]:
            word = words[place]
            if word not in known:
                known[word] = self._number(place + 1, word, column, dimension)
            numbers[place] = known[word]
        return numbers

    def _number(self, row: int, cell: Cell, column: Column, dimension: str) -> float | None:
        try:
            return _quantity(cell, column, dimension)
        except RooflineError as error:
            self.errors.append((row, f"column {column.header!r}: {error}"))
            return None


def _plain_numbers(cells: Sequence[Cell], column: Column) -> list[float | None] | None:
    """The numbers of a column that has only bare numbers, which is the fast and usual case; else ``None``."""
    types = {*map(type, cells)}
    if column.unit or not types <= {int, float, str}:
        return None
    try:
        numbers = cast(list[float], cells) if types == {float} else list(map(float, cells))  # type: ignore[arg-type]  # none is None
    except (ValueError, OverflowError):
        return None
    # A NaN makes the sum NaN, for which the comparison is false.
    return cast(list[float | None], numbers) if min(numbers, default=0) >= 0 and sum(numbers) < INFINITE else None


def _without_format(table: Table) -> int:
    """The number of rows that have FLOP and no number format."""
    formats = table.words("dtype")
    return (
        sum(1 for flops, number in zip(table.numbers("flops", "FLOP"), formats, strict=True) if flops and not number)
        if "" in formats
        else 0
    )


def _ops(table: Table) -> tuple[Op, ...]:
    """The ops of a table."""
    words = [table.words(word) for word in WORDS]
    counts = [1 if count is None else count for count in table.numbers("count", "1")]
    times = table.numbers("time", "s")
    steps, devices = (_parts(table, place, counts, times) for place in ("step", "device"))
    provenances = [word or "user" for word in table.words("provenance")]
    costs = _costs(_amounts(table), table.count)
    if not all(words[0]):
        table.errors.append((words[0].index("") + 1, "no name"))
    for wrong in {*provenances} - {*COST_PROVENANCES}:
        known = ", ".join(COST_PROVENANCES)
        table.errors.append((provenances.index(wrong) + 1, f"unknown provenance {wrong!r}; use one of {known}"))
    numbers = (counts, table.numbers("kernels", "1"), times, table.numbers("self_time", "s"))
    return tuple(
        [
            Op(
                name=name,
                category=category,
                module=module,
                scope=scope,
                location=location,
                phase=phase,
                cost=cost,
                count=count,
                kernels=kernels,
                time_s=time_s,
                self_time_s=self_time_s,
                by_step=step,
                by_device=device,
                work_provenance=provenance,
                bytes_provenance=provenance,
            )
            for name, category, module, scope, location, phase, cost, count, kernels, time_s, self_time_s, step, device, provenance in zip(
                *words, costs, *numbers, steps, devices, provenances, strict=True
            )
        ]
    )


def _parts(table: Table, place: str, counts: Sequence[float], times: Sequence[float | None]) -> list[tuple[Share, ...]]:
    """The step or the device of each row, with its executions and time."""
    if place not in table.columns:
        return [()] * table.count
    return [
        () if key is None else (Share(key=int(key), count=count, time_s=time_s or 0.0),)
        for key, count, time_s in zip(table.numbers(place, "1"), counts, times, strict=True)
    ]


def _costs(amounts: Mapping[Resource, Sequence[float | None]], count: int) -> list[Cost]:
    """The cost of each row; rows with equal amounts share one."""
    resources = tuple(amounts)
    known: dict[tuple[float | None, ...], Cost] = {}
    costs = []
    for row in zip(*amounts.values(), strict=True) if amounts else [()] * count:
        cost = known.get(row)
        if cost is None:
            used = tuple([(resource, amount) for resource, amount in zip(resources, row, strict=True) if amount])
            unknown = [resource for resource, amount in zip(resources, row, strict=True) if amount is None] if None in row else ()
            cost = known[row] = Cost(used, frozenset(unknown))
        costs.append(cost)
    return costs


def _amounts(table: Table) -> dict[Resource, list[float | None]]:
    """The amounts on each resource. Without a column for arithmetic, the arithmetic is unknown; likewise for bytes."""
    columns = table.columns
    amounts = {column.resource: table.amounts(column, column.resource) for column in columns.values() if column.resource is not None}
    if "bytes" in columns or not any(resource.measure == "B" for resource in amounts):
        if "bytes" in columns and HBM in amounts:
            table.errors.append((1, "'bytes' and 'hbm' are both main-memory traffic; keep one"))
        amounts[HBM] = table.numbers("bytes", "B")
    if not any(resource.is_arithmetic for resource in amounts):  # else 'flops' repeats their sum
        flops = table.numbers("flops", "FLOP")
        units, formats = table.words("unit"), table.words("dtype")
        known = _work_resources(table, units, formats) if "flops" in columns else {("", ""): UNNAMED_WORK}
        resources = {*known.values()}
        for resource in resources:
            rows = zip(units, formats, flops, strict=True)
            amounts[resource] = (
                flops if len(resources) == 1 else [amount if known[unit, kind] == resource else 0.0 for unit, kind, amount in rows]
            )
    return {resource: amounts[resource] for resource in sorted(amounts)}


def _work_resources(table: Table, units: Sequence[str], formats: Sequence[str]) -> dict[tuple[str, str], Resource]:
    """The resource that does the arithmetic, for each pair of unit and dtype in the table."""
    known = {}
    for unit, number in dict.fromkeys(zip(units, formats, strict=True)):
        try:
            known[unit, number] = _work_resource(unit or "matrix", number or _DEFAULT_DTYPE)
        except RooflineError as error:
            row = next(row for row, words in enumerate(zip(units, formats, strict=True), 1) if words == (unit, number))
            table.errors.append((row, str(error)))
            known[unit, number] = UNNAMED_WORK
    return known


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
    number = parse(text, dimension)
    if number == INFINITE:
        raise SourceError(f"{excerpt(str(cell))} is infinite; leave the cell empty if it is unknown")
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
    known_s, priced_s = (sum(_own_s(op) for op in some) for some in (timed, [op for op in timed if op.priced]))
    return Coverage(busy_s=known_s, attributed_s=known_s, priced_s=priced_s)


def _own_s(op: Op) -> float:
    """The self time of an op, or its time."""
    return (op.time_s if op.self_time_s is None else op.self_time_s) or 0.0
