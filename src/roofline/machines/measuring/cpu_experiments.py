"""Experiments that measure this computer's CPU: arithmetic in registers, matrix products and small ops by NumPy, and streams through each
memory level.

Bytes are those that a program reads and writes. Lines that the CPU fetches only to overwrite them (write-allocate) are not counted, as in a
compiler's counts.
"""

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cached_property, partial
from typing import TypeVar

from ...units import DECIMAL, parse, show
from ...workers import Worker
from .. import _kernels
from ..cpu import Cpu
from ..cpu_estimate import vector_units
from . import blas_worker
from .measurement import Experiment

# Short tries fit into a time slice of a busy computer; long ones are more accurate on an idle one.
SHORT_S, LONGER = parse("1 ms", "s"), 4
REST_S = parse("2 ms", "s")  # between tries
MOST_AT_ONCE = 100  # largest factor between the repeats of two tries, because a first try is mostly overhead
WAKE_NS = 100_000  # wake-up time per thread
LEAST_STREAM = parse("64 MiB", "B")
STREAM_CACHES, STREAM_PARTS = 12, 8  # working set of main memory over the last-level cache, and parts of it that successive tries use
UNKNOWN_CACHE = parse("64 MiB", "B")  # a last-level cache of unknown size
PRODUCTS_S = (parse("5 ms", "s"), parse("50 ms", "s"))  # of products: short ones fit into quiet moments, long ones have less start-up
ROW_S = parse("30 ms", "s")  # of consecutive products
SIDES = (512, 8192)
PATTERNS = {"read": "read", "write": "fill", "copy": "copy", "triad": "a = b + s x c"}
SWEEP = (0.375, 0.75)  # of a cache's size: working sets that leave space for other data
EXPONENTIALS, SMALL = "exponentials", "small"  # keys: exponentials, and the smallest ops
SMALL_OPS = {"product": "16 x 16 products", "add": "16 x 16 additions", "sum": "sums of 16 rows of 16"}
SWEPT = "sweep"  # prefix of the keys of the sweep over working sets
SMALLEST, LINE = parse("4 KiB", "B"), 64  # of the sweep's working sets; bytes of a cache line
FORMATS = {"fp32": "float32", "fp64": "float64"}
THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


_T = TypeVar("_T")


class CpuExperiments:
    """The experiments of a CPU, the most important first, and the BLAS process, which reports its library."""

    def __init__(self, experiments: Sequence[Experiment], worker: "_Blas") -> None:
        self.experiments, self._worker = experiments, worker

    @property
    def blas(self) -> str:
        return self._worker.library


@contextmanager
def cpu_experiments(cpu: Cpu) -> Iterator[CpuExperiments]:
    """A context manager with all experiments of this computer's CPU; their threads and processes end with the block."""
    with ExitStack() as stack:
        found = []
        counts = sorted({1, cpu.threads})
        workers = {count: stack.enter_context(_Blas(count)) for count in sorted({1, cpu.cores})}
        teams = {count: _Team(stack, count) for count in counts}
        for name in FORMATS:
            for count in counts:
                how = f"fused multiply-adds in registers, {_threads(count)}"
                found.append(Experiment(key=_key("fma", name, count, cpu), how=how, run=_Kernel(f"fma{name[2:]}", teams[count])))
        how = f"base-2 exponentials in registers, {_threads(cpu.threads)}"
        found.append(Experiment(key=EXPONENTIALS, how=how, run=_Kernel("exp32", teams[cpu.threads])))
        for level, pattern, size in working_sets(cpu):
            how = f"{PATTERNS[pattern]} of {show(size * cpu.threads, 'B', 3)}, {_threads(cpu.threads)}"
            parts = STREAM_PARTS if level == "hbm" else 1
            run = _Kernel(pattern, teams[cpu.threads], round(size), parts)
            found.append(Experiment(key=f"{level}/{pattern}/{round(size)}", how=how, run=run))
        for kind, words in SMALL_OPS.items():
            found.append(
                Experiment(
                    key=f"{SMALL}/{kind}", how=f"{words} by NumPy, one after the other", run=partial(_small_op_rates, workers[1], kind)
                )
            )
        for count, worker in workers.items():
            sides = sorted({_side(cpu, count, seconds) for seconds in PRODUCTS_S})
            for name, dtype in FORMATS.items():
                how = f"matrix products of {' and '.join(f'{side} x {side}' for side in sides)} by NumPy's BLAS, {_threads(count)}"
                key = _key("product", name, count, cpu)
                found.append(Experiment(key=key, how=how, run=partial(_product_rates, worker, dtype, sides), throughout=True))
        sweep = sweep_sizes(cpu)
        reads = _Sweep(teams[1], sweep[-1])
        for part in sweep:
            how = f"repeated read of {show(part, 'B', 3)}, 1 thread"
            found.append(Experiment(key=f"{SWEPT}/{part}", how=how, run=partial(reads.rates, part)))
        yield CpuExperiments(found, workers[1])


