"""What ran for the captures in this folder: ``python captured.py one|four OUT`` on any computer (JAX 0.10)."""

import os
import sys

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

kind, out = sys.argv[1:3]
if kind == "four":
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"  # read when the first device is asked for


def step(x, a, b):
    """A loop of three, a conditional, a sort."""
    y = jax.lax.scan(lambda x, _: (x + jnp.tanh(x @ a) @ b, None), x, None, length=3)[0]
    y = jax.lax.cond(y[0, 0] > 0, lambda y: y @ a, lambda y: jnp.sin(y @ a), y)
    return (y**2).sum(), jnp.sort(x, axis=-1)


x, a, b = jnp.ones((256, 256)), jnp.ones((256, 512)) * 0.01, jnp.ones((512, 256)) * 0.01
if kind == "four":
    mesh = Mesh(jax.devices(), ("d",))
    f = jax.jit(jax.shard_map(lambda x, a: jax.lax.psum(jnp.tanh(x @ a), "d"), mesh=mesh, in_specs=(P("d"), P()), out_specs=P()))
    args = (jax.device_put(x, NamedSharding(mesh, P("d"))), jax.device_put(a, NamedSharding(mesh, P())))
else:
    f, args = jax.jit(step), (x, a, b)
jax.block_until_ready(f(*args))
jax.profiler.start_trace(out)
for number in range(4):
    with jax.profiler.StepTraceAnnotation("train", step_num=number):
        y = f(*args)
jax.block_until_ready(y)
jax.profiler.stop_trace()
