"""JAX programs unlike those roofline was built on. Usage: programs.py OUT [NAME ...]; TINY=1 for a CPU.

Each function returns a step; with ``fixed`` the same work without the fault, which is timed only (if there is time).
Stops starting programs after DEADLINE seconds (default 225).
"""
import functools, glob, gzip, json, os, shutil, statistics, sys, tempfile, time

START = time.time()
import jax, jax.numpy as jnp, numpy as np
from jax import lax

TINY = bool(os.environ.get("TINY"))
BF, F32 = jnp.bfloat16, jnp.float32
GPU = jax.default_backend() == "gpu"


def n(size, small): return small if TINY else size
def rnd(seed, *shape, dtype=BF, scale=0.02):
    return (jax.random.normal(jax.random.key(seed), shape, F32) * scale).astype(dtype)
def ids(seed, high, *shape): return jnp.asarray(np.random.default_rng(seed).integers(0, high, shape, dtype=np.int32))
def sgd(p, g, lr=1e-4): return jax.tree.map(lambda a, b: a - (lr * b).astype(a.dtype), p, g)
def rms(x): return x * lax.rsqrt(jnp.mean(x.astype(F32) ** 2, -1, keepdims=True) + 1e-6).astype(x.dtype)
def conv(x, w, stride=1, groups=1, dilation=1):
    return lax.conv_general_dilated(x, w, (stride, stride), "SAME", rhs_dilation=(dilation, dilation),
                                    dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups)
def attention(q, k, v, **kw): return jax.nn.dot_product_attention(q, k, v, implementation="cudnn" if GPU else "xla", **kw)
def stateful(f, state, *rest):
    """A step that carries its donated state."""
    f = jax.jit(f, donate_argnums=0)
    box = [state]
    def step():
        box[0], out = f(box[0], *rest)
        return box[0], out
    return step
def trained(loss, p, *data):
    def update(p, *data):
        value, g = jax.value_and_grad(loss)(p, *data)
        return sgd(p, g), value
    return stateful(update, p, *data)


def moe_ragged():
    """A sorted mixture of experts with lax.ragged_dot, forward and backward."""
    T, D, F, E, K = n(8192, 64), n(1024, 16), n(2048, 32), 16, 2
    p = dict(r=rnd(0, D, E), up=rnd(1, E, D, F), down=rnd(2, E, F, D))
    def loss(p, x):
        w, idx = lax.top_k(jax.nn.softmax((x @ p["r"]).astype(F32)), K)
        flat = idx.reshape(-1); order = jnp.argsort(flat); sizes = jnp.bincount(flat, length=E)
        rows = x[order // K]
        h = jax.nn.silu(lax.ragged_dot(rows, p["up"], sizes))
        y = lax.ragged_dot(h, p["down"], sizes)
        y = jnp.zeros_like(y).at[order].set(y).reshape(T, K, D)
        return jnp.mean(jnp.square((x + (y * w[..., None].astype(BF)).sum(1)).astype(F32)))
    return trained(loss, p, rnd(3, T, D, scale=1))


def convnext():
    """ConvNeXt blocks: depthwise 7x7, LayerNorm, 4x MLP, channels last, gradient step."""
    B, H, C = n(64, 2), n(56, 8), n(128, 8)
    def block(i, C): return dict(dw=rnd(i, 7, 7, 1, C), g=jnp.ones(C, BF), up=rnd(i + 1, C, 4 * C), down=rnd(i + 2, 4 * C, C))
    p = dict(a=[block(0, C), block(3, C)], d=rnd(9, 2, 2, C, 2 * C), b=[block(10, 2 * C), block(13, 2 * C)])
    def apply(b, x):
        y = conv(x, b["dw"], groups=x.shape[-1])
        y = rms(y) * b["g"]
        return x + jax.nn.gelu(y @ b["up"]) @ b["down"]
    def loss(p, x):
        for b in p["a"]: x = apply(b, x)
        x = conv(x, p["d"], 2)
        for b in p["b"]: x = apply(b, x)
        return jnp.mean(jnp.square(x.astype(F32)))
    return trained(loss, p, rnd(20, B, H, H, C, scale=1))


def segmentation():
    """Grouped convolutions, a dilated pyramid, and transposed convolutions, gradient step."""
    B, H, C = n(16, 2), n(64, 8), n(256, 32)
    p = dict(g=[rnd(i, 3, 3, C // 32, C) for i in range(2)], a=[rnd(5 + i, 3, 3, C, C) for i in range(3)],
             one=rnd(9, 1, 1, 3 * C, C), up=[rnd(10 + i, 4, 4, C, C) for i in range(2)], head=rnd(15, 1, 1, C, 32))
    def loss(p, x, y):
        for w in p["g"]: x = jax.nn.relu(conv(x, w, groups=32)) + x
        x = jnp.concatenate([conv(x, w, dilation=d) for w, d in zip(p["a"], (2, 4, 8))], -1)
        x = jax.nn.relu(conv(x, p["one"]))
        for w in p["up"]:
            x = jax.nn.relu(lax.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))
        logits = conv(x, p["head"]).astype(F32)
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), y[..., None], -1))
    return trained(loss, p, rnd(20, B, H, H, C, scale=1), ids(0, 32, B, 4 * H, 4 * H))


