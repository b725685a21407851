"""Reads the rows of a table file: CSV, JSON, JSON Lines or Parquet."""

import codecs
import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from ...errors import SourceError
from ...files.input_limits import check_limit, limits, too_much
from ..files import HEAD_BYTES, all_of

Cell = str | float | int | None
Rows = tuple[Sequence[str], Iterable[Sequence[Cell]]]  # the headers, and the rows with a cell for each
PARQUET_MAGIC = b"PAR1"
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # which UTF-8 cannot encode


def rows_of(path: Path) -> Rows:
    """The headers and the rows of a table. Text is stripped of blanks; a missing cell is empty."""
    data = all_of(path)
    if data.startswith(PARQUET_MAGIC):
        from .parquet import read_columns

        columns = read_columns(data, path)
        return list(columns), zip(*columns.values(), strict=True)
    is_json = data[:HEAD_BYTES].removeprefix(codecs.BOM_UTF8).lstrip()[:1] in (b"[", b"{")
    # Each value has its own comma, bracket or end of line, so this is an upper bound of their number.
    marks = (b",", b"[", b"{", b"\n") if is_json else (b",", b";", b"\t", b"\n")
    check_limit("values", sum([data.count(mark) for mark in marks]), str(path))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourceError(f"{path}: not UTF-8 text at byte {error.start:,}; save the table as UTF-8") from None
    return _json(text, path) if is_json else _csv(text, path)


def _csv(text: str, path: Path) -> Rows:
    first = text.partition("\n")[0]
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=first.count), skipinitialspace=True, strict=True)
    try:
        headers = [header.strip() for header in next(lines, [])]
    except csv.Error as error:
        raise SourceError(f"{path}: line {lines.line_num}: {error}") from None
    return headers, _csv_rows(lines, len(headers), path)


def _csv_rows(lines: Any, width: int, path: Path) -> Iterator[list[str]]:
    """The rows of a CSV, without comments and blank lines."""
    most, count = limits().rows, 0
    try:
        for line in lines:
            cells = [_unguarded(cell) if cell[:1] == "'" else cell for cell in map(str.strip, line)]
            if not any(cells) or line[0][:1] == "#":
                continue
            if len(cells) != width:
                raise SourceError(f"{path}: line {lines.line_num}: {len(cells)} cells, but the header has {width}")
            count += 1
            if count > most:
                raise too_much("rows", str(path))
            yield cells
    except csv.Error as error:
        raise SourceError(f"{path}: line {lines.line_num}: {error}") from None


def _unguarded(cell: str) -> str:
    """A cell without the apostrophe that keeps a spreadsheet from running it."""
    return cell[1:] if cell[1:2] in ("=", "+", "-", "@") else cell


def _json(text: str, path: Path) -> Rows:
    try:
        rows = json.loads(text)
    except json.JSONDecodeError as whole:
        try:
            rows = _json_lines(text, path)
        except json.JSONDecodeError:
            raise SourceError(f"{path}: not JSON at line {whole.lineno}, column {whole.colno}: {whole.msg}") from None
    except RecursionError:
        raise SourceError(f"{path}: JSON nested too deeply to be a table") from None
    except ValueError:
        raise SourceError(f"{path}: a number has too many digits") from None
    if isinstance(rows, dict):
        rows = rows.get("ops", [rows] if "name" in rows else None)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise SourceError(f"{path}: not a table; a JSON table is a list of objects, one per op, or an object with such a list under 'ops'")
    check_limit("rows", len(rows), str(path))
    headers = list(dict.fromkeys(chain.from_iterable(rows)))
    check_limit("values", len(rows) * len(headers), str(path))
    cells = ([_cell(row.get(header, ""), number, path) for header in headers] for number, row in enumerate(rows, 1))
    return list(map(_without_surrogates, headers)), cells


def _json_lines(text: str, path: Path) -> list[Any]:
    rows = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except RecursionError:
                raise SourceError(f"{path}: line {number:,}: JSON nested too deeply to be a table") from None
            except json.JSONDecodeError:
                raise
            except ValueError:
                raise SourceError(f"{path}: line {number:,}: a number has too many digits") from None
    return rows


def _cell(value: object, row: int, path: Path) -> Cell:
    """A cell of a JSON table: text or a number."""
    if isinstance(value, str):
        return _without_surrogates(value).strip()
    if value is None or isinstance(value, int | float):
        return value
    raise SourceError(f"{path}: row {row:,}: {type(value).__name__} instead of text or a number; a JSON table has one value per column")


def _without_surrogates(text: str) -> str:
    """Text without lone surrogates, which JSON can contain."""
    return text if text.isascii() else _LONE_SURROGATE.sub("\ufffd", text)
