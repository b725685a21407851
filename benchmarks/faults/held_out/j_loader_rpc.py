# Requests come one by one from a (simulated) queue; recorded without Python calls.
import os, sys, time
import jax, jax.numpy as jnp
import numpy as np
import gate
FIXED = "--fixed" in sys.argv; S = int(os.environ.get("SHRINK", 1))

class Queue:
    def __init__(self, wait): self.wait = wait
    def __iter__(self): return self
    def __next__(self):
        time.sleep(self.wait)
        return np.full((64, 1024 // S), 0.5, np.float32)

def scores(ws, x):
    for w in ws: x = jnp.tanh(x @ w)
    return x.sum(-1)

gate.compiling()
ws = [jax.random.normal(jax.random.PRNGKey(n), (1024 // S,) * 2) * 0.03 for n in range(24)]
run = jax.jit(scores)
for i, x in enumerate(Queue(1e-6 if FIXED else 0.005)):
    if i == 1: gate.measuring()
    if i == 3: begun = time.perf_counter()
    with jax.profiler.StepTraceAnnotation("serve", step_num=i):
        out = run(ws, x)
    if i == 8: break
out.block_until_ready()
print("STEP_MS", (time.perf_counter() - begun) / 6 * 1e3); gate.done()
