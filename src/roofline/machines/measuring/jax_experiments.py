"""Experiments on an accelerator through JAX: TPUs, and GPUs where PyTorch is not installed.

On a GPU, memory and vector rates are measured with Pallas kernels; elsewhere, or where these fail, with code compiled by XLA.
"""

import time
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp

from ...units import parse
from .gpu_conditions import conditions
from .jax_exchanges import all_reduce_seconds, copy_rates
from .jax_launches import Launches
from .jax_timing import FEW, MOST_CALLS, REST_S, WAIT, WARM_UP, JaxTimer, Work
from .kernel_shapes import (
    ALL_AT_ONCE,
    BLOCKS,
    CACHED,
    COPY,
    EXPERIMENTS,
    PER_CORE_PALLAS,
    PROGRAMS_PER_CORE,
    REGISTER_BLOCK,
    REPEATS,
    VERBS,
    WORD,
    copy_words,
    enough_passes,
    largest_set,
    product_words,
)

KERNEL_S = parse("1 ms", "s")  # duration of a kernel that streams its working set repeatedly: long compared with a call
CHAIN = 128  # operations on each element
CHAINED, CHAINED_ON_CPU = 1 << 24, 1 << 20  # elements: enough work to make the launch negligible
FINISHED_S = parse("0.5 ms", "s")  # by then the smallest program has finished
WHOLE = 4  # scale of normal random numbers that are rounded to integers
READS_IN_PROGRAM = 16  # passes over a working set that may fit in a cache, so that call overhead does not hide its rate
LIBRARY_PRODUCTS = {"xla_gpu_enable_triton_gemm": False}
DTYPES = {"fp64": "float64", "fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp8": "float8_e4m3fn"}
PRECISION = {"fp32": "highest", "tf32": "tensorfloat32"}
SHAPES = tuple(each for each in BLOCKS if each[2] <= ALL_AT_ONCE)

CONFIG: Any = jax.config  # these two have no type annotations in JAX
KEEP_APART: Callable[[Any], Any] = jax.lax.optimization_barrier


