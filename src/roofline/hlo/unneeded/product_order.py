"""Products in a costly order: two large matrices first, then a narrow one, where the other order does a fraction of the work."""

from collections.abc import Iterator

from msgspec.structs import replace

from ...cost import Cost
from ...resource import HBM
from ...workload import Avoidable
from .kernels import Kernels, Product
from .low_batch import is_split
from .values import RENAMED

KIND = "product-order"
_WORTH = 0.25  # of the FLOP of both products that the other order may need: two linear layers in a row are not a mistake


def costly_orders(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The first of two products in a row, A B and then (A B) C or C (A B), where B C or C A first would be cheaper.

    Its result must have no other use. What is left of its cost is the difference that the other order makes to both.
    """
    values = kernels.values
    for index in kernels.products:
        second = _whole(kernels, index)
        for side in (second.left, second.right) if second is not None else ():
            assert second is not None
            made = values.origin(side, RENAMED)
            place = kernels.holding(made)
            first = kernels.product(place) if place is not None and place != index else None
            if place is None or first is None or first.batch != 1 or first.made.index != made.index or _users(kernels, place) != {index}:
                continue
            both, instead = first.flops + second.flops, _other_order(first, second, second.columns if side is second.left else second.rows)
            unit = next((resource for resource, _ in kernels.costs[place].amounts if resource.unit == "matrix"), None)
            if unit is None or not instead or instead > _WORTH * both:
                continue
            left = Cost.of({unit: max(instead - second.flops, 0), HBM: (first.left.shape.bytes + first.right.shape.bytes) // 2})
            why = f"multiplies {first} before {second}, where the other order needs {both / instead:.3g} times fewer FLOP"
            yield place, Avoidable(kind=KIND, instead=left, why=why)


def _whole(kernels: Kernels, index: int) -> Product | None:
    """The product of a kernel, if it is one product, in parts of its depth or not."""
    found = kernels.product(index)
    if found is None or found.batch == 1:
        return found
    return replace(found, batch=1, depth=found.batch * found.depth) if is_split(kernels, index, found.batch) else None


def _users(kernels: Kernels, index: int) -> set[int]:
    """The kernels that use a kernel's result, followed through instructions that only rename it."""
    found, waiting = set[int](), [index]
    while waiting:
        for user in kernels.values.users(kernels.computation, waiting.pop()):
            if kernels.computation[user].opcode in ("get-tuple-element", "bitcast"):
                waiting.append(user)
            else:
                found.add(user)
    return found


def _other_order(first: Product, second: Product, width: int) -> int:
    """The FLOP of both products in the other order, for as many rows or columns as the second adds; 0 where it contracts neither side."""
    if second.depth not in (first.rows, first.columns):
        return 0
    return 2 * first.depth * width * (first.rows + first.columns)
