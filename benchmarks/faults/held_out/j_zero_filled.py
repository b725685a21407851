# Utterances of 300 frames are put into a buffer of 1024 inside of the jitted function, for a fixed shape.
import os, sys, time
import jax, jax.numpy as jnp
import gate
FIXED = "--fixed" in sys.argv; S = int(os.environ.get("SHRINK", 1))
gate.compiling()
B, T, FULL, D = 16, 320 // S, 1024 // S, 1024 // S
ws = [jax.random.normal(jax.random.PRNGKey(n), (D, D), jnp.bfloat16) * .03 for n in range(16)]

def acoustic(ws, frames):
    if not FIXED:
        frames = jnp.concatenate([frames, jnp.zeros((B, FULL - T, D), frames.dtype)], axis=1)  # FAULT
    x = frames.reshape(-1, D)
    for w in ws:
        x = jax.nn.relu(x @ w)  # FAULT
    return x.reshape(B, -1, D)[:, :T].sum(axis=1)

run = jax.jit(acoustic)
frames = jnp.ones((B, T, D), jnp.bfloat16)
for i in range(9):
    if i == 1: gate.measuring()
    if i == 3: begun = time.perf_counter()
    with jax.profiler.StepTraceAnnotation("run", step_num=i):
        out = run(ws, frames)
jax.block_until_ready(out)
print("STEP_MS", (time.perf_counter() - begun) / 6 * 1e3); gate.done()
