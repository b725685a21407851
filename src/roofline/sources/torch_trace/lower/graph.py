"""The graph of the executions of a trace: exact where ids of the tensors that ops used are recorded, else matched by size."""

from ....graph import Graph
from ....graph.facts.equal_arrays import equal_arrays
from ....torch_prices.operators import tensors_of
from .by_size import BySize
from .exact import Exact
from .recorded import Recorded
from .used_tensors import UsedTensors


def graph_of(recorded: Recorded, tensors: UsedTensors | None = None) -> Graph:
    """The graph of executions; its kernels have their places. ``tensors`` are those that ops used, if ids of most of them are recorded."""
    ops = [execution.op for execution, priced in recorded.ordered if tensors_of(priced.args)]
    is_exact = tensors is not None and 2 * sum(map(tensors.has, ops)) > len(ops)
    graph = Exact(recorded, tensors).graph if is_exact and tensors is not None else BySize(recorded).graph
    graph.checkpoints, graph.has_steps = tuple(recorded.checkpoints), True
    for place, (execution, priced) in enumerate(recorded.ordered):
        if share := recorded.converted.get(id(priced)):
            graph.converted[place] = share
        if (caller := execution.context.again) is not None:
            graph.repeated[place] = caller
    graph.equal = equal_arrays(graph)
    return graph
