"""Layers that an unrolled program repeats: found by comparing instructions one layer apart, so that one of them stands for the others.

A `Stretch` is a run of equal layers. `shortened` leaves most of them out, and `lengthened` puts what was found for one of those that are
left in the place of every layer that was not.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from .module import Computation, Instruction

_LEAST_PERIOD, _MOST_PERIOD = 8, 2048  # instructions of a layer
KEPT = 32  # layers of a shortened program: what a layer's values are made from has settled long before the last of them
MIDDLE = range(20, 26)  # those of them that have to be equal; the first of them stands for the layers that are left out
REACH = 2  # layers that an instruction or a kernel may go back
_FAR = frozenset(("parameter", "constant"))  # which every layer may read where they are

Found = TypeVar("Found")
Alike = Callable[[Sequence[Instruction], int, int], bool]  # whether an instruction does the same as the one a period later


class Stretch(Struct, frozen=True):
    """Equal layers of a computation: where the first begins, how many instructions each has, and how many layers there are."""

    start: int
    period: int
    count: int

    @property
    def left_out(self) -> int:
        """The instructions of the layers that a shortened program does without."""
        return (self.count - KEPT) * self.period

    def layer(self, index: int) -> int:
        """The layer of a shortened program that an instruction is in: -1 before all of them, `KEPT` after."""
        return max(-1, min((index - self.start) // self.period, KEPT))

    @property
    def left_out_places(self) -> range:
        """The instructions of those layers."""
        cut = self.start + MIDDLE[0] * self.period
        return range(cut, cut + self.left_out)

    def standing(self, count: int) -> list[int]:
        """For each of so many instructions the place of the one that stands for it: of layers left out, one of the first of them."""
        left_out = self.left_out_places
        return [*range(left_out.start), *[*left_out[: self.period]] * (self.count - KEPT), *range(left_out.stop, count)]

    def shortened_places(self, count: int) -> list[int]:
        """For each of so many instructions the place of the one in a shortened program that stands for it."""
        left_out = self.left_out_places
        return [*self.standing(count)[: left_out.stop], *range(left_out.start, count - self.left_out)]

    def moved(self, index: int, by: int) -> int:
        """An instruction so many further on; those before the stretch, which all layers share, stay."""
        return index + by if index >= self.start else index


def layer_length(computation: Computation, is_alike: Alike) -> int | None:
    """How many instructions after the middle of a computation the same ones begin again."""
    instructions = computation.instructions
    middle = len(instructions) // 2
    for period in range(_LEAST_PERIOD, min(_MOST_PERIOD, (len(instructions) - middle) // 2)):
        if all(is_alike(instructions, index, period) for index in range(middle, middle + period)):
            return period
    return None


def repeated_layers(computation: Computation, period: int, is_alike: Alike) -> Stretch | None:
    """The equal layers of so many instructions around the middle of a computation, if leaving some out is worth it."""
    instructions = computation.instructions
    start = end = middle = len(instructions) // 2
    shared = _shared(instructions, middle, period)
    while start > shared and is_alike(instructions, start - 1, period):
        start -= 1
    while end + period < len(instructions) and is_alike(instructions, end, period):
        end += 1
    found = Stretch(start, period, (end - start) // period + 1)
    return found if found.count > 2 * KEPT and _is_closed(computation, found) else None


def _shared(instructions: Sequence[Instruction], middle: int, period: int) -> int:
    """The place after all values that every layer reads where they are."""
    one_layer = range(middle, middle + period)
    same = [operand for index in one_layer for operand in instructions[index].operands if operand in instructions[index + period].operands]
    return max(same, default=-1) + 1


def takes_the_same(instructions: Sequence[Instruction], index: int, period: int) -> bool:
    """Whether an instruction is of the same kind as the one a layer later, and takes the values of its own layer."""
    one, other = instructions[index], instructions[index + period]
    if one.opcode != other.opcode or one.shape is not other.shape or len(one.operands) != len(other.operands):
        return False
    for mine, theirs in zip(one.operands, other.operands, strict=True):
        if mine + period != theirs and (mine != theirs or instructions[mine].opcode not in _FAR):
            return False
        if index - mine > REACH * period and instructions[mine].opcode not in _FAR:
            return False
    return not one.control


def _is_closed(computation: Computation, stretch: Stretch) -> bool:
    """Whether what follows the layers uses values of the last few alone, or of what came before them, and orders nothing else."""
    start, last = stretch.start, stretch.start + stretch.count * stretch.period
    after = computation.instructions[last:]
    used = [operand for one in after for operand in one.operands if start <= operand < last - REACH * stretch.period]
    is_apart = max(computation.parameters, default=-1) < start and computation.root >= last
    return is_apart and not used and not any(one.control for one in after)


def shortened(computation: Computation, stretch: Stretch) -> Computation:
    """The computation with `KEPT` layers."""
    gap = stretch.left_out
    cut = stretch.start + MIDDLE[0] * stretch.period
    after = [
        replace(one, operands=tuple([stretch.moved(operand, -gap) for operand in one.operands]))
        for one in computation.instructions[cut + gap :]
    ]
    return replace(computation, instructions=(*computation.instructions[:cut], *after), root=computation.root - gap)


def lengthened(
    found: Iterable[Found], stretch: Stretch, layer: Callable[[Found], int], moved: Callable[[Found, int], Found]
) -> list[Found]:
    """What was found in the shortened program, for every layer: of the layer in the middle once for each that was left out besides."""
    done: list[Found] = []
    for one in found:
        number = layer(one)
        if number < MIDDLE[0]:
            done.append(one)
        elif number > MIDDLE[0]:
            done.append(moved(one, stretch.left_out))
        else:
            done += [moved(one, distance) for distance in range(0, stretch.left_out + 1, stretch.period)]
    return done