def unet():
    """A diffusion U-Net level: GroupNorm, residual convolutions with time, self- and cross-attention, gradient step."""
    B, H, C, A, T, E = n(16, 1), n(64, 8), n(320, 32), n(5, 2), n(128, 8), n(768, 16)
    D = C // A
    p = dict(c1=rnd(0, 3, 3, C, C), c2=rnd(1, 3, 3, C, C), t=rnd(2, 4 * C, C), qkv=rnd(3, C, 3 * C), o=rnd(4, C, C),
             q=rnd(5, C, C), kv=rnd(6, E, 2 * C), o2=rnd(7, C, C), up=rnd(8, C, 8 * C), down=rnd(9, 4 * C, C))
    def gn(x):
        g = x.astype(F32).reshape(B, H * H, 32, C // 32)
        m, v = g.mean((1, 3), keepdims=True), g.var((1, 3), keepdims=True)
        return ((g - m) * lax.rsqrt(v + 1e-5)).reshape(x.shape).astype(BF)
    def loss(p, x, t, ctx):
        h = conv(jax.nn.silu(gn(x)), p["c1"]) + (jax.nn.silu(t) @ p["t"])[:, None, None]
        x = x + conv(jax.nn.silu(gn(h)), p["c2"])
        s = rms(x.reshape(B, H * H, C))
        q, k, v = (a.reshape(B, H * H, A, D) for a in jnp.split(s @ p["qkv"], 3, -1))
        s = s + attention(q, k, v).reshape(s.shape) @ p["o"]
        k, v = (a.reshape(B, T, A, D) for a in jnp.split(ctx @ p["kv"], 2, -1))
        s = s + attention((rms(s) @ p["q"]).reshape(B, H * H, A, D), k, v).reshape(s.shape) @ p["o2"]
        a, g = jnp.split(rms(s) @ p["up"], 2, -1)
        return jnp.mean(jnp.square((s + (a * jax.nn.gelu(g)) @ p["down"]).astype(F32)))
    return trained(loss, p, rnd(20, B, H, H, C, scale=1), rnd(21, B, 4 * C, scale=1), rnd(22, B, T, E, scale=1))


def ssm():
    """A gated diagonal state space layer by associative_scan, gradient step."""
    B, T, D = n(4, 1), n(4096, 32), n(1024, 16)
    p = dict(i=rnd(0, D, 3 * D), o=rnd(1, D, D))
    def loss(p, x):
        u, a, g = jnp.split(rms(x) @ p["i"], 3, -1)
        a = jax.nn.sigmoid(a.astype(F32) + 2); b = (1 - a) * u.astype(F32)
        _, h = lax.associative_scan(lambda l, r: (l[0] * r[0], l[1] * r[0] + r[1]), (a, b), axis=1)
        return jnp.mean(jnp.square((x + (h.astype(BF) * jax.nn.silu(g)) @ p["o"]).astype(F32)))
    return trained(loss, p, rnd(9, B, T, D, scale=1))


def fft_complex(fixed=False):
    """FAULT: a long convolution of real signals by complex FFTs (fft, not rfft)."""
    B, T, D = n(4, 1), n(8192, 64), n(512, 8)
    def f(x, k, w):
        x = (x @ w).transpose(0, 2, 1).astype(F32)
        if fixed: y = jnp.fft.irfft(jnp.fft.rfft(x, 2 * T) * jnp.fft.rfft(k, 2 * T), 2 * T)[..., :T]
        else: y = jnp.fft.ifft(jnp.fft.fft(x, 2 * T) * jnp.fft.fft(k, 2 * T)).real[..., :T]
        return jax.nn.gelu(y.transpose(0, 2, 1)).astype(BF)
    f = jax.jit(f); args = rnd(0, B, T, D, scale=1), rnd(1, D, T, dtype=F32), rnd(2, D, D)
    return lambda: f(*args)


def fft_prime(fixed=False):
    """FAULT: the transform's length is the least that avoids wrapping, 2T-1, which has no small factors."""
    B, T, D = n(4, 1), n(8191, 64), n(512, 8)
    N = 2 * (T + 1) if fixed else 2 * T - 1  # 16381 is prime
    def f(x, k, w):
        x = (x @ w).transpose(0, 2, 1).astype(F32)
        y = jnp.fft.irfft(jnp.fft.rfft(x, N) * jnp.fft.rfft(k, N), N)[..., :T]
        return jax.nn.gelu(y.transpose(0, 2, 1)).astype(BF)
    f = jax.jit(f); args = rnd(0, B, T, D, scale=1), rnd(1, D, T, dtype=F32), rnd(2, D, D)
    return lambda: f(*args)


def gnn():
    """Message passing with segment_sum over sorted edges, gradient step."""
    N, M, D = n(100_000, 64), n(1_600_000, 256), n(128, 8)
    src, dst = ids(0, N, M), jnp.sort(ids(1, N, M))
    p = [rnd(i, D, D, dtype=F32) for i in range(4)]
    def loss(p, h, src, dst, e):
        for self_w, w in zip(p[::2], p[1::2]):
            m = (h @ w)[src] * e[:, None]
            h = jax.nn.relu(h @ self_w + jax.ops.segment_sum(m, dst, N, indices_are_sorted=True))
        return jnp.mean(h ** 2)
    return trained(loss, p, rnd(9, N, D, dtype=F32, scale=1), src, dst, rnd(8, M, dtype=F32, scale=1))


def table_adam(fixed=False):
    """FAULT: Adam runs over a whole embedding table of which a batch touches a few rows."""
    V, D, B, S, H = n(2_000_000, 512), n(64, 8), n(4096, 16), 16, n(512, 16)
    p = dict(w1=rnd(1, S * D, H, dtype=F32), w2=rnd(2, H, 1, dtype=F32)); table = rnd(0, V, D, dtype=F32)
    zeros = lambda t: jax.tree.map(jnp.zeros_like, t)
    def loss(rows, p, y):
        h = jax.nn.relu(rows.reshape(B, S * D) @ p["w1"]) @ p["w2"]
        return jnp.mean((h[:, 0] - y) ** 2)
    def adam(p, m, v, g):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        return p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), m, v
    def whole(s, i, y):
        p, m, v = s
        l, g = jax.value_and_grad(lambda q: loss(q["table"][i], q, y))(p)
        new = jax.tree.map(adam, p, m, v, g)
        return tuple(jax.tree.map(lambda t: t[k], new, is_leaf=lambda t: isinstance(t, tuple)) for k in range(3)), l
    def touched(s, i, y):
        p, m, v = s; flat = i.reshape(-1)
        l, (gr, g) = jax.value_and_grad(loss, (0, 1))(p["table"][i], {k: p[k] for k in ("w1", "w2")}, y)
        rows = adam(p["table"][flat], m["table"][flat], v["table"][flat], gr.reshape(-1, D))
        new = {k: adam(p[k], m[k], v[k], g[k]) for k in g}
        return tuple({**{k: new[k][j] for k in new}, "table": (p, m, v)[j]["table"].at[flat].set(rows[j])} for j in range(3)), l
    q = dict(p, table=table)
    return stateful(touched if fixed else whole, (q, zeros(q), zeros(q)), ids(3, V, B, S), rnd(4, B, dtype=F32))


