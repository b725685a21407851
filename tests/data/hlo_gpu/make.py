"""The compiled GPU programs beside this script, and how they were made: JAX functions that end in library calls.

    python make.py FOLDER [NAME...]

writes one ``NAME.txt.gz`` a function, all of them or those named: the HLO text of what XLA compiled. Needs jax and an NVIDIA GPU
(0.11.2 on one H200 made these); nothing else in the project does. Nothing is executed. A function that this GPU or version cannot
compile is reported on standard error and left out.
"""

import gzip
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
from jax import lax

jax.config.update("jax_enable_x64", True)

FOLDERS = re.compile(r'"/[^"]*/(site-packages/[^"]*|make\.py)"')  # where this machine keeps files is nobody's business
PROGRAMS: dict[str, tuple[Callable, tuple, dict[str, object]]] = {}
# Products by the libraries rather than by kernels that XLA generates.
LIBRARY = {"xla_gpu_enable_triton_gemm": False}
PLAIN_CUBLAS = {**LIBRARY, "xla_gpu_enable_cublaslt": False}


def shape(*dims: int, dtype: str = "bfloat16") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, jnp.dtype(dtype))


def program(*args: object, options: dict[str, object] | None = None, name: str = "") -> Callable[[Callable], Callable]:
    """Registers a function under its name, to be compiled for these arguments with these compiler options."""

    def register(function: Callable) -> Callable:
        PROGRAMS[name or function.__name__] = (function, args, options or {})
        return function

    return register


f32, f64, f16, s8, c64 = (partial(shape, dtype=dtype) for dtype in ("float32", "float64", "float16", "int8", "complex64"))
e4m3, e5m2 = partial(shape, dtype="float8_e4m3fn"), partial(shape, dtype="float8_e5m2")


@program(
    shape(512, 768),
    shape(768, 256),
    f32(512, 768),
    f32(768, 256),
    f16(512, 768),
    f16(768, 256),
    f64(512, 768),
    f64(768, 256),
    c64(64, 96),
    c64(96, 32),
    options=LIBRARY,
)
def gemm_formats(a, b, c, d, e, f, g, h, i, j):
    return a @ b, c @ d, e @ f, g @ h, i @ j


@program(f32(512, 768), f32(768, 256), f32(128, 64), f32(64, 256), f32(512, 640), f32(640, 256), options=LIBRARY)
def gemm_precisions(a, b, c, d, e, f):
    first = jnp.dot(a, b, precision="highest")
    second = jnp.dot(c, d, precision="high")
    return first, second, lax.dot(e, f, precision=lax.DotAlgorithmPreset.TF32_TF32_F32)


@program(f32(512, 768), f32(768, 256), f32(128, 768), f32(768, 128), options=LIBRARY)
def gemm_algorithms(a, b, c, d):
    return lax.dot(a, b, precision=lax.DotAlgorithmPreset.BF16_BF16_F32_X3), lax.dot(c, d, precision=lax.DotAlgorithmPreset.F32_F32_F32)


@program(shape(8, 128, 256), shape(8, 512, 256), shape(4, 64, 8, 32), shape(4, 96, 8, 32), options=LIBRARY)
def gemm_batched(a, b, q, k):
    return jnp.einsum("bmk,bnk->bmn", a, b), jnp.einsum("bqhd,bkhd->bhqk", q, k)


WEIGHTS = (shape(768, 256),) * 4


@program(shape(512, 768), *WEIGHTS, shape(256), shape(512, 256), options=LIBRARY)
def gemm_epilogues(a, first, second, third, fourth, bias, c):
    return jax.nn.relu(a @ first + bias), jax.nn.gelu(a[:256] @ second + bias), a[:128] @ third + c[:128], jax.nn.relu(a[:64] @ fourth)


@program(f32(512, 768), f32(768, 256), f32(256), options=LIBRARY)
def gemm_gelu_aux(a, b, bias):
    def loss(a, b, bias):
        return jax.nn.gelu(a @ b + bias).sum()

    return jax.value_and_grad(loss, argnums=(0, 1, 2))(a, b, bias)


@program(s8(512, 768), s8(256, 768), options=LIBRARY)
def gemm_int8(a, b):
    return lax.dot_general(a, b, (((1,), (1,)), ((), ())), preferred_element_type=jnp.int32)


@program(e4m3(512, 768), e4m3(768, 256), options=LIBRARY)
def gemm_fp8(a, b):
    return lax.dot_general(a, b, (((1,), (0,)), ((), ())), preferred_element_type=jnp.float32)


