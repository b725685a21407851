"""Baseline files: JSON with the figures that budgets compare with, one figure per line."""

from pathlib import Path

import msgspec

from ..checking.baselines import SCHEMA, Baseline, BaselineOp
from ..dtypes import DTYPES
from ..errors import SourceError
from ..files.output_files import write_file
from .files import all_of


def read_baseline(path: str | Path) -> Baseline:
    """The baseline in a file."""
    try:
        baseline = msgspec.json.decode(all_of(Path(path)), type=Baseline)
    except (msgspec.MsgspecError, UnicodeError, OverflowError, RecursionError) as error:
        raise SourceError(f"{path}: not a baseline of roofline: {error}; write it again with --update") from None
    if baseline.schema != SCHEMA:
        raise SourceError(f"{path}: schema {baseline.schema!r} is not supported; this version reads {SCHEMA!r}")
    ops = tuple([row if row.does else _in_parts(row) for row in baseline.ops])  # as earlier versions wrote them
    return msgspec.structs.replace(baseline, file=str(path), ops=ops)


def _in_parts(row: BaselineOp) -> BaselineOp:
    does, _, sizes = row.op.rpartition(": ")[2].partition(" ")
    sized, _, last = sizes.rpartition(" ")
    return msgspec.structs.replace(row, does=does, sizes=sized if last in DTYPES else sizes)


def write_baseline(path: str | Path, baseline: Baseline) -> None:
    """Writes a baseline, indented so that changes are easy to read in a diff."""
    value = msgspec.to_builtins(msgspec.structs.replace(baseline, file=""))
    data = msgspec.json.format(msgspec.json.encode({"schema": SCHEMA, **value}), indent=1)
    write_file(str(path), data + b"\n")
