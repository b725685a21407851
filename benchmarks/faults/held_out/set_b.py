"""Set B, kept unread until the rules are done: thirteen programs with one fault each; fixed=True is the same work without it."""
import functools
import jax, jax.numpy as jnp, numpy as np
from common import BF, F32, SMALL, n, rnd, sgd, rms, conv, flash, xent

FAULTS = dict(
    tokenised_text=["idle-input"], gym_rollout=["idle-callback"], growing_prompt=["idle-compile"], augment_each=["idle-dispatch"],
    layer_heads=["unused-results"], edge_messages=["repeated-operand", "duplicated-work"], loss_then_grad=["duplicated-work"],
    prompt_loop=["low-batch", "latency"], lora_delta=["product-order"], augment_chain=["unfused-chain"], local_window=["stored-attention"],
    spectral_norms=["latency"], interactions=["layout-copies"])

def tokenised_text(fixed):
    """Text is split and looked up word by word in front of each step."""
    B, T, V, D = n(64, 2), n(512, 8), 4096, n(256, 16)
    first, rest = {c: i for i, c in enumerate("abcdefgh")}, {str(i): i for i in range(512)}
    text = [" ".join("abcdefgh"[(i + j) % 8] + str((i * 7919 + j * 104729) % 512) for j in range(T)) for i in range(B)]
    def encode(line):
        return [first[word[:1]] * 512 + rest[word[1:]] if word[:1] in first and word[1:] in rest else 0 for word in line.split(" ")]  # FAULT
    def collate(lines): return np.array([encode(line) for line in lines], np.int32)  # FAULT
    p = dict(emb=rnd(0, V, D), up=rnd(1, 2, D, 4 * D), down=rnd(2, 2, 4 * D, D))
    @functools.partial(jax.jit, donate_argnums=0)
    def train(p, ids):
        def loss(p):
            h = p["emb"][ids.reshape(-1)]
            for a, b in zip(p["up"], p["down"]): h = h + jax.nn.gelu(rms(h) @ a) @ b
            return xent(rms(h) @ p["emb"].T, jnp.roll(ids, -1, 1).reshape(-1))
        return sgd(p, jax.grad(loss)(p))
    box, kept = [p], jax.device_put(collate(text))
    def step():
        ids = kept if fixed else collate(text)  # FAULT
        box[0] = train(box[0], ids)
        return box[0]["emb"]
    return step

def gym_rollout(fixed):
    """RL: the environment is Python code behind a callback, in a scan on the device."""
    E, O, D, T = n(256, 4), n(64, 8), n(1024, 16), n(16, 3)
    p = dict(a=rnd(0, O, D, dtype=F32), b=rnd(1, D, D, dtype=F32), c=rnd(2, D, O, dtype=F32))
    def physics(state, action): return np.asarray(np.tanh(.9 * np.asarray(state) + .1 * np.asarray(action)), np.float32)
    def environment(state, action):
        if fixed: return jnp.tanh(.9 * state + .1 * action)
        return jax.pure_callback(physics, jax.ShapeDtypeStruct(state.shape, F32), state, action)  # FAULT
    @jax.jit
    def rollout(p, state):
        def act(state, _):
            h = jnp.tanh(state @ p["a"])
            for _ in range(4): h = jnp.tanh(h @ p["b"])
            state = environment(state, h @ p["c"])
            return state, state.mean()
        return jax.lax.scan(act, state, None, T)
    state = rnd(4, E, O, dtype=F32, scale=1)
    return lambda: rollout(p, state)

