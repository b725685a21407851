"""Place a million ops, as arrays, beside the bare divisions the law cannot do without.

python benchmarks/placement.py [OPS]
"""

import sys
import time

import numpy as np

import roofline as rl
from roofline.columns.cost_columns import Columns, place_columns
from roofline.resource import Resource


def best_of(tries: int, action: object) -> float:
    """The shortest of several runs, in seconds."""
    seconds = []
    for _ in range(tries):
        start = time.perf_counter()
        action()  # type: ignore[operator]
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def main(ops: int) -> None:
    chip = rl.chip("h200")
    names = ("matrix/bf16", "matrix/fp8", "vector/fp32", "vector/transcendental", "hbm", "l2", "nvlink")
    rng = np.random.default_rng(0)
    amounts = rng.lognormal(20, 3, (len(names), ops))
    columns = Columns(tuple(map(Resource, names)), amounts, np.zeros(amounts.shape, bool), rng.lognormal(-9, 2, ops), np.ones(ops, bool))
    rates = np.array([[chip.rate(name)] for name in names])

    def placed() -> None:
        found = place_columns(columns, chip)
        _ = found.efficiency, found.longest

    law, bare = best_of(5, placed), best_of(5, lambda: amounts / rates)
    print(f"{ops:,} ops over {len(names)} resources: placed in {law:.3f} s, {law / bare:.1f} times the bare divisions ({bare:.3f} s)")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10**6)