class JaxDevice(JaxTimer):
    """The first device of JAX of a kind: ``tpu``, ``cpu``, or ``gpu`` for any accelerator."""

    def __init__(self, kind: str) -> None:
        found = [each for each in jax.devices() if (each.platform != "cpu" if kind == "gpu" else each.platform == kind)]
        if not found:
            raise RuntimeError("no TPU that JAX can use" if kind == "tpu" else "no accelerator that JAX can use")
        CONFIG.update("jax_enable_x64", True)
        super().__init__(found[0])
        self.platform = str(self.device.platform)
        self.devices = found
        self.cores = getattr(self.device, "core_count", None) or 1
        self._fastest: tuple[int, int, int] | None = None
        self._streams: dict[tuple[str, tuple[int, int, int]], Callable[..., Any]] = {}
        self._source: Any = None
        self._launches = Launches(self.kernels) if self._clock is not None else None
        self._own_shares: Callable[..., Any] | None = None
        self._numbers: dict[tuple[int, int, int], Any] = {}

    def describe(self) -> dict[str, Any]:
        found: dict[str, Any] = {"framework": f"jax {jax.__version__}", "device": self.device.device_kind}
        found |= {"count": len(self.devices), "cores": self.cores}
        stats = self.device.memory_stats() or {} if self.device.platform != "cpu" else {}
        if "bytes_limit" in stats:
            whole = conditions().get("memory") if self.device.platform == "gpu" else None
            found["memory"] = parse(whole, "B") if whole else stats["bytes_limit"]  # JAX's own limit is a share of a GPU's memory
        if self.device.platform != "cpu" and hasattr(self.device, "compute_capability"):
            found["capability"] = str(self.device.compute_capability)
        if self.platform == "tpu":
            found |= {"platform": self.platform, "libraries": f"libtpu {_version('libtpu')}"}
        return found

    def run(self, name: str, request: dict[str, Any]) -> dict[str, Any]:
        """One experiment by its name."""
        if name not in EXPERIMENTS:
            raise RuntimeError("not measured through JAX")
        with jax.default_device(self.device):
            return getattr(self, name.replace("-", "_"))(**request)  # type: ignore[no-any-return]

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
        times = self._held(work, seconds) if held else self._for(work, seconds, rest_s=REST_S)
        return {"rates": [2.0 * m * n * k / each for each in times], "how": product_words(m, n, k, zeros, held), "shape": [m, n, k]}

    def _product(self, number: str, shape: Sequence[int], zeros: bool) -> Work:
        m, n, k = shape
        dtype = jnp.dtype(DTYPES.get(number, number))
        rows = max(m, n)  # one program makes random numbers for both operands, in any format

        def operand(number_of: int, size: int) -> Any:
            if zeros:
                return jnp.zeros((size, k), dtype)
            values = self._random(number_of, rows, k)[:size]
            return (values * WHOLE if number == "int8" else values).astype(dtype)

        wide = {"int8": jnp.int32, "fp8": jnp.bfloat16}.get(number, dtype)
        rows_by_rows = (((1,), (1,)), ((), ()))  # contract along the rows of both operands, which 8-bit matrix units require
        left, right = operand(0, m), operand(1, n)

        def product(a: Any, b: Any) -> Any:
            return jax.lax.dot_general(a, b, rows_by_rows, precision=PRECISION.get(number), preferred_element_type=wide)

        run = self._compiled(product, left, right)
        return lambda: run(left, right)

    def _random(self, seed: int, rows: int, columns: int) -> Any:
        """Normal random numbers, cached because compiling their generation takes longer than compiling a product."""
        if (seed, rows, columns) not in self._numbers:
            self._numbers[seed, rows, columns] = jax.random.normal(jax.random.key(seed), (rows, columns), jnp.float32)
        return self._numbers[seed, rows, columns]

    def _compiled(self, function: Callable[..., Any], *args: Any) -> Callable[..., Any]:
        """The compiled function; on a GPU without autotuning over the compiler's own kernels, which takes longer than everything else."""
        lowered: Any = jax.jit(function).lower(*args)
        if self.device.platform == "gpu":
            try:
                return lowered.compile(compiler_options=LIBRARY_PRODUCTS)  # type: ignore[no-any-return]
            except Exception:  # this version does not have the option
                pass
        return lowered.compile()  # type: ignore[no-any-return]

    def stream(self, pattern: str, size: int, seconds: float, few_kernels: bool = False) -> dict[str, Any]:
        """B/s of repeatedly reading, writing or copying ``size`` bytes; a copy counts the bytes of both buffers."""
        words = max(1, size // WORD // (2 if pattern == "copy" else 1))
        if pattern == "per_core":
            return self._per_core_stream(words, seconds)
        if self.kernels is not None:
            try:
                return self._best_stream(pattern, words, seconds, SHAPES[-1:] if few_kernels else SHAPES)
            except Exception:  # as above
                self.kernels = None
        return self._plain_stream(pattern, words, seconds)

    def _best_stream(self, pattern: str, words: int, seconds: float, blocks: Sequence[tuple[int, int, int]]) -> dict[str, Any]:
        """The fastest kernel; for cached sizes always the same one, so that the sizes of a sweep are comparable."""
        if words * WORD < COPY:
            if self._fastest is None:
                self._fastest = max(blocks, key=lambda each: median(self._kernel_stream("read", CACHED // WORD, each, 0.0)["rates"]))
            return self._kernel_stream(pattern, words, self._fastest, seconds)
        found = [self._kernel_stream(pattern, words, each, seconds / len(blocks)) for each in blocks]
        if pattern == "copy":
            found.append(self._plain_stream(pattern, words, seconds / len(blocks)))
        return max(found, key=lambda each: median(each["rates"]))

    def _kernel_stream(self, pattern: str, words: int, block: tuple[int, int, int], seconds: float) -> dict[str, Any]:
        elements = block[0]
        source = self._source_buffer()
        if (pattern, block) not in self._streams:
            self._streams[pattern, block] = self.kernels.stream(pattern, source.size, block, self.cores)
        run = self._streams[pattern, block]
        blocks = max(1, words // elements)
        moved = WORD * blocks * elements * (2 if pattern == "copy" else 1)
        return self._repeated_passes(run, source, blocks, moved, seconds, VERBS[pattern])

    def _per_core_stream(self, words: int, seconds: float) -> dict[str, Any]:
        if self.kernels is None:
            raise RuntimeError("needs Pallas")
        elements, _, programs = PER_CORE_PALLAS
        if self._own_shares is None:
            self._own_shares = self.kernels.per_core(PER_CORE_PALLAS, self.cores)
        at_once = self.cores * programs
        blocks = max(1, words // elements // at_once) * at_once
        return self._repeated_passes(self._own_shares, self._source_buffer(), blocks, WORD * blocks * elements, seconds, VERBS["per_core"])

    def _repeated_passes(self, run: Callable[..., Any], source: Any, blocks: int, moved: int, seconds: float, verb: str) -> dict[str, Any]:
        """B/s of a kernel that takes the number of blocks of its buffer and the number of passes as arguments."""

        def work(passes: int) -> Work:
            counts = jnp.array([blocks, passes], jnp.int32)
            return lambda: run(source, counts)

        passes = enough_passes(lambda count: min(self.each(work(count), FEW, 1)), KERNEL_S)
        times = self._for(work(passes), seconds)
        how = f"{verb} repeatedly in one kernel (Pallas)"
        return {"rates": [moved * passes / each for each in times], "how": how, "bytes": moved}

    def _source_buffer(self) -> Any:
        """A buffer of the largest working set."""
        if self._source is None:
            self._source = jnp.ones(int(largest_set(self.describe().get("memory"))) // WORD, jnp.float32)
        return self._source

    def _plain_stream(self, pattern: str, words: int, seconds: float) -> dict[str, Any]:
        source = jnp.ones(words, jnp.float32)
        moved = WORD * words * (2 if pattern == "copy" else 1)
        times = READS_IN_PROGRAM if pattern == "read" and moved < COPY else 1

        def read(x: Any) -> Any:
            found = x[0]
            for _ in range(times):
                found = (x * found).max()  # depends on the previous pass, so that none is optimized away
            return found

        runs = {"read": jax.jit(read), "write": jax.jit(lambda x: jnp.full((words,), x[0])), "copy": jax.jit(lambda x: x + 1)}
        run = runs[pattern]
        found = [each / times for each in self._for(lambda: run(source), seconds)]
        return {"rates": [moved / each for each in found], "how": VERBS[pattern], "bytes": moved}

    def vector(self, number: str, seconds: float) -> dict[str, Any]:
        """FLOP/s of multiply-adds in a format, or base-2 exponentials per second (``transcendental``)."""
        special = number == "transcendental"
        dtype = DTYPES["fp32" if special else number]
        if self.kernels is not None:
            programs = self.cores * PROGRAMS_PER_CORE * 4
            try:
                run, source = (
                    self.kernels.arithmetic(number, programs, REGISTER_BLOCK, REPEATS),
                    jnp.full(programs * REGISTER_BLOCK, 0.5, dtype),
                )
                times = self._for(lambda: run(source), seconds)
                done = float(programs * REGISTER_BLOCK * REPEATS * self.kernels.UNROLLED * (1 if special else 2))
                how = f"{'base-2 exponentials' if special else 'fused multiply-adds'} in registers (Pallas)"
                return {"rates": [done / each for each in times], "how": how}
            except Exception:  # a GPU of another vendor does not have the instruction
                pass

        def chain(x: Any) -> Any:
            for _ in range(CHAIN):
                x = jnp.exp2(-x) if special else x * x + x
            return x

        run = jax.jit(chain)
        elements = CHAINED_ON_CPU if self.device.platform == "cpu" else CHAINED
        source = jnp.full((elements,), -0.5, dtype)
        times = self._for(lambda: run(source), seconds)
        what = "base-2 exponentials" if special else "multiply-adds"
        done = float(elements * CHAIN * (1 if special else 2))
        return {"rates": [done / each for each in times], "how": f"{CHAIN} {what} on each element, one kernel"}

    def launch(self, kind: str, seconds: float) -> dict[str, Any]:
        """Seconds of a null kernel inside or outside a graph (``graph``, ``stream``), and of the host's work for a program.

        The smallest program is dispatched many times in a row (``dispatch``), or once and waited for (``program round trip``); ``sync`` is
        a wait for a result that is already available.
        """
        if kind in ("graph", "stream"):
            if self._launches is None:
                raise RuntimeError("needs Pallas, and a GPU whose clock it can read")
            return self._launches.graph() if kind == "graph" else self._launches.stream()
        run, value = jax.jit(lambda x: x + 1), jnp.zeros(())
        calls = MOST_CALLS if kind == "dispatch" else 1
        self.each(lambda: run(value), 1, WARM_UP)
        times, end = list[float](), time.monotonic() + seconds
        while len(times) < FEW or time.monotonic() < end:
            times += self._waits(run(value)) if kind == "sync" else self.each(lambda: run(value), 1, calls)
        how = {"sync": "wait for a result that is there", "dispatch": f"the smallest program, {calls} in a row"}
        return {"seconds": times, "how": how.get(kind, "the smallest program, dispatched and waited for")}

    def _waits(self, result: Any) -> list[float]:
        until = time.perf_counter() + FINISHED_S
        while time.perf_counter() < until:  # busy waiting, because a sleeping host wakes up slowly
            pass
        began = time.perf_counter()
        WAIT(result)
        return [time.perf_counter() - began]

    def small(self, kind: str, seconds: float) -> dict[str, Any]:
        """Seconds of the smallest ops of a kind, many in one program."""
        rows, columns, ops = 16, 256, 50
        left, square = jnp.ones((rows, columns), jnp.bfloat16), jnp.ones((columns, columns), jnp.bfloat16)
        steps: dict[str, tuple[Callable[..., Any], Any]] = {
            "product": (lambda x, y: x @ y, square),
            "add": (lambda x, y: KEEP_APART(x + y), left),
            "norm": (lambda x, y: KEEP_APART(x - x.mean(-1, keepdims=True)), left),
        }
        step, other = steps[kind]
        if self._launches is not None:  # calling a program may take the host longer than running it takes the device
            try:
                return {"seconds": self._launches.small_op(step, (left, other)), "how": "one after the other in a program"}
            except Exception:  # as above
                pass

        def chain(x: Any, y: Any) -> Any:
            for _ in range(ops):
                x = step(x, y)
            return x

        run = jax.jit(chain)
        return {"seconds": [each / ops for each in self._for(lambda: run(left, other), seconds)], "how": f"{ops} of them in one program"}

    def host(self, direction: str, pinned: bool, seconds: float) -> dict[str, Any]:
        """B/s of a copy from the host (``in``) or to it (``out``)."""
        if self.platform == "cpu":
            raise RuntimeError("a CPU has no link to a host")
        import numpy

        host_memory = jax.sharding.SingleDeviceSharding(self.device, memory_kind="pinned_host")
        here: Any = numpy.ones(COPY, numpy.uint8)
        there = jax.device_put(here, self.device)
        here = WAIT(jax.device_put(here, host_memory)) if pinned else here
        times, end = list[float](), time.monotonic() + seconds
        while len(times) < FEW or time.monotonic() < end:
            fresh = there + 0 if direction == "out" else there  # an array caches its copy on the host
            WAIT(fresh)
            began = time.perf_counter()
            if direction == "in":
                WAIT(jax.device_put(here, there.sharding))
            elif pinned:
                WAIT(jax.device_put(fresh, host_memory))
            else:
                numpy.asarray(fresh)
            times.append(time.perf_counter() - began)
        return {"rates": [COPY / each for each in times[1:]], "how": copy_words(direction, pinned)}

    def peer(self, seconds: float) -> dict[str, Any]:
        """B/s of a copy to the next device."""
        return copy_rates(self.devices, COPY, seconds)

    def all_reduce(self, size: int, seconds: float) -> dict[str, Any]:
        """Seconds of an all-reduce over all devices."""
        return all_reduce_seconds(self.devices, size, lambda work: self._for(work, seconds))


def _version(package: str) -> str:
    """The installed version of a package, in words."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "of unknown version"
