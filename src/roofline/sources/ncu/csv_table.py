"""Parses the tables that Nsight Compute prints as CSV: the launched kernels, and their metrics with units.

``--page raw`` is wide: one row per launch, one column per metric, units in the row below the header. ``--page details`` and plain ``--csv``
are long: one row per metric. ``--print-summary`` is long too, with all launches of a kernel together: their number, and the average of each
metric. Columns may come in any order. Before, between and after tables there may be other output, of the profiler (``==PROF==``) or of the
profiled program. Numbers come in base units or with prefixes ("auto": Mbyte, us, Ghz), with thousands separators, and on some systems with
decimal commas.
"""

import codecs
import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache

from msgspec import Struct, field

from ...errors import SourceError
from ...units import DECIMAL, SMALL

ID, KERNEL, LAUNCHES = "ID", "Kernel Name", "Invocations"
METRIC, UNIT, VALUE, AVERAGE = "Metric Name", "Metric Unit", "Metric Value", "Average"
_METRIC_COLUMNS = (METRIC, UNIT, VALUE, AVERAGE, "Minimum", "Maximum", "Section Name")
MOST_LAUNCHES = 10**6  # of one kernel in a summary
TIME = "gpu__time_duration.sum"
# Labels that the details page uses instead of names of metrics. In other sections the same labels are percentages.
LABELS = {"Duration": (TIME, "s"), "Memory Throughput": ("dram__bytes.sum.per_second", "byte/s")}

UNKNOWN = ("", "n/a", "nan", "-nan", "inf", "-inf", "none")
LARGEST = 2**100  # larger than any real counter, and small enough that products of two stay in the range of floats
# Groups of three digits between commas, blanks or apostrophes, or of two before the last three.
_PLAIN = re.compile(r"[+-]?(?:\d{1,3}(?:[,\s'’]\d{3})+|\d{1,2}(?:,\d{2})*,\d{3}|\d+)(?:\.\d*)?(?:[eE][+-]?\d{1,2})?")
_COMMAS = re.compile(r"[+-]?(?:\d{1,3}(?:[.\s'’]\d{3})+|\d+)(?:,\d*)?(?:[eE][+-]?\d{1,2})?")
_LONGEST = 60  # characters of a number

_COUNTED = ("", "1", "%", "inst", "cycle", "sector", "sectors", "wavefront", "request", "op")
_SECONDS: dict[str, int | Fraction] = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1),
    **{prefix + word: Fraction(1, parts) for prefix, parts in SMALL.items() for word in ("s", "sec", "second")},
}
_PREFIXED = re.compile(r"([kKMGTPE]?)(byte|[hH]z)s?")


class Entry(Struct, frozen=True):
    """A launch as printed: its row, its text columns (``Kernel Name``, …), and the unit and cell of each metric.

    In a summary, ``launches`` is the number of launches, and each metric is their average. ``numbers`` are the cells of all metrics, used
    or not: any of them may show whether the file has decimal commas.
    """

    row: int
    words: Mapping[str, str]
    cells: dict[str, tuple[str, str]] = field(default_factory=dict)
    numbers: list[str] = field(default_factory=list)
    launches: int = 1


def decode(data: bytes) -> str:
    """Decodes text: UTF-16 if it has a byte order mark (as PowerShell writes), else UTF-8. Invalid bytes are replaced."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    return data.decode("utf-8-sig", "replace")


def is_header(line: str) -> bool:
    """Whether a line is the header of a table of launches: it has the column of the kernel, and that of its id or number of launches."""
    if KERNEL.lower() not in line.lower():
        return False
    try:
        cells = {cell.strip().lower() for cell in next(csv.reader([line.removeprefix("\ufeff")]), [])}
    except csv.Error:
        return False
    return KERNEL.lower() in cells and bool(cells & {ID.lower(), LAUNCHES.lower()})


def entries(text: str, used: Callable[[str], bool], where: str) -> list[Entry]:
    """The launches of every table in a text, in order, with the metrics for which ``used`` is true. Other output is skipped."""
    found: list[Entry] = []
    lines = (line.rstrip("\r\n") for line in io.StringIO(text))
    for line in lines:
        if is_header(line):
            header = _cells(line.removeprefix("\ufeff"), where)
            value = AVERAGE if ID not in header and AVERAGE in header else VALUE
            missing = [word for word in (UNIT, value) if METRIC in header and word not in header]
            if missing:
                raise SourceError(f"{where}: the table has '{METRIC}' but no '{missing[0]}'; print it again with ncu --csv")
            rows = _rows(lines, header, where)
            if METRIC in header:
                found += _long(rows, header, value, used, len(found), where)
            else:
                found += _wide(rows, header, used, len(found), where)
    return found


def _cells(line: str, where: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line]), [])]
    except csv.Error as error:
        raise SourceError(f"{where}: not a CSV line: {error}; print it again with ncu --csv") from None


def _rows(lines: Iterator[str], header: list[str], where: str) -> Iterator[list[str]]:
    """The rows of a table: those with a launch's id, and the row of units, which has none."""
    number_at = _number_at(header)
    for line in lines:
        if line.startswith("==") or is_header(line):
            continue
        cells = _cells(line, where)
        if 1 < len(cells) > number_at and (cells[number_at].isdecimal() or (not cells[number_at] and len(cells) == len(header))):
            yield cells


def _number_at(header: list[str]) -> int:
    """The column of a launch's id, or of the number of launches."""
    return next((place for word in (ID, LAUNCHES) for place, name in enumerate(header) if name.lower() == word.lower()), 0)


