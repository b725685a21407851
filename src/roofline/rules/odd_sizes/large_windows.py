"""Gradients of weights that a library computes as forward convolutions, with windows as large as images.

A compiler does so with the gradients of a dilated or transposed convolution; those of others run in kernels for gradients.
"""

from collections.abc import Iterator
from math import prod

from ...graph import NO_KERNEL, Graph, Operator, Windows
from ...workload import Avoidable, Saves

KIND, GROUP = "odd-sizes", "windows"
LARGE = 8 * 8  # larger than the 7 × 7 of forward convolutions


def large_windows(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The library's forward convolutions whose window is larger than their result; windows that do not overlap cut images into patches."""
    for node in graph.of(Operator.CONVOLUTION):
        windows = node.params
        if not isinstance(windows, Windows) or not windows.is_forward_kernel or prod(windows.sizes) < LARGE or node.kernel == NO_KERNEL:
            continue
        if all(stride >= size for stride, size in zip(windows.strides, windows.sizes, strict=True)):
            continue
        shape = graph.arrays[node.gives[0]].shape
        image = [shape[axis] for axis in windows.positions if axis < len(shape)]
        if prod(image) < prod(windows.sizes):
            window, weights = ("×".join(map(str, sizes)) for sizes in (windows.sizes, image))
            facts = {"weights": weights, "window": window}
            yield node.kernel, Avoidable(kind=KIND, instead=graph.cost(node), facts=facts, group=GROUP, saves=Saves.GOOD_KERNEL)
