"""Values of StableHLO's attributes: numbers, lists of numbers, and the elements of constants."""

from itertools import chain

from ...ir.malformed import Malformed, excerpt
from ...ir.shapes import Shape
from ..literals import MAX_ELEMENTS, Element
from ..mlir.attributes import parse_value
from ..mlir.elements import Elements


def numbers(value: object) -> tuple[int, ...]:
    """Whole numbers from a list, from ``array<i64: …>`` or from dense elements, flat."""
    if isinstance(value, bool):
        return (int(value),)
    if isinstance(value, int):
        return (value,)
    if isinstance(value, list):
        return tuple(chain.from_iterable(map(numbers, value)))
    if isinstance(value, Elements):
        return numbers(list(value.all))
    if isinstance(value, str) and value.startswith("["):
        return numbers(parse_value(value)[0])
    raise Malformed(f"not whole numbers: {excerpt(str(value))}")


def number(value: object) -> int:
    listed = numbers(value)
    if len(listed) != 1:
        raise Malformed(f"not one whole number: {excerpt(str(value))}")
    return listed[0]


def literal(value: object, shape: Shape) -> tuple[Element, ...] | None:
    """The elements of a constant, if they are few."""
    if not isinstance(value, Elements) or value.values is None or not shape.is_bounded or shape.elements > MAX_ELEMENTS:
        return None
    return value.all
