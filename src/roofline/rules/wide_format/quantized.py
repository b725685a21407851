"""Quantized weights and caches that are made wide in memory before products or attention read them: a cast from a few bits, scales and zero
points. The narrow format saves memory, and costs time.

A kernel that reads them as they are, and scales its result, moves a fraction of the bytes, and needs none of these passes.
"""

from collections.abc import Collection, Iterator

from msgspec import Struct

from ...cost import NOTHING, less_traffic
from ...graph import NO_KERNEL, RENAMING, SPREADING, Array, Graph, Node, Operator
from ...graph.facts.casts import bits
from ...workload import Avoidable, Facts
from .products import CLASS, KIND, users_of

WEIGHTS, CACHE = "weights", "dequantized cache"  # groups
_NARROW_BITS = 8
_DATA = ("uint8", "bool")  # images and masks
_MOST_STEPS = 16  # from the operand back to the argument
_SCALES = (Operator.MULTIPLY, Operator.DIVIDE, Operator.SUBTRACT, Operator.ADD)
_FACTORS = {Operator.DOT: (0, 2), Operator.CONVOLUTION: (0, 2), Operator.ATTENTION: (1, 3)}  # of attention the keys and values
_PASSES = {*SPREADING, *_SCALES, Operator.SLICE, Operator.FILL}
_WRITTEN = (*RENAMING, Operator.SLICE, Operator.UPDATE)


class Widened(Struct, frozen=True):
    """A quantized array, and the kernels that widen and scale it, in order."""

    narrow: Array
    kernels: tuple[int, ...]


def dequantized(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that only widen an argument of 8 bits or less for products, and those products, which read the wide format."""
    reasons: dict[int, Avoidable] = {}
    for product in graph.of(*_FACTORS):
        first, end = _FACTORS[product.operator]
        group = CACHE if product.operator == Operator.ATTENTION else WEIGHTS
        for side in product.takes[first:end]:
            quantized = _quantized(graph, side, product.kernel)
            if quantized is None or product.kernel == NO_KERNEL:
                continue
            wide, narrow = graph.arrays[side], quantized.narrow
            facts = Facts(narrow=str(narrow.dtype), wide=str(wide.dtype))
            less = wide.bytes - narrow.dtype.bytes(wide.elements) if narrow.dtype is not None else 0
            before = reasons[product.kernel].instead if product.kernel in reasons else graph.cost(product)
            for kernel, instead in ((product.kernel, less_traffic(before, less)), *((kernel, NOTHING) for kernel in quantized.kernels)):
                reasons[kernel] = Avoidable(kind=KIND, instead=instead, facts=facts, unneeded=CLASS, group=group)
    yield from reasons.items()


def _quantized(graph: Graph, side: int, product: int) -> Widened | None:
    """The argument of a few bits that an operand is, widened and scaled by other kernels than the product's; ``None`` if it is none."""
    array, kernels = side, dict[int, None]()
    for _ in range(_MOST_STEPS):
        node = graph.maker.get(array)
        before = _before(graph, node) if node is not None and bits(graph.arrays[array]) > _NARROW_BITS else None
        if node is None or before is None:
            break
        kernels[node.kernel] = None
        array = before
    argument = graph.origin(array, _WRITTEN)
    narrow = graph.arrays[argument]
    is_given = argument not in graph.maker and argument not in graph.region_of
    if not is_given or narrow.dtype is None or narrow.dtype.bits > _NARROW_BITS or narrow.dtype.name in _DATA:
        return None
    passes = [kernel for kernel in reversed(kernels) if kernel not in (NO_KERNEL, product)]
    return Widened(narrow, tuple(passes)) if passes and all(_is_only_for_products(graph, kernel, kernels) for kernel in passes) else None


def _before(graph: Graph, node: Node) -> int | None:
    """The array that a node moves, casts or scales."""
    if node.operator in (*RENAMING, Operator.SLICE):
        return node.takes[0]
    if node.operator not in _SCALES:
        return None
    whole = [array for array in node.takes if graph.distinct(array) == graph.arrays[node.gives[0]].elements]
    return whole[0] if len(whole) == 1 else None


def _is_only_for_products(graph: Graph, kernel: int, others: Collection[int]) -> bool:
    """Whether a kernel only widens and scales, and its results are only used by products or by others of these kernels."""
    users = users_of(graph, kernel)
    return graph.only(kernel, _PASSES) and all(user.operator in _FACTORS or user.kernel in others for user in users)
