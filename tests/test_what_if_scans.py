"""Changes to a program whose layers are a loop: what it stores for the loop of the gradients belongs to what changes."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from roofline.analysis.changes import change
from roofline.analysis.changes.state import State
from roofline.analysis.what_if import measured_source
from roofline.cost import NOTHING
from roofline.machines.calibrations import calibration_for
from roofline.operation import Attention
from roofline.sources.embedded import programs_behind

jax = pytest.importorskip("jax")
jnp = jax.numpy

LAYERS, BATCH, TOKENS, HEADS, KV_HEADS, SIZE, INSIDE = 3, 2, 192, 4, 2, 32, 320
WIDTH = HEADS * SIZE
Layer = Callable[[Any, dict[str, Any]], Any]


def of_heads(x: Any, weights: Any) -> Any:
    return (x @ weights).reshape(BATCH, TOKENS, -1, SIZE)


def causal(x: Any, p: dict[str, Any]) -> Any:
    """A layer of a decoder with grouped queries."""
    h = x * jax.lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True))
    heads = [of_heads(h, p[name]) for name in "qkv"]
    x = x + jax.nn.dot_product_attention(*heads, is_causal=True).reshape(x.shape) @ p["o"]
    return x + jax.nn.silu(x @ p["up"]) @ p["down"]


def encoder(x: Any, p: dict[str, Any]) -> Any:
    """A layer without a mask, its heads one by one."""
    q, k, v = (jnp.moveaxis(of_heads(x, p[name]), 2, 1) for name in "qkv")
    k, v = (jnp.repeat(one, HEADS // KV_HEADS, 1) for one in (k, v))

    def head(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.softmax(q @ k.T / SIZE**0.5) @ v

    x = x + jnp.moveaxis(jax.vmap(jax.vmap(head))(q, k, v), 1, 2).reshape(x.shape) @ p["o"]
    return x + jax.nn.gelu(x @ p["up"]) @ p["down"]


def training(layer: Layer, folder: Path) -> State:
    """The gradients of a loop over layers, as they would run on an H200."""

    def loss(weights: Any, x: Any) -> Any:
        return jnp.square(jax.lax.scan(lambda x, p: (layer(x, p), None), x, weights)[0]).sum()

    wide = {"q": WIDTH, "k": KV_HEADS * SIZE, "v": KV_HEADS * SIZE, "o": WIDTH, "up": INSIDE}
    weights = {name: jax.ShapeDtypeStruct((LAYERS, WIDTH, columns), "float32") for name, columns in wide.items()}
    weights["down"] = jax.ShapeDtypeStruct((LAYERS, INSIDE, WIDTH), "float32")
    compiled = jax.jit(jax.value_and_grad(loss)).lower(weights, jax.ShapeDtypeStruct((BATCH, TOKENS, WIDTH), "float32")).compile()
    path = folder / "step.hlo"
    path.write_text(compiled.as_text())
    recording, chip = measured_source(path, "h200")
    return State(recording, dict(programs_behind(recording, chip, str(path))), chip, calibration_for(chip))


@pytest.mark.parametrize(
    ("layer", "forward"),
    [
        pytest.param(causal, 1, id="grouped queries"),
        pytest.param(encoder, 1, id="no mask"),
        pytest.param(jax.checkpoint(causal), 2, id="recomputed"),
        pytest.param(partial(jax.checkpoint, policy=jax.checkpoint_policies.dots_saveable)(causal), 1, id="products stored"),
    ],
)
def test_scores_that_a_loop_keeps_for_its_gradients_go_with_one_attention_kernel(layer: Layer, forward: int, tmp_path: Path) -> None:
    state = training(layer, tmp_path)
    change(state, ["kernel", "attention=flash"])
    made = [(op, op.operation) for op in state.ops if isinstance(op.operation, Attention)]
    assert sorted(one.backward for _, one in made) == [False] * forward + [True], "a layer that is recomputed runs the first kernel again"
    for op, one in made:
        products = 5 if one.backward else 2
        assert one.causal == (layer is not encoder)
        pairs = BATCH * HEADS * TOKENS**2 / (2 if one.causal else 1)
        assert float(op.cost.flops or 0) == LAYERS * products * 2 * pairs * SIZE
    (module,) = state.programs.values()
    for op in state.ops:
        number, place = module.place(op.name) or pytest.fail(op.name)
        if op.cost != NOTHING and not isinstance(op.operation, Attention):
            for leaf in module.computations[number][place].shape.leaves:
                is_mask = leaf.elements == TOKENS**2  # one for all heads, which is next to nothing
                assert is_mask or leaf.dims.count(TOKENS) < 2, f"{op.name} still makes an array of scores"


def test_heads_that_share_keys_read_those_once(tmp_path: Path) -> None:
    state = training(causal, tmp_path)
    change(state, ["kernel", "attention=flash"])
    (first,) = [op for op in state.ops if isinstance(op.operation, Attention) and not op.operation.backward]
    rows = 2 * HEADS + 2 * KV_HEADS  # queries and results, keys and values
    assert float(first.cost["hbm"] or 0) == LAYERS * BATCH * TOKENS * rows * SIZE * 2
