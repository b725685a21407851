"""The gradients that the backward passes of a trace store for weights, and which of them an optimizer uses.

A weight is told from others by the memory of its gradient, or by its shape where no ids of tensors are recorded. Of several weights of one
shape, an optimizer that updates fewer uses the gradients that were stored first; optimizers that take turns use all of them. Where a trace
left out which weights are updated, gradients that no step drops are not used, if every step drops others: those of an optimizer.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator

from msgspec import Struct, field
from msgspec.structs import replace

from ....graph import Array, Gradient, Graph, Node, Operator, Phase
from ..executions import Execution
from ..read.columns import NONE
from .recorded import Recorded

Shape = tuple[int, ...]
Weight = Hashable
ZEROS = ("aten::zero_", "aten::_foreach_zero_")
LEAST_STEPS = 2  # that show which gradients are dropped
UNKNOWN = None  # a weight of a list that the trace left out


class Stored(Struct, frozen=True):
    """A gradient by its place in the graph's list, the backward pass and the weight that it is of, and whether it was added to another."""

    place: int
    backward: int
    weight: Weight
    is_added: bool


class Part(Struct):
    """Backward passes and the updates that follow: how often each operator updates a weight."""

    step: int
    is_second: bool = False  # through the same ops as one before it, which is a finding of its own
    stored: list[Stored] = field(default_factory=list)
    updated: dict[str, Counter[Weight]] = field(default_factory=dict)

    def updates(self, weight: Weight) -> int:
        """How many weights like this one are updated."""
        return max((counts[weight] for counts in self.updated.values()), default=0)

    @property
    def is_known(self) -> bool:
        """Whether it is known what is updated."""
        return bool(self.updated) and not any(counts[UNKNOWN] for counts in self.updated.values())

    def stores(self, weight: Weight) -> bool:
        """Whether a gradient of a weight is stored as it is, so that the one before was dropped."""
        return not self.is_second and any(stored.weight == weight and not stored.is_added for stored in self.stored)


class StoredGradients:
    """The gradients of a graph while it is made, execution by execution."""

    def __init__(self, graph: Graph, recorded: Recorded) -> None:
        self._graph, self._has_shards = graph, recorded.has_shards
        self._waiting: dict[int, list[tuple[int, Shape]]] = {}  # by step, the ops that accumulate, the first one last
        for step, op, shape in sorted(recorded.accumulated, reverse=True):
            self._waiting.setdefault(step, []).append((op, shape))
        self._next = _next_backward([execution for execution, _ in recorded.ordered])
        self._parts: list[Part] = []
        self._filled: dict[Weight, int] = {}  # the kernel that fills a gradient with zeros
        self._added: dict[Weight, int] = {}  # the first backward pass after that which adds to it
        self._backward, self._is_inside = 0, False  # the number of the backward pass

    def enter(self, execution: Execution) -> None:
        """Notes in which part of a step an execution is."""
        is_backward = _is_backward(execution)
        self._backward += is_backward and not self._is_inside
        self._is_inside = execution.context.backward
        if is_backward and (not self._parts or self._parts[-1].step != execution.mark or self._parts[-1].updated):
            self._parts.append(Part(execution.mark))
        if is_backward and execution.context.again is not None:
            self._parts[-1].is_second = True

    def accumulated_before(self, place: int, step: int) -> Iterator[tuple[int, Shape]]:
        """The ops that accumulated a gradient before an execution, also those that run it, and the shapes of their gradients."""
        waiting, end = self._waiting.get(step, []), self._next[place] if place < len(self._next) else NONE
        while waiting and (end == NONE or waiting[-1][0] < end):
            yield waiting.pop()

    def store(self, array: int, weight: Weight, *, is_added: bool = False) -> None:
        """Notes that an array is stored as the gradient of a weight, or is the sum with an earlier one."""
        if self._parts:
            self._parts[-1].stored.append(Stored(len(self._graph.weight_gradients), self._backward, weight, is_added))
        self._graph.weight_gradients.append(Gradient(array, len(self._graph.nodes)))

    def fill(self, kernel: int, weights: Iterable[Weight]) -> None:
        """Notes that a kernel fills the gradients of weights with zeros."""
        for weight in weights:
            self._filled[weight] = kernel
            self._added.pop(weight, None)
            if weight is UNKNOWN:
                self._added.clear()

    def zeros(self, weight: Weight, gradient: Array) -> int | None:
        """The zeros that are added to in the first backward pass after a gradient was filled with them; ``None`` if it was not."""
        kernel = self._filled.get(weight, self._filled.get(UNKNOWN))
        if kernel is None or self._has_shards or self._added.setdefault(weight, self._backward) != self._backward:
            return None
        array = self._graph.array(gradient)
        self._graph.append(Node(Operator.FILL, (), (array,), 0, kernel, Phase.FORWARD))
        return array

    def update(self, operator: str, weights: Iterable[Weight]) -> None:
        """Notes that an operator of an optimizer updates weights."""
        if self._parts:
            self._parts[-1].updated.setdefault(operator, Counter()).update(weights)

    def end(self) -> None:
        """Notes in the graph which of its gradients no optimizer uses."""
        if self._has_shards:
            return
        if not all(part.is_known for part in self._parts):
            self._end_by_drops()
            return
        take_turns = len(self._parts) > len({part.step for part in self._parts})
        for number, part in enumerate(self._parts):
            following = [*self._parts[number + 1 :], *self._parts[:number]]  # steps repeat
            counts = Counter[tuple[int, Weight]]()
            for stored in part.stored:
                counts[stored.backward, stored.weight] += 1
                updates = part.updates(stored.weight)
                is_first = take_turns or counts[stored.backward, stored.weight] <= updates
                if is_first if updates else not _is_dropped(stored.weight, following):
                    continue
                gradient = self._graph.weight_gradients[stored.place]
                self._graph.weight_gradients[stored.place] = replace(gradient, is_used=self._is_taken(gradient.array))

    def _end_by_drops(self) -> None:
        """Notes which gradients the first backward pass of every step adds to those of the step before, if each step drops others."""
        firsts = [[stored for stored in part.stored if stored.backward == part.stored[0].backward] for part in self._parts if part.stored]
        if len(firsts) < LEAST_STEPS or not all(part.updated and not part.is_second for part in self._parts):
            return
        if not all({stored.is_added for stored in first} == {True, False} for first in firsts):
            return
        for stored in (stored for first in firsts for stored in first if stored.is_added):
            gradient = self._graph.weight_gradients[stored.place]
            self._graph.weight_gradients[stored.place] = replace(gradient, is_used=self._is_taken(gradient.array))

    def _is_taken(self, array: int) -> bool:
        """Whether anything else than a backward pass takes an array, as far as that is sure."""
        return self._graph.arrays[array].sure and any(user.phase != Phase.BACKWARD for user in self._graph.users.get(array, ()))


def _is_backward(execution: Execution) -> bool:
    context = execution.context
    return context.backward and not context.recomputed and not context.optimizer and execution.op != NONE


def _next_backward(executions: list[Execution]) -> list[int]:
    """The op of the first execution of the same step, from each one on, that is in a backward pass, or `NONE`."""
    ops, step, op = list[int](), NONE, NONE
    for execution in reversed(executions):
        if execution.mark != step:
            step, op = execution.mark, NONE
        op = execution.op if _is_backward(execution) else op
        ops.append(op)
    return ops[::-1]


def _is_dropped(weight: Weight, following: list[Part]) -> bool:
    """Whether a gradient is dropped before the weight is updated, or the weight never is."""
    owner = next((part for part in following if part.updates(weight)), None)
    return owner is None or owner.stores(weight)
