"""Rows that are gathered and then added to others, as messages along the edges of a graph: one kernel can read, change and add them.

Written out, ``sums.index_add_(0, to, x[from_])`` stores a row for each edge and reads it again. Compiled, or as a product with a sparse
matrix, no row of an edge is stored, and sums in fp32 take less time too. On an H200, ms per step of a layer with its gradients:

    edges x numbers       written out    compiled    saving told
    2,000,000 x 64 fp32           4.8    1.0–1.8             3.7
    2,000,000 x 128 fp32          8.8        2.2             4.9
      500,000 x 256 fp32          3.2        1.3             1.8
    4,000,000 x 16 fp32           5.9        1.1             5.4
    2,000,000 x 128 bf16          8.5        5.1             2.4

Both layers of 128 numbers also multiply each row by a weight, which fuses too: 0.7 to 0.9 ms more, told as an op of its own.
"""

from collections.abc import Iterator

from ....cost import NOTHING
from ....torch_prices import Tensor
from ....units import parse
from ....workload import Avoidable
from ..pricing import PricedOp
from .recorded import PricedExecution, Recorded, tensors_of

KIND, GROUP = "unfused-chain", "messages"
ADDS = ("aten::index_add_", "aten::scatter_add_")
BEFORE = 6  # executions in front of a sum among which the gather of its rows is searched: messages may be changed in between
LEAST = parse("1 MB", "B")  # of the gathered rows
COMPILED_SHARE = 0.35  # of the time of a sum in fp32 that a compiled kernel takes, with the gather; numbers of 16 bits are no faster
FULL = 32  # bits


def passed_messages(recorded: Recorded) -> Iterator[tuple[PricedExecution, Avoidable]]:
    """The gathers of rows that are then added to others, and these sums."""
    for place, held in enumerate(recorded.ordered):
        one, priced = held
        rows, cost = _added_rows(priced), priced.priced.cost
        if rows is None or cost is None or (rows.bytes or 0) < LEAST:
            continue
        for earlier in reversed(recorded.ordered[max(place - BEFORE, 0) : place]):
            same = earlier[0].mark == one.mark and earlier[0].context.backward == one.context.backward
            if not same or _multiplies(earlier[1]):  # a matmul of the rows needs them in memory
                break
            if _gathers(earlier[1], rows):
                yield earlier, Avoidable(kind=KIND, instead=NOTHING, group=GROUP)
                if rows.dtype is not None and rows.dtype.bits >= FULL:
                    yield held, Avoidable(kind=KIND, instead=cost * COMPILED_SHARE, group=GROUP)
                break


def _added_rows(priced: PricedOp) -> Tensor | None:
    """The rows that an op adds to others, more of them than there are sums; ``None`` for other ops."""
    tensors = tensors_of(priced) if priced.name in ADDS else []
    if len(tensors) < 2 or len(tensors[-1].shape) != 2:
        return None
    sums, rows = tensors[0].shape, tensors[-1].shape
    return tensors[-1] if sums[1:] == rows[1:] and rows[0] > sums[0] else None


def _gathers(priced: PricedOp, rows: Tensor) -> bool:
    """Whether an op gathers these rows from a table."""
    table, *others = tensors_of(priced) or [Tensor(())]
    if priced.name == "aten::gather":
        return table.shape[1:] == rows.shape[1:] and any(one.shape == rows.shape for one in others)
    return priced.name in ("aten::index", "aten::index_select") and len(table.shape) == 2 and table.shape[1:] == rows.shape[1:]


def _multiplies(priced: PricedOp) -> bool:
    return any(resource.unit == "matrix" for resource in priced.priced.cost or ())
