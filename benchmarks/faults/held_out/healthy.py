"""Healthy programs: an expert would leave them alone. The first three go with set A, the others with set B."""
import functools
import jax, jax.numpy as jnp, numpy as np
from common import BF, F32, n, rnd, sgd, rms, conv, flash, xent

def trained(loss, p, *data):
    """Adam as libraries write it: fp32 moments, bias correction, decoupled decay, all donated."""
    def update(p, m, v, t, *data):
        value, g = jax.value_and_grad(loss)(p, *data)
        t = t + 1
        m = jax.tree.map(lambda m, g: .9 * m + .1 * g.astype(F32), m, g)
        v = jax.tree.map(lambda v, g: .99 * v + .01 * g.astype(F32) ** 2, v, g)
        def new(p, m, v): return (p - 1e-4 * (m / (1 - .9 ** t) / (jnp.sqrt(v / (1 - .99 ** t)) + 1e-8) + .01 * p)).astype(p.dtype)
        return jax.tree.map(new, p, m, v), m, v, t, value
    run = jax.jit(update, donate_argnums=(0, 1, 2, 3))
    zeros = lambda: jax.tree.map(lambda a: jnp.zeros(a.shape, F32), p)
    box = [(p, zeros(), zeros(), jnp.float32(0))]
    def step():
        *state, value = run(*box[0], *data)
        box[0] = tuple(state)
        return value
    return step

def healthy_flash_lm():
    B, T, H, D, L, V = n(8, 1), n(2048, 16), n(16, 2), n(128, 8), 4, n(32000, 64)
    W = H * D
    p = dict(emb=rnd(0, V, W), qkv=rnd(1, L, W, 3 * W), o=rnd(2, L, W, W), gate=rnd(3, L, W, 2 * W), up=rnd(4, L, W, 2 * W), down=rnd(5, L, 2 * W, W))
    ids = jax.random.randint(jax.random.key(9), (B, T), 0, V)
    def loss(p, ids):
        h = p["emb"][ids]
        for i in range(L):
            q, k, v = (a.reshape(B, T, H, D) for a in jnp.split(rms(h) @ p["qkv"][i], 3, -1))
            h = h + flash(q, k, v, True).reshape(B, T, W) @ p["o"][i]
            u = rms(h)
            h = h + (jax.nn.silu(u @ p["gate"][i]) * (u @ p["up"][i])) @ p["down"][i]
        return xent((rms(h) @ p["emb"].T).reshape(B * T, V), jnp.roll(ids, -1, 1).reshape(-1))
    return trained(loss, p, ids)

