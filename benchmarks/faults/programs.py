"""Programs with one planted fault each, and healthy ones: a tool that advises should name the fault first, and nothing in the healthy.

    python programs.py OUT [NAME ...]

Each function returns the step to profile; with ``fixed`` the same work without the fault, which is timed only: the difference is what
the fault costs. Its docstring is the fault as a person would put it.
"""

import functools
import glob
import gzip
import json
import os
import shutil
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from model import decode, init, loss, written_out_attention

BF16, FP32 = jnp.bfloat16, jnp.float32


def normal(seed, *shape, dtype=BF16):
    return jax.random.normal(jax.random.key(seed), shape, dtype)


def training(batch=4, length=512, layers=2, width=1024, heads=8, hidden=4096, vocabulary=16000, **options):
    """A gradient step of a small transformer, and its arguments."""
    params = init(layers, width, hidden, vocabulary)
    tokens = jax.random.randint(jax.random.key(1), (batch, length), 0, vocabulary)
    step = jax.jit(lambda params, tokens: jax.value_and_grad(loss)(params, tokens, heads, **options))
    return step, params, tokens


def slow_input(fixed=False):
    """The data loader takes 6 ms before every step."""
    step, params, tokens = training()

    def load_batch():
        if not fixed:
            time.sleep(0.006)
        return tokens

    return lambda: step(params, load_batch())


def read_back(fixed=False):
    """The loss is read on the host every step and logged slowly."""
    step, params, tokens = training()

    def one():
        value, _ = step(params, tokens)
        if fixed:
            return value
        number = float(value)
        ",".join(str(number * i) for i in range(6000))
        return value

    return one


def unjitted(fixed=False):
    """An elementwise chain is not jitted."""
    x, w = normal(0, 4096, 4096, dtype=FP32), jnp.ones((4096,), FP32)

    def one():
        y = x
        for _ in range(6):
            y = y - y.mean(-1, keepdims=True)
            y = y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-5)
            y = jnp.maximum(y * w + 1.0, 0) * 0.5
        return y

    return jax.jit(one) if fixed else one


def many_programs(fixed=False):
    """The optimizer updates each of 400 small tensors in a program of its own."""
    tensors = [normal(i, 256, 256, dtype=FP32) for i in range(400)]
    update = jax.jit(lambda p, g: p - 1e-3 * g)

    def one(tensors):
        return [update(p, p) for p in tensors]

    together = jax.jit(one) if fixed else one
    return lambda: together(tensors)


def one_hot(fixed=False):
    """An embedding is computed as a product with one-hot rows, forward and backward."""
    vocabulary, width, tokens = 32000, 2048, 8192
    table, weights = normal(0, vocabulary, width), normal(2, width, width)
    ids = jax.random.randint(jax.random.key(1), (tokens,), 0, vocabulary)

    def total(table, weights, ids):
        rows = table[ids] if fixed else jax.nn.one_hot(ids, vocabulary, dtype=BF16) @ table
        return (rows @ weights).astype(FP32).sum()

    gradient = jax.jit(jax.grad(total, argnums=(0, 1)))
    return lambda: gradient(table, weights, ids)


