"""Score the TPU calibrations that the package ships on public measurements of single ops.

    python benchmarks/tpu_ops.py OPS.csv [--rows]

OPS.csv has a measured op a row: `op`, `chip`, `per` (a chip or one of its devices), `shape`, `dtype`, `timing`, `measured_us`, and for
copies `rate` in GB/s, read and written. Prints, of the ops that the device timed, the mean error and how many lie within their interval;
host-timed ones have an overhead of about 110 us, so they only must not lie below the minimum time.
"""

import argparse
import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from roofline.cost import Cost
from roofline.formulas import matmul
from roofline.machines import load
from roofline.machines.calibrations import calibration_for
from roofline.operation import Operation, Streamed
from roofline.prediction import Prediction, predict
from roofline.units import DECIMAL, percent, show

CHIPS = {"TPU v6e": "tpu-v6e", "TPU7x": "tpu-v7x"}
FORMATS = {"bfloat16": "bf16", "float32": "fp32"}


class Measured(NamedTuple):
    """A measured op: what it is, its seconds, and the prediction."""

    op: str
    chip: str
    shape: str
    number: str
    by_host: bool
    time_s: float
    prediction: Prediction

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
                yield Measured(row["op"], machine.name, row["shape"], row["dtype"], "host" in row["timing"], time_s, found)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--rows", action="store_true", help="print every row")
    args = parser.parse_args()
    rows = list(measured(args.table))
    for one in rows if args.rows else ():
        mark = "host" if one.by_host else "within" if one.is_within else "outside"
        took, expected = show(one.time_s, "s", 3), show(one.prediction.time_s, "s", 3)
        print(f"{one.chip:15} {one.op:11} {one.shape:20} {one.number:9} {took:>9} expected {expected:>9} {one.error:+7.1%} {mark}")
    for chip in sorted({one.chip for one in rows}):
        traced = [one for one in rows if one.chip == chip and not one.by_host]
        by_host = [one for one in rows if one.chip == chip and one.by_host]
        below = sum(one.time_s < one.prediction.floor_s for one in by_host)
        print(
            f"{chip}: {len(traced)} timed by the device, mean error {percent(mean(abs(one.error) for one in traced))}, "
            f"{sum(one.is_within for one in traced)} within their interval; {len(by_host)} by the host, {below} below the minimum"
        )


if __name__ == "__main__":
    main()
