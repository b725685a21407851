"""Copies between convolutions and group or instance norms: PyTorch's kernels for such norms take channels first only, so that in a network
with channels last each copies its input, and the convolution after it copies it back. Compiled norms take any layout.
"""

from collections.abc import Iterable

from ....cost import NOTHING
from ....torch_prices.avoidable import changes_layout
from ....workload import Avoidable, Usual
from .recorded import PricedExecution, tensors_of

Key = tuple[tuple[int, ...], tuple[int, ...] | None, tuple[int, ...] | None]  # a shape, and the strides of the result and of the source
REASON = Avoidable(
    kind="layout-copies",
    instead=NOTHING,
    unneeded="layout",
    group="norms",
    usual=Usual.UNLESS_ASKED,
)


def norm_copies(in_order: Iterable[PricedExecution]) -> frozenset[int]:
    """The prices (by id) of copies for norms, and of those back, where there are both."""
    found: dict[bool, dict[Key, set[int]]] = {True: {}, False: {}}  # by whether a copy is for a norm
    for one, priced in in_order:
        tensors = tensors_of(priced)
        if priced.name == "aten::copy_" and not one.context.region and changes_layout(tensors):
            key = (tensors[0].shape, tensors[0].strides, tensors[1].strides)
            found[one.context.fixed_layout].setdefault(key, set()).add(id(priced))
    pairs = [(key, (key[0], key[2], key[1])) for key in found[True]]
    both = [found[True][there] | found[False][back] for there, back in pairs if back in found[False]]
    return frozenset().union(*both)
