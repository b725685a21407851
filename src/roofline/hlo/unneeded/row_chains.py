"""Kernels of a program that hand arrays to each other through memory though one could compute them all, row by row.

Each treats elements alike or sums along rows that fit on chip, and all go through arrays of one size in the same order. A compiler fuses
these by itself, unless the program keeps it from that (an optimization barrier) or a reduction ends a kernel.
"""

from msgspec import Struct

from ..ir.module import Computation, Instruction
from ..price.bodies import NAMING
from ..price.elementwise import ELEMENTWISE
from ..price.traffic import part_of, source
from .kernels import Kernels

ROW = 200 << 10  # bytes of a row in fp32 that fit into the memory of one core
SMALL = 1 << 20  # bytes of the largest array of a kernel that is worth fusing
ANY = -1  # the size of a kernel of smaller arrays, which belongs to the chain that makes them: what is worked out of sums of rows
MOST = 64  # kernels that one replaces
ALIKE = ELEMENTWISE | {"parameter", "constant", "iota", "broadcast", "bitcast", "reshape", "tuple", "get-tuple-element"}

Key = tuple[int, tuple[int, ...]]  # an instruction and the part of its result


class Chain(Struct, frozen=True):
    """Kernels by their places in a computation, the last the one with the last large result, and the bytes that one kernel would move.

    ``least`` is how many if nothing but that result were needed.
    """

    places: tuple[int, ...]
    moved: int
    least: int


def row_chains(kernels: Kernels) -> list[Chain]:
    """The chains of a computation, each as long as it can be."""
    computation = kernels.computation
    reads = {place: _reads(computation, one) for place, one in enumerate(computation) if one.opcode not in NAMING}
    sizes = {place: size for place in reads if place in kernels.costs and (size := _size(kernels, place, reads[place]))}
    takers: dict[int, list[int]] = {}
    for place, keys in reads.items():
        for made, _ in keys:
            takers.setdefault(made, []).append(place)
    groups = {place: {place} for place in sizes}
    for place in sizes:
        for made in sorted({made for made, _ in reads[place]}):
            one, other = groups[place], groups.get(made)
            if other is None or other is one or sizes[made] == ANY or sizes[place] not in (ANY, sizes[made]):
                continue
            if len(one) + len(other) > MOST or _leaves(one | other, takers):
                continue
            other |= one
            for each in one:
                groups[each], sizes[each] = other, sizes[made]
    returned = {source(computation, computation.root, path) for path in _paths(computation[computation.root])}
    found = {id(group): group for group in groups.values() if len(group) > 1}
    return [_chain(computation, group, reads, returned) for group in found.values()]


def _paths(one: Instruction) -> list[tuple[int, ...]]:
    """The parts of a result: of a tuple each, of an array the whole."""
    return [(place,) for place in range(len(one.shape.parts))] if one.shape.is_tuple else [()]


def _reads(computation: Computation, one: Instruction) -> set[Key]:
    return {source(computation, operand, path) for operand in one.operands for path in _paths(computation[operand])}


def _size(kernels: Kernels, place: int, reads: set[Key]) -> int:
    """The elements of the largest array of a kernel that goes along rows, or `ANY` if it is small; 0 for other kernels."""
    computation = kernels.computation
    one = computation[place]
    body = kernels.values.body(one)
    parts = [one] if body is None else list(body)
    if any(each.opcode not in ALIKE and each.opcode != "reduce" for each in parts):
        return 0
    if any(each.opcode == "reduce" and not _along_rows(body or computation, each) for each in parts):
        return 0
    arrays = [shape for made, path in reads if (shape := part_of(computation[made].shape, path)).is_array]
    arrays += [shape for shape in one.shape.leaves if shape.is_array]
    largest = max(arrays, key=lambda shape: shape.elements, default=None)
    if largest is None:
        return 0
    return largest.elements if largest.bytes >= SMALL else ANY


def _along_rows(computation: Computation, one: Instruction) -> bool:
    """Whether a reduction goes along the last dimensions of its operand, and those fit on chip."""
    whole = computation[one.operands[0]].shape
    axes = sorted(one.integers("dimensions"))
    rank = len(whole.dims)
    columns = 1
    for axis in axes:
        columns *= whole.dims[axis] if axis < rank else 1
    return axes == list(range(rank - len(axes), rank)) and 4 * columns <= ROW


def _leaves(group: set[int], takers: dict[int, list[int]]) -> bool:
    """Whether a value of a group comes back to it through a kernel outside: then it cannot be one kernel."""
    last = max(group)
    seen: set[int] = set()
    waiting = [taker for place in group for taker in takers.get(place, ()) if taker not in group]
    while waiting:
        place = waiting.pop()
        if place in group:
            return True
        if place < last and place not in seen:
            seen.add(place)
            waiting += takers.get(place, ())
    return False


def _chain(computation: Computation, group: set[int], reads: dict[int, set[Key]], returned: set[Key]) -> Chain:
    """A group with the bytes that one kernel reads and writes: what comes from outside, and what others or the program's caller need."""
    read = {key for place in group for key in reads[place] if key[0] not in group}
    written = {key for place, keys in reads.items() if place not in group for key in keys if key[0] in group}
    written |= {key for key in returned if key[0] in group}
    last = max(group, key=lambda place: (max(leaf.elements for leaf in computation[place].shape.leaves if leaf.is_array), place))
    result = {(last, path) for path in _paths(computation[last])}
    return Chain((*sorted(group - {last}), last), _bytes(computation, read | written), _bytes(computation, read | result))


def _bytes(computation: Computation, keys: set[Key]) -> int:
    return sum(leaf.bytes for made, path in keys for leaf in part_of(computation[made].shape, path).leaves if leaf.is_array)
