"""Reports as data: JSON by the contract, CSV and Parquet with one row an op.

The CSV and the Parquet file name a column after each resource, so that `roofline analyze` reads them back as tables.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

from ..errors import MissingExtra
from ..report import OpInfo
from ..selection import Group

Row = dict[str, Any]
COLUMNS = (
    *("id", "rank", "name", "category", "module", "scope", "location", "phase"),
    *("count", "kernels", "time_s", "self_time_s", "unit", "dtype", "flops", "intensity", "ridge"),
    *("attainable", "floor_s", "serial_s", "expected_s", "bound", "efficiency"),
)
GROUP_COLUMNS = ("key", "count", "time_s", "self_time_s", "priced_s", "flops", "floor_s", "serial_s", "bound", "efficiency")


def to_json(value: object) -> bytes:
    """Any value of ours as JSON, in the order of its fields, ending in a newline."""
    import msgspec

    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def op_rows(ops: Sequence[OpInfo]) -> list[Row]:
    """One row an op: its own fields, then a column for each resource that any op uses; unknown is ``None``."""
    resources = sorted({name for op in ops for name in (*op.work, *op.bytes, *op.hops)})
    return [dict(_op_cells(op, resources)) for op in ops]


def _op_cells(op: OpInfo, resources: Sequence[str]) -> Iterator[tuple[str, Any]]:
    for column in COLUMNS:
        yield column, getattr(op, column)
    amounts = {**op.work, **op.bytes, **op.hops}
    for resource in resources:
        yield resource, amounts.get(resource, 0)


def group_rows(groups: Sequence[Group]) -> list[Row]:
    """One row a group of ops; the amounts are the known parts, and ``unknown`` names the resources where there is more."""
    resources = sorted({name for one in groups for name in (*one.work, *one.bytes)})
    rows = []
    for one in groups:
        own = {field: getattr(one, field) for field in GROUP_COLUMNS}
        rows.append({**own, "unknown": " ".join(one.unknown), **{name: {**one.work, **one.bytes}.get(name, 0) for name in resources}})
    return rows


def to_csv(rows: Sequence[Row]) -> str:
    """Rows as CSV; an unknown amount of a resource is ``?``, any other unknown an empty cell."""
    out = io.StringIO(newline="")
    if rows:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(rows[0])
        for row in rows:
            writer.writerow("?" if value is None and _is_amount(column) else value for column, value in row.items())
    return out.getvalue()


def _is_amount(column: str) -> bool:
    return column not in COLUMNS


def to_parquet(rows: Sequence[Row]) -> bytes:
    """Rows as a Parquet file; unknown is null."""
    try:
        import polars
    except ImportError:
        raise MissingExtra("polars", "parquet") from None
    out = io.BytesIO()
    polars.DataFrame(list(rows), infer_schema_length=None, strict=False).write_parquet(out)
    return out.getvalue()
