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
