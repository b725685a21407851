"""Products of which only the diagonal is used: scores of all pairs of rows, of which the program takes those of equal rows."""

from collections.abc import Iterator

from ...workload import Avoidable
from .kernels import Kernels
from .positions import is_diagonal
from .unused import CLASS, KIND
from .values import RENAMED, Value

_MOST_USED = 1 / 8


def diagonals_of_products(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The products whose only use is a gather of a few elements, or a select of the diagonal."""
    for index, found in kernels.products.items():
        users = kernels.users(index) if found.batch == 1 and found.rows == found.columns else set()
        if len(users) != 1 or found.rows * _MOST_USED < 1:
            continue
        if any(_takes_the_diagonal(kernels, one, index) for one in kernels.values.parts(kernels.computation, users.pop())):
            cost = kernels.costs[index] * (1 / found.rows)
            yield (
                index,
                Avoidable(kind=KIND, instead=cost, cause="diagonal", facts={"product": str(found)}, unneeded=CLASS, factor=found.rows),
            )


def _takes_the_diagonal(kernels: Kernels, one: Value, index: int) -> bool:
    """Whether a value takes single elements of a product's result, at most one for each row, or selects its diagonal."""
    if one.opcode not in ("gather", "select"):
        return False
    number = 0 if one.opcode == "gather" else 1
    taken = kernels.values.operand(one, number)
    if kernels.holding(kernels.values.origin(taken, RENAMED)) != index or not _is_only_use(kernels, one, number):
        return False
    if one.opcode == "select":
        return is_diagonal(kernels.values, one)
    sizes = one.instruction.integers("slice_sizes")
    return set(sizes) == {1} and one.shape.elements <= max(taken.shape.dims)


def _is_only_use(kernels: Kernels, use: Value, number: int = 0) -> bool:
    """Whether an instruction is the only use, in its kernel, of one of its operands."""
    value, user = kernels.values.operand(use, number), use.index
    while value.inside and kernels.values.users(value.computation, value.index) == [user]:
        arrays = [one for one in kernels.values.operands(value) if one.shape.elements == value.shape.elements and one.opcode != "broadcast"]
        if value.opcode == "parameter" or len(arrays) != 1:
            return value.opcode == "parameter"
        value, user = arrays[0], value.index
    return not value.inside
