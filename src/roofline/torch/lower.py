"""The graph of a function's calls. Its edges are exact: what each call reads and writes is known, also through views."""

from collections.abc import Sequence

from msgspec import Struct

from ..cost import NOTHING, Cost
from ..graph import GPU_BY_REQUEST, Array, Gradient, Graph, Kernel, Node, Operator, Phase
from ..graph.array_memory import ArrayMemory, Position
from ..graph.facts.equal_arrays import equal_arrays
from ..torch_prices import Priced, Tensor
from ..torch_prices.operators import append, function_of, fuses, meaning, tensors_of
from .recorder import BACKWARD, Kept, Seen


class Fused(Struct, frozen=True):
    """The kernel that a compiler would put each call into, and the cost of each kernel."""

    kernels: Sequence[int]
    costs: Sequence[Cost]


def graph_of(calls: Sequence[Seen], prices: Sequence[Priced], kept: Kept, fused: Fused | None = None) -> Graph:
    """The graph of calls and their prices; its kernels have their places, if no compiler would fuse them."""
    graph = Graph(backend=GPU_BY_REQUEST, is_fused=fused is not None)
    memory = ArrayMemory(graph)
    for place, (seen, priced) in enumerate(zip(calls, prices, strict=True)):
        call = seen.call
        operands, results = tensors_of(call.args), call.outputs or ()
        means = meaning(call.op, call.args, priced.category)
        takes = tuple(memory.read(_array(operands[number]), Position(*seen.operands[number])) for number in means.takes)
        written = [*zip(results, seen.results, strict=True), *((operands[number], seen.operands[number]) for number in seen.changed)]
        gives = tuple(memory.write(_array(tensor), Position(*position)) for tensor, position in dict.fromkeys(written))
        kernel = place if fused is None else fused.kernels[place]
        cost = priced.cost or NOTHING if fused is None else fused.costs[kernel]
        graph.kernels[kernel] = Kernel(cost, fuses=fuses(call.op, priced.category))
        node = Node(Operator.OTHER, (), (), None, kernel, _phase(seen), seen.sequence, seen.location, place)
        append(graph, means, takes, gives, node, function_of(call))
    graph.results = {memory.read(_array(tensor), Position(*position)) for tensor, position in kept.tensors}
    graph.results |= {array for number in kept.others for array in memory.arrays_in(number)}
    if any(node.phase == Phase.UPDATE for node in graph.nodes):  # what an optimizer leaves is no result of the step
        stored = {memory.read(_array(tensor), Position(*position)) for tensor, position in kept.gradients}
        left = {array for array in stored if not any(user.phase == Phase.UPDATE for user in graph.users.get(array, ()))}
        graph.results -= left
        graph.weight_gradients += [Gradient(array, 0, is_used=False) for array in sorted(left)]
    if fused is None:  # torch.compile computes equal values once
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