def working_sets(cpu: Cpu) -> list[tuple[str, str, float]]:
    """The working sets to stream: memory level, pattern, and bytes per thread.

    Those of a cache are shares of its size and twice the next inner cache; main memory's is twelve times the last-level cache, STREAM's
    rule for three arrays, so that even the part used in one try exceeds the cache.
    """
    found = []
    inner = 0.0
    for cache in cpu.caches:
        share = cache.total / cpu.threads
        sizes = {max(part * share, 2 * inner) for part in (0, *SWEEP)} - {0}
        found += [(f"l{cache.level}", pattern, size) for size in sorted(sizes) for pattern in PATTERNS]
        inner = max(inner, share)
    last = max((cache.total for cache in cpu.caches), default=UNKNOWN_CACHE)
    most = cpu.memory_bytes / 8 if cpu.memory_bytes else float("inf")
    stream = min(max(STREAM_CACHES * last, LEAST_STREAM), most) / cpu.threads
    return [("hbm", pattern, stream) for pattern in PATTERNS] + found


def sweep_sizes(cpu: Cpu) -> list[int]:
    """Working sets of one thread, two for each doubling, from a few kilobytes to beyond the last cache."""
    last = max((cache.bytes for cache in cpu.caches), default=UNKNOWN_CACHE)
    most = min(max(2 * last, LEAST_STREAM), cpu.memory_bytes / 16 if cpu.memory_bytes else float("inf"))
    steps = int(2 * math.log2(most / SMALLEST))
    return [round(SMALLEST * 2 ** (step / 2) / LINE) * LINE for step in range(steps + 1)]


class _Team:
    """Threads that run a kernel concurrently, each on its own CPU and buffer.

    On a busy computer a thread that slept gets priority when it wakes up, so a short try can have all CPUs.
    """

    def __init__(self, stack: ExitStack, threads: int) -> None:
        self.threads = threads
        self._buffers: dict[int, list[memoryview]] = {}
        self._places: dict[int, int] = {}
        self._workers = [stack.enter_context(ThreadPoolExecutor(1)) for _ in range(threads)]
        if hasattr(os, "sched_setaffinity"):
            usable = sorted(os.sched_getaffinity(0))
            self._each(lambda place: os.sched_setaffinity(0, {usable[place % len(usable)]}))  # affects the calling thread only

    def _each(self, work: Callable[[int], _T]) -> list[_T]:
        """Run ``work`` with the index of each thread on that thread. Returns the results."""
        return [future.result() for future in [worker.submit(work, place) for place, worker in enumerate(self._workers)]]

    def buffers(self, size: int, parts: int) -> list[memoryview]:
        """The next part of a buffer for each thread; the thread itself touched it first, so the pages are in near memory."""
        if size not in self._buffers:
            self._buffers[size] = self._each(lambda place: memoryview(bytearray(b"\1") * size))
        part = self._places[size] = (self._places.get(size, -1) + 1) % parts
        each = size // parts
        return [buffer[part * each : (part + 1) * each] for buffer in self._buffers[size]]

    def run(self, kernel: str, buffers: Sequence[memoryview], repeats: int) -> tuple[float, float]:
        """FLOP or bytes per second from the start of the first thread to the end of the last, and the seconds of the fastest thread."""
        time.sleep(REST_S)
        at = _kernels.clock_ns() + WAKE_NS * (self.threads + 1)
        runs = self._each(lambda place: _kernels.run(kernel, buffers[place], repeats, at))
        together = max(end for _, end, _ in runs) - min(begin for begin, _, _ in runs)
        rate = sum(done for _, _, done in runs) / max(1, together) * DECIMAL["G"]
        return rate, max(1, min(end - begin for begin, end, _ in runs)) / DECIMAL["G"]


