"""Arguments that are stored in a wider format than they are multiplied in: weights in fp32, cast to bf16 again in every call.

The cast is a kernel of its own, or inside of the product, which then reads twice the bytes. An argument that the program updates and
returns, such as a trained weight, has to be cast each time. Results of an argument's shape, such as gradients, are taken for its update.
A cache is returned too, but if all that is written to it was narrow before, it loses nothing in the narrow format.
"""

from collections.abc import Iterator

from ...cost import NOTHING, less_traffic
from ...workload import Avoidable, Facts
from ..ir.shapes import Shape
from .kernels import Kernels
from .number_formats import CLASS, KIND
from .values import LAYOUT, Value, Values

GROUP, CACHE = "arguments", "cache"


def wide_arguments(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that cast an argument of the program for a product, and the products that do so themselves."""
    if not kernels.are_in_entry or "convert" not in kernels.module.opcodes:
        return
    given_back = {_size(leaf) for leaf in kernels.computation.root_instruction.shape.leaves if leaf.is_array}
    casts: dict[int, tuple[str, Facts, set[int]]] = {}  # kernel that casts -> group and reason, and the products it casts for
    for index, found in kernels.products.items():
        for side, other in ((found.left, found.right), (found.right, found.left)):
            cast, argument = _cast_argument(kernels, side)
            if cast is None or argument is None or not _is_weights(kernels, side, other):
                continue
            group = CACHE if argument.opcode == "dynamic-update-slice" else GROUP
            if group == GROUP and _size(argument.shape) in given_back:
                continue
            facts = Facts(wide=argument.shape.number.name, narrow=cast.shape.number.name)
            place = kernels.holding(cast)
            if place == index:
                instead = less_traffic(kernels.costs[index], argument.shape.bytes - cast.shape.bytes)
                yield index, Avoidable(kind=KIND, instead=instead, facts=facts, unneeded=CLASS, group=group)
            elif place is not None:
                casts.setdefault(place, (group, facts, set()))[2].add(index)
    for place, (group, facts, products) in casts.items():
        if place in kernels.costs and kernels.users(place, ("bitcast", "reshape", "get-tuple-element")) <= products:
            yield place, Avoidable(kind=KIND, instead=NOTHING, facts=facts, unneeded=CLASS, group=group)


def _cast_argument(kernels: Kernels, side: Value) -> tuple[Value | None, Value | None]:
    """The cast that made an operand, and the argument of the program that it made narrower, or the update of a cache."""
    cast = kernels.values.origin(side, LAYOUT)
    if cast.opcode != "convert":
        return None, None
    argument = kernels.values.origin(kernels.values.operand(cast, 0), LAYOUT)
    if not (argument.shape.is_array and cast.shape.is_array):
        return None, None
    is_argument = argument.opcode == "parameter" and not argument.inside
    if not is_argument and not _is_cache(kernels.values, argument, cast.shape.number.bits):
        return None, None
    wide, narrow = argument.shape.number, cast.shape.number
    is_narrower = wide.bits > narrow.bits and not wide.name.startswith(("int", "uint", "bool"))
    return (cast, argument) if is_narrower else (None, None)


def _is_cache(values: Values, updated: Value, bits: int) -> bool:
    """Whether a value is an argument updated in part, by values that had at most so many bits before they were widened for it."""
    if updated.opcode != "dynamic-update-slice":
        return False
    before, written = (values.origin(values.operand(updated, number), LAYOUT | {"slice"}) for number in (0, 1))
    is_argument = before.opcode == "parameter" and not before.inside
    return is_argument and written.opcode == "convert" and values.operand(written, 0).shape.number.bits <= bits


def _is_weights(kernels: Kernels, side: Value, other: Value) -> bool:
    """Whether an operand is larger than the other, which the program computes: it is then a weight, not data."""
    return side.shape.bytes >= other.shape.bytes and kernels.values.origin(other).opcode not in ("parameter", "constant")


def _size(shape: Shape) -> tuple[str, int]:
    """The format and size of an array, to recognise an updated argument: XLA may transpose it."""
    return shape.dtype, shape.elements
