"""Products in a costly order: two large matrices first, then a narrow one, where the other order needs a fraction of the FLOP."""

from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from ...cost import Cost
from ...resource import HBM
from ...workload import Avoidable, Facts
from .kernels import Kernels, Product, is_linear
from .low_batch import is_split
from .values import RENAMED, SPREAD, Value, Values

KIND = "product-order"
_MOST_SCALES = 8
_WORTH = 0.25  # of the FLOP of both products that the other order may need: two linear layers in a row are not a mistake


def costly_orders(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """Products A B that are only used in products (A B) C or C (A B), where B C or C A first would be cheaper; also those other products.

    The result may be scaled in between, and used by several products, as in the forward and the backward pass. The cost instead of A B is
    what the other order adds to its users; users that get cheaper, as in linear attention, get the cost of the other order.
    """
    for place, uses in _multiplied_on(kernels).items():
        first = kernels.products[place]
        unit = next((resource for resource, _ in kernels.costs[place].amounts if resource.unit == "matrix"), None)
        if unit is None or kernels.users(place) != {use.kernel for use in uses}:
            continue
        others = [_other_order(first, use.product, use.width) for use in uses]
        both, instead = first.flops + sum(use.product.flops for use in uses), sum(others)
        if not all(others) or instead > _WORTH * both:
            continue
        read = first.left.shape.bytes + first.right.shape.bytes
        facts = Facts(first=str(first), second=str(uses[0].product), times=both / instead)
        more = sum(max(other - use.product.flops, 0) for other, use in zip(others, uses, strict=True))
        yield place, Avoidable(kind=KIND, instead=Cost.of({unit: more, HBM: read // 2}), facts=facts)
        for use, other in zip(uses, others, strict=True):
            if other < use.product.flops:
                made = use.product.made.shape
                moved = read // 2 + use.other.shape.bytes + (made.bytes if made.is_array else 0)
                yield use.kernel, Avoidable(kind=KIND, instead=Cost.of({unit: other, HBM: moved}), facts=facts)


class _Use(NamedTuple):
    """A product with the result of another: its kernel, the product, its other operand, and the rows or columns of that operand."""

    kernel: int
    product: Product
    other: Value
    width: int


def _multiplied_on(kernels: Kernels) -> dict[int, list[_Use]]:
    """The products whose results are operands of other products, by kernel, with these uses."""
    found: dict[int, list[_Use]] = {}
    for index, product in kernels.products.items():
        if product.groups:
            continue
        second = _whole(kernels, index, product)
        for side, other, width in ((second.left, second.right, second.columns), (second.right, second.left, second.rows)):
            made = unscaled(kernels.values, side)
            place = kernels.holding(made)
            first = kernels.product(place) if place is not None and place != index else None
            if place is None or first is None or first.groups or first.batch != second.batch or first.made.key != made.key:
                continue
            if place in kernels.products and is_linear(made.instruction):
                found.setdefault(place, []).append(_Use(index, second, other, width))
    return found


def unscaled(values: Values, value: Value) -> Value:
    """A value before it was multiplied by scalars."""
    for _ in range(_MOST_SCALES):
        value = values.origin(value, RENAMED)
        if value.opcode not in ("multiply", "divide"):
            break
        sides = values.operands(value)
        scaled = [side for side in sides if values.origin(side, SPREAD).shape.elements != 1]
        if len(scaled) != 1 or (value.opcode == "divide" and scaled != sides[:1]):
            break
        value = scaled[0]
    return value


def _whole(kernels: Kernels, index: int, found: Product) -> Product:
    """The whole product, if its depth is split."""
    is_in_parts = found.batch > 1 and is_split(kernels, index, found.batch)
    return replace(found, batch=1, depth=found.batch * found.depth) if is_in_parts else found


def _other_order(first: Product, second: Product, width: int) -> int:
    """The FLOP of both products in the other order, for ``width`` rows or columns of the third matrix; 0 if there is no other order."""
    if second.depth not in (first.rows, first.columns):
        return 0
    return 2 * first.batch * first.depth * width * (first.rows + first.columns)
