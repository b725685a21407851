"""Gradients of maxima over windows that do not overlap: each window is searched again, and its gradient scattered to the maximum.

XLA computes the gradient of ``reduce_window`` by ``select-and-scatter``. On GPUs this becomes a search for the position of each maximum,
an array of zeros, and a scatter. With the windows as dimensions of their own, ``x.reshape(…, h // 2, 2, w // 2, 2, c).max((…))``, the
gradient is elementwise: it compares each element with its maximum.
"""

from collections.abc import Iterator

from ...cost import NOTHING, Cost
from ...resource import HBM
from ...workload import Avoidable
from .kernels import Kernels
from .values import LAYOUT, Value

KIND, CLASS, GROUP = "duplicated-work", "duplicated", "windows"
_FROM = "select_and_scatter"  # the name in JAX
_JOINED = LAYOUT | {"convert", "concatenate"}


def pooled_windows(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that scatter a gradient to the maxima of windows, fill the array for it, and search the windows again."""
    if "scatter" not in kernels.module.opcodes or "reduce-window" not in kernels.module.opcodes:
        return
    values = kernels.values
    for index in kernels.costs:
        scatter = values.origin(Value(kernels.computation, index))
        if scatter.opcode != "scatter" or kernels.holding(scatter) != index or _FROM not in scatter.instruction.op_name:
            continue
        search = values.origin(values.operand(scatter, 1), _JOINED)
        if search.opcode == "get-tuple-element":  # the positions are further results of the search
            search = values.made_by(values.operand(search, 0))
        if search.opcode != "reduce-window" or any(side.size != side.stride for side in search.instruction.window):
            continue
        searching = kernels.holding(search)
        filling = kernels.holding(values.origin(values.operand(scatter, 0)))
        maxima, elements = search.shape.leaves[0], scatter.shape
        window = "×".join(str(side.size) for side in search.instruction.window if side.size > 1)
        facts = {"window": window}
        moved = elements.bytes + maxima.elements * elements.bytes // elements.elements
        yield index, Avoidable(kind=KIND, instead=Cost.of({HBM: moved}), facts=facts, unneeded=CLASS, group=GROUP, extra=True)
        if searching in kernels.costs:
            yield (
                searching,
                Avoidable(kind=KIND, instead=Cost.of({HBM: elements.bytes}), facts=facts, unneeded=CLASS, group=GROUP, extra=True),
            )
        if filling in kernels.costs and filling != index:
            shapes = kernels.computation[filling].shape.leaves
            kept = sum(shape.bytes for shape in shapes if shape.is_array) - elements.bytes  # of a kernel that fills several arrays
            instead = Cost.of({HBM: kept}) if kept > 0 else NOTHING
            yield filling, Avoidable(kind=KIND, instead=instead, facts=facts, unneeded=CLASS, group=GROUP, extra=True)