def _wide(rows: Iterable[list[str]], header: list[str], used: Callable[[str], bool], before: int, where: str) -> Iterator[Entry]:
    metrics = [(place, name) for place, name in enumerate(header) if used(name)]
    words = [(place, name) for place, name in enumerate(header) if "__" not in name]
    every = [place for place, name in enumerate(header) if "__" in name]
    number_at = _number_at(header)
    units = [""] * len(header)
    row = before
    for cells in rows:
        if not cells[number_at]:
            units = cells
            continue
        row += 1
        if len(cells) != len(header):
            raise SourceError(f"{where}: row {row}: {len(cells)} cells, but the header has {len(header)}; the copy is incomplete")
        yield Entry(
            row,
            {name: cells[place] for place, name in words},
            {name: (units[place], cells[place]) for place, name in metrics},
            [cells[place] for place in every],
        )


def _long(
    rows: Iterable[list[str]], header: list[str], value: str, used: Callable[[str], bool], before: int, where: str
) -> Iterator[Entry]:
    name_at, unit_at, value_at, number_at = header.index(METRIC), header.index(UNIT), header.index(value), _number_at(header)
    last = max(name_at, unit_at, value_at, header.index(KERNEL) if KERNEL in header else 0)
    # Rules of Nsight Compute have rows of their own and columns that are empty in other rows.
    words = [place for place, name in enumerate(header) if name not in _METRIC_COLUMNS and not name.startswith(("Rule", "Estimated"))]
    keys = words if value == AVERAGE else [number_at, header.index("Process ID") if "Process ID" in header else number_at]
    found: dict[tuple[str, ...], Entry] = {}
    for cells in rows:
        if len(cells) <= last or not cells[number_at]:  # the last lines of a rule's description
            continue
        key = tuple(cells[place] for place in keys if place < len(cells))
        if key not in found:
            launches = int(cells[number_at]) if value == AVERAGE and len(cells[number_at]) < 9 else 1
            if launches > MOST_LAUNCHES:
                raise SourceError(f"{where}: {launches:,} launches of one kernel; print the launches themselves with ncu --csv")
            given = {header[place]: cells[place] for place in words if place < len(cells)}
            found[key] = Entry(before + len(found) + 1, given, launches=launches)
        found[key].numbers.append(cells[value_at])
        name, unit = cells[name_at], cells[unit_at]
        if name in LABELS and _dimension(unit) == _dimension(LABELS[name][1]):
            name = LABELS[name][0]
        if used(name):
            found[key].cells.setdefault(name, (unit, cells[value_at]))
    yield from found.values()


def _dimension(unit: str) -> str:
    """What a unit measures: the unit without its prefix."""
    numerator, _, denominator = unit.partition("/")
    prefixed = _PREFIXED.fullmatch(numerator)
    kind = prefixed[2] if prefixed else "s" if numerator in _SECONDS else numerator
    return f"{kind}/s" if denominator in _SECONDS else kind


@lru_cache(maxsize=256)
def scale(unit: str) -> Fraction | None:
    """The factor from a unit of Nsight Compute's to base units (seconds, bytes, Hz, counts); ``None`` for one it does not print.

    >>> scale("Gbyte/s"), scale("usecond"), scale("sector/ns"), scale("parsec")
    (Fraction(1000000000, 1), Fraction(1, 1000000), Fraction(1000000000, 1), None)
    """
    numerator, _, denominator = unit.partition("/")
    above, below = _scale(numerator), _scale(denominator)
    return None if above is None or below is None else above / below


def _scale(word: str) -> Fraction | None:
    if word in _COUNTED:
        return Fraction(1)
    if word in _SECONDS:
        return Fraction(_SECONDS[word])
    match = _PREFIXED.fullmatch(word)
    return Fraction(DECIMAL[match[1]]) if match else None


def writes_decimal_commas(cells: Iterable[str]) -> bool:
    """Whether commas are decimal: some number is invalid with commas for thousands, and none is invalid with decimal commas.

    Cells that are not numbers are ignored.

    >>> writes_decimal_commas(["9,00", "1.234"]), writes_decimal_commas(["1,234", "5"]), writes_decimal_commas(["9,00", "1.25"])
    (True, False, False)
    """
    decides = False
    for cell in cells:
        bare = _bare(cell)
        plain, commas = len(bare) <= _LONGEST and _PLAIN.fullmatch(bare), len(bare) <= _LONGEST and _COMMAS.fullmatch(bare)
        if plain and not commas:
            return False
        decides = decides or bool(commas and not plain)
    return decides


def _bare(cell: str) -> str:
    """The value in a cell, without the mark of a doubtful value, ``(!)``, and without a breakdown in parentheses after it."""
    return cell.strip().removeprefix("(!)").partition("(")[0].strip()


def number(cell: str, unit: str, *, commas: bool = False) -> Fraction | None:
    """The exact number in a cell, in base units; ``None`` if the cell means unknown; a `SourceError` if it is not a number."""
    text = _bare(cell)
    if text.lower() in UNKNOWN:
        return None
    if len(text) > _LONGEST or not (_COMMAS if commas else _PLAIN).fullmatch(text):
        raise SourceError(f"{text[:40]!r} is not a number")
    text = re.sub(r"[.\s'’]", "", text).replace(",", ".") if commas else re.sub(r"[,\s'’]", "", text)
    factor = scale(unit)
    if factor is None:
        raise SourceError(f"unknown unit {unit[:40]!r}; print it again with ncu --print-units base")
    value = Fraction(text) * factor
    if value < 0 or value > LARGEST:
        raise SourceError(f"{text[:40]!r} is negative or larger than any counter")
    return value
