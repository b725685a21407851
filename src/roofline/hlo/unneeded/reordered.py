"""Arguments that are copied in full to reorder their rows: the cache of a beam search, which is reordered after every token."""

from collections.abc import Iterator

from ...cost import NOTHING, less_traffic
from ...workload import Avoidable
from .kernels import Kernels
from .layout import KIND
from .program_arrays import results_of
from .stacked_arguments import CLASS
from .values import LAYOUT, Value

GROUP = "reordered"
_PASSED = LAYOUT | {"convert"}
_UPDATES = ("dynamic-update-slice", "scatter")
_MOST_UPDATES = 16  # updates of an argument that are followed before it is reordered


def reordered_arguments(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The kernels of a program's entry that gather all rows of an argument to return them, and those that copy the result."""
    if not kernels.are_in_entry or "gather" not in kernels.module.opcodes:
        return
    results = results_of(kernels.computation)
    for index, cost in kernels.costs.items():
        moved = 2 * sum(made.shape.bytes for made in _written(kernels, index) if _is_reordered(kernels, made))
        copies = [user for user in kernels.users(index) if kernels.computation[user].opcode == "copy"] if moved else []
        if not moved or results.isdisjoint((index, *copies)):
            continue
        why = "copies all of an argument to put its rows in another order"
        yield index, Avoidable(kind=KIND, instead=less_traffic(cost, moved), why=why, unneeded=CLASS, group=GROUP)
        for copy in copies:
            yield copy, Avoidable(kind=KIND, instead=NOTHING, why=why, unneeded=CLASS, group=GROUP)


def _written(kernels: Kernels, index: int) -> Iterator[Value]:
    """The gathers whose results a kernel writes."""
    for value in kernels.values.written(kernels.computation, index):
        made = kernels.values.origin(value, _PASSED)
        if made.opcode == "gather" and kernels.holding(made) == index:
            yield made


def _is_reordered(kernels: Kernels, gather: Value) -> bool:
    """Whether a gather takes as many whole rows as an argument has, which the program updates or which is donated: its state.

    A program that only shuffles its arguments does what it is for.
    """
    source = kernels.values.origin(kernels.values.operand(gather, 0), _PASSED)
    dims, sizes = source.shape.dims, gather.instruction.integers("slice_sizes")
    if (
        source.shape.elements != gather.shape.elements
        or len([size for size in sizes if size > 1]) < len([size for size in dims if size > 1]) - 1
    ):
        return False
    is_state = False
    for _ in range(_MOST_UPDATES):
        if source.opcode not in _UPDATES:
            break
        is_state = True
        source = kernels.values.origin(kernels.values.operand(source, 0), _PASSED)
    if source.opcode != "parameter" or source.computation is not kernels.computation:
        return False
    number = kernels.computation.parameters.index(source.index)
    return is_state or any(alias.parameter == number for alias in kernels.module.aliases)
