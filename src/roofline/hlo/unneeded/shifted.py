"""Arguments that are copied in full to append a small part: a cache that grows, or drops its oldest position, by concatenation."""

from collections.abc import Iterator

from ...cost import less_traffic
from ...workload import Avoidable
from .donation import CLASS, KIND, updated_in_place
from .kernels import Kernels
from .program_arrays import results_of
from .values import LAYOUT, Value

GROUP = "shifted"
_MOST_NEW = 1 / 16  # of the result: the largest part that counts as small
_PASSED = LAYOUT | {"convert", "slice", "copy"}


def shifted_arguments(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The kernels of a program's entry that concatenate an argument and a small part, if the program returns the result."""
    if not kernels.are_in_entry or "concatenate" not in kernels.module.opcodes:
        return
    results = results_of(kernels.computation)
    for index, cost in kernels.costs.items():
        for joined, is_updated in _joins(kernels, index):
            is_updated = is_updated or updated_in_place(kernels.values, kernels.computation, index)
            moved = _moved(kernels, joined, is_updated=is_updated)
            if moved and (is_updated or index in results):
                yield index, Avoidable(kind=KIND, instead=less_traffic(cost, moved), unneeded=CLASS, group=GROUP, extra=True)
                break


def _joins(kernels: Kernels, index: int) -> Iterator[tuple[Value, bool]]:
    """The concatenations that a kernel writes, and whether it updates a part of each."""
    for value in kernels.values.written(kernels.computation, index):
        made = kernels.values.origin(value, LAYOUT | {"convert"})
        is_updated = made.opcode == "dynamic-update-slice"
        if is_updated:
            made = kernels.values.origin(kernels.values.operand(made, 0), LAYOUT | {"convert"})
        if made.opcode == "concatenate" and kernels.holding(made) == index:
            yield made, is_updated


def _moved(kernels: Kernels, joined: Value, *, is_updated: bool) -> int:
    """The bytes read and written to concatenate an argument and a small part; 0 if the other part is not small, or there is none."""
    by_argument: dict[int, int] = {}
    for operand in kernels.values.operands(joined):
        origin = kernels.values.origin(operand, _PASSED)
        if origin.opcode == "parameter" and origin.computation is kernels.computation and origin.shape.elements >= operand.shape.elements:
            by_argument[origin.index] = by_argument.get(origin.index, 0) + operand.shape.bytes
    kept, whole = max(by_argument.values(), default=0), joined.shape.bytes
    return 2 * kept if (1 - _MOST_NEW) * whole <= kept < whole + is_updated else 0