class _Kernel:
    """A compiled kernel: each call makes a few tries, every other one longer, and returns the FLOP/s or B/s of each.

    A try repeats the kernel on a small buffer, or uses the next of the ``parts`` of a large one: when a part is used again, it is no longer
    in the caches. On large buffers the first try of a writing kernel is not counted: a cache without dirty lines absorbs the writes, and
    little reaches main memory.
    """

    def __init__(self, name: str, team: _Team, size: int = 4096, parts: int = 1) -> None:
        self.name, self.team, self.size, self.parts = name, team, size, parts
        self.repeats = 1

    def __call__(self, tries: int) -> list[float]:
        rates: list[float] = []
        if self.parts > 1 and self.name != "read":
            self.team.run(self.name, self.team.buffers(self.size, self.parts), 1)
        for number in range(tries):
            repeats = self.repeats * (LONGER if number % 2 and self.parts == 1 else 1)
            rate, seconds = self.team.run(self.name, self.team.buffers(self.size, self.parts), repeats)
            while self.parts == 1 and seconds < SHORT_S / 2:  # too short for the clock and for a synchronized start
                self.repeats = repeats = math.ceil(repeats * min(SHORT_S / seconds, MOST_AT_ONCE))
                rate, seconds = self.team.run(self.name, self.team.buffers(self.size, self.parts), repeats)
            rates.append(rate)
        return rates


class _Sweep:
    """Reads of working sets by one thread, each the first bytes of one buffer of the largest ``size``."""

    def __init__(self, team: _Team, size: int) -> None:
        self.team, self.size = team, size
        self.repeats: dict[int, int] = {}  # by working set

    def rates(self, part: int, tries: int) -> list[float]:
        """B/s of reading ``part`` bytes, in a quarter of the tries."""
        return [self._rate(part) for _ in range(-(-tries // 4))]

    def _rate(self, part: int) -> float:
        buffer, repeats = self.team.buffers(self.size, 1)[0][:part], self.repeats.get(part, 1)
        rate, seconds = self.team.run("read", [buffer], repeats)
        while seconds < SHORT_S / 2:
            repeats = math.ceil(repeats * min(SHORT_S / seconds, MOST_AT_ONCE))
            rate, seconds = self.team.run("read", [buffer], repeats)
        self.repeats[part] = repeats
        return rate


class _Blas(Worker):
    """A process that multiplies matrices with ``threads`` threads."""

    def __init__(self, threads: int) -> None:
        super().__init__(**dict.fromkeys(THREAD_VARIABLES, str(threads)))

    def __enter__(self) -> "_Blas":
        return self

    @cached_property
    def library(self) -> str:
        """The name of its library, read on first use because the process takes a second to start."""
        return str(self.call(blas_worker.library))


def _product_rates(worker: _Blas, dtype: str, sides: Sequence[int], tries: int) -> list[float]:
    """FLOP/s of square matrix products by BLAS of each size in turn, several in a row because threads that slept start slowly."""
    # On a busy computer the threads of a BLAS wait for each other, so one product takes as long as many tries of a kernel.
    few = -(-tries // 4)
    rates: list[float] = []
    for side in sides:
        times: list[float] = worker.call(blas_worker.seconds, dtype, side, few)
        while sum(times) < ROW_S:
            times += worker.call(blas_worker.seconds, dtype, side, few)
        rates += [2 * side**3 / seconds for seconds in times]
    return rates


def _small_op_rates(worker: _Blas, kind: str, tries: int) -> list[float]:
    """Ops per second of the smallest op of a kind, in each try."""
    return [1 / seconds for seconds in worker.call(blas_worker.small_op_seconds, kind, tries) if seconds]


def _side(cpu: Cpu, cores: int, seconds: float) -> int:
    """The side, a multiple of 128, of a product that takes about ``seconds`` at the estimated rate."""
    flop = cores * cpu.clock_hz * vector_units(cpu).flop_per_cycle(4) * seconds
    return min(max(round(math.cbrt(flop / 2) / 128) * 128, SIDES[0]), SIDES[1])


def _key(kind: str, number: str, count: int, cpu: Cpu) -> str:
    return f"{kind}/{number}/{'one' if count == 1 and max(cpu.cores, cpu.threads) > 1 else 'all'}"


def _threads(count: int) -> str:
    return f"{count} thread{'s' if count > 1 else ''}"