def _decoding(batch, layers, width, heads, positions, donate):
    params = init(layers, width, 4 * width, 32000)
    cache = [tuple(jnp.full((batch, heads, positions, width // heads), i, BF16) for i in (0, 1)) for _ in range(layers)]
    x = jnp.ones((batch, width), BF16)
    step = jax.jit(functools.partial(decode, heads=heads), donate_argnums=(1,) if donate else ())
    held = [cache]

    def one():
        held[0], y = step(params, held[0], x, 100)
        return y

    return one


def undonated_cache(fixed=False):
    """The key-value cache is not donated, so it is copied whole for every token."""
    return _decoding(batch=16, layers=4, width=4096, heads=32, positions=4096, donate=fixed)


def small_batch(fixed=False):
    """Tokens are decoded one sequence at a time."""
    return _decoding(batch=8 if fixed else 1, layers=8, width=4096, heads=32, positions=512, donate=True)


def tiny_scan(fixed=False):
    """A recurrence of tiny products: nothing but launches."""
    w, h = normal(0, 256, 256, dtype=FP32) * 0.05, jnp.ones((8, 256), FP32)
    step = jax.jit(lambda h, w: jax.lax.scan(lambda h, _: (jnp.tanh(h @ w) + 0.1, None), h, None, 400, unroll=400 if fixed else 1)[0])
    return lambda: step(h, w)


def host_copies(fixed=False):
    """256 MB of fresh host data go to the device every step."""
    x = np.random.default_rng(0).random(64 << 20, dtype=np.float32)
    step = jax.jit(lambda x, w: (x.reshape(8192, 8192) * w).sum())
    held, two = (jnp.asarray(x) if fixed else x), jnp.float32(2)
    return lambda: step(held, two)


def offloaded(fixed=False):
    """Activations are fetched from the device every step and sent back."""
    x, w = normal(0, 8192, 4096), normal(1, 4096, 4096)
    first, second = jax.jit(lambda x, w: jnp.tanh(x @ w)), jax.jit(lambda x, w: (x @ w).sum())
    return lambda: second(first(x, w) if fixed else jnp.asarray(np.asarray(first(x, w))), w)


def stray_fp64(fixed=False):
    """A product runs in float64."""
    with jax.enable_x64(True):
        a, b = (jnp.asarray(np.random.default_rng(i).random((4096, 4096))) for i in (0, 1))
        a, b = (a.astype(FP32), b.astype(FP32)) if fixed else (a, b)
        step = jax.jit(lambda a, b: jnp.tanh(a @ b) + 1)
        step(a, b)

    def one():
        with jax.enable_x64(True):
            return step(a, b)

    return one


def upcast_products(fixed=False):
    """bf16 weights and activations are widened to fp32 before every product, at the highest precision."""
    x, ws = normal(0, 8192, 4096), [normal(i, 4096, 4096) * 0.02 for i in range(4)]

    @jax.jit
    def step(x, ws):
        for w in ws:
            y = x @ w if fixed else jnp.dot(x.astype(FP32), w.astype(FP32), precision=jax.lax.Precision.HIGHEST)
            x = jax.nn.gelu(y).astype(BF16)
        return x

    return lambda: step(x, ws)


def recompiled(fixed=False):
    """Every step has a new shape, so every step compiles."""
    w, rows = jnp.ones((2048, 2048), BF16), [1024]
    step = jax.jit(lambda x, w: jnp.tanh(x @ w).sum())

    def one():
        rows[0] += 0 if fixed else 8
        return step(jnp.ones((rows[0], 2048), BF16), w)

    return one


def callback(fixed=False):
    """The host is called in the middle of each step."""
    x, w = normal(0, 8192, 8192), normal(1, 8192, 8192)

    def on_host(value):
        time.sleep(0.004)
        return np.float32(value)

    @jax.jit
    def step(x, w):
        y = x @ w
        mean = y.astype(FP32).mean()
        scale = mean if fixed else jax.pure_callback(on_host, jax.ShapeDtypeStruct((), FP32), mean)
        return (y * scale.astype(y.dtype)) @ w

    return lambda: step(x, w)


def transposes(fixed=False):
    """Layouts go back and forth between kernels that cannot fuse."""
    x, w = normal(0, 64, 512, 1024), normal(1, 1024, 1024)
    turn, product = jax.jit(lambda x: jnp.transpose(x, (2, 1, 0)) + 0), jax.jit(lambda x, w: x @ w)

    def one():
        y = x
        for _ in range(4):
            y = product(y, w) if fixed else turn(turn(product(y, w)))
        return y

    return one


def unused_logits(fixed=False):
    """Logits are computed for all tokens, and those of one in eight are used."""
    h, table = normal(0, 4096, 2048), normal(1, 128256, 2048)
    few, some = (8, 1) if fixed else (1, 8)
    step = jax.jit(lambda h, table: jax.nn.log_softmax((h[::few] @ table.T).astype(FP32), -1)[::some].sum())
    return lambda: step(h, table)


def _experts(count, rows=8192, width=2048, hidden=4096, top=2):
    x, router = normal(0, rows, width), normal(1, width, count)
    up, down = normal(2, count, width, hidden) * 0.02, normal(3, count, hidden, width) * 0.02

    @jax.jit
    def step(x, router, up, down):
        weights, chosen = jax.lax.top_k(jax.nn.softmax((x @ router).astype(FP32), -1), top)
        flat = chosen.reshape(-1)
        order = jnp.argsort(flat)
        sizes = jnp.bincount(flat, length=count).astype(jnp.int32)
        h = jax.nn.silu(jax.lax.ragged_dot(x[order // top], up, sizes))
        y = jax.lax.ragged_dot(h, down, sizes) * weights.reshape(-1)[order][:, None].astype(x.dtype)
        return jnp.zeros_like(x).at[order // top].add(y)

    return lambda: step(x, router, up, down)


def dense_experts_8():
    """Eight experts are computed for every token, though each token goes to two."""
    return _experts(8)


def dense_experts_64():
    """Sixty-four experts are computed for every token, though each token goes to two."""
    return _experts(64, rows=4096, width=1024, hidden=2048)


def stored_attention(fixed=False):
    """Attention is written out, so its scores go through memory."""
    options = {} if fixed else {"attention": written_out_attention}
    step, params, tokens = training(batch=4, length=2048, width=2048, heads=16, hidden=8192, **options)
    return lambda: step(params, tokens)


def recomputed(fixed=False):
    """Every block is rematerialised, though memory is plenty."""
    step, params, tokens = training(8, 1024, layers=4, width=2048, heads=16, hidden=8192, **({} if fixed else {"wrap": jax.checkpoint}))
    return lambda: step(params, tokens)


def odd_sizes(fixed=False):
    """A product's inner and outer sizes are one more than a power of two."""
    size = 4160 if fixed else 4097
    a, b = normal(0, size, size), normal(1, size, size)
    step = jax.jit(lambda a, b: (a @ b) @ a)
    return lambda: step(a, b)


def cut_chain(fixed=False):
    """A normalisation, an activation, a dropout and a sum are four programs."""
    x = normal(0, 32, 2048, 4096)
    parts = [
        jax.jit(lambda x: (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)),
        jax.jit(jax.nn.gelu),
        jax.jit(lambda x: jnp.where(jax.lax.broadcasted_iota(jnp.uint32, x.shape, 2) * jnp.uint32(2654435761) & 7 != 0, x, 0)),
        jax.jit(lambda x: x + x * BF16(0.5)),
    ]

    def one(y):
        for part in parts:
            y = part(y)
        return y

    whole = jax.jit(one) if fixed else one
    return lambda: whole(x)


# The captures have the line numbers of this file and of model.py, and expected.toml gives the lines of the faults.
# Whoever moves a line above the last program records everything again,
#
#     python programs.py captures
#
# and brings the lines and times of expected.toml up to date.


def debug_prints(fixed=False):
    """Every layer reports its mean to the host while the step runs."""
    x, w = normal(0, 8192, 8192), normal(1, 8192, 8192) * 0.01
    seen = []

    @jax.jit
    def step(x, w):
        for _ in range(4):
            x = jnp.tanh(x @ w)
            if not fixed:
                jax.debug.callback(lambda v: seen.append(float(v)), x.astype(FP32).mean(), ordered=True)
        return x

    return lambda: step(x, w)


def healthy_training():
    """Nothing: a training step with fused attention."""
    step, params, tokens = training(batch=8, length=1024, layers=4, width=2048, heads=16, hidden=8192)
    return lambda: step(params, tokens)


def healthy_products():
    """Nothing: four large MLP blocks."""
    x, pairs = normal(0, 8192, 4096), [(normal(i, 4096, 16384) * 0.02, normal(i + 9, 16384, 4096) * 0.02) for i in range(4)]

    @jax.jit
    def step(x, pairs):
        for up, down in pairs:
            x = x + jax.nn.gelu(x @ up) @ down
        return x

    return lambda: step(x, pairs)


def healthy_decoding():
    """Nothing: decoding with a donated cache and a large batch."""
    return _decoding(batch=64, layers=4, width=4096, heads=32, positions=1024, donate=True)


def healthy_convolutions():
    """Nothing: eight 3x3 convolutions with their gradients."""
    x, ws = normal(0, 64, 56, 56, 256), [normal(i, 3, 3, 256, 256) * 0.02 for i in range(8)]

    def total(ws, x):
        for w in ws:
            x = jax.nn.relu(jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))
        return x.astype(FP32).mean()

    step = jax.jit(jax.grad(total))
    return lambda: step(ws, x)


def healthy_scan():
    """Nothing: eight layers in a loop on the device, with fused attention."""
    from model import block

    layers = init(8, 2048, 8192, 1000)["layers"]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *layers)
    x = normal(1, 4, 2048, 2048)
    step = jax.jit(lambda stacked, x: jax.lax.scan(lambda h, w: (block(h, w, 16), None), x, stacked)[0])
    return lambda: step(stacked, x)


def programs(names):
    """The programs among the names of a module."""
    return {
        name: made
        for name, made in names.items()
        if callable(made)
        and getattr(made, "__module__", "") == names["__name__"]
        and made.__doc__
        and made.__code__.co_varnames[: made.__code__.co_argcount] in ((), ("fixed",))
    }


def timed(step, steps=5):
    """Seconds a step after three warm ones."""
    for _ in range(3):
        last = step()
    jax.block_until_ready(last)
    start = time.perf_counter()
    for _ in range(steps):
        last = step()
    jax.block_until_ready(last)
    return (time.perf_counter() - start) / steps


def annotated(step, number):
    with jax.profiler.StepTraceAnnotation("step", step_num=number):
        return step()


def capture(folder, name, make, steps=5):
    """Profile some steps of a program; returns seconds a step without the profiler, with the fault and without."""
    step = make()
    seconds = {"step_s": timed(step)}
    raw = os.path.join(folder, f"{name}.raw")
    jax.profiler.start_trace(raw)
    for number in range(steps):
        last = step() if name.startswith("loop_") else annotated(step, number)
    jax.block_until_ready(last)
    jax.profiler.stop_trace()
    (found,) = glob.glob(f"{raw}/**/*.xplane.pb", recursive=True)
    with open(found, "rb") as plain, gzip.open(os.path.join(folder, f"{name}.xplane.pb.gz"), "wb", 9) as packed:
        shutil.copyfileobj(plain, packed)
    shutil.rmtree(raw)
    if make.__code__.co_argcount:
        seconds["fixed_s"] = timed(make(fixed=True))
    return seconds


def main(usage, names):
    """Capture the programs of a module: those that the command line names, else all."""
    made = programs(names)
    if len(sys.argv) < 2:
        sys.exit(usage)
    folder, chosen = sys.argv[1], sys.argv[2:] or list(made)
    os.makedirs(folder, exist_ok=True)
    for name in chosen:
        try:
            print(json.dumps({"name": name, **capture(folder, name, made[name])}), flush=True)
        except Exception as error:  # one program that fails must not cost the others
            print(f"{name} failed: {type(error).__name__}: {str(error)[:300]}", file=sys.stderr, flush=True)
        jax.clear_caches()


if __name__ == "__main__":
    main(__doc__, globals())
