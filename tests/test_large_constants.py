"""Arrays that a function closes over are constants of its program; those that a compiler computes are not told."""

from collections.abc import Callable
from typing import Any

import pytest

from roofline.hlo.memory.large_constants import large_constants_note
from roofline.hlo.read import parse

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from every import every  # noqa: E402

pytestmark = pytest.mark.jax
DATA = np.random.default_rng(0).normal(size=(1024, 512)).astype(np.float32)


def note(function: Callable[..., Any], *args: Any) -> str:
    compiled = jax.jit(function).lower(*args).compile()
    return large_constants_note(parse(compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto(), "program"))


def test_an_array_that_a_function_closes_over_is_told_with_its_size() -> None:
    def closed(x: Any) -> Any:
        return x @ DATA

    said = note(closed, jax.ShapeDtypeStruct((8, 1024), jnp.float32))
    assert said.startswith("jit_closed has 2.1 MB of constants (fp32[1024,512]): pass arrays as arguments")


@every("made", [np.tril, lambda like: np.arange(like.size, dtype=np.float32).reshape(like.shape)])
def test_constants_that_an_operation_could_make_are_no_data(made: Callable[[Any], Any]) -> None:
    array = made(np.ones_like(DATA))
    assert note(lambda x: x * array, jax.ShapeDtypeStruct(DATA.shape, jnp.float32)) == ""


def test_arguments_and_small_constants_are_not_told() -> None:
    shapes = jax.ShapeDtypeStruct((8, 1024), jnp.float32), jax.ShapeDtypeStruct(DATA.shape, jnp.float32)
    assert note(lambda x, y: x @ y, *shapes) == ""
    assert note(lambda x: x @ DATA[:, :16], shapes[0]) == ""
