"""Score the TPU calibrations that the package ships on public measurements of single ops.

    python benchmarks/tpu_ops.py OPS.csv [--rows] [--held-out]

OPS.csv has a measured op a row: `op`, `chip`, `per` (a chip or one of its devices), `shape`, `dtype`, `timing`, `measured_us`, and for
copies `rate` in GB/s, read and written. Prints, of the ops that the device timed, the mean error and how many lie within their interval;
host-timed ones have an overhead of about 110 us, so they only must not lie below the minimum time.

With `--held-out` each group of rows that the device timed (a kind of op on a chip, from one source) is predicted by values that are fitted
to the other groups, of both chips; the intervals are the shipped ones.
"""

import argparse
import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import log
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from msgspec.structs import replace

from roofline.cost import Cost
from roofline.formulas import matmul
from roofline.machine import Machine
from roofline.machines import load
from roofline.machines.calibrations import calibration_for
from roofline.operation import Operation, Streamed
from roofline.prediction import Expected, predict
from roofline.prediction.calibration import Calibration
from roofline.units import DECIMAL, percent, show

CHIPS = {"TPU v6e": "tpu-v6e", "TPU7x": "tpu-v7x"}
FORMATS = {"bfloat16": "bf16", "float32": "fp32"}
FITTED = ("products", "pointwise")  # families with ops that the device timed, in bf16 where they have a format
# Values to try for each parameter, in the order in which they are fitted: shares of a rate, and seconds.
TRIED = {
    "compute": [share / 100 for share in range(60, 101)],
    "memory": [share / 100 for share in range(60, 101)],
    "floor": [step / DECIMAL["M"] / 10 for step in range(41)],
    "exposed": [step / DECIMAL["M"] / 2 for step in range(21)],
}
USUAL = {"compute": 0.85, "memory": 0.82, "floor": 1.2e-6, "exposed": 6e-6}  # where a fit starts: those of the compiler's programs
ROUNDS = 3  # over the parameters


class Measured(NamedTuple):
    """A measured op: what it is and where, its seconds, and the prediction."""

    op: str
    machine: Machine
    shape: str
    number: str
    source: str
    by_host: bool
    time_s: float
    operation: Operation | None
    cost: Cost
    prediction: Expected

    @property
    def chip(self) -> str:
        return self.machine.name

    @property
    def group(self) -> tuple[str, str, str]:
        """What is held out together: a kind of op on a chip, from one source."""
        return self.op, self.chip, self.source

    @property
    def error(self) -> float:
        return self.prediction.time_s / self.time_s - 1

    @property
    def is_within(self) -> bool:
        return self.prediction.low_s <= self.time_s <= self.prediction.high_s


def measured(path: Path) -> Iterator[Measured]:
    """The rows that can be predicted: products and copies of known formats."""
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            priced = _priced(row)
            if priced is None or row["chip"] not in CHIPS:
                continue
            operation, cost, time_s = priced
            machine = load(CHIPS[row["chip"]])
            machine = machine.per_device() if row["per"] != "chip" else machine
            found = predict(operation, cost, machine, calibration_for(machine))
            if found is not None:
                by_host = "host" in row["timing"]
                what = (row["op"], machine, row["shape"], row["dtype"], row["source_repo"])
                yield Measured(*what, by_host, time_s, operation, cost, found)


def _priced(row: Mapping[str, str]) -> tuple[Operation | None, Cost, float] | None:
    """What a row did, and how long it took; ``None`` for other ops."""
    if row["op"] == "matmul mnk":
        m, n, k = map(int, row["shape"].split("x"))
        ledger = matmul(m, k, n, dtype=FORMATS.get(row["dtype"], row["dtype"]))
        return ledger.operation, ledger.cost, float(row["measured_us"]) / DECIMAL["M"]
    if row["op"] == "HBM copy":
        moved = 2 * int(row["shape"].split()[0])
        return Streamed(kind="elementwise"), Cost.of({"hbm": moved}), moved / (float(row["rate"]) * DECIMAL["G"])
    return None


def held_out(rows: Iterable[Measured]) -> Iterator[Measured]:
    """The rows that the device timed, each group predicted by values that are fitted to the others."""
    timed = [row for row in rows if not row.by_host]
    for group in dict.fromkeys(row.group for row in timed):
        values = _fitted([row for row in timed if row.group != group])
        yield from (_predicted(row, values) for row in timed if row.group == group)


def _fitted(rows: Sequence[Measured]) -> dict[str, float]:
    """The values with the least mean error, found one parameter after another."""
    values = dict(USUAL)
    for _ in range(ROUNDS):
        for name in TRIED:
            values[name] = _best(rows, values, name)
    return values


def _best(rows: Sequence[Measured], values: Mapping[str, float], name: str) -> float:
    return min(TRIED[name], key=lambda value: _misfit(rows, {**values, name: value}))


def _misfit(rows: Sequence[Measured], values: Mapping[str, float]) -> float:
    return mean(abs(log(_predicted(row, values).prediction.time_s / row.time_s)) for row in rows)


def _predicted(row: Measured, values: Mapping[str, float]) -> Measured:
    """A row as it is predicted with other values."""
    found = predict(row.operation, row.cost, row.machine, _with(calibration_for(row.machine), values))
    return row._replace(prediction=found) if found else row


def _with(calibration: Calibration, values: Mapping[str, float]) -> Calibration:
    families = [
        replace(one, values={name: values[name] for name in one.values}) if one.family in FITTED else one for one in calibration.families
    ]
    return replace(calibration, families=tuple(families))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--rows", action="store_true", help="print every row")
    parser.add_argument("--held-out", action="store_true", help="predict each group of rows by values fitted to the others")
    args = parser.parse_args()
    rows = list(measured(args.table))
    if args.held_out:
        rows = list(held_out(rows))
    for one in rows if args.rows else ():
        mark = "host" if one.by_host else "within" if one.is_within else "outside"
        took, expected = show(one.time_s, "s", 3), show(one.prediction.time_s, "s", 3)
        print(f"{one.chip:15} {one.op:11} {one.shape:20} {one.number:9} {took:>9} expected {expected:>9} {one.error:+7.1%} {mark}")
    for chip in sorted({one.chip for one in rows}):
        traced = [one for one in rows if one.chip == chip and not one.by_host]
        by_host = [one for one in rows if one.chip == chip and one.by_host]
        below = sum(one.time_s < one.prediction.floor_s for one in by_host)
        print(f"{chip}: {_score(traced)}; {len(by_host)} by the host, {below} below the minimum")
    for group in dict.fromkeys(row.group for row in rows) if args.held_out else ():
        print(f"{', '.join(group)}: {_score([row for row in rows if row.group == group])}")


def _score(timed: Sequence[Measured]) -> str:
    error = percent(mean(abs(row.error) for row in timed))
    return f"{len(timed)} timed by the device, mean error {error}, {sum(row.is_within for row in timed)} within their interval"


if __name__ == "__main__":
    main()
