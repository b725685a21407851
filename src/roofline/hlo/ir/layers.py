"""Equal layers of an unrolled program, found by comparing instructions one layer apart, so that only a few of them need to be analysed.

A `LayerRun` is a run of equal layers. `shortened` removes most of them, and `lengthened` copies the results of one remaining layer to the
removed ones.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from .module import Computation, Instruction

_LEAST_PERIOD, _MOST_PERIOD = 8, 2048  # instructions of a layer
KEPT = 32  # layers of a shortened program: enough for the results of the middle ones not to depend on where the program begins or ends
MIDDLE = range(20, 26)  # the layers of a shortened program that must give equal results; those of the first are copied
REACH = 2  # how many layers back an instruction or a kernel may read
_FAR = frozenset(("parameter", "constant"))  # may be read from any distance: every layer reads the same one

Found = TypeVar("Found")
Alike = Callable[[Sequence[Instruction], int, int], bool]  # whether an instruction does the same as the one a period later


class LayerRun(Struct, frozen=True):
    """Equal layers of a computation: where the first begins, how many instructions each has, and how many layers there are."""

    start: int
    period: int
    count: int

    @property
    def left_out(self) -> int:
        """How many instructions the removed layers have."""
        return (self.count - KEPT) * self.period

    def layer(self, index: int) -> int:
        """The layer of a shortened program that an instruction is in: -1 before all of them, `KEPT` after."""
        return max(-1, min((index - self.start) // self.period, KEPT))

    @property
    def left_out_places(self) -> range:
        """The indices of the instructions of the removed layers."""
        cut = self.start + MIDDLE[0] * self.period
        return range(cut, cut + self.left_out)

    def representatives(self, count: int) -> list[int]:
        """For each of ``count`` instructions of the program the index of an equal one: in the removed layers, that of the first of them."""
        left_out = self.left_out_places
        return [*range(left_out.start), *[*left_out[: self.period]] * (self.count - KEPT), *range(left_out.stop, count)]

    def shortened_places(self, count: int) -> list[int]:
        """For each of ``count`` instructions of the program the index of an equal one in the shortened program."""
        left_out = self.left_out_places
        return [*self.representatives(count)[: left_out.stop], *range(left_out.start, count - self.left_out)]

    def moved(self, index: int, by: int) -> int:
        """The instruction ``by`` places later; one before the layers, which they all share, stays the same."""
        return index + by if index >= self.start else index


def layer_length(computation: Computation, is_alike: Alike) -> int | None:
    """The instructions per layer: after how many the ones from the middle of a computation repeat. None if they do not."""
    instructions = computation.instructions
    middle = len(instructions) // 2
    for period in range(_LEAST_PERIOD, min(_MOST_PERIOD, (len(instructions) - middle) // 2)):
        if all(is_alike(instructions, index, period) for index in range(middle, middle + period)):
            return period
    return None


def repeated_layers(computation: Computation, period: int, is_alike: Alike) -> LayerRun | None:
    """The equal layers of ``period`` instructions around the middle of a computation; None if they are too few to remove any."""
    instructions = computation.instructions
    start = end = middle = len(instructions) // 2
    shared = _shared(instructions, middle, period)
    while start > shared and is_alike(instructions, start - 1, period):
        start -= 1
    while end + period < len(instructions) and is_alike(instructions, end, period):
        end += 1
    layers = LayerRun(start, period, (end - start) // period + 1)
    return layers if layers.count > 2 * KEPT and _is_closed(computation, layers) else None


def _shared(instructions: Sequence[Instruction], middle: int, period: int) -> int:
    """The index after the last value that two neighbouring layers both read."""
    one_layer = range(middle, middle + period)
    same = [set(instructions[index].operands).intersection(instructions[index + period].operands) for index in one_layer]
    return max(chain.from_iterable(same), default=-1) + 1


def takes_the_same(instructions: Sequence[Instruction], index: int, period: int) -> bool:
    """Whether an instruction is of the same kind as the one a layer later, and takes the values of its own layer."""
    instruction, other = instructions[index], instructions[index + period]
    if instruction.opcode != other.opcode or instruction.shape is not other.shape or len(instruction.operands) != len(other.operands):
        return False
    for operand, counterpart in zip(instruction.operands, other.operands, strict=True):
        if operand + period != counterpart and (operand != counterpart or instructions[operand].opcode not in _FAR):
            return False
        if index - operand > REACH * period and instructions[operand].opcode not in _FAR:
            return False
    return not instruction.control


def _is_closed(computation: Computation, layers: LayerRun) -> bool:
    """Whether the instructions after the layers read only the last few layers or what precedes them all, without control dependencies."""
    start, last = layers.start, layers.start + layers.count * layers.period
    after = computation.instructions[last:]
    operands = chain.from_iterable([instruction.operands for instruction in after])
    used = [operand for operand in operands if start <= operand < last - REACH * layers.period]
    is_apart = max(computation.parameters, default=-1) < start and computation.root >= last
    return is_apart and not used and not any(instruction.control for instruction in after)


def shortened(computation: Computation, layers: LayerRun) -> Computation:
    """The computation with `KEPT` layers."""
    gap = layers.left_out
    cut = layers.start + MIDDLE[0] * layers.period
    after = [
        replace(instruction, operands=tuple([layers.moved(operand, -gap) for operand in instruction.operands]))
        for instruction in computation.instructions[cut + gap :]
    ]
    return replace(computation, instructions=(*computation.instructions[:cut], *after), root=computation.root - gap)


def lengthened(
    results: Iterable[Found], layers: LayerRun, layer: Callable[[Found], int], moved: Callable[[Found, int], Found]
) -> list[Found]:
    """The results found in a shortened program, for all layers: those of the first middle layer are copied for each removed layer.

    ``layer`` gives the layer of a result, and ``moved`` a copy of it some instructions later.
    """
    copies: list[Found] = []
    for result in results:
        number = layer(result)
        if number < MIDDLE[0]:
            copies.append(result)
        elif number > MIDDLE[0]:
            copies.append(moved(result, layers.left_out))
        else:
            copies += [moved(result, distance) for distance in range(0, layers.left_out + 1, layers.period)]
    return copies
