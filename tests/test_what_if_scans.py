"""Changes to a program whose layers are a loop: what it stores for the loop of the gradients belongs to what changes."""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from roofline import analyze
from roofline.analysis.changes import change
from roofline.analysis.changes.residuals import FEWEST, MOST, PASSES
from roofline.analysis.changes.state import State
from roofline.analysis.what_if import measured_source, what_if
from roofline.cost import NOTHING
from roofline.machines.calibrations import calibration_for
from roofline.operation import Attention
from roofline.report import Report
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


recomputed = cache(jax.checkpoint)
products_kept = cache(partial(jax.checkpoint, policy=jax.checkpoint_policies.dots_saveable))


@cache
def text(layer: Layer) -> str:
    """A program with the gradients of a loop over layers, as XLA optimizes it."""

    def loss(weights: Any, x: Any) -> Any:
        return jnp.square(jax.lax.scan(lambda x, p: (layer(x, p), None), x, weights)[0]).sum()

    wide = {"q": WIDTH, "k": KV_HEADS * SIZE, "v": KV_HEADS * SIZE, "o": WIDTH, "up": INSIDE}
    weights = {name: jax.ShapeDtypeStruct((LAYERS, WIDTH, columns), "float32") for name, columns in wide.items()}
    weights["down"] = jax.ShapeDtypeStruct((LAYERS, INSIDE, WIDTH), "float32")
    lowered = jax.jit(jax.value_and_grad(loss)).lower(weights, jax.ShapeDtypeStruct((BATCH, TOKENS, WIDTH), "float32"))
    return str(lowered.compile({"xla_backend_optimization_level": "0"}).as_text())  # which leaves the program itself as it is


def compiled(layer: Layer, folder: Path) -> Path:
    path = folder / "step.hlo"
    path.write_text(text(layer))
    return path


def training(layer: Layer, folder: Path) -> State:
    """The same, as it would run on an H200."""
    path = compiled(layer, folder)
    recording, chip = measured_source(path, "h200")
    return State(recording, dict(programs_behind(recording, chip, str(path))), chip, calibration_for(chip))


def work(report: Report) -> tuple[float, float]:
    """FLOP and bytes of all ops."""
    return sum(op.flops or 0.0 for op in report.ops), sum((op.bytes or {}).get("hbm") or 0.0 for op in report.ops)


@pytest.mark.parametrize(
    ("layer", "forward"),
    [
        pytest.param(causal, 1, id="grouped queries"),
        pytest.param(encoder, 1, id="no mask", marks=pytest.mark.slow),
        pytest.param(recomputed(causal), 2, id="recomputed"),
        pytest.param(products_kept(causal), 1, id="products kept", marks=pytest.mark.slow),
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


@pytest.mark.parametrize(
    ("layer", "after"),
    [
        pytest.param(causal, recomputed(causal), id="grouped queries"),
        pytest.param(encoder, recomputed(encoder), id="no mask", marks=pytest.mark.slow),
        pytest.param(products_kept(causal), recomputed(causal), id="products kept", marks=pytest.mark.slow),
    ],
)
def test_a_loop_that_keeps_the_inputs_of_layers_alone_does_what_one_compiled_for_it_does(
    layer: Layer, after: Layer, tmp_path: Path
) -> None:
    path = compiled(layer, tmp_path)
    before, predicted = analyze(path, "h200"), what_if(path, "remat on", "h200")
    wanted = analyze(compiled(after, tmp_path), "h200")
    assert work(predicted) == (pytest.approx(work(wanted)[0], rel=0.01), pytest.approx(work(wanted)[1], rel=0.1))
    assert work(before)[0] < 0.9 * work(predicted)[0], "layers are computed again"
    assert work(before)[1] > work(predicted)[1], "and what they kept is neither stored nor read"


@pytest.mark.parametrize("layer", [pytest.param(causal, id="grouped queries"), pytest.param(encoder, id="no mask", marks=pytest.mark.slow)])
def test_a_loop_that_computes_nothing_again_keeps_what_its_gradients_need(layer: Layer, tmp_path: Path) -> None:
    predicted = what_if(compiled(recomputed(layer), tmp_path), "remat off", "h200")
    wanted = analyze(compiled(layer, tmp_path), "h200")
    assert work(predicted)[0] == pytest.approx(work(wanted)[0], rel=0.01)
    (whole,) = [point for point in predicted.points if point.scope == "total" and point.infeed_outfeed]
    kept = sum((op.bytes or {}).get("hbm") or 0.0 for op in predicted.ops if op.category in PASSES)
    assert work(predicted)[1] + (FEWEST - 1) * kept < work(wanted)[1] < work(predicted)[1] + (MOST - 1) * kept
    assert whole.expected is not None
    assert whole.expected.low_s < sum(op.expected.time_s for op in wanted.ops if op.expected) < whole.expected.high_s


def test_a_loop_that_keeps_only_the_inputs_of_its_layers_stays(tmp_path: Path) -> None:
    path = compiled(recomputed(causal), tmp_path)
    predicted = what_if(path, "remat on", "h200")
    assert work(predicted) == work(analyze(path, "h200"))
    assert any("keeps only their inputs" in note for note in predicted.input.notes)


@pytest.mark.slow
def test_a_loop_over_loops_is_not_said_to_keep_only_the_inputs_of_its_layers(tmp_path: Path) -> None:
    def twice(x: Any, p: dict[str, Any]) -> Any:
        return jax.lax.scan(lambda x, _: (encoder(x, p), None), x, None, length=2)[0]

    predicted = what_if(compiled(twice, tmp_path), "remat on", "h200")
    assert any(op.category == "again" for op in predicted.ops)
    assert not any("keeps only their inputs" in note for note in predicted.input.notes)


def test_scores_that_stay_on_chip_are_not_kept_whatever_is_written_first(tmp_path: Path) -> None:
    path = compiled(recomputed(causal), tmp_path)
    alone = what_if(path, "remat off", "h200")
    first, last = (what_if(path, words, "h200") for words in ("kernel attention=flash remat off", "remat off kernel attention=flash"))
    assert work(first) == work(last)
    scores = LAYERS * BATCH * HEADS * TOKENS**2 * 4
    assert work(alone)[1] - work(first)[1] > sum(PASSES.values()) * scores
