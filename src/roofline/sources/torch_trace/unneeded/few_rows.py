"""Products that read weights for only a few rows: they are bound by the bytes of the weights, and more rows would take no longer.

A matrix that a product of the same step made is no weights: it is another one for every row.
"""

from collections.abc import Iterator

from ....cost import Cost
from ....dtypes import dtype
from ....operation import Product
from ....resource import HBM
from ....workload import Avoidable, Saves
from ..pricing import PricedOp
from .recorded import PricedExecution, Recorded

KIND = "low-batch"
FEW_ROWS = 8
WEIGHTS_SHARE = 0.7  # of an op's bytes
LEAST = 0.05  # of the FLOP of all products: with less, the batch is not small (for example, logits of only the last token)


def few_rows(recorded: Recorded) -> Iterator[tuple[PricedExecution, Avoidable]]:
    """The products of few rows outside of backward passes, and their costs if eight times as many rows shared the bytes."""
    every, few = 0.0, 0.0
    found: list[tuple[PricedExecution, Avoidable]] = []
    made: set[tuple[int, int]] = set()  # the step and the elements of each product's result
    for held in recorded.ordered:
        product = held[1].priced.operation
        if not isinstance(product, Product):
            continue
        flops = 2.0 * float(product.m) * float(product.k) * float(product.n)
        every += flops
        is_made = (held[0].mark, _elements(product)) in made
        made.add((held[0].mark, int(product.batch) * int(product.m) * int(product.n)))
        reason = None if held[0].context.backward or is_made else _reason(held[1], product)
        if reason is not None:
            few += flops
            found.append((held, reason))
    if few >= LEAST * every:
        yield from found


def _elements(product: Product) -> int:
    """The elements of the larger factor of a product."""
    return int(product.k) * max(int(product.m), int(product.n))


def _reason(priced: PricedOp, product: Product) -> Avoidable | None:
    rows, cost = min(int(product.m), int(product.n)), priced.priced.cost
    if cost is None or product.groups or not 0 < rows <= FEW_ROWS:
        return None
    weights = dtype(product.left).bytes(_elements(product))
    if weights < WEIGHTS_SHARE * float(cost.known(HBM)):
        return None
    shared = {resource: amount / FEW_ROWS if resource.measure == "B" else amount for resource, amount in cost.amounts}
    return Avoidable(kind=KIND, instead=Cost.of(shared), facts={"weights": weights, "rows": rows}, saves=Saves.SHARED_READS)
