"""The graph of a function's calls. Its edges are exact: what each call reads and writes is known, also through views."""

from collections.abc import Sequence

from ..cost import NOTHING
from ..graph import GPU_BY_REQUEST, Array, Graph, Kernel, Node, Operator, Phase
from ..graph.array_memory import ArrayMemory, Position
from ..graph.facts.equal_arrays import equal_arrays
from ..torch_prices import Priced, Tensor
from ..torch_prices.operators import append, function_of, fuses, meaning, tensors_of
from .recorder import BACKWARD, Kept, Seen


def graph_of(calls: Sequence[Seen], prices: Sequence[Priced], kept: Kept) -> Graph:
    """The graph of calls and their prices; its kernels have their places."""
    graph = Graph(backend=GPU_BY_REQUEST)
    memory = ArrayMemory(graph)
    for place, (seen, priced) in enumerate(zip(calls, prices, strict=True)):
        call = seen.call
        operands, results = tensors_of(call.args), call.outputs or ()
        means = meaning(call.op, call.args, priced.category)
        takes = tuple(memory.read(_array(operands[number]), Position(*seen.operands[number])) for number in means.takes)
        written = [*zip(results, seen.results, strict=True), *((operands[number], seen.operands[number]) for number in seen.changed)]
        gives = tuple(memory.write(_array(tensor), Position(*position)) for tensor, position in dict.fromkeys(written))
        graph.kernels[place] = Kernel(priced.cost or NOTHING, fuses=fuses(call.op, priced.category))
        node = Node(Operator.OTHER, (), (), None, place, _phase(seen), seen.sequence, seen.location, place)
        append(graph, means, takes, gives, node, function_of(call))
    graph.results = {memory.read(_array(tensor), Position(*position)) for tensor, position in kept.tensors}
    graph.results |= {array for number in kept.others for array in memory.arrays_in(number)}
    graph.equal = equal_arrays(graph)
    return graph


def _phase(seen: Seen) -> Phase:
    if seen.again:
        return Phase.RECOMPUTED
    if seen.updates:
        return Phase.UPDATE
    return Phase.BACKWARD if seen.phase == BACKWARD else Phase.FORWARD


def _array(tensor: Tensor) -> Array:
    return Array(tensor.shape, tensor.dtype, tensor.strides)
