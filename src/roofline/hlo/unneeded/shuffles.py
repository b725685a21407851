"""Shuffles in several rounds: `jax.random.permutation` sorts by random keys again and again, so that equal keys matter less.

Its rounds are ceil(3·ln n / ln 2³²): two from 1,626 elements on. One round alone keeps the order of those few elements whose random keys of
32 bits are equal.
"""

from collections.abc import Iterator

from ...cost import NOTHING
from ...workload import Avoidable
from .duplicates import CLASS, KIND
from .kernels import Kernels
from .sorted_parts import sorts
from .values import LAYOUT

GROUP = "shuffle"
_SHUFFLES = "_shuffle)/sort"  # how JAX names the sort of a round
_PASSED = LAYOUT | {"get-tuple-element"}


def shuffles(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The sorts of a computation whose result another round of the same shuffle sorts again."""
    if kernels.module.opcodes.isdisjoint(("sort", "custom-call")):
        return
    rounds = [index for index in kernels.costs if _is_round(kernels, index)]
    for index in rounds:
        for earlier in {_source(kernels, operand) for operand in kernels.computation[index].operands} & {*rounds}:
            elements = kernels.computation[kernels.computation[earlier].operands[0]].shape.elements
            yield earlier, Avoidable(kind=KIND, instead=NOTHING, facts={"elements": elements}, unneeded=CLASS, group=GROUP, extra=True)


def _is_round(kernels: Kernels, index: int) -> bool:
    instruction = kernels.computation[index]
    return sorts(instruction) and _SHUFFLES in instruction.op_name and len(instruction.operands) > 1


def _source(kernels: Kernels, index: int) -> int:
    """The instruction that computes a value, behind parts of tuples and changes of shape."""
    while kernels.computation[index].opcode in _PASSED and kernels.computation[index].operands:
        index = kernels.computation[index].operands[0]
    return index
