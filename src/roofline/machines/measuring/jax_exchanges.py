"""Exchanges between the devices of JAX: copies from one to another, and all-reduces over all of them."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from .jax_timing import FEW, WAIT, Work

WORD = 4
AXES: Callable[..., Any] = jax.sharding.PartitionSpec  # has no type annotations in JAX


def copy_rates(devices: Sequence[Any], size: int, seconds: float) -> dict[str, Any]:
    """B/s of copies of ``size`` bytes from the first device to the second."""
    source = WAIT(jax.device_put(jnp.ones(size, jnp.uint8), devices[0]))
    WAIT(jax.device_put(source, devices[1]))
    times, end = list[float](), time.monotonic() + seconds
    while len(times) < FEW or time.monotonic() < end:
        began = time.perf_counter()
        WAIT(jax.device_put(source, devices[1]))
        times.append(time.perf_counter() - began)
    return {"rates": [size / each for each in times], "how": "copies between two devices"}


def all_reduce_seconds(devices: Sequence[Any], size: int, timed: Callable[[Work], list[float]]) -> dict[str, Any]:
    """Seconds of an all-reduce of ``size`` bytes per device; ``timed`` returns those of each try."""
    words = max(1, size // WORD)
    mesh = jax.sharding.Mesh(devices, ("devices",))
    one_row_each, everywhere = (jax.sharding.NamedSharding(mesh, AXES(*names)) for names in (("devices",), ()))
    rows = WAIT(jax.device_put(jnp.ones((len(devices), words), jnp.float32), one_row_each))
    run = jax.jit(lambda each: each.sum(0), out_shardings=everywhere)  # one row per device, so that the sum is only an all-reduce
    # the devices of a CPU share its threads: with two all-reduces on their way, each may wait for a thread that the other holds, for ever
    work = (lambda: WAIT(run(rows))) if devices[0].platform == "cpu" else (lambda: run(rows))
    how = f"all-reduce by XLA over {len(devices)} devices"
    return {"seconds": timed(work), "how": how, "bytes": WORD * words, "devices": len(devices)}
