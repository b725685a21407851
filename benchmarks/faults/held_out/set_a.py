"""Set A: fourteen programs with one fault each, made as people make them; fixed=True is the same work without it."""
import functools
import jax, jax.numpy as jnp, numpy as np
from common import BF, F32, n, rnd, sgd, rms, conv, flash, xent

FAULTS = dict(
    speech_features=["idle-input"], loss_scale=["idle-sync"], gae_reverse=["latency"], user_tower=["repeated-operand", "duplicated-work"],
    replay_buffer=["missing-donation"], bag_of_items=["one-hot-product"], where_experts=["dense-experts"], padded_heads=["padding"],
    custom_backward=["recomputation", "duplicated-work"], time_major_cache=["layout-copies"], concat_features=["odd-sizes"],
    bucketed_graph=["padding"], host_latents=["idle-transfer", "host-copies", "idle-sync"], mup_multiplier=["wide-format"])

def speech_features(fixed):
    """A recogniser whose log-mel features are made by numpy between the steps."""
    B, T, M, D = n(8, 2), n(512, 16), 80, n(1024, 32)
    mel = np.abs(np.random.default_rng(0).normal(size=(257, M))).astype(np.float32)
    sound = np.random.default_rng(1).normal(size=(B, T * 160 + 400)).astype(np.float32)
    def log_mel(wave):
        frames = np.lib.stride_tricks.sliding_window_view(wave, 400, axis=1)[:, :T * 160:160]
        power = np.abs(np.fft.rfft(frames, 512)) ** 2  # FAULT
        return np.log(power @ mel + 1e-5).astype(np.float32)  # FAULT
    p = dict(inp=rnd(0, M, D), mix=rnd(1, 4, D, 4 * D), out=rnd(2, 4, 4 * D, D), head=rnd(3, D, 512))
    @functools.partial(jax.jit, donate_argnums=0)
    def train(p, x):
        def loss(p):
            h = x.astype(BF) @ p["inp"]
            for a, b in zip(p["mix"], p["out"]): h = h + jax.nn.silu(rms(h) @ a) @ b
            return jnp.mean((h @ p["head"]).astype(F32) ** 2)
        return sgd(p, jax.grad(loss)(p))
    box, cached = [p], jax.device_put(log_mel(sound))
    def step():
        batch = cached if fixed else log_mel(sound)  # FAULT
        box[0] = train(box[0], batch)
        return box[0]["inp"]
    return step

def loss_scale(fixed):
    """Gradients of eight parts; the host asks of each whether it is finite."""
    B, D, L, parts = n(512, 8), n(2048, 32), 3, 8
    p, x = rnd(0, L, D, D), rnd(1, parts, B, D, scale=1)
    @jax.jit
    def gradient(p, x):
        def loss(p):
            h = x
            for w in p: h = jnp.tanh(h @ w)
            return jnp.sum(h.astype(F32) ** 2)
        return jax.grad(loss)(p)
    @jax.jit
    def finite(g): return jnp.isfinite(g.astype(F32)).all()
    @functools.partial(jax.jit, donate_argnums=0)
    def apply(p, g): return p - 1e-6 * g
    @functools.partial(jax.jit, donate_argnums=0)
    def apply_finite(p, g): return jnp.where(finite(g), p - 1e-6 * g, p)
    box, xs = [p], [x[i] for i in range(parts)]
    def step():
        for part in xs:
            g = gradient(box[0], part)
            if fixed: box[0] = apply_finite(box[0], g)
            elif bool(finite(g)): box[0] = apply(box[0], g)  # FAULT
        return box[0]
    return step

