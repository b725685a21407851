"""Small programs to compile for TPUs, each with the FLOP that its products need on one device, from its shapes.

A builder gets the devices of a topology. Only matrix products and convolutions are counted: they are what formulas say exactly, while the
vector work of a compiled program is the compiler's choice.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

Devices = Sequence[Any]
BF16, FP32, INT8, INT32 = jnp.bfloat16, jnp.float32, jnp.int8, jnp.int32


class Program(NamedTuple):
    """A function, its arguments by shape and sharding, the FLOP of its products on one device, and the arguments that it may overwrite."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    matrix_flop: int
    donated: tuple[int, ...] = ()


def on_one(devices: Devices) -> Callable[..., jax.ShapeDtypeStruct]:
    """Shapes of arrays on the first device."""
    return partial(_shape, sharding=SingleDeviceSharding(devices[0]))


def _shape(*dims: int, dtype: Any = BF16, sharding: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, dtype, sharding=sharding)


def matmul(devices: Devices) -> Program:
    """Rows times weights, with a bias and a GELU that the compiler fuses into the product."""
    m, k, n = 1024, 2048, 4096
    shape = on_one(devices)
    return Program(lambda x, w, b: jax.nn.gelu(x @ w + b), (shape(m, k), shape(k, n), shape(n)), 2 * m * k * n)


BATCH, SEQUENCE, WIDTH, HEADS, HIDDEN = 2, 512, 512, 4, 2048
LAYER_FLOP = (
    2 * BATCH * SEQUENCE * (4 * WIDTH * WIDTH + 2 * WIDTH * HIDDEN)  # queries, keys and values, output; up and down
    + 4 * BATCH * SEQUENCE * SEQUENCE * WIDTH  # scores, and their product with the values: the full square, masked afterwards
)


def _normalized(x: jax.Array) -> jax.Array:
    wide = x.astype(FP32)
    return (wide * lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-5)).astype(x.dtype)


