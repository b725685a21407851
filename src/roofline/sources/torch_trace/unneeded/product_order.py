"""Products in a costly order: two large matrices first, then a narrow one, as in linear attention with (Q Kᵀ) V, or low-rank weights.

(A B) C costs m·n·(k + p) multiplications, A (B C) only k·p·(m + n), for A of m x k, B of k x n and C of n x p. The result of the first
product may be scaled in between; if any other op reads it, such as a softmax or a sum with another matrix, the order cannot be changed.

Low-rank factors that are multiplied and added to frozen weights, x (W + B A)ᵀ, cost little forward, but the backward pass computes the
gradient of all of W + B A for those of B and A.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from ....cost import Cost
from ....resource import HBM
from ....torch_prices import Tensor
from ....units import plain
from ....workload import Avoidable
from ..columns import NONE
from ..pricing import PricedOp
from .recorded import PricedExecution, Recorded, factors_of, tensors_of

KIND, MERGED = "product-order", "merged"
AHEAD = 8  # executions after the first product that are searched
WORTH = 0.25  # the other order must need less than this share of the FLOP: two linear layers in a row are not a mistake
_PRODUCTS = ("aten::mm", "aten::bmm", "aten::addmm")
_SCALES = ("aten::mul", "aten::mul_", "aten::div", "aten::div_", "aten::copy_", "aten::neg")


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

    def is_made(self, tensor: Tensor) -> bool:
        """Whether an operand may be this product's result, transposed or not."""
        return tensor.elements == self.made and sorted(tensor.shape[-2:]) == sorted((self.rows, self.columns))


def costly_orders(recorded: Recorded) -> Iterator[tuple[PricedExecution, Avoidable]]:
    """Both products of a costly order and their gradients, with their costs in the other order, in order of time."""
    gradients: dict[int, Avoidable] = {}
    shares: dict[int, float] = {}
    for place, held in enumerate(recorded.ordered):
        one, priced = held
        if one.context.backward:
            if (reason := gradients.get(recorded.sequence(one))) is not None and _product(priced) is not None:
                yield held, _with_cost(reason, (priced.priced.cost or Cost.of({})) * shares[recorded.sequence(one)])
            continue
        first = _product(priced)
        found = _next_product(first, recorded.ordered, place) if first is not None else None
        if first is None or found is None:
            continue
        later, second = found
        narrow = second.columns if first.is_made(second.left) else second.rows
        both, instead = first.multiplied + second.multiplied, first.batch * first.depth * narrow * (first.rows + first.columns)
        if instead > WORTH * both:
            continue
        why = f"multiplies two large matrices before a narrow one, where the other order needs {plain(both / instead, 3)} times fewer FLOP"
        reason, share = Avoidable(kind=KIND, instead=Cost.of({}), why=why), instead / both
        spared = _without(first.made, priced, share), _without(first.made, recorded.ordered[later][1], share)
        for each, cost in zip((held, recorded.ordered[later]), spared, strict=True):
            yield each, _with_cost(reason, cost)
            if (number := recorded.sequence(each[0])) != NONE:
                gradients[number], shares[number] = reason, share


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
            why = f"computes the gradient of {whole[0]}×{whole[1]} weights for factors of rank {origin.depth} that were added to them"
            yield first, Avoidable(kind=KIND, instead=_by_factors(first[1], product, instead / product.multiplied), why=why, group=MERGED)


def _by_factors(priced: PricedOp, product: Product, share: float) -> Cost:
    """The cost of the gradients of both factors by narrow products: ``share`` of the FLOP, and each operand read twice."""
    amounts = {resource: amount * share for resource, amount in (priced.priced.cost or Cost.of({})).amounts}
    return Cost.of({**amounts, HBM: 2.0 * ((product.left.bytes or 0) + (product.right.bytes or 0))})


def _with_cost(reason: Avoidable, cost: Cost) -> Avoidable:
    return Avoidable(kind=reason.kind, instead=cost, why=reason.why)


def _without(made: int, priced: PricedOp, share: float) -> Cost:
    """The cost of a product in the other order: ``share`` of the FLOP, without the bytes of the first product's result."""
    cost = priced.priced.cost or Cost.of({})
    width = next((one.dtype.bits / 8 for one in tensors_of(priced) if one.dtype is not None), 0.0)
    amounts = {resource: amount * share if resource != HBM else max(float(amount) - made * width, 0.0) for resource, amount in cost.amounts}
    return Cost.of(amounts)


def _product(priced: PricedOp) -> Product | None:
    factors = factors_of(priced) if priced.name in _PRODUCTS else None
    if factors is None or min(len(one.shape) for one in factors) < 2:
        return None
    left, right = factors
    batch = left.elements // max(left.shape[-2] * left.shape[-1], 1)
    return Product(batch, left.shape[-2], left.shape[-1], right.shape[-1], left, right)


def _next_product(first: Product, ordered: Sequence[PricedExecution], place: int) -> tuple[int, Product] | None:
    """The product that reads the result of the first one, if only scaling reads it in between."""
    mark, found = ordered[place][0].mark, None
    for later, (one, priced) in enumerate(ordered[place + 1 : place + 1 + AHEAD], start=place + 1):
        if one.mark != mark or one.context.backward:
            break
        taken = [tensor for tensor in tensors_of(priced) if tensor.elements == first.made]
        if not taken:
            continue
        second = _product(priced)
        if found is None and second is not None and first.is_made(second.left) != first.is_made(second.right):
            found = later, second
        elif found is not None or priced.name not in _SCALES or (len(taken) > 1 and priced.name != "aten::copy_"):
            return None
    return found
