"""Low-rank factors that are multiplied and added to frozen weights, x (W + B A)ᵀ, cost little forward, but the backward pass computes the
gradient of all of W + B A for those of B and A.
"""

from collections.abc import Iterator

from msgspec import Struct

from ....cost import Cost
from ....resource import HBM
from ....torch_prices import Tensor
from ....workload import Avoidable
from ..pricing import PricedOp
from .recorded import PricedExecution, Recorded, factors_of

KIND, MERGED = "product-order", "merged"
WORTH = 0.25  # the other order must need less than this share of the FLOP: two linear layers in a row are not a mistake
_PRODUCTS = ("aten::mm", "aten::bmm", "aten::addmm")


class Product(Struct, frozen=True):
    """A product, or a batch of products, of matrices of ``rows`` x ``depth`` and ``depth`` x ``columns``."""

    batch: int
    rows: int
    depth: int
    columns: int
    left: Tensor
    right: Tensor

    @property
    def multiplied(self) -> int:
        return self.batch * self.rows * self.depth * self.columns

    @property
    def made(self) -> int:
        return self.batch * self.rows * self.columns


def merged_factors(recorded: Recorded) -> Iterator[tuple[PricedExecution, Avoidable]]:
    """The gradients of whole weights that only those of low-rank factors are computed from, with the cost of multiplying by the factors."""
    stored = {shape for _, _, shape in recorded.accumulated}
    forward: dict[int, Product] = {}
    gradients: dict[tuple[int, ...], tuple[PricedExecution, Product]] = {}  # the last one of each shape
    for held in recorded.ordered:
        one, found = held[0], _product(held[1])
        if found is None or found.batch > 1:
            continue
        number = recorded.sequence(one)
        if not one.context.backward:
            forward[number] = found
            continue
        origin, shape = forward.get(number), (found.rows, found.columns)
        if origin is None:
            continue
        if (
            origin.right.elements == found.made and (found.left.strides or (0,))[0] == 1
        ):  # it sums over rows: its first operand is transposed
            gradients[shape] = held, found
        whole = (origin.rows, origin.columns)  # what two factors made, of which this is the gradient of one
        held_first = gradients.pop(whole, None) or gradients.pop(whole[::-1], None)
        if held_first is None or {whole, whole[::-1]} & stored:
            continue
        first, product = held_first
        instead = 2 * product.depth * origin.depth * (product.rows + product.columns)
        if 0 < instead <= WORTH * product.multiplied:
            facts = {"rows": whole[0], "columns": whole[1], "rank": origin.depth}
            instead_of = _by_factors(first[1], product, instead / product.multiplied)
            yield first, Avoidable(kind=KIND, instead=instead_of, facts=facts, group=MERGED)


def _by_factors(priced: PricedOp, product: Product, share: float) -> Cost:
    """The cost of the gradients of both factors by narrow products: ``share`` of the FLOP, and each operand read twice."""
    amounts = {resource: amount * share for resource, amount in (priced.priced.cost or Cost.of({})).amounts}
    return Cost.of({**amounts, HBM: 2.0 * ((product.left.bytes or 0) + (product.right.bytes or 0))})


def _product(priced: PricedOp) -> Product | None:
    factors = factors_of(priced) if priced.name in _PRODUCTS else None
    if factors is None or min(len(one.shape) for one in factors) < 2:
        return None
    left, right = factors
    batch = left.elements // max(left.shape[-2] * left.shape[-1], 1)
    return Product(batch, left.shape[-2], left.shape[-1], right.shape[-1], left, right)
