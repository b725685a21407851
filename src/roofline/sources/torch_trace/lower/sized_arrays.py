"""Which array an operand of an execution may be, by its size.

An operand is the last array of its step with as many elements, in the same number format, whose last axis is one of its last two; several
operands of an op are the last few such arrays, in order. One with expanded axes is the last array with the other ones. A gradient takes the
operands of its forward op first. An array that nothing made or took for as long as a layer takes is forgotten, and so is one that an op
took whose result is not known.
"""

from collections.abc import Sequence
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from ....graph import Array, Axes, Graph, Node, Operator, Part, Phase
from ....torch_prices import Tensor

REACH = 64  # executions for which an array is remembered: those of a layer of a transformer, in eager mode
LEAST = 64  # columns of an array that rows are taken of: with fewer, other tensors may have the same shape
FILLED = 4  # executions after one that makes an array of others, or of one value, in which a copy may write a part of it
STACKED = 3  # axes that arrays have which are told from others by their shape
NEAR = 12  # executions after a gather in which the next rows as wide as those of its table are what it gathered
Shape = tuple[int, ...]


class EarlierArray(Struct, eq=False):
    """An array, and the place of the execution that made or took it last. Of gathered rows the number may be unknown: they are ``open``."""

    number: int
    array: Array
    place: int
    is_open: bool = False

    def may_be(self, tensor: Tensor) -> bool:
        """Whether an operand may be this array, whatever its axes are."""
        if None not in (tensor.dtype, self.array.dtype) and tensor.dtype != self.array.dtype:
            return False
        shape, last = tensor.shape, self.array.shape[-1:]
        if self.is_open:
            return len(shape) == 2 and shape[-1:] == last
        return (not last or last[0] in shape[-2:]) and tensor.elements == self.array.elements


