"""Derivatives of few results that are computed forwards for each input, in small programs."""

from pathlib import Path
from typing import Any

import pytest

import roofline as rl

INPUTS, WIDTH = 256, 1024


@pytest.mark.jax
@pytest.mark.parametrize(("how", "results", "is_told"), [("jacfwd", 1, True), ("jacfwd", INPUTS, False), ("jacrev", 1, False)])
def test_derivatives_of_few_results_are_computed_backwards(tmp_path: Path, how: str, results: int, is_told: bool) -> None:
    jax = pytest.importorskip("jax")
    import jax.numpy as jnp

    def network(weights: list[Any], x: Any) -> Any:
        for w in weights[:-1]:
            x = jnp.tanh(x @ w)
        return x @ weights[-1]

    def derivatives(weights: list[Any], x: Any) -> Any:
        return jax.vmap(getattr(jax, how)(network, 1), (None, 0))(weights, x)

    def shape(*dims: int) -> Any:
        return jax.ShapeDtypeStruct(dims, jnp.bfloat16)

    weights = [shape(INPUTS, WIDTH), shape(WIDTH, WIDTH), shape(WIDTH, results)]
    path = tmp_path / "program.stablehlo"
    path.write_text(jax.jit(derivatives).lower(weights, shape(64, INPUTS)).as_text(debug_info=True))
    found = [one for one in rl.analyze(path, "h200").findings if "derivatives of" in one.message]
    assert bool(found) == is_told
    if found:
        assert f"of 1 result forwards, for each of {INPUTS} inputs, {INPUTS} times the needed work" in found[0].message
