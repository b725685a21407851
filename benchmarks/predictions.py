"""How well the package predicts measured ops: mean errors and how many lie within the bounds of nine in ten, by family and source.

    python benchmarks/predictions.py TABLES LATENCIES [--rows 3000]

TABLES and LATENCIES are those of `calibrate.py`. Every row is predicted as a user gets it: by formula, with the package's calibrations.
Mean errors in percent, and the percentage of rows within the bounds (which should be 80 to 97), on 3,000 rows of each source:

    products bf16    H200 vLLM 6.9, 94    H100 TensorRT-LLM 6.1, 95 (fitted)    H200 events 5.7, 95 (fitted)    B200 8.4, 95 (fitted)
    products fp8     H100 cuBLAS with quantization 4.4, 95 (fitted)    B200 5.2, 94 (fitted)    H200 CUTLASS per token 14.2, 90 (fitted)
    FA3 attention    prefill H200 9.4, 92    H100 7.9, 93 (fitted)    decode H100 7.9, 93 (fitted)
    cuDNN attention  prefill 4.6, 90    decode 8.3, 90
    PyTorch, H200    add 2.2, 88    GELU 1.8, 92    transpose 4.2, 96    LayerNorm 6.0, 90    softmax 15.6, 93    sum 14.6, 97
    NCCL, H100       all-reduce 5.6, 90    all-gather 5.8, 89    reduce-scatter 5.7, 87    all-to-all 13.7, 92
    NCCL, B200       all-reduce 6.1, 92    all-gather 8.1, 90    reduce-scatter 7.0, 94    all-to-all 13.7, 89
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from latency_tables import Row, attention, exchanges, products, rates, singles
from msgspec.structs import replace

from roofline.formulas import lookup
from roofline.ledger import Ledger
from roofline.machines import load
from roofline.machines.calibrations import calibration_for
from roofline.operation import Attention, Collective, Product
from roofline.prediction import Expected, predict

SEED = 7
COVERED = (80.0, 97.0)  # percent of the rows that lie within bounds of nine in ten
PLAIN = {"add": "elementwise", "gelu": "gelu_erf", "sum": "reduction"}  # what PyTorch's ops are called here


class Source(NamedTuple):
    """Rows of one family by one framework: on which chip, the most that their mean error may be, and a floor if one was measured."""

    family: str
    source: str
    chip: str
    rows: Callable[[], list[Row]]
    most: float | None = None
    floor_s: float | None = None


def ledger_of(row: Row) -> Ledger:
    """The formula of a measured op."""
    op = row.op
    if isinstance(op, Product):
        made = lookup("matmul")(op.m, op.k, op.n, dtype=op.left, out="bf16")
    elif isinstance(op, Attention):
        name, queries = ("attention_decode", ()) if op.is_decode else ("attention", (op.queries,))
        more = {"append": False} if op.is_decode else {"causal": op.causal}
        made = lookup(name)(op.batch, op.heads, *queries, op.keys, op.size, kv_heads=op.kv_heads or op.heads, **more)
    elif isinstance(op, Collective):
        return lookup(op.kind.replace("-", "_"))(op.bytes // 2, over=op.devices, link="nvlink", links=18, algorithm="switch")
    else:
        shape = (op.rows, op.columns) if op.kind in ("layernorm", "softmax", "sum", "transpose") else (op.rows * op.columns,)
        return lookup(PLAIN.get(op.kind, op.kind))(*shape)
    changes = {"quantize": op.quantize} if isinstance(op, Product) else {"library": op.library}
    return replace(made, operation=replace(made.operation, **changes))


def score(one: Source, most_rows: int) -> tuple[np.ndarray, np.ndarray, list[Row]]:
    """Predicted over measured time of a source's rows, and which lie within their bounds."""
    machine = load(one.chip)
    calibration, rows = calibration_for(machine, one.floor_s), one.rows()
    chosen = [rows[place] for place in np.random.default_rng(SEED).permutation(len(rows))[:most_rows]]
    ratios, inside = [], []
    for row in chosen:
        ledger = ledger_of(row)
        found = predict(ledger.operation, ledger.cost, machine, calibration)
        assert isinstance(found, Expected), ledger.name
        ratios.append(found.time_s / row.seconds)
        inside.append(found.low_s <= row.seconds <= found.high_s)
    return np.array(ratios), np.array(inside), chosen


