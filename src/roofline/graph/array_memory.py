"""Which array each part of memory has, as calls write and read it through views.

>>> from roofline.graph import Graph
>>> graph = Graph()
>>> memory = ArrayMemory(graph)
>>> whole = memory.write(Array((4, 8), None, (8, 1)), Position(0, 0))
>>> row = memory.read(Array((8,), None, (1,)), Position(0, 8))
>>> graph.maker[row].operator.value, graph.maker[row].takes == (whole,)
('slice', True)
"""

from collections.abc import Collection, Sequence

from msgspec import Struct
from msgspec.structs import replace

from .graph import Graph, Node
from .operators import Array, Operator, Part

_BYTE = 8  # bits of an element whose number format is unknown


class Position(Struct, frozen=True):
    """Where a tensor begins: the number of its memory, and its offset in elements, from the begin of the memory or from another ``origin``.

    It is not known how tensors lie whose origins differ. A tensor that fills its memory is ``whole``, if that is known.
    """

    memory: int
    offset: int
    origin: int = -1
    whole: bool = False


class Piece(Struct, frozen=True):
    """An array in one memory, where its elements lie between two bits; ``written`` is whether the program wrote it."""

    number: int
    array: Array
    position: Position
    begin: int
    end: int
    written: bool

    @property
    def is_dense(self) -> bool:
        """Whether it has all elements in between."""
        return self.end - self.begin == self.array.elements * _bits(self.array)

    def overlaps(self, other: "Piece") -> bool:
        """Whether both may have an element in common."""
        return self.position.origin != other.position.origin or (self.begin < other.end and other.begin < self.end)

    def includes(self, other: "Piece") -> bool:
        """Whether all elements of another piece are among its own."""
        if self.position.origin != other.position.origin:
            return self.position.whole and self.is_dense
        return self.is_dense and self.begin <= other.begin and other.end <= self.end

    def equals(self, other: "Piece") -> bool:
        return self.array == other.array and self.begin == other.begin and self.position.origin == other.position.origin


