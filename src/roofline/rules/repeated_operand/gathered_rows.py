"""Rows that are gathered several times over and then multiplied: a linear layer on the edges of a graph instead of on its nodes.

``linear(x[edges])`` multiplies every row as often as it is gathered; ``linear(x)[edges]`` multiplies it once. Gathered rows may be joined
with others first, as by ``linear(torch.cat([x[edges], y], -1))``: split weights multiply each part, and their results are added. Adding
them takes about as long as joining the rows did, so that only FLOP are saved forward; the gradients of both operands need not have the
joined rows either.
"""

from collections.abc import Iterator

from msgspec import Struct

from ...cost import Cost
from ...graph import Array, Graph, Node, Operator, Phase
from ...resource import HBM
from ...units import parse
from ...workload import Avoidable

KIND, GROUP, JOINED = "repeated-operand", "gathered rows", "joined rows"
WORTH = 2  # times that each row must be gathered
LEAST = parse("1 MB", "B")  # of the gathered rows


class Rows(Struct, frozen=True):
    """Rows of ``width`` elements, of which ``own`` were not gathered; ``needed`` are the elements of all rows, gathered ones once."""

    count: int
    width: int
    own: int
    needed: float
    times: float

    @property
    def share(self) -> float:
        """The share of the elements that are needed."""
        return self.needed / (self.count * self.width)


def gathered_rows(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The products of gathered rows and their gradients, with their costs for each row once."""
    for product in graph.of(Operator.DOT):
        left, right = (graph.arrays[array] for array in product.takes[:2])
        if product.phase == Phase.BACKWARD or len(left.shape) != 2 or len(right.shape) != 2:
            continue
        gradients = [node for node in graph.gradients(product) if node.operator == Operator.DOT]
        maker = graph.made_by(product.takes[0], Operator.GATHER, Operator.CONCATENATE)
        if maker is None or left.bytes < LEAST:
            continue
        if maker.operator == Operator.GATHER and (times := _times(graph, maker, left)) >= WORTH:
            yield product.kernel, _avoidable(_once(graph, product, times), times, GROUP)
            for gradient in gradients:
                yield gradient.kernel, _avoidable(graph.cost(gradient) * (1 / times), times, GROUP)
        if maker.operator == Operator.CONCATENATE and (rows := _joined(graph, maker, left)) is not None:
            yield product.kernel, _avoidable(_split(graph, product, rows, 0), rows.times, JOINED)
            spared = rows.count * (rows.width - rows.own) * (left.dtype.bits / 8 if left.dtype is not None else 0)
            for gradient in gradients:
                yield gradient.kernel, _avoidable(_split(graph, gradient, rows, spared), rows.times, JOINED)


def _avoidable(instead: Cost, times: float, group: str) -> Avoidable:
    return Avoidable(kind=KIND, instead=instead, facts={"times": times}, group=group)


def _times(graph: Graph, gather: Node, rows: Array) -> float:
    """How often each row of a table is gathered, if these are whole rows of a table of two axes; else 0."""
    table = graph.arrays[gather.takes[0]]
    is_rows = gather.params == 0 and len(table.shape) == 2 and table.shape[1:] == rows.shape[1:]
    return rows.shape[0] / table.shape[0] if is_rows and table.shape[0] else 0.0


def _once(graph: Graph, product: Node, times: float) -> Cost:
    """The cost of a product with each row once. The results are gathered then, which moves more if they are wider than the rows."""
    sizes, number = product.sizes, graph.arrays[product.takes[0]].dtype
    wider = 2 * sizes.rows * max(sizes.columns - sizes.depth, 0) * (number.bits / 8 if number is not None else 0)
    cost = graph.cost(product) * (1 / times)
    return cost + Cost.of({HBM: wider}) if wider else cost


def _joined(graph: Graph, join: Node, whole: Array) -> Rows | None:
    """The rows that a join along the second axis makes, if some of them were gathered several times over; else ``None``."""
    rows, width = whole.shape
    own, needed, most = width, 0.0, 0.0
    for array in join.takes:
        part = graph.arrays[array]
        if len(part.shape) != 2 or part.shape[0] != rows or join.params not in (1, -1):
            return None
        gather = graph.made_by(array, Operator.GATHER)
        if gather is not None and (times := _times(graph, gather, part)) >= WORTH:
            own, needed, most = own - part.shape[1], needed + part.elements / times, max(most, times)
    return Rows(rows, width, own, needed + rows * own, most) if own < width else None


def _split(graph: Graph, product: Node, rows: Rows, spared: float) -> Cost:
    """The cost of a product by split weights: as many bytes forward, as the results of the parts are added."""
    cost = graph.cost(product)
    return Cost.of({resource: max(amount - spared, 0) if resource == HBM else amount * rows.share for resource, amount in cost.amounts})
