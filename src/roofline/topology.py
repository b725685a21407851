"""Slices: chips that are joined along axes, each of which is a ring or a line.

>>> torus = Torus(largest=(16, 16), ring=16)
>>> half = torus.slice((8, 16))
>>> str(half), half.chips, [axis.is_ring for axis in half.axes]
('8x16', 128, [False, True])
>>> torus.usual(32)
(4, 8)
"""

from collections.abc import Iterator, Sequence
from math import prod

from msgspec import Struct

from .errors import MachineError


class Axis(Struct, frozen=True):
    """One axis of a slice: its chips, and whether a link joins the last to the first. Two chips have one link in either case."""

    size: int
    wraps: bool = False

    @property
    def is_ring(self) -> bool:
        return self.wraps and self.size > 2

    def __str__(self) -> str:
        kind = "ring" if self.is_ring else "line"
        return f"{self.size} ({kind})" if self.size > 1 else "1"


class Topology(Struct, frozen=True):
    """The axes of a slice, and how many framework devices each of its chips is: devices are numbered along the last axis first, those of
    one chip next to each other.
    """

    axes: tuple[Axis, ...]
    devices_per_chip: int = 1

    @property
    def chips(self) -> int:
        return prod(axis.size for axis in self.axes)

    @property
    def devices(self) -> int:
        return self.chips * self.devices_per_chip

    def __str__(self) -> str:
        return "x".join(str(axis.size) for axis in self.axes)


class Torus(Struct, frozen=True):
    """Which slices a chip is sold in: the sides of the ``largest``, and which axes wrap: those of a multiple of ``ring`` chips."""

    largest: tuple[int, ...]
    ring: int

    def axis(self, size: int) -> Axis:
        return Axis(size, size % self.ring == 0)

    def slice(self, sides: tuple[int, ...], devices_per_chip: int = 1) -> Topology:
        """The slice with these sides; an error if there is none."""
        if len(sides) != len(self.largest):
            raise MachineError(f"its slices have {len(self.largest)} axes, not {len(sides)}")
        if min(sides) < 1:
            raise MachineError("an axis has one chip or more")
        if prod(sides) > prod(self.largest) or max(sides) > max(self.largest):
            raise MachineError(f"its largest slice is {'x'.join(map(str, self.largest))}")
        return Topology(tuple(map(self.axis, sides)), devices_per_chip)

    def usual(self, chips: int) -> tuple[int, ...] | None:
        """The sides of the slice of so many chips: the nearest to a square or a cube, shortest axis first; ``None`` if there is none.

        Axes of one chip come last, as in v5p:2x2x1.
        """
        if not 0 < chips <= prod(self.largest):
            return None
        whole = [sides for sides in factored(chips, len(self.largest)) if max(sides) <= max(self.largest) and _is_usual(sides)]
        best = min(whole, key=lambda sides: (max(sides), sum(sides)), default=None)
        return best and (*(side for side in best if side > 1), *(side for side in best if side == 1))


def _is_usual(sides: tuple[int, ...]) -> bool:
    """Whether slices of these sides are made: of whole hosts, of 2x2 chips each, or of one chip."""
    return all(side == 1 or side % 2 == 0 for side in sides)


def factored(number: int, factors: int, least: int = 1) -> Iterator[tuple[int, ...]]:
    """Every way to write a number as a product of so many factors, in ascending order."""
    if factors == 1:
        if number >= least:
            yield (number,)
        return
    for first in range(least, round(number ** (1 / factors)) + 1):
        if number % first == 0:
            yield from ((first, *rest) for rest in factored(number // first, factors - 1, first))


def ring_way(pairs: Sequence[tuple[int, int]]) -> str:
    """Which way round their rings the devices of a permute send, ``up`` or ``down``: a permute the opposite way uses other links.

    Device 0, or the first that sends, sends up to the lower number of its two neighbours. Empty where each pair exchanges, over both ways.
    """
    moves = sorted(pair for pair in pairs if pair[0] != pair[1])
    back = sorted((target, source) for source, target in moves)
    if moves == back:
        return ""
    return "up" if moves < back else "down"
