"""The scores of attention, one for each pair of a query and a key: which arrays hold them, and which products make and use them.

Two products with a softmax, or another normalisation, between them: the first makes the scores, and the second uses them. All arrays in
between have an element for each score, under whichever axes, and so have masks and gradients that are combined with them element by
element. A loop over layers may stack the scores of all layers for the loop of their gradients.
"""

from collections import Counter, deque
from collections.abc import Collection, Iterator, Sequence
from itertools import chain

from msgspec import Struct

from ..graph import NO_KERNEL, Graph, Node, Phase, Region
from ..node_axes import ELEMENTWISE
from ..operators import RENAMING, SOFTMAXES, SPREADING, Array, Axes, Operator
from .positions import positional_arrays

_READ = RENAMING | {Operator.SLICE}
_KEEPING = ELEMENTWISE | SPREADING | SOFTMAXES | {Operator.OTHER}  # a result as large as an operand has an element for each of its
_MASKED = RENAMING | {Operator.SELECT}


class Scores(Struct, frozen=True):
    """The scores of one attention: the product that makes them, all products that make or use an array with an element for each, the
    arrays, and whether they are masked by position. Those in ``stacks`` have the scores of several layers.
    """

    first: Node
    products: tuple[Node, ...]
    arrays: frozenset[int]
    stacks: frozenset[int]
    is_causal: bool

    @property
    def removed(self) -> float:
        """The share of the scores that a causal mask removes, at least: half of those of as many keys as queries."""
        sizes = self.first.sizes
        return min(sizes.rows, sizes.columns) / (2 * sizes.columns) if self.is_causal else 0.0


def attention_scores(graph: Graph) -> tuple[Scores, ...]:
    """The scores of each attention whose products are kernels, unless the program returns them.

    Attention multiplies its scores in the forward pass, and gets their gradients from a product. A loss over all pairs, such as a
    contrastive one, multiplies them in the backward pass alone, and its gradients need no further product. Where makers are matched by
    size, all attention of one size is told once.
    """
    return tuple(_scores(graph))


def _scores(graph: Graph) -> Iterator[Scores]:
    search = _Search(graph)
    told = set[tuple[int, ...]]()
    for first in graph.of(Operator.DOT):
        scores = graph.arrays[first.gives[0]] if first.gives else None
        if scores is None or scores.shape in told or first.kernel == NO_KERNEL or not _may_make_scores(graph, first):
            continue
        following = search.following(first.gives[0])
        if not _is_normalised(graph, following):
            search.barren |= following
            continue
        following |= search.matched(scores)
        arrays = following | search.before(following)
        products = search.products(arrays)
        if not graph.results.isdisjoint(arrays) or not _is_attention(arrays, products):
            continue
        if not scores.sure:
            told.add(scores.shape)
        stacks = frozenset(array for array in arrays if graph.arrays[array].elements != scores.elements)
        yield Scores(first, products, frozenset(arrays), stacks, not graph.fact(positional_arrays).isdisjoint(following))


def _is_attention(arrays: Collection[int], products: Sequence[Node]) -> bool:
    """Whether products use scores in the forward pass, or one in the backward pass makes their gradients."""
    for product in products:
        is_used = any(array in arrays for array in product.takes[:2])
        if is_used if product.phase != Phase.BACKWARD else any(array in arrays for array in product.gives):
            return True
    return False


def _may_make_scores(graph: Graph, product: Node) -> bool:
    """Whether a product may make scores: its result is larger than its operands, and neither of these is a weight."""
    if product.sizes.groups or len(product.takes) < 2 or not product.gives:
        return False
    left, right, result = (graph.arrays[array] for array in (*product.takes[:2], product.gives[0]))
    if result.bytes <= left.bytes + right.bytes or result.elements <= max(left.elements, right.elements):
        return False
    return product.sizes.batch > 1 or all(graph.origin(operand, _READ) in graph.maker for operand in product.takes[:2])


def _is_normalised(graph: Graph, arrays: set[int]) -> bool:
    """Whether scores go through a softmax, or are exponentials that are added up, or are divided by their sums."""
    for node in chain.from_iterable(graph.users.get(array, ()) for array in arrays):
        if node.operator in SOFTMAXES:
            return True
        if _is_sum(node) and _are_exponentials(graph, node.takes[0]):
            return True
        if node.operator == Operator.DIVIDE and len(node.takes) > 1 and node.takes[0] in arrays:
            total = graph.made_by(node.takes[1], Operator.REDUCE, through=SPREADING)
            if total is not None and _is_sum(total) and total.takes[0] in arrays:
                return True
    return False


