"""Reads Parquet files with pyarrow in a worker: a damaged file can make the library abort or use any amount of memory."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...errors import MissingExtra, SourceError
from ...files.input_limits import Limits, check_limit, limits, set_limits
from ...units import parse
from ...workers import Worker, WorkerDied, limit

Cell = str | float | int | None
MEMORY_BYTES = int(parse("4 GiB", "B"))
CPU_S = 60  # a file that takes longer counts as damaged
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}


def read_columns(data: bytes, path: Path) -> Mapping[str, Sequence[Cell]]:
    """The cells of each column by its header."""
    try:
        with Worker(**_ONE_THREAD) as worker:
            columns: Mapping[str, Sequence[Cell]] = worker.call(_read_limited, data, str(path), limits())
    except WorkerDied as error:
        raise SourceError(f"{path}: not a readable Parquet file: while reading it {error}") from None
    return columns


def _read_limited(data: bytes, name: str, inputs: Limits) -> Mapping[str, Sequence[Cell]]:
    """What the worker does."""
    try:
        import pyarrow.parquet  # noqa: F401  before the limits, which loading the library is no part of
    except ImportError:
        raise MissingExtra("pyarrow", "parquet") from None
    limit(MEMORY_BYTES, CPU_S)
    set_limits(inputs)
    return columns_of(data, name)


def columns_of(data: bytes, name: str) -> Mapping[str, Sequence[Cell]]:
    """The same in this process."""
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(io.BytesIO(data), pre_buffer=False)
        check_limit("rows", file.metadata.num_rows, name)
        check_limit("values", file.metadata.num_rows * file.metadata.num_columns, name)
        table = file.read(use_threads=False)
        check_limit("rows", table.num_rows, name)
        return {header: [_plain(cell) for cell in table[place].to_pylist()] for place, header in enumerate(table.column_names)}
    except SourceError:
        raise
    except (Exception, MemoryError) as error:  # pyarrow raises many types
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise SourceError(f"{name}: not a readable Parquet file: {first}") from None


def _plain(cell: object) -> Cell:
    """A cell as a number, text or ``None``; any other value as Python's text for it."""
    if isinstance(cell, str):
        return cell.strip()
    if cell is None or isinstance(cell, float):
        return cell
    if isinstance(cell, int) and -(2**63) <= cell < 2**64:
        return cell
    return str(cell)