def _layer(x: jax.Array, weights: dict[str, jax.Array]) -> jax.Array:
    batch, sequence, width = x.shape
    heads = (batch, sequence, HEADS, width // HEADS)
    q, k, v = (part.reshape(heads) for part in jnp.split(_normalized(x) @ weights["qkv"], 3, -1))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(FP32) * heads[-1] ** -0.5
    causal = jnp.tril(jnp.ones((sequence, sequence), bool))
    shares = jax.nn.softmax(jnp.where(causal, scores, -1e30), -1).astype(x.dtype)
    x = x + jnp.einsum("bhqk,bkhd->bqhd", shares, v).reshape(x.shape) @ weights["out"]
    return x + jax.nn.gelu(_normalized(x) @ weights["up"]) @ weights["down"]


def _layer_arguments(devices: Devices) -> tuple[Any, ...]:
    shape = on_one(devices)
    sizes = {"qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH), "up": (WIDTH, HIDDEN), "down": (HIDDEN, WIDTH)}
    return shape(BATCH, SEQUENCE, WIDTH), {name: shape(*dims) for name, dims in sizes.items()}


def layer(devices: Devices) -> Program:
    """A transformer layer with causal attention, forward."""
    return Program(_layer, _layer_arguments(devices), LAYER_FLOP)


def layer_gradient(devices: Devices) -> Program:
    """The gradients of that layer with respect to its input and weights: each product has two more in the backward pass."""
    gradient = jax.grad(lambda x, weights: jnp.sum(_layer(x, weights).astype(FP32) ** 2), (0, 1))
    return Program(gradient, _layer_arguments(devices), 3 * LAYER_FLOP)


def attention_gradient(devices: Devices) -> Program:
    """The gradients of causal attention by XLA, which computes the full square and masks it."""
    batch, heads, sequence, size = 1, 2, 1024, 128
    shape = on_one(devices)

    def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, k).astype(FP32) * size**-0.5
        causal = jnp.tril(jnp.ones((sequence, sequence), bool))
        shares = jax.nn.softmax(jnp.where(causal, scores, -1e30), -1).astype(q.dtype)
        return jnp.einsum("bhqk,bhkd->bhqd", shares, v)

    gradient = jax.grad(lambda q, k, v: jnp.sum(attention(q, k, v).astype(FP32) ** 2), (0, 1, 2))
    qkv = (shape(batch, heads, sequence, size),) * 3
    return Program(gradient, qkv, 3 * 4 * batch * heads * sequence * sequence * size)  # each of two products has two more backward


def convolution(devices: Devices) -> Program:
    """A 3x3 convolution with a stride of 1 and padding, and a ReLU."""
    batch, side, channels = 8, 28, 128
    shape = on_one(devices)

    def convolve(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.nn.relu(lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))

    taps = (3 * side - 2) ** 2  # per image: 3 a row and column of the result, but 2 at the edges
    return Program(convolve, (shape(batch, side, side, channels), shape(3, 3, channels, channels)), 2 * batch * taps * channels * channels)


def scan(devices: Devices) -> Program:
    """The gradients of the weights of eight residual layers, by a loop forward and a loop backward."""
    layers, rows, width, hidden = 8, 512, 256, 1024
    shape = on_one(devices)

    def loss(x: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
        x, _ = lax.scan(lambda x, w: (x + jax.nn.gelu(x @ w[0]) @ w[1], None), x, (up, down))
        return jnp.sum(x.astype(FP32) ** 2)

    arguments = (shape(rows, width), shape(layers, width, hidden), shape(layers, hidden, width))
    return Program(jax.grad(loss, (1, 2)), arguments, 3 * layers * 4 * rows * width * hidden)


def _mesh(devices: Devices, tensor: int) -> Mesh:
    return Mesh(np.array(devices).reshape(-1, tensor), ("fsdp", "tensor"))


def sharded_mlp(devices: Devices) -> Program:
    """An MLP with rows and weights sharded over `fsdp`, and its hidden width over `tensor`: weights are gathered, results added."""
    mesh = _mesh(devices, 2 if len(devices) < 16 else 4)
    rows, width, hidden = 512, 1024, 4096
    data, tensor = mesh.shape["fsdp"], mesh.shape["tensor"]

    def shape(*dims: int, axes: tuple[str | None, ...]) -> jax.ShapeDtypeStruct:
        return _shape(*dims, sharding=NamedSharding(mesh, PartitionSpec(*axes)))

    def function(x: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
        return lax.with_sharding_constraint(jax.nn.gelu(x @ up) @ down, NamedSharding(mesh, PartitionSpec("fsdp", None)))

    arguments = (
        shape(data * rows, width, axes=("fsdp", None)),
        shape(width, hidden, axes=("fsdp", "tensor")),
        shape(hidden, width, axes=("tensor", "fsdp")),
    )
    return Program(function, arguments, 4 * rows * width * hidden // tensor)


def hidden_gathers(devices: Devices) -> Program:
    """A scan over layers whose weights are sharded over all devices: each is gathered while products run."""
    mesh = _mesh(devices, 1)
    layers, rows, width, hidden = 8, 2048, 1024, 4096

    def shape(*dims: int, axes: tuple[str | None, ...]) -> jax.ShapeDtypeStruct:
        return _shape(*dims, sharding=NamedSharding(mesh, PartitionSpec(*axes)))

    def function(x: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
        return lax.scan(lambda x, w: (x + jax.nn.gelu(x @ w[0]) @ w[1], None), x, (up, down))[0]

    arguments = (
        shape(len(devices) * rows, width, axes=("fsdp", None)),
        shape(layers, width, hidden, axes=(None, None, "fsdp")),
        shape(layers, hidden, width, axes=(None, "fsdp", None)),
    )
    return Program(function, arguments, layers * 4 * rows * width * hidden)


def decode(devices: Devices) -> Program:
    """Attention of one token over a cache, which is donated and written in place; eight queries share each head of the cache."""
    batch, groups, queries, length, size = 4, 4, 8, 2048, 128
    shape = on_one(devices)

    def function(keys: Any, values: Any, key: Any, value: Any, query: Any, position: Any) -> Any:
        keys = lax.dynamic_update_slice(keys, key, (0, 0, position, 0))
        values = lax.dynamic_update_slice(values, value, (0, 0, position, 0))
        scores = jnp.einsum("bgqd,bgkd->bgqk", query, keys).astype(FP32) * size**-0.5
        seen = jnp.arange(length) <= position
        shares = jax.nn.softmax(jnp.where(seen, scores, -1e30), -1).astype(BF16)
        return jnp.einsum("bgqk,bgkd->bgqd", shares, values), keys, values

    cache, token = shape(batch, groups, length, size), shape(batch, groups, 1, size)
    arguments = (cache, cache, token, token, shape(batch, groups, queries, size), shape(dtype=INT32))
    return Program(function, arguments, 4 * batch * groups * queries * length * size, donated=(0, 1))


def int8_matmul(devices: Devices) -> Program:
    """Rows and weights of 8 bits, multiplied in 32, then scaled to bf16."""
    m, k, n = 1024, 2048, 4096
    shape = on_one(devices)

    def function(x: jax.Array, w: jax.Array, scale: jax.Array) -> jax.Array:
        return (lax.dot(x, w, preferred_element_type=INT32).astype(FP32) * scale).astype(BF16)

    return Program(function, (shape(m, k, dtype=INT8), shape(k, n, dtype=INT8), shape(n, dtype=FP32)), 2 * m * k * n)


def embedding(devices: Devices) -> Program:
    """Rows of a table by token, and the gradient of the table, which adds rows up: no products."""
    words, width, tokens = 32_768, 256, 8192
    shape = on_one(devices)
    gradient = jax.grad(lambda table, token: jnp.sum(table[token].astype(FP32) ** 2))
    return Program(gradient, (shape(words, width), shape(tokens, dtype=INT32)), 0)


def pallas_matmul(devices: Devices) -> Program:
    """A product in blocks of 512 by a kernel of Pallas, which adds up in VMEM."""
    side, block = 2048, 512
    shape = on_one(devices)

    def kernel(a: Any, b: Any, out: Any, total: Any) -> None:
        @pl.when(pl.program_id(2) == 0)
        def _() -> None:
            total[...] = jnp.zeros_like(total)

        total[...] += jnp.dot(a[...], b[...], preferred_element_type=FP32)

        @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
        def _() -> None:
            out[...] = total[...].astype(out.dtype)

    call = pl.pallas_call(
        kernel,
        grid=(side // block,) * 3,
        in_specs=[pl.BlockSpec((block, block), lambda i, j, k: (i, k)), pl.BlockSpec((block, block), lambda i, j, k: (k, j))],
        out_specs=pl.BlockSpec((block, block), lambda i, j, k: (i, j)),
        out_shape=jax.ShapeDtypeStruct((side, side), BF16),
        scratch_shapes=[pltpu.VMEM((block, block), FP32)],
    )
    return Program(call, (shape(side, side), shape(side, side)), 2 * side**3)


def too_large(devices: Devices) -> Program:
    """A sum of two arrays of 20 GB each, more than the memory of a v5e."""
    rows, columns = 100_000, 100_000
    shape = on_one(devices)
    return Program(lambda a, b: a + b, (shape(rows, columns), shape(rows, columns)), 0)
