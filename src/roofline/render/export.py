"""Reports as data: JSON by the contract, CSV and Parquet with one row per op.

The CSV and the Parquet file name a column after each resource, so that `roofline analyze` reads them back as tables. A column with a colon
in its name (``bandwidth:hbm``, ``intensity:hbm``, ``counted:hbm``) is a result, and is not read back.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec

from ..errors import MissingExtra
from ..grouping import Group
from ..report import OpInfo, Report, written_op
from .op_table import places

Row = dict[str, "Any"]
COLUMNS = (
    *("id", "rank", "label", "name", "category", "module", "scope", "location", "phase"),
    *("count", "kernels", "time_s", "self_time_s", "unit", "dtype", "flops", "rate", "intensity", "ridge"),
    *("attainable", "floor_s", "serial_s", "expected_s", "bound", "efficiency", "lost_s"),
)
_OWN = attrgetter(*COLUMNS)
PROVENANCES = {"work_provenance": "work", "bytes_provenance": "bytes"}
PLACES = ("steps", "devices")
GROUP_COLUMNS = ("key", "count", "time_s", "self_time_s", "priced_s", "flops", "floor_s", "serial_s", "bound", "efficiency")


ROWS_AT_ONCE = 1000  # rows that are built before they are written
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")


def to_json(value: object) -> bytes:
    """A value as JSON, in the order of its fields, ending in a newline."""
    value = _as_written(value)
    try:
        encoded = msgspec.json.encode(value, enc_hook=_encoded)
    except UnicodeEncodeError:  # a file name that is not UTF-8
        encoded = msgspec.json.encode(_encodable(msgspec.to_builtins(value, enc_hook=_plain)))
    return msgspec.json.format(encoded, indent=1) + b"\n"


def _as_written(value: object) -> object:
    """A value in which ops are written with their ratios."""
    if isinstance(value, Report):
        return {**msgspec.structs.asdict(value), "ops": _Written(value.ops)}
    if isinstance(value, OpInfo):
        return written_op(value)
    return _Written(value) if isinstance(value, tuple | list) and value and isinstance(value[0], OpInfo) else value


class _Written:
    """The ops of a report, which are written with their ratios."""

    def __init__(self, ops: Sequence[OpInfo]) -> None:
        self.ops = ops


def _encoded(value: _Written | Fraction) -> msgspec.Raw | float:
    """Values that msgspec cannot encode. Ops are encoded a part at a time: with their ratios, all at once could take gigabytes."""
    if isinstance(value, Fraction):
        return _number(value)
    parts = (value.ops[start : start + ROWS_AT_ONCE] for start in range(0, len(value.ops), ROWS_AT_ONCE))
    return msgspec.Raw(b"[" + b",".join([msgspec.json.encode([*map(written_op, part)])[1:-1] for part in parts]) + b"]")


def _plain(value: _Written | Fraction) -> list[Any] | float:
    return _number(value) if isinstance(value, Fraction) else [msgspec.to_builtins(written_op(op)) for op in value.ops]


def _number(value: Fraction) -> float:
    return value.numerator if value.denominator == 1 else float(value)


def _encodable(value: Any) -> Any:
    """A value with a question mark for each unpaired surrogate in its strings."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_encodable(key): _encodable(inner) for key, inner in value.items()}
    return [_encodable(inner) for inner in value] if isinstance(value, list | tuple) else value


def op_rows(ops: Sequence[OpInfo], report: Report | None = None) -> list[Row]:
    """One row per op: its own fields, a column for each resource that any op uses, then its rates, intensities and counters over each.

    Unknown is ``None``. With a ``report``, there are also columns of the steps and devices in which the op ran, such as ``0-2 4``.
    """
    levels = sorted({*chain.from_iterable(op.bytes for op in ops)})
    resources = sorted({*levels, *chain.from_iterable((*op.work, *op.hops) for op in ops)})
    counted = sorted({name for op in ops if op.counters for name in (*op.counters.work, *op.counters.bytes)})
    steps = places((share.op, share.step) for share in report.by_step) if report else {}
    devices = places((share.op, share.device) for share in report.by_device) if report else {}
    rows = []
    for op in ops:
        row, bandwidth, intensities = _op_cells(op, resources), op.bandwidth, op.intensities
        row |= {f"bandwidth:{level}": bandwidth.get(level) for level in levels}
        row |= {f"intensity:{level}": intensities.get(level) for level in levels}
        if counted:
            row |= _counter_cells(op, counted)
        if report:
            row |= {"steps": steps.get(op.id, ""), "devices": devices.get(op.id, "")}
        rows.append(row)
    return rows


def _op_cells(op: OpInfo, resources: Sequence[str]) -> Row:
    """The fields of an op, the provenance of its counts, and its amount of each resource."""
    row = dict(zip(COLUMNS, _OWN(op), strict=True))
    for name, key in PROVENANCES.items():
        row[name] = op.provenance.get(key, "")
    amounts = op.amounts
    for resource in resources:
        row[resource] = amounts.get(resource, 0)
    return row


def _counter_cells(op: OpInfo, resources: Sequence[str]) -> Iterator[tuple[str, Any]]:
    counters = op.counters
    yield "counted:launches", counters.launches if counters else None
    yield "counted:of", counters.of if counters else None
    yield "counted:time_s", counters.time_s if counters else None
    amounts = {**counters.work, **counters.bytes} if counters else {}
    for resource in resources:
        yield f"counted:{resource}", amounts.get(resource, 0) if counters else None


def group_rows(groups: Sequence[Group]) -> list[Row]:
    """One row per group of ops; amounts are the known parts, and ``unknown`` names the resources with unknown parts."""
    resources = sorted({name for one in groups for name in (*one.work, *one.bytes)})
    rows = []
    for one in groups:
        own = {field: getattr(one, field) for field in GROUP_COLUMNS}
        rows.append({**own, "unknown": " ".join(one.unknown), **{name: {**one.work, **one.bytes}.get(name, 0) for name in resources}})
    return rows


def to_csv(rows: Sequence[Row]) -> str:
    """Rows as CSV; an unknown amount of a resource is ``?``, any other unknown an empty cell."""
    import csv

    out = io.StringIO(newline="")
    if rows:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(map(_cell, rows[0]))
        unknown = ["?" if _is_amount(name) else None for name in rows[0]]
        for row in rows:
            cells = zip(row.values(), unknown, strict=True)
            writer.writerow([blank if value is None else _cell(value) for value, blank in cells])
    return out.getvalue()


def _cell(value: object) -> object:
    """A cell that a spreadsheet does not run as a formula: text that begins like one gets an apostrophe."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA_STARTS) else value


def _is_amount(name: str) -> bool:
    return ":" not in name and name not in (*COLUMNS, *PROVENANCES, *PLACES)


def to_parquet(rows: Sequence[Row]) -> bytes:
    """Rows as a Parquet file; unknown is null."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise MissingExtra("pyarrow", "parquet") from None

    def column(cells: list[Any]) -> Any:
        try:
            return pyarrow.array(cells)
        except (pyarrow.ArrowInvalid, OverflowError):  # fractions, and whole numbers beyond 64 bits or, among floats, beyond 53
            return pyarrow.array([None if cell is None else float(cell) for cell in cells])

    out = io.BytesIO()
    names = list(rows[0]) if rows else []
    parquet.write_table(pyarrow.table({name: column([row[name] for row in rows]) for name in names}), out)
    return out.getvalue()
