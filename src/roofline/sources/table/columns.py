"""Reads the columns of a table file: CSV, JSON, JSON Lines or Parquet."""

import codecs
import csv
import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import msgspec

from ...errors import SourceError
from ...files.input_limits import check_limit, limits, too_much
from ..files import HEAD_BYTES, all_of

Cell = str | float | int | None
Take = Callable[[Sequence[str]], Iterable[Cell]]
How = Callable[[str], Take]
PARQUET_MAGIC = b"PAR1"
_AT_ONCE = 1000  # rows moved into columns together: few enough to stay in the CPU's cache
_NOT_A_ROW = ("", "#")  # first characters of lines that may be blank or comments
INFINITE = float("inf")
_NUMBERS = msgspec.json.Decoder(list[float])
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # which UTF-8 cannot encode


def columns_of(path: Path, holds_numbers: Callable[[str], bool] = lambda header: False) -> Mapping[str, Sequence[Cell]]:
    """The cells of each column, by header. Text is stripped of blanks; a missing cell is empty.

    ``holds_numbers`` says whether a column of a CSV, given its header, may be read as numbers.
    """
    data = all_of(path)
    if data.startswith(PARQUET_MAGIC):
        return _parquet(data, path)
    is_json = data[:HEAD_BYTES].removeprefix(codecs.BOM_UTF8).lstrip()[:1] in (b"[", b"{")
    # Each value has its own comma, bracket or end of line, so this is an upper bound of their number.
    marks = (b",", b"[", b"{", b"\n") if is_json else (b",", b";", b"\t", b"\n")
    check_limit("values", sum([data.count(mark) for mark in marks]), str(path))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourceError(f"{path}: not UTF-8 text at byte {error.start:,}; save the table as UTF-8") from None
    return _json(text, path) if is_json else _csv(text, path, holds_numbers)


def _csv(text: str, path: Path, holds_numbers: Callable[[str], bool]) -> Mapping[str, Sequence[Cell]]:
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    how = partial(_cell_reader, is_guarded="'" in text, holds_numbers=holds_numbers)
    return _unquoted_csv(text, delimiter, how) or _any_csv(text, delimiter, how, path)


def _any_csv(text: str, delimiter: str, how: How, path: Path) -> dict[str, list[Cell]]:
    """A CSV of any kind: with quotes, comments and blank lines."""
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True)
    rows: list[list[str]] = []
    try:
        headers = [header.strip() for header in next(lines, [])]
        columns: list[list[Cell]] = [[] for _ in headers]
        taken = list(map(how, headers))
        most, width, count = limits().rows, len(headers), 0
        for cells in lines:
            if len(cells) != width or not cells or cells[0][:1] in _NOT_A_ROW or cells[0].isspace():
                if not cells or cells[0][:1] == "#" or not "".join(cells).strip():
                    continue
                if len(cells) != width:
                    raise SourceError(f"{path}: line {lines.line_num}: {len(cells)} cells, but the header has {width}")
            rows.append(cells)
            count += 1
            if count > most:
                raise too_much("rows", str(path))
            if len(rows) == _AT_ONCE:
                _append(rows, columns, taken)
    except csv.Error as error:
        raise SourceError(f"{path}: line {lines.line_num}: {error}") from None
    _append(rows, columns, taken)
    return dict(zip(headers, columns, strict=True)) if count else {}


def _append(rows: list[list[str]], columns: list[list[Cell]], taken: list[Take]) -> None:
    """Moves rows into columns."""
    for column, take, cells in zip(columns, taken, zip(*rows, strict=True), strict=bool(rows)):
        column.extend(take(list(map(str.strip, cells))))
    rows.clear()


