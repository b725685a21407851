"""More programs with one planted fault each, of kinds that `programs.py` lacks, and more healthy ones.

    python more_programs.py OUT [NAME ...]

As there: a function returns the step to profile, with ``fixed`` the same work without the fault. Programs whose name begins with
``loop_`` run without step annotations, as many loops do.
"""

import queue
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
from model import block, init, loss
from programs import BF16, FP32, main, normal, training


def einsum_experts(fixed=False):
    """Eight experts are computed for every token by an einsum, and all but two are multiplied by zero."""
    experts, top, rows, width, hidden = 8, 2, 4096, 1024, 4096
    x, router = normal(0, rows, width), normal(1, width, experts)
    up, down = normal(2, experts, width, hidden) * 0.02, normal(3, experts, hidden, width) * 0.02

    @jax.jit
    def step(x, router, up, down):
        weights, chosen = jax.lax.top_k(jax.nn.softmax((x @ router).astype(FP32), -1), top)
        if fixed:  # what two experts a token cost
            h = jax.nn.silu(jnp.einsum("td,edf->etf", x, up[:top]))
            return jnp.einsum("etf,efd,te->td", h, down[:top], weights.astype(x.dtype))
        gate = (jax.nn.one_hot(chosen, experts) * weights[..., None]).sum(1).astype(x.dtype)
        h = jax.nn.silu(jnp.einsum("td,edf->etf", x, up))
        y = jnp.einsum("etf,efd->etd", h, down)
        return jnp.einsum("etd,te->td", y, gate)

    return lambda: step(x, router, up, down)


def eager_optimizer(fixed=False):
    """The gradient is jitted, the optimizer is not: Adam runs operation by operation."""
    step, params, tokens = training(batch=4, length=512)
    zeros = jax.tree.map(lambda p: jnp.zeros_like(p, dtype=FP32), params)

    def adam(p, g, m, v):
        g = g.astype(FP32)
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g * g
        return (p - 1e-4 * m / (jnp.sqrt(v) + 1e-8)).astype(p.dtype), m, v

    def update(params, grads, first, second):
        return jax.tree.map(adam, params, grads, first, second)

    apply = jax.jit(update) if fixed else update

    def one():
        value, grads = step(params, tokens)
        return value, apply(params, grads, zeros, zeros)

    return one


def forward_twice(fixed=False):
    """The forward pass runs a second time in another program, for the accuracy."""
    ws = [normal(i, 4096, 4096) * 0.02 for i in range(4)]
    x, y = normal(9, 8192, 4096), normal(8, 8192, 4096)

    def forward(ws, x):
        for w in ws:
            x = jax.nn.gelu(x @ w)
        return x

    def error(out, y):
        return ((out - y).astype(FP32) ** 2).mean()

    score = jax.jit(lambda ws, x, y: error(forward(ws, x), y))
    right = jax.jit(lambda ws, x, y: (forward(ws, x).argmax(-1) == y.argmax(-1)).mean())
    both = jax.jit(lambda ws, x, y: (error(out := forward(ws, x), y), (out.argmax(-1) == y.argmax(-1)).mean()))
    return lambda: both(ws, x, y) if fixed else (score(ws, x, y), right(ws, x, y))


def rejitted(fixed=False):
    """The function is jitted anew in every step, so that every step compiles."""
    x, w = normal(0, 2048, 2048), normal(1, 2048, 2048) * 0.02
    once = jax.jit(lambda x, w: jnp.tanh(x @ w) @ w)

    def one():
        def layer(x, w):
            return jnp.tanh(x @ w) @ w

        step = once if fixed else jax.jit(layer)
        return step(x, w)

    return one


def starved_queue(fixed=False):
    """A loader in a thread of its own puts a batch every 5 ms, and the loop waits for it."""
    step, params, tokens = training()
    if fixed:
        return lambda: step(params, tokens)
    batches = queue.Queue(maxsize=2)

    def produce():
        while True:
            time.sleep(0.005)
            batches.put(tokens)

    threading.Thread(target=produce, daemon=True).start()

    def one():
        batch = batches.get()
        return step(params, batch)

    return one


def blocking(fixed=False):
    """The host waits for the device after every layer."""
    x, w = normal(0, 2048, 2048), normal(1, 2048, 2048) * 0.02
    layer = jax.jit(lambda x, w: jnp.tanh(x @ w))

    def one():
        y = x
        for _ in range(24):
            y = layer(y, w)
            if not fixed:
                y.block_until_ready()
        return y

    return one


