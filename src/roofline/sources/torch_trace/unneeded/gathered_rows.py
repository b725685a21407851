"""Rows that are gathered several times over and then multiplied: a linear layer on the edges of a graph instead of on its nodes.

``linear(x[edges])`` multiplies every row as often as it is gathered; ``linear(x)[edges]`` multiplies it once. Traces do not have the
indices of ``x[edges]``: the product that follows shows how many rows were gathered.
"""

from collections.abc import Iterator

from ....cost import Cost
from ....resource import HBM
from ....torch_prices import Tensor
from ....units import parse, plain
from ....workload import Avoidable
from ..columns import NONE
from ..pricing import PricedOp
from .recorded import PricedExecution, Recorded, tensors_of

KIND, GROUP = "repeated-operand", "gathered rows"
GATHERS = ("aten::index", "aten::index_select")
AHEAD = 2  # executions from the gather to the product
WORTH = 2  # times that each row must be gathered
LEAST = parse("1 MB", "B")  # of the gathered rows
_OPERANDS = {"aten::mm": 0, "aten::addmm": 1}


def gathered_rows(recorded: Recorded) -> Iterator[tuple[PricedExecution, Avoidable]]:
    """The products of gathered rows and their gradients, with their costs for each row once, in order of time."""
    shares: dict[int, tuple[float, str]] = {}  # of the rows that are distinct, by the number that a gradient shares with its product
    for place, held in enumerate(recorded.ordered):
        one, priced = held
        if one.context.backward:
            if (known := shares.get(recorded.sequence(one))) is not None and priced.name in _OPERANDS:
                yield held, _avoidable((priced.priced.cost or Cost.of({})) * known[0], known[1])
            continue
        table = next(iter(tensors_of(priced)), None) if priced.name in GATHERS else None
        if table is None or len(table.shape) != 2:
            continue
        for later in recorded.ordered[place + 1 : place + 1 + AHEAD]:
            times = _times(table, later[1])
            if later[0].mark != one.mark or times < WORTH:
                continue
            why = f"multiplies rows that it gathered, each about {plain(times, 2)} times"
            yield later, _avoidable(_once(later[1], times), why)
            if (number := recorded.sequence(later[0])) != NONE:
                shares[number] = 1 / times, why
            break


def _avoidable(instead: Cost, why: str) -> Avoidable:
    return Avoidable(kind=KIND, instead=instead, why=why, group=GROUP)


def _rows(priced: PricedOp) -> tuple[Tensor, Tensor] | None:
    """Both operands of a product of two matrices; else ``None``."""
    place = _OPERANDS.get(priced.name)
    if place is None or len(priced.args) < place + 2:
        return None
    left, right = priced.args[place : place + 2]
    return (left, right) if isinstance(left, Tensor) and isinstance(right, Tensor) and len(right.shape) == 2 else None


def _times(table: Tensor, priced: PricedOp) -> float:
    """How often each row of a table is among the rows that a product multiplies; 0 if these are no rows of it."""
    operands = _rows(priced)
    if operands is None or (operands[0].bytes or 0) < LEAST or operands[0].shape[1:] != table.shape[1:] or not table.shape[0]:
        return 0.0
    return operands[0].shape[0] / table.shape[0]


def _once(priced: PricedOp, times: float) -> Cost:
    """The cost of a product with each row once. The results are gathered then, which moves more if they are wider than the rows."""
    (left, right), cost = _rows(priced) or (Tensor(()), Tensor(())), (priced.priced.cost or Cost.of({})) * (1 / times)
    (rows, depth), width = left.shape, right.shape[1]
    wider = 2 * rows * max(width - depth, 0) * (left.dtype.bits / 8 if left.dtype is not None else 0)
    return cost + Cost.of({HBM: wider}) if wider else cost
