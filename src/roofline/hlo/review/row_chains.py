"""Chains of kernels that pass arrays through memory although one kernel could compute them all, row by row.

Each is elementwise or reduces rows that fit on chip, and all iterate over arrays of one size in the same order. A compiler fuses these by
itself, unless the program prevents it (an optimization barrier) or a reduction is the last step of a kernel. It recomputes a cheap value,
such as the exponentials of a softmax, in each kernel that needs it instead of storing it.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from msgspec import Struct

from ...graph.fusion import ROW, SMALL, grouped
from ..ir.module import Computation, Instruction
from ..price.bodies import NAMING
from ..price.elementwise import ELEMENTWISE
from ..price.traffic import part_of, source
from .kernels import Kernels

ANY = -1  # the size of a kernel of smaller arrays, such as sums of rows: it belongs to the chain that makes them
MORE = 1.05  # times an array's bytes: the most that kernels read to recompute it
COSTLY = {"tanh", "erf", "power", "log", "log-plus-one", "logistic", "sine", "cosine", "tan", "atan2", "cbrt"}
ALIKE = ELEMENTWISE | {"parameter", "constant", "iota", "broadcast", "bitcast", "reshape", "tuple", "get-tuple-element"}

Key = tuple[int, tuple[int, ...]]  # an instruction and the part of its result


class Chain(Struct, frozen=True):
    """Kernels by their indices in a computation, the last of which writes the last large result, and the bytes that one kernel would move.

    ``least`` is the bytes if only that result were needed. ``sums`` is the number of reductions of a row that one kernel has to complete,
    one after the other, before it can complete the row itself. If one of the kernels already does this, it is 0, or 1 if the kernel would
    have to hold another row meanwhile: the residual around a norm.
    """

    places: tuple[int, ...]
    moved: int
    least: int
    sums: int = 0


def row_chains(kernels: Kernels) -> list[Chain]:
    """The chains of a computation, each as long as it can be."""
    computation = kernels.computation
    reads = {place: _reads(computation, one) for place, one in enumerate(computation) if one.opcode not in NAMING}
    sizes = {place: size for place in reads if place in kernels.costs and (size := _size(kernels, place, reads[place]))}
    makers = {place: {made for made, _ in keys} for place, keys in reads.items()}
    found = [group for group in grouped(makers, partial(_are_alike, sizes)) if len(group) > 1]
    arrays = _Arrays(kernels, reads, set(sizes)) if found else None
    return [_chain(arrays, set(group)) for group in found] if arrays else []


def _are_alike(sizes: Mapping[int, int], first: Sequence[int], second: Sequence[int]) -> bool:
    """Whether two groups go through arrays of one size; a kernel of smaller ones joins those that make them."""
    if any(place not in sizes for place in (*first, *second)):
        return False
    size = max(sizes[place] for place in first)
    return size != ANY and max(sizes[place] for place in second) in (ANY, size)


def _paths(one: Instruction) -> list[tuple[int, ...]]:
    """The paths of a result's parts: one for each part of a tuple, an empty one for an array."""
    return [(place,) for place in range(len(one.shape.parts))] if one.shape.is_tuple else [()]


def _reads(computation: Computation, one: Instruction) -> set[Key]:
    return {source(computation, operand, path) for operand in one.operands for path in _paths(computation[operand])}


def _size(kernels: Kernels, place: int, reads: set[Key]) -> int:
    """The elements of the largest array of an elementwise or row-reducing kernel, or `ANY` if it is small; 0 for other kernels."""
    computation = kernels.computation
    one = computation[place]
    body = kernels.values.body(one)
    if not kernels.values.opcodes(one) <= ALIKE | {"reduce"}:
        return 0
    if any(each.opcode == "reduce" and not _along_rows(body or computation, each) for each in body or (one,)):
        return 0
    arrays = [shape for made, path in reads if (shape := part_of(computation[made].shape, path)).is_array]
    arrays += [shape for shape in one.shape.leaves if shape.is_array]
    largest = max(arrays, key=lambda shape: shape.elements, default=None)
    if largest is None:
        return 0
    return largest.elements if largest.bytes >= SMALL else ANY


def _along_rows(computation: Computation, one: Instruction) -> bool:
    """Whether a reduction is over the last dimensions of its operand, and these fit on chip."""
    whole = computation[one.operands[0]].shape
    axes = sorted(one.integers("dimensions"))
    rank = len(whole.dims)
    columns = 1
    for axis in axes:
        columns *= whole.dims[axis] if axis < rank else 1
    return axes == list(range(rank - len(axes), rank)) and 4 * columns <= ROW


