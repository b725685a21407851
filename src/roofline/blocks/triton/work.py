"""Arithmetic of a Triton kernel's blocks, from its IR: products on the matrix unit, other arithmetic and functions on the vector units."""

import re
from collections import defaultdict
from collections.abc import Mapping

from .ir import Kernel, Operation
from .loops import dot_flops

FLOPS = {"arith.addf": 1, "arith.subf": 1, "arith.mulf": 1, "arith.divf": 1, "math.fma": 2}
FORMATS = {"bf16": "bf16", "f16": "fp16", "f32": "tf32", "f64": "fp64", "i8": "int8"}
PASSES = {"tf32x3": 3, "bf16x3": 3, "bf16x6": 6}  # products of fp32 in parts of fewer bits
NO_SIDES: Mapping[int, tuple[float, float]] = {}
_PRECISION = re.compile(r"inputPrecision = (\w+)")


def work_of(kernel: Kernel, trips: Mapping[int, float], sides: Mapping[int, tuple[float, float]] = NO_SIDES) -> dict[str, float]:
    """FLOP and functions of one block by resource, on average; ``trips`` has how often each loop runs, ``sides`` the share of blocks that
    run each side of a branch, by the identity of the operation.
    """
    work: defaultdict[str, float] = defaultdict(float)
    for operation in kernel.operations:
        _add(work, operation, 1.0, trips, sides)
    return dict(work)


def _add(
    work: defaultdict[str, float], operation: Operation, runs: float, trips: Mapping[int, float], sides: Mapping[int, tuple[float, float]]
) -> None:
    elements = operation.type.elements
    if operation.name == "tt.dot":
        resource, passes = _unit(operation)
        work[resource] += runs * passes * dot_flops(operation)
    elif operation.name in FLOPS:
        work["vector/fp32"] += runs * elements * FLOPS[operation.name]
    elif operation.name.startswith("math.") or operation.name == "tt.extern_elementwise":
        work["vector/transcendental"] += runs * elements
    if operation.name == "tt.reduce":
        return
    inside = runs * trips.get(id(operation), 1.0)
    for share, side in zip(sides.get(id(operation), (1.0, 1.0)), (operation.body, operation.otherwise), strict=True):
        for inner in side:
            _add(work, inner, inside * share, trips, sides)


def _unit(operation: Operation) -> tuple[str, int]:
    """What computes a product, and how many times over: fp32 in full precision is for the vector units."""
    operand = operation.text.rpartition(" : ")[2].partition(">")[0].rpartition("x")[2]
    if operand != "f32":
        return f"matrix/{'fp8' if operand.startswith('f8') else FORMATS.get(operand, 'bf16')}", 1
    precision = found[1] if (found := _PRECISION.search(operation.text)) else "tf32"
    if precision == "ieee":
        return "vector/fp32", 1
    return f"matrix/{'bf16' if precision.startswith('bf16') else 'tf32'}", PASSES.get(precision, 1)
