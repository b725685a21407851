"""JAX functions of every opcode family, with the shapes to compile them for; nothing here is run.

Shapes are odd on purpose, and some are drawn from a generator: a count that is right only for powers of two, or only for square
arrays, does not survive them. ``python tests/data/price/make.py`` compiles all of them for CPUs and freezes what XLA says.
"""

import functools
import random
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import ShapeDtypeStruct as Of
from jax import lax

F32, BF16, F16, S32, U32, S8, C64, BOOL = (
    jnp.float32,
    jnp.bfloat16,
    jnp.float16,
    jnp.int32,
    jnp.uint32,
    jnp.int8,
    jnp.complex64,
    jnp.bool_,
)


class Case(NamedTuple):
    """A function and the shapes of its arguments."""

    name: str
    function: Callable[..., object]
    arguments: tuple[object, ...]
    devices: int = 1


CASES: list[Case] = []


def case(*arguments: object, name: str = "", devices: int = 1) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Puts a function in the corpus."""

    def add(function: Callable[..., object]) -> Callable[..., object]:
        CASES.append(Case(name or function.__name__, function, arguments, devices))
        return function

    return add


def drawn(seed: int, count: int, low: int = 3, high: int = 40) -> tuple[int, ...]:
    """So many sizes, the same every time."""
    generator = random.Random(seed)
    return tuple(generator.randint(low, high) for _ in range(count))


# Products.

for seed in range(4):
    m, k, n = drawn(seed, 3, 5, 300)

    @case(Of((m, k), F32), Of((k, n), F32), name=f"matmul_{m}x{k}x{n}")
    def _matmul(a, b):
        return a @ b


for seed in range(4):
    b, c, m, k, n = drawn(10 + seed, 5, 2, 33)

    @case(Of((m, b, k, c), F32), Of((c, k, n, b), F32), name=f"contraction_{b}x{c}x{m}x{k}x{n}")
    def _contraction(x, y):
        return lax.dot_general(x, y, (((2, 3), (1, 0)), ((1,), (3,))))


@case(Of((1000,), F32), Of((1000,), F32))
def dot_of_vectors(a, b):
    return jnp.dot(a, b)


@case(Of((257, 129), F32), Of((129,), F32))
def matrix_times_vector(a, x):
    return a @ x


@case(Of((33,), F32), Of((65,), F32))
def outer_product(a, b):
    return jnp.outer(a, b)


@case(Of((64, 96), BF16), Of((96, 160), BF16))
def bf16_product(a, b):
    return lax.dot(a, b, preferred_element_type=F32)


@case(Of((64, 96), F16), Of((96, 48), F16))
def fp16_product(a, b):
    return a @ b


@case(Of((64, 96), S8), Of((96, 160), S8))
def int8_product(a, b):
    return lax.dot(a, b, preferred_element_type=S32)


@case(Of((48, 96), jnp.float8_e4m3fn), Of((96, 32), jnp.float8_e5m2))
def fp8_product(a, b):
    return lax.dot_general(a, b, (((1,), (0,)), ((), ())), preferred_element_type=F32)


@case(Of((48, 96), BF16), Of((96, 32), jnp.int4), Of((32,), BF16))
def int4_weights(x, w, scale):
    return (x @ w.astype(BF16)) * scale


@case(Of((48, 96), F32), Of((96, 32), F32))
def highest_precision(a, b):
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


@case(Of((17, 31), C64), Of((31, 23), C64))
def complex_product(a, b):
    return a @ b


@case(Of((96, 40), F32), Of((6, 40, 24), F32), Of((6,), S32))
def ragged_product(x, w, sizes):
    return lax.ragged_dot(x, w, sizes)


# Convolutions.


def convolved(x, w, *, strides, padding, lhs=None, rhs=None, groups=1, batch_groups=1, layout=("NHWC", "HWIO", "NHWC")):
    return lax.conv_general_dilated(
        x,
        w,
        strides,
        padding,
        lhs_dilation=lhs,
        rhs_dilation=rhs,
        dimension_numbers=layout,
        feature_group_count=groups,
        batch_group_count=batch_groups,
    )


@case(Of((2, 17, 19, 6), F32), Of((3, 5, 6, 8), F32))
def convolution_same(x, w):
    return convolved(x, w, strides=(1, 1), padding="SAME")


@case(Of((2, 17, 19, 6), F32), Of((3, 3, 6, 8), F32))
def convolution_valid_strided(x, w):
    return convolved(x, w, strides=(2, 3), padding="VALID")


@case(Of((2, 6, 17, 19), F32), Of((8, 6, 3, 3), F32))
def convolution_channels_first(x, w):
    return convolved(x, w, strides=(2, 1), padding=((1, 2), (0, 1)), layout=("NCHW", "OIHW", "NCHW"))


@case(Of((2, 15, 16, 4), F32), Of((3, 3, 4, 5), F32))
def convolution_dilated(x, w):
    return convolved(x, w, strides=(1, 2), padding=((2, 2), (4, 1)), rhs=(2, 3))


@case(Of((2, 9, 7, 4), F32), Of((3, 4, 4, 5), F32))
def convolution_transposed(x, w):
    return lax.conv_transpose(x, w, (2, 3), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


@case(Of((2, 9, 11, 4), F32), Of((3, 3, 4, 6), F32))
def convolution_cropped(x, w):
    return convolved(x, w, strides=(1, 1), padding=((-1, -2), (3, -1)), lhs=(2, 1))


@case(Of((2, 13, 13, 12), F32), Of((3, 3, 4, 9), F32))
def convolution_grouped(x, w):
    return convolved(x, w, strides=(1, 1), padding="SAME", groups=3)


@case(Of((2, 13, 13, 12), F32), Of((3, 3, 1, 24), F32))
def convolution_depthwise(x, w):
    return convolved(x, w, strides=(2, 2), padding="SAME", groups=12)


@case(Of((6, 9, 9, 4), F32), Of((3, 3, 4, 9), F32))
def convolution_batch_groups(x, w):
    return convolved(x, w, strides=(1, 1), padding="VALID", batch_groups=3)


@case(Of((3, 29, 5), F32), Of((4, 5, 7), F32))
def convolution_1d(x, w):
    return lax.conv_general_dilated(x, w, (3,), ((5, 1),), dimension_numbers=("NWC", "WIO", "NWC"))


@case(Of((1, 7, 8, 9, 3), F32), Of((2, 3, 3, 3, 4), F32))
def convolution_3d(x, w):
    return lax.conv_general_dilated(x, w, (1, 2, 1), "SAME", dimension_numbers=("NDHWC", "DHWIO", "NDHWC"))


@case(Of((2, 14, 15, 6), F32), Of((3, 3, 6, 8), F32))
def convolution_gradients(x, w):
    return jax.grad(lambda x, w: convolved(x, w, strides=(2, 2), padding="SAME").sum(), argnums=(0, 1))(x, w)


@case(Of((4, 12, 12, 8), F32), Of((3, 3, 2, 12), F32))
def convolution_grouped_gradients(x, w):
    return jax.grad(lambda x, w: jnp.square(convolved(x, w, strides=(1, 2), padding="VALID", groups=4)).sum(), argnums=(0, 1))(x, w)


# Elementwise.


@case(Of(drawn(20, 2), F32))
def unary(x):
    return (
        jnp.abs(x),
        -x,
        jnp.sign(x),
        jnp.floor(x),
        jnp.ceil(x),
        jnp.round(x),
        jnp.isfinite(x),
        jnp.exp(x),
        jnp.expm1(x),
        jnp.log(x),
        jnp.log1p(x),
        jnp.sqrt(x),
        lax.rsqrt(x),
        jnp.cbrt(x),
        jnp.sin(x),
        jnp.cos(x),
        jnp.tan(x),
        jnp.tanh(x),
        jax.nn.sigmoid(x),
        lax.erf(x),
        lax.reduce_precision(x, 5, 10),
    )


@case(Of(drawn(21, 3), F32), Of(drawn(21, 3), F32))
def binary(x, y):
    return (
        x + y,
        x - y,
        x * y,
        x / y,
        lax.rem(x, y),
        jnp.maximum(x, y),
        jnp.minimum(x, y),
        lax.pow(x, y),
        lax.atan2(x, y),
        x < y,
        jnp.where(x > y, x, y),
        jnp.clip(x, -1, 1),
        lax.clamp(jnp.float32(-2), x, y),
    )


@case(Of(drawn(22, 2), S32), Of(drawn(22, 2), S32))
def integers(x, y):
    return x + y, x * y, x // y, x % y, x & y, x | y, x ^ y, ~x, x << 3, x >> 2, lax.population_count(x), lax.clz(x), jnp.maximum(x, y), -x


@case(Of(drawn(23, 2), BOOL), Of(drawn(23, 2), BOOL))
def truth_values(x, y):
    return x & y, x | ~y, jnp.logical_xor(x, y), jnp.where(x, 1.0, 2.0)


@case(Of(drawn(24, 2), C64), Of(drawn(24, 2), C64))
def complex_numbers(x, y):
    return x + y, x * y, x / y, jnp.abs(x), jnp.exp(x), x.real, x.imag, jnp.conj(x)


@case(Of(drawn(25, 2), F32))
def conversions(x):
    return x.astype(BF16), x.astype(S32), x.astype(BOOL), lax.bitcast_convert_type(x, U32), x.astype(F16).astype(F32)


@case(Of((37, 129), BF16), Of((129,), BF16))
def scale_and_shift(x, s):
    return x * s + 1


@case(Of((63, 65), F32))
def gelu(x):
    return jax.nn.gelu(x)


# Reductions, windows, running totals, sorting.


@case(Of(drawn(30, 3), F32))
def reductions(x):
    return x.sum(), x.max(0), x.mean((0, 2)), x.prod(1), x.min((1, 2)), jnp.any(x > 0, 2), jnp.all(x > 0)


@case(Of(drawn(31, 2), F32))
def arg_reductions(x):
    return jnp.argmax(x, 1), jnp.argmin(x, 0)


@case(Of((33, 127), F32))
def moments(x):
    return x.var(1), x.std(0), jax.nn.logsumexp(x, 1)


@case(Of((33, 127), S32))
def integer_sum(x):
    return x.sum(1)


@case(Of((2, 15, 17, 5), F32))
def pooling(x):
    maximum = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    average = lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    overlapping = lax.reduce_window(x, 0.0, lax.add, (1, 5, 3, 1), (1, 1, 2, 1), ((0, 0), (2, 2), (1, 0), (0, 0)))
    return maximum, average, overlapping


@case(Of((2, 14, 16, 3), F32))
def pooling_gradients(x):
    def loss(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID").sum()

    return jax.grad(loss)(x)


@case(Of((13, 37), F32))
def running_totals(x):
    return jnp.cumsum(x, 1), jnp.cumprod(x, 0), lax.cummax(x, 1), lax.cumlogsumexp(x, 0), jnp.cumsum(x, 1)[:, ::-1]


@case(Of((50, 3), F32), Of((50, 3), F32))
def linear_recurrence(a, b):
    def combine(left, right):
        return left[0] * right[0], right[0] * left[1] + right[1]

    return lax.associative_scan(combine, (a, b))


@case(Of((29, 101), F32), Of((29, 101), S32))
def sorting(x, y):
    return jnp.sort(x, 0), jnp.argsort(x, 1), lax.sort((x, y), dimension=1, num_keys=1), jnp.median(x, 1)


@case(Of((31, 257), F32))
def top_k(x):
    return lax.top_k(x, 7)


# Moving data.


@case(Of((12, 18, 5), F32), Of((12, 18, 5), F32))
def rearrangements(x, y):
    return (
        x.transpose(2, 0, 1),
        x.reshape(108, 10),
        jnp.concatenate((x, y), 1),
        jnp.stack((x, y)),
        jnp.pad(x, ((1, 2), (0, 3), (0, 0))),
        lax.pad(x, 0.0, ((0, 0, 2), (1, -1, 0), (0, 0, 0))),
        x[::-1, :, ::2],
        jnp.roll(x, 3, 1),
        jnp.tile(x, (1, 2, 1)),
        jnp.broadcast_to(x[:, :1], (12, 18, 5)),
        jnp.arange(1000),
    )


@case(Of((1000, 64), BF16), Of((7, 33), S32))
def embedding(table, tokens):
    return table[tokens]


@case(Of((1000, 64), F32), Of((7, 33), S32))
def embedding_gradient(table, tokens):
    return jax.grad(lambda table: jnp.square(table[tokens]).sum())(table)


@case(Of((50, 60), F32), Of((9,), S32), Of((9, 60), F32))
def scatters(x, i, u):
    return x.at[i].set(u), x.at[i].add(u), x.at[i].mul(u, unique_indices=True), x.at[i].max(u)


@case(Of((40, 16), F32), Of((40,), S32))
def segments(x, ids):
    return jax.ops.segment_sum(x, ids, 11)


@case(Of((20, 300), F32), Of((20, 5), S32))
def along_an_axis(x, i):
    return jnp.take_along_axis(x, i, 1)


@case(Of((64, 1024), F32), Of((), S32), Of((64, 1), F32))
def slices_in_place(cache, at, new):
    cache = lax.dynamic_update_slice(cache, new, (0, at))
    return cache, lax.dynamic_slice(cache, (0, at), (64, 8)) * 2


@case(Of((4096,), F32))
def sliced_work(x):
    return jnp.sin(x * 2)[5:37] + jnp.cos(x)[100:132]


@case(Of((1000,), F32))
def stencil(x):
    return x[:-2] + x[1:-1] * 2 + x[2:]


# Control flow.


@case(Of((24, 24), F32), Of((24,), F32))
def fixed_loop(w, x):
    return lax.fori_loop(0, 13, lambda i, x: jnp.tanh(w @ x) + i, x)


@case(Of((9, 32, 32), F32), Of((4, 32), F32))
def scanned_layers(ws, x):
    return lax.scan(lambda x, w: (jnp.tanh(x @ w), x.sum()), x, ws)


@case(Of((9, 32, 32), F32), Of((4, 32), F32))
def scanned_layers_gradient(ws, x):
    return jax.grad(lambda ws: lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, ws)[0].sum())(ws)


@case(Of((24, 24), F32))
def nested_loops(w):
    def inner(j, x):
        return x @ w * 0.5

    return lax.fori_loop(0, 5, lambda i, x: lax.fori_loop(2, 9, inner, x) + i, w)


@case(Of((24, 24), F32), Of((), F32))
def loop_until_convergence(w, limit):
    return lax.while_loop(lambda x: jnp.abs(x).sum() > limit, lambda x: x @ w, w)


@case(Of((24, 24), F32))
def doubling_loop(w):
    return lax.while_loop(lambda s: s[0] < 1000, lambda s: (s[0] * 2, s[1] @ w), (1, w))[1]


@case(Of((48, 48), F32), Of((), BOOL))
def conditional(x, flag):
    return lax.cond(flag, lambda x: x @ x @ x, lambda x: x + 1, x)


@case(Of((48, 48), F32), Of((), S32))
def switch(x, which):
    return lax.switch(which, (lambda x: x, lambda x: x @ x, lambda x: jnp.sin(x)), x)


@case(Of((2, 8, 64, 16), BF16), Of((256, 128), BF16), Of((128, 256), BF16), Of((), S32))
def decode_loop(cache, embed, head, token):
    def step(carry, position):
        cache, token = carry
        x = embed[token].reshape(8, 16)
        cache = lax.dynamic_update_slice(cache, jnp.stack((x, x))[:, :, None], (0, 0, position, 0))
        scores = jnp.einsum("hd,hsd->hs", x, cache[0]) + jnp.where(jnp.arange(64) <= position, 0, -jnp.inf).astype(BF16)
        out = jnp.einsum("hs,hsd->hd", jax.nn.softmax(scores, -1), cache[1])
        return (cache, jnp.argmax(out.reshape(-1) @ head).astype(S32)), None

    return lax.scan(step, (cache, token), jnp.arange(64))[0][1]


# Linear algebra, transforms, random numbers.


@case(Of((3, 20, 20), F32), Of((3, 20, 7), F32))
def factorisations(a, b):
    lower = jnp.linalg.cholesky(a)
    return lower, lax.linalg.triangular_solve(lower, b, left_side=True, lower=True)


@case(Of((5, 64), C64), Of((5, 60), F32), Of((4, 16, 32), C64))
def transforms(x, y, z):
    return jnp.fft.fft(x), jnp.fft.rfft(y), jnp.fft.irfft(x), jnp.fft.fft2(z)


@case(Of((2,), U32))
def random_numbers(key):
    key = jax.random.wrap_key_data(key)
    return jax.random.uniform(key, (100, 33)), jax.random.normal(key, (77,)), jax.random.bernoulli(key, 0.3, (50, 50))


# Layers and models.


@case(Of((6, 33, 96), F32), Of((96,), F32), Of((96,), F32))
def layer_norm(x, g, b):
    mean = x.mean(-1, keepdims=True)
    centred = x - mean
    return centred * lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5) * g + b


@case(Of((6, 33, 97), F32))
def softmax(x):
    return jax.nn.softmax(x)


@case(Of((2, 40, 4, 16), BF16), Of((2, 40, 4, 16), BF16), Of((2, 40, 4, 16), BF16))
def causal_attention(q, k, v):
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(F32) / 4
    mask = jnp.tril(jnp.ones((40, 40), bool))
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(mask, scores, -1e9), -1).astype(BF16), v)


@case(Of((32, 48), F32), Of((48, 96), F32), Of((96, 48), F32))
def mlp_gradients(x, up, down):
    return jax.grad(lambda up, down: jnp.square(jax.nn.gelu(x @ up) @ down).mean(), argnums=(0, 1))(up, down)


@case(Of((40, 24), F32), Of((24, 6), F32), Of((6, 24, 32), F32), Of((6, 32, 24), F32))
def mixture_of_experts(x, gate, up, down):
    weights, chosen = lax.top_k(jax.nn.softmax(x @ gate), 2)
    order = jnp.argsort(chosen.reshape(-1))
    rows = x[order // 2]
    sizes = jnp.bincount(chosen.reshape(-1), length=6)
    hidden = jax.nn.silu(lax.ragged_dot(rows, up, sizes))
    out = lax.ragged_dot(hidden, down, sizes)
    return jnp.zeros_like(x).at[order // 2].add(out * weights.reshape(-1)[order][:, None])


@case(*(Of((300, 20), F32) for _ in range(4)))
def adam(p, g, m, v):
    m = 0.9 * m + 0.1 * g
    v = 0.99 * v + 0.01 * g * g
    return p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), m, v


@case(Of((8, 14, 14, 3), F32), Of((3, 3, 3, 8), F32), Of((8,), F32), Of((8,), F32), Of((392, 10), F32), Of((8,), S32))
def vision_gradients(x, w, g, b, head, labels):
    def loss(w, g, b, head):
        y = convolved(x, w, strides=(1, 1), padding="SAME")
        y = (y - y.mean((0, 1, 2))) * lax.rsqrt(y.var((0, 1, 2)) + 1e-5) * g + b
        y = lax.reduce_window(jax.nn.relu(y), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        logits = jax.nn.log_softmax(y.reshape(8, -1) @ head)
        return -jnp.take_along_axis(logits, labels[:, None], 1).mean()

    return jax.grad(loss, argnums=(0, 1, 2, 3))(w, g, b, head)


LLAMA = {"layers": 32, "width": 4096, "hidden": 11008, "vocabulary": 32000, "heads": 32, "length": 2048}


def _llama_arguments() -> tuple[object, ...]:
    layers, width, hidden = LLAMA["layers"], LLAMA["width"], LLAMA["hidden"]
    layer = {
        "q": Of((layers, width, width), BF16),
        "k": Of((layers, width, width), BF16),
        "v": Of((layers, width, width), BF16),
        "o": Of((layers, width, width), BF16),
        "gate": Of((layers, width, hidden), BF16),
        "up": Of((layers, width, hidden), BF16),
        "down": Of((layers, hidden, width), BF16),
        "norms": Of((layers, 2, width), BF16),
    }
    return layer, Of((LLAMA["vocabulary"], width), BF16), Of((width, LLAMA["vocabulary"]), BF16), Of((1, LLAMA["length"]), S32)


@case(*_llama_arguments())
def llama_2_7b(layers, embed, head, tokens):
    """A forward pass of 32 scanned layers: 2 FLOP a weight a token, and 4·length²·width for the products of each layer's attention."""
    heads = LLAMA["heads"]

    def normed(x, g):
        wide = x.astype(F32)
        return (wide * lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + 1e-5)).astype(BF16) * g

    def layer(x, w):
        batch, length, width = x.shape
        h = normed(x, w["norms"][0])
        q, k, v = ((h @ w[part]).reshape(batch, length, heads, width // heads) for part in "qkv")
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(F32) * (width // heads) ** -0.5
        scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1).astype(BF16), v)
        x = x + mixed.reshape(batch, length, width) @ w["o"]
        h = normed(x, w["norms"][1])
        return x + (jax.nn.silu(h @ w["gate"]) * (h @ w["up"])) @ w["down"], None

    x, _ = lax.scan(layer, embed[tokens], layers)
    return x @ head


# Many devices.


def _over_devices(function: Callable[..., object], specs: object, out: object) -> Callable[..., object]:
    def sharded(*arguments: object) -> object:
        mesh = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
        return jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=out, check_vma=False)(*arguments)

    return sharded


