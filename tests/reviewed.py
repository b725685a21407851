"""JAX functions as the reviewed ops that they would run on an H200."""

from collections.abc import Callable
from typing import Any

import pytest

from evidence import reviewed_program
from roofline.jax import lower
from roofline.machines import load
from roofline.workload import Op

jax = pytest.importorskip("jax")
H200 = load("h200")


def of_shape(*dims: int, dtype: str = "bfloat16") -> Any:
    return jax.ShapeDtypeStruct(dims, dtype)


def ops_of(function: Callable[..., Any], *args: Any) -> list[Op]:
    """The reviewed ops of a function, as they would run on an H200."""
    found = lower(function, H200)(*args)
    return list(reviewed_program(found.module, found.platform))
