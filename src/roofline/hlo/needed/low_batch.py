"""Products that read weights for a few rows: the bytes of the weights set the time, and more rows would cost no more."""

from collections.abc import Iterator

from ...cost import Cost
from ...resource import HBM
from ...units import show
from ...workload import Avoidable
from .kernels import Kernels
from .values import LAYOUT, Value, Values

KIND = "low-batch"
FEW_ROWS = 8
_WEIGHTS_SHARE = 0.7  # of an op's bytes


def low_batches(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The products of few rows whose bytes are nearly all weights. Eight times the rows would take about the same time."""
    for index, cost in kernels.costs.items():
        found = kernels.product(index)
        if found is None or found.batch > 1:
            continue
        for weights, rows in ((found.right, found.rows), (found.left, found.columns)):
            if rows <= FEW_ROWS and _are_weights(kernels.values, weights, cost):
                why = f"reads {show(weights.shape.bytes, 'B')} of weights for {rows} row{'s' if rows > 1 else ''}"
                yield index, Avoidable(kind=KIND, instead=cost * (1 / FEW_ROWS), why=why)
                break


def _are_weights(values: Values, side: Value, cost: Cost) -> bool:
    """Whether an operand is an argument of the program, or of a loop's body, and nearly all that the product reads."""
    origin = values.origin(side, LAYOUT | {"convert", "dynamic-slice", "slice"})
    return (
        origin.opcode in ("parameter", "get-tuple-element")
        and origin.shape.is_array
        and side.shape.bytes >= _WEIGHTS_SHARE * cost.known(HBM)
    )