def sideways_table(fixed=False):
    """FAULT: the embedding table is stored [width, vocabulary], so that each looked-up row is 256 strided elements."""
    V, D, T, H = n(512_000, 512), n(256, 8), n(65536, 32), n(1024, 16)
    table, up, down = rnd(0, *((V, D) if fixed else (D, V))), rnd(1, D, H), rnd(2, H, D)
    @jax.jit
    def f(table, up, down, i):
        x = table[i] if fixed else table[:, i].T
        return rms(x + jax.nn.gelu(x @ up) @ down)
    i = ids(3, V, T)
    return lambda: f(table, up, down, i)


def kmeans(fixed=False):
    """FAULT: distances to all centres by broadcasting, not as a product."""
    N, K, D = n(131072, 128), n(1024, 8), n(128, 8)
    def f(c, x):
        if fixed: d = (c * c).sum(1) - 2 * x @ c.T
        else: d = jnp.sum((x[:, None] - c[None]) ** 2, -1)
        a = jnp.argmin(d, 1)
        count = jax.ops.segment_sum(jnp.ones(N), a, K)
        return jax.ops.segment_sum(x, a, K) / jnp.maximum(count, 1)[:, None], d.min(1).mean()
    return stateful(f, rnd(0, K, D, dtype=F32, scale=1), rnd(1, N, D, dtype=F32, scale=1))


