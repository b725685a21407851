"""What a kernel does as a whole."""

from collections.abc import Collection, Iterator

from ..graph import NO_KERNEL, Graph
from ..operators import RENAMING, Operator

MOVES = RENAMING | {Operator.FILL, Operator.CONSTANT, Operator.BROADCAST, Operator.SLICE, Operator.CONCATENATE, Operator.PAD}


def consists_of(graph: Graph, kernel: int, operators: Collection[Operator]) -> bool:
    """Whether a kernel makes arrays by these operators alone; what it computes of single elements, such as positions, does not count."""
    large = [node for node in graph.inside.get(kernel, ()) if any(graph.arrays[array].elements > 1 for array in node.gives)]
    return kernel != NO_KERNEL and bool(large) and all(node.operator in operators for node in large)


def makers(graph: Graph, array: int, operators: Collection[Operator] = MOVES) -> Iterator[int]:
    """The kernels of these operators alone that make an array one after another of a single other one, the last first."""
    while (node := graph.maker.get(graph.origin(array, (Operator.VIEW,)))) is not None:
        if not consists_of(graph, node.kernel, operators):
            return
        yield node.kernel
        inside = graph.inside[node.kernel]
        own = {given for other in inside for given in other.gives}
        taken = {taken for other in inside for taken in other.takes if taken not in own and graph.arrays[taken].elements > 1}
        if len(taken) != 1:
            return
        array = taken.pop()


def kernel_before(graph: Graph, array: int) -> int:
    """The kernel that makes an array, under whichever name; none of an argument, or of what a loop carries."""
    while (node := graph.maker.get(array)) is not None and node.kernel == NO_KERNEL and node.operator in RENAMING:
        array = node.takes[0]
    return node.kernel if node is not None else NO_KERNEL


def kernels_after(graph: Graph, array: int) -> Iterator[int]:
    """The kernels that use an array, under whichever name; none for a use by the program's end or a loop."""
    if graph.is_handed_on(array):
        yield NO_KERNEL
    for node in graph.users.get(array, ()):
        if node.kernel == NO_KERNEL and node.operator in RENAMING:
            yield from kernels_after(graph, node.gives[0])
        else:
            yield node.kernel
