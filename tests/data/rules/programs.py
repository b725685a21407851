"""The programs of this folder, one planted fault each: `.venv-tpu/bin/python tests/data/rules/programs.py [NAME …]` compiles them again."""

import gzip
import os
import sys
from pathlib import Path

os.environ |= {"TPU_SKIP_MDS_QUERY": "1", "JAX_PLATFORMS": "cpu", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1", "TPU_LOG_DIR": "disabled"}

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

HERE = Path(__file__).parent
BF16, FP32, INT32, INT8 = jnp.bfloat16, jnp.float32, jnp.int32, jnp.int8


def stored_attention(q, k, v):
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k).astype(FP32) * 0.125
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, -1).astype(BF16), v)


def biased_attention(q, k, v, bias):
    """The compiler takes the softmax and the second product together, in a kernel of its own that reads stored scores."""
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) * 0.125 + bias
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, -1), v)


def scanned_attention(x, weights):
    """A loop over layers, which keeps their scores for the loop of the gradients."""

    def layer(x, w):
        q, k, v = (jnp.einsum("bsd,dhe->bhse", x, part) for part in w)
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, k).astype(FP32) * 0.125
        scores = jnp.where(jnp.arange(x.shape[1])[:, None] >= jnp.arange(x.shape[1]), scores, -1e9)
        mixed = jnp.einsum("bhqk,bhkd->bqhd", jax.nn.softmax(scores, -1).astype(BF16), v)
        return x + mixed.reshape(x.shape), None

    return jax.grad(lambda weights: (lax.scan(layer, x, weights)[0].astype(FP32) ** 2).mean())(weights)


def dense_experts(x, router, w1, w2):
    weights = jax.nn.softmax((x @ router).astype(FP32))
    least = lax.top_k(weights, 2)[0][:, 1:]
    weights = jnp.where(weights >= least, weights, 0).astype(BF16)
    hidden = jax.nn.gelu(jnp.einsum("nd,edf->enf", x, w1))
    return jnp.einsum("end,ne->nd", jnp.einsum("enf,efd->end", hidden, w2), weights)


def experts_one_by_one(x, chosen, w):
    return sum(jnp.where((chosen == number)[:, None], jax.nn.relu(x @ w[number]), 0) for number in range(w.shape[0]))


def fp32_products(x, w1, w2):
    return lax.dot(jax.nn.relu(lax.dot(x, w1, precision="highest")), w2, precision="highest")


def one_hot_dispatch(x, router, w1, w2):
    tokens, experts = x.shape[0], w1.shape[0]
    capacity = tokens * 2 // experts
    weights, chosen = lax.top_k(jax.nn.softmax((x @ router).astype(FP32)), 2)
    ones = jax.nn.one_hot(chosen, experts, dtype=INT32).reshape(tokens * 2, experts)
    place = ((jnp.cumsum(ones, 0) - 1) * ones).sum(-1).reshape(tokens, 2)
    slot = jax.nn.one_hot(jnp.where(place < capacity, place, capacity), capacity, dtype=BF16)
    dispatch = jax.nn.one_hot(chosen, experts, dtype=BF16)[..., None] * slot[:, :, None, :]
    given = jnp.einsum("nec,nd->ecd", dispatch.sum(1), x)
    made = jnp.einsum("ecf,efd->ecd", jax.nn.gelu(jnp.einsum("ecd,edf->ecf", given, w1)), w2)
    return jnp.einsum("nec,ecd->nd", (dispatch * weights[..., None, None].astype(BF16)).sum(1), made)


def one_hot_gradient(ids, table, w):
    def loss(table):
        return ((jax.nn.one_hot(ids, table.shape[0], dtype=BF16) @ table @ w).astype(FP32) ** 2).mean()

    return jax.grad(loss)(table)


def product_order(a, b, x):
    return (a @ b) @ x


def summed_rows(x, w):
    return (x @ w).mean(1)


def padded_depth(x, w):
    return jnp.pad(x, ((0, 0), (0, 1048))) @ jnp.pad(w, ((0, 1048), (0, 0)))


def room_for_groups(x, expert, place, w1, w2):
    room = jnp.zeros((w1.shape[0], 2048, x.shape[1]), x.dtype).at[expert, place].set(x, mode="drop")
    return jnp.einsum("ecf,efd->ecd", jax.nn.gelu(jnp.einsum("ecd,edf->ecf", room, w1)), w2)[expert, place]


def stored_keys(q, k):
    return jnp.einsum("bhqd,bhkd->bhqk", q, lax.optimization_barrier(jnp.repeat(k, 4, 1)))


def gathered_matrices(x, chosen, w):
    return jnp.einsum("trd,tdf->trf", x, lax.optimization_barrier(w[chosen]))


def gathered_pages(q, pages, table):
    keys = lax.optimization_barrier(pages[table].reshape(64, -1, 8, 128))
    return jnp.einsum("brhd,bkhd->bhrk", q, keys)


def sorted_part(x):
    return jnp.sort(x, -1)[:, -8:]


def undonated(cache, new, at):
    return lax.dynamic_update_slice(cache, new, (0, at, 0))


def oldest_dropped(cache, new):
    return jnp.concatenate([cache[:, 1:], new], 1)


def position_selected(cache, new, at):
    return jnp.where((jnp.arange(cache.shape[1]) == at)[None, :, None], new, cache)


def rebuilt_cache(caches, x, at):
    def layer(x, cache):
        cache = lax.dynamic_update_slice(cache, x[:, None], (0, at, 0))
        return jnp.tanh(cache.sum(1)), cache

    return lax.scan(layer, x, caches)


