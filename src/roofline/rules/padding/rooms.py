"""Groups of rows, such as the tokens of each expert, with room for far more rows than there are.

Gradients of a few rows are scattered in the same way, so that rooms count which the forward pass multiplies; results of which few rows are
used have none there.
"""

from collections.abc import Iterator, Mapping

from ...graph import NO_KERNEL, Graph, Operator, Phase
from ...graph.facts.padding import Paddings, padded_axes
from ...graph.facts.products import largest_products
from ...workload import Avoidable, source_line
from .padded_arrays import CLASS, KIND, MOST_NEEDED, padded_product, share_of_arrays

GROUP = "groups"
MOST_FILLED = 0.6  # of the room: groups differ in size, so some room is usual (a choice)
SPARE = 1.25  # rows that groups have room for over their rows, as many programs with experts do
_SCATTERS = (Operator.SCATTER, Operator.SCATTER_ADD)


def room_for_groups(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels on groups of rows with room for far more rows than there are, gradients included."""
    if not graph.of(*_SCATTERS):
        return
    rooms = {array: room for array, axes in padded_axes(graph).items() if (room := tuple(axis for axis in axes if axis.is_room))}
    products = largest_products(graph)
    filled = {
        axis.share
        for product in products.values()
        if product.phase != Phase.BACKWARD
        for array in product.takes[:2]
        for axis in rooms.get(array, ())
        if axis.share <= MOST_FILLED
    }
    if not filled:
        return
    for kernel, product in products.items():
        padded = padded_product(graph, product, rooms, SPARE)
        wide = [axis for array in product.takes[:2] for axis in rooms.get(array, ()) if axis.share in filled]
        if padded is not None and wide:
            facts = {"where": source_line(wide[0].location)}
            yield kernel, Avoidable(kind=KIND, instead=padded.instead, facts=facts, unneeded=CLASS, group=GROUP, factor=1 / wide[0].share)
    others = {kernel: share for kernel in graph.inside.keys() - products if (share := share_of_arrays(graph, kernel, rooms)) <= MOST_NEEDED}
    for kernel, share in (others | _fillers(graph, rooms, filled)).items():
        instead = graph.kernels[kernel].cost * min(SPARE * share, 1.0)
        yield kernel, Avoidable(kind=KIND, instead=instead, unneeded=CLASS, group=GROUP)


def _fillers(graph: Graph, rooms: Mapping[int, Paddings], filled: set[float]) -> dict[int, float]:
    """The kernels that scatter rows into rooms, or make the zeros around them, and the share of the rooms that is data."""
    fillers: dict[int, float] = {}
    for scatter in graph.of(*_SCATTERS):
        shares = {axis.share for axis in rooms.get(scatter.gives[0], ())} & filled
        zeros = graph.made_by(scatter.takes[0], Operator.FILL, Operator.BROADCAST)
        kernels = {node.kernel for node in (scatter, zeros) if node is not None} - {NO_KERNEL}
        fillers |= dict.fromkeys(kernels, min(shares)) if shares else {}
    return fillers
