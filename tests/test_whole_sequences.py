"""Decoding without a cache of keys and values in a program of one length, and optimizer states that nothing reads, in small programs."""

from pathlib import Path

import pytest

import roofline as rl
from roofline.report import Finding

LENGTH, ROWS, WIDTH = 256, 4, 512


def first_of(function: object, tmp_path: Path, *args: object) -> list[Finding]:
    """The findings with a saving about a function on an H200."""
    jax = pytest.importorskip("jax")
    path = tmp_path / "program.stablehlo"
    path.write_text(jax.jit(function).lower(*args).as_text(debug_info=True))
    return [finding for finding in rl.analyze(path, "h200").findings if finding.saving_s]


def decoder(*, cached: bool) -> tuple[object, list[object]]:
    """A program that adds a token to its tokens; one that is cached computes the last one alone."""
    jax = pytest.importorskip("jax")
    import jax.numpy as jnp
    from jax import lax

    def shape(*dims: int, dtype: object = jnp.bfloat16) -> object:
        return jax.ShapeDtypeStruct(dims, dtype)

    def grow(embed: object, w: object, tokens: object, at: object) -> object:
        x = embed[lax.dynamic_slice(tokens, (0, at), (ROWS, 1)) if cached else tokens]
        scores = jnp.einsum("bqd,bkd->bqk", x @ w, x)
        x = jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(scores), x) @ w
        last = x[:, 0] if cached else lax.dynamic_slice(x, (0, at, 0), (ROWS, 1, WIDTH))[:, 0]
        token = jnp.argmax(last @ embed.T, -1).astype(jnp.int32)
        return lax.dynamic_update_slice(tokens, token[:, None], (0, at + 1))

    return grow, [shape(1024, WIDTH), shape(WIDTH, WIDTH), shape(ROWS, LENGTH, dtype=jnp.int32), shape(dtype=jnp.int32)]


@pytest.mark.jax
@pytest.mark.parametrize("cached", [False, True])
def test_a_program_that_adds_a_token_needs_that_one(tmp_path: Path, cached: bool) -> None:
    function, args = decoder(cached=cached)
    found = [one for one in first_of(function, tmp_path, *args) if one.kind == "duplicated-work"]
    assert bool(found) != cached
    if found:
        assert f"runs {LENGTH} tokens again for 1 new" in found[0].message


@pytest.mark.jax
@pytest.mark.parametrize(("trained", "is_told"), [(1, True), (3, False)])
def test_states_of_weights_that_stay_are_not_needed(tmp_path: Path, trained: int, is_told: bool) -> None:
    jax = pytest.importorskip("jax")
    import jax.numpy as jnp

    def loss(weights: list[object], x: object) -> object:
        for w in weights:
            x = jnp.tanh(x @ w)
        return (x * x).mean()

    def step(weights: list[object], moments: list[object], x: object) -> object:
        moments = [0.9 * m + g for m, g in zip(moments, jax.grad(loss)(weights, x), strict=True)]
        kept = len(weights) - trained
        return weights[:kept] + [w - m for w, m in zip(weights[kept:], moments[kept:], strict=True)], moments

    weights = [jax.ShapeDtypeStruct((1024, 1024), jnp.float32)] * 3
    found = [one for one in first_of(step, tmp_path, weights, weights, weights[0]) if "optimizer states" in one.message]
    assert bool(found) == is_told


@pytest.mark.jax
def test_sums_of_gradients_are_for_another_program(tmp_path: Path) -> None:
    jax = pytest.importorskip("jax")
    import jax.numpy as jnp

    def add(w: object, total: object, x: object) -> object:
        return total + jax.grad(lambda w: jnp.tanh(x @ w).sum())(w)

    square = jax.ShapeDtypeStruct((1024, 1024), jnp.float32)
    assert not [one for one in first_of(add, tmp_path, square, square, square) if one.kind == "unused-results"]
