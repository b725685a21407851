"""Rows of a table file, whatever it is written in: CSV, JSON, JSON Lines or Parquet."""

import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..errors import MissingExtra, SourceError
from .files import all_of

Cell = str | float | int | None
PARQUET_MAGIC = b"PAR1"


def rows_of(path: Path) -> Iterator[Mapping[str, Cell]]:
    """One mapping a row, from header to cell."""
    data = all_of(path)
    if data.startswith(PARQUET_MAGIC):
        yield from _parquet(data, path)
        return
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourceError(f"{path}: not UTF-8 text at byte {error.start:,}; save the table as UTF-8") from None
    if text.lstrip()[:1] in ("[", "{"):
        yield from _json(text, path)
    else:
        yield from _csv(text, path)


def _csv(text: str, path: Path) -> Iterator[Mapping[str, Cell]]:
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True)
    try:
        headers = [header.strip() for header in next(lines)]
        for cells in lines:
            if not any(cell.strip() for cell in cells) or cells[0].startswith("#"):
                continue
            if len(cells) != len(headers):
                raise SourceError(f"{path}: line {lines.line_num}: {len(cells)} cells, but the header has {len(headers)}")
            yield {header: _plain(cell.strip()) for header, cell in zip(headers, cells, strict=True)}
    except csv.Error as error:
        raise SourceError(f"{path}: line {lines.line_num}: {error}") from None


def _plain(cell: str) -> str:
    """A cell without the apostrophe that keeps a spreadsheet from running it."""
    return cell[1:] if cell[:1] == "'" and cell[1:2] in ("=", "+", "-", "@") else cell


def _json(text: str, path: Path) -> Iterator[Mapping[str, Cell]]:
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
    yield from rows


def _parquet(data: bytes, path: Path) -> Iterator[Mapping[str, Cell]]:
    try:
        from pyarrow import parquet
    except ImportError:
        raise MissingExtra("pyarrow", "parquet") from None
    try:
        rows = parquet.read_table(io.BytesIO(data)).to_pylist()
    except Exception as error:  # of several types, some its own
        raise SourceError(f"{path}: not a readable Parquet file: {str(error).splitlines()[0]}") from None
    yield from rows