def every_state(x, cache):
    def token(state, at):
        x, cache = state
        cache = lax.dynamic_update_slice(cache, jnp.tanh(x)[None], (at, 0))
        x = x + cache.sum(0)
        return (x, cache), cache

    return lax.scan(token, (x, cache), jnp.arange(16))


def occasional(x, w, v, step):
    return x @ w, jnp.where(step % 16 == 0, jnp.tanh(x @ v).astype(FP32).sum(), 0.0)


def patches(x, w):
    height, width = x.shape[1:3]
    filled = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    parts = [filled[:, row : row + height, column : column + width] for row in range(3) for column in range(3)]
    return lax.optimization_barrier(jnp.concatenate(parts, -1)) @ w


def recomputed(x, up, down):
    @jax.checkpoint
    def layer(x, up, down):
        return jnp.tanh(x @ up) @ down

    def loss(x, up, down):
        return (layer(x, up, down).astype(FP32) ** 2).mean()

    return jax.value_and_grad(loss, (0, 1, 2))(x, up, down)


def multiplied_twice(x, w):
    return jax.nn.relu(x @ w), jnp.tanh(lax.optimization_barrier(x) @ w)


def cast_weights(x, up, down):
    return lax.dot(jax.nn.relu(x @ up), lax.optimization_barrier(down.astype(BF16)))


def dequantized_weights(x, w, scale):
    return x @ lax.optimization_barrier(w.astype(BF16) * scale)


HEADS = ((8, 16, 2048, 64), BF16)
PROGRAMS = {
    stored_attention: ("v5e", HEADS, HEADS, HEADS),
    biased_attention: ("v5e", HEADS, HEADS, HEADS, ((16, 2048, 2048), BF16)),
    scanned_attention: ("v5e", ((4, 2048, 1024), BF16), ((4, 3, 1024, 16, 64), BF16)),
    dense_experts: ("v5e", ((2048, 1024), BF16), ((1024, 16), BF16), ((16, 1024, 4096), BF16), ((16, 4096, 1024), BF16)),
    experts_one_by_one: ("v5e", ((4096, 1024), BF16), ((4096,), INT32), ((8, 1024, 2048), BF16)),
    fp32_products: ("v5e", ((4096, 2048), FP32), ((2048, 8192), FP32), ((8192, 2048), FP32)),
    one_hot_dispatch: ("v5e", ((4096, 1024), BF16), ((1024, 8), BF16), ((8, 1024, 2816), BF16), ((8, 2816, 1024), BF16)),
    one_hot_gradient: ("v6e", ((8192,), INT32), ((32000, 1024), BF16), ((1024, 1024), BF16)),
    product_order: ("v6e", ((4096, 4096), BF16), ((4096, 4096), BF16), ((4096, 128), BF16)),
    summed_rows: ("v5e", ((8, 2048, 4096), BF16), ((4096, 2048), BF16)),
    room_for_groups: ("v5e", ((8192, 2048), BF16), ((8192,), INT32), ((8192,), INT32), ((16, 2048, 4096), BF16), ((16, 4096, 2048), BF16)),
    stored_keys: ("v5e", ((8, 32, 256, 128), BF16), ((8, 8, 8192, 128), BF16)),
    gathered_matrices: ("v5e", ((512, 128, 512), BF16), ((512,), INT32), ((32, 512, 512), BF16)),
    gathered_pages: ("v5e", ((64, 16, 8, 128), BF16), ((4096, 16, 8, 128), BF16), ((64, 32), INT32)),
    sorted_part: ("v5e", ((512, 32768), FP32)),
    patches: ("v5e", ((16, 64, 64, 128), BF16), ((1152, 128), BF16)),
    undonated: ("v5e", ((64, 4096, 256), BF16), ((64, 1, 256), BF16), ((), INT32)),
    oldest_dropped: ("v5e", ((64, 4096, 256), BF16), ((64, 1, 256), BF16)),
    position_selected: ("v5e", ((64, 4096, 256), BF16), ((64, 1, 256), BF16), ((), INT32)),
    rebuilt_cache: ("v5e", ((4, 16, 4096, 1024), BF16), ((16, 1024), BF16), ((), INT32)),
    every_state: ("v5e", ((8192,), BF16), ((16384, 8192), BF16)),
    recomputed: ("v5e", ((8192, 1024), BF16), ((1024, 4096), BF16), ((4096, 1024), BF16)),
    multiplied_twice: ("v5e", ((8192, 4096), BF16), ((4096, 4096), BF16)),
    occasional: ("v5e", ((8192, 2048), BF16), ((2048, 2048), BF16), ((2048, 2048), BF16), ((), INT32)),
    padded_depth: ("v5e", ((8192, 3000), BF16), ((3000, 4096), BF16)),
    cast_weights: ("v5e", ((512, 4096), BF16), ((4096, 4096), BF16), ((4096, 16384), FP32)),
    dequantized_weights: ("v5e", ((512, 8192), BF16), ((8192, 8192), INT8), ((8192,), BF16)),
}


def main(names: list[str]) -> None:
    for program, (chip, *shapes) in PROGRAMS.items():
        if names and program.__name__ not in names:
            continue
        topology = topologies.get_topology_desc(platform="tpu", topology_name=f"{chip}:2x2")
        here = SingleDeviceSharding(topology.devices[0])
        lowered = jax.jit(program).lower(*(jax.ShapeDtypeStruct(shape, dtype, sharding=here) for shape, dtype in shapes))
        for form, text in ((f"{chip}.stablehlo", lowered.as_text(debug_info=True)), (f"tpu-{chip}.hlo", lowered.compile().as_text())):
            text = text.replace(f"{HERE}/", "").replace(f"{sys.prefix}/", "")
            (HERE / f"{program.__name__}.{form}.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    main(sys.argv[1:])