def fetched_logits(fixed=False):
    """All logits are fetched from the device to choose the next tokens with NumPy."""
    h, table = normal(0, 512, 2048), normal(1, 2048, 64000)
    logits, best = jax.jit(lambda h, table: (h @ table).astype(FP32)), jax.jit(lambda h, table: (h @ table).astype(FP32).argmax(-1))

    def one():
        if fixed:
            return np.asarray(best(h, table))
        return np.argmax(np.asarray(logits(h, table)), -1)

    return one


def fp32_model(fixed=False):
    """A model in fp32 throughout, on a chip whose bf16 products are twice as fast and half as large."""
    dtype = BF16 if fixed else FP32
    x = normal(0, 8192, 2048, dtype=dtype)
    pairs = [(normal(i, 2048, 8192, dtype=dtype), normal(i, 8192, 2048, dtype=dtype)) for i in (1, 2, 3)]

    @jax.jit
    def step(x, pairs):
        for up, down in pairs:
            x = x + jax.nn.gelu(x @ up) @ down * 0.01
        return x

    return lambda: step(x, pairs)


def fp64_activations(fixed=False):
    """A NumPy constant widens activations to fp64, with 64-bit numbers enabled."""
    x, w = normal(0, 4096, 4096), normal(1, 4096, 4096) * 0.02
    scale = np.float64(1.5)

    def layer(x, w):
        y = x @ w
        y = y * jnp.asarray(scale if not fixed else np.float32(scale))
        y = jnp.tanh(y - y.mean(-1, keepdims=True)) * jax.nn.sigmoid(y)
        return y.astype(BF16)

    with jax.enable_x64(True):
        step = jax.jit(lambda x, w: layer(layer(x, w), w))
        step(x, w)

    def one():
        with jax.enable_x64(True):
            return step(x, w)

    return one


def microbatches(fixed=False):
    """The gradient is accumulated over 32 microbatches of 32 tokens, each of which reads all weights."""
    ws = [normal(i, 4096, 4096) * 0.02 for i in range(4)]
    x = normal(9, 1024, 4096)

    def total(ws, x):
        for w in ws:
            x = jax.nn.gelu(x @ w)
        return (x.astype(FP32) ** 2).mean()

    @jax.jit
    def step(ws, x):
        def add(held, part):
            return jax.tree.map(jnp.add, held, jax.grad(total)(ws, part)), None

        if fixed:
            return jax.grad(total)(ws, x)
        return jax.lax.scan(add, jax.tree.map(jnp.zeros_like, ws), x.reshape(32, 32, 4096))[0]

    return lambda: step(ws, x)


def repeated_heads(fixed=False):
    """Keys and values of 4 heads are repeated for 32 query heads before each token attends to them."""
    batch, heads, shared, positions, size = 16, 32, 4, 4096, 128
    q, k, v = normal(0, batch, heads, size), normal(1, batch, shared, positions, size), normal(2, batch, shared, positions, size)

    @jax.jit
    def step(q, k, v):
        if fixed:
            grouped = q.reshape(batch, shared, heads // shared, size)
            p = jax.nn.softmax(jnp.einsum("bgrd,bgkd->bgrk", grouped, k).astype(FP32), -1).astype(BF16)
            return jnp.einsum("bgrk,bgkd->bgrd", p, v).reshape(batch, heads, size)
        k, v = jnp.repeat(k, heads // shared, axis=1), jnp.repeat(v, heads // shared, axis=1)
        p = jax.nn.softmax(jnp.einsum("bhd,bhkd->bhk", q, k).astype(FP32), -1).astype(BF16)
        return jnp.einsum("bhk,bhkd->bhd", p, v)

    return lambda: step(q, k, v)


def odd_vocabulary(fixed=False):
    """A language model's head over 50257 words, which is no multiple of 8."""
    words = 50304 if fixed else 50257
    h, table = normal(0, 8192, 1024), normal(1, words, 1024) * 0.02
    labels = jax.random.randint(jax.random.key(2), (8192,), 0, 50257)

    def total(h, table):
        logits = (h @ table.T).astype(FP32)
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], -1).mean()

    step = jax.jit(jax.grad(total, argnums=(0, 1)))
    return lambda: step(h, table)


def padded_products(fixed=False):
    """Experts' tokens are padded to a capacity of four times as many, and the results sliced."""
    experts, rows, width, hidden = 8, 512, 1024, 4096
    x, up, down = normal(0, experts, rows, width), normal(1, experts, width, hidden) * 0.02, normal(2, experts, hidden, width) * 0.02

    @jax.jit
    def step(x, up, down):
        h = x if fixed else jnp.pad(x, ((0, 0), (0, 3 * rows), (0, 0)))
        y = jax.nn.silu(h @ up) @ down
        return (y[:, :rows] * 2 + x).sum(0)

    return lambda: step(x, up, down)


