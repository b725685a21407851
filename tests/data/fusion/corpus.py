"""JAX functions of every family that fusion treats its own way, before and after a compiler. Needs JAX.

    python corpus.py FOLDER      writes NAME.stablehlo.gz and, compiled for the backend at hand, NAME.hlo.gz

The ``h200`` folder beside this script was written on an H200 by jax 0.11.2.
"""

import gzip
import re
import sys
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

BF16, F32, I32 = jnp.bfloat16, jnp.float32, jnp.int32
PROGRAMS: dict[str, tuple[Callable, tuple]] = {}


def array(*shape: int, dtype: object = BF16) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def add(*arguments: object) -> Callable[[Callable], Callable]:
    def keep(function: Callable) -> Callable:
        PROGRAMS[function.__name__] = (function, arguments)
        return function

    return keep


def total(function: Callable) -> Callable:
    """A function as a loss: its sum in fp32."""
    return lambda *arguments: function(*arguments).astype(F32).sum()


@add(array(4096, 2048), array(2048, 8192), array(8192), array(8192, 2048), array(2048))
def mlp_relu(x, w1, b1, w2, b2):
    return jax.nn.relu(x @ w1 + b1) @ w2 + b2


@add(array(4096, 2048), array(2048, 8192), array(8192, 2048))
def mlp_gelu_grad(x, w1, w2):
    return jax.grad(total(lambda x, w1, w2: jax.nn.gelu(x @ w1) @ w2), (0, 1, 2))(x, w1, w2)


@add(array(4096, 2048), array(2048, 5632), array(2048, 5632), array(5632, 2048))
def swiglu(x, gate, up, down):
    return (jax.nn.silu(x @ gate) * (x @ up)) @ down


def rms(x, gain):
    wide = x.astype(F32)
    return (wide * jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-6) * gain).astype(x.dtype)


@add(array(8, 1024, 4096), array(8, 1024, 4096), array(4096, dtype=F32))
def residual_rms_norm(x, y, gain):
    total = x + y
    return total, rms(total, gain)


def layer_norm(x, gain, shift):
    wide = x.astype(F32)
    centred = wide - wide.mean(-1, keepdims=True)
    return (centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gain + shift).astype(x.dtype)


@add(array(8192, 4096), array(4096, dtype=F32), array(4096, dtype=F32))
def layer_norm_grad(x, gain, shift):
    return jax.grad(total(layer_norm), (0, 1, 2))(x, gain, shift)


@add(array(16384, 4096))
def softmax_rows(x):
    return jax.nn.softmax(x.astype(F32)).astype(x.dtype)


@add(array(2048, 131072))
def softmax_long_rows(x):
    return jax.nn.softmax(x.astype(F32)).astype(x.dtype)


@add(array(4096, 50304), array(4096, dtype=I32))
def cross_entropy_grad(scores, labels):
    def loss(scores):
        likely = jax.nn.log_softmax(scores.astype(F32))
        return -jnp.take_along_axis(likely, labels[:, None], -1).mean()

    return jax.value_and_grad(loss)(scores)


def attention(q, k, v):
    length = q.shape[1]
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(F32) / np.sqrt(q.shape[-1])
    seen = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(seen).astype(q.dtype), v)


@add(array(4, 2048, 16, 128), array(4, 2048, 16, 128), array(4, 2048, 16, 128))
def attention_forward(q, k, v):
    return attention(q, k, v)


@add(array(4, 2048, 16, 128), array(4, 2048, 16, 128), array(4, 2048, 16, 128))
def attention_grad(q, k, v):
    return jax.grad(total(attention), (0, 1, 2))(q, k, v)


@add(array(8, 2048, 32, 128), array(2048, 64, dtype=F32))
def rotary(x, angles):
    first, second = jnp.split(x.astype(F32), 2, -1)
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1).astype(x.dtype)


@add(array(32000, 2048), array(8, 1024, dtype=I32))
def embedding(table, words):
    return table[words] * jnp.bfloat16(45.25)


