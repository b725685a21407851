"""A training step of Llama 3.1 8B for a slice of TPUs: weights sharded over all chips (FSDP), flash attention, layers recomputed.

    roofline analyze examples/llama_tpu.py:plan --chip v6e:4x4 --per-step tokens=64k

compiles it for 16 chips that are not here and predicts its step. `plan` returns the step and the shapes of its arguments, so that the model
needs no memory on this computer.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel, splash_attention_mask
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

LAYERS, WIDTH, HIDDEN, HEADS, KV_HEADS, HEAD, VOCABULARY = 32, 4096, 14336, 32, 8, 128, 128256
SEQUENCE, SEQUENCES_A_CHIP, CHUNKS = 4096, 1, 4  # the loss is computed in chunks of the sequence, to store the logits of one alone
RATE = 1e-4
Weights = dict[str, Any]


def rms_norm(x: jax.Array, gain: jax.Array) -> jax.Array:
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-5)).astype(x.dtype) * gain


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Causal flash attention of each chip's own sequences, in blocks of 1024: the masked ones are skipped."""
    sizes = dict.fromkeys(("block_q", "block_kv", "block_kv_compute", "block_q_dkv", "block_kv_dkv", "block_kv_dkv_compute"), 1024)
    blocks = splash_attention_kernel.BlockSizes(**sizes, block_q_dq=1024, block_kv_dq=1024)
    mask = splash_attention_mask.MultiHeadMask([splash_attention_mask.CausalMask((SEQUENCE, SEQUENCE))] * HEADS)
    kernel = splash_attention_kernel.make_splash_mha(mask, head_shards=1, q_seq_shards=1, block_sizes=blocks)
    of_a_chip = jax.shard_map(jax.vmap(kernel), in_specs=(P("fsdp"),) * 3, out_specs=P("fsdp"), check_vma=False)
    return of_a_chip(q * HEAD**-0.5, k, v)


def layer(x: jax.Array, w: Weights) -> jax.Array:
    with jax.named_scope("attention"):
        y = rms_norm(x, w["norm1"])
        q, k, v = (jnp.einsum("bsd,dhe->bhse", y, w[name]) for name in ("q", "k", "v"))
        k, v = (jnp.repeat(one, HEADS // KV_HEADS, axis=1) for one in (k, v))
        x = x + jnp.einsum("bhse,hed->bsd", attention(q, k, v), w["o"])
    with jax.named_scope("mlp"):
        y = rms_norm(x, w["norm2"])
        x = x + (jax.nn.silu(y @ w["gate"]) * (y @ w["up"])) @ w["down"]
    return jax.lax.with_sharding_constraint(x, P("fsdp"))


def loss(weights: Weights, tokens: jax.Array) -> jax.Array:
    narrow = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), weights)
    x = jax.lax.with_sharding_constraint(narrow["embedding"][tokens], P("fsdp"))
    x, _ = jax.lax.scan(jax.checkpoint(lambda x, w: (layer(x, w), None)), x, narrow["layers"])
    x = rms_norm(x, narrow["norm"])

    @jax.checkpoint
    def of_chunk(total: jax.Array, chunk: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        states, targets = chunk
        logits = (states @ narrow["head"]).astype(jnp.float32)
        hit = jnp.sum(jax.nn.one_hot(targets, VOCABULARY, dtype=jnp.float32) * logits, -1)
        return total + jnp.sum(jax.nn.logsumexp(logits, -1) - hit), None

    chunks = [jnp.stack(jnp.split(array, CHUNKS, axis=1)) for array in (x, tokens)]
    return jax.lax.scan(of_chunk, jnp.float32(0), tuple(chunks))[0] / tokens.size


def step(state: tuple[Weights, Weights, Weights], tokens: jax.Array) -> tuple[tuple[Weights, Weights, Weights], jax.Array]:
    """One step of AdamW in float32."""
    weights, mean, square = state
    value, gradient = jax.value_and_grad(loss)(weights, tokens)
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, gradient)
    square = jax.tree.map(lambda v, g: 0.95 * v + 0.05 * g * g, square, gradient)
    weights = jax.tree.map(lambda w, m, v: w - RATE * (m / (jnp.sqrt(v) + 1e-8) + 0.1 * w), weights, mean, square)
    return (weights, mean, square), value


def plan() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The step, and the shapes of its arguments on a mesh of all devices."""
    mesh = jax.make_mesh((len(jax.devices()),), ("fsdp",), axis_types=(AxisType.Auto,))

    def array(*sizes: int, axis: int | None = None, kind: Any = jnp.float32) -> jax.ShapeDtypeStruct:
        names = [None if axis is None or place != axis else "fsdp" for place in range(len(sizes))]
        return jax.ShapeDtypeStruct(sizes, kind, sharding=NamedSharding(mesh, P(*names)))

    layers = {
        "norm1": array(LAYERS, WIDTH),
        "q": array(LAYERS, WIDTH, HEADS, HEAD, axis=1),
        "k": array(LAYERS, WIDTH, KV_HEADS, HEAD, axis=1),
        "v": array(LAYERS, WIDTH, KV_HEADS, HEAD, axis=1),
        "o": array(LAYERS, HEADS, HEAD, WIDTH, axis=3),
        "norm2": array(LAYERS, WIDTH),
        "gate": array(LAYERS, WIDTH, HIDDEN, axis=1),
        "up": array(LAYERS, WIDTH, HIDDEN, axis=1),
        "down": array(LAYERS, HIDDEN, WIDTH, axis=2),
    }
    embedding, head = array(VOCABULARY, WIDTH, axis=1), array(WIDTH, VOCABULARY, axis=0)
    weights = {"embedding": embedding, "layers": layers, "norm": array(WIDTH), "head": head}
    tokens = array(SEQUENCES_A_CHIP * mesh.size, SEQUENCE, axis=0, kind=jnp.int32)
    return jax.jit(step, donate_argnums=0), ((weights, weights, weights), tokens)
