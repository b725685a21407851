"""The fusion experiment on the device that JAX uses: LayerNorm, GELU, dropout and an addition as four kernels, as two and as one.

    python examples/fusion.py [ROWS] [COLUMNS]

Prints the predicted speed-up (from the bytes alone, and from the roofline of the compiled programs) beside the measured one, and
explains the gap: how the achieved bandwidth changed, and which stage is limited by its arithmetic when it runs alone. Run
`roofline measure` first to compare with the measured rates of a CPU, not with estimated ones.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

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


class Cut(NamedTuple):
    """One way to cut the chain: its kernels, the bytes they have to move, their minimum time by the roofline, and the measured time."""

    kernels: int
    moved: float
    minimum_s: float
    time_s: float


def measure(rows: int, columns: int) -> str:
    """The experiment on an array of this size, as text."""
    x = jax.random.normal(jax.random.key(1), (rows, columns), jnp.bfloat16)
    whole = x.size * x.dtype.itemsize
    cuts = []
    for groups in CUTS:
        functions = kernels(groups)
        reports = [roofline.jax.analyze(function)(x) for function in functions]
        minimum = sum(report.total.floor_s or 0.0 for report in reports if report.total)
        # Each kernel reads one array and writes one.
        cuts.append(Cut(len(groups), 2 * whole * len(groups), minimum, seconds(partial(apply, functions, x))))
    alone = {stage.__name__: seconds(partial(kernel, x)) for stage, kernel in zip(STAGES, kernels(CUTS[0]), strict=True)}
    memory = next(one for one in reports[0].machine.ceilings if one.resource == "hbm")
    shares = {name: 2 * whole / took / memory.rate for name, took in alone.items()}
    return "\n".join(
        [
            f"{rows} x {columns} bf16 on {jax.devices()[0].device_kind}; roofs of {reports[0].machine.name}, "
            f"memory {show(memory.rate, 'B/s', 3)} ({memory.provenance})",
            "",
            *table(cuts),
            "",
            "where the gap comes from:",
            *explanation(cuts, alone, shares),
            "",
        ]
    )


def table(cuts: Sequence[Cut]) -> Iterator[str]:
    """Predicted and measured speed-ups side by side."""
    yield "kernels     bytes   minimum  measured  bandwidth   speed-up: by bytes  by roofline  measured"
    first = cuts[0]
    for cut in cuts:
        figures = (show(cut.moved, "B", 3), show(cut.minimum_s, "s", 3), show(cut.time_s, "s", 3), show(cut.moved / cut.time_s, "B/s", 3))
        ratios = (first.moved / cut.moved, first.minimum_s / cut.minimum_s, first.time_s / cut.time_s)
        yield f"{cut.kernels:>7}  {figures[0]:>8}  {figures[1]:>8}  {figures[2]:>8}  {figures[3]:>9}  " + "".join(
            f"{ratio:>{width}.2f}x" for ratio, width in zip(ratios, (18, 12, 9), strict=True)
        )


def explanation(cuts: Sequence[Cut], alone: Mapping[str, float], shares: Mapping[str, float]) -> Iterator[str]:
    """Why the measured speed-up is not that of the bytes."""
    first, last = cuts[0], cuts[-1]
    before, after = first.moved / first.time_s, last.moved / last.time_s
    fewer, faster = first.moved / last.moved, after / before
    bandwidths = f"{show(before, 'B/s', 3)} before, {show(after, 'B/s', 3)} after"
    yield f"- one kernel moves {fewer:.2f}x fewer bytes at {faster:.2f}x the bandwidth ({bandwidths}): {fewer * faster:.2f}x in all"
    for name, took in alone.items():
        limit = "memory" if shares[name] >= NEAR else "its arithmetic, not memory"
        yield f"- {name} alone: {show(took, 's', 3)}, {shares[name]:.1%} of the memory's rate: limited by {limit}"
    slowest = max(alone, key=lambda name: alone[name])
    if shares[slowest] < NEAR:
        yield f"- fusing saves bytes, not arithmetic: that of {slowest} stays, {show(alone[slowest], 's', 3)} alone"


def main(words: Sequence[str]) -> None:
    rows, columns = (int(word) for word in words) if words else SIZES.get(jax.devices()[0].platform, SIZES["cpu"])
    sys.stdout.write(measure(rows, columns))


if __name__ == "__main__":
    main(sys.argv[1:])
