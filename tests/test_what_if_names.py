"""The batch and the sequence of a program are found in its data, whatever else it takes: changed in size, the program costs what the same
program costs that was written in that size.
"""

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

WIDTH, HEADS, LAYERS = 128, 2, 3
LAYER = {"qkv": (WIDTH, 3 * WIDTH), "o": (WIDTH, WIDTH), "gain": (WIDTH,)}
STACK = {name: of_shape(LAYERS, *dims) for name, dims in LAYER.items()}


def attended(x: Any, p: Any) -> Any:
    batch, length, _ = x.shape
    q, k, v = jnp.split(((x * p["gain"]) @ p["qkv"]).reshape(batch, length, HEADS, -1), 3, -1)
    return x + jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape) @ p["o"]


def loss(params: Any, x: Any, wanted: Any) -> Any:
    for layer in range(LAYERS):
        x = attended(x, jax.tree.map(lambda stack: stack[layer], params["layers"]))  # noqa: B023
    made = jax.nn.log_softmax((x @ params["head"]).astype("float32"))
    return -jnp.take_along_axis(made, wanted[..., None], -1).mean()


def trained(state: Any, tok: Any, scale: Any = None) -> Any:
    """One step of an optimizer with moments, on stacked weights that are sliced layer by layer, from tokens that are one more."""
    params, first, second, count = state

    def of(params: Any) -> Any:
        x = params["table"][tok[:, :-1]]
        return loss(params, x if scale is None else x * scale, tok[:, 1:])

    gradients = jax.grad(of)(params)
    first = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new.astype("float32"), first, gradients)
    second = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new.astype("float32") ** 2, second, gradients)
    params = jax.tree.map(lambda p, m, v: (p - 1e-3 * m / (jnp.sqrt(v) + 1e-8)).astype(p.dtype), params, first, second)
    return params, first, second, count + 1


def trained_with_dropout(key: Any, state: Any, tok: Any) -> Any:
    return trained(state, tok, jax.random.bernoulli(key, 0.9, (tok.shape[0], tok.shape[1] - 1, WIDTH)).astype("bfloat16"))


def trained_with_positions(pos: Any, state: Any, tok: Any) -> Any:
    return trained(state, tok, jnp.cos(pos.astype("bfloat16"))[None, :, None])


def state() -> Any:
    params = {"table": of_shape(1024, WIDTH), "head": of_shape(WIDTH, 1024), "layers": STACK}
    moments = jax.tree.map(lambda one: of_shape(*one.shape, dtype="float32"), params)
    return params, moments, moments, of_shape(dtype="int32")


def tokens(batch: int, length: int) -> Any:
    return of_shape(batch, length, dtype="int32")


def decoded(params: Any, cache: Any, x: Any, pos: Any) -> Any:
    """One token with the cache of a layer: keys and values, sequences, positions, heads."""
    batch, length = x.shape[0], cache.shape[2]
    q, k, v = jnp.split(((x * params["gain"]) @ params["qkv"]).reshape(batch, HEADS, -1), 3, -1)
    cache = jax.lax.dynamic_update_slice(cache, jnp.stack([k, v])[:, :, None], (0, 0, pos, 0, 0))
    scores = jnp.where(jnp.arange(length) <= pos, jnp.einsum("bhd,bshd->bhs", q, cache[0]), -1e9)
    made = jnp.einsum("bhs,bshd->bhd", jax.nn.softmax(scores, -1), cache[1]).reshape(x.shape)
    return x + made @ params["o"], cache


def decoded_in_a_loop(stack: Any, cache: Any, x: Any, pos: Any) -> Any:
    return jax.lax.scan(lambda x, one: decoded(*one, x, pos), x, (stack, cache))


def decoded_layer_by_layer(cache: Any, stack: Any, x: Any, pos: Any) -> Any:
    caches = []
    for layer in range(LAYERS):
        x, one = decoded(jax.tree.map(lambda each: each[layer], stack), cache[layer], x, pos)  # noqa: B023
        caches.append(one)
    return x, jnp.stack(caches)


def decoded_with_narrow_weights(weights: Any, scales: Any, cache: Any, x: Any, pos: Any) -> Any:
    return decoded({name: each.astype("bfloat16") * scales[name] for name, each in weights.items()}, cache, x, pos)