_P = jax.sharding.PartitionSpec


def _register_collectives() -> None:
    x = Of((64, 32), F32)
    for name, function, out in (
        ("all_reduce", lambda x: lax.psum(x, "x"), _P()),
        ("all_gather", lambda x: lax.all_gather(x, "x", tiled=True), _P()),
        ("reduce_scatter", lambda x: lax.psum_scatter(x, "x", tiled=True), _P("x")),
        ("all_to_all", lambda x: lax.all_to_all(x, "x", 1, 0, tiled=True), _P("x")),
        ("permute", lambda x: lax.ppermute(x, "x", [(i, (i + 1) % 8) for i in range(8)]), _P("x")),
    ):
        CASES.append(Case(f"collective_{name}", _over_devices(function, (_P("x"),), out), (x,), 8))


_register_collectives()


def compiled(one: Case) -> tuple[str, str]:
    """The program of a case before XLA's optimisations and after them, as HLO text."""
    lowered = jax.jit(one.function).lower(*one.arguments)
    return lowered.compiler_ir("hlo").as_hlo_text(), lowered.compile().as_text()


@functools.cache
def by_name() -> dict[str, Case]:
    """The cases by their names, each used once."""
    found = {one.name: one for one in CASES}
    if len(found) != len(CASES):
        raise ValueError("two cases share a name")
    return found
