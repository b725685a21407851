"""The steps of unmodified programs, traced for a slice of TPUs instead of run: which call is the step, and what users are told."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

import tpu_compiler  # noqa: E402
from every import every  # noqa: E402
from roofline.capture.hook.roofline_hook_jax_work import flop_of  # noqa: E402
from roofline.capture.hook.roofline_hook_step import StepFinder  # noqa: E402
from roofline.capture.step import step_of  # noqa: E402
from roofline.cli import main  # noqa: E402
from roofline.errors import RooflineError  # noqa: E402
from roofline.jax.tpu import compiling  # noqa: E402

pytestmark = pytest.mark.jax
W, X = jnp.ones((32, 16)), jnp.ones((8, 32))


def of_trace(function: Any, *args: Any) -> float:
    return flop_of(jax.jit(function).trace(*args).jaxpr.jaxpr)


def test_products_are_counted_in_loops_branches_and_kernels() -> None:
    product = 2 * 8 * 32 * 16
    assert of_trace(jnp.matmul, X, W) == product
    assert of_trace(lambda x, w: jax.lax.scan(lambda c, _: (c + x @ w, None), jnp.zeros((8, 16)), length=5)[0], X, W) == 5 * product
    branches = (lambda x, w: x @ w, lambda x, w: x @ w + x @ w)
    assert of_trace(lambda i, x, w: jax.lax.switch(i, branches, x, w), 0, X, W) == 2 * product  # the dearest branch
    assert of_trace(lambda x, w: jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w)))(w), X, W) == 2 * product  # forward, and the weights' gradient
    # 1 image of 8x8 and 3 channels, 4 kernels of 3x3: each of the 64 x 4 results sums 27 products.
    image, kernel = jnp.ones((1, 3, 8, 8)), jnp.ones((4, 3, 3, 3))
    assert of_trace(lambda x, k: jax.lax.conv(x, k, (1, 1), "SAME"), image, kernel) == 2 * 64 * 4 * 27
    assert of_trace(lambda x: jnp.exp(x) + 1, X) == 0


def loss(w: Any, x: Any) -> Any:
    return jnp.sum(jnp.tanh(x @ w["a"]) @ w["b"])


WEIGHTS = {"a": W, "b": jnp.ones((16, 4))}
# What a program calls, the arguments, and whether the call is its step.
CALLS = {
    "initialisation": (lambda key: {"a": jax.random.normal(key, (32, 16))}, (jax.random.key(0),), False),
    "optimizer's zeros": (lambda w: jax.tree.map(jnp.zeros_like, w), (WEIGHTS,), False),
    "evaluation": (loss, (WEIGHTS, X), False),
    "gradient": (jax.value_and_grad(loss), (WEIGHTS, X), True),
    "step": (lambda w, x: jax.tree.map(lambda a, g: a - g, w, jax.grad(loss)(w, x)), (WEIGHTS, X), True),
}


@every("name", list(CALLS))
def test_the_step_multiplies_matrices_and_gives_its_state_back(name: str, tmp_path: Path) -> None:
    function, args, expected = CALLS[name]
    finder = StepFinder(str(tmp_path), "", 4)
    finder.jax = jax
    jitted = jax.jit(function)
    call = finder._described(jitted, jitted.trace(*args), args)
    assert finder._is_step(call) is expected


def test_a_donated_argument_is_a_state() -> None:
    finder = StepFinder("", "", 4)
    finder.jax = jax
    decode = jax.jit(lambda w, cache, x: (x @ w, cache.at[0].set(1)), donate_argnums=1)
    args = (jnp.ones((64, 64)), jnp.ones((2, 2)), jnp.ones((8, 64)))
    assert finder._is_step(finder._described(decode, decode.trace(*args), args))


def test_results_that_are_too_large_are_zeros_of_their_shapes_and_shardings() -> None:
    finder = StepFinder("", "", 1)
    finder.jax = jax
    init = jax.jit(lambda key: {"a": jax.random.normal(key, (64, 32)), "b": jnp.ones(5, jnp.bfloat16)})
    args = (jax.random.key(0),)
    made = finder._zeros(init.trace(*args), args, {})
    assert {name: (array.shape, array.dtype, float(array.sum())) for name, array in made.items()} == {
        "a": ((64, 32), jnp.float32, 0.0),
        "b": ((5,), jnp.bfloat16, 0.0),
    }
    assert finder._is_too_large(finder._described(init, init.trace(*args), args), (made["a"],), {})  # its arguments are no values


PROGRAM = """
import sys
from functools import partial
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.sharding.Mesh(jax.devices(), ("data",))

@jax.jit
def evaluate(w, x):
    return jnp.sum(x @ w)

@partial(jax.jit, static_argnames="rate", donate_argnums=0)
def train_step(w, x, rate):
    h = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("data")))
    return w - rate * jax.grad(lambda w: jnp.sum(jnp.tanh(h @ w)))(w)

w, x = jnp.ones((256, 128)), jax.device_put(jnp.ones((64, 256)), NamedSharding(mesh, P("data")))
print("devices", len(jax.devices()), "before", float(evaluate(w, x)))
for _ in range(2):
    w = train_step(w, x, rate=0.1) if "train" in sys.argv else w
print("not reached" if "train" in sys.argv else "the end")
"""


@pytest.mark.tpu
def test_an_unmodified_program_runs_to_its_step_which_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(compiling.PYTHON_VARIABLE, str(tpu_compiler.PYTHON))
    monkeypatch.setenv("ROOFLINE_CACHE", str(tmp_path / "cache"))
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    words = ["capture", "--chip", "v5e:2x2", "-o", str(tmp_path / "run"), "--", sys.executable, str(program), "train"]
    assert main(words) == 0
    shown = capfd.readouterr()
    assert f"devices 4 before {64 * 256 * 128:.1f}" in shown.out  # all ones
    assert "not reached" not in shown.out
    assert "compiling instead of running train_step (train.py:1" in shown.err
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    # Two products of a quarter of the 64 rows: forward, and the gradient of the weights.
    assert sum(op["work"].get("matrix/bf16", 0) for op in report["ops"]) == 2 * 2 * (64 // 4) * 256 * 128
    assert report["predicted"]["devices"] == 4
    assert "<!doctype html>" in (tmp_path / "run" / "report.html").read_text("utf-8")[:100]
    # The program that was kept gives the same ops without a compiler.
    assert main(["analyze", str(tmp_path / "run" / "program"), "--chip", "v5e:2x2", "--json", str(tmp_path / "again.json")]) == 0
    assert json.loads((tmp_path / "again.json").read_text())["ops"] == report["ops"]


def test_a_program_without_a_step_is_told_what_to_change(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    with pytest.raises(RooflineError, match="ended without a call of a jitted function 'step'; called: evaluate"):
        step_of([sys.executable, str(program)], 2, named="step", folder=tmp_path)
    program.write_text("raise SystemExit(3)")
    with pytest.raises(RooflineError, match="ended without importing JAX"):
        step_of([sys.executable, str(program)], 2, folder=tmp_path)


def test_a_step_that_is_mapped_is_told_to_be_jitted(tmp_path: Path) -> None:
    finder = StepFinder(str(tmp_path), "", 2)
    finder.process = os.getpid()

    def train_step(x: Any) -> Any:
        return x

    assert finder._noted_pmap(lambda fun, axis_name: fun, train_step, axis_name="i") is train_step
    finder._at_exit()
    message = json.loads((tmp_path / "status.json").read_text())
    assert (message["state"], message["name"]) == ("failed", "train_step")
    assert "jax.jit(jax.shard_map(" in message["note"]
