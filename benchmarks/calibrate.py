"""Fit the calibrations that the package ships, and score them on rows that they have not seen.

    python benchmarks/calibrate.py TABLES LATENCIES [FAMILY…] [--out FITS.jsonl]

TABLES is a folder of op latencies of NVIDIA AIConfigurator (github.com/ai-dynamo/aiconfigurator @ 095f58a5, Apache-2.0), by chip;
LATENCIES a JSON file of single ops timed on an H200. Prints for each fit its values, its errors (median/mean/90th percentile) and, by
regime, the mean error and the interval of measured over predicted time that holds 90%: what the files in
`src/roofline/machines/calibrations` say, rounded. Needs scipy and pyarrow.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import NamedTuple

import numpy as np
from latency_tables import EXCHANGES, Rates, Row, attention, exchanges, products, rates, singles
from scipy.optimize import minimize

from roofline.operation import Streamed
from roofline.prediction.attention import decode_time, prefill_time
from roofline.prediction.calibration import REGIMES, WIDE, Calibration, Family
from roofline.prediction.collectives import collective_time
from roofline.prediction.products import product_time
from roofline.prediction.streams import pointwise_time, row_time

SEED, SAMPLE = 7, 1200


class Model(NamedTuple):
    """A family to fit: where each value starts, which are kept, and how a row is estimated."""

    start: Mapping[str, float]
    estimate: Callable[[Row, Family, Rates, Calibration], float]
    kept: Mapping[str, float] = {}


NOTHING = Calibration(name="fit")


def _product(row: Row, family: Family, chip: Rates, calibration: Calibration) -> float:
    return product_time(row.op, family, chip.chip(row.op.compute), calibration).seconds


def _prefill(row: Row, family: Family, chip: Rates, calibration: Calibration) -> float:
    return prefill_time(row.op, family, chip.chip(), calibration).seconds


def _decode(row: Row, family: Family, chip: Rates, calibration: Calibration) -> float:
    return decode_time(row.op, family, chip.chip(), calibration).seconds


def _pointwise(row: Row, family: Family, chip: Rates, calibration: Calibration) -> float:
    op = Streamed(kind=row.op.kind, elements=row.op.rows * row.op.columns)
    return pointwise_time(row.moved, row.functions, 0.0, op, family, chip.chip(), calibration).seconds


def _rows(row: Row, family: Family, chip: Rates, calibration: Calibration) -> float:
    return row_time(row.op, row.moved, family, chip.chip(), calibration).seconds


def _exchange(row: Row, family: Family, chip: Rates, calibration: Calibration) -> float:
    return collective_time(row.op, chip.link, family, calibration).seconds


PRODUCT = {"floor": 1.41e-6, "compute": 0.81, "memory": 0.81, "feed": 63.6, "split": 2.95e-6, "p": 3.3, "tile": 1.17e-6, "ramp": 0.88e-6}
HELD = {name: PRODUCT[name] for name in ("floor", "feed", "split", "p", "tile", "ramp")}
COLD = {"floor": 4.4e-6, "compute": 0.8, "memory": 0.7}  # of single launches between events, with a cold L2
MODELS = {
    "products": Model(PRODUCT, _product),
    "cold products": Model(COLD, _product, {name: PRODUCT[name] for name in ("feed", "split", "p", "tile", "ramp")}),
    "cold fp8 products": Model(
        {"compute": 0.7},
        _product,
        {"floor": 4.33e-6, "memory": 0.673, **{name: PRODUCT[name] for name in ("feed", "split", "p", "tile", "ramp")}},
    ),
    "fp8": Model({"compute": 0.72, "memory": 0.82, "quantize": 9e-6, "quantize_element": 2.2e-12}, _product, HELD),
    "fp8 per token": Model(
        {"compute": 0.65, "memory": 0.8, "quantize": 2.7e-6, "quantize_element": 2.2e-12, "quantize_row": 6e-9}, _product, HELD
    ),
    "prefill": Model(
        {"floor": 9.8e-6, "exponentials": 0.89, "block": 2e-6, "memory": 0.95, "append": 0.45}, _prefill, {"compute": 0.97, "packs": 1}
    ),
    "prefill cudnn": Model({"floor": 9.8e-6, "exponentials": 0.89, "block": 2e-6}, _prefill, {"compute": 0.97, "memory": 0.8}),
    "decode": Model({"floor": 8.05e-6, "block": 3.7e-6, "memory": 0.96, "feed": 119, "split": 1.4e-6, "p": 1.15}, _decode),
    "pointwise": Model({"floor": 3.5e-6, "memory": 0.82, "functions": 2.9}, _pointwise),
    "transpose": Model({"floor": 3.5e-6, "elements": 0.56}, _pointwise, {"memory": 0.85}),
    "row-wise": Model({"floor": 3.8e-6, "rows": 9.0, "start": 1e-6, "column": 1.5e-9}, _rows, {"p": 2.0, "memory": 0.86}),
    "collectives": Model({"floor": 5e-6, "hop": 1.6e-6, "link": 0.78, "hump": 39e-6, "middle": 6.1e6, "in_switch": 0.89}, _exchange),
}
BOUNDS = {"compute": 1.0, "memory": 1.0, "append": 1.0, "link": 1.0}


def fit(model: Model, rows: Sequence[Row], chip: Rates, tries: int = 2) -> dict[str, float]:
    """The values with the least mean |log(predicted / measured)| on a sample of rows."""
    chosen = sample(rows, SAMPLE)
    names = list(model.start)

    def loss(point: np.ndarray) -> float:
        values = {**model.kept, **dict(zip(names, np.exp(point), strict=True))}
        over = sum(max(values[name] - most, 0.0) for name, most in BOUNDS.items() if name in values)
        family = Family(family="fit", values=values)
        ratios = [model.estimate(row, family, chip, NOTHING) / row.seconds for row in chosen]
        return float(np.mean(np.abs(np.log(ratios)))) + 10 * over

    point = np.log([model.start[name] for name in names])
    for _ in range(tries):
        point = minimize(loss, point, method="Nelder-Mead", options={"maxfev": 90 * len(names), "xatol": 1e-3, "fatol": 1e-5}).x
    return {**model.kept, **dict(zip(names, map(float, np.exp(point)), strict=True))}


def sample(rows: Sequence[Row], size: int) -> list[Row]:
    order = np.random.default_rng(SEED).permutation(len(rows))[:size]
    return [rows[place] for place in order]


def ratios(model: Model, values: Mapping[str, float], rows: Sequence[Row], chip: Rates, floor_s: float | None = None) -> np.ndarray:
    """Measured over predicted."""
    family, calibration = Family(family="fit", values=values), NOTHING.with_floor(floor_s)
    least = [max(row.memory_s, row.compute_s) for row in rows]
    return np.array([row.seconds / max(model.estimate(row, family, chip, calibration), low) for row, low in zip(rows, least, strict=True)])


def score(title: str, found: np.ndarray, rows: Sequence[Row]) -> None:
    error = np.abs(1 / found - 1) * 100
    by = []
    for regime in ("latency", "memory", "compute"):
        mine = np.array([row.regime == regime for row in rows])
        if mine.any():
            low, high = np.quantile(found[mine], [0.05, 0.95])
            by.append(f"{regime} {error[mine].mean():.1f} [{low:.2f}, {high:.2f}]")
    shown = f"{np.median(error):5.1f}/{error.mean():5.1f}/{np.quantile(error, 0.9):5.1f}  bias {100 * (np.median(1 / found) - 1):+.1f}"
    print(f"  {title:24} {shown}  n {len(rows):6}   {'; '.join(by)}")


def conformal(found: np.ndarray) -> tuple[float, float] | None:
    """The interval that holds 90% of new rows, of measured over predicted times of rows that were left out; ``None`` for fewer than 9.

    Split-conformal: a tail of 5% on each side from 39 rows on, of which it leaves some out, else symmetric in logarithms.
    """
    many, residuals = len(found), np.sort(np.log(found))
    if many < 9:
        return None
    if many < 39:
        widest = np.sort(np.abs(residuals))[min(ceil(0.9 * (many + 1)), many) - 1]
        return float(np.exp(-widest)), float(np.exp(widest))
    place = ceil(0.95 * (many + 1))
    return float(np.exp(min(residuals[many - place], 0.0))), float(np.exp(max(residuals[place - 1], 0.0)))


def intervals(found: np.ndarray, rows: Sequence[Row]) -> dict[str, tuple[float, float]]:
    """The conformal interval of each regime, and of any for those with too few rows."""
    regimes = np.array([row.regime for row in rows])
    made = {regime: conformal(found[regimes == regime]) for regime in REGIMES}
    return {name: interval for name, interval in {**made, "any": conformal(found)}.items() if interval is not None}


def covered(found: np.ndarray, rows: Sequence[Row], number: int = 5) -> float:
    """The share of rows that lie within the intervals of the other rows."""
    part = np.random.default_rng(SEED).permutation(len(rows)) % number
    inside = []
    for each in range(number):
        others = intervals(found[part != each], [row for row, own in zip(rows, part, strict=True) if own != each])
        for ratio, row in ((found[place], rows[place]) for place in np.flatnonzero(part == each)):
            low, high = others.get(row.regime) or others.get("any") or WIDE
            inside.append(low <= ratio <= high)
    return float(np.mean(inside))


def folds(model: Model, rows: Sequence[Row], chip: Rates, number: int = 5) -> np.ndarray:
    """Measured over predicted of rows that the fit has not seen: whole sites are left out."""
    sites = list(dict.fromkeys(row.site for row in rows))
    np.random.default_rng(SEED).shuffle(sites)  # type: ignore[arg-type]
    part = {site: place % number for place, site in enumerate(sites)}
    found = np.zeros(len(rows))
    for each in range(number):
        train = [row for row in rows if part[row.site] != each]
        test = [place for place, row in enumerate(rows) if part[row.site] == each]
        values = fit(model, train, chip, 1)
        found[test] = ratios(model, values, [rows[place] for place in test], chip)
    return found


class Fitted(NamedTuple):
    """A family to fit: the model, the rows it is fitted on, and those that it is scored on; ``few`` rows are folded over."""

    model: str
    train: Sequence[Row]
    chip: Rates
    tests: Mapping[str, tuple[Sequence[Row], Rates]] = {}
    few: bool = False


def hopper(tables: Path, latencies: Path) -> dict[str, Fitted]:
    h100, h200 = rates("h100-sxm"), rates("h200-sxm")
    gemm = tables / "h100_sxm/gemm/trtllm/1.3.0rc20/gemm_perf.parquet"
    vllm = tables / "h200_sxm/gemm/vllm/0.24.0/gemm_perf.parquet"
    nccl = tables / "h100_sxm/comm/nccl/2.29.2/nccl_perf.parquet"
    prefill, decode = "attention/vllm/0.24.0/context_attention_perf.parquet", "attention/vllm/0.24.0/generation_attention_perf.parquet"
    trained = products(gemm, "bf16", "", h100)
    unseen = {"H200 vLLM": (products(vllm, "bf16", "", h200), h200)}
    found = {"products": Fitted("products", trained, h100, unseen)}
    found["fp8"] = Fitted("fp8", products(gemm, "fp8", "per-tensor", h100), h100)
    found["fp8 per token"] = Fitted("fp8 per token", products(vllm, "fp8", "per-token", h200), h200)
    longer = attention(tables / "h200_sxm" / prefill, False, h200)
    found["prefill"] = Fitted("prefill", attention(tables / "h100_sxm" / prefill, False, h100), h100, {"H200 vLLM": (longer, h200)})
    found["decode"] = Fitted("decode", attention(tables / "h100_sxm" / decode, True, h100), h100)
    for kind in EXCHANGES:
        found[kind] = Fitted("collectives", exchanges(nccl, (kind,), h100), h100)

    def single(model: str, *names: str) -> Fitted:
        return Fitted(model, [row for name in names for row in singles(latencies, name, "bf16", h200)], h200, {}, True)

    found["cold products"] = single("cold products", "matmul")
    found["cold fp8 products"] = Fitted("cold fp8 products", singles(latencies, "matmul", "fp8", h200), h200, {}, True)
    found |= {"cudnn prefill": single("prefill cudnn", "attention_causal"), "cudnn decode": single("decode", "attention_decode")}
    found |= {"pointwise": single("pointwise", "add", "gelu"), "transpose": single("transpose", "transpose")}
    return found | {kind: single("row-wise", kind) for kind in ("layernorm", "softmax", "sum")}


def blackwell(tables: Path) -> dict[str, Fitted]:
    b200 = rates("b200")
    gemm, nccl = tables / "b200_sxm/gemm/trtllm/1.3.0rc20/gemm_perf.parquet", tables / "b200_sxm/comm/nccl/2.29.2/nccl_perf.parquet"
    found = {"products": Fitted("products", products(gemm, "bf16", "", b200), b200)}
    found["fp8"] = Fitted("fp8", products(gemm, "fp8", "per-tensor", b200), b200)
    return found | {kind: Fitted("collectives", exchanges(nccl, (kind,), b200), b200) for kind in EXCHANGES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path)
    parser.add_argument("latencies", type=Path)
    parser.add_argument("families", nargs="*")
    parser.add_argument("--out", type=Path, help="write the fits as JSON lines here")
    args = parser.parse_args()
    for chip, all_fits in (("hopper", hopper(args.tables, args.latencies)), ("blackwell", blackwell(args.tables))):
        for name, one in all_fits.items():
            if args.families and f"{chip}/{name}" not in args.families and name not in args.families:
                continue
            model = MODELS[one.model]
            values = fit(model, one.train, one.chip)
            print(f"{chip} {name}: " + ", ".join(f"{key} {value:.4g}" for key, value in values.items()))
            shown = sample(one.train, 5000)
            unseen = folds(model, one.train, one.chip) if one.few else ratios(model, values, shown, one.chip)
            score("held-out rows" if one.few else "its own rows", unseen, one.train if one.few else shown)
            if one.few:
                held = "; ".join(f"{regime} [{low:.2f}, {high:.2f}]" for regime, (low, high) in intervals(unseen, one.train).items())
                print(f"  conformal intervals      {held}; {covered(unseen, one.train):.0%} of left-out rows inside")
            for title, (rows, there) in one.tests.items():
                some = sample(rows, 5000)
                score(title, ratios(model, values, some, there), some)
            sys.stdout.flush()
            if args.out:
                record = {"chip": chip, "name": name, "values": values, "rows": len(one.train)}
                args.out.open("a").write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
