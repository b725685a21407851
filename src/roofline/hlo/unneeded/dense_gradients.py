"""Updates of a whole table, such as an embedding, of which a step looks up a few rows: all other rows have a gradient of zero."""

from collections.abc import Iterator

from ...cost import NOTHING
from ...units import percent
from ...workload import Avoidable
from ..ir.module import Instruction
from .exchanged import results_of
from .kernels import Kernels
from .product_order import users_of
from .values import LAYOUT, Value

KIND = "dense-gradient"
_MOST_ROWS = 1 / 8  # of a table: looking more of them up, and writing them back, takes as long as going through all
_ONE_ARRAY = 3  # operands of a scatter: the array, the places, the updates
_PASSED = LAYOUT | {"convert"}


def dense_gradients(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that update a table from the gradient of a few of its rows, and those that fill the rest of the gradient with zeros."""
    if not kernels.are_in_entry or "scatter" not in kernels.module.opcodes:
        return
    for index in kernels.costs:
        scatter = _sparse(kernels, index)
        if scatter is None:
            continue
        share = kernels.values.operand(scatter, 2).shape.elements / scatter.shape.elements
        reading = _reading(kernels, index, scatter.shape.elements)
        if not reading or results_of(kernels.computation).isdisjoint(reading):
            continue
        why = f"updates all rows of a table, of which at most {percent(share)} have a gradient"
        for place in reading:
            yield place, Avoidable(kind=KIND, instead=kernels.costs[place] * share, why=why)
        filler = kernels.holding(kernels.values.origin(kernels.values.operand(scatter, 0)))
        if filler in kernels.costs and filler != index:
            yield filler, Avoidable(kind=KIND, instead=NOTHING, why=why)


def _sparse(kernels: Kernels, index: int) -> Value | None:
    """The scatter in a kernel that makes a gradient of a few rows, and zeros elsewhere; ``None`` in others."""
    made = kernels.values.origin(Value(kernels.computation, index), _PASSED)
    if made.opcode != "scatter" or kernels.holding(made) != index or len(made.instruction.operands) != _ONE_ARRAY:
        return None
    filled = kernels.values.origin(kernels.values.operand(made, 0))
    is_constant = filled.opcode == "constant" or (
        filled.opcode == "broadcast" and kernels.values.origin(kernels.values.operand(filled, 0)).opcode == "constant"
    )
    few = kernels.values.operand(made, 2).shape.elements <= _MOST_ROWS * made.shape.elements
    return made if is_constant and few and made.shape.is_bounded else None


def _reading(kernels: Kernels, gradient: int, elements: int) -> list[int]:
    """The kernels that take a gradient, and arguments of its size, and nothing else of that size; none if another kernel takes it too."""
    entry, found, waiting = kernels.computation, dict.fromkeys((gradient,)), [gradient]
    while waiting:
        for user in sorted(users_of(kernels, waiting.pop()) - found.keys()):
            if user not in kernels.costs:
                if entry[user].opcode == "tuple" and user == entry.root:
                    continue
                return []
            large = [place for place in entry[user].operands if _size(entry[place]) >= elements]
            makers = [kernels.values.origin(Value(entry, place), _PASSED) for place in large]
            others = [made for made in makers if made.opcode != "parameter" and kernels.holding(made) not in found]
            if others or kernels.product(user) is not None or user in kernels.convolutions:
                return []
            found[user] = None
            waiting.append(user)
    return [place for place in found if place != gradient]


def _size(instruction: Instruction) -> int:
    return max((leaf.elements for leaf in instruction.shape.leaves if leaf.is_array), default=0)
