"""Convolutions that convert layouts: libraries compute with channels last, and convert tensors with channels first to that and back.

Batch norms between them are slower with channels first too, and so are depthwise convolutions, for which libraries have kernels with
channels last alone. Group and instance norms take channels first only, so that networks of these are 10% to 31% slower with channels last
(three convolutions with such norms, in 2 and 3 dimensions, bf16 and fp32, on an H200). Convolutions along one axis gain nothing: they take
as long as two-dimensional ones with channels last.
"""

from collections.abc import Iterator

from ...graph import NO_KERNEL, Array, Graph, Node, Norm, Operator, Windows
from ...workload import Avoidable, Saves, Usual

KIND = "layout-copies"
CHANNELS, VOLUMES, DEPTHWISE = "channels", "channels of volumes", "depthwise"
HALF = 16  # bits of the number formats in which depthwise convolutions with channels last are faster
_IMAGE = 4  # axes of an image, with those of the batch and the channels


def channels_first(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The convolutions that convert layouts and the batch norms beside them, unless most norms need channels first; and depthwise ones."""
    if graph.is_fused:  # a compiler chose the layouts
        return
    norms = [node for node in graph.of(Operator.NORM) if len(_image(graph, node).shape) >= _IMAGE]
    if 2 * sum(_needs_channels_first(graph, norm) for norm in norms) > len(norms):
        return
    for node in graph.of(Operator.CONVOLUTION):
        if node.kernel != NO_KERNEL and _is_depthwise(graph, node):
            yield node.kernel, _avoidable(graph, node, DEPTHWISE, Saves.GOOD_KERNEL)
    for kernel, share in graph.converted.items():
        group = _group(max((_image(graph, node) for node in graph.inside.get(kernel, ())), key=_rank, default=Array(())))
        if group:
            yield kernel, Avoidable(kind=KIND, instead=graph.kernels[kernel].cost * (1 - share), group=group, usual=Usual.UNLESS_ASKED)
    for norm in norms if graph.converted else ():
        image = _image(graph, norm)
        if isinstance(norm.params, Norm) and _has_channels_first(image) and not _needs_channels_first(graph, norm) and _group(image):
            yield norm.kernel, _avoidable(graph, norm, _group(image), Saves.GOOD_NORM)


def _avoidable(graph: Graph, node: Node, group: str, saves: Saves) -> Avoidable:
    return Avoidable(kind=KIND, instead=graph.cost(node), group=group, saves=saves, usual=Usual.UNLESS_ASKED)


def _image(graph: Graph, node: Node) -> Array:
    """The operand of a node with most axes, and of these the largest."""
    return max((graph.arrays[array] for array in node.takes), key=_rank, default=Array(()))


def _rank(array: Array) -> tuple[int, int]:
    return len(array.shape), array.elements


def _group(image: Array) -> str:
    """Whether an image has two axes, or more; none if it has one: libraries take that for two, the first of which is 1 long."""
    axes = len(image.shape) - 2
    if axes < 2 or (axes == 2 and 1 in image.shape[2:3]):
        return ""
    return CHANNELS if axes == 2 else VOLUMES


def _has_channels_first(image: Array) -> bool:
    """Whether an image has its channels before its other axes in memory: row by row, unless its strides say something else."""
    if image.strides is None:
        return not image.sure and image.shape[1] > 1
    return image.shape[1] > 1 and image.strides[1] > image.strides[-1]


def _is_depthwise(graph: Graph, node: Node) -> bool:
    """Whether a convolution of 16-bit numbers has one channel a group, two axes, and its channels first."""
    image, windows = _image(graph, node), node.params
    if not isinstance(windows, Windows) or windows.channels[0] != 1 or image.dtype is None or image.dtype.bits != HALF:
        return False
    return _group(image) == CHANNELS and _has_channels_first(image) and min(windows.sizes) > 1


def _needs_channels_first(graph: Graph, norm: Node) -> bool:
    """Whether a norm is a group norm, or an instance norm, which runs as a batch norm of one image with the channels of all images."""
    return norm.params is None or (isinstance(norm.params, Norm) and _image(graph, norm).shape[0] == 1)
