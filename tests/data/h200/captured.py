"""What ran for the captures in this folder, but those of training, scan, custom kernels and fusion (one H200, JAX 0.11.2, CUDA 13.0).

    python captured.py NAME [plain|loops|cold] OUT

``plain`` turns CUDA graphs off, so that events name their instructions; ``loops`` records loops into graphs too; ``cold`` profiles from
the very first call. Six annotated steps each.
"""

import os
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import SingleDeviceSharding

name, *modes, out = sys.argv[1:]
OFF = "--xla_gpu_enable_command_buffer="
LOOPS = f"{OFF}FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL,DYNAMIC_SLICE_FUSION,CONDITIONAL,WHILE"
os.environ["XLA_FLAGS"] = OFF if "plain" in modes else LOOPS if "loops" in modes else ""  # read when the first device is asked for


def normal(seed, *shape, dtype=jnp.bfloat16):
    return jax.random.normal(jax.random.key(seed), shape, jnp.float32).astype(dtype)


def mlp(x, a, b):
    mean = x.astype(jnp.float32).mean(-1, keepdims=True)
    hidden = jax.nn.gelu((x - mean.astype(x.dtype)) @ a)
    return x + jax.nn.softmax((hidden @ b).astype(jnp.float32), -1).astype(x.dtype)


def weights():
    return normal(0, 2048, 1024), normal(1, 1024, 4096), normal(2, 4096, 1024), normal(3, 1024, 512), normal(4, 512, 1024)


def cond():
    """A conditional whose branches take turns."""

    def step(i, x, a, b, c, d):
        x = mlp(x, a, b)
        x = lax.cond(i % 2 == 0, lambda x: mlp(mlp(x, a, b), a, b), lambda x: mlp(mlp(x, c, d), c, d) * 0.5, x)
        return mlp(x, c, d)

    held = weights()
    return step, lambda i: (jnp.int32(i), *held)


def switch():
    """Three branches, one with a conditional inside of which one branch never runs."""

    def step(i, x, a, b, c, d):
        x = mlp(x, c, d)

        def inner(x):
            return lax.cond(x[0, 0] > 0, lambda x: mlp(mlp(x, a, b), c, d), lambda x: mlp(mlp(x, c, d), a, b), x)

        return mlp(lax.switch(i % 3, [lambda x: mlp(mlp(x, a, b), a, b), lambda x: mlp(mlp(x, c, d), c, d), inner], x), a, b)

    held = weights()
    return step, lambda i: (jnp.int32(i), *held)


def nested():
    """A scan of four in a scan of three."""
    x, a, b = normal(0, 2048, 1024), normal(1, 4, 1024, 2048), normal(2, 4, 2048, 1024)

    def step(x, a, b):
        def outer(x, _):
            x = mlp(x, a[0], b[0])
            x = lax.scan(lambda x, w: (mlp(mlp(x, *w), *w), None), x, (a, b))[0]
            return mlp(x * 0.5, a[1], b[1]), None

        return lax.scan(outer, x, None, length=3)[0]

    return step, lambda i: (x, a, b)


def graphs():
    """Three graphs in one program: FFTs and a Cholesky decomposition run between them, a sort inside of one."""
    x, a, b = normal(0, 2048, 1024), normal(1, 1024, 2048), normal(2, 2048, 1024)

    def step(x, a, b):
        x = mlp(mlp(x, a, b), a, b)
        x = jnp.fft.irfft(jnp.fft.rfft(x.astype(jnp.float32), axis=-1) * 0.5, axis=-1).astype(x.dtype)
        x = jnp.sort(mlp(mlp(x, a, b), a, b), axis=-1)
        x = mlp(mlp(x[:, ::-1], a, b), a, b)
        w = jnp.linalg.cholesky(jnp.eye(512) * 3 + (x[:512, :512].astype(jnp.float32) * 1e-6))
        return mlp(mlp(x, a, b), a, b), w

    return step, lambda i: (x, a, b)


def attention():
    """Two layers trained with cuDNN's attention, whose backward pass launches three kernels."""
    batch, length, heads, width, layers = 4, 2048, 16, 128, 2
    model = heads * width
    x = normal(0, batch, length, model)
    shapes = ((model, 3 * model), (model, model), (model, 4 * model), (4 * model, model))
    held = [tuple(normal(4 * layer + i, *shape) * 0.02 for i, shape in enumerate(shapes)) for layer in range(layers)]

    def loss(held, x):
        for qkv, o, up, down in held:
            q, k, v = (part.reshape(batch, length, heads, width) for part in jnp.split(x @ qkv, 3, -1))
            y = jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="cudnn")
            x = x + y.reshape(batch, length, model) @ o
            x = x + jax.nn.gelu(x @ up) @ down
        return (x.astype(jnp.float32) ** 2).mean()

    def step(held, x):
        value, gradient = jax.value_and_grad(loss)(held, x)
        return value, jax.tree.map(lambda p, g: p - 0.001 * g, held, gradient)

    return step, lambda i: (held, x)