def growing_prompt(fixed):
    """Generation: the ids are joined with each new one, so that every step has a new shape."""
    V, D, T = n(4096, 64), n(1024, 16), 64
    p = dict(emb=rnd(0, V, D), up=rnd(1, D, 4 * D), down=rnd(2, 4 * D, D))
    @jax.jit
    def following(p, ids, length):
        h = p["emb"][ids]
        h = h + jnp.cumsum(h.astype(F32), 1).astype(BF) * .01
        h = h + jax.nn.gelu(h @ p["up"]) @ p["down"]
        return jnp.argmax((h @ p["emb"].T)[:, length - 1], -1)
    ids = jnp.zeros((16, T), jnp.int32)
    box = [(ids, T)]
    if fixed: box = [(jnp.zeros((16, 2 * T), jnp.int32), T)]
    write = jax.jit(lambda ids, new, at: jax.lax.dynamic_update_slice(ids, new[:, None].astype(ids.dtype), (0, at)), donate_argnums=0)
    def step():
        ids, length = box[0]
        new = following(p, ids, length)  # FAULT
        if fixed: ids = write(ids, new, length)
        else: ids = jnp.concatenate([ids, new[:, None].astype(ids.dtype)], 1)  # FAULT
        box[0] = (ids, length + 1)
        return ids
    return step

def augment_each(fixed):
    """Vision: a jitted augmentation is called for one image after the other."""
    B, H, C, D = n(128, 4), n(64, 8), 3, n(64, 8)
    images = rnd(0, B, H, H, C, dtype=F32, scale=1)
    singles = [images[i] for i in range(B)]
    def one(image, seed):
        key = jax.random.key(seed)
        image = jnp.where(jax.random.bernoulli(key), image[:, ::-1], image)
        return (image - image.mean((0, 1))) * (1 + .1 * jax.random.normal(key))
    single, batch = jax.jit(one), jax.jit(jax.vmap(one))
    p = [rnd(1, 3, 3, C, D), rnd(2, 3, 3, D, D), rnd(3, 3, 3, D, D)]
    @jax.jit
    def features(p, x):
        h = x.astype(BF)
        for w in p: h = jax.nn.relu(conv(h, w))
        return h.astype(F32).mean((1, 2))
    join = jax.jit(lambda *rows: jnp.stack(rows))
    def step():
        if fixed: x = batch(images, np.arange(B))
        else: x = join(*[single(image, i) for i, image in enumerate(singles)])  # FAULT
        return features(p, x)
    return step

def layer_heads(fixed):
    """A detection decoder for serving: each layer's class scores are stacked as in training, the last are returned."""
    B, Q, D, V, L = n(64, 2), n(300, 8), n(512, 16), n(8192, 32), 6
    p = dict(up=rnd(0, L, D, 4 * D), down=rnd(1, L, 4 * D, D))
    head, x = rnd(2, D, V), rnd(3, B * Q, D, scale=1)
    @jax.jit
    def detect(p, head, x):
        def layer(h, w):
            h = h + jax.nn.relu(rms(h) @ w["up"]) @ w["down"]
            return h, (None if fixed else rms(h) @ head)  # FAULT
        h, scores = jax.lax.scan(layer, x, p)
        last = rms(h) @ head if fixed else scores[-1]  # FAULT
        return jax.nn.sigmoid(last)
    return lambda: detect(p, head, x)

def edge_messages(fixed):
    """A graph network: node features are gathered for eight times as many edges and then multiplied."""
    N, K, F, D = n(40000, 16), 8, n(1024, 16), n(1024, 16)
    x = rnd(0, N, F, scale=1)
    src, dst = jax.random.randint(jax.random.key(1), (N * K,), 0, N), jnp.repeat(jnp.arange(N), K)
    ws = rnd(2, 3, F, D)
    @jax.jit
    def convolve(ws, x, src, dst):
        for w in ws:
            messages = (x @ w)[src] if fixed else x[src] @ w  # FAULT
            x = rms(x + jax.nn.relu(messages).reshape(N, K, D).sum(1))
        return x
    return lambda: convolve(ws, x, src, dst)

