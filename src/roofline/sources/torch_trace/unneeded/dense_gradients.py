"""Dense gradients of embedding tables: a step looks up few rows, but the gradient and the optimizer go through all of them.

Tables that are also multiplied, as with the tied weights of a language model, are left out: all their rows have gradients.
"""

from collections.abc import Iterator, Sequence
from math import prod

from ....cost import Cost
from ....torch_prices import Tensor
from ....units import parse
from ....workload import Avoidable
from ..pricing import PricedOp
from .recorded import PricedExecution, Recorded, all_tensors, tensors_of

KIND = "dense-gradient"
LEAST_ROWS = 16  # rows of a table per row that a step looks up
LEAST = parse("64 MB", "B")  # of a table: for a smaller one, launching a sparse update takes longer than the dense update
SPARSE = 6  # a sparse update moves this many times the bytes per row: SparseAdam has many operators (PyTorch 2.11: 3.5 GB for 0.59 GB)
OPTIMIZER = "optimizer"
# Ops that compute the dense gradient of a table, and the place of the table's number of rows among their arguments. Their first arguments
# are the gradient of the result and the indices.
_GRADIENTS = {"aten::embedding_dense_backward": 2, "aten::_embedding_bag_dense_backward": 5}
_WHOLE = frozenset(("elementwise", "cast", "copy", "reduction", OPTIMIZER))

Shape = tuple[int, ...]


def dense_gradients(recorded: Recorded) -> Iterator[tuple[PricedExecution, Avoidable]]:
    """The ops that go through all rows of a table of which their step looks up few."""
    steps: dict[int, list[PricedExecution]] = {}
    for held in recorded.ordered:
        steps.setdefault(held[0].mark, []).append(held)
    for mark, mine in steps.items():
        if tables := _tables(mine):
            every = [shape for step, _, shape in recorded.accumulated if step == mark]
            for held in mine:
                yield from _of_op(held, tables, every)


def _tables(ordered: Sequence[PricedExecution]) -> dict[Shape, float]:
    """The share of rows that are looked up, for each large table with a dense gradient that is not multiplied."""
    rows: dict[Shape, float] = {}
    for _, priced in ordered:
        tensors, count = tensors_of(priced), _rows(priced)
        if count and len(tensors) > 1 and (tensors[0].dtype is not None):
            shape = (count, tensors[0].shape[-1])
            if (Tensor(shape, tensors[0].dtype).bytes or 0) >= LEAST:
                rows[shape] = rows.get(shape, 0) + tensors[1].elements
    multiplied = {one.shape for _, priced in ordered if priced.priced.category == "matmul" for one in tensors_of(priced)}
    few = {shape: looked_up / shape[0] for shape, looked_up in rows.items() if 0 < LEAST_ROWS * looked_up <= shape[0]}
    return {shape: share for shape, share in few.items() if shape not in multiplied and shape[::-1] not in multiplied}


def _rows(priced: PricedOp) -> int:
    """The number of rows of the table whose dense gradient an op computes; 0 for other ops."""
    place = _GRADIENTS.get(priced.name, len(priced.args))
    found = priced.args[place] if place < len(priced.args) else None
    return found if isinstance(found, int) else 0


def _of_op(held: PricedExecution, tables: dict[Shape, float], every: Sequence[Shape]) -> Iterator[tuple[PricedExecution, Avoidable]]:
    """The cost of an op on only the rows that are looked up; ``every`` has the shapes of all gradients of the step."""
    priced, cost = held[1], held[1].priced.cost
    if cost is None or priced.priced.category not in _WHOLE:
        return
    shapes = [one.shape for one in all_tensors(priced.args)]
    if not any(map(prod, shapes)) and priced.priced.category == OPTIMIZER:
        shapes = list(every)  # traces leave out long lists of tensors
    sizes = {shape: prod(shape) * shapes.count(shape) for shape in tables if shape in shapes}
    total = sum(map(prod, shapes))
    if not sizes or not total:
        return
    spared = sum(size * (1 - SPARSE * tables[shape]) for shape, size in sizes.items()) / total
    largest = max(sizes, key=lambda shape: sizes[shape])
    looked_up = round(tables[largest] * largest[0])
    instead = Cost.of({resource: amount * (1 - spared) for resource, amount in cost.amounts})
    yield held, Avoidable(kind=KIND, instead=instead, cause="rows", facts={"rows": largest[0], "looked_up": looked_up})