def dequantised(x, scale):
    return x.astype(jnp.bfloat16) * scale.astype(jnp.bfloat16)


@program(e4m3(512, 768), e4m3(768, 256), f32(), f32(), e5m2(512, 640), e4m3(640, 256), shape(256), options=LIBRARY)
def gemm_fp8_scaled(a, b, scale_a, scale_b, c, d, bias):
    first = dequantised(a, scale_a) @ dequantised(b, scale_b)
    return first, jax.nn.relu(dequantised(c, scale_a) @ dequantised(d, scale_b) + bias)


@program(shape(333, 777), shape(777, 555), s8(333, 777), s8(777, 555), e4m3(333, 777), e4m3(777, 555), options=LIBRARY)
def gemm_odd(a, b, c, d, e, f):
    third = lax.dot(e, f, preferred_element_type=jnp.float32)
    return a @ b, lax.dot(c, d, preferred_element_type=jnp.int32), third


@program(
    shape(512, 768),
    shape(768, 256),
    f32(512, 768),
    f32(768, 256),
    s8(512, 768),
    s8(768, 256),
    f64(512, 768),
    f64(768, 256),
    options=PLAIN_CUBLAS,
)
def gemm_plain(a, b, c, d, e, f, g, h):
    return a @ b, c @ d, lax.dot(e, f, preferred_element_type=jnp.int32), g @ h, jnp.dot(c + 1, d, precision="highest")


@program(shape(16, 8192), shape(8192, 512), s8(512, 768), s8(768, 256))
def gemm_generated(a, b, c, d):
    return a @ b, lax.dot(c, d, preferred_element_type=jnp.int32).astype(jnp.float32) * 0.5


@program(f32(4, 128, 128), f32(4, 128, 64), options=PLAIN_CUBLAS)
def triangular_solve(a, b):
    return lax.linalg.triangular_solve(a, b, left_side=True, lower=True)


def convolve(layout: tuple[str, str, str], **how: object) -> Callable:
    options = {"window_strides": (1, 1), "padding": "SAME", **how}
    return lambda x, w: lax.conv_general_dilated(x, w, dimension_numbers=layout, **options)


NHWC, NCHW = ("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")


@program(shape(8, 56, 56, 64), shape(3, 3, 64, 128), f32(4, 32, 29, 31), f32(48, 32, 5, 3))
def conv_forward(x, w, y, v):
    return convolve(NHWC)(x, w), convolve(NCHW, window_strides=(2, 3), padding=[(2, 1), (0, 2)])(y, v)


@program(shape(8, 28, 28, 64), shape(3, 3, 16, 128), f32(4, 30, 30, 32), f32(3, 3, 1, 32), f32(4, 30, 30, 16), f32(3, 3, 16, 24))
def conv_grouped(x, w, y, v, z, u):
    grouped = convolve(NHWC, feature_group_count=4, window_strides=(2, 2))(x, w)
    return grouped, convolve(NHWC, feature_group_count=32)(y, v), convolve(NHWC, rhs_dilation=(2, 2))(z, u)


@program(shape(8, 56, 56, 64), shape(3, 3, 64, 128))
def conv_gradients(x, w):
    return jax.grad(lambda x, w: convolve(NHWC)(x, w).astype(jnp.float32).sum(), argnums=(0, 1))(x, w)


@program(f32(8, 33, 33, 16), f32(5, 5, 16, 32), f32(8, 17, 17, 32))
def conv_strided_gradients(x, w, dy):
    _, pull = jax.vjp(convolve(NHWC, window_strides=(2, 2)), x, w)
    return pull(dy)


@program(f32(8, 32, 32, 32), f32(3, 3, 8, 64), f32(8, 16, 16, 64))
def conv_grouped_gradients(x, w, dy):
    _, pull = jax.vjp(convolve(NHWC, window_strides=(2, 2), feature_group_count=4), x, w)
    return pull(dy)