def healthy_detector():
    B, H, C = n(32, 1), n(128, 16), n(128, 8)
    p = dict(stem=rnd(0, 3, 3, 8, C), c2=rnd(1, 3, 3, C, 2 * C), c3=rnd(2, 3, 3, 2 * C, 4 * C), lat=rnd(3, 1, 1, 2 * C, 2 * C), top=rnd(4, 1, 1, 4 * C, 2 * C), out=rnd(5, 3, 3, 2 * C, 64))
    x, y = rnd(6, B, H, H, 8, scale=1), rnd(7, B, H // 2, H // 2, 64, scale=1)
    def loss(p, x, y):
        c1 = jax.nn.relu(conv(x, p["stem"]))
        c2 = jax.nn.relu(conv(c1, p["c2"], 2))
        c3 = jax.nn.relu(conv(c2, p["c3"], 2))
        top = conv(c3, p["top"])
        wide = jnp.broadcast_to(top[:, :, None, :, None], (B, H // 4, 2, H // 4, 2, 2 * C)).reshape(B, H // 2, H // 2, 2 * C)
        return jnp.mean((conv(jax.nn.relu(conv(c2, p["lat"]) + wide), p["out"]) - y).astype(F32) ** 2)
    return trained(loss, p, x, y)

def healthy_batched_decode():
    B, T, G, R, D, L = n(128, 2), n(2048, 16), 8, 4, n(128, 8), 2
    W = G * R * D
    ws = dict(q=rnd(0, L, W, W), kv=rnd(1, L, W, 2 * G * D), o=rnd(2, L, W, W), up=rnd(3, L, W, 2 * W), down=rnd(4, L, 2 * W, W))
    caches = [(rnd(5 + i, B, G, T, D), rnd(9 + i, B, G, T, D)) for i in range(L)]
    @functools.partial(jax.jit, donate_argnums=(1, 2))
    def token(ws, caches, x, at):
        kept = []
        for i, (ks, vs) in enumerate(caches):
            u = rms(x)
            q = (u @ ws["q"][i]).reshape(B, G, R, D)
            k, v = jnp.split((u @ ws["kv"][i]).reshape(B, G, 1, 2 * D), 2, -1)
            ks = jax.lax.dynamic_update_slice(ks, k, (0, 0, at, 0)); vs = jax.lax.dynamic_update_slice(vs, v, (0, 0, at, 0))
            s = jnp.einsum("bgrd,bgtd->bgrt", q, ks).astype(F32) * D ** -.5
            s = jnp.where(jnp.arange(T) <= at, s, -1e9)
            x = x + jnp.einsum("bgrt,bgtd->bgrd", jax.nn.softmax(s).astype(BF), vs).reshape(B, W) @ ws["o"][i]
            x = x + jax.nn.silu(rms(x) @ ws["up"][i]) @ ws["down"][i]
            kept.append((ks, vs))
        return kept, x, (at + 1) % T
    box = [(caches, rnd(20, B, W, scale=1), jnp.int32(T - 64 if T > 64 else 0))]
    def step():
        caches, x, at = box[0]
        box[0] = token(ws, caches, x, at)
        return box[0][2]
    return step

def healthy_ssm():
    B, T, D, L = n(8, 1), n(2048, 16), n(2048, 16), 3
    p = dict(a=rnd(0, L, D, 2 * D), decay=rnd(1, L, D, dtype=F32, scale=1), b=rnd(2, L, D, D))
    x = rnd(3, B, T, D, scale=1)
    def loss(p, x):
        h = x
        for i in range(L):
            u, gate = jnp.split(rms(h) @ p["a"][i], 2, -1)
            a = jnp.broadcast_to(jax.nn.sigmoid(p["decay"][i]).astype(F32), u.shape)
            y = jax.lax.associative_scan(lambda l, r: (l[0] * r[0], r[1] + r[0] * l[1]), (a, u.astype(F32)), axis=1)[1]
            h = h + (y.astype(BF) * jax.nn.silu(gate)) @ p["b"][i]
        return jnp.mean(h.astype(F32) ** 2)
    return trained(loss, p, x)

def healthy_ppo():
    N, O, D, A, parts = n(32768, 64), n(256, 8), n(2048, 16), 18, 4
    p = dict(a=rnd(0, O, D), b=rnd(1, D, D), c=rnd(2, D, D), pi=rnd(3, D, 32), v=rnd(4, D, 32))
    obs, acts = rnd(5, parts, N // parts, O, scale=1), jax.random.randint(jax.random.key(6), (parts, N // parts), 0, A)
    adv, old = rnd(7, parts, N // parts, dtype=F32, scale=1), rnd(8, parts, N // parts, dtype=F32, scale=1)
    def loss(p, obs, acts, adv, old):
        h = jnp.tanh(jnp.tanh(jnp.tanh(obs @ p["a"]) @ p["b"]) @ p["c"])
        logp = jax.nn.log_softmax((h @ p["pi"]).astype(F32)[:, :A])
        logp = jnp.take_along_axis(logp, acts[:, None], -1)[:, 0]
        ratio = jnp.exp(logp - jax.lax.stop_gradient(logp) + 0 * old)
        value = (h @ p["v"]).astype(F32)[:, 0]
        return -jnp.mean(jnp.minimum(ratio * adv, jnp.clip(ratio, .8, 1.2) * adv)) + jnp.mean((value - old) ** 2)
    @functools.partial(jax.jit, donate_argnums=0)
    def epoch(p, *data): return jax.lax.scan(lambda p, part: (sgd(p, jax.grad(loss)(p, *part)), None), p, data)[0]
    box = [p]
    def step():
        box[0] = epoch(box[0], obs, acts, adv, old)
        return box[0]["a"]
    return step

def healthy_dlrm():
    B, F, V, D = n(16384, 8), 16, n(1 << 20, 64), n(128, 8)
    tables = rnd(0, V, D, dtype=F32)
    ids = jax.random.randint(jax.random.key(1), (B, F), 0, V)
    dense = rnd(2, B, n(512, 8), scale=1)
    p = dict(bot=rnd(3, n(512, 8), D), a=rnd(4, F * D + D, n(2048, 16)), b=rnd(5, n(2048, 16), n(2048, 16)), c=rnd(6, n(2048, 16), 16))
    def score(p, rows, dense):
        x = jnp.concatenate([rows.astype(BF).reshape(B, F * D), jax.nn.relu(dense @ p["bot"])], -1)
        return jnp.mean((jax.nn.relu(jax.nn.relu(x @ p["a"]) @ p["b"]) @ p["c"]).astype(F32) ** 2)
    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def train(p, tables, ids, dense):
        g, rows = jax.grad(score, (0, 1))(p, tables[ids], dense)
        return sgd(p, g), tables.at[ids].add(-1e-3 * rows)
    box = [(p, tables)]
    def step():
        box[0] = train(*box[0], ids, dense)
        return box[0][0]["c"]
    return step

HEALTHY = [healthy_flash_lm, healthy_detector, healthy_batched_decode, healthy_ssm, healthy_ppo, healthy_dlrm]
