"""Reads Parquet files with pyarrow in a separate process: a damaged file can make the library abort or use any amount of memory."""

import io
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec

from ..errors import MissingExtra, SourceError
from ..files.input_limits import Limits, check_limit, limits, set_limits
from ..units import parse

Cell = str | float | int | None
MEMORY_BYTES = int(parse("4 GiB", "B"))  # limit on address space, in addition to what loading the library takes, which depends on the CPU
CPU_S = 60  # limit on CPU time: a file that takes longer counts as damaged
_PROGRAM = "import sys; sys.path[:] = sys.argv[1].split('\\n'); from roofline.sources.parquet import serve; serve()"
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
_REFUSED, _MISSING = "refused", "missing"


class Task(msgspec.Struct):
    """A file to read."""

    name: str
    limits: Limits
    data: bytes


def read_columns(data: bytes, path: Path) -> Mapping[str, Sequence[Cell]]:
    """The cells of each column by its header."""
    task = msgspec.msgpack.encode(Task(str(path), limits(), data))
    words = [sys.executable, "-c", _PROGRAM, "\n".join(sys.path)]
    alone = {**os.environ, **_ONE_THREAD}
    ended = subprocess.run(words, input=task, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=alone, check=False)
    if ended.returncode:
        raise SourceError(f"{path}: not a readable Parquet file: the library that reads it crashed ({_reason(ended.returncode)})")
    kind, content = msgspec.msgpack.decode(ended.stdout)
    if kind == _MISSING:
        raise MissingExtra("pyarrow", "parquet")
    if kind == _REFUSED:
        raise SourceError(content)
    columns: dict[str, list[Cell]] = content
    return columns


def _reason(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"status {status}"


def serve() -> None:
    """The main function of the separate process: reads a file from standard input, writes its columns or an error to standard output."""
    answers: IO[bytes] = open(1, "wb", closefd=False)  # noqa: SIM115  for as long as the process lives
    task = msgspec.msgpack.decode(open(0, "rb", closefd=False).read(), type=Task)  # noqa: SIM115
    set_limits(task.limits)
    try:
        import pyarrow.parquet  # noqa: F401  before the limits are set, as they add to what the library itself takes
    except ImportError:
        answer: tuple[str, object] = (_MISSING, None)
    else:
        _limit_resources()
        answer = columns_of(task)
    answers.write(msgspec.msgpack.encode(answer))
    answers.flush()


def _limit_resources() -> None:
    """Limits memory and CPU time of this process; lower limits that are already set stay."""
    try:
        import resource
    except ImportError:  # not on Windows
        return

    def lower(kind: int, most: int) -> None:
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))

    if mine := _address_space():
        lower(resource.RLIMIT_AS, mine + MEMORY_BYTES)
    lower(resource.RLIMIT_CPU, CPU_S)
    lower(resource.RLIMIT_CORE, 0)


def _address_space() -> int:
    """The bytes of address space that this process uses; 0 if unknown."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def columns_of(task: Task) -> tuple[str, object]:
    """The answer for a file: its kind, and the columns or the error message."""
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(io.BytesIO(task.data), pre_buffer=False)
        check_limit("rows", file.metadata.num_rows, task.name)
        check_limit("values", file.metadata.num_rows * file.metadata.num_columns, task.name)
        table = file.read(use_threads=False)
        check_limit("rows", table.num_rows, task.name)
        cells = {name: [_plain(cell) for cell in table[place].to_pylist()] for place, name in enumerate(table.column_names)}
    except SourceError as error:
        return _REFUSED, str(error)
    except (Exception, MemoryError) as error:  # pyarrow raises many types
        first = next(iter(str(error).splitlines()), type(error).__name__)
        return _REFUSED, f"{task.name}: not a readable Parquet file: {first}"
    return "columns", cells


def _plain(cell: object) -> Cell:
    """A cell as a number, text or ``None``; any other value as Python's text for it."""
    if isinstance(cell, str):
        return cell.strip()
    if cell is None or isinstance(cell, float):
        return cell
    if isinstance(cell, int) and -(2**63) <= cell < 2**64:
        return cell
    return str(cell)
