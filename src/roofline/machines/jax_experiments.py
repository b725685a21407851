"""Experiments on an accelerator through JAX, where PyTorch is not installed: TPUs, and GPUs with JAX alone.

JAX has no events, so a try is several calls that are sent off together, by the host's clock from the first to the end of the last, less
what the start of the first and the wait for the last take: of two tries, one of twice as many calls, that is what is left over.
"""

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp

from ..units import parse
from .gpu_conditions import conditions

TRY_S, HELD_TRY_S = parse("15 ms", "s"), parse("100 ms", "s")  # waiting for a try to end leaves a gap, which matters where work goes on
WAITS, WAIT_CALLS = 15, 10  # tries that tell how long a wait is, and calls in each
MOST_CALLS, FEW, WARM_UP = 1000, 3, 2
REST_S = parse("120 ms", "s")
CHAIN = 128  # operations on each element
CHAINED, CHAINED_ON_CPU = 1 << 24, 1 << 20  # elements: enough that a launch is little beside the work
COPY = int(parse("256 MiB", "B"))
WORD = 4
READS_IN_PROGRAM = 16  # of a working set that a cache may hold, so that calls do not hide its rate
LIBRARY_PRODUCTS = {"xla_gpu_enable_triton_gemm": False}
DTYPES = {"fp64": "float64", "fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp8": "float8_e4m3fn"}
PRECISION = {"fp32": "highest", "tf32": "tensorfloat32"}

Work = Callable[[], Any]
CONFIG: Any = jax.config  # these three have no types in JAX
WAIT: Callable[[Any], Any] = jax.block_until_ready
KEEP_APART: Callable[[Any], Any] = jax.lax.optimization_barrier


