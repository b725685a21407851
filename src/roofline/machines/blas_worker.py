"""Matrix products by NumPy's BLAS in a process of its own, because a BLAS takes its number of threads from the environment as it starts.

A line ``float32 512 5`` asks for five products of 512 x 512 matrices; the answer is a line with the seconds of each. The first line of
all is what NumPy says of its BLAS.
"""

import json
import os
import sys
from functools import cache
from time import perf_counter
from typing import Any

import numpy


@cache
def matrices(dtype: str, side: int) -> tuple[Any, Any, Any]:
    """Two random matrices, as some hardware is faster on zeros, and room for their product, whose pages are there."""
    left, right = numpy.random.default_rng(0).random((2, side, side), dtype=numpy.float64).astype(dtype)
    return left, right, numpy.zeros_like(left)


def seconds(dtype: str, side: int, tries: int) -> list[float]:
    """The time of each product."""
    left, right, out = matrices(dtype, side)
    times = []
    for _ in range(tries):
        begin = perf_counter()
        numpy.matmul(left, right, out=out)
        times.append(perf_counter() - begin)
    return times


def library() -> str:
    """The BLAS that NumPy was built with."""
    found = numpy.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
    return f"{found.get('name', 'unknown BLAS')} {found.get('version', '')}".strip()


def say(answer: object) -> None:
    """A line to the process that started this one."""
    os.write(1, f"{json.dumps(answer)}\n".encode())


if __name__ == "__main__":
    say(library())
    for line in sys.stdin:
        dtype, side, tries = line.split()
        say(seconds(dtype, int(side), int(tries)))
