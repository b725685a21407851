"""Tables of ops: CSV, JSON, JSON Lines or Parquet, for people with counters or a spreadsheet of their own.

One row an op, amounts as totals over its executions. Quantities may carry their unit (``"12 GB"``, ``"3.1 ms"``) or the column may
(``time [ms]``); a bare number is in base units. Columns, all optional but ``name``:

    name category module scope location phase   words
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
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ..cost import Cost
from ..dtypes import dtype
from ..errors import RooflineError, SourceError, did_you_mean
from ..machine import Machine
from ..resource import HBM, MEMORY_UNITS, UNNAMED_WORK, Resource, named
from ..units import parse
from ..workload import COST_PROVENANCES, Coverage, Op, Recording, Share, Workload
from .rows import PARQUET_MAGIC, Cell, rows_of

WORDS = ("name", "category", "module", "scope", "location", "phase")
NUMBERS = ("count", "kernels")
TIMES = ("time", "self_time")
PLAIN = (*WORDS, *NUMBERS, *TIMES, "flops", "bytes", "unit", "dtype", "provenance", "step", "device")
ALIASES = {
    "op": "name",
    "kernel": "name",
    "operation": "name",
    "time_s": "time",
    "self_time_s": "self_time",
    "duration": "time",
    "flop": "flops",
}
# What an exported table says besides: answers, not input.
ANSWERS = (
    *("id", "rank", "rate", "intensity", "ridge", "attainable", "floor_s", "serial_s", "expected_s", "bound", "efficiency"),
    *("work_provenance", "bytes_provenance", "steps", "devices"),
)
UNKNOWN = ("?", "unknown", "null", "none", "n/a", "nan")
_HEADER = re.compile(r"(?P<name>.+?)\s*[\[(]\s*(?P<unit>[^\])]*?)\s*[\])]\s*\Z")
_DEFAULT_DTYPE = "bf16"


class Column(Struct, frozen=True):
    """A column understood: which field or resource it is, and the unit its header gives to bare numbers."""

    header: str
    field: str
    resource: Resource | None = None
    unit: str = ""


Columns = dict[str, Column]  # by field


def sniff(head: bytes, path: Path) -> bool:
    """Parquet by its magic, JSON by its first bracket, CSV by a header line that names a column we know."""
    if head.startswith(PARQUET_MAGIC):
        return True
    text = head.decode("utf-8-sig", "replace").lstrip()
    if text[:1] in ("[", "{"):
        return True
    first = text.partition("\n")[0]
    headers = [_plain(header) for header in re.split(r"[,;\t]", first)]
    return b"\0" not in head and any(header in ("name", *ALIASES) for header in headers)


def read(path: Path, target: Machine | None = None) -> Recording:
    """A table as a recording; errors name the row and the column."""
    rows = list(rows_of(path))
    if not rows:
        raise SourceError(f"{path}: the table has no rows")
    found, ignored = _columns(dict.fromkeys(header for row in rows for header in row), path)
    columns = {column.field: column for column in found}
    fields = columns.keys()
    if "name" not in fields:
        raise SourceError(f"{path}: no column 'name'; found {', '.join(repr(str(h)) for h in list(rows[0])[:8])}")
    if not any(column.resource or column.field in ("flops", "bytes", "time") for column in columns.values()):
        raise SourceError(f"{path}: no column with a time, FLOP or bytes; add 'time', 'flops', 'bytes' or a resource such as 'matrix/bf16'")
    ops = []
    for number, row in enumerate(rows, start=1):
        try:
            ops.append(_op(row, columns))
        except RooflineError as error:
            raise SourceError(f"{path}: row {number}: {error}") from None
    notes = [f"ignored columns: {', '.join(ignored)}"] if ignored else []
    named = any(column.resource and column.resource.is_arithmetic for column in columns.values())
    bare = sum(1 for row in rows if "flops" in fields and not named and not _word(row, columns, "dtype"))
    if bare:
        notes.append(f"{bare} of {len(rows)} rows have FLOP but no dtype; assuming {_DEFAULT_DTYPE}")
    if fields & {"step", "device"}:
        ops = _merge(ops)
    return Recording(workload=Workload(tuple(ops)), format="table", files=(str(path),), coverage=_coverage(ops), notes=tuple(notes))


def _plain(header: str) -> str:
    match = _HEADER.match(header.strip().strip('"'))
    name = (match["name"] if match else header.strip().strip('"')).lower().replace(" ", "_")
    return ALIASES.get(name, name)


def _columns(headers: Iterable[str], path: Path) -> tuple[list[Column], list[str]]:
    """The columns understood, and the headers of the others. A header close to a known one is a misspelling, and an error."""
    columns, ignored = [], []
    for header in headers:
        name, match = _plain(header), _HEADER.match(header)
        unit = match["unit"] if match else ""
        if name in ANSWERS or ":" in name:  # bandwidth:hbm and the like
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
    """Whether a header is a resource: a compute unit with a format, or a memory level or link people measure."""
    unit, _, kind = name.partition("/")
    if unit in ("matrix", "vector"):
        return bool(kind)
    if kind not in ("", "hop") or not re.fullmatch(r"[a-z0-9._]+", unit):
        return False
    return unit.removesuffix(".read").removesuffix(".write") in MEMORY_UNITS or Resource(name).is_link


def _op(row: Mapping[str, Cell], columns: Columns) -> Op:
    name = _word(row, columns, "name")
    if not name:
        raise SourceError("no name")
    numbers = {field: _number(row, columns, field, "1") for field in NUMBERS}
    provenance = _word(row, columns, "provenance") or "user"
    if provenance not in COST_PROVENANCES:
        raise SourceError(f"unknown provenance {provenance!r}; use one of {', '.join(COST_PROVENANCES)}")
    time_s = _number(row, columns, "time", "s")
    count = 1 if numbers["count"] is None else numbers["count"]
    shares = {field: _share(row, columns, field, count, time_s) for field in ("step", "device")}
    return Op(
        name=name,
        category=_word(row, columns, "category"),
        module=_word(row, columns, "module"),
        scope=_word(row, columns, "scope"),
        location=_word(row, columns, "location"),
        phase=_word(row, columns, "phase"),
        cost=_cost(row, columns),
        count=count,
        kernels=numbers["kernels"],
        time_s=time_s,
        self_time_s=_number(row, columns, "self_time", "s"),
        work_provenance=provenance,
        bytes_provenance=provenance,
        by_step=shares["step"],
        by_device=shares["device"],
    )


def _cost(row: Mapping[str, Cell], columns: Columns) -> Cost:
    """The cost of a row. A table without any arithmetic column leaves the arithmetic unknown; likewise the bytes."""
    amounts: dict[Resource, float | None] = {}
    for column in columns.values():
        if column.resource is None:
            continue
        cell = row.get(column.header, "")
        blank = isinstance(cell, str) and not cell.strip()
        amounts[column.resource] = 0.0 if blank else _quantity(cell, column, column.resource.measure)
    if not any(resource.is_arithmetic for resource in amounts):  # else 'flops' repeats their sum
        work = _work_resource(row, columns) if "flops" in columns else UNNAMED_WORK
        amounts[work] = _number(row, columns, "flops", "FLOP")
    if "bytes" in columns or not any(resource.measure == "B" for resource in amounts):
        if "bytes" in columns and HBM in amounts:
            raise SourceError("'bytes' and 'hbm' are both main-memory traffic; keep one")
        amounts[HBM] = _number(row, columns, "bytes", "B")
    return Cost.of(amounts)


def _work_resource(row: Mapping[str, Cell], columns: Columns) -> Resource:
    unit = _word(row, columns, "unit") or "matrix"
    if unit not in ("matrix", "vector"):
        raise SourceError(f"unit {unit!r} is not a compute unit; write 'matrix' or 'vector'")
    return named(f"{unit}/{dtype(_word(row, columns, 'dtype') or _DEFAULT_DTYPE).rate}")


def _cell(row: Mapping[str, Cell], columns: Columns, field: str) -> tuple[Cell, Column | None]:
    column = columns.get(field)
    return (row.get(column.header), column) if column else (None, None)


def _word(row: Mapping[str, Cell], columns: Columns, field: str) -> str:
    cell, _ = _cell(row, columns, field)
    return "" if cell is None else str(cell).strip()


def _number(row: Mapping[str, Cell], columns: Columns, field: str, dimension: str) -> float | None:
    cell, column = _cell(row, columns, field)
    return _quantity(cell, column, dimension) if column else None


def _quantity(cell: Cell, column: Column, dimension: str) -> float | None:
    """A cell in base units; ``None`` for an empty one or one that says unknown."""
    if cell is None or (isinstance(cell, str) and cell.strip().lower() in ("", *UNKNOWN)):
        return None
    if isinstance(cell, float) and cell != cell:  # NaN is how data frames write a missing number
        return None
    text = f"{cell} {column.unit}" if column.unit and re.fullmatch(r"[-+\d.,_eE]+", str(cell).strip()) else cell
    try:
        return parse(text, dimension)
    except RooflineError as error:
        raise SourceError(f"column {column.header!r}: {error}") from None


def _share(row: Mapping[str, Cell], columns: Columns, field: str, count: float, time_s: float | None) -> tuple[Share, ...]:
    key = _number(row, columns, field, "1")
    return () if key is None else (Share(key=int(key), count=count, time_s=time_s or 0.0),)


def _merge(ops: list[Op]) -> list[Op]:
    """One op out of the rows that differ only in step or device."""
    merged: dict[tuple[str, ...], Op] = {}
    for op in ops:
        key = (op.module, op.scope, op.name, op.category, op.location)
        merged[key] = _add(merged[key], op) if key in merged else op
    return list(merged.values())


def _add(first: Op, second: Op) -> Op:
    return replace(
        first,
        cost=first.cost + second.cost,
        count=first.count + second.count,
        kernels=_both(first.kernels, second.kernels),
        time_s=_both(first.time_s, second.time_s),
        self_time_s=_both(first.self_time_s, second.self_time_s),
        by_step=_shares(first.by_step + second.by_step),
        by_device=_shares(first.by_device + second.by_device),
    )


def _both(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first + second


def _shares(shares: tuple[Share, ...]) -> tuple[Share, ...]:
    total: dict[int, Share] = {}
    for share in shares:
        had = total.get(share.key)
        total[share.key] = replace(had, count=had.count + share.count, time_s=had.time_s + share.time_s) if had else share
    return tuple(total[key] for key in sorted(total))


def _coverage(ops: Iterable[Op]) -> Coverage:
    """A table has no clock, only durations: their sum stands for busy time, and wall time is unknown."""
    timed = [op for op in ops if op.time_s is not None]
    if not timed:
        return Coverage()
    seconds = [(op.self_time_s if op.self_time_s is not None else op.time_s or 0.0, op.priced) for op in timed]
    busy = sum(second for second, _ in seconds)
    return Coverage(busy_s=busy, attributed_s=busy, priced_s=sum(second for second, priced in seconds if priced))
