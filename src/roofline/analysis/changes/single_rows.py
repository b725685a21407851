"""Products that a smaller batch reduces to one row: XLA multiplies small weights elementwise and adds up in another kernel.

It does so with a weight of less than ten million elements, and separately with weights that it would multiply at once for several rows
(queries, keys and values). Larger ones stay products.
"""

from msgspec import Struct
from msgspec.structs import replace

from ...cost import Cost
from ...hlo.ir.values import RENAMED
from ...hlo.review import Review
from ...operation import Operation, Product, RowWise, Streamed, width
from ...resource import HBM
from .split_depths import cost_of
from .state import State

SMALL = 10_000_000  # elements of both operands below which XLA multiplies a single row elementwise
MATRIX = 2  # dimensions of a matrix
_PASSING = RENAMED | {"get-tuple-element"}


class Parts(Struct, frozen=True):
    """A product of one row: its depth k, the columns of each small weight, and the columns of the large weights, which stay a product."""

    product: Product
    depth: int
    small: tuple[int, ...]
    large: int


def parts_of(review: Review, place: tuple[int, int], before: Operation | None, after: Operation | None) -> Parts | None:
    """The parts of a product once it has one row; ``None`` where all of it stays a product."""
    if not isinstance(before, Product) or not isinstance(after, Product):
        return None
    if after.groups or min(after.m, after.n) != 1 or min(before.m, before.n) == 1:
        return None
    found = review.product(*place)
    if found is None:
        return None
    sides = review.values.pieces(found.right if found.rows == 1 else found.left, _PASSING)
    weights = [one.shape for one in sides if one.shape.is_array and one.shape.rank == MATRIX]
    depth, columns = int(after.batch * after.k), int(max(after.m, after.n))  # split-k products are a batch of parts
    if len(weights) != len(sides) or sum(shape.elements for shape in weights) != depth * columns:
        return None
    small = tuple(shape.elements // depth for shape in weights if shape.elements + depth < SMALL)
    return Parts(after, depth, small, columns - sum(small)) if small else None


def split_product(state: State, index: int, parts: Parts, doublings: float) -> None:
    """Replace a product by one of its large weights, one kernel that multiplies all small weights, and one sum for each of these."""
    op, after = state.ops[index], parts.product
    element = width(after.right if after.n > 1 else after.left)
    multiplied = Cost.of({HBM: 2 * parts.depth * sum(parts.small) * element})
    if parts.large:
        left = replace(after, n=parts.large) if after.n > 1 else replace(after, m=parts.large)
        state.put(index, cost_of(left) * op.count, left, doublings)
        state.add(op, multiplied, Streamed(kind="fusion"), "multiply")
    else:
        state.put(index, multiplied * op.count, Streamed(kind="fusion"), doublings, fresh=True)
    for columns in parts.small:
        state.add(op, Cost.of({HBM: (parts.depth + 1) * columns * element}), RowWise(rows=columns, columns=parts.depth), "sum")
