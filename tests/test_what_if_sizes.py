"""A program whose sizes are changed costs what the same program costs that was written in those sizes."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reviewed import of_shape
from roofline import analyze
from roofline.analysis.what_if import what_if
from roofline.errors import UsageError
from roofline.machines import load
from roofline.report import Report

jax = pytest.importorskip("jax")
jnp = jax.numpy

MATRICES = {name: of_shape(256, 256) for name in "qkvo"}
KERNELS = {"first": of_shape(3, 3, 8, 32), "second": of_shape(3, 3, 32, 16)}
CHUNK = 128


def chunks(x: Any) -> Any:
    batch, length, width = x.shape
    return x.reshape(batch, length // CHUNK, CHUNK, width).swapaxes(0, 1)


def recurrence(weights: Any, x: Any) -> Any:
    def step(state: Any, new: Any) -> Any:
        state = jnp.tanh(new @ weights["q"] + state @ weights["k"])
        return state, state

    made = jax.lax.scan(step, jnp.zeros_like(x[:, 0]), x.swapaxes(0, 1))[1]
    return made.swapaxes(0, 1) @ weights["o"]


def attention_in_chunks(weights: Any, x: Any) -> Any:
    """Each chunk of queries, and for each of them each chunk of keys: a loop inside another."""
    queries, keys, values = (chunks(x @ weights[name]) for name in "qkv")

    def of_queries(_: Any, some: Any) -> Any:
        def of_keys(total: Any, pair: Any) -> Any:
            return total + jax.nn.relu(some @ pair[0].swapaxes(1, 2)) @ pair[1], None

        return None, jax.lax.scan(of_keys, jnp.zeros_like(some), (keys, values))[0]

    made = jax.lax.scan(of_queries, None, queries)[1]
    return made.swapaxes(0, 1).reshape(x.shape) @ weights["o"]


def convolved(weights: Any, images: Any) -> Any:
    def one(x: Any, kernel: Any) -> Any:
        return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    return one(jax.nn.relu(one(images, weights["first"])), weights["second"])


def mixture(weights: Any, x: Any) -> Any:
    """Each token with two experts, sorted by expert."""
    experts = weights["up"].shape[0]
    chosen = jax.lax.top_k(x @ weights["router"], 2)[1].reshape(-1)
    order = jnp.argsort(chosen)
    sizes = jnp.bincount(chosen, length=experts).astype("int32")
    hidden = jax.nn.relu(jax.lax.ragged_dot(x[order // 2], weights["up"], sizes))
    return x.at[order // 2].add(jax.lax.ragged_dot(hidden, weights["down"], sizes))


def experts(number: int) -> dict[str, Any]:
    return {"router": of_shape(256, number), "up": of_shape(number, 256, 512), "down": of_shape(number, 512, 256)}


def gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    return jax.grad(lambda weights, x: (function(weights, x).astype("float32") ** 2).sum())


def amounts(report: Report) -> Counter[str]:
    total: Counter[str] = Counter()
    for op in report.ops:
        total.update({str(resource): amount or 0 for resource, amount in (*op.work.items(), *op.bytes.items())})
    return total


def compare(function: Any, before: tuple[Any, ...], words: str, after: tuple[Any, ...], folder: Path) -> None:
    def named(weights: Any, x: Any) -> Any:
        return function(weights, x)

    for name, args in (("before", before), ("after", after)):
        lowered = jax.jit(named).trace(*args).lower(lowering_platforms=("cuda",))
        (folder / f"{name}.mlir").write_text(lowered.as_text(debug_info=True), encoding="utf-8")
    changed, written = what_if(folder / "before.mlir", words, "h200"), analyze(folder / "after.mlir", machine=load("h200"))
    # But for the conditions of loops, which compare a counter of four bytes.
    assert amounts(changed) == pytest.approx(amounts(written), rel=1e-5)
    assert changed.memory is not None
    assert written.memory is not None
    assert changed.memory.peak_bytes == written.memory.peak_bytes


@pytest.mark.parametrize(
    ("function", "weights", "before", "words", "after"),
    [
        (recurrence, MATRICES, (8, 128, 256), "scale sequence=x2", (8, 256, 256)),
        (gradient(recurrence), MATRICES, (8, 128, 256), "scale sequence=x4", (8, 512, 256)),
        (gradient(recurrence), MATRICES, (8, 128, 256), "scale batch=x2", (16, 128, 256)),
        (attention_in_chunks, MATRICES, (4, 1024, 256), "scale sequence=x2", (4, 2048, 256)),
        (convolved, KERNELS, (4, 64, 64, 8), "scale x[1]=x2", (4, 128, 64, 8)),
        (gradient(convolved), KERNELS, (4, 64, 64, 8), "scale x[2]=x2", (4, 64, 128, 8)),
    ],
)
def test_a_dimension_that_loops_walk_along_and_windows_slide_over(
    function: Any, weights: Any, before: Any, words: str, after: Any, tmp_path: Path
) -> None:
    compare(function, (weights, of_shape(*before)), words, (weights, of_shape(*after)), tmp_path)


def test_the_gradients_of_a_batch_of_one_are_as_large_with_more_examples(tmp_path: Path) -> None:
    def step(weights: Any, moments: Any, tok: Any) -> Any:
        def loss(weights: Any) -> Any:
            x = weights["table"][tok]
            return (jax.nn.relu(x @ weights["up"]) @ weights["down"]).astype("float32").sum()

        gradients = jax.grad(loss)(weights)
        moments = jax.tree.map(lambda old, new: 0.9 * old + new.astype("float32"), moments, gradients)
        return jax.tree.map(lambda weight, moment: weight - moment.astype(weight.dtype), weights, moments), moments

    sizes = {"table": (8192, 512), "up": (512, 2048), "down": (2048, 512)}
    weights = {name: of_shape(*dims) for name, dims in sizes.items()}
    moments = {name: of_shape(*dims, dtype="float32") for name, dims in sizes.items()}
    for batch in (1, 4):
        lowered = jax.jit(step).lower(weights, moments, of_shape(batch, 256, dtype="int32"))
        (tmp_path / f"{batch}.mlir").write_text(lowered.as_text(debug_info=True), encoding="utf-8")
    changed, written = (
        amounts(one) for one in (what_if(tmp_path / "1.mlir", "scale batch=x4", "h200"), analyze(tmp_path / "4.mlir", machine=load("h200")))
    )
    assert changed["matrix/bf16"] == written["matrix/bf16"]
    assert changed["vector/fp32"] == pytest.approx(written["vector/fp32"], rel=0.01)
    # Of a batch of one the model knows no shapes, only what is computed from data.
    assert changed["hbm"] == pytest.approx(written["hbm"], rel=0.05)


def test_a_batch_of_one_is_not_followed_into_a_loop(tmp_path: Path) -> None:
    # Of one example nothing in the loop's body says which of its arrays come once an example.
    lowered = jax.jit(recurrence).lower(MATRICES, of_shape(1, 128, 256))
    (tmp_path / "one.mlir").write_text(lowered.as_text(debug_info=True), encoding="utf-8")
    with pytest.raises(UsageError, match="batch of jit_recurrence is 1, which cannot be followed into its loop"):
        what_if(tmp_path / "one.mlir", "scale batch=x4", "h200")


@pytest.mark.parametrize(("words", "number", "tokens"), [("scale batch=x2", 8, 8192), ("scale experts=x2", 16, 4096)])
def test_ragged_products_have_the_rows_of_their_tokens_and_the_groups_of_their_experts(
    words: str, number: int, tokens: int, tmp_path: Path
) -> None:
    compare(mixture, (experts(8), of_shape(4096, 256)), words, (experts(number), of_shape(tokens, 256)), tmp_path)
