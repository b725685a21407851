"""Updates of a whole table, such as an embedding, although a step uses only a few rows: the gradient of all others is zero."""

from collections.abc import Iterator

from ...cost import NOTHING
from ...units import percent
from ...workload import Avoidable
from ..ir.module import Instruction
from .kernels import Kernels
from .product_order import users_of
from .program_arrays import results_of
from .values import LAYOUT, Value

KIND = "dense-gradient"
_MOST_ROWS = 1 / 8  # of a table: gathering and scattering more rows takes as long as updating all
_ONE_ARRAY = 3  # operands of a scatter to one array: the array, the indices, the updates
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
        updating = _update_kernels(kernels, index, scatter.shape.elements)
        if not updating or results_of(kernels.computation).isdisjoint(updating):
            continue
        why = f"updates all rows of a table, of which at most {percent(share)} have a gradient"
        for place in updating:
            yield place, Avoidable(kind=KIND, instead=kernels.costs[place] * share, why=why)
        filler = kernels.holding(kernels.values.origin(kernels.values.operand(scatter, 0)))
        if filler in kernels.costs and filler != index:
            yield filler, Avoidable(kind=KIND, instead=NOTHING, why=why)


def _sparse(kernels: Kernels, index: int) -> Value | None:
    """The scatter of a kernel whose result is a gradient of a few rows and zeros elsewhere; ``None`` for other kernels."""
    made = kernels.values.origin(Value(kernels.computation, index), _PASSED)
    if made.opcode != "scatter" or kernels.holding(made) != index or len(made.instruction.operands) != _ONE_ARRAY:
        return None
    filled = kernels.values.origin(kernels.values.operand(made, 0))
    is_constant = filled.opcode == "constant" or (
        filled.opcode == "broadcast" and kernels.values.origin(kernels.values.operand(filled, 0)).opcode == "constant"
    )
    few = kernels.values.operand(made, 2).shape.elements <= _MOST_ROWS * made.shape.elements
    return made if is_constant and few and made.shape.is_bounded else None


def _update_kernels(kernels: Kernels, gradient: int, elements: int) -> list[int]:
    """The kernels that compute from a gradient and arguments of its size alone; empty if the gradient has any other use."""
    entry, found, pending = kernels.computation, dict.fromkeys((gradient,)), [gradient]
    while pending:
        for user in sorted(users_of(kernels, pending.pop()) - found.keys()):
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
            pending.append(user)
    return [place for place in found if place != gradient]


def _size(instruction: Instruction) -> int:
    return max((leaf.elements for leaf in instruction.shape.leaves if leaf.is_array), default=0)
