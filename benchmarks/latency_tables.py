"""Measured op latencies as rows of ops: the public tables, and single ops timed on one card. For the scripts beside this one."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet

from roofline.machines import load
from roofline.operation import Attention, Collective, Product, RowWise
from roofline.prediction.terms import Hardware

EXCHANGES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
CORES = {"h100-sxm": (132, 1.98e9), "h200-sxm": (132, 1.98e9), "b200": (148, 1.965e9)}


class Row(NamedTuple):
    """An op, its bytes and the least it can take, by memory and by arithmetic, and what it took."""

    op: Any
    moved: float
    memory_s: float
    compute_s: float
    seconds: float
    site: object
    functions: float = 0.0

    @property
    def regime(self) -> str:
        least = max(self.memory_s, self.compute_s)
        return "latency" if least < 3e-6 else "memory" if self.memory_s >= self.compute_s else "compute"


class Rates(NamedTuple):
    bandwidth: float
    peaks: Mapping[str, float]
    link: float
    cores: int
    clock_hz: float

    def chip(self, number: str = "bf16") -> Hardware:
        return Hardware(self.peaks[number], self.bandwidth, self.cores, self.clock_hz)


def rates(chip: str) -> Rates:
    machine = load(chip)
    link = machine.ceiling("nvlink")
    return Rates(
        machine.rate("hbm"),
        {name: machine.rate(f"matrix/{name}") for name in ("bf16", "fp8")},
        (link.peak or link.rate) * link.count if link else 0.0,
        *CORES[chip],
    )


def table(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pyarrow.parquet.read_table(path).to_pylist()
    return rows


def products(path: Path, number: str, quantize: str, chip: Rates) -> list[Row]:
    found = []
    for row in table(path):
        if row["gemm_dtype"] != {"bf16": "bfloat16"}.get(number, number):
            continue
        m, n, k = row["m"], row["n"], row["k"]
        op = Product(m=m, k=k, n=n, left=number, right=number, out="bf16", compute=number, quantize=quantize)
        found.append(Row(op, op.bytes, op.bytes / chip.bandwidth, op.flops / chip.peaks[number], row["latency"] * 1e-3, (n, k)))
    return found


def attention(path: Path, decode: bool, chip: Rates) -> list[Row]:
    found = []
    for row in table(path):
        plain = row["attn_dtype"] == row["kv_cache_dtype"] == "bfloat16" and row["window_size"] == 0 and row["beam_width"] == 1
        if not plain or not row["kernel_source"].endswith("fa3") or row["head_dim"] > 256 or (row["isl"] == 1 and not decode):
            continue
        b, h, g, d = row["batch_size"], row["num_heads"], row["num_key_value_heads"] or row["num_heads"], row["head_dim"]
        q, s = (1, row["isl"] + row["step"]) if decode else (row["isl"], row["isl"])
        op = Attention(batch=b, heads=h, queries=q, keys=s, size=d, kv_heads=g, causal=True)
        moved = 2.0 * b * d * (2 * h * q + 2 * g * s)
        flops = 4.0 * b * h * d * (q * s / (1 if decode else 2))
        found.append(Row(op, moved, moved / chip.bandwidth, flops / chip.peaks["bf16"], row["latency"] * 1e-3, (h, g, d)))
    return found


def exchanges(path: Path, kinds: Sequence[str], chip: Rates) -> list[Row]:
    found = []
    for row in table(path):
        kind = {"all_reduce": "all-reduce", "all_gather": "all-gather", "reduce_scatter": "reduce-scatter", "alltoall": "all-to-all"}
        if row["nccl_dtype"] != "half" or kind[row["op_name"]] not in kinds:
            continue
        op = Collective(kind=kind[row["op_name"]], devices=row["num_gpus"], bytes=2 * row["message_size"], link="nvlink")
        found.append(Row(op, op.bytes, 0.0, op.bytes / chip.link, row["latency"] * 1e-3, row["message_size"]))
    return found


def singles(path: Path, name: str, number: str, chip: Rates) -> list[Row]:
    """Single ops of the H200, timed by events with a cold L2."""
    found = []
    for place, row in enumerate(json.loads(path.read_text())["rows"]):
        if row["op"] != name or row["dtype"] != number:
            continue
        shape, compute = row["shape"], 0.0
        op: Any = None
        if name == "matmul":
            m, k, n = shape
            op = Product(m=m, k=k, n=n, left=number, right=number, compute=number)
            moved, compute = op.bytes, op.flops / chip.peaks[number]
        elif name.startswith("attention"):
            b, h, q, s, d = shape
            op = Attention(batch=b, heads=h, queries=q, keys=s, size=d, causal=q > 1, library="cudnn")
            moved = 2.0 * b * h * d * (2 * q + 2 * s)
            compute = 4.0 * b * h * d * q * s / (2 if q > 1 else 1) / chip.peaks["bf16"]
        else:
            rows, columns = shape
            moved = 2.0 * rows * columns * (1 if name == "sum" else 2) + (2.0 * rows if name == "sum" else 0)
            op = RowWise(rows=rows, columns=columns, kind=name)
        found.append(Row(op, moved, moved / chip.bandwidth, compute, row["median_s"], place, moved / 4 if name == "gelu" else 0.0))
    return found
