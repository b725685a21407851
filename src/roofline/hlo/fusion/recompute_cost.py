"""The cost of computing a value again, in bytes read: of the smallest set of values it can be made from, and of its sources in memory.

Only loops over elements are computed again: the search for sources ends at a reduction, a product or anything else. A transcendental
counts as a byte, because on accelerators it takes about the time of one.
"""

from collections.abc import Mapping, Sequence

from ..ir.layers import MIDDLE, REACH, LayerRun
from ..ir.module import Computation
from .rules import TAKES, Traits

MOST_LEAVES = 16  # sources in memory up to which they are listed


class RecomputeCosts:
    """The values of a computation in which each value precedes its uses.

    ``least`` are the fewest bytes from which each can be computed. ``leaves`` are the values in memory that it is computed from, with the
    bytes read of each; ``None`` if there are more than `MOST_LEAVES`.
    """

    def __init__(self, computation: Computation, traits: Sequence[Traits], fixed: Sequence[bool]) -> None:
        self.instructions, self.traits = computation.instructions, traits
        self.sizes = sizes_of(computation)
        self.least: list[int] = []
        self.leaves: list[Mapping[int, int] | None] = []
        for index, size in enumerate(self.sizes):
            if fixed[index] or not traits[index].is_repeatable:
                self.least.append(size)
                self.leaves.append({index: size} if size else {})
            else:
                self.least.append(min(size, self.remade(index)))
                self.leaves.append(self._joined(index))

    def repeat(self, layers: LayerRun) -> bool:
        """Whether the values of each middle layer have the same sources as those one layer later, so that this holds for all layers."""
        start, stop = (layers.start + number * layers.period for number in (MIDDLE[0] - REACH, MIDDLE[-1]))
        return all(self._repeats(layers, index) for index in range(start, stop))

    def _repeats(self, layers: LayerRun, index: int) -> bool:
        here, later = self.leaves[index], self.leaves[index + layers.period]
        if here is not None:
            here = {layers.moved(leaf, layers.period): size for leaf, size in here.items()}
        return here == later and self.least[index] == self.least[index + layers.period]

    def size(self, index: int) -> int:
        """Bytes of a value."""
        return self.sizes[index]

    def effort(self, index: int) -> int:
        """The transcendentals of a value as bytes that take the same time."""
        return 0 if self.traits[index].is_cheap else self.instructions[index].shape.elements

    def remade(self, index: int) -> int:
        """Bytes to compute a value again, if each operand is computed from the fewest bytes."""
        instruction, least = self.instructions[index], self.least
        if instruction.opcode in TAKES:
            return self.effort(index) + sum([self.needed(index, operand) for operand in set(instruction.operands)])
        if len(instruction.operands) == 1:
            return self.effort(index) + least[instruction.operands[0]]
        return self.effort(index) + sum([least[operand] for operand in set(instruction.operands)])

    def needed(self, index: int, operand: int) -> int:
        """Bytes to read for one operand of a value: of the operand, or of what it is computed from."""
        return min(self.least[operand], self.size(index)) if self._takes(index, operand) else self.least[operand]

    def _takes(self, index: int, operand: int) -> bool:
        instruction = self.instructions[index]
        return instruction.opcode in TAKES and operand == instruction.operands[0]

    def _joined(self, index: int) -> Mapping[int, int] | None:
        operands = self.instructions[index].operands
        if len(operands) == 1 and self.instructions[index].opcode not in TAKES:
            return self.leaves[operands[0]]
        sources: Mapping[int, int] = {}
        for operand in dict.fromkeys(operands):
            below = self.leaves[operand]
            if below is None or len(sources) + len(below) > MOST_LEAVES:
                return None
            if self._takes(index, operand):
                below = {leaf: min(size, self.sizes[index]) for leaf, size in below.items()}
            if not sources:
                sources = below  # shared, not copied: most values have the same sources as one of their operands
            elif not below.items() <= sources.items():
                sources = {**sources, **{leaf: max(sources.get(leaf, 0), size) for leaf, size in below.items()}}
        return sources


def sizes_of(computation: Computation) -> list[int]:
    """Bytes of each value; 0 for one without bound. Each shape object is measured once, because instructions share them."""
    known: dict[int, int] = {}
    for instruction in computation.instructions:
        shape = instruction.shape
        if id(shape) not in known:
            known[id(shape)] = shape.bytes if shape.is_bounded else 0
    return [known[id(instruction.shape)] for instruction in computation.instructions]
