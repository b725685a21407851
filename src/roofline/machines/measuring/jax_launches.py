"""Launch times through JAX: of a null kernel, inside and outside a graph, and of the smallest ops.

XLA puts consecutive kernels of a program into a graph (a command buffer). Here a program is a chain of kernels between two readings of the
device's clock. A kernel's time is the difference between a long and a short chain, divided by the difference in kernels, because the start
of the graph and the readings are in both. Without a graph, the host launches the kernels of the same chains one by one.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp

from ...units import DECIMAL, show

SHORT, LONG = 20, 120  # null kernels in the two chains
FEWER, MORE = 10, 50  # ops in the chains of the smallest ops, which take longer to compile
WARM_UP, TRIES = 4, 15  # XLA makes a graph in the first call or two
AS_GRAPH: dict[str, Any] = {"xla_gpu_enable_command_buffer": "FUSION,CUSTOM_CALL", "xla_gpu_graph_min_graph_size": 1}
AS_USUAL: dict[str, Any] = {}
ONE_BY_ONE: dict[str, Any] = {"xla_gpu_graph_min_graph_size": 1 << 30}  # kernels: more than any program has
NO_GRAPH = 0.9  # of a kernel's time outside a graph: a longer time means that there was no graph


class Launches:
    """Times of null kernels by a GPU's clock; ``kernels`` is the module with both."""

    def __init__(self, kernels: Any) -> None:
        self._clock, self._null = kernels.clock(), kernels.null()
        self._anything = jnp.zeros(kernels.CLOCKS, jnp.int64)

    def graph(self) -> dict[str, Any]:
        """Seconds of each kernel of a graph; an error where XLA makes none."""
        inside, outside = median(self._inside), median(self._outside)
        if inside > NO_GRAPH * outside:
            raise RuntimeError(f"XLA made no graph: {show(inside, 's', 3)} for each kernel, {show(outside, 's', 3)} when not asked for one")
        return {"seconds": self._inside, "how": f"null kernels in a graph made by XLA, {LONG} less {SHORT}"}

    def stream(self) -> dict[str, Any]:
        """Seconds of each kernel of a program without a graph."""
        return {"seconds": self._outside, "how": f"null kernels of a program, launched one by one, {LONG} less {SHORT}"}

    def small_op(self, step: Callable[..., Any], operands: Sequence[Any]) -> list[float]:
        """Seconds of an op in a chain within one program; its result has the shape of its first operand."""
        short, long = (self._tries(self._chain(length, AS_USUAL, step, operands), operands) for length in (FEWER, MORE))
        return per_kernel(short, long, MORE - FEWER)

    @cached_property
    def _inside(self) -> list[float]:
        return self._null_kernel(AS_GRAPH)

    @cached_property
    def _outside(self) -> list[float]:
        return self._null_kernel(ONE_BY_ONE)

    def _null_kernel(self, options: dict[str, Any]) -> list[float]:
        short, long = (self._tries(self._chain(length, options)) for length in (SHORT, LONG))
        return per_kernel(short, long, LONG - SHORT)

    def _chain(
        self, length: int, options: dict[str, Any], step: Callable[..., Any] | None = None, operands: Sequence[Any] = ()
    ) -> Callable[..., Any]:
        """A program with a chain of null kernels or of an op, each dependent on the one before, between two readings of the clock."""

        def null_kernels(anything: Any) -> tuple[Any, Any]:
            started = value = self._clock(anything)
            for _ in range(length):
                value = self._null(value)
            return started, self._clock(value)

        def ops(anything: Any, first: Any, *others: Any) -> tuple[Any, Any]:
            assert step is not None
            started = self._clock(anything)
            value = first + (started[0] % 2).astype(first.dtype)  # not known at compile time
            for _ in range(length):
                value = step(value, *others)
            return started, self._clock(started + value.ravel()[: started.size].astype(started.dtype))

        lowered: Any = jax.jit(ops if step else null_kernels).lower(self._anything, *operands)
        return lowered.compile(compiler_options=options) if options else lowered.compile()  # type: ignore[no-any-return]

    def _tries(self, run: Callable[..., Any], operands: Sequence[Any] = ()) -> list[float]:
        """Seconds of a chain by the device's clock."""
        found = []
        for _ in range(WARM_UP + TRIES):
            started, ended = jax.device_get(run(self._anything, *operands))
            found.append((int(ended[0]) - int(started[0])) / DECIMAL["G"])
        return found[WARM_UP:]


def per_kernel(short: Sequence[float], long: Sequence[float], more: int) -> list[float]:
    """Seconds of a kernel, from tries of a short chain and of one with ``more`` additional kernels.

    >>> per_kernel([30.0, 31.0, 90.0], [131.0, 231.0], 100)
    [1.0, 2.0]
    """
    usual = median(short)
    return [(each - usual) / more for each in long]