def _unquoted_csv(text: str, delimiter: str, how: How) -> dict[str, list[Cell]] | None:
    """Reads a CSV without quotes, with a row on each line, in half the time; ``None`` if it is not one."""
    text = text.replace("\r\n", "\n")
    if '"' in text or "\r" in text:
        return None
    header, *rows = text.removesuffix("\n").split("\n")
    headers = [word.strip() for word in header.split(delimiter)]
    width = len(headers)
    if not 0 < len(rows) <= limits().rows or {*map(str.count, rows, repeat(delimiter))} != {width - 1}:
        return None
    columns: list[list[Cell]] = [[] for _ in headers]
    taken = list(map(how, headers))
    for start in range(0, len(rows), _AT_ONCE):
        part = delimiter.join(rows[start : start + _AT_ONCE])
        cells = part.split(delimiter)
        if part.split(maxsplit=1) != [part]:  # it contains blanks
            cells = list(map(str.strip, cells))
        first = cells[::width]
        if "" in first or ("#" in part and any(map(str.startswith, first, repeat("#")))):
            return None
        for place, (column, take) in enumerate(zip(columns, taken, strict=True)):
            column.extend(take(cells[place::width]))
    return None if max(map(len, rows)) > csv.field_size_limit() else dict(zip(headers, columns, strict=True))


def _cell_reader(header: str, is_guarded: bool, holds_numbers: Callable[[str], bool]) -> Take:
    """The function that converts cells of a column, which are stripped of blanks."""
    words = partial(_words, is_guarded=is_guarded, is_shared=header.lower() != "name")
    return partial(_numbers, words=words) if holds_numbers(header) else words


def _numbers(cells: Sequence[str], words: Take) -> Iterable[Cell]:
    """Cells as numbers, if all of them are plain numbers, which msgspec parses faster than Python; else the result of ``words``."""
    try:
        numbers = _NUMBERS.decode(f"[{','.join(cells)}]")
    except msgspec.DecodeError:
        return words(cells)
    return numbers if len(numbers) == len(cells) and min(numbers, default=0) >= 0 and sum(numbers) < INFINITE else words(cells)


def _words(cells: Iterable[str], is_guarded: bool, is_shared: bool) -> Iterable[str]:
    """Cells as text, without the apostrophe of `_plain`. ``is_shared`` interns them: most texts occur in many rows, names seldom do."""
    plain = map(_plain, cells) if is_guarded else cells
    return map(sys.intern, plain) if is_shared else plain


def _plain(cell: str) -> str:
    """A cell without the apostrophe that keeps a spreadsheet from running it."""
    return cell[1:] if cell[:1] == "'" and cell[1:2] in ("=", "+", "-", "@") else cell


def _json(text: str, path: Path) -> Mapping[str, Sequence[Cell]]:
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
    headers = dict.fromkeys(chain.from_iterable(rows))
    check_limit("values", len(rows) * len(headers), str(path))
    return {_without_surrogates(header): _cells([row.get(header, "") for row in rows], header, path) for header in headers}


def _json_lines(text: str, path: Path) -> list[Any]:
    rows = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                rows.append(_json_line(line) or json.loads(line))
            except RecursionError:
                raise SourceError(f"{path}: line {number:,}: JSON nested too deeply to be a table") from None
            except json.JSONDecodeError:
                raise
            except ValueError:
                raise SourceError(f"{path}: line {number:,}: a number has too many digits") from None
    return rows


def _json_line(line: str) -> Any:
    """A line of JSON, parsed by msgspec in a third of the time; ``None`` if it cannot parse it (NaN, lone surrogates)."""
    try:
        return msgspec.json.decode(line)
    except msgspec.DecodeError:
        return None


def _cells(values: list[Any], header: str, path: Path) -> list[Cell]:
    """The cells of a column of a JSON table."""
    types = {*map(type, values)}
    if types <= {int, float, type(None)}:
        return values
    if types == {str}:
        return list(_words(map(str.strip, map(_without_surrogates, values)), is_guarded=False, is_shared=header.lower() != "name"))
    return [_cell(value, row, path) for row, value in enumerate(values, 1)]


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


def _parquet(data: bytes, path: Path) -> Mapping[str, Sequence[Cell]]:
    from .parquet import read_columns

    return read_columns(data, path)