@program(f32(4, 8, 16, 16, 16), f32(3, 3, 3, 8, 16), f32(4, 100, 8), f32(7, 8, 16))
def conv_ranks(x, w, y, v):
    transposed = jnp.moveaxis(x, 1, -1)
    three = lax.conv_general_dilated(transposed, w, (1, 1, 1), "SAME", dimension_numbers=("NDHWC", "DHWIO", "NDHWC"))
    return three, lax.conv_general_dilated(y, v, (2,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"))


@program(shape(8, 28, 28, 64), shape(3, 3, 64, 128), shape(128), shape(8, 28, 28, 128), f32(8, 28, 28, 64), f32(3, 3, 64, 128), f32(128))
def conv_bias_relu(x, w, bias, side, y, v, shift):
    return jax.nn.relu(convolve(NHWC)(x, w) + bias), jax.nn.relu(convolve(NHWC)(y, v) + shift), convolve(NHWC)(x + 1, w) + side


@program(f32(8, 14, 14, 64), f32(2, 2, 64, 32))
def conv_transposed(x, w):
    return lax.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=NHWC)


@program(s8(8, 28, 28, 64), s8(3, 3, 64, 128))
def conv_int8(x, w):
    y = convolve(NHWC, preferred_element_type=jnp.int32)(x, w)
    return jnp.clip(y, -128, 127).astype(jnp.int8)


@program(shape(8, 112, 112, 3), shape(7, 7, 3, 64), f32(8, 30, 30, 3), f32(3, 3, 3, 20), s8(4, 14, 14, 30), s8(3, 3, 30, 50))
def conv_channels(x, w, y, v, z, u):
    stem = convolve(NHWC, window_strides=(2, 2))(x, w)
    return stem, convolve(NHWC)(y, v), convolve(NHWC, preferred_element_type=jnp.float32)(z, u)


@program(shape(8, 56, 56, 64), shape(3, 3, 64, 128), shape(8, 28, 28, 128))
def conv_asymmetric_gradients(x, w, dy):
    _, pull = jax.vjp(convolve(NHWC, window_strides=(2, 2)), x, w)
    return pull(dy)


@program(f32(4, 30, 30, 16), f32(3, 3, 16, 24), f32(4, 30, 30, 24))
def conv_dilated_gradients(x, w, dy):
    _, pull = jax.vjp(convolve(NHWC, rhs_dilation=(2, 2)), x, w)
    return pull(dy)


@program(e4m3(8, 28, 28, 64), e4m3(3, 3, 64, 128), f32(), f32())
def conv_fp8(x, w, scale_x, scale_w):
    y = convolve(NHWC)(x.astype(jnp.float32), w.astype(jnp.float32)) * scale_x * scale_w
    return jnp.clip(y, -448, 448).astype(jnp.float8_e4m3fn)


def attend(**how: object) -> Callable:
    return lambda q, k, v, *rest: jax.nn.dot_product_attention(q, k, v, *rest, implementation="cudnn", **how)


HEADS = (shape(2, 1024, 8, 128), shape(2, 1024, 8, 128), shape(2, 1024, 8, 128))
GROUPED = (shape(2, 1024, 8, 64), shape(2, 512, 2, 64), shape(2, 512, 2, 64))


@program(*HEADS, *GROUPED)
def attention_forward(q, k, v, q2, k2, v2):
    return attend(is_causal=True)(q, k, v), attend()(q2, k2, v2)


@program(*HEADS)
def attention_causal_gradient(q, k, v):
    return jax.grad(lambda *x: attend(is_causal=True)(*x).astype(jnp.float32).sum(), argnums=(0, 1, 2))(q, k, v)


@program(*GROUPED)
def attention_grouped_gradient(q, k, v):
    return jax.grad(lambda *x: attend()(*x).astype(jnp.float32).sum(), argnums=(0, 1, 2))(q, k, v)


@program(*HEADS, shape(1, 8, 1024, 1024))
def attention_bias(q, k, v, bias):
    def loss(*x):
        return attend()(*x).astype(jnp.float32).sum()

    return attend()(q, k, v, bias), jax.grad(loss, argnums=(0, 1, 2, 3))(q, k, v, bias)


@program(*HEADS, shape(2, dtype="int32"), shape(2, dtype="int32"))
def attention_windows(q, k, v, q_lengths, kv_lengths):
    window = attend(is_causal=True, local_window_size=(255, 0))(q, k, v)
    padded = attend(is_causal=True, query_seq_lengths=q_lengths, key_value_seq_lengths=kv_lengths)(q * 2, k, v)
    return window, padded, attend(query_seq_lengths=q_lengths, key_value_seq_lengths=kv_lengths)(q * 3, k, v)


@program(*HEADS)
def attention_dropout(q, k, v):
    from jax._src.cudnn.fused_attention_stablehlo import MaskType, dot_product_attention

    attention = partial(dot_product_attention, mask_type=MaskType.CAUSAL, dropout_rate=0.1, qkv_layout="BTNH")
    return jax.grad(lambda *x: attention(*x).astype(jnp.float32).sum(), argnums=(0, 1, 2))(q, k, v)


@program(e4m3(2, 1024, 8, 128), e4m3(2, 1024, 8, 128), e4m3(2, 1024, 8, 128))
def attention_fp8(q, k, v):
    from jax._src.cudnn import fused_attention_stablehlo as cudnn

    names = (
        "amax_dQ amax_dK amax_dV amax_dP descale_q descale_k descale_v descale_s scale_s scale_o descale_o descale_dO descale_dP"
        " scale_dQ scale_dK scale_dV scale_dP"
    )
    one = jnp.ones((1, 1, 1, 1), jnp.float32)
    scales = dict.fromkeys(names.split(), one)

    def loss(q, k, v):
        out, *_ = cudnn.dot_product_attention(q, k, v, mask_type=cudnn.MaskType.CAUSAL, qkv_layout="BTNH", use_fp8=True, fp8_params=scales)
        return out.astype(jnp.float32).sum()

    return jax.grad(loss, argnums=(0, 1, 2))(q, k, v)


@program(shape(2, 1, 8, 64), shape(2, 4096, 2, 64), shape(2, 4096, 2, 64), shape(2, dtype="int32"))
def attention_decode(q, k, v, lengths):
    return attend(key_value_seq_lengths=lengths, query_seq_lengths=jnp.ones(2, jnp.int32))(q, k, v)


@program(
    shape(2, 1, 8, 64),
    shape(64, 32, 2, 64),
    shape(64, 32, 2, 64),
    *(shape(2, dtype="int32"),) * 2,
    *(shape(2, 1, 32, 1, dtype="int32"),) * 2,
)
def attention_paged(q, k, v, q_lengths, kv_lengths, k_pages, v_pages):
    from jax._src.cudnn.fused_attention_stablehlo import paged_attention

    return paged_attention(q, k, v, q_lengths, kv_lengths, k_pages, v_pages)


@program(shape(65536), shape(65536))
def pallas_triton(x, y):
    from jax.experimental import pallas as pl

    def body(x, y, out):
        out[...] = jnp.exp(x[...] * y[...]) + x[...]

    block = pl.BlockSpec((2048,), lambda i: (i,))
    estimate = pl.CostEstimate(flops=2 * 65536, bytes_accessed=6 * 65536, transcendentals=65536)
    out = jax.ShapeDtypeStruct((65536,), jnp.bfloat16)
    return pl.pallas_call(body, grid=(32,), in_specs=[block, block], out_specs=block, out_shape=out, cost_estimate=estimate)(x, y)


@program(shape(512, 256), shape(256, 384))
def pallas_triton_matmul(x, y):
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton as plgpu

    def body(x, y, out):
        out[...] = jnp.dot(x[...], y[...], preferred_element_type=jnp.float32).astype(out.dtype)

    return pl.pallas_call(
        body,
        grid=(8, 6),
        in_specs=[pl.BlockSpec((64, 256), lambda i, j: (i, 0)), pl.BlockSpec((256, 64), lambda i, j: (0, j))],
        out_specs=pl.BlockSpec((64, 64), lambda i, j: (i, j)),
        out_shape=jax.ShapeDtypeStruct((512, 384), jnp.bfloat16),
        compiler_params=plgpu.CompilerParams(num_warps=4, num_stages=2),
    )(x, y)


@program(f32(4, 96, 96), f32(4, 160, 96), f64(128, 128))
def linear_algebra(square, tall, symmetric):
    spd = square @ square.mT + 96 * jnp.eye(96)
    lu, pivots, _ = lax.linalg.lu(square)
    return (
        jnp.linalg.cholesky(spd),
        jnp.linalg.qr(tall),
        jnp.linalg.svd(tall, full_matrices=False),
        jnp.linalg.eigh(symmetric + symmetric.T),
        jnp.linalg.eigh(spd),
        lu,
        pivots,
        jnp.linalg.solve(square, square + 1),
    )


@program(f32(4, 96, 96), f32(4, 96, 8), f32(64, 128), f32(64, 128), f32(64, 128), f32(64, 128, 2))
def linear_solvers(square, right, low, diagonal, high, b):
    solved = lax.linalg.triangular_solve(square, right, left_side=True, lower=True)
    return solved, lax.linalg.tridiagonal_solve(low, diagonal, high, b), jnp.linalg.qr(square, mode="r"), jax.scipy.linalg.expm(square[0])


@program(f32(64, 1024), c64(8, 64, 128), f64(4, 100))
def fourier(x, y, z):
    return jnp.fft.rfft(x), jnp.fft.fft2(y), jnp.fft.irfft(z.astype(jnp.complex128), 198)


@program(f32(64, 4096), f32(1_000_000), shape(1_000_000, dtype="int32"))
def sorting(x, y, z):
    return lax.top_k(x, 16), lax.approx_max_k(x + 1, 8), jnp.sort(y), lax.sort((z, y), num_keys=1), jnp.cumsum(y), jnp.argsort(x)


@program(shape(2, dtype="uint32"))
def random_numbers(key):
    return jax.random.normal(jax.random.wrap_key_data(key), (65536,), jnp.float32), jax.random.randint(key, (4096,), 0, 10)


@program(shape(512, 256), shape(8, 256, 512), shape(8, dtype="int32"), shape(512, 8, dtype="float32"))
def mixture_of_experts(x, w, sizes, logits):
    weights, chosen = lax.top_k(jax.nn.softmax(logits), 2)
    order = jnp.argsort(chosen.reshape(-1))
    rows = x[order // 2]
    return lax.ragged_dot(rows, w, jnp.bincount(chosen.reshape(-1), length=8).astype(jnp.int32)), lax.ragged_dot(x, w, sizes), weights


GROUPED_GEMM = {"xla_gpu_experimental_use_ragged_dot_grouped_gemm": True}


@program(shape(512, 256), shape(8, 256, 512), shape(8, dtype="int32"), options=GROUPED_GEMM)
def grouped_gemm(x, w, sizes):
    return jax.value_and_grad(lambda x, w: lax.ragged_dot(x, w, sizes).astype(jnp.float32).sum(), argnums=(0, 1))(x, w)


@program(shape(4, 512), shape(512, 1536), shape(512, 512), shape(512, 32000), shape(4, 128, 8, 64), shape(4, 128, 8, 64), options=LIBRARY)
def decode_loop(x, qkv, o, head, keys, values):
    def step(state):
        i, x, keys, values = state
        q, k, v = jnp.split((x @ qkv).reshape(4, 8, 192), 3, -1)
        keys = lax.dynamic_update_slice(keys, k[:, None], (0, i, 0, 0))
        values = lax.dynamic_update_slice(values, v[:, None], (0, i, 0, 0))
        scores = jnp.einsum("bhd,bthd->bht", q, keys).astype(jnp.float32)
        weights = jax.nn.softmax(jnp.where(jnp.arange(128) <= i, scores, -1e9)).astype(x.dtype)
        x = x + jnp.einsum("bht,bthd->bhd", weights, values).reshape(4, 512) @ o
        logits = x @ head
        return i + 1, x + logits.max(-1, keepdims=True), keys, values

    return lax.while_loop(lambda state: state[0] < 100, step, (0, x, keys, values))


@program(f32(64, 1024), f32(1024), f32(1024), options={"xla_gpu_enable_cudnn_layer_norm": True})
def layer_norm(x, scale, shift):
    def norm(x, scale, shift):
        centred = x - x.mean(-1, keepdims=True)
        return centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale + shift

    return norm(x, scale, shift), jax.grad(lambda *a: (norm(*a) ** 2).sum(), argnums=(0, 1, 2))(x + 1, scale, shift)


@program(f32(16, 32, 64), f32(1, 16, 128), f32(1, 16, 128), shape(16, dtype="int32"))
def recurrent(x, h, c, lengths):
    from jax.experimental import rnn

    weights = jnp.zeros(rnn.get_num_params_in_lstm(64, 128, 1, False))
    return rnn.lstm(x, h, c, weights, lengths, input_size=64, hidden_size=128, num_layers=1, dropout=0.0, bidirectional=False)


@program(f32(64))
def callbacks(x):
    jax.debug.callback(lambda _: None, x)
    return jax.pure_callback(lambda a: a, jax.ShapeDtypeStruct((64,), jnp.float32), x) + 1


def main(folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or PROGRAMS:
        function, args, options = PROGRAMS[name]
        try:
            text = jax.jit(function).lower(*args).compile(compiler_options=options).as_text()
        except Exception as error:
            sys.stderr.write(f"{name}: {type(error).__name__}: {str(error)[:300]!r}\n")
            continue
        text = FOLDERS.sub(r'"\1"', text)
        (folder / f"{name}.txt.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        sys.stderr.write(f"{name}: {len(text):,} characters\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
