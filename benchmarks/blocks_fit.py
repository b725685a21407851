"""How well `rl.blocks` orders configurations: python benchmarks/blocks_fit.py SWEEP.json KERNELS.py

SWEEP.json has measured configurations (``rows``: kernel, shape, config, seconds or error), KERNELS.py the Triton kernels that were
measured. Every configuration is compiled here. For each kernel and shape: the time of the first choice over the best measured one, of the
best of the first five, the rank correlation, and whether those that could not run are refused. The model has no parameter of a kernel, so
none is left out.
"""

import importlib.util
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import roofline as rl
from roofline.blocks.results import Blocks

Case = tuple[Sequence[Any], dict[str, Any], Callable[[dict[str, Any]], Any]]


def arguments(kernel: str, shape: Sequence[int]) -> Case:
    """The arguments of a kernel for a shape, in order and by name, and its grid."""
    import torch

    def on_meta(*sizes: int, dtype: Any = torch.bfloat16) -> Any:
        return torch.empty(*sizes, dtype=dtype, device="meta")

    def tiles(size: int, block: int) -> int:
        return -(-size // block)

    if kernel == "matmul":
        m, n, k = shape
        args = (on_meta(m, k), on_meta(k, n), on_meta(m, n), m, n, k, k, 1, n, 1, n, 1)
        return args, {}, lambda config: (tiles(m, config["BM"]) * tiles(n, config["BN"]),)
    if kernel in ("layer_norm", "softmax"):
        rows, columns = shape
        vectors = (on_meta(columns), on_meta(columns)) if kernel == "layer_norm" else ()
        return (on_meta(rows, columns), on_meta(rows, columns), *vectors, columns), {}, lambda _: (rows,)
    if kernel == "add_gelu":
        (size,) = shape
        return (on_meta(size), on_meta(size), on_meta(size), size), {}, lambda config: (tiles(size, config["BLOCK"]),)
    if kernel == "attention":
        heads, length, width = shape
        whole = on_meta(heads, length, width)
        return (whole, whole, whole, whole, length, width**-0.5), {"D": width}, lambda config: (length // config["BM"], heads)
    raise SystemExit(f"no arguments of {kernel} are known")


def ranks(values: Sequence[float]) -> Any:
    return np.argsort(np.argsort(values))


def scored(rows: list[dict[str, Any]], blocks: Blocks) -> dict[str, float]:
    """How a sweep agrees with what was measured."""
    by_config = {tuple(sorted(row["config"].items())): row for row in rows}
    pairs = [(config, by_config[tuple(sorted(config.config.items()))]) for config in blocks.configs]
    timed = [(config, row["seconds"]) for config, row in pairs if config.time_s is not None and "seconds" in row]
    predicted, measured = [config.time_s or 0.0 for config, _ in timed], [seconds for _, seconds in timed]
    ratios = [seconds / time_s for time_s, seconds in zip(predicted, measured, strict=True)]
    return {
        "configs": len(pairs),
        "first": measured[0] / min(measured),
        "best five": min(measured[:5]) / min(measured),
        "rank": float(np.corrcoef(ranks(predicted), ranks(measured))[0, 1]),
        "wrongly run or refused": sum((config.time_s is None) != ("error" in row) for config, row in pairs),
        "p10": float(np.quantile(ratios, 0.1)),
        "median": float(np.median(ratios)),
        "p90": float(np.quantile(ratios, 0.9)),
    }


def main(sweep: str, kernels: str, only: str = "") -> None:
    spec = importlib.util.spec_from_file_location("measured_kernels", kernels)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{kernels}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    cases: dict[tuple[str, tuple[int, ...]], list[dict[str, Any]]] = {}
    for row in json.loads(Path(sweep).read_text())["rows"]:
        if "config" in row and only in row["kernel"]:
            cases.setdefault((row["kernel"], tuple(row["shape"])), []).append(row)
    for (kernel, shape), rows in cases.items():
        args, named, grid = arguments(kernel, shape)
        began = time.monotonic()
        blocks = rl.blocks(getattr(module, kernel), args, grid=grid, chip="h200", space=[row["config"] for row in rows], **named)
        words = "  ".join(f"{name} {value:.3g}" for name, value in scored(rows, blocks).items())
        print(f"{kernel} {'x'.join(map(str, shape))}: {words}  in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
