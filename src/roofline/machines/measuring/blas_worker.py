"""Matrix products by NumPy's BLAS in a separate process, because a BLAS reads its number of threads from the environment at its start."""

from collections.abc import Callable
from functools import cache
from time import perf_counter
from typing import Any

import numpy

SMALL_SIDE, IN_A_ROW = 16, 500


@cache
def matrices(dtype: str, side: int) -> tuple[Any, Any, Any]:
    """Two random matrices (some hardware is faster on zeros), and a buffer for their product whose pages are already mapped."""
    left, right = numpy.random.default_rng(0).random((2, side, side), dtype=numpy.float64).astype(dtype)
    return left, right, numpy.zeros_like(left)


def seconds(dtype: str, side: int, tries: int) -> list[float]:
    """The time of each of some products of square matrices."""
    left, right, out = matrices(dtype, side)
    times = []
    for _ in range(tries):
        begin = perf_counter()
        numpy.matmul(left, right, out=out)
        times.append(perf_counter() - begin)
    return times


def small_op_seconds(kind: str, tries: int) -> list[float]:
    """The time of one smallest ``product``, ``add`` or ``sum`` in each try of many, without the overhead of the loop."""
    left, right, out = matrices("float32", SMALL_SIDE)
    rows = numpy.zeros(SMALL_SIDE, "float32")
    ops: dict[str, Callable[[], object]] = {
        "product": lambda: numpy.matmul(left, right, out=out),
        "add": lambda: numpy.add(left, right, out=out),
        "sum": lambda: numpy.add.reduce(left, axis=1, out=rows),
    }
    around = min(_each(lambda: None) for _ in range(tries))
    return [max(_each(ops[kind]) - around, 0.0) for _ in range(tries)]


def _each(op: Callable[[], object]) -> float:
    begin = perf_counter()
    for _ in range(IN_A_ROW):
        op()
    return (perf_counter() - begin) / IN_A_ROW


def library() -> str:
    """The BLAS that NumPy was built with."""
    found = numpy.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
    return f"{found.get('name', 'unknown BLAS')} {found.get('version', '')}".strip()
