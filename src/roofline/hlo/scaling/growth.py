"""Which dimensions grow: marks on dimensions, propagated through a program from the inputs that are scaled.

A mark says which part of a dimension grows: a factor of ``size`` elements, each of ``minor`` elements. So a batch of 4 is still known after
a compiler has merged it with 1,024 positions into one dimension of 4,096.
"""

from collections.abc import Collection, Iterable, Iterator
from fractions import Fraction
from functools import cached_property
from math import ceil, prod

from ..ir.module import HloModule
from ..ir.shapes import Shape
from ..ir.values import RENAMED
from ..lower.products import product_dimensions
from ..partition.propagation import Key
from .links import Link, links_of

Mark = tuple[int, int]  # size, minor
Times = int | Fraction
Marks = dict[Key, list[set[Mark]]]
ROUNDS = 40  # passes over the program in both directions
_HANDED_ON = RENAMED | {
    *("parameter", "tuple", "get-tuple-element", "fusion", "call", "while", "conditional"),
    *("slice", "dynamic-slice", "dynamic-update-slice", "concatenate", "pad", "broadcast"),
}
_LONG = 8  # the least length for which one more or one less counts as the same length
_MORE = 64  # how many times longer a length must be than the difference to it, to count as the same length


def running(module: HloModule) -> tuple[int, ...]:
    """The entry and every computation whose arrays are the program's: bodies of loops, branches, functions and fusions."""
    numbers, waiting = [], [module.entry]
    while waiting:
        number = waiting.pop()
        if number in numbers:
            continue
        numbers.append(number)
        for instruction in module.computations[number].instructions:
            if instruction.opcode in ("fusion", "call", "while", "conditional", "async-start"):
                waiting += [call.computation for call in instruction.calls]
    return tuple(numbers)


class Program:
    """A program with the links between its arrays, which are found once."""

    def __init__(self, module: HloModule) -> None:
        self.module = module
        self.links = list(links_of(module, running(module)))
        self._touching: dict[Key, list[int]] = {}
        for number, link in enumerate(self.links):
            for key, _ in link.arrays:
                self._touching.setdefault(key, []).append(number)

    @cached_property
    def products(self) -> tuple[tuple[Key, Key, Key], ...]:
        """The operands and the result of every product and convolution."""
        return tuple(
            ((number, instruction.operands[0], 0), (number, instruction.operands[1], 0), (number, index, 0))
            for number in running(self.module)
            for index, instruction in enumerate(self.module.computations[number].instructions)
            if len(instruction.operands) > 1 and (instruction.convolution is not None or product_dimensions(instruction) is not None)
        )

    def products_with(self, marks: Marks) -> int:
        """How many products have a dimension that is marked."""
        return sum(any(any(marks.get(key, ())) for key in keys) for keys in self.products)

    def computed(self, marks: Marks) -> Iterator[Key]:
        """The arrays with marks that are computed, not only passed on, copied or concatenated."""
        for key, marked in marks.items():
            if any(marked) and self.module.computations[key[0]][key[1]].opcode not in _HANDED_ON:
                yield key

    def is_written_along(self, marks: Marks) -> bool:
        """Whether the program writes a slice along a marked dimension, at a computed index."""
        for number in running(self.module):
            computation = self.module.computations[number]
            for instruction in computation:
                if instruction.opcode == "dynamic-update-slice" and (marked := marks.get((number, instruction.operands[0], 0))):
                    sizes = zip(marked, instruction.shape.dims, computation[instruction.operands[1]].shape.dims, strict=True)
                    if any(mark and part < whole for mark, whole, part in sizes):
                        return True
        return False

    def is_image_side(self, marks: Marks) -> bool:
        """Whether a convolution slides over a marked dimension and another one: the height or the width of images."""
        for (number, index, _), _, (_, place, _) in self.products:
            dims = self.module.computations[number][place].convolution
            marked = marks.get((number, index, 0), ())
            if dims is not None and len(dims.input_spatial) > 1 and any(marked[axis] for axis in dims.input_spatial if axis < len(marked)):
                return True
        return False

    def dims(self, key: Key) -> tuple[int, ...]:
        """The dimensions of an array."""
        return self._shape(key).dims

    def is_float(self, key: Key) -> bool:
        """Whether an array is of floats."""
        return self._shape(key).dtype.startswith(("f", "bf"))

    def _shape(self, key: Key) -> Shape:
        computation, index, part = key
        return self.module.computations[computation][index].shape.leaves[part]

    def grown(self, seeds: Iterable[tuple[Key, int]], kept: Marks | None = None, *, whole: bool = False, mixed: bool = True) -> Marks:
        """The marks of all arrays that grow with some dimensions (``seeds``) of the entry's parameters. With ``whole``, only of dimensions
        that are not merged with another; without ``mixed``, not through sorts, which mix the elements.

        Where a dimension is split in two, the more major part grows, unless that is ``kept``: of tokens grouped by expert, the groups grow,
        and their number stays.
        """
        marks: Marks = {}
        waiting: list[int] = []
        for key, axis in seeds:
            dims = self.dims(key)
            marks.setdefault(key, [set() for _ in dims])[axis].add((dims[axis], 1))
            waiting += self._touching.get(key, [])
        queued = set(waiting)
        steps = ROUNDS * max(len(self.links), 1)
        while waiting and steps:
            steps -= 1
            number = waiting.pop(0)
            queued.discard(number)
            for key in self._follow(self.links[number], marks, kept or {}, whole, mixed):
                for other in self._touching[key]:
                    if other not in queued:
                        queued.add(other)
                        waiting.append(other)
        return marks

    def _follow(self, link: Link, marks: Marks, kept: Marks, whole: bool, mixed: bool) -> list[Key]:
        """Propagates marks through a link; returns the arrays with new marks."""
        stays = {factor for factor, _ in _marked_factors(link, kept)} if kept else set[int]()
        factors: dict[int, set[Mark]] = {}
        for factor, inner in _marked_factors(link, marks, stays):
            if mixed or factor not in link.mixed or inner == (link.sizes[factor], 1):
                factors.setdefault(factor, set()).add(inner)
        changed = []
        for key, dims in link.arrays:
            sizes = self.dims(key)
            own = marks.get(key)
            new = False
            for place, axis in enumerate(dims):
                if (whole and sum(link.sizes[factor] > 1 for factor in axis) > 1) or (kept and own and own[place]):
                    continue
                for factor in axis:
                    for mark in factors.get(factor, ()):
                        placed = _outside(mark, factor, axis, link.sizes, sizes[place])
                        if own is None:
                            own = marks[key] = [set() for _ in sizes]
                        if placed not in own[place] and not _covered(placed, own[place]):
                            own[place].add(placed)
                            new = True
            if new:
                changed.append(key)
        return changed


