# Mixture of 16 experts, top 2; all experts are computed and weighted with mostly zero gates.
import os, sys, time
import jax, jax.numpy as jnp
import gate
FIXED = "--fixed" in sys.argv; S = int(os.environ.get("SHRINK", 1))
E, K, D, F, T = 16, 2, 1024 // S, 2048 // S, 8192 // S
gate.compiling()
k = jax.random.split(jax.random.PRNGKey(7), 4)
p = dict(router=jax.random.normal(k[0], (D, E)), up=jax.random.normal(k[1], (E, D, F), jnp.bfloat16) * .02, down=jax.random.normal(k[2], (E, F, D), jnp.bfloat16) * .02)
x = jax.random.normal(k[3], (T, D), jnp.bfloat16)

def layer(p, x):
    probs = jax.nn.softmax(x.astype(jnp.float32) @ p["router"])
    top, idx = jax.lax.top_k(probs, K)
    if FIXED:  # every expert takes its share of the tokens, in order
        xs = jnp.broadcast_to(x[None], (K, T, D)).reshape(E, T * K // E, D)
        h = jax.nn.silu(jnp.einsum("etd,edf->etf", xs, p["up"]))
        y = jnp.einsum("etf,efd->etd", h, p["down"]).reshape(K, T, D)
        return (y * top.T[..., None].astype(x.dtype)).sum(0)
    threshold = top[:, -1:]
    gates = jnp.where(probs >= threshold, probs, 0.0).astype(x.dtype)
    h = jax.nn.silu(jnp.einsum("td,edf->etf", x, p["up"]))  # FAULT
    y = jnp.einsum("etf,efd->etd", h, p["down"])  # FAULT
    return jnp.einsum("etd,te->td", y, gates)  # FAULT

def loss(p, x): return jnp.mean(jnp.square((x + layer(p, x)).astype(jnp.float32)))

@jax.jit
def train(p, x):
    g = jax.grad(loss)(p, x)
    return jax.tree.map(lambda a, b: a - (1e-3 * b).astype(a.dtype), p, g)

for i in range(9):
    if i == 1: gate.measuring()
    if i == 3: begun = time.perf_counter()
    with jax.profiler.StepTraceAnnotation("train", step_num=i):
        p = train(p, x)
jax.block_until_ready(p)
print("STEP_MS", (time.perf_counter() - begun) / 6 * 1e3); gate.done()
