"""A program in another number format costs what the same program costs that was written in it."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hlo_programs import BIASED
from reviewed import of_shape
from roofline import analyze
from roofline.analysis.what_if import what_if
from roofline.machines import load
from roofline.report import Report

jax = pytest.importorskip("jax")


def block(weights: Any, x: Any) -> Any:
    return x + jax.nn.gelu(x @ weights["up"]) @ weights["down"]


def convolved(weights: Any, x: Any) -> Any:
    return jax.nn.relu(jax.lax.conv_general_dilated(x, weights["kernel"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))


def arguments(shapes: dict[str, tuple[int, ...]], number: str) -> tuple[Any, Any]:
    *weights, (_, data) = shapes.items()
    return {name: of_shape(*dims, dtype=number) for name, dims in weights}, of_shape(*data, dtype=number)


def amounts(report: Report) -> Counter[str]:
    total: Counter[str] = Counter()
    for op in report.ops:
        total.update({str(resource): amount or 0 for resource, amount in (*op.work.items(), *op.bytes.items())})
    return total


@pytest.mark.parametrize("precision", ["default", "highest"])
@pytest.mark.parametrize(("before", "after", "words"), [("bfloat16", "float32", "dtype fp32"), ("float32", "bfloat16", "dtype bf16")])
@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (block, {"up": (512, 2048), "down": (2048, 512), "x": (4096, 512)}),
        (convolved, {"kernel": (3, 3, 64, 128), "x": (16, 32, 32, 64)}),
    ],
)
def test_products_of_fp32_run_in_the_unit_that_xla_takes_for_them(
    function: Any, shapes: dict[str, tuple[int, ...]], before: str, after: str, words: str, precision: str, tmp_path: Path
) -> None:
    with jax.default_matmul_precision(precision):
        for name in (before, after):
            lowered = jax.jit(function).trace(*arguments(shapes, name)).lower(lowering_platforms=("cuda",))
            (tmp_path / f"{name}.mlir").write_text(lowered.as_text(debug_info=True), encoding="utf-8")
    changed, written = (
        amounts(one)
        for one in (what_if(tmp_path / f"{before}.mlir", words, "h200"), analyze(tmp_path / f"{after}.mlir", machine=load("h200")))
    )
    units = {unit for unit in written if unit.startswith("matrix/")}
    assert units == {"matrix/bf16" if after == "bfloat16" else "matrix/tf32" if precision == "default" else "matrix/fp32"}
    for one in (*units, "hbm"):
        assert changed[one] == pytest.approx(written[one], rel=0.01), one


def test_a_bias_that_was_fused_into_a_product_gets_a_kernel_in_bf16(tmp_path: Path) -> None:
    (tmp_path / "net.hlo").write_text(BIASED)
    before, changed = (
        amounts(one)["hbm"]
        for one in (analyze(tmp_path / "net.hlo", machine=load("h200")), what_if(tmp_path / "net.hlo", "dtype bf16", "h200"))
    )
    assert changed == before / 2 + 2 * 2 * 65536 * 256  # it reads and writes the result in bf16
