"""JAX functions priced without being run: compiled here, or written down for a chip that is not here."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax.experimental import pallas  # noqa: E402

import roofline as rl  # noqa: E402
import roofline.jax  # noqa: E402
from every import every  # noqa: E402
from roofline.grouping import group  # noqa: E402
from roofline.jax.cudnn import assumed_cudnn  # noqa: E402
from roofline.report import Report  # noqa: E402

pytestmark = pytest.mark.jax
Spec = jax.ShapeDtypeStruct
WIDTH, ROWS = 256, 64


def layers(params: list[jax.Array], x: jax.Array) -> jax.Array:
    for number, weights in enumerate(params):
        with jax.named_scope(f"layer{number}"):
            x = jnp.tanh(x @ weights)
    return x


def loss(params: list[jax.Array], x: jax.Array) -> jax.Array:
    return jnp.sum(layers(params, x))


PARAMS = [Spec((WIDTH, WIDTH), jnp.bfloat16)] * 3
X = Spec((ROWS, WIDTH), jnp.bfloat16)
PRODUCT = 2 * ROWS * WIDTH * WIDTH


def matrix_flops(report: Report) -> float:
    return sum(amount or 0 for op in report.ops for name, amount in op.work.items() if name.startswith("matrix/"))


@every("chip", ["h100", "v5e", "v7x"])
def test_a_chip_that_is_not_here_gets_an_estimate_and_the_report_says_so(chip: str) -> None:
    report = rl.jax.analyze(layers, chip=chip)(PARAMS, X)
    assert matrix_flops(report) == 3 * PRODUCT
    assert "estimate" in report.input.notes[0]
    # Each layer reads its weights and its rows and writes its rows. XLA:TPU fuses the tanh into the product; on GPU the library's
    # epilogues have none, so it is a kernel of its own that reads and writes the rows once more.
    extra = 0 if chip.startswith("v") else 2 * ROWS * WIDTH
    assert report.points[0].bytes["hbm"] == 3 * 2 * (WIDTH * WIDTH + 2 * ROWS * WIDTH + extra)


def test_attention_of_cudnn_is_priced_where_cudnn_is_not_installed() -> None:
    def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="cudnn")

    head = Spec((4, 1024, 16, 128), jnp.bfloat16)
    report = rl.jax.analyze(attend, chip="h200")(head, head, head)
    # Two products of 1024 x 128 x 1024 for each of 4 x 16 heads, half of which the mask removes.
    assert matrix_flops(report) == 4 * 16 * 2 * (2 * 1024 * 128 * 1024) / 2


def test_cudnn_is_assumed_until_the_last_thread_leaves() -> None:
    module = import_module("jax._src.cudnn.fused_attention_stablehlo")
    assert module.cuda_versions is None
    inside, left = Event(), Event()

    def assume() -> None:
        with assumed_cudnn():
            inside.set()
            assert left.wait(60)

    thread = Thread(target=assume)
    with assumed_cudnn():
        thread.start()
        assert inside.wait(60)
    assert module.cuda_versions is not None
    left.set()
    thread.join()
    assert module.cuda_versions is None
    with pytest.raises(ValueError, match="mine"), assumed_cudnn():
        raise ValueError("mine")
    assert module.cuda_versions is None


def test_a_chip_of_two_devices_is_seen_as_one_of_them() -> None:
    assert rl.jax.analyze(layers, chip="v7x")(PARAMS, X).machine.name == "tpu-v7x/device"


def test_what_the_compiler_here_emits_can_be_asked_for() -> None:
    report = rl.jax.analyze(layers, chip="h100", compiled=True)(PARAMS, X)
    assert matrix_flops(report) == 3 * PRODUCT
    assert "compiled for a CPU" in report.input.notes[0]
    # The compiler for CPUs widens bf16 products to fp32; an H100 does not.
    assert {name for op in report.ops for name in op.work if name.startswith("matrix/")} == {"matrix/bf16"}


def test_arrays_and_jitted_functions_will_do_and_nothing_runs() -> None:
    def fails_when_run(x: jax.Array) -> jax.Array:
        jax.debug.callback(lambda: pytest.fail("it ran"))
        return x @ x

    report = rl.jax.analyze(jax.jit(fails_when_run), chip="h100")(jnp.ones((32, 32)))
    assert matrix_flops(report) == 2 * 32**3


def test_forward_and_gradient_are_told_apart() -> None:
    report = rl.jax.analyze(jax.grad(loss), chip="h100")(PARAMS, X)
    by_phase = {one.key: sum(amount for name, amount in one.work.items() if "matrix" in name) for one in group(report.ops, "phase")}
    # Forward 3 products; backward one for each weight and one for each layer's input but the first.
    assert by_phase["forward"] == 3 * PRODUCT
    assert by_phase["backward"] == 5 * PRODUCT


def test_work_is_known_by_scope_and_by_source_line() -> None:
    report = rl.jax.analyze(layers, chip="h100")(PARAMS, X)
    assert {one.key for one in group(report.ops, "scope")} == {"layer0", "layer1", "layer2"}
    assert all("test_jax.py:" in one.key for one in group(report.ops, "location"))


def test_a_loop_counts_its_trips() -> None:
    def scanned(x: jax.Array, weights: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda carry, w: (carry @ w, None), x, weights)[0]

    stacked = Spec((32, WIDTH, WIDTH), jnp.bfloat16)
    for compiled in (False, True):
        assert matrix_flops(rl.jax.analyze(scanned, chip="h100", compiled=compiled)(X, stacked)) == 32 * PRODUCT


def test_a_loop_that_only_the_data_decide_is_unknown_until_told() -> None:
    def until_small(x: jax.Array) -> jax.Array:
        return jax.lax.while_loop(lambda y: jnp.sum(y) > 1, lambda y: y @ y, x)

    square = Spec((64, 64), jnp.float32)
    report = rl.jax.analyze(until_small, chip="h100")(square)
    assert any(op.flops is None for op in report.ops)
    assert "unknown" in {finding.kind for finding in report.findings}


def test_without_a_chip_a_cpu_is_this_computer() -> None:
    report = rl.jax.analyze(layers)(PARAMS, X)
    assert (report.machine.kind, report.machine.title) == ("cpu", rl.chip("local").title)
    assert any("roofline chips measure" in note for note in report.machine.notes)


def test_without_a_chip_an_unknown_device_asks_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unknown:
        device_kind = "My Chip 3"

    monkeypatch.setattr(jax, "devices", lambda: [Unknown()])
    with pytest.raises(rl.UsageError, match=r"name a chip: analyze\(f, chip='h100'\)"):
        rl.jax.analyze(layers)(PARAMS, X)


SHARDED = """
import jax, jax.numpy as jnp, roofline.jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(jax.devices(), ("model",))
def spec(shape, *axes):
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=NamedSharding(mesh, P(*axes)))
def ffn(x, up, down):
    return jnp.maximum(x @ up, 0) @ down