def caches(batch: int, length: int, *stack: int) -> tuple[Any, ...]:
    return of_shape(*stack, 2, batch, length, HEADS, WIDTH // HEADS), of_shape(batch, WIDTH), of_shape(dtype="int32")


def with_a_mask(params: Any, mask: Any, tok: Any) -> Any:
    x = params["table"][tok]
    scores = jnp.einsum("bqd,bkd->bqk", x @ params["q"], x) + mask
    return jax.nn.softmax(scores, -1) @ x @ params["q"]


def cell(weights: Any, h: Any, c: Any, x: Any) -> Any:
    new, forget = jnp.split(jnp.concatenate([x, h], -1) @ weights, 2, -1)
    c = jax.nn.sigmoid(forget) * c + jnp.tanh(new)
    return jnp.tanh(c), c


def recurrence(into: Any, again: Any, xs: Any) -> Any:
    """Steps first, then sequences."""

    def step(state: Any, x: Any) -> Any:
        state = jnp.tanh(x @ into + state @ again)
        return state, state

    return jax.lax.scan(step, jnp.zeros_like(xs[0]), xs)[1]


def accumulated(weights: Any, gain: Any, xs: Any) -> Any:
    """Microbatches of sequences, of which something is computed before they are multiplied."""

    def one(total: Any, x: Any) -> Any:
        return total + jnp.tanh(jnp.tanh(gain * x) @ weights).mean((0, 1)), None

    return jax.lax.scan(one, jnp.zeros(weights.shape[1], weights.dtype), xs)[0]


def scored(table: Any, weights: Any, ids: Any, labels: Any) -> Any:
    """A label, which is a number, for each sequence."""
    return (jnp.tanh(table[ids].mean(1) @ weights).sum(1) - labels) ** 2


def of_images(params: Any, key: Any, img: Any, tok: Any) -> Any:
    patches = jax.lax.conv_general_dilated(img, params["patch"], (4, 4), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    x = params["table"][tok] + patches.mean((1, 2))[:, None]
    return attended(x * jax.random.bernoulli(key, 0.9, x.shape), params["layer"])


def amounts(report: Report) -> Counter[str]:
    total: Counter[str] = Counter()
    for op in report.ops:
        total.update({str(resource): amount or 0 for resource, amount in (*op.work.items(), *op.bytes.items())})
    return total


def written(function: Callable[..., Any], args: tuple[Any, ...], file: Path) -> Path:
    lowered = jax.jit(function).trace(*args).lower(lowering_platforms=("cuda",))
    file.write_text(lowered.as_text(debug_info=True), encoding="utf-8")
    return file


NARROW = {name: of_shape(*dims, dtype="int8" if name != "gain" else "bfloat16") for name, dims in LAYER.items()}
SCALES = {name: of_shape() for name in LAYER}
ONE = {name: of_shape(*dims) for name, dims in LAYER.items()}
MASKED = {"table": of_shape(512, WIDTH), "q": of_shape(WIDTH, WIDTH)}
IMAGED = {"table": of_shape(512, WIDTH), "patch": of_shape(4, 4, 3, WIDTH), "layer": ONE}
KEY = of_shape(2, dtype="uint32")


PROGRAMS = [
    (trained, lambda batch, length: (state(), tokens(batch, length + 1))),
    (decoded_in_a_loop, lambda batch, length: (STACK, *caches(batch, length, LAYERS))),
    (with_a_mask, lambda batch, length: (MASKED, of_shape(1, length, length), tokens(batch, length))),
    (recurrence, lambda batch, length: (of_shape(WIDTH, WIDTH), of_shape(WIDTH, WIDTH), of_shape(length, batch, WIDTH))),
    (
        scored,
        lambda batch, length: (of_shape(4096, WIDTH), of_shape(WIDTH, WIDTH), tokens(batch, length), of_shape(batch, dtype="float32")),
    ),
]
MORE_PROGRAMS = [
    (trained_with_dropout, lambda batch, length: (KEY, state(), tokens(batch, length + 1))),
    (trained_with_positions, lambda batch, length: (of_shape(length, dtype="int32"), state(), tokens(batch, length + 1))),
    (decoded_layer_by_layer, lambda batch, length: (caches(batch, length, LAYERS)[0], STACK, *caches(batch, length)[1:])),
    (decoded_with_narrow_weights, lambda batch, length: (NARROW, SCALES, *caches(batch, length))),
    (accumulated, lambda batch, length: (of_shape(WIDTH, WIDTH), of_shape(WIDTH), of_shape(4, batch, length, WIDTH))),
    (of_images, lambda batch, length: (IMAGED, KEY, of_shape(batch, 64, 64, 3), tokens(batch, length))),
]
DIMENSIONS = [("batch", 2), ("sequence", 0.5)]


@pytest.mark.parametrize(("dimension", "times"), DIMENSIONS)
@pytest.mark.parametrize(("function", "args"), [*PROGRAMS, *(pytest.param(*more, marks=pytest.mark.slow) for more in MORE_PROGRAMS)])
def test_data_are_told_from_all_else(function: Any, args: Any, dimension: str, times: float, tmp_path: Path) -> None:
    batch, length = 8, 256
    after = (int(batch * times), length) if dimension == "batch" else (batch, int(length * times))
    file = written(function, args(batch, length), tmp_path / "before.mlir")
    changed = what_if(file, f"scale {dimension}=x{times}", "h200")
    as_written = analyze(written(function, args(*after), tmp_path / "after.mlir"), machine=load("h200"))
    assert amounts(changed) == pytest.approx(amounts(as_written), rel=1e-4)
    assert changed.memory is not None
    assert as_written.memory is not None
    assert changed.memory.peak_bytes == as_written.memory.peak_bytes


def test_data_of_the_shape_of_the_weights_that_are_trained_on_them_are_no_weights(tmp_path: Path) -> None:
    def step(weights: Any, x: Any) -> Any:
        gradients = jax.grad(lambda weights: jax.nn.relu(jax.nn.relu(x @ weights[0]) @ weights[1]).sum())(weights)
        return [weight - 0.1 * each for weight, each in zip(weights, gradients, strict=True)]

    weights, x = [of_shape(256, 256), of_shape(256, 256)], of_shape(256, 256)
    changed = what_if(written(step, (weights, x), tmp_path / "before.mlir"), "scale batch=x2", "h200")
    as_written = analyze(written(step, (weights, of_shape(512, 256)), tmp_path / "after.mlir"), machine=load("h200"))
    assert amounts(changed) == pytest.approx(amounts(as_written), rel=1e-4)


def test_tokens_that_are_one_more_than_the_sequence_stay_so(tmp_path: Path) -> None:
    file = written(trained, (state(), tokens(4, 65)), tmp_path / "step.mlir")
    for name, times, notes in [
        ("sequence", "1/4", ["sequence of jit_trained: 64 to 16", "sequence of jit_trained: inputs with one more, 65 to 17 (tok[1])"]),
        ("tok[1]", "4", ["tok[1] of jit_trained: 64 to 256", "tok[1] of jit_trained: inputs with one more, 65 to 257 (tok[1])"]),
    ]:
        found = what_if(file, f"scale {name}=x{times}", "h200").input.notes
        assert set(notes) <= set(found)


def test_a_length_that_the_program_computes_on_as_it_is_has_to_stay_whole(tmp_path: Path) -> None:
    file = written(lambda params, tok: attended(params["table"][tok], params["layer"]), (IMAGED, tokens(4, 65)), tmp_path / "step.mlir")
    with pytest.raises(UsageError, match="sequence is 65, which leaves no whole number"):
        what_if(file, "scale sequence=x1/4", "h200")


def test_a_state_beside_the_data_follows_their_batch_and_its_width_is_no_sequence(tmp_path: Path) -> None:
    args = of_shape(2 * WIDTH, 2 * WIDTH), *(of_shape(32, WIDTH) for _ in range(3))
    file = written(cell, args, tmp_path / "step.mlir")
    after = what_if(file, "scale batch=x2", "h200")
    assert any(note.startswith("batch of jit_cell: 32 to 64 (h[0], c[0], x[0])") for note in after.input.notes)
    with pytest.raises(UsageError, match="no such dimension"):
        what_if(file, "scale sequence=x2", "h200")


def test_queries_keys_and_values_of_one_sequence_are_data(tmp_path: Path) -> None:
    def function(q: Any, k: Any, v: Any, w: Any) -> Any:
        return jax.nn.dot_product_attention(q, k, v).reshape(*q.shape[:2], -1) @ w

    file = written(function, (*(of_shape(1, 64, HEADS, 64) for _ in range(3)), of_shape(128, 128)), tmp_path / "step.mlir")
    assert any("batch of jit_function: 1 to 4 (q[0], k[0], v[0])" in note for note in what_if(file, "scale batch=x4", "h200").input.notes)


def test_a_size_without_an_x_is_a_factor_and_the_note_says_so() -> None:
    notes = {words: what_if("sample:train", f"scale batch={words}").input.notes for words in ("16", "x16", "8")}
    assert "batch of jit_train_step: 8 to 128 (tok[0]); batch=16 is 16 times as large, a batch of 16 is batch=x2" in notes["16"]
    assert "batch of jit_train_step: 8 to 128 (tok[0])" in notes["x16"]
    assert "batch of jit_train_step: 8 to 64 (tok[0]); batch=8 is 8 times as large" in notes["8"]


def test_layers_that_are_sliced_out_of_a_stack_are_no_experts(tmp_path: Path) -> None:
    file = written(trained, (state(), tokens(4, 65)), tmp_path / "step.mlir")
    with pytest.raises(UsageError, match="no such dimension"):
        what_if(file, "scale experts=x2", "h200")
