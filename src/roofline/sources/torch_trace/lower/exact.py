"""The graph of executions whose ops have ids of the tensors that they used."""

from collections.abc import Sequence

from msgspec.structs import replace

from ....cost import NOTHING
from ....graph import Array, Graph, Kernel, Node, Operator, Phase
from ....graph.array_memory import ArrayMemory
from ....torch_prices import Call
from ....torch_prices.operators import OF_TABLE, Meaning, append, function_of, fuses, meaning, tensors_of
from ..executions import Execution
from ..pricing import PricedOp
from ..read.columns import NONE
from .gradients import UNKNOWN, ZEROS, StoredGradients
from .lists import ListedTensors
from .recorded import Recorded, forced
from .results import result_of
from .used_tensors import Operand, Used, UsedTensors

_NOTHING = Used(NONE, NONE, (), (), ())


class Exact:
    """The graph of executions whose ops have ids of the tensors that they used. What others write is unknown."""

    def __init__(self, recorded: Recorded, tensors: UsedTensors) -> None:
        self.graph = Graph(backend=recorded.backend)
        self._recorded, self._tensors = recorded, tensors
        self._memory, self._end = ArrayMemory(self.graph), NONE
        self._executed = {execution.op for execution, _ in recorded.ordered}
        self._gradients, self._listed = StoredGradients(self.graph, recorded), ListedTensors(recorded, tensors)
        step = NONE
        for place, ((execution, priced), phase) in enumerate(zip(recorded.ordered, recorded.phases, strict=True)):
            if execution.mark != step:
                self._end_step()
                step = execution.mark
            self._add(place, execution, priced, phase)
        self._end_step()
        self._gradients.end()

    def _end_step(self) -> None:
        """Forgets all arrays; those in memory that later ops take, or that the program leaves, are results."""
        taken = [memory for memory in self._memory.memories if self._tensors.last.get(memory, NONE) > self._end]
        self.graph.results.update(array for memory in taken for array in self._memory.arrays_in(memory))
        self._memory = ArrayMemory(self.graph)

    def _add(self, place: int, execution: Execution, priced: PricedOp, phase: Phase) -> None:
        used = self._tensors.ops.get(execution.op, _NOTHING)
        args = priced.args if used.args is None else used.args
        tensors = tensors_of(args)
        self._end = max(self._end, used.end)
        if used is _NOTHING and (tensors or not priced.name.startswith("aten::")):  # it may have written any array
            self._memory = ArrayMemory(self.graph)
        means = meaning(priced.name, args, priced.priced.category)
        if means.operator in (Operator.COPY, Operator.CAST) and self._is_part_of_write(used):
            means = replace(means, operator=Operator.OTHER)
        if len(tensors) != len(used.operands):  # the trace leaves out long lists
            length = self._listed.length(priced.name, used)
            operands, results = ([*map(self._listed.sized, some)] if length else some for some in (used.operands, used.results))
            used = replace(used, operands=operands, results=results)
            means = Meaning(Operator.OTHER, tuple(range(len(operands) // length * length if length else len(operands))), list_length=length)
        # Of a number that is passed as a tensor, the value is not recorded.
        is_known = len(tensors) == len(used.operands) and all(tensor.shape for tensor in tensors)
        function = function_of(Call(priced.name, args=args)) if is_known else None
        accumulates = self._store_gradients(place, execution, used)
        takes = tuple(array for number in means.takes for array in self._read(used.operands[number]))
        written = [*dict.fromkeys((*used.results, *(used.operands[number] for number in used.changed)))]
        weights = [position.memory for _, position in written if position is not None]
        if means == OF_TABLE:  # into what was filled before
            takes = (*(array for operand in written[:1] for array in self._read(operand) if self.graph.value(array) is not None), *takes)
        is_added = accumulates and means.operator == Operator.ADD and bool(weights)
        if is_added and (zeros := self._gradients.zeros(weights[0], self.graph.arrays[takes[0]])) is not None:
            takes = (zeros, *takes[1:])
        gives = tuple(array for operand in written for array in self._write(operand))
        if not gives and used is not _NOTHING and (result := result_of(priced, means, tensors)) is not None:
            gives = (self.graph.array(Array(result.shape, result.dtype)),)  # nothing took it
        if means.operator == Operator.GATHER and means.params is None and gives:
            means = replace(means, params=_gathered_axis(self.graph.arrays[takes[0]], self.graph.arrays[gives[0]]))
        self.graph.kernels[place] = Kernel(priced.priced.cost or NOTHING, fuses=fuses(priced.name, priced.priced.category))
        self.graph.forced |= forced(place, execution, priced)
        number = self._recorded.sequence(execution)
        location = execution.context.location
        append(self.graph, means, takes, gives, Node(Operator.OTHER, (), (), None, place, phase, number, location, place), function)
        if accumulates and weights and gives:
            self._gradients.store(gives[0], weights[0], is_added=is_added)
        if phase == Phase.UPDATE:
            taken = [position.memory for _, position in used.operands if position is not None]
            self._gradients.update(priced.name, taken or (UNKNOWN,))
        elif priced.name in ZEROS and phase != Phase.BACKWARD:
            self._gradients.fill(place, weights)

    def _store_gradients(self, place: int, execution: Execution, used: Used) -> bool:
        """Stores the gradients that were accumulated before an execution; whether it is in the op that accumulates the next one."""
        self._gradients.enter(execution)
        is_inside = False
        for op, _ in self._gradients.accumulated_before(place, execution.mark):
            accumulating = self._tensors.ops.get(op, _NOTHING)
            is_inside = op < execution.op and NONE < used.end <= accumulating.end
            operand, position = accumulating.operands[0] if accumulating.operands else (None, None)
            if position is not None and not is_inside:
                for array in self._read((operand, position)):
                    self._gradients.store(array, position.memory)
        return is_inside

    def _is_part_of_write(self, used: Used) -> bool:
        """Whether the caller of a copy writes to its own operands and is no execution: on a CPU it may change what it copies in between."""
        caller = self._tensors.ops.get(used.caller)
        return caller is not None and bool(caller.changed) and used.caller not in self._executed

    def _read(self, operand: Operand) -> Sequence[int]:
        """The number of the array that is read; of one of unknown sizes, all in its memory."""
        tensor, position = operand
        if tensor is None:
            return self._memory.arrays_in(position.memory) if position is not None else ()
        array = Array(tensor.shape, tensor.dtype, tensor.strides)
        return (self._memory.read(array, position) if position is not None else self.graph.array(array),)

    def _write(self, operand: Operand) -> Sequence[int]:
        """The number of the array that is written; one of unknown sizes may replace all in its memory."""
        tensor, position = operand
        if tensor is None and position is not None:
            self._memory.forget(position.memory)
        if tensor is None or position is None:
            return ()
        return (self._memory.write(Array(tensor.shape, tensor.dtype, tensor.strides), position),)


def _gathered_axis(source: Array, result: Array) -> int | None:
    """The axis of a gather whose list of indices is not recorded: the first, if its result has whole slices along it."""
    rest = source.shape[1:]
    return 0 if rest and result.shape[-len(rest) :] == rest else None
