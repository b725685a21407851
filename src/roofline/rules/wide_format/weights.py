"""Weights that arrive in a wider format than they are multiplied in: they are cast again in every step, as autocast does.

The cast is a kernel of its own, or inside of the product, which then reads twice the bytes. An argument that the program updates and
returns, such as a trained weight, has to be cast each time. Results of an argument's size, and what the backward pass casts to that, are
taken for its update or gradient.
A cache is returned too, but if all that is written to it was narrow before, it loses nothing in the narrow format.

Where kernels cast weights, others cast biases, what the weights are multiplied by, and what norms read. None of these would be needed with
weights in the narrow format, except the casts of weights and biases that are updated.
"""

from collections.abc import Iterator
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from ...cost import NOTHING, less_traffic
from ...dtypes import DType
from ...graph import NO_KERNEL, RENAMING, Array, Graph, Node, Operator, Phase
from ...graph.facts.casts import LAYOUT, bits, cast_of, widened
from ...graph.facts.flow import reached
from ...workload import Avoidable, Facts
from .products import CLASS, KIND, multiplying, users_of

ARGUMENTS, CACHE, OPERANDS = "arguments", "cache", "operands"  # groups
_PRODUCTS = (Operator.DOT, Operator.CONVOLUTION)
_CUT = (*LAYOUT, Operator.SLICE)


class Cast(Struct, frozen=True):
    """The node that casts weights or a cache, and the array before, and whether the program updates weights: they must be cast again."""

    node: Node
    before: Array
    is_cache: bool = False
    is_updated: bool = False

    def avoidable(self, graph: Graph, *, in_product: bool) -> Avoidable:
        """Why the cast is not needed, in a kernel of its own or in that of the product."""
        after = graph.arrays[self.node.gives[0]]
        less = self.before.dtype.bytes(after.elements) - after.bytes if self.before.dtype is not None else 0
        instead = less_traffic(graph.cost(self.node), less) if in_product else NOTHING
        facts = Facts(wide=str(self.before.dtype), narrow=str(after.dtype))
        return Avoidable(kind=KIND, instead=instead, facts=facts, unneeded=CLASS, group=CACHE if self.is_cache else ARGUMENTS)


