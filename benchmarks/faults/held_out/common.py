"""What the programs share: sizes (small ones where SMALL=1), weights, plain optimisers."""
import os
import jax, jax.numpy as jnp, numpy as np
BF, F32 = jnp.bfloat16, jnp.float32
SMALL = bool(os.environ.get("SMALL"))
def n(size, small): return small if SMALL else size
def rnd(seed, *shape, dtype=BF, scale=.02): return (jax.random.normal(jax.random.key(seed), shape, F32) * scale).astype(dtype)
def sgd(p, g, lr=1e-4): return jax.tree.map(lambda a, b: a - (lr * b).astype(a.dtype), p, g)
def rms(x): return x * jax.lax.rsqrt(jnp.mean(x.astype(F32) ** 2, -1, keepdims=True) + 1e-6).astype(x.dtype)
def conv(x, w, s=1): return jax.lax.conv_general_dilated(x, w, (s, s), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
def flash(q, k, v, causal=False):
    """Attention of [B, T, H, D] by the fused kernel where there is one."""
    return jax.nn.dot_product_attention(q, k, v, is_causal=causal, implementation=None if SMALL else "cudnn")
def xent(logits, labels):
    logits = logits.astype(F32)
    return jnp.mean(jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, labels[:, None], -1)[:, 0])
