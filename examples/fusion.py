"""The fusion experiment on the device that JAX uses: LayerNorm, GELU, dropout and an addition as four kernels, as two and as one.

    python examples/fusion.py [ROWS] [COLUMNS]

It prints the predicted speed-up (from the bytes alone, and from the roofline of the compiled programs) beside the measured one, and
explains the gap: how the achieved bandwidth changed, and which stage is limited by its arithmetic when it runs alone. The seeds' array of
268,435,456 bf16 elements is 65536 x 4096; `roofline measure` first gives the rates of this very device.
"""

import statistics
import sys
import time
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

import roofline.jax
from roofline.units import show

Stage = Callable[[jax.Array], jax.Array]
CUTS = ((1, 1, 1, 1), (2, 2), (4,))  # stages in each kernel
TRIES, AT_LEAST_S = 9, 0.02
NEAR = 0.6  # of the memory's rate: a stage above it is limited by memory
SIZES = {"cpu": (2048, 2048), "gpu": (65536, 4096), "tpu": (65536, 4096)}


def layer_norm(x: jax.Array) -> jax.Array:
    wide = x.astype(jnp.float32)
    centred = wide - wide.mean(-1, keepdims=True)
    return (centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)).astype(x.dtype)


def gelu(x: jax.Array) -> jax.Array:
    return jax.nn.gelu(x)


def dropout(x: jax.Array) -> jax.Array:
    return jnp.where(jax.random.bernoulli(jax.random.key(0), 0.9, x.shape), x / 0.9, 0).astype(x.dtype)


def add(x: jax.Array) -> jax.Array:
    return x + x


STAGES: tuple[Stage, ...] = (layer_norm, gelu, dropout, add)


def kernels(cut: Sequence[int]) -> list[Stage]:
    """One compiled function for each group of stages."""
    made, first = [], 0
    for size in cut:
        group = STAGES[first : first + size]
        first += size

        def together(x: jax.Array, group: tuple[Stage, ...] = group) -> jax.Array:
            for stage in group:
                x = stage(x)
            return x

        made.append(jax.jit(together))
    return made


def seconds(run: Callable[[], jax.Array]) -> float:
    """The median time of a call, in tries of many calls."""
    run().block_until_ready()
    began = time.perf_counter()
    run().block_until_ready()
    calls = max(1, round(AT_LEAST_S / (time.perf_counter() - began)))
    times = []
    for _ in range(TRIES):
        began = time.perf_counter()
        for _ in range(calls):
            result = run()
        result.block_until_ready()
        times.append((time.perf_counter() - began) / calls)
    return statistics.median(times)


def apply(functions: Sequence[Stage], x: jax.Array) -> jax.Array:
    for function in functions:
        x = function(x)
    return x


def main(words: Sequence[str]) -> None:
    device = jax.devices()[0]
    rows, columns = (int(word) for word in words) if words else SIZES.get(device.platform, SIZES["cpu"])
    x = jax.random.normal(jax.random.key(1), (rows, columns), jnp.bfloat16)
    whole = x.size * x.dtype.itemsize
    found = []
    for cut in CUTS:
        functions = kernels(cut)
        # A kernel that is compiled alone reads one array and writes one; the reports say what else the compiler made of it.
        reports = [roofline.jax.analyze(function)(x) for function in functions]
        minimum = sum(report.total.floor_s or 0.0 for report in reports if report.total)
        found.append((cut, 2 * whole * len(cut), minimum, seconds(lambda functions=functions: apply(functions, x))))
    alone = {stage.__name__: seconds(lambda stage=kernel: stage(x)) for stage, kernel in zip(STAGES, kernels((1, 1, 1, 1)), strict=True)}
    memory = next(one for one in reports[0].machine.ceilings if one.resource == "hbm")
    peak = float(memory.rate)

    print(
        f"{rows} x {columns} bf16 on {device.device_kind}; memory {show(peak, 'B/s', 3)} ({memory.provenance}, {reports[0].machine.name})\n"
    )
    print(f"{'kernels':>7}  {'bytes':>8}  {'minimum':>8}  {'measured':>8}  {'bandwidth':>9}  speed-up: by bytes  by roofline  measured")
    first = found[0]
    for cut, moved, minimum, took in found:
        print(
            f"{len(cut):>7}  {show(moved, 'B', 3):>8}  {show(minimum, 's', 3):>8}  {show(took, 's', 3):>8}  {show(moved / took, 'B/s', 3):>9}  "
            f"{first[1] / moved:>17.2f}x  {first[2] / minimum:>10.2f}x  {first[3] / took:>7.2f}x"
        )
    print("\nwhere the gap comes from:")
    _, moved, minimum, took = found[-1]
    before, after = first[1] / first[3], moved / took
    print(
        f"- one kernel moves {first[1] / moved:.2f}x fewer bytes, at {after / before:.2f}x the bandwidth ({show(before, 'B/s', 3)} before, "
        f"{show(after, 'B/s', 3)} after): {first[1] / moved:.2f} x {after / before:.2f} = {first[3] / took:.2f}x"
    )
    for name, each in alone.items():
        share = 2 * whole / each / peak
        limit = "memory" if share >= NEAR else "its arithmetic, not memory"
        print(f"- {name} alone: {show(each, 's', 3)}, {share:.0%} of the memory's rate: limited by {limit}")
    slowest = max(alone, key=lambda name: alone[name])
    if 2 * whole / alone[slowest] / peak < NEAR:
        print(
            f"- fusing saves bytes, not arithmetic: one kernel cannot be faster than the arithmetic of {slowest} ({show(alone[slowest], 's', 3)} alone)"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
