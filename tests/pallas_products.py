"""A product by a Pallas kernel for TPUs, with its block as an argument."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl


def product(a: jax.Array, b: jax.Array, block: int) -> jax.Array:
    def kernel(left: jax.Array, right: jax.Array, out: jax.Array) -> None:
        @pl.when(pl.program_id(2) == 0)
        def _() -> None:
            out[...] = jnp.zeros_like(out)

        out[...] += jnp.dot(left[...], right[...], preferred_element_type=jnp.float32)

    rows, inner = a.shape
    columns = b.shape[1]
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((rows, columns), jnp.float32),
        grid=(rows // block, columns // block, inner // block),
        in_specs=[pl.BlockSpec((block, block), lambda i, j, k: (i, k)), pl.BlockSpec((block, block), lambda i, j, k: (k, j))],
        out_specs=pl.BlockSpec((block, block), lambda i, j, k: (i, j)),
    )(a, b)


def whole_product(a: jax.Array, b: jax.Array, block: int, settings: object) -> jax.Array:
    """A product of rows by rows, for a GPU: each block multiplies whole rows."""

    def kernel(left: jax.Array, right: jax.Array, out: jax.Array) -> None:
        out[...] = jnp.dot(left[...], right[...].T)

    rows, inner = a.shape
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((rows, b.shape[0]), jnp.float32),
        grid=(rows // block, b.shape[0] // block),
        in_specs=[pl.BlockSpec((block, inner), lambda i, j: (i, 0)), pl.BlockSpec((block, inner), lambda i, j: (j, 0))],
        out_specs=pl.BlockSpec((block, block), lambda i, j: (i, j)),
        compiler_params=settings,  # type: ignore[arg-type]
    )(a, b)