def mix():
    """bf16, fp8, int8, fp32 and tf32 products, a convolution with its gradients, gather, scatter, top-k, sort, random numbers, a solve."""
    x, a = normal(0, 4096, 4096), normal(1, 4096, 4096)
    xi, ai = ((normal(seed, 4096, 4096, dtype=jnp.float32) * 10).astype(jnp.int8) for seed in (2, 3))
    image, kernel = normal(4, 32, 56, 56, 256), normal(5, 3, 3, 256, 256)
    xf, af = normal(6, 2048, 2048, dtype=jnp.float32), normal(7, 2048, 2048, dtype=jnp.float32)
    index = jax.random.randint(jax.random.key(8), (8192,), 0, 4096)

    def step(x, a, xi, ai, image, kernel, xf, af, index):
        small = (x.astype(jnp.float8_e4m3fn), a.astype(jnp.float8_e4m3fn))
        products = (
            x @ a,
            jnp.einsum("ij,jk->ik", *small, preferred_element_type=jnp.bfloat16),
            lax.dot(xi, ai, preferred_element_type=jnp.int32),
        )

        def convolve(image, kernel):
            return lax.conv_general_dilated(image, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

        convolved, pull = jax.vjp(convolve, image, kernel)
        gathered = x[index]
        scattered = jnp.zeros((4096, 4096), jnp.float32).at[index].add(gathered.astype(jnp.float32))
        triangle = jnp.eye(1024) * 2 + jnp.tril(xf[:1024, :1024]) * 1e-5
        solved = jax.scipy.linalg.solve_triangular(triangle, xf[:1024, :512], lower=True)
        sorted_ = jnp.argsort(xf[:, :256], axis=0)
        random = jax.random.normal(jax.random.key(9), (4096, 1024))
        precise = lax.dot(xf, af, precision="highest")
        return products, pull(convolved), precise, xf @ af, scattered, lax.top_k(xf, 16), jnp.cumsum(xf, axis=0), sorted_, random, solved

    return step, lambda i: (x, a, xi, ai, image, kernel, xf, af, index)


def remat():
    """The gradient of a scan whose body is computed again: a loop forward, a loop backward."""
    x, held = normal(0, 1024, 1024), (normal(1, 4, 1024, 4096), normal(2, 4, 4096, 1024))

    def loss(held, x):
        y = lax.scan(jax.checkpoint(lambda x, w: (mlp(mlp(x, *w), *w), None)), x, held)[0]
        return (y.astype(jnp.float32) ** 2).mean()

    def step(held, x):
        value, gradient = jax.value_and_grad(loss)(held, x)
        return value, jax.tree.map(lambda p, g: p - 0.1 * g, held, gradient)

    return step, lambda i: (held, x)


def offload():
    """67 MB from the host's memory and back beside products; copies by the runtime; a scalar fetched each step."""
    device = jax.devices()[0]
    host, here = (SingleDeviceSharding(device, memory_kind=kind) for kind in ("pinned_host", "device"))
    held, a = jax.device_put(normal(0, 4096, 8192), host), normal(1, 8192, 8192)

    def step(held, a):
        y = jax.device_put(held, here) @ a
        z = jnp.tanh(a.astype(jnp.float32)).astype(a.dtype) @ a
        return jax.device_put(y, host), y.sum() + z.sum()

    def arguments(i):
        jnp.asarray(np.ones((1024, 1024), np.float32) * i).block_until_ready()
        return held, a

    return step, arguments


def loop():
    """A loop of three, then one whose length the data decide with a conditional inside."""
    x, a, b = normal(0, 2048, 1024), normal(1, 1024, 2048), normal(2, 2048, 1024)

    def step(n, x, a, b):
        x = lax.fori_loop(0, 3, lambda i, x: mlp(x, a, b), mlp(x, a, b))

        def body(carried):
            i, x = carried
            return i + 1, lax.cond(i % 2 == 0, lambda x: mlp(x, a, b), lambda x: x * 0.5 + jnp.tanh(x), x)

        return mlp(lax.while_loop(lambda carried: carried[0] < n, body, (0, x))[1], a, b)

    return step, lambda i: (jnp.int32(2 + i % 3), x, a, b)


step, arguments = globals()[name]()
run = jax.jit(step)
if "cold" not in modes:
    for number in range(4):
        result = run(*arguments(number))
    jax.block_until_ready(result)
jax.profiler.start_trace(out)
for number in range(6):
    with jax.profiler.StepTraceAnnotation("work", step_num=number):
        result = run(*arguments(number))
        if name == "offload":
            np.asarray(result[1])
jax.block_until_ready(result)
jax.profiler.stop_trace()