report = roofline.jax.analyze(ffn, chip="v5e")(spec((256, 512)), spec((512, 2048), None, "model"), spec((2048, 512), "model", None))
matrix = sum(a for op in report.ops for name, a in op.work.items() if name.startswith("matrix/"))
links = sum(op.bytes.get("ici") or 0 for op in report.ops)
print(int(matrix), int(links), report.input.notes[0])
"""


def test_shardings_give_one_devices_share_and_its_exchanges() -> None:
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    run = subprocess.run([sys.executable, "-c", SHARDED], env=environment, capture_output=True, text=True, check=True)
    matrix, links, note = run.stdout.strip().split(" ", 2)
    # 2·2·256·512·2048 FLOP over 8 devices; partial sums of 256 x 512 all-reduced: 2·7/8 of them, half each way round the ring, in bf16.
    assert int(matrix) == 2 * 2 * 256 * 512 * 2048 // 8
    assert int(links) == 256 * 512 * 2 * 7 // 4 // 2
    assert note == "one of 8 devices"


@every(("precision", "compute"), [("default", None), ("high", "bf16x3"), ("highest", "bf16x6")])
def test_the_passes_of_a_product_are_those_of_the_formula(precision: str, compute: str | None) -> None:
    square = Spec((2048, 2048), jnp.float32)
    report = rl.jax.analyze(lambda a, b: jnp.dot(a, b, precision=precision), chip="v5e")(square, square)
    formula = rl.place(rl.formulas.matmul(2048, 2048, 2048, dtype="fp32", compute=compute).cost, rl.chip("v5e"))
    assert report.points[0].floor_s == pytest.approx(formula.floor_s)


@pytest.mark.parametrize(("precision", "compute", "passes"), [("default", None, 1), ("highest", "bf16x6", 6)])
def test_the_formula_the_program_the_function_and_the_kernel_agree_on_the_passes_of_a_product(
    precision: str, compute: str | None, passes: int, tmp_path: Path
) -> None:
    n = 4096
    square = Spec((n, n), jnp.float32)

    def dot(a: Any, b: Any) -> Any:
        return jnp.dot(a, b, precision=precision)

    def kernel(a: Any, b: Any, out: Any) -> None:
        out[...] = jnp.dot(a[...], b[...], precision=precision, preferred_element_type=jnp.float32)

    estimate = pallas.CostEstimate(flops=2 * n**3, transcendentals=0, bytes_accessed=3 * 4 * n * n)
    called = pallas.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct((n, n), jnp.float32), cost_estimate=estimate)
    file = tmp_path / "dot.mlir"
    file.write_text(jax.jit(dot).lower(square, square).as_text())
    v5e = rl.chip("v5e")
    reports = [
        rl.price([rl.formulas.matmul(n, n, n, dtype="fp32", compute=compute)], v5e),
        rl.analyze(file, v5e),
        rl.jax.analyze(dot, chip=v5e)(square, square),
        rl.jax.analyze(called, chip=v5e)(square, square),
    ]
    # 2n³ FLOP at 197 TFLOP/s, once a pass.
    assert [report.ops[0].floor_s for report in reports] == pytest.approx([passes * 2 * n**3 / 197e12] * 4)
    said = "runs as 1 pass of bf16" if passes == 1 else f"runs as {passes} passes of bf16"
    assert all(any(said in note for note in report.ops[0].notes) for report in reports)
