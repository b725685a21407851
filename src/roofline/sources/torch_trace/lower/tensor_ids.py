"""Reads which tensors ops used, as `roofline capture` writes it into a trace: numbers of memories and of tensors, without offsets.

A memory is allocated for one tensor, which lies at its begin; other tensors in it are results of views. The profiler records no results, so
a tensor that is new is the result of a view of its sizes and strides that was made before. If there are several, or none, it is not known
how it lies relative to others in that memory; nor is it for the first tensor in memory that was allocated before the recording.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from ....dtypes import DType
from ....errors import SourceError
from ....graph.array_memory import Position
from ....torch_prices import Tensor
from ....torch_prices.operators import tensors_of
from ..host import Host
from ..read.columns import NONE
from .used_tensors import NEVER_FREED, Operand, Used, UsedTensors, callers_of, places_of

Number = Annotated[int, Meta(ge=NONE, lt=2**62)]
ROUNDING = 512  # bytes that an allocation may be larger than its tensor
AS_STRIDED = "aten::as_strided"  # which most other views call
SAME_BEGIN = ("aten::view", "aten::_unsafe_view", "aten::_reshape_alias", "aten::alias", "aten::detach")
_BYTE = 8  # bits of an element whose number format is unknown


class Ids(Struct, frozen=True):
    """The ids in a trace, as the hook of `roofline capture` describes them."""

    ops: list[tuple[Number, list[Number], list[Number], list[Number]]]
    left: list[Number]


Spot = tuple[int, int]  # where a tensor begins: bits, and what they count from, as in `Position`


def read_ids(value: Any) -> Ids:
    """The ids in a trace."""
    try:
        return msgspec.convert(value, Ids)
    except (msgspec.ValidationError, RecursionError) as error:
        raise SourceError(f"its ids of tensors are not valid ({error}); what ops read is matched by size") from None


def tensors_by_ids(
    ids: Ids, host: Host, names: Sequence[Any], arguments: Callable[[int], tuple[Any, ...]], until: int = NEVER_FREED
) -> UsedTensors:
    """The tensors of the ops of a trace that begin before some time; ``arguments`` returns the arguments of an op by their number."""
    memories = Memories({memory: bytes for _, _, _, given in ids.ops for memory, bytes in _pairs(given)})
    used, last = dict[int, Used](), dict[int, int]()
    places = places_of([external for external, *_ in ids.ops], host)
    callers = callers_of(places, host)
    for (_, taken, changed, _), place, caller in zip(ids.ops, places.tolist(), callers.tolist(), strict=True):
        if place == NONE:
            continue
        begin = int(host.start[place])
        last.update(dict.fromkeys(taken[::2], begin))
        if begin >= until:
            continue
        pairs, args = _pairs(taken), arguments(int(host.arguments[place]))
        tensors: Sequence[Tensor | None] = tensors_of(args)
        if len(tensors) != len(pairs):  # a trace leaves out long lists
            tensors = [None] * len(pairs)
        operands = [memories.operand(tensor, *pair) for tensor, pair in zip(tensors, pairs, strict=True)]
        if operands:
            memories.view(str(names[host.name[place]]), args, operands[0])
        places_changed = [index for index in changed if 0 <= index < len(operands)]
        used[place] = Used(int(host.end[place]), caller, operands, places_changed, ())
    for (_, _, _, given), place in zip(ids.ops, places.tolist(), strict=True):
        if place in used and (results := memories.results(given[::2])):
            used[place] = replace(used[place], results=results)
    return UsedTensors(used, last | dict.fromkeys(ids.left, NEVER_FREED))


def _pairs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip(numbers[::2], numbers[1::2], strict=False))


class View(Struct, eq=False):
    """A view that was made, whose result was not seen yet: its sizes and strides if they are known, its bits, and where it begins.

    It is not ``clear`` if its result may already have been seen.
    """

    shape: tuple[int, ...] | None
    strides: tuple[int, ...] | None
    bits: int
    spot: Spot
    clear: bool = True

    def may_be(self, tensor: Tensor) -> bool:
        if self.shape is None:
            return self.bits == tensor.elements * _bits(tensor.dtype)
        return self.shape == tensor.shape and tensor.strides in (None, self.strides)


class Seen(Struct, frozen=True):
    """A tensor that was seen, and where it begins."""

    operand: Operand
    spot: Spot


class Memories:
    """Where the tensors lie, memory by memory. ``allocated`` has the bytes of those allocated here."""

    def __init__(self, allocated: dict[int, int]) -> None:
        self._allocated = allocated
        self._first: dict[int, Operand] = {}
        self._unsized: dict[int, Operand] = {}  # the first tensor in each memory whose sizes are not recorded
        self._tensors: dict[tuple[int, int], Seen] = {}  # by memory and number of the tensor
        self._views: dict[int, list[View]] = {}
        self._latest: dict[int, View | None] = {}
        self._spots: dict[tuple[int, object, object], set[Spot]] = {}  # of tensors by memory, sizes and strides

    def results(self, memories: Sequence[int]) -> list[Operand]:
        """The first tensor that an op took in each of these memories, if one did."""
        first = {memory: self._first.get(memory) or self._unsized.get(memory) for memory in memories}
        return [operand for operand in first.values() if operand is not None]

    def operand(self, tensor: Tensor | None, memory: int, number: int) -> Operand:
        """A tensor with its position; its sizes are those that it had before where they are not recorded, and so is its number format."""
        if memory == NONE:
            return tensor, None
        seen = self._tensors.get((memory, number))
        self._latest[memory], latest = None, self._latest.get(memory)
        if tensor is None:
            operand = (None, Position(memory, 0, number)) if seen is None else seen.operand
            self._unsized.setdefault(memory, operand)
            return operand
        if tensor.dtype is None:
            known = seen.operand if seen is not None else self._first.get(memory)
            tensor = replace(tensor, dtype=known[0].dtype if known is not None and known[0] is not None else None)
        if seen is not None and seen.operand[0] == tensor:
            return seen.operand
        spot = seen.spot if seen is not None else self._new(tensor, memory, number, latest)
        operand = (tensor, self._position(tensor, spot, memory))
        self._tensors[memory, number] = Seen(operand, spot)
        self._first.setdefault(memory, operand)
        return operand

    def _position(self, tensor: Tensor, spot: Spot, memory: int) -> Position:
        begin, origin = spot
        return Position(memory, begin // _bits(tensor.dtype), origin, whole=spot == (0, NONE) and self._fills(tensor, memory))

    def _fills(self, tensor: Tensor, memory: int) -> bool:
        """Whether a tensor has as many bits as that for which its memory was allocated."""
        first = self._first.get(memory, (tensor, None))[0]
        bits = tensor.elements * _bits(tensor.dtype)
        is_first = first is not None and bits == first.elements * _bits(first.dtype)
        return is_first and self._allocated.get(memory, -1) - ROUNDING < bits // 8 <= self._allocated.get(memory, -1)

    def _new(self, tensor: Tensor, memory: int, number: int, latest: View | None) -> Spot:
        """Where a tensor begins that was not seen before. ``latest`` is what happened last in its memory, if that is a view."""
        is_allocated, views = memory in self._allocated, self._views.get(memory, [])
        same = self._spots.setdefault((memory, tensor.shape, tensor.strides), set())
        possible = [view for view in views if view.may_be(tensor)]
        spots = {view.spot for view in possible}
        if is_allocated and memory not in self._first:
            spot = 0, NONE
        elif len(spots) == 1 and all(view.clear for view in possible) and (same <= spots or possible[-1] is latest):
            (spot,) = spots
        elif not spots and is_allocated and len(same) == 1:  # autograd keeps tensors without an op that would tell
            (spot,) = same
        elif not spots and is_allocated and self._fills(tensor, memory):
            spot = 0, NONE
        else:
            spot = 0, number
            for view in possible:
                view.clear = False
        if possible:
            views.remove(possible[0])
        same.add(spot)
        return spot

    def view(self, name: str, args: Sequence[Any], source: Operand) -> None:
        """Notes that an op with these arguments made a view of a tensor, if it did."""
        tensor, position = source
        if tensor is None or position is None or not (name == AS_STRIDED or name in SAME_BEGIN):
            return
        bits = _bits(tensor.dtype)
        spot = position.offset * bits, position.origin
        if name == AS_STRIDED:
            shape, strides, offset = (*args[1:4], None, None, None)[:3]
            if not (_are_sizes(shape) and _are_sizes(strides)):
                return
            view = View(shape, strides, 0, (offset * bits, NONE) if type(offset) is int else spot)
        else:
            view = View(None, None, tensor.elements * bits, spot)
        self._views.setdefault(position.memory, []).append(view)
        self._latest[position.memory] = view


def _bits(dtype: DType | None) -> int:
    return dtype.bits if dtype is not None else _BYTE


def _are_sizes(value: Any) -> bool:
    return isinstance(value, tuple) and all(type(size) is int for size in value)