class JaxDevice:
    """The first device of JAX: a GPU or TPU, or the CPU where that is wanted."""

    def __init__(self, kind: str) -> None:
        found = [each for each in jax.devices() if (each.platform == "cpu") == (kind == "cpu")]
        if not found:
            raise RuntimeError("no accelerator that JAX can use")
        CONFIG.update("jax_enable_x64", True)
        self.device = found[0]
        self.count = len(found)
        self._wait_s: float | None = None

    def describe(self) -> dict[str, Any]:
        found: dict[str, Any] = {"framework": f"jax {jax.__version__}", "device": self.device.device_kind, "count": self.count}
        found["cores"] = getattr(self.device, "core_count", None) or 1
        stats = self.device.memory_stats() or {} if self.device.platform != "cpu" else {}
        if "bytes_limit" in stats:
            whole = conditions().get("memory") if self.device.platform == "gpu" else None
            found["memory"] = parse(whole, "B") if whole else stats["bytes_limit"]  # JAX keeps to a share of a GPU's
        if self.device.platform != "cpu" and hasattr(self.device, "compute_capability"):
            found["capability"] = str(self.device.compute_capability)
        return found

    def run(self, name: str, request: dict[str, Any]) -> dict[str, Any]:
        """One experiment by its name."""
        experiments: dict[str, Callable[..., dict[str, Any]]] = {
            "product": self.product,
            "stream": self.stream,
            "vector": self.vector,
            "launch": self.launch,
            "small": self.small,
            "host": self.host,
        }
        if name not in experiments:
            raise RuntimeError("not measured through JAX")
        with jax.default_device(self.device):
            return experiments[name](**request)

    def each(self, work: Work, tries: int, calls: int) -> list[float]:
        """The seconds of a call in each of some tries of many calls."""
        times = []
        for _ in range(tries):
            began = time.perf_counter()
            for _ in range(calls):
                result = work()  # the one before goes, and its memory is used again, as a cache would have it
            WAIT(result)
            times.append((time.perf_counter() - began) / calls)
        return times

    def timed(self, work: Work, tries: int, calls: int) -> list[float]:
        """The same without the wait at the end of each try; never less than half, should that have been short."""
        return [max(each - self._wait() / calls, each / 2) for each in self.each(work, tries, calls)]

    def _wait(self) -> float:
        """Seconds of a try outside of its calls: until the first starts, and until the host sees that the last has ended."""
        if self._wait_s is None:
            run, source = jax.jit(lambda x: x + 1), jnp.ones(COPY // WORD // (1 if self.device.platform != "cpu" else 64), jnp.float32)
            self.each(lambda: run(source), 1, WARM_UP)
            self._wait_s = wait_of(lambda calls: self.each(lambda: run(source), 1, calls)[0] * calls)
        return self._wait_s

    def _calls(self, work: Work, try_s: float = TRY_S) -> int:
        self.each(work, 1, WARM_UP)
        return max(1, min(MOST_CALLS, round(try_s / min(self.each(work, FEW, 1)))))

    def _for(self, work: Work, seconds: float, *, rest_s: float = 0.0, try_s: float = TRY_S) -> list[float]:
        """Tries for so many seconds, a few at least, each after a rest and a warm-up where there is one."""
        calls, times, end = self._calls(work, try_s), list[float](), time.monotonic() + seconds
        while len(times) < FEW or time.monotonic() < end:
            if rest_s:
                time.sleep(rest_s)
                self.each(work, 1, WARM_UP)
            times += self.timed(work, 1, calls)
        return times

    def product(
        self,
        number: str,
        shapes: Sequence[Sequence[int]],
        seconds: float,
        held: bool = False,
        zeros: bool = False,
        layout: str | None = None,
    ) -> dict[str, Any]:
        """FLOP/s of products in a number format, of the best shape."""
        if number not in (*DTYPES, "int8"):
            raise RuntimeError(f"{number}: no products in this format through JAX")
        best: tuple[float, Work, Sequence[int]] | None = None
        for shape in shapes:
            work = self._product(number, shape, zeros)
            calls = self._calls(work)
            rate = 2.0 * shape[0] * shape[1] * shape[2] / min(self.timed(work, FEW, calls))
            if best is None or rate > best[0]:
                best = rate, work, shape
        assert best is not None
        _, work, (m, n, k) = best
        times = self._for(work, seconds, try_s=HELD_TRY_S) if held else self._for(work, seconds, rest_s=REST_S)
        times = times[len(times) // 2 :] if held else times
        how = f"{m} x {k} by {k} x {n} products, {'zeros' if zeros else 'random operands'}, {'held' if held else 'in bursts'}"
        return {"rates": [2.0 * m * n * k / each for each in times], "how": how, "shape": [m, n, k]}

    def _product(self, number: str, shape: Sequence[int], zeros: bool) -> Work:
        m, n, k = shape
        dtype = jnp.dtype(DTYPES.get(number, number))
        keys = jax.random.split(jax.random.key(0))

        def operand(key: Any, rows: int, columns: int) -> Any:
            if zeros:
                return jnp.zeros((rows, columns), dtype)
            if number == "int8":
                return jax.random.randint(key, (rows, columns), -8, 8, dtype)
            return jax.random.normal(key, (rows, columns), jnp.float32).astype(dtype)

        wide = {"int8": jnp.int32, "fp8": jnp.bfloat16}.get(number, dtype)
        rows_by_rows = (((1,), (1,)), ((), ()))  # both operands along their rows, the only way for 8-bit matrix units
        left, right = operand(keys[0], m, k), operand(keys[1], n, k)

        def product(a: Any, b: Any) -> Any:
            return jax.lax.dot_general(a, b, rows_by_rows, precision=PRECISION.get(number), preferred_element_type=wide)

        run = self._compiled(product, left, right)
        return lambda: run(left, right)

    def _compiled(self, function: Callable[..., Any], *args: Any) -> Callable[..., Any]:
        """The function compiled; on a GPU without trying kernels that the compiler makes itself, which takes longer than all the rest."""
        lowered: Any = jax.jit(function).lower(*args)
        if self.device.platform == "gpu":
            try:
                return lowered.compile(compiler_options=LIBRARY_PRODUCTS)  # type: ignore[no-any-return]
            except Exception:  # an option that this version does not have
                pass
        return lowered.compile()  # type: ignore[no-any-return]

    def stream(self, pattern: str, size: int, seconds: float, few_kernels: bool = False) -> dict[str, Any]:
        """B/s of reading, writing or copying so many bytes."""
        if pattern == "per_core":
            raise RuntimeError("not measured through JAX")
        words = max(1, size // WORD // (2 if pattern == "copy" else 1))
        source = jnp.ones(words, jnp.float32)
        times = READS_IN_PROGRAM if pattern == "read" and size < COPY else 1

        def read(x: Any) -> Any:
            found = x[0]
            for _ in range(times):
                found = (x * found).max()  # needs the one before, so that none is left out
            return found

        runs = {"read": jax.jit(read), "write": jax.jit(lambda x: jnp.full((words,), x[0])), "copy": jax.jit(lambda x: x + 1)}
        run = runs[pattern]
        moved = WORD * words * (2 if pattern == "copy" else 1)
        found = [each / times for each in self._for(lambda: run(source), seconds)]
        return {"rates": [moved / each for each in found], "how": {"write": "fill"}.get(pattern, pattern), "bytes": moved}

    def vector(self, number: str, seconds: float) -> dict[str, Any]:
        """FLOP/s of multiply-adds in a chain that the compiler makes one kernel of, or exponentials a second."""
        special = number == "transcendental"

        def chain(x: Any) -> Any:
            for _ in range(CHAIN):
                x = jnp.exp2(-x) if special else x * x + x
            return x

        run = jax.jit(chain)
        elements = CHAINED_ON_CPU if self.device.platform == "cpu" else CHAINED
        source = jnp.full((elements,), -0.5, DTYPES["fp32" if special else number])
        times = self._for(lambda: run(source), seconds)
        what = "base-2 exponentials" if special else "multiply-adds"
        done = float(elements * CHAIN * (1 if special else 2))
        return {"rates": [done / each for each in times], "how": f"{CHAIN} {what} on each element, one kernel"}

    def launch(self, kind: str, seconds: float) -> dict[str, Any]:
        """Seconds of the smallest program, sent off with others (``stream``), or alone and waited for (``round trip``)."""
        if kind not in ("stream", "round trip"):
            raise RuntimeError("not measured through JAX")
        run, value = jax.jit(lambda x: x + 1), jnp.zeros(())
        calls = MOST_CALLS if kind == "stream" else 1
        self.each(lambda: run(value), 1, WARM_UP)
        times, end = list[float](), time.monotonic() + seconds
        while len(times) < FEW or time.monotonic() < end:
            times += self.each(lambda: run(value), 1, calls)
        return {"seconds": times, "how": f"the smallest program, {calls} at a time"}

    def small(self, kind: str, seconds: float) -> dict[str, Any]:
        """Seconds of the smallest ops of a kind, many in one program."""
        rows, columns, ops = 16, 256, 50
        left, square = jnp.ones((rows, columns), jnp.bfloat16), jnp.ones((columns, columns), jnp.bfloat16)
        steps: dict[str, Callable[[Any], Any]] = {
            "product": lambda x: x @ square,
            "add": lambda x: KEEP_APART(x + left),
            "norm": lambda x: KEEP_APART(x - x.mean(-1, keepdims=True)),
        }

        def chain(x: Any) -> Any:
            for _ in range(ops):
                x = steps[kind](x)
            return x

        run = jax.jit(chain)
        return {"seconds": [each / ops for each in self._for(lambda: run(left), seconds)], "how": f"{ops} of them in one program"}

    def host(self, direction: str, pinned: bool, seconds: float) -> dict[str, Any]:
        """B/s of a copy from the host or to it."""
        if pinned or self.device.platform == "cpu":
            raise RuntimeError("not measured through JAX")
        import numpy

        here = numpy.ones(COPY, numpy.uint8)
        there = jax.device_put(here, self.device)
        times, end = list[float](), time.monotonic() + seconds
        while len(times) < FEW or time.monotonic() < end:
            fresh = there + 0 if direction == "out" else there  # an array keeps its copy on the host
            WAIT(fresh)
            began = time.perf_counter()
            if direction == "in":
                WAIT(jax.device_put(here, self.device))
            else:
                numpy.asarray(fresh)
            times.append(time.perf_counter() - began)
        return {"rates": [COPY / each for each in times], "how": f"copies {'from' if direction == 'in' else 'to'} pageable host memory"}


def wait_of(time_of: Callable[[int], float]) -> float:
    """What a try takes besides its calls, from pairs of tries of which one has twice the calls.

    >>> wait_of(lambda calls: 0.5 + 0.1 * calls)
    0.5
    """
    return max(0.0, median(2 * time_of(WAIT_CALLS) - time_of(2 * WAIT_CALLS) for _ in range(WAITS)))
