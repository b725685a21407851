"""Operators on lists of tensors, as optimizers run them. Traces leave out lists of more than 30.

Where ids of tensors are recorded, they tell which tensors these are, and those at one place in several lists have the same sizes.

Else an operator that moves as much as is known of the weights takes lists as long as these, any other one tensors of its own size. It takes
the lists that those before it gave last, the oldest first; but one that does the same again changes another list. What is taken beside it
that none of them gave are the gradients, once.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ....dtypes import DTYPES
from ....graph import Array, Graph, Node
from ....resource import HBM
from ....torch_prices import Tensor
from ....torch_prices.operators import FOREACH, LISTS, lists_in
from ....torch_prices.optimizers import FOREACH as READ
from ....torch_prices.optimizers import FUSED
from ..pricing import PricedOp
from ..read.columns import NONE
from .recorded import Recorded
from .used_tensors import Operand, Used, UsedTensors

Shape = tuple[int, ...]
FEWER, MORE = 0.9, 1.5  # what an operator moves in terms of the weights: where blocks are counted, the last one of each may be part full
_WITH_FACTOR = ("add", "sub")  # a list or a number, and a factor for it
_ELSEWHERE = ("copy", "zero", "norm", "max")  # do not take their first list, or give none


class List(Struct, frozen=True):
    """A list that an operator gave: its arrays, and whether it was made anew, not changed in place."""

    arrays: tuple[int, ...]
    is_new: bool


class Lists:
    """The lists of a step, each as the operators of the step left it."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._known: list[List] = []
        self._last, self._took_gradients = "", False

    def add(self, priced: PricedOp, gradients: Sequence[int], node: Node) -> Sequence[int]:
        """The arrays that an operator on lists gives, after its nodes were appended; none for other ones. ``gradients`` are of weights."""
        taken, arrays = _taken(priced), self._graph.arrays
        own = [array for array in self._own(priced, taken, [arrays[number].shape for number in gradients]) if array.elements]
        if not own:
            return ()
        shapes = [array.shape for array in own]
        alike = [known for known in self._known if [arrays[number].shape for number in known.arrays] == shapes]
        is_again, self._last = priced.name == self._last, priced.name
        operands: list[tuple[int, ...] | None] = [known.arrays for known in alike[-taken:]]
        if is_again:
            operands = [None, *operands[max(len(operands) - taken + 1, 0) :]]
        operands += [None] * (taken - len(operands))
        for place, operand in enumerate(operands):
            if place and operand is None and not self._took_gradients:
                operands[place] = self._of_weights(shapes, gradients)
                self._took_gradients = operands[place] is not None
        lists = [operand or tuple(map(self._graph.array, own)) for operand in operands]
        given = tuple(map(self._graph.array, own))
        for takes, gives in zip(zip(*lists, strict=True), given, strict=True):
            self._graph.append(replace(node, takes=takes, gives=(gives,)))
        changed = next((known for known in self._known if known.arrays == lists[0]), None)
        if priced.name.endswith("_") and changed is not None:
            self._known.remove(changed)
        is_new = changed.is_new if priced.name.endswith("_") and changed is not None else not priced.name.endswith("_")
        self._known.append(List(given, is_new))
        return given

    def _of_weights(self, shapes: Sequence[Shape], gradients: Sequence[int]) -> tuple[int, ...] | None:
        """The gradients of weights of some shapes; ``None`` if there are not as many."""
        left: dict[Shape, list[int]] = {}
        for number in reversed(gradients):
            left.setdefault(self._graph.arrays[number].shape, []).append(number)
        taken = [left[shape].pop() for shape in shapes if left.get(shape)]
        return tuple(taken) if len(taken) == len(shapes) else None

    def end(self) -> None:
        """Notes as results what was changed in place: the state of an optimizer, and weights."""
        self._graph.results.update(number for known in self._known if not known.is_new for number in known.arrays)

    def _own(self, priced: PricedOp, taken: int, weights: Sequence[Shape]) -> list[Array]:
        """Arrays like those of one of the lists that an operator takes; none if that is not known."""
        number = DTYPES.get(priced.priced.dtype)
        if not taken or number is None or priced.priced.cost is None:
            return []
        if lists := lists_in(priced.args):
            return [Array(tensor.shape, number, sure=False) for tensor in lists[0]]
        written = FUSED[priced.name][2] if priced.name in FUSED else 1
        elements = float(priced.priced.cost.known(HBM)) / ((taken + written) * number.bytes(1))
        every = [Array(shape, number, sure=False) for shape in weights]
        is_whole = FEWER <= elements / max(sum(array.elements for array in every), 1) <= MORE
        return every if is_whole else [Array((round(elements),), number, sure=False)]


class ListedTensors:
    """The tensors of lists that a trace with ids left out: how many a list has, and their sizes, by their memory."""

    def __init__(self, recorded: Recorded, tensors: UsedTensors) -> None:
        accumulating = (tensors.ops.get(op) for _, op, _ in recorded.accumulated)
        self._gradients = {_memory(used.operands[0]) for used in accumulating if used is not None and used.operands}
        self._sizes: dict[int, Tensor] = {}
        taken = [(priced.name, tensors.ops[execution.op]) for execution, priced in recorded.ordered if execution.op in tensors.ops]
        for _, used in taken:
            for operand in (*used.operands, *used.results):
                if operand[0] is not None:
                    self._sizes.setdefault(_memory(operand), operand[0])
        listed = [(used, length) for name, used in taken if (length := self.length(name, used))]
        for used, length in listed * 2:  # what is known of a list only later is known of those before it, too
            for operands in _places(used, length):
                memories = [*map(_memory, operands)]
                sizes = next((self._sizes[memory] for memory in memories if memory in self._sizes), None)
                if sizes is not None:
                    self._sizes |= dict.fromkeys((memory for memory in memories if memory not in self._sizes), sizes)

    def length(self, name: str, used: Used) -> int:
        """How many tensors the lists of an operator have; 0 if it takes none, or that is not known."""
        if name.startswith(FOREACH):
            return len(used.changed) if name.endswith("_") else len(used.results)
        gradients = (place for place, operand in enumerate(used.operands) if _memory(operand) in self._gradients)
        return next(gradients, 0) if name.startswith(LISTS) else 0  # weights, then their gradients

    def sized(self, operand: Operand) -> Operand:
        """A tensor with its sizes, if they are known."""
        return operand[0] or self._sizes.get(_memory(operand)), operand[1]


def _memory(operand: Operand) -> int:
    return operand[1].memory if operand[1] is not None else NONE


def _places(used: Used, length: int) -> Iterator[Sequence[Operand]]:
    """The tensors at each place in the lists of an operator."""
    for place in range(length):
        yield [*used.operands[: len(used.operands) // length * length][place::length], *used.results[place::length]]


def _taken(priced: PricedOp) -> int:
    """How many lists an operator takes; 0 for other operators."""
    if priced.name in FUSED:
        return FUSED[priced.name][1]
    name = priced.name.removeprefix(FOREACH).removesuffix("_")
    if name not in READ or name in _ELSEWHERE or not priced.name.startswith(FOREACH):
        return 0
    has_two = name in _WITH_FACTOR and len(priced.args) > 2 and priced.args[1] is None
    return len(lists_in(priced.args)) or READ[name] + has_two
