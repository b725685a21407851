"""What it takes to compute a value again: the bytes of what it is made from, at the narrowest place on the way and at the very source.

Values are made from others by loops over elements alone; a reduction, a product or anything else ends the way back. A transcendental
counts as a byte: on accelerators it takes about the time of one.
"""

from collections.abc import Mapping, Sequence

from ..ir.layers import MIDDLE, REACH, Stretch
from ..ir.module import Computation
from .rules import TAKES, Traits

MOST_LEAVES = 16  # values that one is traced back to before it counts as made from too many


class Cuts:
    """The values of a computation in whose text each precedes its uses.

    ``least`` are the fewest bytes from which each can be made. ``leaves`` are the values in memory that it is made from, with the bytes
    read of each; ``None`` when they are many.
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

    def repeat(self, layers: Stretch) -> bool:
        """Whether the values of the middle layers are made from the same as those one layer on, and so those of all layers after them."""
        start, stop = (layers.start + number * layers.period for number in (MIDDLE[0] - REACH, MIDDLE[-1]))
        return all(self._repeats(layers, index) for index in range(start, stop))

    def _repeats(self, layers: Stretch, index: int) -> bool:
        here, later = self.leaves[index], self.leaves[index + layers.period]
        if here is not None:
            here = {layers.moved(leaf, layers.period): size for leaf, size in here.items()}
        return here == later and self.least[index] == self.least[index + layers.period]

    def size(self, index: int) -> int:
        """Bytes of a value."""
        return self.sizes[index]

    def effort(self, index: int) -> int:
        """Bytes in whose time the transcendentals of a value are computed."""
        return 0 if self.traits[index].is_cheap else self.instructions[index].shape.elements

    def remade(self, index: int) -> int:
        """Bytes that computing a value takes, its operands being made from as little as they can."""
        instruction, least = self.instructions[index], self.least
        if instruction.opcode in TAKES:
            return self.effort(index) + sum([self.needed(index, operand) for operand in set(instruction.operands)])
        if len(instruction.operands) == 1:
            return self.effort(index) + least[instruction.operands[0]]
        return self.effort(index) + sum([least[operand] for operand in set(instruction.operands)])

    def needed(self, index: int, operand: int) -> int:
        """Bytes that computing a value reads of one operand, or of what that is made from."""
        return min(self.least[operand], self.size(index)) if self._takes(index, operand) else self.least[operand]

    def _takes(self, index: int, operand: int) -> bool:
        instruction = self.instructions[index]
        return instruction.opcode in TAKES and operand == instruction.operands[0]

    def _joined(self, index: int) -> Mapping[int, int] | None:
        operands = self.instructions[index].operands
        if len(operands) == 1 and self.instructions[index].opcode not in TAKES:
            return self.leaves[operands[0]]
        found: Mapping[int, int] = {}
        for operand in dict.fromkeys(operands):
            below = self.leaves[operand]
            if below is None or len(found) + len(below) > MOST_LEAVES:
                return None
            if self._takes(index, operand):
                below = {leaf: min(size, self.sizes[index]) for leaf, size in below.items()}
            if not found:
                found = below  # as it is: most values are made from what one of their operands is made from
            elif not below.items() <= found.items():
                found = {**found, **{leaf: max(found.get(leaf, 0), size) for leaf, size in below.items()}}
        return found


def sizes_of(computation: Computation) -> list[int]:
    """Bytes of each value; 0 of one without bound. Instructions share their shapes, so each of those is measured once."""
    known: dict[int, int] = {}
    for instruction in computation.instructions:
        shape = instruction.shape
        if id(shape) not in known:
            known[id(shape)] = shape.bytes if shape.is_bounded else 0
    return [known[id(instruction.shape)] for instruction in computation.instructions]
