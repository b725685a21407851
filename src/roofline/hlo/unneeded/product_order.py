"""Products in a costly order: two large matrices first, then a narrow one, where the other order does a fraction of the work."""

from collections.abc import Iterator

from msgspec.structs import replace

from ...cost import Cost
from ...resource import HBM
from ...units import plain
from ...workload import Avoidable
from .kernels import Kernels, Product
from .low_batch import is_split
from .values import RENAMED, Value, Values

KIND = "product-order"
_SPREAD = RENAMED | {"broadcast"}
_MOST_SCALES = 8
_WORTH = 0.25  # of the FLOP of both products that the other order may need: two linear layers in a row are not a mistake


def costly_orders(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The first of two products in a row, A B and then (A B) C or C (A B), where B C or C A first would be cheaper.

    Its result must have no other use; it may be scaled in between. What is left of its cost is the difference that the other order makes to
    both; where both get cheaper, as in linear attention, the second is left with what the other order costs.
    """
    values = kernels.values
    for index, found in kernels.products.items():
        second = _whole(kernels, index, found)
        for side in (second.left, second.right):
            made = unscaled(values, side)
            place = kernels.holding(made)
            first = kernels.product(place) if place is not None and place != index else None
            if place is None or first is None or first.batch != second.batch or first.made.index != made.index:
                continue
            if users_of(kernels, place) != {index}:
                continue
            both, instead = first.flops + second.flops, _other_order(first, second, second.columns if side is second.left else second.rows)
            unit = next((resource for resource, _ in kernels.costs[place].amounts if resource.unit == "matrix"), None)
            if unit is None or not instead or instead > _WORTH * both:
                continue
            read = first.left.shape.bytes + first.right.shape.bytes
            why = f"multiplies {first} before {second}, where the other order needs {plain(both / instead, 3)} times fewer FLOP"
            yield place, Avoidable(kind=KIND, instead=Cost.of({unit: max(instead - second.flops, 0), HBM: read // 2}), why=why)
            if instead < second.flops:
                other = second.right if side is second.left else second.left
                moved = read // 2 + other.shape.bytes + (second.made.shape.bytes if second.made.shape.is_array else 0)
                yield index, Avoidable(kind=KIND, instead=Cost.of({unit: instead, HBM: moved}), why=why)


def unscaled(values: Values, value: Value) -> Value:
    """What a value was before it was multiplied by numbers."""
    for _ in range(_MOST_SCALES):
        value = values.origin(value, RENAMED)
        if value.opcode not in ("multiply", "divide"):
            break
        sides = values.operands(value)
        scaled = [side for side in sides if values.origin(side, _SPREAD).shape.elements != 1]
        if len(scaled) != 1 or (value.opcode == "divide" and scaled != sides[:1]):
            break
        value = scaled[0]
    return value


def _whole(kernels: Kernels, index: int, found: Product) -> Product:
    """A product as one, where it is in parts of its depth."""
    is_in_parts = found.batch > 1 and is_split(kernels, index, found.batch)
    return replace(found, batch=1, depth=found.batch * found.depth) if is_in_parts else found


def users_of(kernels: Kernels, index: int) -> set[int]:
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
    return 2 * first.batch * first.depth * width * (first.rows + first.columns)
