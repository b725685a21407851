"""Products that read weights for a few rows: the bytes of the weights set the time, and more rows would cost no more."""

from collections.abc import Iterator

from ...cost import Cost
from ...resource import HBM
from ...units import show
from ...workload import Avoidable
from .kernels import Kernels
from .values import LAYOUT, RENAMED, Value, Values

KIND = "low-batch"
FEW_ROWS = 8
_WEIGHTS_SHARE = 0.7  # of an op's bytes


def low_batches(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The products of few rows whose bytes are nearly all weights. Eight times the rows would take about the same time."""
    for index, cost in kernels.costs.items():
        found = kernels.product(index)
        if found is None or (found.batch > 1 and not _is_split(kernels, index, found.batch)):
            continue
        for weights, rows in ((found.right, found.rows), (found.left, found.columns)):
            if rows <= FEW_ROWS and _are_weights(kernels.values, weights, cost):
                why = f"reads {show(weights.shape.bytes, 'B')} of weights for {rows} row{'s' if rows > 1 else ''}"
                yield index, Avoidable(kind=KIND, instead=cost * (1 / FEW_ROWS), why=why)
                break


def _is_split(kernels: Kernels, index: int, parts: int) -> bool:
    """Whether the parts of a batched product are summed right after: it is one product whose depth was split."""
    users = kernels.values.users(kernels.computation, index)
    return bool(users) and all(any(_sums(kernels, made, index, parts) for made in _inside(kernels, user)) for user in users)


def _inside(kernels: Kernels, index: int) -> Iterator[Value]:
    """The instruction of a kernel, or those of its fusion's body."""
    kernel = Value(kernels.computation, index)
    body = kernels.values.body(kernel.instruction)
    if body is None:
        yield kernel
        return
    for place in range(len(body)):
        yield Value(body, place, ((kernels.computation, kernel.instruction),))


def _sums(kernels: Kernels, made: Value, index: int, parts: int) -> bool:
    """Whether an instruction sums a kernel's result over the parts, which are its first dimension."""
    if made.opcode != "reduce" or made.instruction.dimensions[:1] != (0,):
        return False
    summed = kernels.values.operand(made, 0)
    while summed.opcode in RENAMED and summed.shape.dims[:1] == (parts,):
        summed = kernels.values.operand(summed, 0)
    return kernels.holding(kernels.values.made_by(summed)) == index


def _are_weights(values: Values, side: Value, cost: Cost) -> bool:
    """Whether an operand is an argument of the program, or of a loop's body, and nearly all that the product reads."""
    origin = values.origin(side, LAYOUT | {"convert", "dynamic-slice", "slice"})
    return (
        origin.opcode in ("parameter", "get-tuple-element")
        and origin.shape.is_array
        and side.shape.bytes >= _WEIGHTS_SHARE * cost.known(HBM)
    )