def _is_sum(node: Node) -> bool:
    return node.operator == Operator.REDUCE and isinstance(node.params, Axes) and node.params.function == Operator.ADD


def _are_exponentials(graph: Graph, array: int) -> bool:
    """Whether an array is exponentials, some of which may be masked."""
    waiting, seen = [array], {array}
    while waiting:
        maker = graph.maker.get(waiting.pop())
        if maker is not None and maker.operator == Operator.EXPONENTIAL:
            return True
        if maker is not None and maker.operator in _MASKED:
            waiting += {*maker.takes} - seen
            seen.update(maker.takes)
    return False


class _Search:
    """The arrays that have an element for each element of another, or are stacks of such arrays."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._after: dict[int, list[int]] = {}  # through the begin, the iterations and the end of loops
        self._before: dict[int, list[int]] = {}
        self._alike: dict[int, list[int]] | None = None
        self.barren = set[int]()  # arrays that no scores follow from
        for region in graph.regions:
            for earlier, later in _links(region):
                self._after.setdefault(earlier, []).append(later)
                self._before.setdefault(later, []).append(earlier)

    def following(self, array: int) -> set[int]:
        """The arrays that are computed from an array, element by element."""
        arrays, waiting = {array}, deque((array,))
        elements = self._graph.arrays[array].elements
        while waiting:
            current = waiting.popleft()
            for later in (*self._after.get(current, ()), *self._made_of(current, elements)):
                if later not in arrays and later not in self.barren:
                    arrays.add(later)
                    waiting.append(later)
        return arrays

    def before(self, arrays: set[int]) -> set[int]:
        """The arrays that others are computed from, element by element; not arguments of the program."""
        graph, earlier_arrays = self._graph, set[int]()
        waiting = deque(arrays)
        while waiting:
            current = waiting.popleft()
            for earlier in (*self._before.get(current, ()), *self._made_from(current)):
                is_computed = earlier in graph.maker or earlier in self._before or not graph.arrays[earlier].sure
                if is_computed and earlier not in arrays and earlier not in earlier_arrays:
                    earlier_arrays.add(earlier)
                    waiting.append(earlier)
        return earlier_arrays

    def products(self, arrays: set[int]) -> tuple[Node, ...]:
        """The products that make or take arrays, in no order."""
        graph = self._graph
        nodes = [graph.maker[array] for array in arrays if array in graph.maker]
        nodes += [node for array in arrays for node in graph.users.get(array, ()) if array in node.takes[:2]]
        products = {node.gives: node for node in nodes if node.operator == Operator.DOT}
        return tuple(products.values())

    def _made_of(self, array: int, elements: int) -> Iterator[int]:
        """The results of the nodes that take an array and keep its elements, write them to a stack, or cut a layer out of one."""
        arrays = self._graph.arrays
        whole = arrays[array].elements
        for node in self._graph.users.get(array, ()):
            if node.operator in _KEEPING or (node.operator == Operator.UPDATE and array == node.takes[0]):
                wanted = whole
            elif node.operator == Operator.SLICE and whole > elements:
                wanted = elements
            elif node.operator == Operator.UPDATE and whole == elements and array in node.takes[1:]:
                yield from (result for result in node.gives if arrays[result].elements % elements == 0)
                continue
            else:
                continue
            yield from (result for result in node.gives if arrays[result].elements == wanted)

    def _made_from(self, array: int) -> Iterator[int]:
        """The operands of the node that makes an array which it keeps the elements of."""
        node, arrays = self._graph.maker.get(array), self._graph.arrays
        if node is not None and (node.operator in _KEEPING or node.operator == Operator.UPDATE):
            yield from (operand for operand in node.takes if arrays[operand].elements == arrays[array].elements)

    def matched(self, scores: Array) -> set[int]:
        """The arrays along the same queries and keys, where makers are matched by size: gradients may be matched to other ones."""
        if scores.sure:
            return set()
        if self._alike is None:
            self._alike = {}
            for number, array in enumerate(self._graph.arrays):
                if not array.sure:
                    self._alike.setdefault(array.elements, []).append(number)
        positions = Counter(scores.shape[-2:])
        return {number for number in self._alike[scores.elements] if positions <= Counter(self._graph.arrays[number].shape)}


def _links(region: Region) -> Iterator[tuple[int, int]]:
    """The arrays of a loop that are the same: before and after its begin, and before and after its end."""
    yield from zip(region.initial, region.carried, strict=True)
    yield from zip(region.handed_on, region.final, strict=True)