def gaussian_process():
    """Batched Cholesky, triangular solves and small SVDs in fp32."""
    B, N, D = n(512, 2), n(128, 8), n(16, 4)
    @jax.jit
    def f(x, y, s):
        k = jnp.exp(-0.5 * jnp.sum((x[:, :, None] - x[:, None]) ** 2, -1)) + 0.1 * jnp.eye(N)
        l = jnp.linalg.cholesky(k)
        z = lax.linalg.triangular_solve(l, y, left_side=True, lower=True)
        nll = 0.5 * (z ** 2).sum((1, 2)) + jnp.log(jnp.diagonal(l, axis1=1, axis2=2)).sum(1)
        return nll, jnp.linalg.svd(s, full_matrices=False)
    args = rnd(0, B, N, D, dtype=F32, scale=1), rnd(1, B, N, 8, dtype=F32), rnd(2, B, 2 * D, D, dtype=F32, scale=1)
    return lambda: f(*args)


def serving(B, L, D, A, G, V):
    hd = D // A
    return dict(layers=[dict(q=rnd(4 * i, D, D), kv=rnd(4 * i + 1, D, 2 * G * hd), o=rnd(4 * i + 2, D, D), up=rnd(4 * i + 3, D, 4 * D),
                             down=rnd(4 * i + 5, 4 * D, D)) for i in range(L)], emb=rnd(99, V, D)), hd