def loss_then_grad(fixed):
    """A classifier: the loss is computed for the log, and then again on the way to the gradients."""
    B, H, C, L = n(64, 2), n(56, 8), n(256, 8), 4
    p = dict(convs=[rnd(i, 3, 3, C, C) for i in range(L)], head=rnd(9, C, 1024))
    x, y = rnd(10, B, H, H, C, scale=1), jax.random.randint(jax.random.key(11), (B,), 0, 1024)
    def objective(p, x, y):
        h = x
        for w in p["convs"]: h = h + conv(jax.nn.relu(h), w)
        return xent(h.mean((1, 2)) @ p["head"], y)
    measure, slope = jax.jit(objective), jax.jit(jax.grad(objective))
    both = jax.jit(jax.value_and_grad(objective))
    update = jax.jit(sgd, donate_argnums=0)
    box = [p]
    def step():
        if fixed: loss, g = both(box[0], x, y)
        else:
            loss = measure(box[0], x, y)  # FAULT
            g = slope(box[0], x, y)  # FAULT
        box[0] = update(box[0], g)
        return loss
    return step

def prompt_loop(fixed):
    """Serving: a prompt goes through a recurrent model one token after the other, though its products need not."""
    B, T, D, L = 1, n(64, 4), n(4096, 16), 4
    p = dict(a=rnd(0, L, D, D), b=rnd(1, L, D, D), decay=rnd(2, L, D, dtype=F32))
    prompt = rnd(3, T, D, scale=1)
    def state(decay, u, h0):
        a = jnp.broadcast_to(jax.nn.sigmoid(decay), u.shape)
        return jax.lax.associative_scan(lambda l, r: (l[0] * r[0], r[1] + r[0] * l[1]), (a, u))[1] + 0 * h0
    @jax.jit
    def parallel(p, prompt):
        x = prompt
        for i in range(L):
            u = (rms(x) @ p["a"][i]).astype(F32)
            x = x + jnp.tanh(state(p["decay"][i], u, 0.)).astype(BF) @ p["b"][i]
        return x[-1]
    @jax.jit
    def looped(p, prompt):
        def token(hs, x):
            new = []
            for i in range(L):
                h = jax.nn.sigmoid(p["decay"][i]) * hs[i] + (rms(x) @ p["a"][i]).astype(F32)  # FAULT
                x = x + jnp.tanh(h).astype(BF) @ p["b"][i]  # FAULT
                new.append(h)
            return jnp.stack(new), x
        return jax.lax.scan(token, jnp.zeros((L, D)), prompt)[1][-1]  # FAULT
    return lambda: (parallel if fixed else looped)(p, prompt)

def lora_delta(fixed):
    """Fine-tuning: the two low-rank factors are multiplied first, and the wide result with the tokens."""
    N, D, R, L = n(16384, 16), n(4096, 16), 16, 2
    frozen, p, x = rnd(0, L, D, D), dict(a=rnd(1, L, D, R), b=rnd(2, L, R, D)), rnd(3, N, D, scale=1)
    @functools.partial(jax.jit, donate_argnums=0)
    def train(p, frozen, x):
        def loss(p):
            h = x
            for w, a, b in zip(frozen, p["a"], p["b"]):
                delta = (h @ a) @ b if fixed else h @ (a @ b)  # FAULT
                h = jnp.tanh(h @ w + delta)
            return jnp.mean(h.astype(F32) ** 2)
        return sgd(p, jax.grad(loss)(p))
    box = [p]
    def step():
        box[0] = train(box[0], frozen, x)
        return box[0]["a"]
    return step

