"""Updates of a whole table, such as an embedding, although a step uses only a few rows: the gradient of all others is zero."""

from collections.abc import Iterator

from msgspec import Struct

from ...cost import NOTHING
from ...graph import NO_KERNEL, RENAMING, Graph, Node, Operator
from ...workload import Avoidable

KIND = "dense-gradient"
MOST_ROWS = 1 / 8  # of a table: gathering and scattering more rows takes as long as updating all
_ONE_ARRAY = 3  # operands of a scatter to one array: the array, the positions, the updates
_MULTIPLYING = frozenset((Operator.DOT, Operator.CONVOLUTION, Operator.LOOP, Operator.BRANCH))


class Gradient(Struct, frozen=True):
    """The gradient of a table: its array, the zeros that it begins with, and the elements added to them."""

    array: int
    zeros: int
    added: int


def dense_gradients(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that update a table from the gradient of a few of its rows, and those that fill the rest of the gradient with zeros."""
    for gradient in (*_scattered(graph), *_accumulated(graph)):
        elements = graph.arrays[gradient.array].elements
        updating = _updating(graph, gradient.array) if 0 < gradient.added <= MOST_ROWS * elements else []
        if not updating:
            continue
        facts = {"share": gradient.added / elements}
        for kernel in updating:
            yield kernel, Avoidable(kind=KIND, instead=graph.kernels[kernel].cost * facts["share"], facts=facts)
        zeros, maker = graph.made_by(gradient.zeros, Operator.FILL), graph.maker.get(gradient.array)
        if zeros is not None and zeros.kernel != NO_KERNEL and (maker is None or zeros.kernel != maker.kernel):
            yield zeros.kernel, Avoidable(kind=KIND, instead=NOTHING, facts=facts)


def _scattered(graph: Graph) -> Iterator[Gradient]:
    """The gradients that a kernel scatters into an array of zeros."""
    for scatter in graph.of(Operator.SCATTER_ADD, Operator.SCATTER):
        is_outside = scatter.kernel != NO_KERNEL and scatter.gives[0] not in graph.region_of
        if is_outside and len(scatter.takes) == _ONE_ARRAY and graph.value(scatter.takes[0]) is not None:
            yield Gradient(scatter.gives[0], scatter.takes[0], graph.arrays[scatter.takes[2]].elements)


def _accumulated(graph: Graph) -> Iterator[Gradient]:
    """The gradients that a loop sums: each iteration scatters into the sum of the ones before, as for microbatches."""
    for region in graph.regions:
        for start, carried, handed_on, final in zip(region.initial, region.carried, region.handed_on, region.final, strict=True):
            if region.trips and final not in graph.region_of and graph.value(start) is not None:
                yield Gradient(final, start, region.trips * _added_in(graph, carried, handed_on))


def _added_in(graph: Graph, carried: int, handed_on: int) -> int:
    """The elements that an iteration adds to a carried array, by a scatter to it or to zeros; 0 if it does anything else."""
    made = graph.made_by(handed_on, Operator.SCATTER_ADD, Operator.SCATTER, Operator.ADD)
    scatter, before = made, made.takes[0] if made is not None else carried
    if made is not None and made.operator == Operator.ADD:
        sides = [(graph.made_by(side, Operator.SCATTER_ADD, Operator.SCATTER), other) for side, other in (made.takes, made.takes[::-1])]
        scatter, before = next(((side, other) for side, other in sides if side is not None), (None, carried))
        if scatter is None or graph.value(scatter.takes[0]) is None:
            return 0
    if scatter is None or len(scatter.takes) != _ONE_ARRAY or graph.origin(before) != carried or len(list(graph.uses(carried))) != 1:
        return 0
    return graph.arrays[scatter.takes[2]].elements


def _updating(graph: Graph, gradient: int) -> list[int]:
    """The kernels that compute from a gradient and arguments of its size alone, up to results; none if the gradient has another use."""
    kernels, waiting, own, is_result = dict[int, None](), [gradient], {gradient}, False
    maker = graph.maker.get(gradient)
    while waiting:
        array = waiting.pop()
        is_result |= array in graph.results
        for user in graph.users.get(array, ()):
            if user.operator in _MULTIPLYING:
                return []
            if user.kernel == NO_KERNEL:
                waiting += [made for made in user.gives if made not in own]
                own.update(user.gives)
            elif user.kernel not in kernels and (maker is None or user.kernel != maker.kernel):
                kernels[user.kernel] = None
                written = graph.written(user.kernel)
                waiting += [made for made in written if made not in own]
                own.update(written)
    are_plain = all(_is_update(graph, kernel, own, graph.arrays[gradient].elements) for kernel in kernels)
    return [*kernels] if is_result and are_plain else []


def _is_update(graph: Graph, kernel: int, own: set[int], elements: int) -> bool:
    """Whether a kernel multiplies no matrices, and reads only arguments, or what the update computed, of this size."""
    nodes: list[Node] = graph.inside[kernel]
    made = {array for node in nodes for array in node.gives}
    read = {array for node in nodes for array in node.takes} - made - own
    large = [graph.origin(array, RENAMING) for array in read if graph.arrays[array].elements >= elements]
    others = [array for array in large if array in graph.maker and array not in own and graph.value(array) is None]
    return not others and all(node.operator not in _MULTIPLYING for node in nodes)