def sources(tables: Path, latencies: Path) -> Iterator[Source]:
    h100, h200, b200 = rates("h100-sxm"), rates("h200-sxm"), rates("b200")
    trtllm, vllm = "gemm/trtllm/1.3.0rc20/gemm_perf.parquet", "gemm/vllm/0.24.0/gemm_perf.parquet"
    prefill, decode = "attention/vllm/0.24.0/context_attention_perf.parquet", "attention/vllm/0.24.0/generation_attention_perf.parquet"
    nccl = "comm/nccl/2.29.2/nccl_perf.parquet"
    yield Source("products bf16", "TensorRT-LLM (fitted)", "h100-sxm", lambda: products(tables / "h100_sxm" / trtllm, "bf16", "", h100), 8)
    yield Source("products bf16", "vLLM", "h200-sxm", lambda: products(tables / "h200_sxm" / vllm, "bf16", "", h200), 8)
    yield Source("products bf16", "TensorRT-LLM (fitted)", "b200", lambda: products(tables / "b200_sxm" / trtllm, "bf16", "", b200), 12)
    yield Source("products bf16", "events (fitted)", "h200-sxm", lambda: singles(latencies, "matmul", "bf16", h200), 8, 4e-6)
    yield Source("products fp8", "events (fitted)", "h200-sxm", lambda: singles(latencies, "matmul", "fp8", h200), 8, 4e-6)
    yield Source(
        "fp8 per-tensor", "TensorRT-LLM (fitted)", "h100-sxm", lambda: products(tables / "h100_sxm" / trtllm, "fp8", "per-tensor", h100), 8
    )
    yield Source(
        "fp8 per-tensor", "TensorRT-LLM (fitted)", "b200", lambda: products(tables / "b200_sxm" / trtllm, "fp8", "per-tensor", b200)
    )
    yield Source("fp8 per-token", "vLLM (fitted)", "h200-sxm", lambda: products(tables / "h200_sxm" / vllm, "fp8", "per-token", h200), 17)
    yield Source("prefill FA3", "vLLM (fitted)", "h100-sxm", lambda: attention(tables / "h100_sxm" / prefill, False, h100), 12)
    yield Source("prefill FA3", "vLLM", "h200-sxm", lambda: attention(tables / "h200_sxm" / prefill, False, h200), 12)
    yield Source("decode FA3", "vLLM (fitted)", "h100-sxm", lambda: attention(tables / "h100_sxm" / decode, True, h100), 12)
    for name, family in (("attention_causal", "prefill cuDNN"), ("attention_decode", "decode cuDNN")):
        yield Source(family, "events", "h200-sxm", lambda name=name: singles(latencies, name, "bf16", h200))  # type: ignore[misc]
    for name, most in (("add", 6), ("gelu", 6), ("transpose", None), ("layernorm", 10), ("softmax", None), ("sum", None)):
        yield Source(name, "events (fitted)", "h200-sxm", lambda name=name: singles(latencies, name, "bf16", h200), most)  # type: ignore[misc]
    for kind, most in (("all-reduce", 8), ("all-gather", None), ("reduce-scatter", None), ("all-to-all", None)):
        yield Source(kind, "NCCL (fitted)", "h100-sxm", lambda kind=kind: exchanges(tables / "h100_sxm" / nccl, (kind,), h100), most)  # type: ignore[misc]
        yield Source(kind, "NCCL (fitted)", "b200", lambda kind=kind: exchanges(tables / "b200_sxm" / nccl, (kind,), b200))  # type: ignore[misc]


def by_regime(inside: np.ndarray, ratios: np.ndarray, rows: Sequence[Row]) -> str:
    said = []
    for regime in ("latency", "memory", "compute"):
        mine = np.array([row.regime == regime for row in rows])
        if mine.any():
            low, high = np.quantile(1 / ratios[mine], [0.05, 0.95])
            said.append(f"{regime} {100 * inside[mine].mean():.0f} [{low:.2f} {high:.2f}] n {mine.sum()}")
    return "; ".join(said)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path)
    parser.add_argument("latencies", type=Path)
    parser.add_argument("--rows", type=int, default=3000, help="the most rows of each source (default: 3000)")
    args = parser.parse_args()
    for one in sources(args.tables, args.latencies):
        ratios, inside, rows = score(one, args.rows)
        error, covered = 100 * np.abs(ratios - 1).mean(), 100 * inside.mean()
        wrong = [f"error above {one.most}"] if one.most is not None and error > one.most else []
        wrong += [f"coverage outside of {COVERED[0]:.0f} to {COVERED[1]:.0f}"] if not COVERED[0] <= covered <= COVERED[1] else []
        bias = 100 * (np.median(ratios) - 1)
        shown = f"error {error:5.1f}  bias {bias:+5.1f}  within {covered:3.0f}%  n {len(rows):5}"
        print(
            f"{one.family:15} {one.source:22} {one.chip:9} {shown}  {'; '.join(wrong)}\n    {by_regime(inside, ratios, rows)}", flush=True
        )


if __name__ == "__main__":
    main()
