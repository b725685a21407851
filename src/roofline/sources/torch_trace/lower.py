"""The graph of the executions of a trace. Where ids of the tensors that ops used are recorded, its edges are exact.

Else a trace does not tell what an op reads: edges are matched by size, here and nowhere else. An operand is the last array of its step
with as many elements, in the same number format, whose last axis is one of its last two; several operands of an op are the last few such
arrays, in order. One with expanded axes is the last array with the other ones. A gradient takes the operands of its forward op first. An
array that nothing made or took for as long as a layer takes is forgotten, and so is one that an op took whose result is not known.
"""

from collections.abc import Iterator, Sequence
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from ...cost import NOTHING
from ...graph import CPU, GPU_BY_REQUEST, Array, Axes, Backend, Graph, Kernel, Node, Operator, Part, Phase
from ...graph.array_memory import ArrayMemory
from ...graph.facts.equal_arrays import equal_arrays
from ...torch_prices import Call, Tensor
from ...torch_prices.call import INT64
from ...torch_prices.operators import LISTS, OF_TABLE, Meaning, append, function_of, fuses, meaning, tensors_of
from .executions import Execution
from .gradients import UNKNOWN, ZEROS, StoredGradients
from .lists import ListedTensors, Lists
from .pricing import PricedOp
from .read.columns import NONE
from .recorded import Recorded
from .results import result_of
from .used_tensors import Operand, Used, UsedTensors

REACH = 64  # executions for which an array is remembered: those of a layer of a transformer, in eager mode
LEAST = 64  # columns of an array that rows are taken of: with fewer, other tensors may have the same shape
FILLED = 4  # executions after one that makes an array of others, or of one value, in which a copy may write a part of it
STACKED = 3  # axes that arrays have which are told from others by their shape
INSIDE = 2  # how far the addition to a gradient is from the op that accumulates it
ADDITION, WEIGHTS = "aten::add_", 2  # the place of the weights among the tensors of the gradient of a convolution
NEAR = 12  # executions after a gather in which the next rows as wide as those of its table are what it gathered
_NOTHING = Used(NONE, NONE, (), (), ())
Shape = tuple[int, ...]
_BUFFERS = (Operator.FILL, Operator.CONCATENATE)


class Made(Struct, eq=False):
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


def graph_of(recorded: Recorded, tensors: UsedTensors | None = None) -> Graph:
    """The graph of executions; its kernels have their places. ``tensors`` are those that ops used, if ids of most of them are recorded."""
    ops = [execution.op for execution, priced in recorded.ordered if tensors_of(priced.args)]
    is_exact = tensors is not None and 2 * sum(op in tensors.ops for op in ops) > len(ops)
    graph = _Exact(recorded, tensors).graph if is_exact and tensors is not None else _BySize(recorded).graph
    graph.checkpoints, graph.has_steps = tuple(recorded.checkpoints), True
    for place, (execution, priced) in enumerate(recorded.ordered):
        if share := recorded.converted.get(id(priced)):
            graph.converted[place] = share
        if (caller := execution.context.again) is not None:
            graph.repeated[place] = caller
    graph.equal = equal_arrays(graph)
    return graph


def _phases(recorded: Recorded) -> Iterator[Phase]:
    """The phase of each execution. A recomputed one does what one of the forward pass does: gradients of gradients are recorded too."""
    contexts = [(execution.context, id(priced)) for execution, priced in recorded.ordered]
    forward = {priced for context, priced in contexts if not context.backward and not context.optimizer}
    for context, priced in contexts:
        if context.recomputed and priced in forward:
            yield Phase.RECOMPUTED
        elif context.optimizer:
            yield Phase.UPDATE
        else:
            yield Phase.BACKWARD if context.backward else Phase.FORWARD


def _backend(recorded: Recorded) -> Backend:
    return CPU if recorded.on_host else GPU_BY_REQUEST