def augment_chain(fixed):
    """Vision: each augmentation of the batch is a jitted function of its own."""
    B, H, C = n(512, 2), n(224, 16), 3
    images = rnd(0, B, H, H, C, dtype=F32, scale=1)
    w = rnd(1, 16 * 16 * C, 512)
    def brighten(x): return x * 1.1 + .05
    def contrast(x): return jnp.clip((x - .5) * 1.2 + .5, -3, 3)
    def gamma(x): return jnp.sign(x) * jnp.abs(x) ** .9
    def solarise(x): return jnp.where(x > 2, 4 - x, x)
    def normalise(x): return (x - jnp.array([.48, .45, .4])) / jnp.array([.22, .22, .22])
    def cut(x): return jnp.where((jnp.arange(H) // 32 % 7 == 3)[:, None, None], 0., x)
    @jax.jit
    def patches(x, w):
        x = x.astype(BF).reshape(B, H // 16, 16, H // 16, 16, C).transpose(0, 1, 3, 2, 4, 5)
        return jax.nn.relu(x.reshape(-1, 16 * 16 * C) @ w)
    chain = [brighten, contrast, gamma, solarise, normalise, cut]
    jitted = [jax.jit(f) for f in chain]
    whole = jax.jit(lambda x: functools.reduce(lambda x, f: f(x), chain, x))
    def step():
        if fixed: x = whole(images)
        else:
            x = images
            for f in jitted: x = f(x)  # FAULT
        return patches(x, w)
    return step

def local_window(fixed):
    """An audio encoder with windows of 256, as a mask on all scores."""
    B, T, H, D, W = n(4, 1), n(4096, 64), n(16, 2), n(64, 8), n(256, 16)
    q, k, v = (rnd(i, B, T, H, D, scale=1) for i in range(3))
    w = rnd(4, H * D, H * D)
    def near(q, k, v):
        block = lambda a: a.reshape(B, T // W, W, H, D)
        s = jnp.einsum("bnqhd,bnkhd->bnhqk", block(q), block(k)).astype(F32) * D ** -.5
        return jnp.einsum("bnhqk,bnkhd->bnqhd", jax.nn.softmax(s).astype(BF), block(v)).reshape(B, T, H * D)
    def masked(q, k, v):
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(F32) * D ** -.5  # FAULT
        at = jnp.arange(T) // W
        s = jnp.where(at[:, None] == at[None], s, -1e9)  # FAULT
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s).astype(BF), v).reshape(B, T, H * D)  # FAULT
    @jax.jit
    def encode(w, q, k, v): return jnp.tanh((near if fixed else masked)(q, k, v) @ w)
    return lambda: encode(w, q, k, v)

def spectral_norms(fixed):
    """A GAN's critic: power iterations for each of 48 weights by itself, every one a few tiny kernels."""
    L, D, B = n(48, 3), n(256, 8), n(4096, 8)
    ws, us, x = rnd(0, L, D, D, dtype=F32), rnd(1, L, D, dtype=F32, scale=1), rnd(2, B, D, scale=1)
    def sigma(w, u):
        for _ in range(4):
            v = w @ u  # FAULT
            v = v / jnp.linalg.norm(v)
            u = v @ w  # FAULT
            u = u / jnp.linalg.norm(u)
        return v @ w @ u
    @jax.jit
    def criticise(ws, us, x):
        if fixed: s = jax.vmap(sigma)(ws, us)
        else: s = jnp.stack([sigma(w, u) for w, u in zip(ws, us)])  # FAULT
        h = x
        for i in range(8): h = jax.nn.relu(h @ (ws[i] / s[i]).astype(BF))
        return h.astype(F32).mean() + s.sum()
    return lambda: criticise(ws, us, x)

def interactions(fixed):
    """Ranking: the embeddings arrive feature by feature, and the pairwise products are batched over their second axis."""
    F, B, D = n(64, 8), n(65536, 32), n(128, 8)
    rows = rnd(0, *((B, F, D) if fixed else (F, B, D)), scale=1)
    w = rnd(1, F * F, 128)
    @jax.jit
    def rank(rows, w):
        if fixed: pairs = jnp.einsum("bfd,bgd->bfg", rows, rows)
        else: pairs = jnp.einsum("fbd,gbd->bfg", rows, rows)  # FAULT
        return jax.nn.relu(pairs.reshape(B, F * F) @ w)
    return lambda: rank(rows, w)