class ArrayMemory:
    """The arrays in each memory, by its number: newer ones come last, and may have replaced parts of older ones."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._pieces: dict[int, list[Piece]] = {}
        self._views: dict[int, dict[tuple[Array, Position], int]] = {}  # those that were read since the last write

    @property
    def memories(self) -> Collection[int]:
        """The numbers of the memories with arrays."""
        return self._pieces

    def arrays_in(self, memory: int) -> list[int]:
        """The numbers of the arrays in a memory."""
        return [piece.number for piece in self._pieces.get(memory, ())]

    def forget(self, memory: int) -> None:
        """Forgets the arrays in a memory, of which any part may have been written."""
        self._pieces.pop(memory, None)
        self._views.pop(memory, None)

    def write(self, array: Array, position: Position) -> int:
        """The number of an array that is written there."""
        number = self._graph.array(array)
        self._replace(_piece(number, array, position, written=True))
        return number

    def read(self, array: Array, position: Position) -> int:
        """The number of an array that is read from there, after the nodes that make it of those that were written."""
        views = self._views.get(position.memory, {})
        if (array, position) not in views:
            number = self._read(array, position)
            self._views.setdefault(position.memory, {})[array, position] = number
            return number
        return views[array, position]

    def _read(self, array: Array, position: Position) -> int:
        wanted = _piece(len(self._graph.arrays), array, position)
        pieces = [piece for piece in self._pieces.get(position.memory, ()) if piece.overlaps(wanted)]
        if pieces and pieces[-1].equals(wanted):
            return pieces[-1].number
        if self._is_part_of_update(wanted, pieces):
            self.read(pieces[0].array, pieces[0].position)
            return self._read(array, position)
        if not pieces and array.distinct < array.elements:
            self.read(_without_repeats(array), position)
            return self._read(array, position)
        self._graph.array(array)
        if pieces and pieces[-1].includes(wanted) and pieces[-1].array.dtype == array.dtype:
            operator = _view(pieces[-1], wanted)
            part = _cut(pieces[-1], wanted) if operator == Operator.SLICE else None
            function = _distances(pieces[-1:], wanted)  # beside the strides, all that tells which elements it has
            self._graph.append(Node(operator, (pieces[-1].number,), (wanted.number,), part), function)
            return wanted.number
        if pieces and pieces[-1].includes(wanted) and _is_real_part(pieces[-1], wanted):
            self._graph.append(Node(Operator.REAL, (pieces[-1].number,), (wanted.number,)))
            return wanted.number
        written = any(piece.written for piece in pieces)
        if written:
            cut = _cut(pieces[0], pieces[1]) if len(pieces) == 2 and pieces[0].equals(wanted) else None
            takes, function = tuple(piece.number for piece in pieces), _distances(pieces, wanted)
            node = Node(Operator.UPDATE, takes, (wanted.number,), cut)
            writer = self._graph.maker.get(pieces[-1].number, node)
            self._graph.append(replace(node, phase=writer.phase, location=writer.location), function)
        if not written or all(piece.position.origin == position.origin for piece in pieces):  # else a copy of what others have
            self._replace(_piece(wanted.number, array, position, written=written))
        return wanted.number

    def _is_part_of_update(self, wanted: Piece, pieces: Sequence[Piece]) -> bool:
        """Whether parts of an array were written over, and some of it in another shape is wanted."""
        if len(pieces) < 2 or pieces[-1].includes(wanted) or pieces[0].equals(wanted) or not pieces[0].includes(wanted):
            return False
        return pieces[0].array.dtype == wanted.array.dtype and len({piece.position.origin for piece in (wanted, *pieces)}) == 1

    def _replace(self, piece: Piece) -> None:
        memory = piece.position.memory
        older = [before for before in self._pieces.get(memory, ()) if not piece.includes(before)]
        self._pieces[memory] = [*older, piece]
        self._views.pop(memory, None)


def _distances(pieces: Sequence[Piece], wanted: Piece) -> tuple[int, ...] | None:
    """How far in memory an array begins after some pieces; ``None`` if that is not known."""
    is_known = all(piece.position.origin == wanted.position.origin for piece in pieces)
    return tuple(wanted.begin - piece.begin for piece in pieces) if is_known else None


def _view(whole: Piece, part: Piece) -> Operator:
    """How a part of an array is made of it."""
    elements = part.array.elements
    if part.array.distinct < elements or elements > whole.array.elements:
        return Operator.BROADCAST
    return Operator.VIEW if elements == whole.array.elements and part.is_dense else Operator.SLICE


def _without_repeats(array: Array) -> Array:
    """An array without the axes along which it has the same elements again."""
    axes = [axis for axis, stride in enumerate(array.strides or ()) if stride]
    strides = tuple((array.strides or ())[axis] for axis in axes)
    return Array(tuple(array.shape[axis] for axis in axes), array.dtype, strides)


def _is_real_part(whole: Piece, part: Piece) -> bool:
    """Whether elements are the real parts of complex ones, the first of both numbers of each."""
    complex_format, strides = whole.array.dtype, part.array.strides
    if complex_format is None or not complex_format.is_complex or 2 * _bits(part.array) != complex_format.bits or strides is None:
        return False
    return (part.begin - whole.begin) % complex_format.bits == 0 and all(stride % 2 == 0 for stride in strides)


def _cut(whole: Piece, part: Piece) -> Part | None:
    """The elements of each axis of an array that a part of it has; ``None`` if they are no part of each axis, as a diagonal is not."""
    strides, shape = whole.array.strides, whole.array.shape
    if strides is None or part.array.strides is None or whole.position.origin != part.position.origin or 0 in part.array.shape:
        return None
    axes = [axis for axis in whole.array.order(in_memory=True) if shape[axis] > 1]
    left = part.position.offset - whole.position.offset
    starts, counts, steps = [0] * len(shape), [1] * len(shape), [1] * len(shape)
    for axis in axes:
        starts[axis], left = divmod(left, strides[axis]) if strides[axis] else (0, left)
    sides = sorted((stride, size) for size, stride in zip(part.array.shape, part.array.strides, strict=True) if size > 1)
    for stride, size in sides:
        fitting = [axis for axis in axes if 0 < strides[axis] <= stride and stride % strides[axis] == 0]
        if not fitting:
            return None
        axis, step = fitting[0], stride // strides[fitting[0]]
        if counts[axis] > 1 and step != counts[axis] * steps[axis]:
            return None
        steps[axis], counts[axis] = step if counts[axis] == 1 else steps[axis], counts[axis] * size
        overflowing = axis  # elements that fill an axis go on along the next slower one
        for slower in reversed(axes[: axes.index(overflowing)]):
            size = shape[overflowing]
            if steps[overflowing] != 1 or counts[overflowing] <= size or counts[overflowing] % size or counts[slower] > 1:
                break
            if strides[slower] != strides[overflowing] * size:
                break
            counts[slower], counts[overflowing], overflowing = counts[overflowing] // size, size, slower
    limits = [start + (count - 1) * step + 1 for start, count, step in zip(starts, counts, steps, strict=True)]
    is_inside = left == 0 and all(limit <= size for limit, size in zip(limits, shape, strict=True))
    return Part(tuple(starts), tuple(limits), tuple(steps)) if is_inside else None


def _piece(number: int, array: Array, position: Position, *, written: bool = False) -> Piece:
    bits, strides, offset = _bits(array), array.strides, position.offset
    distance = sum((size - 1) * stride for size, stride in zip(array.shape, strides or (), strict=False))
    length = array.elements if strides is None or not array.elements else 1 + distance
    return Piece(number, array, position, offset * bits, (offset + length) * bits, written)


def _bits(array: Array) -> int:
    return array.dtype.bits if array.dtype is not None else _BYTE
