"""Functions whose shardings need collectives, for `roofline analyze mistakes.py:contracted --chip v5e:2x2`."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.lax import with_sharding_constraint
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

Plan = tuple[Callable[..., Any], tuple[Any, ...]]
ROWS = AbstractMesh((4, 1), ("fsdp", "tensor"))
BOTH = AbstractMesh((2, 2), ("fsdp", "tensor"))


def shape(*dims: int, spec: tuple[str | None, ...] = (), dtype: Any = jnp.bfloat16, mesh: AbstractMesh = ROWS) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, dtype, sharding=NamedSharding(mesh, PartitionSpec(*spec)))


def divided(x: jax.Array, *spec: str | None) -> jax.Array:
    return with_sharding_constraint(x, PartitionSpec(*spec))


def contracted() -> Plan:
    rows, weights = shape(8192, 4096, spec=("fsdp", "tensor"), mesh=BOTH), shape(4096, 4096, spec=("tensor", None), mesh=BOTH)
    return lambda x, w: jax.nn.gelu(x @ w), (rows, weights)


def table_rows() -> Plan:
    table, words = shape(65536, 2048, spec=("fsdp", None)), shape(8192, spec=("fsdp",), dtype=jnp.int32)
    return lambda t, i, w: jnp.take(t, i, axis=0) @ w, (table, words, shape(2048, 2048))


def table_columns() -> Plan:
    table, words = shape(65536, 2048, spec=(None, "fsdp")), shape(8192, spec=("fsdp",), dtype=jnp.int32)
    return lambda t, i, w: divided(jnp.take(t, i, axis=0), "fsdp", None) @ w, (table, words, shape(2048, 2048))


def resharded() -> Plan:
    def function(x: jax.Array, w: jax.Array) -> jax.Array:
        y = divided(x @ w, "fsdp", None)
        z = divided(jax.nn.gelu(y), None, "fsdp")
        return divided(jnp.cumsum(z, 0), None, "fsdp")

    return function, (shape(16384, 2048, spec=("fsdp", None)), shape(2048, 4096))


def whole_activations() -> Plan:
    def function(x: jax.Array, w: jax.Array, v: jax.Array) -> jax.Array:
        y = divided(x @ w, "fsdp", None)
        return divided(divided(jax.nn.gelu(y), None, None) @ v, None, None)

    return function, (shape(8192, 2048, spec=("fsdp", None)), shape(2048, 4096), shape(4096, 2048))


def halo() -> Plan:
    return lambda x: x + jnp.roll(x, 1, 0), (shape(65536, 4096, spec=("fsdp", None)),)


def healthy() -> Plan:
    weights = shape(4096, 4096)
    return lambda x, w, v: divided(jax.nn.gelu(x @ w) @ v, "fsdp", None), (shape(16384, 4096, spec=("fsdp", None)), weights, weights)