@add(array(32000, 2048), array(8, 1024, dtype=I32), array(8, 1024, 2048))
def embedding_grad(table, words, outer):
    return jax.vjp(lambda table: table[words], table)[1](outer)[0]


@add(*(array(4096, 4096, dtype=F32) for _ in range(4)))
def adam(weight, mean, square, gradient):
    mean, square = 0.9 * mean + 0.1 * gradient, 0.99 * square + 0.01 * gradient * gradient
    return weight - 1e-4 * mean / (jnp.sqrt(square) + 1e-8), mean, square


@add(array(8192, 4096))
def dropout(x):
    keep = jax.random.bernoulli(jax.random.key(0), 0.9, x.shape)
    return jnp.where(keep, x / jnp.bfloat16(0.9), 0)


@add(array(65536, 1024, dtype=F32), array(1024, dtype=F32), array(1024, dtype=F32))
def batch_norm(x, gain, shift):
    mean, variance = x.mean(0), x.var(0)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * gain + shift, mean, variance


@add(array(32, 56, 56, 64), array(3, 3, 64, 64), array(64, dtype=F32), array(32, 56, 56, 64))
def convolution_block(x, kernel, shift, residual):
    y = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return jax.nn.relu(y + shift.astype(x.dtype) + residual)


@add(array(8, 1, 32, 128), array(8, 4096, 8, 128), array(8, 4096, 8, 128), array(8, 1, 8, 128), array(8, 1, 8, 128), array(dtype=I32))
def decode(q, keys, values, key, value, place):
    keys = jax.lax.dynamic_update_slice(keys, key, (0, place, 0, 0))
    values = jax.lax.dynamic_update_slice(values, value, (0, place, 0, 0))
    grouped = q.reshape(8, 8, 4, 128)
    scores = jnp.einsum("bgrd,bkgd->bgrk", grouped, keys).astype(F32) / np.sqrt(128)
    seen = jnp.where(jnp.arange(4096) <= place, scores, -1e9)
    return jnp.einsum("bgrk,bkgd->bgrd", jax.nn.softmax(seen).astype(q.dtype), values).reshape(8, 1, 32, 128), keys, values


@add(array(8192, 4096), array(4096, 64))
def router(x, gate):
    weights, chosen = jax.lax.top_k(jax.nn.softmax((x @ gate).astype(F32)), 8)
    return weights / weights.sum(-1, keepdims=True), chosen


@add(array(64, 256, 1024), array(1024, 4096), array(1024, 4096), array(64, 1024), array(64, 1024))
def lstm(xs, w, u, hidden, cell):
    def step(state, x):
        hidden, cell = state
        i, f, g, o = jnp.split(x @ w + hidden @ u, 4, -1)
        cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
        return (jax.nn.sigmoid(o) * jnp.tanh(cell), cell), hidden

    return jax.lax.scan(step, (hidden, cell), xs.transpose(1, 0, 2))


@add(array(4096, 4096, dtype=jnp.int8), array(4096, 8192), array(4096, dtype=F32))
def dequantised(weights, x, scale):
    return (weights.astype(BF16) * scale[:, None].astype(BF16)) @ x


@add(array(8192, 8192, dtype=F32))
def reductions(x):
    return x.max(), x.sum(0), x.mean(1), x.argmax(1), (x * x).sum()


@add(array(4096, 4096, dtype=F32), array(4096, 4096, dtype=F32))
def many_results(x, y):
    total = x + y
    return jnp.exp(total), jnp.sin(total) * y, total.T, jax.nn.sigmoid(x)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, (function, arguments) in PROGRAMS.items():
        lowered = jax.jit(function).lower(*arguments)
        compiled = lowered.compile().as_text()
        # Where the source lay on the machine that compiled it is nobody's business.
        compiled = re.sub(r'"[^"\n]*/(\w+\.py)"', r'"\1"', compiled)
        for form, text in (("stablehlo", lowered.as_text()), ("hlo", compiled)):
            (folder / f"{name}.{form}.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        sys.stderr.write(f"{name}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
