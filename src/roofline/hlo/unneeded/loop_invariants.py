"""The same value computed in every trip of a loop: a kernel that takes nothing but what the loop hands on as it is."""

from collections.abc import Iterator

from ...cost import NOTHING
from ...rules.duplicated_work.equal_values import CLASS, KIND
from ...workload import Avoidable
from ..price.elementwise import ELEMENTWISE
from .kernels import Kernels
from .values import Value

GROUP = "loop"
_RENAMES = frozenset(("bitcast", "get-tuple-element", "reshape"))
_MADE_ANYWHERE = ("constant", "iota")


def loop_invariants(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The kernels in the body of a loop that compute the same in every trip."""
    trips = kernels.trips
    if kernels.number not in kernels.values.loop_bodies or (trips is not None and trips < 2):
        return
    same: dict[int, bool] = {}  # what is the same in every trip, and whether the loop was given it: without that a kernel fills a buffer
    for index, instruction in enumerate(kernels.computation.instructions):
        takes_the_same = bool(instruction.operands) and same.keys() >= {*instruction.operands}
        if kernels.values.before_loop(Value(kernels.computation, index)) is not None:
            same[index] = True
        elif instruction.opcode in _MADE_ANYWHERE:
            same[index] = False
        elif takes_the_same and (instruction.opcode in _RENAMES or _is_computed(kernels, index)):
            same[index] = any(same[operand] for operand in instruction.operands)
            if same[index] and index in kernels.costs:
                instead = kernels.costs[index] * (1 / trips) if trips else NOTHING
                yield index, Avoidable(kind=KIND, instead=instead, unneeded=CLASS, group=GROUP, extra=True)


def _is_computed(kernels: Kernels, index: int) -> bool:
    """Whether a kernel computes something of its operands alone: no exchange with other devices, and no copy to be overwritten."""
    opcode = kernels.computation[index].opcode
    return opcode in ("fusion", "transpose") or opcode in ELEMENTWISE or index in kernels.products or index in kernels.convolutions