def cast_weights(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that cast weights and caches for products, the products that do so themselves, and the casts beside those kernels."""
    casts = _Casts(graph)
    by_kernels: dict[int, Cast] = {}
    for product, cast in casts.of_weights():
        if cast.node.kernel != product.kernel:
            by_kernels[cast.node.kernel] = cast
        elif not cast.is_updated:
            yield product.kernel, cast.avoidable(graph, in_product=True)
    by_kernels = {kernel: cast for kernel, cast in by_kernels.items() if casts.is_for_products(kernel)}
    for kernel, cast in by_kernels.items():
        if not cast.is_updated:
            yield kernel, cast.avoidable(graph, in_product=False)
    group = OPERANDS if any(cast.is_updated for cast in by_kernels.values()) else ARGUMENTS
    for cast in casts.of_operands() if any(not cast.is_cache for cast in by_kernels.values()) else ():
        if cast.node.kernel not in by_kernels:
            yield cast.node.kernel, replace(cast.avoidable(graph, in_product=False), group=group)


class _Casts:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._products = [node for node in graph.of(*_PRODUCTS) if node.kernel != NO_KERNEL]
        self._kernels = {kernel for kernel, _ in multiplying(graph)}
        gradients = (array for node in graph.of(Operator.CAST) if node.phase == Phase.BACKWARD for array in node.gives)
        results = (array for array in graph.results if array in graph.maker)  # arguments may stay as they are
        self._updated = {_size(graph.arrays[array]) for array in (*results, *gradients)}

    def of_weights(self) -> Iterator[tuple[Node, Cast]]:
        """The products with weights or a cache that something makes narrower for them."""
        for product in self._products if self._graph.of(Operator.CAST) else ():
            left, right = product.takes[:2]
            for side, other, is_right in ((left, right, False), (right, left, True)):
                cast = self._cast(side)
                if cast is not None and self._is_weights(side, other, is_right=is_right):
                    yield product, cast

    def of_operands(self) -> Iterator[Cast]:
        """The casts in kernels of their own for products alone, or for norms; not those of data, and of biases that are updated."""
        graph = self._graph
        for node in graph.of(Operator.CAST):
            if node.kernel == NO_KERNEL or not graph.only(node.kernel, RENAMING) or cast_of(graph, node.gives[0]) is None:
                continue
            users = users_of(graph, node.kernel)
            is_narrower = bits(graph.arrays[node.gives[0]]) < bits(graph.arrays[node.takes[0]])
            for_norm = not is_narrower and any(user.operator == Operator.NORM for user in users)
            if not for_norm and not (is_narrower and self.is_for_products(node.kernel)):
                continue
            origin = graph.origin(node.takes[0], _CUT)
            is_data = graph.arrays[origin].sure and any(user.operator in _PRODUCTS for user in users)
            if origin in graph.maker or not (is_data or _size(graph.arrays[origin]) in self._updated):
                yield Cast(node, graph.arrays[node.takes[0]])

    def is_for_products(self, kernel: int) -> bool:
        """Whether a kernel does nothing but cast what products alone read."""
        users = users_of(self._graph, kernel)
        is_cast = kernel != NO_KERNEL and self._graph.only(kernel, (*RENAMING, Operator.SLICE))
        return is_cast and bool(users) and all(user.kernel in self._kernels for user in users)

    def _cast(self, side: int) -> Cast | None:
        """The cast that makes an operand of an argument of the program, or of a cache, narrower."""
        graph, node = self._graph, cast_of(self._graph, side)
        if node is None or bits(graph.arrays[node.takes[0]]) < bits(graph.arrays[node.gives[0]]):
            return None
        origin = graph.origin(node.takes[0], _CUT)
        before = graph.arrays[origin]
        if self._is_given(origin):
            return Cast(node, before, is_updated=_size(before) in self._updated)
        return Cast(node, before, is_cache=True) if self._is_cache(origin, bits(graph.arrays[node.gives[0]])) else None

    def _is_given(self, array: int) -> bool:
        """Whether an array is an argument of the program."""
        return array not in self._graph.maker and array not in self._graph.region_of

    def _is_cache(self, array: int, width: int) -> bool:
        """Whether an array is an argument updated in part, by numbers that had at most so many bits before they were widened for it."""
        updated = self._graph.maker.get(array)
        if updated is None or updated.operator != Operator.UPDATE or len(updated.takes) < 2:
            return False
        written = widened(self._graph, self._graph.origin(updated.takes[1], _CUT))
        return written is not None and bits(written) <= width and self._is_given(self._graph.origin(updated.takes[0], _CUT))

    def _is_weights(self, side: int, other: int, *, is_right: bool) -> bool:
        """Whether an operand is a weight and no data: the other one is computed by products, or is smaller and computed.

        Of an array that no op of a trace is known to make, nothing is known: it is then the right factor.
        """
        graph, origin = self._graph, self._graph.origin(other, RENAMING)
        maker = graph.maker.get(origin)
        if maker is None:
            return is_right and not graph.arrays[origin].sure
        if maker.operator in (Operator.CONSTANT, Operator.FILL):
            return False
        return origin in self._computed or graph.arrays[side].bytes >= graph.arrays[other].bytes

    @cached_property
    def _computed(self) -> set[int]:
        """The arrays that are computed from results of products, or of look-ups."""
        return reached(self._graph, self._graph.of(*_PRODUCTS, Operator.ATTENTION, Operator.GATHER))


def _size(array: Array) -> tuple[DType | None, int]:
    """The format and size of an array, to recognise an updated argument: a compiler may transpose it."""
    return array.dtype, array.elements
