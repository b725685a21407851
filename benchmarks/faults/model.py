"""A small transformer, the body of most programs in `programs.py`: training by its loss, and decoding one token."""

import jax
import jax.numpy as jnp
import numpy as np


def layer_norm(x, gain, bias):
    wide = x.astype(jnp.float32)
    mean = wide.mean(-1, keepdims=True)
    variance = ((wide - mean) ** 2).mean(-1, keepdims=True)
    return ((wide - mean) * jax.lax.rsqrt(variance + 1e-5) * gain + bias).astype(x.dtype)


def init(layers, width, hidden, vocabulary, dtype=jnp.bfloat16):
    """Random weights, one dictionary a layer."""
    keys = iter(jax.random.split(jax.random.key(0), 4 * layers + 1))

    def weight(*shape):
        return (jax.random.normal(next(keys), shape, jnp.float32) * 0.02).astype(dtype)

    def layer():
        norms = {f"{name}{i}": make(width, jnp.float32) for i in (1, 2) for name, make in (("gain", jnp.ones), ("bias", jnp.zeros))}
        large = {"qkv": weight(width, 3 * width), "out": weight(width, width), "up": weight(width, hidden), "down": weight(hidden, width)}
        return large | norms

    return {"embed": weight(vocabulary, width), "layers": [layer() for _ in range(layers)]}


def written_out_attention(q, k, v):
    """Causal attention that stores its scores; all of shape (batch, heads, positions, head size)."""
    length, size = q.shape[-2:]
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k).astype(jnp.float32) / np.sqrt(size)
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, -1).astype(q.dtype), v)


def fused_attention(q, k, v):
    q, k, v = (x.transpose(0, 2, 1, 3) for x in (q, k, v))
    return jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="cudnn").transpose(0, 2, 1, 3)


def block(x, weights, heads, attention=fused_attention):
    batch, length, width = x.shape
    with jax.named_scope("attn"):
        h = layer_norm(x, weights["gain1"], weights["bias1"])
        parts = jnp.split(h @ weights["qkv"], 3, -1)
        q, k, v = (part.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3) for part in parts)
        mixed = attention(q, k, v).transpose(0, 2, 1, 3).reshape(batch, length, width)
        x = x + mixed @ weights["out"]
    with jax.named_scope("mlp"):
        h = layer_norm(x, weights["gain2"], weights["bias2"])
        return x + jax.nn.gelu(h @ weights["up"]) @ weights["down"]


def loss(params, tokens, heads, attention=fused_attention, wrap=lambda function: function):
    x = params["embed"][tokens]
    for i, weights in enumerate(params["layers"]):
        with jax.named_scope(f"layer{i}"):
            x = wrap(lambda x, weights: block(x, weights, heads, attention))(x, weights)
    with jax.named_scope("loss"):
        logits = (x @ params["embed"].T).astype(jnp.float32)
        chosen = jax.nn.log_softmax(logits[:, :-1])
        return -jnp.take_along_axis(chosen, tokens[:, 1:, None], -1).mean()


def decode(params, cache, x, position, heads):
    """One token for each sequence: x is (batch, width), each cache (batch, heads, positions, head size)."""
    batch, width = x.shape
    updated = []
    for i, (weights, (keys, values)) in enumerate(zip(params["layers"], cache, strict=True)):
        with jax.named_scope(f"layer{i}"):
            h = layer_norm(x, weights["gain1"], weights["bias1"])
            q, k, v = (part.reshape(batch, heads, 1, width // heads) for part in jnp.split(h @ weights["qkv"], 3, -1))
            keys = jax.lax.dynamic_update_slice(keys, k, (0, 0, position, 0))
            values = jax.lax.dynamic_update_slice(values, v, (0, 0, position, 0))
            scores = jnp.einsum("bhqd,bhkd->bhqk", q, keys).astype(jnp.float32) / np.sqrt(width // heads)
            scores = jnp.where(jnp.arange(keys.shape[2]) <= position, scores, -1e9)
            mixed = jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, -1).astype(x.dtype), values)
            x = x + mixed.reshape(batch, width) @ weights["out"]
            h = layer_norm(x, weights["gain2"], weights["bias2"])
            x = x + jax.nn.gelu(h @ weights["up"]) @ weights["down"]
            updated.append((keys, values))
    return updated, x @ params["embed"].T
