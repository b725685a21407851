"""The machine this program runs on, measured: what its processor computes and its memory carries when asked for nothing else.

A profile of a CPU does not say what the CPU can do, and no catalogue has every laptop. Two experiments do: a product of large square
matrices by numpy's BLAS (2n³ FLOP), and a copy of an array larger than the caches by every core at once (2 bytes of traffic a byte). The
best of a few tries counts, for whatever else runs here only slows them. It takes about a second.
"""

import os
import platform
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from time import perf_counter

from ..machine import Ceiling, Machine
from ..resource import HBM, vector
from ..units import parse

TRIES = 6
SIDE = 1536  # of the matrices: enough for every core, and a tenth of a second on a slow one
COPIED = int(parse("128 MiB", "B"))  # by all cores together, larger than the caches that they see
LAUNCH_LATENCY_S = 1e-6  # handing a small task to a pool of threads


@cache
def measure() -> Machine:
    """This computer as a machine: its fp32 and fp64 rates and its memory's, measured when first asked for."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    title = processor()
    product, copy = f"a {SIDE} x {SIDE} matrix product with numpy's BLAS, best of {TRIES}", f"a copy by {cores} threads, best of {TRIES}"
    return Machine(
        name=re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "cpu",
        title=title,
        kind="cpu",
        cores=cores,
        launch_latency_s=LAUNCH_LATENCY_S,
        ceilings=(
            Ceiling(resource=vector("fp32"), rate=_product("float32"), provenance="measured", citation=product),
            Ceiling(resource=vector("fp64"), rate=_product("float64"), provenance="measured", citation=product),
            Ceiling(resource=HBM, rate=_copy(cores), provenance="measured", citation=copy),
        ),
        notes=(f"using this computer ({cores} cores), measured just now; choose another chip with --chip",),
    )


def processor() -> str:
    """The processor's model name."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine() or "CPU"


def _product(dtype: str) -> float:
    import numpy

    left = numpy.ones((SIDE, SIDE), dtype)
    out = numpy.empty_like(left)
    return 2 * SIDE**3 / _best(lambda: numpy.matmul(left, left, out=out))


def _copy(cores: int) -> float:
    import numpy

    source = numpy.ones(COPIED, "uint8")
    target = numpy.zeros_like(source)
    parts = list(zip(numpy.array_split(target, cores), numpy.array_split(source, cores), strict=True))
    with ThreadPoolExecutor(cores) as pool:
        seconds = _best(lambda: list(pool.map(lambda part: numpy.copyto(*part), parts)))
    return 2 * COPIED / seconds


def _best(work: Callable[[], object]) -> float:
    """Seconds of the fastest try."""
    times = []
    for _ in range(TRIES):
        begin = perf_counter()
        work()
        times.append(perf_counter() - begin)
    return min(times)