def gae_reverse(fixed):
    """PPO: advantages by a scan over time, of 64 environments, before the update."""
    T, E, O, D = n(1024, 32), n(64, 4), n(128, 8), n(512, 16)
    obs, rewards = rnd(0, T, E, O, scale=1), rnd(1, T, E, dtype=F32, scale=1)
    p = dict(a=rnd(2, O, D), b=rnd(3, D, D), v=rnd(4, D, 1))
    def values(p): return (jnp.tanh(jnp.tanh(obs @ p["a"]) @ p["b"]) @ p["v"])[..., 0].astype(F32)
    def advantages(delta):
        if fixed:
            both = lambda late, early: (late[0] * early[0], early[1] + early[0] * late[1])
            return jax.lax.associative_scan(both, (jnp.full_like(delta, .95), delta), reverse=True)[1]
        def back(carry, d):
            carry = d + .95 * carry
            return carry, carry
        return jax.lax.scan(back, jnp.zeros(E), delta, reverse=True)[1]  # FAULT
    @functools.partial(jax.jit, donate_argnums=0)
    def train(p, rewards):
        v = values(p)
        adv = advantages(rewards + .99 * jnp.roll(v, -1, 0) - v)
        target = jax.lax.stop_gradient(adv + v)
        return sgd(p, jax.grad(lambda p: jnp.mean((values(p) - target) ** 2))(p))
    box = [p]
    def step():
        box[0] = train(box[0], rewards)
        return box[0]["a"]
    return step