def _marked_factors(link: Link, marks: Marks, stays: Collection[int] = ()) -> Iterator[tuple[int, Mark]]:
    """The factors of a link that have marks, with the mark inside the factor."""
    for key, dims in link.arrays:
        for marked, axis in zip(marks.get(key, ()), dims, strict=False):
            for mark in marked:
                yield from _inside(mark, axis, link.sizes, stays)


def _inside(mark: Mark, factors: tuple[int, ...], sizes: tuple[int, ...], stays: Collection[int]) -> list[tuple[int, Mark]]:
    """The factor of a dimension that a mark is in, with the mark inside it; if it covers several, the most major one not in ``stays``."""
    size, minor = mark
    whole = prod(sizes[factor] for factor in factors)
    if len(factors) == 1:
        factor = factors[0]
        # A dimension of another array of the link may be a little longer or shorter: the mark covers all of it.
        return [(factor, (sizes[factor], 1) if minor == 1 and abs(size - whole) > 0 and size > whole / 2 else mark)]
    stride = whole
    for factor in factors:
        stride //= max(sizes[factor], 1)
        if minor >= stride and factor in stays:
            others = [other for other in factors if other not in stays and sizes[other] > 1]
            return [(others[0], (sizes[others[0]], 1))] if others else []
        if minor >= stride:
            top = stride * sizes[factor]
            return [(factor, (min(size, top // minor) if top > minor else 1, max(minor // max(stride, 1), 1)))]
        if minor * size > stride and factor not in stays:  # it reaches into this factor from below
            return [(factor, (max(minor * size // stride, 1), 1))]
    return []


def _outside(mark: Mark, factor: int, factors: tuple[int, ...], sizes: tuple[int, ...], length: int) -> Mark:
    """A mark of a factor, as a mark of the dimension that the factor is in."""
    size, minor = mark
    below = prod(sizes[other] for other in factors[factors.index(factor) + 1 :])
    if len(factors) == 1 and size == sizes[factor] and minor == 1:
        return (length, 1)
    return (size, minor * below)


def _covered(mark: Mark, others: set[Mark]) -> bool:
    """Whether a mark overlaps a known one: it is the same growth, found on another path."""
    low, high = mark[1], mark[1] * mark[0]
    return any(low < other[1] * other[0] and other[1] < high for other in others) or mark in others


def grown_dims(dims: tuple[int, ...], marks: list[set[Mark]] | None, times: Times, length: int = 0) -> tuple[int, ...]:
    """The dimensions of an array after its marks are scaled; sizes that do not divide are rounded up.

    A size a little above or below ``length`` keeps its difference to it: 1,025 tokens of which 1,024 are sliced become 4,097 and 4,096.
    """
    if marks is None:
        return dims
    return tuple(ceil(size * prod(_growth(mark, times, length) for mark, _ in marked)) for size, marked in zip(dims, marks, strict=True))


def _growth(size: int, times: Times, length: int) -> Fraction:
    """The factor by which a size grows."""
    more = size - length
    if length >= _LONG and 0 < abs(more) <= max(length // _MORE, 1):
        return Fraction(length * times + more, size)
    return Fraction(times)