class Arrays:
    """The arrays of a step that later ops may take, in the order of making, by their elements; open ones by 0."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._made: dict[int, list[EarlierArray]] = {}
        self._buffers: list[EarlierArray] = []  # those of one value or of others' elements
        self._stacks: dict[Shape, EarlierArray] = {}  # the last array that is a stack of others, by their shape

    def _source(self, tensor: Tensor, place: int) -> EarlierArray | None:
        """The last product, or sorted array, of which an operand with gaps between its rows may be some of the rows, or a part of each."""
        shape, strides = tensor.shape, tensor.strides
        if len(shape) < 2 or strides is None or len(strides) != len(shape) or strides[-1] != 1:
            return None
        whole = shape[0] * strides[0]
        recent = [earlier for earlier in self._made.get(whole, ()) if place - earlier.place <= REACH and tensor.elements < whole]
        as_wide = [earlier for earlier in recent if earlier.array.shape[-1:] == shape[-1:] and shape[-1] >= LEAST][-1:]
        products = [earlier for earlier in as_wide if self._is_product(earlier.number)]
        return next(reversed(products or [earlier for earlier in recent if self._is_sorted(earlier.number, shape, strides)]), None)

    def _is_sorted(self, number: int, part: Shape, strides: Shape) -> bool:
        """Whether an array is sorted along its rows, and has these parts of them."""
        node, shape = self._graph.maker.get(number), self._graph.arrays[number].shape
        is_part = shape[:-1] == part[:-1] and shape[-1] == strides[-2]
        return is_part and node is not None and node.operator == Operator.SORT and node.params == len(shape) - 1

    def _is_product(self, number: int) -> bool:
        """Whether an array is a product, or one with a bias: the results of other ops are as large as many."""
        node = self._graph.maker.get(number)
        if node is not None and node.operator == Operator.ADD and node.takes:
            node = self._graph.maker.get(node.takes[0])
        return node is not None and node.operator == Operator.DOT

    def matches(
        self, taken: Sequence[Tensor], forward: Sequence[EarlierArray], place: int, *, is_gradient_first: bool
    ) -> list[EarlierArray | None]:
        """The array that each operand of an execution may be; ``forward`` are those that its forward op took. The first operand may be the
        gradient of what that gave.
        """
        matches: list[EarlierArray | None] = [None] * len(taken)
        sizes = {index: tensor.elements for index, tensor in enumerate(taken) if _is_stored(tensor)}
        left = list(forward)
        if left and is_gradient_first:
            first = next(iter(sizes), None)
            if first is not None:
                matches[first] = self._last_gradient(taken[first], place)
        for index in sizes if left else ():
            matches[index] = matches[index] or next((earlier for earlier in left if earlier.may_be(taken[index])), None)
            left = [earlier for earlier in left if earlier is not matches[index]]
        for elements in dict.fromkeys(sizes.values()):
            alike = [index for index, size in sizes.items() if size == elements and matches[index] is None]
            recent = self._made[elements] = [earlier for earlier in self._made.get(elements, ()) if place - earlier.place <= REACH]
            known = [earlier for earlier in recent if earlier.may_be(taken[alike[0]])] if alike else []
            for index, earlier in zip(alike, known[-len(alike) :], strict=False):
                matches[index] = earlier
            for index in alike[len(known) :]:
                matches[index] = (
                    self._gathered(taken[index], place) or self._source(taken[index], place) or self._stack(taken[index], place)
                )
        for index, tensor in enumerate(taken):
            if tensor.distinct < tensor.elements:
                matches[index] = self._repeated(tensor, place)
        for tensor, match in zip(taken, matches, strict=True):
            if match is not None:
                match.place = place
                if match.array.dtype is None and tensor.dtype is not None:
                    match.array = self._graph.arrays[match.number] = replace(match.array, dtype=tensor.dtype)
        return matches

    def _last_gradient(self, tensor: Tensor, place: int) -> EarlierArray | None:
        """The last array of the backward pass that an operand may be."""
        recent = (
            earlier
            for earlier in reversed(self._made.get(tensor.elements, ()))
            if place - earlier.place <= REACH and earlier.may_be(tensor)
        )
        return next((earlier for earlier in recent if self._graph.maker[earlier.number].phase == Phase.BACKWARD), None)

    def _repeated(self, tensor: Tensor, place: int) -> EarlierArray | None:
        """The last array that an operand with expanded axes may repeat: it has the other ones."""
        sizes = [tensor.shape[axis] for axis in _own_axes(tensor) if tensor.shape[axis] > 1]
        recent = [earlier for earlier in self._made.get(tensor.distinct, ()) if place - earlier.place <= REACH]
        return next((earlier for earlier in reversed(recent) if [size for size in earlier.array.shape if size > 1] == sizes), None)

    def _gathered(self, tensor: Tensor, place: int) -> EarlierArray | None:
        """The rows that were gathered last, if an operand may be them."""
        waiting = [earlier for earlier in self._made.get(0, ()) if place - earlier.place <= NEAR and earlier.may_be(tensor)]
        if not waiting:
            return None
        earlier = waiting[-1]
        self._made[0].remove(earlier)
        earlier.is_open, earlier.array = False, replace(earlier.array, shape=tensor.shape)
        self._graph.arrays[earlier.number] = earlier.array
        self._made.setdefault(tensor.elements, []).append(earlier)
        return earlier

    def _stack(self, tensor: Tensor, place: int) -> EarlierArray | None:
        """The array of which an operand may be a part along the first axis, such as the keys of a cache that has the values too."""
        stack = self._stacks.get(tensor.shape)
        return stack if stack is not None and place - stack.place <= REACH and stack.array.dtype in (None, tensor.dtype) else None

    def named(self, tensor: Tensor, earlier: EarlierArray | None) -> int:
        """The number of an operand, which may have other axes than the array that it is, or lie in another order."""
        strides = _order(tensor)
        if earlier is not None and earlier.array.shape == tensor.shape and strides in (None, earlier.array.strides):
            return earlier.number
        number = self._graph.array(Array(tensor.shape, tensor.dtype, strides, sure=False))
        if earlier is not None:
            if tensor.elements > earlier.array.elements:
                axes = _own_axes(tensor)
                is_same = earlier.array.shape == tuple(tensor.shape[axis] for axis in axes)
                self._graph.append(Node(Operator.BROADCAST, (earlier.number,), (number,), Axes(axes) if is_same else None))
                return number
            operator = Operator.SLICE if tensor.elements < earlier.array.elements else Operator.VIEW
            self._graph.append(Node(operator, (earlier.number,), (number,)))
        return number

    def before_expansion(self, tensor: Tensor, place: int) -> EarlierArray | None:
        """A new array that an operand with expanded axes repeats; ``None`` for any other operand, and one number."""
        if not 1 < tensor.distinct < tensor.elements:
            return None
        array = Array(tuple(tensor.shape[axis] for axis in _own_axes(tensor)), tensor.dtype, sure=False)
        return EarlierArray(self._graph.array(array), array, place)

    def given(self, result: Tensor, place: int, *, is_buffer: bool = False) -> int:
        """The number of the result of an execution; ``is_buffer`` is whether it has one value everywhere, or elements of others."""
        array = Array(result.shape, result.dtype, _order(result), sure=False)
        earlier = EarlierArray(self._graph.array(array), array, place, is_open=not array.elements)
        self._buffers += [earlier] if is_buffer else []
        self._made.setdefault(array.elements, []).append(earlier)
        if len(array.shape) > STACKED:
            self._stacks[array.shape[1:]] = earlier
        return earlier.number

    def add(self, number: int, place: int) -> None:
        """Notes an array that was made by an execution."""
        array = self._graph.arrays[number]
        self._made.setdefault(array.elements, []).append(EarlierArray(number, array, place))

    def write_part(self, part: Tensor, given: int, place: int) -> None:
        """Appends the update of the last array of one value, or of others' elements, that was just made, if a copy writes a part of it."""
        self._buffers = [earlier for earlier in self._buffers if place - earlier.place <= FILLED]
        whole = next((earlier for earlier in reversed(self._buffers) if _is_part_of(part, earlier.array.shape)), None)
        if whole is None:
            return
        self._buffers.remove(whole)
        self.forget([whole])
        written = self.given(Tensor(whole.array.shape, whole.array.dtype), place)
        maker, is_filled = self._graph.maker[given], self._graph.maker[whole.number].operator == Operator.FILL
        cut = Part((0,) * len(part.shape), part.shape, (1,) * len(part.shape)) if is_filled else None  # most padding is behind the data
        node = Node(Operator.UPDATE, (whole.number, given), (written,), cut, phase=maker.phase, location=maker.location)
        self._graph.append(node)

    def forget(self, matches: Sequence[EarlierArray | None]) -> None:
        """Forgets what an execution wrote over, or took: its result, which is not known, may be as large."""
        for earlier in matches:
            if earlier is not None and earlier in self._made.get(earlier.array.elements, ()):
                self._made[earlier.array.elements].remove(earlier)


def _is_part_of(part: Tensor, whole: Shape) -> bool:
    """Whether a tensor may be a part of one of this shape: its elements are as far apart in memory."""
    if len(part.shape) != len(whole) or part.shape == whole or part.strides != _row_by_row(whole):
        return False
    return all(size <= length for size, length in zip(part.shape, whole, strict=True))


def _order(tensor: Tensor) -> Shape | None:
    """The strides of a tensor; ``None`` if they are not known, or it lies row by row without gaps."""
    if tensor.strides is None or len(tensor.strides) != len(tensor.shape) or tensor.strides == _row_by_row(tensor.shape):
        return None
    return tensor.strides


def _row_by_row(shape: Shape) -> Shape:
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _is_stored(tensor: Tensor) -> bool:
    """Whether an operand may be an array that an op made: one with an expanded axis is a view of a smaller one."""
    return tensor.distinct == tensor.elements > 0


def _own_axes(tensor: Tensor) -> tuple[int, ...]:
    """The axes of an operand that are not expanded."""
    strides = tensor.strides or (1,) * len(tensor.shape)
    return tuple(axis for axis, (size, stride) in enumerate(zip(tensor.shape, strides, strict=False)) if stride or size == 1)
