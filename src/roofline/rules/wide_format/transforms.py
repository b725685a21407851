"""Fourier transforms of real numbers as complex ones, the work on their spectra, and the transforms back to real numbers.

Half of the spectrum of a real signal is the mirror image of the other half: a transform of real numbers computes one, and an inverse one
needs no more.
"""

from collections.abc import Iterator

from ...cost import Cost, less_traffic
from ...graph import NO_KERNEL, SPREADING, Axes, Graph, Node, Operator
from ...graph.facts.casts import LAYOUT
from ...workload import Avoidable
from .products import CLASS, KIND, users_of

COMPLEX = "complex"  # the group
_SHORT = 2  # numbers, whose spectrum has no other half
_COMBINING = (Operator.MULTIPLY, Operator.DIVIDE, Operator.ADD, Operator.SUBTRACT, Operator.NEGATE)  # two spectra of real signals to one
_MOVING = (*LAYOUT, Operator.BROADCAST)
_CUT = (*LAYOUT, Operator.SLICE)


def complex_transforms(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The complex transforms of real numbers, the kernels that compute on their spectra, and the transforms back to real numbers."""
    if not graph.of(Operator.FOURIER):
        return
    spectra: dict[int, frozenset[int]] = {}  # the axes along which an array is the spectrum of a real signal
    for node in graph.nodes:
        if not node.gives or not _is_complex(graph, node.gives[0]):
            continue
        if node.operator == Operator.FOURIER:
            yield from _transform(graph, node, spectra)
        elif axes := _kept_axes(graph, node, spectra):
            spectra[node.gives[0]] = axes
    for kernel in dict.fromkeys(graph.maker[array].kernel for array in spectra):
        written = graph.written(kernel)
        if kernel != NO_KERNEL and graph.maker[written[0]].operator != Operator.FOURIER and all(array in spectra for array in written):
            yield kernel, _reason(graph.kernels[kernel].cost * 0.5)


def _transform(graph: Graph, node: Node, spectra: dict[int, frozenset[int]]) -> Iterator[tuple[int, Avoidable]]:
    """A transform of a real signal, or of its spectrum back to a real signal, and the kernel that makes the signal complex."""
    axes = frozenset(node.params.axes if isinstance(node.params, Axes) else ())
    source, result, cost = graph.arrays[node.takes[0]], graph.arrays[node.gives[0]], graph.cost(node)
    if source.shape != result.shape or max((source.shape[axis] for axis in axes), default=0) <= _SHORT:
        return
    if not _is_complex(graph, node.takes[0]):  # which has computed one half, and filled in the other
        spectra[node.gives[0]] = axes
        yield node.kernel, _reason(less_traffic(cost, result.bytes / 2))
    elif _is_widened(graph, node.takes[0]):
        spectra[node.gives[0]] = axes
        yield node.kernel, _reason(cost * 0.5)
        maker = graph.maker[graph.origin(node.takes[0], LAYOUT)].kernel
        if maker not in (NO_KERNEL, node.kernel) and users_of(graph, maker) == [node]:
            yield maker, _reason(graph.kernels[maker].cost * 0.5)
    elif spectra.get(node.takes[0]) == axes and _is_taken_real(graph, node.gives[0]):
        yield node.kernel, _reason(cost * 0.5)


def _reason(instead: Cost) -> Avoidable:
    return Avoidable(kind=KIND, instead=instead, unneeded=CLASS, group=COMPLEX, factor=2)


def _is_complex(graph: Graph, array: int) -> bool:
    number = graph.arrays[array].dtype
    return number is not None and number.is_complex


def _is_widened(graph: Graph, array: int) -> bool:
    """Whether a complex array was cast from real numbers, perhaps with zeros around them."""
    cast = graph.made_by(array, Operator.CAST, through=(*LAYOUT, Operator.PAD))
    return cast is not None and not _is_complex(graph, cast.takes[0])


def _kept_axes(graph: Graph, node: Node, spectra: dict[int, frozenset[int]]) -> frozenset[int]:
    """The axes along which a node's result is the spectrum of a real signal, as all that it takes are, or are one real number."""
    if node.operator in _COMBINING:
        sides = {spectra.get(array, frozenset()) for array in node.takes if not _is_real_number(graph, array)}
        return sides.pop() if len(sides) == 1 else frozenset()
    before = spectra.get(node.takes[0]) if node.operator in _MOVING and node.takes else None
    if before is None:
        return frozenset()
    (array,) = node.gives[:1]
    axes = [axis for axis in range(len(graph.arrays[array].shape)) if graph.axis_before(node, array, axis) in before]
    return frozenset(axes) if len(axes) == len(before) else frozenset()


def _is_real_number(graph: Graph, array: int) -> bool:
    """Whether an array has one real number everywhere."""
    return graph.distinct(array) == 1 and not _is_complex(graph, graph.origin(array, SPREADING))


def _is_taken_real(graph: Graph, array: int) -> bool:
    """Whether only the real part of an array is used."""
    uses = [node for node, _ in graph.uses(array, _CUT)]
    return bool(uses) and all(node.operator == Operator.REAL for node in uses)