class _Exact:
    """The graph of executions whose ops have ids of the tensors that they used. What others write is unknown."""

    def __init__(self, recorded: Recorded, tensors: UsedTensors) -> None:
        self.graph = Graph(backend=_backend(recorded))
        self._recorded, self._tensors = recorded, tensors
        self._memory, self._end = ArrayMemory(self.graph), NONE
        self._executed = {execution.op for execution, _ in recorded.ordered}
        self._gradients, self._listed = StoredGradients(self.graph, recorded), ListedTensors(recorded, tensors)
        step = NONE
        for place, ((execution, priced), phase) in enumerate(zip(recorded.ordered, _phases(recorded), strict=True)):
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
            each = self._listed.each(priced.name, used)
            operands, results = ([*map(self._listed.sized, some)] if each else some for some in (used.operands, used.results))
            used = replace(used, operands=operands, results=results)
            means = Meaning(Operator.OTHER, tuple(range(len(operands) // each * each if each else len(operands))), each=each)
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
        self.graph.forced |= _forced(place, execution, priced)
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


class _BySize:
    """The graph of executions with edges matched by size."""

    def __init__(self, recorded: Recorded) -> None:
        self.graph = Graph(backend=_backend(recorded))
        self._recorded, self._arrays = recorded, Arrays(self.graph)
        step = recorded.ordered[0][0].mark if recorded.ordered else NONE
        self._operands: dict[int, list[Made]] = {}  # of forward ops, by the numbers that their gradients share
        # The op that made each array of a backward pass, by step and shape.
        self._made: dict[tuple[int, Shape], list[tuple[int, int]]] = {}
        self._gradients = StoredGradients(self.graph, recorded)
        self._stored, self._lists = list[tuple[Shape, int]](), Lists(self.graph)  # the gradients of weights in this step, and lists
        for place, ((execution, priced), phase) in enumerate(zip(recorded.ordered, _phases(recorded), strict=True)):
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
            self._operands.setdefault(number, []).extend(made for made in matches if made is not None)
        takes = tuple(arrays.named(tensor, made) for tensor, made in zip(taken, matches, strict=True))
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
            arrays.forget([made for tensor, made in zip(taken, matches, strict=True) if made and made.array.elements == tensor.elements])
        if is_backward and result is None and means.operator == Operator.CONVOLUTION_GRADIENT and len(tensors) > WEIGHTS:
            result = tensors[WEIGHTS]
            gives = (graph.array(Array(result.shape, result.dtype, sure=False)),)
        if is_backward and result is not None and _may_be_stored(means, taken):
            self._made.setdefault((execution.mark, result.shape), []).extend((execution.op, array) for array in gives)
        graph.kernels[place] = Kernel(priced.priced.cost or NOTHING, fuses=fuses(priced.name, priced.priced.category))
        graph.forced |= _forced(place, execution, priced)
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


def _forced(place: int, execution: Execution, priced: PricedOp) -> set[int]:
    """The kernel of an execution, if it is a copy in an operator whose layout the program does not choose."""
    return {place} if execution.context.fixed_layout and priced.priced.category == "copy" else set()


class Arrays:
    """The arrays of a step that later ops may take, in the order of making, by their elements; open ones by 0."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._made: dict[int, list[Made]] = {}
        self._buffers: list[Made] = []  # those of one value or of others' elements
        self._stacks: dict[Shape, Made] = {}  # the last array that is a stack of others, by their shape

    def _source(self, tensor: Tensor, place: int) -> Made | None:
        """The last product, or sorted array, of which an operand with gaps between its rows may be some of the rows, or a part of each."""
        shape, strides = tensor.shape, tensor.strides
        if len(shape) < 2 or strides is None or len(strides) != len(shape) or strides[-1] != 1:
            return None
        whole = shape[0] * strides[0]
        recent = [made for made in self._made.get(whole, ()) if place - made.place <= REACH and tensor.elements < whole]
        as_wide = [made for made in recent if made.array.shape[-1:] == shape[-1:] and shape[-1] >= LEAST][-1:]
        products = [made for made in as_wide if self._is_product(made.number)]
        return next(reversed(products or [made for made in recent if self._is_sorted(made.number, shape, strides)]), None)

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

    def matches(self, taken: Sequence[Tensor], forward: Sequence[Made], place: int, *, is_gradient_first: bool) -> list[Made | None]:
        """The array that each operand of an execution may be; ``forward`` are those that its forward op took. The first operand may be the
        gradient of what that gave.
        """
        matches: list[Made | None] = [None] * len(taken)
        sizes = {index: tensor.elements for index, tensor in enumerate(taken) if _is_stored(tensor)}
        left = list(forward)
        if left and is_gradient_first:
            first = next(iter(sizes), None)
            if first is not None:
                matches[first] = self._last_gradient(taken[first], place)
        for index in sizes if left else ():
            matches[index] = matches[index] or next((made for made in left if made.may_be(taken[index])), None)
            left = [made for made in left if made is not matches[index]]
        for elements in dict.fromkeys(sizes.values()):
            alike = [index for index, size in sizes.items() if size == elements and matches[index] is None]
            recent = self._made[elements] = [made for made in self._made.get(elements, ()) if place - made.place <= REACH]
            known = [made for made in recent if made.may_be(taken[alike[0]])] if alike else []
            for index, made in zip(alike, known[-len(alike) :], strict=False):
                matches[index] = made
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

    def _last_gradient(self, tensor: Tensor, place: int) -> Made | None:
        """The last array of the backward pass that an operand may be."""
        recent = (made for made in reversed(self._made.get(tensor.elements, ())) if place - made.place <= REACH and made.may_be(tensor))
        return next((made for made in recent if self._graph.maker[made.number].phase == Phase.BACKWARD), None)

    def _repeated(self, tensor: Tensor, place: int) -> Made | None:
        """The last array that an operand with expanded axes may repeat: it has the other ones."""
        sizes = [tensor.shape[axis] for axis in _own_axes(tensor) if tensor.shape[axis] > 1]
        recent = [made for made in self._made.get(tensor.distinct, ()) if place - made.place <= REACH]
        return next((made for made in reversed(recent) if [size for size in made.array.shape if size > 1] == sizes), None)

    def _gathered(self, tensor: Tensor, place: int) -> Made | None:
        """The rows that were gathered last, if an operand may be them."""
        waiting = [made for made in self._made.get(0, ()) if place - made.place <= NEAR and made.may_be(tensor)]
        if not waiting:
            return None
        made = waiting[-1]
        self._made[0].remove(made)
        made.is_open, made.array = False, replace(made.array, shape=tensor.shape)
        self._graph.arrays[made.number] = made.array
        self._made.setdefault(tensor.elements, []).append(made)
        return made

    def _stack(self, tensor: Tensor, place: int) -> Made | None:
        """The array of which an operand may be a part along the first axis, such as the keys of a cache that has the values too."""
        stack = self._stacks.get(tensor.shape)
        return stack if stack is not None and place - stack.place <= REACH and stack.array.dtype in (None, tensor.dtype) else None

    def named(self, tensor: Tensor, made: Made | None) -> int:
        """The number of an operand, which may have other axes than the array that it is, or lie in another order."""
        strides = _order(tensor)
        if made is not None and made.array.shape == tensor.shape and strides in (None, made.array.strides):
            return made.number
        number = self._graph.array(Array(tensor.shape, tensor.dtype, strides, sure=False))
        if made is not None:
            if tensor.elements > made.array.elements:
                axes = _own_axes(tensor)
                is_same = made.array.shape == tuple(tensor.shape[axis] for axis in axes)
                self._graph.append(Node(Operator.BROADCAST, (made.number,), (number,), Axes(axes) if is_same else None))
                return number
            operator = Operator.SLICE if tensor.elements < made.array.elements else Operator.VIEW
            self._graph.append(Node(operator, (made.number,), (number,)))
        return number

    def given(self, result: Tensor, place: int, *, is_buffer: bool = False) -> int:
        """The number of the result of an execution; ``is_buffer`` is whether it has one value everywhere, or elements of others."""
        array = Array(result.shape, result.dtype, _order(result), sure=False)
        made = Made(self._graph.array(array), array, place, is_open=not array.elements)
        self._buffers += [made] if is_buffer else []
        self._made.setdefault(array.elements, []).append(made)
        if len(array.shape) > STACKED:
            self._stacks[array.shape[1:]] = made
        return made.number

    def add(self, number: int, place: int) -> None:
        """Notes an array that was made by an execution."""
        array = self._graph.arrays[number]
        self._made.setdefault(array.elements, []).append(Made(number, array, place))

    def write_part(self, part: Tensor, given: int, place: int) -> None:
        """Appends the update of the last array of one value, or of others' elements, that was just made, if a copy writes a part of it."""
        self._buffers = [made for made in self._buffers if place - made.place <= FILLED]
        whole = next((made for made in reversed(self._buffers) if _is_part_of(part, made.array.shape)), None)
        if whole is None:
            return
        self._buffers.remove(whole)
        self.forget([whole])
        written = self.given(Tensor(whole.array.shape, whole.array.dtype), place)
        maker, is_filled = self._graph.maker[given], self._graph.maker[whole.number].operator == Operator.FILL
        cut = Part((0,) * len(part.shape), part.shape, (1,) * len(part.shape)) if is_filled else None  # most padding is behind the data
        node = Node(Operator.UPDATE, (whole.number, given), (written,), cut, phase=maker.phase, location=maker.location)
        self._graph.append(node)

    def forget(self, matches: Sequence[Made | None]) -> None:
        """Forgets what an execution wrote over, or took: its result, which is not known, may be as large."""
        for made in matches:
            if made is not None and made in self._made.get(made.array.elements, ()):
                self._made[made.array.elements].remove(made)


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
