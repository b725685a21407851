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


def few_rows() -> Plan:
    def step(w: jax.Array, x: jax.Array) -> jax.Array:
        return w - jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)

    return step, (shape(2048, 2048), shape(512, 2048, spec=("fsdp", None)))


def healthy() -> Plan:
    weights = shape(4096, 4096)
    return lambda x, w, v: divided(jax.nn.gelu(x @ w) @ v, "fsdp", None), (shape(16384, 4096, spec=("fsdp", None)), weights, weights)


def windowed() -> Plan:
    """With the compiler option xla_jf_spmd_threshold_for_windowed_einsum_mib=0."""
    weights = shape(4096, 8192, spec=("fsdp", None)), shape(8192, 4096, spec=(None, "fsdp"))
    return lambda x, w, v: divided(jax.nn.gelu(x @ w) @ v, "fsdp", None), (shape(16384, 4096, spec=("fsdp", None)), *weights)


def fsdp_step() -> tuple[Any, tuple[Any, ...]]:
    return _step(((None, "fsdp", None), (None, None, "fsdp")), rows=4096)


def replicated_step() -> tuple[Any, tuple[Any, ...]]:
    return _step(((), ()), rows=16384)


def _step(specs: tuple[tuple[str | None, ...], ...], rows: int) -> tuple[Any, tuple[Any, ...]]:
    """A training step of four layers with recomputation, and Adam in fp32."""

    def loss(weights: tuple[jax.Array, ...], x: jax.Array) -> jax.Array:
        def layer(x: jax.Array, pair: tuple[jax.Array, ...]) -> tuple[jax.Array, None]:
            up, down = (weight.astype(jnp.bfloat16) for weight in pair)
            return divided(x + jax.nn.gelu(x @ up) @ down, "fsdp", None), None

        return (jax.lax.scan(jax.checkpoint(layer), x, weights)[0].astype(jnp.float32) ** 2).mean()

    def updated(weight: jax.Array, gradient: jax.Array, mean: jax.Array, square: jax.Array) -> tuple[jax.Array, ...]:
        gradient = gradient.astype(jnp.float32)
        mean, square = 0.9 * mean + 0.1 * gradient, 0.99 * square + 0.01 * gradient * gradient
        return weight - 1e-3 * mean / (jnp.sqrt(square) + 1e-8), mean, square

    def step(state: tuple[tuple[jax.Array, ...], ...], x: jax.Array) -> tuple[tuple[jax.Array, ...], ...]:
        each = [updated(*arrays) for arrays in zip(state[0], jax.grad(loss)(state[0], x), *state[1:], strict=True)]
        return tuple(zip(*each, strict=True))

    def weights() -> tuple[jax.ShapeDtypeStruct, ...]:
        return tuple(
            shape(*dims, spec=spec, dtype=jnp.float32) for dims, spec in zip(((4, 2048, 8192), (4, 8192, 2048)), specs, strict=True)
        )

    state = weights(), weights(), weights()
    return jax.jit(step, donate_argnums=0), (state, shape(rows, 2048, spec=("fsdp", None)))
