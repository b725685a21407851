"""The columns of a table file, whatever it is written in: CSV, JSON, JSON Lines or Parquet."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import MissingExtra, SourceError
from .files import all_of

Cell = str | float | int | None
PARQUET_MAGIC = b"PAR1"


def columns_of(path: Path) -> Mapping[str, Sequence[Cell]]:
    """The cells of each column by its header; one that a row lacks is empty."""
    data = all_of(path)
    if data.startswith(PARQUET_MAGIC):
        return _parquet(data, path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourceError(f"{path}: not UTF-8 text at byte {error.start:,}; save the table as UTF-8") from None
    return _json(text, path) if text.lstrip()[:1] in ("[", "{") else _csv(text, path)


def _csv(text: str, path: Path) -> Mapping[str, Sequence[Cell]]:
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True)
    try:
        headers = [header.strip() for header in next(lines, [])]
        rows = []
        for cells in lines:
            if not cells or cells[0].startswith("#") or not (cells[0].strip() or "".join(cells).strip()):
                continue
            if len(cells) != len(headers):
                raise SourceError(f"{path}: line {lines.line_num}: {len(cells)} cells, but the header has {len(headers)}")
            rows.append(cells)
    except csv.Error as error:
        raise SourceError(f"{path}: line {lines.line_num}: {error}") from None
    quoted = "'" in text
    columns = ([cell.strip() for cell in column] for column in zip(*rows, strict=True))
    return {header: list(map(_plain, column)) if quoted else column for header, column in zip(headers, columns, strict=bool(rows))}


def _plain(cell: str) -> str:
    """A cell without the apostrophe that keeps a spreadsheet from running it."""
    return cell[1:] if cell[:1] == "'" and cell[1:2] in ("=", "+", "-", "@") else cell


def _json(text: str, path: Path) -> Mapping[str, Sequence[Cell]]:
    import json

    try:
        rows = json.loads(text)
    except json.JSONDecodeError as whole:
        try:
            rows = [json.loads(line) for line in text.splitlines() if line.strip()]
        except json.JSONDecodeError:
            raise SourceError(f"{path}: not JSON at line {whole.lineno}, column {whole.colno}: {whole.msg}") from None
    except RecursionError:
        raise SourceError(f"{path}: JSON nested too deeply to be a table") from None
    if isinstance(rows, dict):
        rows = rows.get("ops", [rows] if "name" in rows else None)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise SourceError(f"{path}: not a table; a JSON table is a list of objects, one per op, or an object with such a list under 'ops'")
    headers = dict.fromkeys(header for row in rows for header in row)
    return {header: [row.get(header, "") for row in rows] for header in headers}


def _parquet(data: bytes, path: Path) -> Mapping[str, Sequence[Cell]]:
    try:
        from pyarrow import parquet
    except ImportError:
        raise MissingExtra("pyarrow", "parquet") from None
    try:
        table = parquet.read_table(io.BytesIO(data))
        columns: dict[str, list[Cell]] = {name: table[place].to_pylist() for place, name in enumerate(table.column_names)}
    except Exception as error:  # of several types, some its own
        raise SourceError(f"{path}: not a readable Parquet file: {str(error).splitlines()[0]}") from None
    return columns