def sorted_logits(fixed=False):
    """All logits are sorted to find the fifty largest."""
    logits = normal(0, 512, 128256, dtype=FP32)
    step = jax.jit(lambda x: jax.lax.top_k(x, 50)[0].sum(-1) if fixed else jnp.sort(x, -1)[:, -50:].sum(-1))
    return lambda: step(logits)


def bad_order(fixed=False):
    """Two large matrices are multiplied with each other first, and then with a narrow one."""
    a, b, c = normal(0, 8192, 8192) * 0.01, normal(1, 8192, 8192) * 0.01, normal(2, 8192, 64)
    step = jax.jit(lambda a, b, c: a @ (b @ c) if fixed else (a @ b) @ c)
    return lambda: step(a, b, c)


def nchw_convolutions(fixed=False):
    """Convolutions with channels first, which the library computes with channels last: every layer turns its input and output."""
    names = ("NHWC", "HWIO", "NHWC") if fixed else ("NCHW", "OIHW", "NCHW")
    x = normal(0, 64, 56, 56, 128) if fixed else normal(0, 64, 128, 56, 56)
    ws = [normal(i, 3, 3, 128, 128) * 0.02 if fixed else normal(i, 128, 128, 3, 3) * 0.02 for i in range(6)]

    @jax.jit
    def step(ws, x):
        for w in ws:
            y = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=names)
            x = jax.nn.relu(y - y.mean((0, 1, 2) if fixed else (0, 2, 3), keepdims=True, dtype=FP32).astype(BF16))
        return x

    return lambda: step(ws, x)


def scanned_remat(fixed=False):
    """Layers in a loop on the device, each rematerialised in the backward pass, though memory is plenty."""
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *init(4, 2048, 8192, 1000)["layers"])
    x = normal(1, 4, 2048, 2048)

    def body(h, w):
        return block(h, w, 16), None

    def total(stacked, x):
        return (jax.lax.scan(body if fixed else jax.checkpoint(body), x, stacked)[0].astype(FP32) ** 2).mean()

    step = jax.jit(jax.grad(total))
    return lambda: step(stacked, x)


def mapped_examples(fixed=False):
    """Examples go through a layer one by one (lax.map), not as a batch."""
    x, w = normal(0, 512, 64, 512), normal(1, 512, 512) * 0.02

    def layer(one):
        return jax.nn.gelu(one @ w) @ w

    step = jax.jit(lambda x: layer(x) if fixed else jax.lax.map(layer, x))
    return lambda: step(x)


def undonated_buffer(fixed=False):
    """A replay buffer of 1 GiB is not donated, so that it is copied whole to store 256 rows."""
    held, rows = [jnp.zeros((262144, 2048), BF16)], normal(1, 256, 2048)
    store = jax.jit(lambda buffer, rows, at: buffer.at[at].set(rows), donate_argnums=(0,) if fixed else ())
    at = jax.random.permutation(jax.random.key(0), 262144)[:256]

    def one():
        held[0] = store(held[0], rows, at)
        return held[0]

    return one


def healthy_adam():
    """Nothing: layers in a loop, a fused optimizer, everything donated."""
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *init(4, 2048, 8192, 1000)["layers"])
    x = normal(1, 4, 2048, 2048)

    def zeros():
        return jax.tree.map(lambda p: jnp.zeros_like(p, dtype=FP32), stacked)

    def total(stacked, x):
        return (jax.lax.scan(lambda h, w: (block(h, w, 16), None), x, stacked)[0].astype(FP32) ** 2).mean()

    def adam(p, g, m, v):
        g = g.astype(FP32)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        return (p - 1e-4 * m / (jnp.sqrt(v) + 1e-8)).astype(p.dtype), m, v

    def step(state, x):
        value, grads = jax.value_and_grad(total)(state[0], x)
        new = jax.tree.map(adam, state[0], grads, state[1], state[2])
        return jax.tree.transpose(jax.tree.structure(stacked), jax.tree.structure((0, 0, 0)), new), value

    step, state = jax.jit(step, donate_argnums=0), [(stacked, zeros(), zeros())]

    def one():
        state[0], value = step(state[0], x)
        return value

    return one


def loop_healthy():
    """Nothing: a loop that evaluates after every second step, without annotations."""
    step, params, tokens = training(batch=8, length=1024)
    check, count = jax.jit(lambda params, tokens: loss(params, tokens, 8)), [0]

    def one():
        count[0] += 1
        value, _ = step(params, tokens)
        return check(params, tokens[:2]) if count[0] % 2 == 0 else value

    return one


def loop_slow_input(fixed=False):
    """The data loader takes 4 ms before every step of a loop without annotations."""
    step, params, tokens = training()

    def load_batch():
        if not fixed:
            time.sleep(0.004)
        return tokens

    return lambda: step(params, load_batch())


if __name__ == "__main__":
    main(__doc__, globals())
