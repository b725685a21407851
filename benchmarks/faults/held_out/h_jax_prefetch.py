# Healthy: a thread makes the next batch while the device runs.
import os, queue, sys, threading, time
import jax, jax.numpy as jnp, numpy as np
import gate
S = int(os.environ.get("SHRINK", 1))
gate.compiling()
D, B = 4096 // S, 8192 // S
ready = queue.Queue(maxsize=3)
def producer():
    rng = np.random.default_rng(0)
    for _ in range(12):
        ready.put(jax.device_put(rng.standard_normal((64, D)).astype(np.float32)))
threading.Thread(target=producer, daemon=True).start()
ws = [jax.random.normal(jax.random.PRNGKey(n), (D, D), jnp.bfloat16) * .02 for n in range(6)]
def loss(ws, x):
    x = jnp.repeat(x.astype(jnp.bfloat16), B // 64, axis=0)
    for w in ws: x = jax.nn.relu(x @ w)
    return jnp.mean(x.astype(jnp.float32) ** 2)
train = jax.jit(lambda ws, x: [w - 1e-3 * g for w, g in zip(ws, jax.grad(loss)(ws, x))], donate_argnums=0)
for i in range(9):
    if i == 1: gate.measuring()
    if i == 3: begun = time.perf_counter()
    with jax.profiler.StepTraceAnnotation("train", step_num=i):
        ws = train(ws, ready.get())
jax.block_until_ready(ws)
print("STEP_MS", (time.perf_counter() - begun) / 6 * 1e3); gate.done()