def user_tower(fixed):
    """Ranking: the user's features are repeated for each of 16 candidates before the tower."""
    U, K, F, D = n(4096, 16), 16, n(1024, 16), n(2048, 32)
    users, items = rnd(0, U, F, scale=1), rnd(1, U * K, D // 4, scale=1)
    p = dict(a=rnd(2, F, D), b=rnd(3, D, D), c=rnd(4, D, D // 4))
    def tower(p, x): return jax.nn.relu(jax.nn.relu(x @ p["a"]) @ p["b"]) @ p["c"]  # FAULT
    @jax.jit
    def score(p, users, items):
        if fixed: u = jnp.repeat(tower(p, users), K, 0)
        else: u = tower(p, jnp.repeat(users, K, 0))  # FAULT
        return jnp.sum((u * items).astype(F32), -1)
    return lambda: score(p, users, items)

def replay_buffer(fixed):
    """Off-policy RL: a ring buffer on the device, written in every step, not donated."""
    N, O, B, D = n(1 << 18, 256), n(2048, 16), n(2048, 8), n(1024, 16)
    p = dict(a=rnd(0, O, D), b=rnd(1, D, D), q=rnd(2, D, 16))
    fresh = rnd(3, n(256, 4), O, scale=1)
    @functools.partial(jax.jit, donate_argnums=(0, 1) if fixed else 0)  # FAULT
    def train(p, memory, at, fresh, key):
        memory = jax.lax.dynamic_update_slice(memory, fresh, (at, 0))  # FAULT
        x = memory[jax.random.randint(key, (B,), 0, N)]
        def loss(p): return jnp.mean((jax.nn.relu(jax.nn.relu(x @ p["a"]) @ p["b"]) @ p["q"]).astype(F32) ** 2)
        return sgd(p, jax.grad(loss)(p)), memory, (at + fresh.shape[0]) % N, jax.random.split(key)[0]
    box = [(p, jnp.zeros((N, O), BF), jnp.int32(0), jax.random.key(0))]
    def step():
        p, memory, at, key = box[0]
        box[0] = train(p, memory, at, fresh, key)
        return box[0][2]
    return step

def bag_of_items(fixed):
    """Retrieval: the history's embedding is a bag of items, as a many-hot row times the table."""
    B, K, V, D = n(8192, 16), 20, n(32768, 64), n(256, 8)
    history, table = jax.random.randint(jax.random.key(0), (B, K), 0, V), rnd(1, V, D)
    p = dict(a=rnd(2, D, 16 * D), b=rnd(3, 16 * D, D), items=rnd(4, 16 * D, D))
    @jax.jit
    def retrieve(p, table, history):
        if fixed: bag = table[history].sum(1)
        else:
            many = jax.nn.one_hot(history, V, dtype=BF).sum(1)  # FAULT
            bag = many @ table  # FAULT
        h = jax.nn.relu(bag @ p["a"]) @ p["b"]
        return jax.lax.top_k((h @ p["items"].T).astype(F32), 8)
    return lambda: retrieve(p, table, history)

def where_experts(fixed):
    """A vision mixture of eight experts: each is run on all patches and kept where it was chosen."""
    E, N, D, H = 8, n(8192, 64), n(1024, 16), n(4096, 32)
    p = dict(gate=rnd(0, D, E), up=rnd(1, E, D, H), down=rnd(2, E, H, D))
    x = rnd(3, N, D, scale=1)
    def layer(p, x):
        chosen = jnp.argmax((x @ p["gate"]).astype(F32), -1)
        if fixed:
            order = jnp.argsort(chosen)
            rows = x[order].reshape(E, N // E, D)
            y = jnp.einsum("end,edh->enh", rows, p["up"])
            y = jnp.einsum("enh,ehd->end", jax.nn.gelu(y), p["down"]).reshape(N, D)
            return jnp.zeros_like(x).at[order].set(y)
        out = jnp.zeros_like(x)
        for e in range(E):
            y = jax.nn.gelu(x @ p["up"][e]) @ p["down"][e]  # FAULT
            out = jnp.where((chosen == e)[:, None], y, out)  # FAULT
        return out
    @functools.partial(jax.jit, donate_argnums=0)
    def train(p, x):
        return sgd(p, jax.grad(lambda p: jnp.mean((x + layer(p, x)).astype(F32) ** 2))(p))
    box = [p]
    def step():
        box[0] = train(box[0], x)
        return box[0]["gate"]
    return step

def padded_heads(fixed):
    """Heads of 64 filled up to 128 in front of the fused attention, as if it needed that."""
    B, T, H, D = n(8, 1), n(4096, 32), n(16, 2), n(64, 8)
    ws = rnd(0, 2, H * D, 3 * H * D)
    x = rnd(1, B, T, H * D, scale=1)
    def attend(q, k, v):
        if fixed: return flash(q, k, v)
        fill = lambda a: jnp.pad(a, ((0, 0), (0, 0), (0, 0), (0, D)))  # FAULT
        return flash(fill(q) * 2 ** .5, fill(k), fill(v))[..., :D]  # FAULT
    @jax.jit
    def encode(ws, x):
        for w in ws:
            q, k, v = (a.reshape(B, T, H, D) for a in jnp.split(rms(x) @ w, 3, -1))
            x = x + attend(q, k, v).reshape(B, T, H * D)
        return x
    return lambda: encode(ws, x)

def custom_backward(fixed):
    """Layers in a scan, with a backward pass by hand that keeps the input alone and runs the layer again."""
    L, N, D = 6, n(8192, 16), n(2048, 16)
    p, x = dict(a=rnd(0, L, D, 2 * D), b=rnd(1, L, 2 * D, D)), rnd(2, N, D, scale=1)
    def plain(w, x): return x + jnp.tanh(rms(x) @ w["a"]) @ w["b"]
    layer = jax.custom_vjp(plain)
    def forward(w, x): return plain(w, x), (w, x)
    def backward(kept, g): return jax.vjp(plain, *kept)[1](g)  # FAULT
    layer.defvjp(forward, backward)
    use = plain if fixed else layer
    @functools.partial(jax.jit, donate_argnums=0)
    def train(p, x):
        def loss(p):
            h, _ = jax.lax.scan(lambda h, w: (use(w, h), None), x, p)  # FAULT
            return jnp.mean(h.astype(F32) ** 2)
        return sgd(p, jax.grad(loss)(p))
    box = [p]
    def step():
        box[0] = train(box[0], x)
        return box[0]["a"]
    return step

def time_major_cache(fixed):
    """Decoding with grouped queries and a cache whose first axis is time, which is easy to append to."""
    B, T, G, R, D, L = n(32, 2), n(4096, 16), 8, 4, n(128, 8), 2
    W = G * R * D
    ws = dict(q=rnd(0, L, W, W), kv=rnd(1, L, W, 2 * G * D), o=rnd(2, L, W, W))
    shape = (B, G, T, D) if fixed else (T, B, G, D)
    caches = [(rnd(3 + i, *shape), rnd(9 + i, *shape)) for i in range(L)]
    @functools.partial(jax.jit, donate_argnums=1)
    def token(ws, caches, x, at):
        kept = []
        for i, (ks, vs) in enumerate(caches):
            q = (x @ ws["q"][i]).reshape(B, G, R, D)
            k, v = jnp.split((x @ ws["kv"][i]).reshape(B, G, 2 * D), 2, -1)
            if fixed:
                ks = jax.lax.dynamic_update_slice(ks, k[:, :, None], (0, 0, at, 0)); vs = jax.lax.dynamic_update_slice(vs, v[:, :, None], (0, 0, at, 0))
                s = jnp.einsum("bgrd,bgtd->bgrt", q, ks).astype(F32)
                y = jnp.einsum("bgrt,bgtd->bgrd", jax.nn.softmax(s).astype(BF), vs)
            else:
                ks = jax.lax.dynamic_update_slice(ks, k[None], (at, 0, 0, 0)); vs = jax.lax.dynamic_update_slice(vs, v[None], (at, 0, 0, 0))
                s = jnp.einsum("bgrd,tbgd->bgrt", q, ks).astype(F32)  # FAULT
                y = jnp.einsum("bgrt,tbgd->bgrd", jax.nn.softmax(s).astype(BF), vs)  # FAULT
            x = rms(x + y.reshape(B, W) @ ws["o"][i])
            kept.append((ks, vs))
        return kept, x, (at + 1) % T
    box = [(caches, rnd(20, B, W, scale=1), jnp.int32(0))]
    def step():
        caches, x, at = box[0]
        box[0] = token(ws, caches, x, at)
        return box[0][1]
    return step

def concat_features(fixed):
    """DLRM: 13 dense features beside the embeddings make rows of 1037."""
    B, D, H = n(32768, 16), n(1024, 16), n(4096, 32)
    K = D + 13
    dense, emb = rnd(0, B, 13, scale=1), rnd(1, B, D, scale=1)
    more = 51 if fixed else 0
    p = dict(a=rnd(2, K + more, H), b=rnd(3, H, 256))
    @jax.jit
    def score(p, dense, emb):
        x = jnp.concatenate([dense, emb] + [jnp.zeros((B, more), BF)] * fixed, -1)  # FAULT
        return jax.nn.relu(x @ p["a"]) @ p["b"]  # FAULT
    return lambda: score(p, dense, emb)

def bucketed_graph(fixed):
    """A graph network: node rows are written into a zero buffer of twice the number, for one compiled shape."""
    N, F, E = n(30000, 24), n(1024, 16), n(120000, 48)
    P = N if fixed else 2 * N
    nodes = rnd(0, N, F, scale=1)
    src, dst = (jax.random.randint(jax.random.key(i), (E,), 0, N) for i in (1, 2))
    p = dict(a=rnd(3, 3, F, 2 * F), b=rnd(4, 3, 2 * F, F))
    @jax.jit
    def predict(p, nodes, src, dst):
        h = jnp.zeros((P, F), BF).at[:N].set(nodes)  # FAULT
        for a, b in zip(p["a"], p["b"]):
            h = h + jax.nn.relu(rms(h) @ a) @ b  # FAULT
        messages = jax.ops.segment_sum(h[src][:, :64], dst, P)
        return (h[:, :64] + messages)[:N]
    return lambda: predict(p, nodes, src, dst)

def host_latents(fixed):
    """Diffusion sampling that keeps the latents as a numpy array between the steps."""
    B, H, C = n(16, 2), n(64, 8), n(128, 8)
    p = [rnd(i, 3, 3, C, C) for i in range(4)]
    @jax.jit
    def denoise(p, x):
        h = x.astype(BF)
        for w in p: h = h + conv(jax.nn.silu(h), w)
        return x - .1 * h.astype(F32)
    box = [rnd(9, B, H, H, C, dtype=F32, scale=1)]
    def step():
        x = box[0]
        for _ in range(2):
            x = denoise(p, x)
            if not fixed: x = np.asarray(x)  # FAULT
        box[0] = x
        return x
    return step

def mup_multiplier(fixed):
    """A language model under muP: a numpy scalar multiplies the hidden states, and the products behind it are fp32."""
    N, D, V, L = n(8192, 16), n(2048, 16), n(16384, 64), 4
    p = dict(up=rnd(0, L, D, 4 * D), down=rnd(1, L, 4 * D, D), out=rnd(2, D, V))
    x, y = rnd(3, N, D, scale=1), jax.random.randint(jax.random.key(4), (N,), 0, V)
    scale = .5 if fixed else np.float32(.5)  # FAULT
    @functools.partial(jax.jit, donate_argnums=0)
    def train(p, x, y):
        def loss(p):
            h = x
            for a, b in zip(p["up"], p["down"]):
                u = rms(h) * scale  # FAULT
                h = (h + jax.nn.silu(u @ a) @ b).astype(BF)  # FAULT
            return xent(rms(h) @ p["out"], y)
        return sgd(p, jax.grad(loss)(p))
    box = [p]
    def step():
        box[0] = train(box[0], x, y)
        return box[0]["out"]
    return step
