"""What grows: marks on dimensions, followed through a program from the inputs that are made larger.

A mark says which part of a dimension grows: a factor of ``size`` elements with ``minor`` elements inside of it, so that a batch of 4 stays
apart from the 1,024 positions that a compiler joins it with into one dimension of 4,096.
"""

from collections.abc import Collection, Iterable, Iterator
from fractions import Fraction
from functools import cached_property
from math import ceil, prod

from ..ir.module import HloModule
from ..ir.shapes import Shape
from ..partition.propagation import Key
from ..unneeded.kernels import product_dimensions
from ..unneeded.values import RENAMED
from .links import Link, links_of

Mark = tuple[int, int]  # size, minor
Times = int | Fraction
Marks = dict[Key, list[set[Mark]]]
ROUNDS = 40  # there and back over the program
_HANDED_ON = RENAMED | {
    *("parameter", "tuple", "get-tuple-element", "fusion", "call", "while", "conditional"),
    *("slice", "dynamic-slice", "dynamic-update-slice", "concatenate", "pad", "broadcast"),
}
_LONG = 8  # the least length for which one more or less is no other size
_MORE = 64  # times what a slice or window takes of a length, at least


def running(module: HloModule) -> tuple[int, ...]:
    """The entry and every computation whose arrays are the program's: bodies of loops, branches, functions and fusions."""
    found, waiting = [], [module.entry]
    while waiting:
        number = waiting.pop()
        if number in found:
            continue
        found.append(number)
        for one in module.computations[number].instructions:
            if one.opcode in ("fusion", "call", "while", "conditional", "async-start"):
                waiting += [call.computation for call in one.calls]
    return tuple(found)


class Program:
    """A program's links, made once for all questions about it."""

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
            ((number, one.operands[0], 0), (number, one.operands[1], 0), (number, index, 0))
            for number in running(self.module)
            for index, one in enumerate(self.module.computations[number].instructions)
            if len(one.operands) > 1 and (one.convolution is not None or product_dimensions(one) is not None)
        )

    def products_with(self, marks: Marks) -> int:
        """How many products have a dimension that is marked."""
        return sum(any(any(marks.get(key, ())) for key in keys) for keys in self.products)

    def computed(self, marks: Marks) -> Iterator[Key]:
        """The arrays with marks that are computed, and not only handed on or put together."""
        for key, held in marks.items():
            if any(held) and self.module.computations[key[0]][key[1]].opcode not in _HANDED_ON:
                yield key

    def is_written_along(self, marks: Marks) -> bool:
        """Whether a part of what is marked is written at a place that is computed."""
        for number in running(self.module):
            computation = self.module.computations[number]
            for one in computation:
                if one.opcode == "dynamic-update-slice" and (held := marks.get((number, one.operands[0], 0))):
                    sizes = zip(held, one.shape.dims, computation[one.operands[1]].shape.dims, strict=True)
                    if any(mark and part < whole for mark, whole, part in sizes):
                        return True
        return False

    def is_image_side(self, marks: Marks) -> bool:
        """Whether a convolution slides over what is marked, and over another dimension as well: the height or the width of images."""
        for (number, index, _), _, (_, place, _) in self.products:
            dims = self.module.computations[number][place].convolution
            held = marks.get((number, index, 0), ())
            if dims is not None and len(dims.input_spatial) > 1 and any(held[axis] for axis in dims.input_spatial if axis < len(held)):
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
        return list(self.module.computations[computation][index].shape.leaves)[part]

    def grown(self, seeds: Iterable[tuple[Key, int]], kept: Marks | None = None, *, whole: bool = False, mixed: bool = True) -> Marks:
        """The marks of every array that grows with some dimensions of the entry's parameters; of those that have it ``whole`` alone,
        not joined with another; or but for those in which its elements are ``mixed`` with others by a sort.

        Where one is split in two, the more major part grows, unless that is a dimension which is ``kept``: of tokens in groups by expert
        the groups grow, and their number stays.
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
        """Follow marks through a link; the arrays that have new ones."""
        stays = {factor for factor, _ in _held(link, kept)} if kept else set[int]()
        factors: dict[int, set[Mark]] = {}
        for factor, inner in _held(link, marks, stays):
            if mixed or factor not in link.mixed or inner == (link.sizes[factor], 1):
                factors.setdefault(factor, set()).add(inner)
        changed = []
        for key, dims in link.arrays:
            sizes = self.dims(key)
            own = marks.get(key)
            new = False
            for place, each in enumerate(dims):
                if (whole and sum(link.sizes[factor] > 1 for factor in each) > 1) or (kept and own and own[place]):
                    continue
                for factor in each:
                    for mark in factors.get(factor, ()):
                        placed = _outside(mark, factor, each, link.sizes, sizes[place])
                        if own is None:
                            own = marks[key] = [set() for _ in sizes]
                        if placed not in own[place] and not _covered(placed, own[place]):
                            own[place].add(placed)
                            new = True
            if new:
                changed.append(key)
        return changed


def _held(link: Link, marks: Marks, stays: Collection[int] = ()) -> Iterator[tuple[int, Mark]]:
    """The factors of a link that marks lie in, and where in them."""
    for key, dims in link.arrays:
        for held, each in zip(marks.get(key, ()), dims, strict=False):
            for mark in held:
                yield from _inside(mark, each, link.sizes, stays)


def _inside(mark: Mark, factors: tuple[int, ...], sizes: tuple[int, ...], stays: Collection[int]) -> list[tuple[int, Mark]]:
    """The factor of a dimension that a mark lies in, and where in it; of several that it covers, the most major one that does not stay."""
    size, minor = mark
    whole = prod(sizes[factor] for factor in factors)
    if len(factors) == 1:
        factor = factors[0]
        # A dimension of another array of the link may be a little longer or shorter: the mark is of all of it.
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
    """A factor's mark as that of a dimension it is in."""
    size, minor = mark
    below = prod(sizes[other] for other in factors[factors.index(factor) + 1 :])
    if len(factors) == 1 and size == sizes[factor] and minor == 1:
        return (length, 1)
    return (size, minor * below)


def _covered(mark: Mark, others: set[Mark]) -> bool:
    """Whether a mark overlaps one that is known: the same growth seen from another side."""
    low, high = mark[1], mark[1] * mark[0]
    return any(low < other[1] * other[0] and other[1] < high for other in others) or mark in others


def grown_dims(dims: tuple[int, ...], marks: list[set[Mark]] | None, times: Times, length: int = 0) -> tuple[int, ...]:
    """The dimensions of an array after its marks have grown, or shrunk; what does not divide is rounded up.

    What is a little longer or shorter than a ``length`` stays so: 1,025 tokens that are sliced into 1,024 become 4,097 of 4,096.
    """
    if marks is None:
        return dims
    return tuple(ceil(size * prod(_growth(mark, times, length) for mark, _ in held)) for size, held in zip(dims, marks, strict=True))


def _growth(size: int, times: Times, length: int) -> Fraction:
    """How many times as large a size is then."""
    more = size - length
    if length >= _LONG and 0 < abs(more) <= max(length // _MORE, 1):
        return Fraction(length * times + more, size)
    return Fraction(times)
