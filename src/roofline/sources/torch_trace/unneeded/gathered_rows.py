"""Rows that are gathered several times over and then multiplied: a linear layer on the edges of a graph instead of on its nodes.

``linear(x[edges])`` multiplies every row as often as it is gathered; ``linear(x)[edges]`` multiplies it once. Traces do not have the
indices of ``x[edges]``: the product that follows shows how many rows were gathered. Gathered rows may be joined with others first, as by
``linear(torch.cat([x[edges], y], -1))``: split weights multiply each part, and their results are added. Adding them takes about as long as
joining the rows did, so that only FLOP are saved forward; the gradients of both operands need not have the joined rows either.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from ....cost import Cost
from ....resource import HBM
from ....torch_prices import Tensor
from ....units import parse, plain
from ....workload import Avoidable
from ..columns import NONE
from ..pricing import PricedOp
from .recorded import PricedExecution, Recorded, all_tensors, factors_of, tensors_of

KIND, GROUP, JOINED = "repeated-operand", "gathered rows", "joined rows"
JOIN = "aten::cat"
BEFORE = 12  # executions in front of a join among which those that gathered its parts are searched
GATHERS = ("aten::index", "aten::index_select")
AHEAD = 2  # executions from the gather to the product
WORTH = 2  # times that each row must be gathered
LEAST = parse("1 MB", "B")  # of the gathered rows
_PRODUCTS = ("aten::mm", "aten::addmm")


def gathered_rows(recorded: Recorded) -> Iterator[tuple[PricedExecution, Avoidable]]:
    """The products of gathered rows and their gradients, with their costs for each row once, in order of time."""
    yield from _of_joined_rows(recorded)
    shares: dict[int, tuple[float, str]] = {}  # of the rows that are distinct, by the number that a gradient shares with its product
    for place, held in enumerate(recorded.ordered):
        one, priced = held
        if one.context.backward:
            if (known := shares.get(recorded.sequence(one))) is not None and priced.name in _PRODUCTS:
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


def _of_joined_rows(recorded: Recorded) -> Iterator[tuple[PricedExecution, Avoidable]]:
    """The products of gathered rows that were joined with others, and their gradients, with their costs by split weights."""
    joined: dict[int, Joined] = {}  # by the number that a gradient shares with its product
    for place, held in enumerate(recorded.ordered):
        one, priced = held
        if one.context.backward:
            if (known := joined.get(recorded.sequence(one))) is not None and priced.name in _PRODUCTS:
                yield held, _avoidable(known.gradient(priced), known.why, JOINED)
            continue
        found = _joined(priced, recorded.ordered[max(place - BEFORE, 0) : place]) if priced.name == JOIN else None
        if found is None:
            continue
        for later in recorded.ordered[place + 1 : place + 1 + AHEAD]:
            operands = _rows(later[1])
            if operands is not None and operands[0].shape == (found.rows, found.width):
                yield later, _avoidable(found.product(later[1]), found.why, JOINED)
                if (number := recorded.sequence(later[0])) != NONE:
                    joined[number] = found
                break


class Joined(Struct, frozen=True):
    """Rows of ``width`` elements, of which ``own`` were not gathered; ``needed`` are the elements of all rows, gathered ones once."""

    rows: int
    width: int
    own: int
    needed: float
    times: float

    @property
    def why(self) -> str:
        return f"joins rows that it gathered, each about {plain(self.times, 2)} times, with others and multiplies them"

    def product(self, priced: PricedOp) -> Cost:
        """The cost of the product by split weights: as many bytes, as the results of the parts are added."""
        share = self.needed / (self.rows * self.width)
        cost = priced.priced.cost or Cost.of({})
        return Cost.of({resource: amount if resource == HBM else amount * share for resource, amount in cost.amounts})

    def gradient(self, priced: PricedOp) -> Cost:
        """The cost of a gradient: of the joined rows it reads or writes those that were not gathered."""
        share = self.needed / (self.rows * self.width)
        cost = priced.priced.cost or Cost.of({})
        bits = next((one.dtype.bits for one in tensors_of(priced) if one.dtype is not None), 0)
        less = self.rows * (self.width - self.own) * bits / 8
        return Cost.of({resource: max(amount - less, 0) if resource == HBM else amount * share for resource, amount in cost.amounts})


def _joined(priced: PricedOp, before: Sequence[PricedExecution]) -> Joined | None:
    """The rows that a join makes, if some of them were gathered several times over; else ``None``."""
    parts = [one.shape for one in all_tensors(priced.args)]
    if len(parts) < 2 or any(len(shape) != 2 or shape[0] != parts[0][0] for shape in parts):
        return None
    rows, width = parts[0][0], sum(shape[1] for shape in parts)
    tables = [tensors_of(held)[0].shape for _, held in before if held.name in GATHERS and tensors_of(held)]
    own, needed, most = width, 0.0, 0.0
    for shape in parts:
        table = next((one for one in tables if len(one) == 2 and one[1:] == shape[1:] and rows >= WORTH * one[0] > 0), None)
        if table is not None:
            tables.remove(table)
            own, needed, most = own - shape[1], needed + table[0] * shape[1], max(most, rows / table[0])
    return Joined(rows, width, own, needed + rows * own, most) if own < width else None


def _avoidable(instead: Cost, why: str, group: str = GROUP) -> Avoidable:
    return Avoidable(kind=KIND, instead=instead, why=why, group=group)


def _rows(priced: PricedOp) -> tuple[Tensor, Tensor] | None:
    """Both operands of a product of two matrices; else ``None``."""
    factors = factors_of(priced) if priced.name in _PRODUCTS else None
    return factors if factors is not None and len(factors[1].shape) == 2 else None


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
