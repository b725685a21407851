"""The graph of executions with edges matched by size: a trace without ids does not tell what an op reads."""

from collections.abc import Sequence

from msgspec.structs import replace

from ....cost import NOTHING
from ....graph import Array, Graph, Kernel, Node, Operator, Phase
from ....torch_prices import Tensor
from ....torch_prices.call import INT64
from ....torch_prices.operators import LISTS, OF_TABLE, Meaning, append, fuses, meaning, tensors_of
from ..executions import Execution
from ..pricing import PricedOp
from ..read.columns import NONE
from .gradients import UNKNOWN, ZEROS, StoredGradients
from .lists import Lists
from .recorded import Recorded, forced
from .results import result_of
from .sized_arrays import Arrays, EarlierArray

INSIDE = 2  # how far the addition to a gradient is from the op that accumulates it
ADDITION, WEIGHTS = "aten::add_", 2  # the place of the weights among the tensors of the gradient of a convolution
Shape = tuple[int, ...]
_BUFFERS = (Operator.FILL, Operator.CONCATENATE)


class BySize:
    """The graph of executions with edges matched by size."""

    def __init__(self, recorded: Recorded) -> None:
        self.graph = Graph(backend=recorded.backend)
        self._recorded, self._arrays = recorded, Arrays(self.graph)
        step = recorded.ordered[0][0].mark if recorded.ordered else NONE
        self._operands: dict[int, list[EarlierArray]] = {}  # of forward ops, by the numbers that their gradients share
        # The op that made each array of a backward pass, by step and shape.
        self._made: dict[tuple[int, Shape], list[tuple[int, int]]] = {}
        self._gradients = StoredGradients(self.graph, recorded)
        self._stored, self._lists = list[tuple[Shape, int]](), Lists(self.graph)  # the gradients of weights in this step, and lists
        for place, ((execution, priced), phase) in enumerate(zip(recorded.ordered, recorded.phases, strict=True)):
            if execution.mark != step:
                self._end_step(step)
                step = execution.mark
            self._add(place, execution, priced, phase)
        self._end_step(step)
        self._gradients.end()

    def _end_step(self, step: int) -> None:
        """Forgets all arrays, after those that were stored as gradients at last."""
        for op, shape in self._gradients.accumulated_before(len(self._recorded.ordered), step):
            self._store(step, op, shape)
        self._lists.end()
        self._arrays, self._operands = Arrays(self.graph), {}
        self._stored, self._lists = [], Lists(self.graph)

    def _add(self, place: int, execution: Execution, priced: PricedOp, phase: Phase) -> None:
        graph, arrays = self.graph, self._arrays
        is_backward, number = execution.context.backward, self._recorded.sequence(execution)
        means, tensors = meaning(priced.name, priced.args, priced.priced.category), tensors_of(priced.args)
        if means.operator == Operator.GATHER and means.params is None:  # of a list of indices that was not recorded
            means = replace(means, params=0)
        if priced.name.startswith(LISTS):
            means = Meaning(Operator.OTHER, ())
        added = self._store_gradients(place, execution, priced)
        taken = [tensors[index] for index in means.takes]
        result = result_of(priced, means, tensors)
        if means == OF_TABLE and result is not None:  # into what was filled before
            taken = [result, *taken]
        is_gradient_first = is_backward and means.operator != Operator.DOT
        forward = self._operands.get(number, ()) if is_backward else ()
        matches = arrays.matches(taken, forward, place, is_gradient_first=is_gradient_first)
        if not is_backward and number != NONE:
            self._operands.setdefault(number, []).extend(earlier for earlier in matches if earlier is not None)
        if means.operator == Operator.DOT:  # its operands may be arguments that are expanded
            matches = [earlier or arrays.before_expansion(tensor, place) for tensor, earlier in zip(taken, matches, strict=True)]
        takes = tuple(arrays.named(tensor, earlier) for tensor, earlier in zip(taken, matches, strict=True))
        if means == OF_TABLE and result is not None and graph.value(takes[0]) is None:
            takes = takes[1:]
        if added is not None and (zeros := self._gradients.zeros(added, graph.arrays[takes[0]])) is not None:
            takes = (zeros, *takes[1:])
        gives = () if result is None else (arrays.given(result, place, is_buffer=means.operator in _BUFFERS),)
        if means.operator == Operator.SORT and result is not None:  # it gives positions too
            gives = (*gives, arrays.given(Tensor(result.shape, INT64), place))
        if result is None and not tensors and priced.priced.cost is None:  # an unknown kernel may have written any array
            self._arrays = Arrays(graph)
        elif result is None:
            arrays.forget(
                [earlier for tensor, earlier in zip(taken, matches, strict=True) if earlier and earlier.array.elements == tensor.elements]
            )
        if is_backward and result is None and means.operator == Operator.CONVOLUTION_GRADIENT and len(tensors) > WEIGHTS:
            result = tensors[WEIGHTS]
            gives = (graph.array(Array(result.shape, result.dtype, sure=False)),)
        if is_backward and result is not None and _may_be_stored(means, taken):
            self._made.setdefault((execution.mark, result.shape), []).extend((execution.op, array) for array in gives)
        graph.kernels[place] = Kernel(priced.priced.cost or NOTHING, fuses=fuses(priced.name, priced.priced.category))
        graph.forced |= forced(place, execution, priced)
        location = execution.context.location
        node = Node(Operator.OTHER, (), (), None, place, phase, number, location, place)
        given = self._lists.add(priced, [array for _, array in self._stored], node)
        if not given:
            append(graph, means, takes, gives, node)
        for array in given:
            arrays.add(array, place)
        if means.operator == Operator.COPY and gives:
            arrays.write_part(tensors[0], gives[0], place)
        if added is not None and gives:
            self._gradients.store(gives[0], added, is_added=True)
            before = next((place for place, (shape, _) in enumerate(self._stored) if shape == added), len(self._stored))
            self._stored[before : before + 1] = [(added, gives[0])]
        if phase == Phase.UPDATE:
            self._gradients.update(priced.name, _updated(priced))
        elif priced.name in ZEROS and not is_backward:
            self._gradients.fill(place, [tensor.shape for tensor in tensors] or (UNKNOWN,))

    def _store_gradients(self, place: int, execution: Execution, priced: PricedOp) -> Shape | None:
        """Stores the gradients that were accumulated before an execution; the shape of the one that it adds to an earlier one."""
        self._gradients.enter(execution)
        added = None
        for op, shape in self._gradients.accumulated_before(place, execution.mark):
            if priced.name == ADDITION and execution.context.backward and 0 < execution.op - op <= INSIDE:
                added = shape
            self._store(execution.mark, op, shape, is_alone=added is None)
        return added

    def _store(self, step: int, op: int, shape: Shape, *, is_alone: bool = True) -> None:
        """Notes the last array of a shape, perhaps transposed, as the gradient of a weight; one that is not ``is_alone`` is added to it."""
        before = [pair for turned in dict.fromkeys((shape, shape[::-1])) for pair in self._made.get((step, turned), ()) if pair[0] < op]
        array = max(before)[1] if before else self.graph.array(Array(shape, sure=False))
        self.graph.results.update((array,) if before else ())
        if is_alone:
            self._gradients.store(array, shape)
            self._stored.append((shape, array))


def _may_be_stored(means: Meaning, taken: Sequence[Tensor]) -> bool:
    """Whether a result may be the gradient of a weight: a product that is sums over rows, so that its first factor is transposed."""
    factor = taken[0] if means.operator == Operator.DOT else Tensor(())
    return len(factor.shape) != 2 or not factor.strides or factor.strides[0] == 1 or 1 in factor.shape


def _updated(priced: PricedOp) -> Sequence[Shape | None]:
    """The shapes of the weights that an operator of an optimizer updates: its first list of tensors, or its first tensor."""
    lists = [arg for arg in priced.args if isinstance(arg, tuple) and arg and all(isinstance(tensor, Tensor) for tensor in arg)]
    tensors = lists[0] if lists else [arg for arg in priced.args if isinstance(arg, Tensor)][:1]
    return [tensor.shape for tensor in tensors] or (UNKNOWN,)