class _Arrays:
    """The readers of each array of a computation, the arrays it returns, and its row-wise kernels: the cheap ones and those that reduce."""

    def __init__(self, kernels: Kernels, reads: dict[int, set[Key]], rows: set[int]) -> None:
        self.computation, self.reads, self.rows = kernels.computation, reads, rows
        opcodes = {place: kernels.values.opcodes(self.computation[place]) for place in rows}
        self.cheap = {place for place in rows if opcodes[place] <= ALIKE - COSTLY}  # recomputed, not stored: an exponential at most
        self.sums = {place for place in rows if "reduce" in opcodes[place]}
        root = self.computation.root
        self.returned = {source(self.computation, root, path) for path in _paths(self.computation[root])}
        self.readers: dict[Key, set[int]] = {}
        for place, keys in reads.items():
            for key in keys:
                self.readers.setdefault(key, set()).add(place)

    def begun_from(self, place: int, group: set[int]) -> set[Key] | None:
        """The arrays from outside a group that a value in it is computed from; ``None`` if it costs more than compilers recompute."""
        found, waiting, seen = set[Key](), [place], set[int]()
        while waiting:
            one = waiting.pop()
            if one not in self.cheap:
                return None
            seen.add(one)
            found |= {key for key in self.reads[one] if key[0] not in group}
            waiting += {key[0] for key in self.reads[one] if key[0] in group} - seen
        return found

    def is_stored(self, key: Key, group: set[int]) -> bool:
        """Whether an array of a group is written for kernels outside that cannot recompute it from arrays that are no larger."""
        outside = self.readers.get(key, set()) - group
        if key in self.returned or not outside <= self.rows:
            return True
        begun = self.begun_from(key[0], group)
        return begun is None or _bytes(self.computation, begun) > MORE * _bytes(self.computation, {key})


def _chain(arrays: _Arrays, group: set[int]) -> Chain:
    """A group as a chain, with the bytes that one kernel would move: arrays from outside, and those that others or the caller need."""
    computation = arrays.computation
    read = {key for place in group for key in arrays.reads[place] if key[0] not in group}
    needed = {key for key, readers in arrays.readers.items() if key[0] in group and readers - group}
    needed |= {key for key in arrays.returned if key[0] in group}
    written = {key for key in needed if arrays.is_stored(key, group)}
    last = max(group, key=lambda place: (max(leaf.elements for leaf in computation[place].shape.leaves if leaf.is_array), place))
    result = {(last, path) for path in _paths(computation[last])}
    places = (*sorted(group - {last}), last)
    return Chain(places, _bytes(computation, read | written), _bytes(computation, read | result), _finished_sums(arrays, group))


def _finished_sums(arrays: _Arrays, group: set[int]) -> int:
    """How many reductions of a row one kernel completes one after the other before the last large result; see `Chain.sums`."""
    sizes = {place: max(leaf.elements for leaf in arrays.computation[place].shape.leaves if leaf.is_array) for place in group}
    largest, depths = max(sizes.values()), dict[int, int]()
    large = {place for place, size in sizes.items() if size == largest}
    if any(place in arrays.sums for place in large):
        return int(any(_passes_by(arrays, group, large, place) for place in large & arrays.sums))
    for place in sorted(group):  # in the order in which they run
        before = max((depths[made] for made, _ in arrays.reads[place] if made in group), default=0)
        depths[place] = before + (place in arrays.sums)
    return max(depths[place] for place in large)


def _passes_by(arrays: _Arrays, group: set[int], large: set[int], summing: int) -> bool:
    """Whether a large array of a group that a kernel's sums are computed from is needed again after that kernel."""
    before, after = {summing}, {summing}
    reads = {place: {made for made, _ in arrays.reads[place]} & group for place in group}
    for place in sorted(group, reverse=True):
        before |= reads[place] if place in before else set()
    for place in sorted(group):
        after |= {place} if reads[place] & after else set()
    return any(reads[place] & before & large - {summing} for place in after - {summing})


def _bytes(computation: Computation, keys: set[Key]) -> int:
    return sum(leaf.bytes for made, path in keys for leaf in part_of(computation[made].shape, path).leaves if leaf.is_array)
