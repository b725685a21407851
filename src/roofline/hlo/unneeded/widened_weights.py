"""Quantized weights that are widened in memory before products read them: the narrow format saves memory, and costs time.

A product that reads the narrow weights and scales its result moves a fraction of the bytes.
"""

from collections.abc import Iterator

from ...cost import NOTHING, less_traffic
from ...workload import Avoidable, Facts
from .kernels import Kernels
from .number_formats import CLASS, KIND
from .values import LAYOUT, SPREAD, Value, Values

GROUP = "weights"
_NARROW_BITS = 8
_DATA = ("uint8", "bool")  # images and masks
_MOST_SCALES = 4  # factors of a weight, and what is subtracted from it
_SCALES = ("multiply", "divide", "subtract")


def widened_weights(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that only widen an argument of 8 bits or less for products, and those products, which read the wide format."""
    if "convert" not in kernels.module.opcodes:
        return
    widening: dict[int, Facts] = {}
    for index, found in kernels.products.items():
        for side in (found.left, found.right):
            narrow = _quantized(kernels.values, side)
            place = kernels.holding(kernels.values.origin(side, LAYOUT))
            if narrow is None or place is None or place == index or place not in kernels.costs:
                continue
            if not kernels.users(place) <= kernels.products.keys():
                continue
            facts = Facts(narrow=narrow.shape.number.name, wide=side.shape.number.name)
            instead = less_traffic(kernels.costs[index], side.shape.bytes - narrow.shape.bytes)
            yield index, Avoidable(kind=KIND, instead=instead, facts=facts, unneeded=CLASS, group=GROUP)
            widening[place] = facts
    for place, facts in widening.items():
        yield place, Avoidable(kind=KIND, instead=NOTHING, facts=facts, unneeded=CLASS, group=GROUP)


def _quantized(values: Values, side: Value) -> Value | None:
    """The argument of a few bits that an operand is, widened and scaled; ``None`` if it is none."""
    value = values.origin(side, LAYOUT)
    for _ in range(_MOST_SCALES):
        if value.opcode not in _SCALES:
            break
        whole = [one for one in values.operands(value) if values.origin(one, SPREAD).shape.elements == side.shape.elements]
        if len(whole) != 1:
            return None
        value = values.origin(whole[0], LAYOUT)
    while value.opcode == "convert":
        value = values.origin(values.operand(value, 0), LAYOUT)
    if value.opcode != "parameter" or value.inside or not value.shape.is_array or value.shape.number.name in _DATA:
        return None
    return value if value.shape.number.bits <= _NARROW_BITS < side.shape.number.bits else None
