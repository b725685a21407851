"""Machines one can check by hand."""

from roofline.machine import Machine
from roofline.resource import HBM, matrix, vector

BF16 = matrix("bf16")
FP8 = matrix("fp8")
FP32 = vector("fp32")
__all__ = ["BF16", "FP8", "FP32", "HBM", "toy"]


def toy() -> Machine:
    """100 FLOP/s on the matrix unit (200 in fp8), 20 on the vector unit, 10 B/s of memory: the bf16 ridge is at 10 FLOP/B."""
    return Machine.of("toy", {"matrix/bf16": 100, "matrix/fp8": 200, "vector/fp32": 20, "hbm": 10, "ici": 1, "ici/hop": 4})
