"""Writes the programs in this folder: what JAX hands to a compiler, before any compiler has seen it. Needs JAX; runs nothing.

A training step of a four-layer GPT and the forward pass of eight such layers in a scan, both in bf16, and a LayerNorm, GELU, dropout
and residual add as one program, two and four. The first two were compiled and run on an H200; what was compiled there moves as many
bytes as `tests/test_compiler_model.py` says.
"""

import gzip
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

HERE = Path(__file__).parent
WIDTH, HEADS, HIDDEN, WORDS = 2048, 16, 8192, 32000


def layer_norm(x: jax.Array, gain: jax.Array | float, shift: jax.Array | float) -> jax.Array:
    wide = x.astype(jnp.float32)
    centred = wide - wide.mean(-1, keepdims=True)
    variance = (centred**2).mean(-1, keepdims=True)
    return (centred * jax.lax.rsqrt(variance + 1e-5) * gain + shift).astype(x.dtype)


def layer(x: jax.Array, weights: dict[str, jax.Array]) -> jax.Array:
    batch, length, width = x.shape
    with jax.named_scope("attn"):
        normal = layer_norm(x, weights["g1"], weights["b1"])
        parts = jnp.split(normal @ weights["qkv"], 3, -1)
        query, key, value = (part.reshape(batch, length, HEADS, width // HEADS).transpose(0, 2, 1, 3) for part in parts)
        scores = jnp.einsum("bhqd,bhkd->bhqk", query, key).astype(jnp.float32) / np.sqrt(width // HEADS)
        seen = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
        mixed = jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(seen, -1).astype(x.dtype), value)
        x = x + mixed.transpose(0, 2, 1, 3).reshape(batch, length, width) @ weights["o"]
    with jax.named_scope("mlp"):
        normal = layer_norm(x, weights["g2"], weights["b2"])
        return x + jax.nn.gelu(normal @ weights["up"]) @ weights["down"]


def shapes(*lead: int) -> dict[str, jax.ShapeDtypeStruct]:
    big = {"qkv": (WIDTH, 3 * WIDTH), "o": (WIDTH, WIDTH), "up": (WIDTH, HIDDEN), "down": (HIDDEN, WIDTH)}
    found = {name: jax.ShapeDtypeStruct((*lead, *shape), jnp.bfloat16) for name, shape in big.items()}
    return found | {name: jax.ShapeDtypeStruct((*lead, WIDTH), jnp.float32) for name in ("g1", "b1", "g2", "b2")}


def loss(weights: dict, words: jax.Array) -> jax.Array:
    x = weights["embed"][words]
    for number, one in enumerate(weights["layers"]):
        with jax.named_scope(f"layer{number}"):
            x = layer(x, one)
    scores = (x @ weights["embed"].T).astype(jnp.float32)
    likely = jax.nn.log_softmax(scores[:, :-1])
    return -jnp.take_along_axis(likely, words[:, 1:, None], -1).mean()


def train(weights: dict, first: dict, second: dict, words: jax.Array) -> tuple:
    value, gradients = jax.value_and_grad(loss)(weights, words)

    def adam(weight: jax.Array, mean: jax.Array, square: jax.Array, gradient: jax.Array) -> tuple:
        gradient = gradient.astype(jnp.float32)
        mean, square = 0.9 * mean + 0.1 * gradient, 0.99 * square + 0.01 * gradient * gradient
        return (weight.astype(jnp.float32) - 1e-4 * mean / (jnp.sqrt(square) + 1e-8)).astype(weight.dtype), mean, square

    return jax.tree.map(adam, weights, first, second, gradients), value


def scan(weights: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    return jax.lax.scan(lambda x, one: (layer(x, one), None), x, weights)[0]


def dropout(x: jax.Array) -> jax.Array:
    place = jax.lax.broadcasted_iota(jnp.uint32, x.shape, x.ndim - 1)
    return jnp.where((place * jnp.uint32(2654435761)) & 7 != 0, x, jnp.zeros_like(x))


STAGES = (lambda x: layer_norm(x, 1.0, 0.0), jax.nn.gelu, dropout, lambda x: x + x * jnp.bfloat16(0.5))


def chain(start: int, stop: int) -> Callable[[jax.Array], jax.Array]:
    def run(x: jax.Array) -> jax.Array:
        for stage in STAGES[start:stop]:
            x = stage(x)
        return x

    return run


def save(name: str, function: Callable, *arguments: object) -> None:
    text = jax.jit(function).lower(*arguments).as_text()
    (HERE / f"{name}.stablehlo.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def main() -> None:
    weights = {"embed": jax.ShapeDtypeStruct((WORDS, WIDTH), jnp.bfloat16), "layers": [shapes() for _ in range(4)]}
    wide = jax.tree.map(lambda one: jax.ShapeDtypeStruct(one.shape, jnp.float32), weights)
    save("train", train, weights, wide, wide, jax.ShapeDtypeStruct((8, 1024), jnp.int32))
    save("scan", scan, shapes(8), jax.ShapeDtypeStruct((4, 1024, WIDTH), jnp.bfloat16))
    for kernels in (1, 2, 4):
        step = 4 // kernels
        for number in range(kernels):
            save(
                f"chain{kernels}_{number}", chain(number * step, (number + 1) * step), jax.ShapeDtypeStruct((32, 2048, 4096), jnp.bfloat16)
            )


if __name__ == "__main__":
    main()