def grouped(q, k, v, mask):
    """q [B,T,A,d], k and v [B,S,G,d]: attention to a cache."""
    B, T, A, d = q.shape; G = k.shape[2]
    s = jnp.einsum("btgrd,bsgd->bgrts", q.reshape(B, T, G, A // G, d), k, preferred_element_type=F32) * d ** -0.5
    w = jax.nn.softmax(jnp.where(mask, s, -1e9), -1).astype(BF)
    return jnp.einsum("bgrts,bsgd->btgrd", w, v).reshape(B, T, A * d)


def spec_verify():
    """Speculative decoding: a target model verifies 5 drafted tokens per sequence, with a donated cache."""
    B, T, S, L, D, A, G, V = n(32, 2), 5, n(2048, 16), 4, n(4096, 32), n(32, 4), n(8, 2), n(32000, 64)
    p, hd = serving(B, L, D, A, G, V)
    cache = [(rnd(i, B, S, G, hd), rnd(i + 50, B, S, G, hd)) for i in range(L)]
    def f(cache, p, tok, draft_p, pos, u):
        x = p["emb"][tok]; new = []
        mask = (jnp.arange(S)[None] <= pos + jnp.arange(T)[:, None])[None, None, None]
        for l, (k, v) in zip(p["layers"], cache):
            h = rms(x)
            kn, vn = jnp.split((h @ l["kv"]).reshape(B, T, 2 * G, hd), 2, 2)
            k = lax.dynamic_update_slice(k, kn, (0, pos, 0, 0)); v = lax.dynamic_update_slice(v, vn, (0, pos, 0, 0))
            new.append((k, v))
            x = x + grouped((h @ l["q"]).reshape(B, T, A, hd), k, v, mask) @ l["o"]
            x = x + jax.nn.silu(rms(x) @ l["up"]) @ l["down"]
        probs = jax.nn.softmax((rms(x) @ p["emb"].T).astype(F32))
        chosen = jnp.take_along_axis(probs[:, :-1], tok[:, 1:, None], -1)[..., 0]
        accepted = jnp.cumprod(u < chosen / draft_p, 1).sum(1)
        nxt = jnp.argmax(jnp.take_along_axis(probs, accepted[:, None, None], 1)[:, 0], -1)
        return new, (accepted, nxt)
    return stateful(f, cache, p, ids(0, V, B, T), jnp.full((B, T - 1), 0.1), jnp.int32(n(1500, 8)), jnp.full((B, T - 1), 0.5))


def paged_decode():
    """FAULT: a paged cache is gathered into one contiguous copy per layer before each token attends to it."""
    B, L, D, A, G, V, P, M = n(64, 2), 4, n(2048, 32), n(16, 4), n(8, 2), n(32000, 64), 16, n(128, 4)
    p, hd = serving(B, L, D, A, G, V)
    pool = [(rnd(i, B * M, P, G, hd), rnd(i + 50, B * M, P, G, hd)) for i in range(L)]
    pages = jnp.asarray(np.random.default_rng(0).permutation(B * M).reshape(B, M).astype(np.int32))
    length = jnp.asarray(np.random.default_rng(1).integers(M * P // 2, M * P, B).astype(np.int32))
    def f(pool, p, tok, pages, length):
        x = p["emb"][tok][:, None]; new = []
        mask = (jnp.arange(M * P)[None] <= length[:, None])[:, None, None, None]
        page = jnp.take_along_axis(pages, (length // P)[:, None], 1)[:, 0]
        for l, (k, v) in zip(p["layers"], pool):
            h = rms(x)
            kn, vn = jnp.split((h @ l["kv"]).reshape(B, 2 * G, hd), 2, 1)
            k = k.at[page, length % P].set(kn); v = v.at[page, length % P].set(vn); new.append((k, v))
            ks, vs = (c[pages].reshape(B, M * P, G, hd) for c in (k, v))
            x = x + grouped((h @ l["q"]).reshape(B, 1, A, hd), ks, vs, mask) @ l["o"]
            x = x + jax.nn.silu(rms(x) @ l["up"]) @ l["down"]
        return new, jnp.argmax((rms(x[:, 0]) @ p["emb"].T).astype(F32), -1)
    return stateful(f, pool, p, ids(3, V, B), pages, length)


def beam_search(fixed=False):
    """FAULT: the whole cache is reordered by beam after each token."""
    N, K, L, D, A, G, V, S = n(8, 2), n(8, 2), 4, n(1024, 32), n(8, 4), n(8, 4), n(32000, 64), n(1024, 16)
    B = N * K
    p, hd = serving(B, L, D, A, G, V)
    cache = [(rnd(i, B, S, G, hd), rnd(i + 50, B, S, G, hd)) for i in range(L)]
    def f(s, p):
        cache, tok, score, pos = s
        x = p["emb"][tok][:, None]; new = []
        mask = (jnp.arange(S) <= pos)[None, None, None, None]
        for l, (k, v) in zip(p["layers"], cache):
            h = rms(x)
            kn, vn = jnp.split((h @ l["kv"]).reshape(B, 1, 2 * G, hd), 2, 2)
            k = lax.dynamic_update_slice(k, kn, (0, pos, 0, 0)); v = lax.dynamic_update_slice(v, vn, (0, pos, 0, 0))
            new.append((k, v))
            x = x + grouped((h @ l["q"]).reshape(B, 1, A, hd), k, v, mask) @ l["o"]
            x = x + jax.nn.silu(rms(x) @ l["up"]) @ l["down"]
        logp = jax.nn.log_softmax((rms(x[:, 0]) @ p["emb"].T).astype(F32))
        top, i = lax.top_k((score[:, None] + logp).reshape(N, K * V), K)
        beam = (i // V + K * jnp.arange(N)[:, None]).reshape(-1)
        if not fixed: new = jax.tree.map(lambda c: c[beam], new)
        return (new, (i % V).reshape(-1), top.reshape(-1), pos + 1), beam
    return stateful(f, (cache, ids(3, V, B), jnp.zeros(B), jnp.int32(n(500, 3))), p)


def fp8_mlp():
    """Products in fp8 (e4m3) with scales per tensor, forward only."""
    M, D, F = n(8192, 32), n(4096, 32), n(16384, 64)
    E4 = jnp.float8_e4m3fn
    def quantise(x):
        s = jnp.max(jnp.abs(x)).astype(F32) / 448
        return jnp.clip(x.astype(F32) / s, -448, 448).astype(E4), s
    ws = [quantise(rnd(i, *((D, F) if i % 2 == 0 else (F, D)))) for i in range(4)]
    def dot8(x, w):
        (a, sa), (b, sb) = quantise(x), w
        return (a.astype(BF) * sa.astype(BF)) @ (b.astype(BF) * sb.astype(BF))
    @jax.jit
    def f(x, ws):
        for up, down in zip(ws[::2], ws[1::2]): x = rms(x + dot8(jax.nn.gelu(dot8(x, up)), down))
        return x
    x = rnd(9, M, D, scale=1)
    return lambda: f(x, ws)


def ensemble():
    """Sixteen networks trained at once by vmap."""
    E, B, D = n(16, 2), n(4096, 16), n(512, 16)
    p = [rnd(i, E, D, D) for i in range(4)]
    def one(p, x, y):
        for w in p: x = jnp.tanh(x @ w)
        return jnp.mean((x - y).astype(F32) ** 2)
    return trained(lambda p, x, y: jax.vmap(one, (0, None, None))(p, x, y).sum(), p, rnd(8, B, D, scale=1), rnd(9, B, D, scale=1))


def dropout(fixed=False):
    """FAULT: dropout by threefry over all hidden activations costs about as much as the products."""
    T, D, F, L = n(16384, 32), n(2048, 16), n(8192, 32), 3
    p = [(rnd(i, D, F), rnd(i + 10, F, D)) for i in range(L)]
    make = (lambda s: jax.random.key(s, impl="rbg")) if fixed else jax.random.key
    def drop(key, x): return jnp.where(jax.random.bernoulli(key, 0.9, x.shape), x / 0.9, 0).astype(x.dtype)
    def loss(p, x, key):
        for (up, down), k in zip(p, jax.random.split(key, L)):
            a, b = jax.random.split(k)
            x = x + drop(b, drop(a, jax.nn.gelu(rms(x) @ up)) @ down)
        return jnp.mean(jnp.square(x.astype(F32)))
    return trained(loss, p, rnd(30, T, D, scale=1), make(7))


def quantile_clip(fixed=False):
    """FAULT: gradients are clipped at their 99th percentile, for which all of them are sorted."""
    T, D, L = n(8192, 32), n(4096, 16), 3
    p = [rnd(i, D, D) for i in range(L)]
    def loss(p, x):
        for w in p: x = x + jax.nn.gelu(rms(x) @ w)
        return jnp.mean(jnp.square(x.astype(F32)))
    def f(p, x):
        l, g = jax.value_and_grad(loss)(p, x)
        flat = jnp.concatenate([jnp.abs(a.astype(F32)).ravel() for a in g])
        if fixed: flat = flat[::1024]
        q = jnp.quantile(flat, 0.99)
        return sgd(p, jax.tree.map(lambda a: jnp.clip(a, -q.astype(BF), q.astype(BF)), g)), l
    return stateful(f, p, rnd(9, T, D, scale=1))


def poisson_f64():
    """Conjugate gradients on a 3-D grid in f64, until the residual is small: a loop of unknown length."""
    jax.config.update("jax_enable_x64", True)
    N = n(224, 8)
    def A(u):
        q = jnp.pad(u, 1)
        return 6 * u - q[2:, 1:-1, 1:-1] - q[:-2, 1:-1, 1:-1] - q[1:-1, 2:, 1:-1] - q[1:-1, :-2, 1:-1] - q[1:-1, 1:-1, 2:] - q[1:-1, 1:-1, :-2]
    @jax.jit
    def f(b):
        def body(s):
            x, r, d, rr, i = s
            q = A(d); a = rr / jnp.vdot(d, q)
            x, r = x + a * d, r - a * q
            new = jnp.vdot(r, r)
            return x, r, r + new / rr * d, new, i + 1
        rr = jnp.vdot(b, b)
        return lax.while_loop(lambda s: (s[3] > 2e-3 * rr) & (s[4] < 200), body, (jnp.zeros_like(b), b, b, rr, 0))
    b = jnp.asarray(np.random.default_rng(0).standard_normal((N, N, N)))
    return lambda: f(b)


def linear_attention(fixed=False):
    """FAULT: linear attention (no mask) multiplies queries with keys first, which is quadratic in the length."""
    B, T, H, D = n(4, 1), n(4096, 32), n(16, 2), n(64, 8)
    W = H * D
    p = dict(qkv=rnd(0, W, 3 * W), o=rnd(1, W, W))
    phi = lambda x: jax.nn.elu(x) + 1
    @jax.jit
    def f(p, x):
        q, k, v = (a.reshape(B, T, H, D) for a in jnp.split(rms(x) @ p["qkv"], 3, -1))
        q, k = phi(q), phi(k)
        if fixed: y = jnp.einsum("bthd,bhde->bthe", q, jnp.einsum("bshd,bshe->bhde", k, v))
        else: y = jnp.einsum("bhts,bshe->bthe", jnp.einsum("bthd,bshd->bhts", q, k), v)
        z = jnp.einsum("bthd,bhd->bth", q, k.sum(1))
        return x + (y / z[..., None]).reshape(B, T, W) @ p["o"]
    x = rnd(9, B, T, W, scale=1)
    return lambda: f(p, x)


def pallas_norm():
    """A Triton kernel by Pallas (RMS norm, gain and SiLU) without a cost estimate, between products."""
    from jax.experimental import pallas as pl
    T, D, L = n(16384, 32), n(4096, 16), 4
    R = 4
    def kernel(x, g, o):
        a = x[...].astype(F32)
        a = a * lax.rsqrt(jnp.mean(a * a, 1, keepdims=True) + 1e-6) * g[...].astype(F32)[None]
        o[...] = (a * jax.nn.sigmoid(a)).astype(o.dtype)
    kw = {}
    if GPU:
        from jax.experimental.pallas import triton as plt
        kw["compiler_params"] = plt.CompilerParams(num_warps=8)
    norm = pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct((T, D), BF), grid=(T // R,), interpret=not GPU, name="norm_silu",
                          in_specs=[pl.BlockSpec((R, D), lambda i: (i, 0)), pl.BlockSpec((D,), lambda i: (0,))],
                          out_specs=pl.BlockSpec((R, D), lambda i: (i, 0)), **kw)
    ws = [rnd(i, D, D) for i in range(L)]; g = jnp.ones(D, BF)
    @jax.jit
    def f(x, ws, g):
        for w in ws: x = x + norm(x, g) @ w
        return x
    x = rnd(9, T, D, scale=1)
    return lambda: f(x, ws, g)


def accumulate():
    """Gradients accumulated by a scan over 4 large microbatches inside shard_map on one device, fp32 master weights."""
    from jax.sharding import Mesh, PartitionSpec as P
    M, T, D, F = 4, n(8192, 32), n(2048, 16), n(8192, 32)
    mesh = Mesh(np.array(jax.devices()[:1]), ("d",))
    p = [(rnd(i, D, F, dtype=F32), rnd(i + 9, F, D, dtype=F32)) for i in range(2)]
    def loss(p, x):
        for up, down in p: x = x + jax.nn.gelu(rms(x) @ up.astype(BF)) @ down.astype(BF)
        return jnp.mean(jnp.square(x.astype(F32)))
    def f(p, xs):
        def micro(acc, x): return jax.tree.map(jnp.add, acc, jax.grad(loss)(p, x)), None
        g, _ = lax.scan(micro, jax.tree.map(jnp.zeros_like, p), xs)
        g = lax.pmean(g, "d")
        return sgd(p, g), sum(jnp.vdot(a, a) for a in jax.tree.leaves(g))
    f = jax.shard_map(f, mesh=mesh, in_specs=(P(), P(None, "d")), out_specs=(P(), P()), check_vma=False)
    return stateful(f, p, rnd(30, M, T, D, scale=1))


def im2col(fixed=False):
    """FAULT: 3x3 convolutions as patches times a matrix: nine times the activations go through memory."""
    B, H, C, L = n(64, 1), n(64, 8), n(128, 8), 3
    ws = [rnd(i, 3, 3, C, C) for i in range(L)]
    @jax.jit
    def f(x, ws):
        for w in ws:
            if fixed: y = conv(x, w)
            else:
                q = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
                y = jnp.concatenate([q[:, i:i + H, j:j + H] for i in range(3) for j in range(3)], -1) @ w.reshape(9 * C, C)
            x = jax.nn.relu(y) + x
        return x
    x = rnd(9, B, H, H, C, scale=1)
    return lambda: f(x, ws)


def chunked_loss():
    """Cross entropy over a large vocabulary in chunks, with a custom gradient that recomputes nothing twice."""
    T, D, V, K = n(8192, 32), n(2048, 16), n(64000, 64), 8
    @jax.custom_vjp
    def xent(h, w, y): return forward(h, w, y)[0]
    def forward(h, w, y):
        def chunk(carry, hy):
            dw, total = carry
            h, y = hy
            logits = (h @ w).astype(F32)
            lse = jax.nn.logsumexp(logits, -1)
            at = jnp.take_along_axis(logits, y[:, None], 1)[:, 0]
            d = ((jnp.exp(logits - lse[:, None]) - jax.nn.one_hot(y, V)) / T).astype(BF)
            return (dw + jnp.dot(h.T, d, preferred_element_type=F32), total + (lse - at).sum()), d @ w.T
        (dw, total), dh = lax.scan(chunk, (jnp.zeros((D, V), F32), 0.0), (h.reshape(K, -1, D), y.reshape(K, -1)))
        return total / T, (dh.reshape(T, D), dw.astype(BF))
    def back(res, g): return res[0] * g.astype(BF), res[1] * g.astype(BF), None
    xent.defvjp(forward, back)
    p = dict(m=rnd(0, D, D), w=rnd(1, D, V))
    return trained(lambda p, x, y: xent(rms(x @ p["m"]), p["w"], y), p, rnd(2, T, D, scale=1), ids(3, V, T))


PROGRAMS = [moe_ragged, kmeans, table_adam, paged_decode, fft_complex, dropout, ssm, convnext, unet, linear_attention, fp8_mlp, beam_search,
            quantile_clip, gnn, sideways_table, fft_prime, segmentation, spec_verify, im2col, pallas_norm, accumulate, chunked_loss, ensemble,
            gaussian_process, poisson_f64]


def timed(step, steps=9):
    """Median seconds of a step that is waited for, and seconds per step of as many in a row."""
    for _ in range(3): jax.block_until_ready(step())
    each = []
    for _ in range(steps):
        t = time.perf_counter(); jax.block_until_ready(step()); each.append(time.perf_counter() - t)
    t = time.perf_counter()
    for _ in range(steps): out = step()
    jax.block_until_ready(out)
    return statistics.median(each), (time.perf_counter() - t) / steps


def capture(folder, make, steps=5):
    step = make()
    median, row = timed(step)
    options = None
    if hasattr(jax.profiler, "ProfileOptions"):
        options = jax.profiler.ProfileOptions(); options.python_tracer_level = 0
    with tempfile.TemporaryDirectory() as tmp:
        with jax.profiler.trace(tmp, profiler_options=options):
            for i in range(steps):
                with jax.profiler.StepTraceAnnotation("step", step_num=i): out = step()
            jax.block_until_ready(out)
        found = glob.glob(tmp + "/**/*.xplane.pb", recursive=True)[0]
        path = os.path.join(folder, make.__name__ + ".xplane.pb.gz")
        with open(found, "rb") as a, gzip.open(path, "wb", 9) as b: shutil.copyfileobj(a, b)
    return {"median_s": median, "in_a_row_s": row, "bytes": os.path.getsize(path)}


def main():
    folder, names = sys.argv[1], sys.argv[2:]
    os.makedirs(folder, exist_ok=True)
    deadline = float(os.environ.get("DEADLINE", 225))
    chosen = [p for p in PROGRAMS if not names or p.__name__ in names]
    jobs = [(p, False) for p in chosen] + [(p, True) for p in chosen if "fixed" in p.__code__.co_varnames]
    for make, fixed in jobs:
        began = time.time()
        if began - START > deadline: print(json.dumps({"name": make.__name__, "fixed": fixed, "skipped": True}), flush=True); continue
        try:
            if fixed:
                median, row = timed(make(fixed=True))
                got = {"median_s": median, "in_a_row_s": row}
            else: got = capture(folder, make)
            print(json.dumps({"name": make.__name__, "fixed": fixed, **got, "took_s": round(time.time() - began, 1)}), flush=True)
        except Exception as error:
            print(json.dumps({"name": make.__name__, "fixed": fixed, "failed": f"{type(error).__name__}: {str(error)[:600]}"}), flush=True)
        jax.config.update("jax_enable_x64", False)
        jax.clear_caches()
    print(json.dumps({"jax": jax.__version__, "device": str(jax.devices()[0]), "total_s": round(time.time() - START, 1)}), flush=True)


if __name__ == "__main__": main()
