"""``kernel attention=flash``: attention in one kernel per layer and direction; its scores are no longer stored.

The two products of the forward pass and the ops between them become one kernel; those of the backward pass, which use arrays of the same
size, another. Also removed are arrays in which a loop over layers stores scores for its gradients, masks, and copies that only change the
layout of operands and results. Kernels that slice queries, keys or values from a larger array stay, because a library's kernel takes whole
arrays.
"""

from collections import Counter
from fractions import Fraction
from itertools import chain

from ...cost import NOTHING, Cost
from ...graph import NO_KERNEL, Graph, Node, Phase
from ...graph.facts.kernels import kernel_before, kernels_after
from ...graph.facts.scores import Scores, attention_scores
from ...operation import Attention, Product, width
from ...resource import HBM, matrix
from ...rules.stored_attention.written import KIND as STORED
from ...workload import ProgramGraph
from .change_words import Words
from .state import State

HALF = 16  # bits of the widest format that such kernels take
PRODUCTS_PER_KERNEL = {Phase.FORWARD: 2, Phase.RECOMPUTED: 2, Phase.BACKWARD: 4}
UNSEEN = 0.1  # of the time of ops removed from a trace: the most that further removed ops take, which it does not show (a choice)


def kernel(state: State, words: Words) -> None:
    """Replace attention that is not one kernel yet."""
    if (word := words.need()) != "attention=flash":
        raise words.wrong(f"kernel {word}: only attention=flash is known")
    replaced = [_Replacement(state, program).apply() for program in state.recording.graphs]
    if not any(replaced):
        state.notes.append("kernel attention=flash: this program stores no attention scores")


class _Replacement:
    """The kernels of a program's attention in the place of those that store its scores."""

    def __init__(self, state: State, program: ProgramGraph) -> None:
        self._state, self._graph, self._ops = state, program.graph, program.ops
        self._executions = Counter(chain(*program.ops))  # of each op, in the graph
        self._attention: dict[int, Attention] = {}  # by the op whose place it takes
        self._runs = Counter[int]()  # how often it runs in the graph
        self._gone = set[int]()  # kernels

    def apply(self) -> bool:
        """Replaces them. Returns whether there are any."""
        is_sure = True
        for scores in self._graph.fact(attention_scores):
            storing = {kernel for kernel in _touching(self._graph, scores) if self._stores_scores(kernel)}
            if storing:
                is_sure = is_sure and _is_sure(self._graph, scores)
                self._gone |= storing
                self._put_kernels(scores)
        replaced = {op for kernel in self._gone for op in self._ops[kernel]} if self._attention else set[int]()
        for op in sorted(replaced - self._attention.keys()):
            self._state.remove(op, shorter=0.0 if is_sure else UNSEEN)
        for op, attention in self._attention.items():
            self._state.put(op, _cost(attention) * self._state.ops[op].count, attention, 1.0, fresh=True)
            self._run(op, self._runs[op])
        if replaced:
            self._remove_copies(replaced)
        return bool(replaced)

    def _stores_scores(self, kernel: int) -> bool:
        return any(avoidable.kind == STORED for op in self._ops[kernel] for avoidable in self._state.ops[op].avoidable)

    def _put_kernels(self, scores: Scores) -> None:
        """Puts kernels into the places of products, one for each phase; for scores that were matched by size those of all layers."""
        for phase, products in _by_phase(self._graph, scores, self._gone).items():
            runs = 1 if _is_sure(self._graph, scores) else max(len(products) // PRODUCTS_PER_KERNEL[phase], 1)
            for op in self._ops[min(products)]:
                self._attention[op] = self._as_one_kernel(scores, backward=phase == Phase.BACKWARD)
                self._runs[op] += runs

    def _as_one_kernel(self, scores: Scores, *, backward: bool) -> Attention:
        """Attention in one kernel. In the product that uses the scores, keys are summed over.

        A causal mask leaves as many queries as keys at most: further ones are those of other heads that share the keys.
        """
        first, made = scores.first, scores.arrays
        using = (node for node in scores.products if node.phase == first.phase and not made.isdisjoint(node.takes[:2]))
        summed = next((node.sizes.depth for node in using), first.sizes.columns)
        batch, rows, depth, columns = self._sizes(first)
        queries, keys = (rows, columns) if summed == first.sizes.columns else (columns, rows)
        shared = queries // keys if scores.is_causal and queries > keys else 1
        dtype = self._graph.arrays[first.takes[0]].dtype
        return Attention(
            batch=1,
            heads=batch * shared,
            kv_heads=batch if shared > 1 else None,
            queries=queries / shared,
            keys=keys,
            size=depth,
            causal=scores.is_causal,
            backward=backward,
            dtype=dtype.name if dtype is not None and dtype.bits <= HALF else "bf16",
            library="cudnn",
        )

    def _sizes(self, product: Node) -> tuple[float, float, float, float]:
        """The batch, rows, depth and columns of a product after other changes."""
        index, sizes = self._ops[product.kernel][0], product.sizes
        before, after = self._state.recording.workload.ops[index].operation, self._state.ops[index].operation
        batch, rows, depth, columns = map(float, (sizes.batch, sizes.rows, sizes.depth, sizes.columns))
        if isinstance(before, Product) and isinstance(after, Product):
            grown = [float(after.m) / float(before.m), float(after.n) / float(before.n)]
            grown = grown if float(before.m) == rows else grown[::-1]  # libraries multiply the transposed factors
            batch, depth = batch * float(after.batch) / float(before.batch), depth * float(after.k) / float(before.k)
            rows, columns = rows * grown[0], columns * grown[1]
        return batch, rows, depth, columns

    def _remove_copies(self, replaced: set[int]) -> None:
        """Removes kernels that only move data from or to the replaced ones, and masks that nothing else uses."""
        gone, found = set(self._gone), set(self._gone)
        moving = {kernel for kernel in self._graph.inside if kernel not in gone and self._moves_only(kernel)}
        while found:
            found = {kernel for kernel in moving if self._is_for(kernel, gone)}
            moving -= found
            gone |= found
        copies = Counter(op for kernel in gone for op in self._ops[kernel] if op not in replaced)
        for op, executions in copies.items():
            if executions < self._executions[op]:
                self._run(op, self._executions[op] - executions)
            else:
                self._state.remove(op)

    def _run(self, op: int, executions: int) -> None:
        """Runs an op so often in the graph."""
        if executions != self._executions[op]:
            self._state.run_more(op, Fraction(executions, self._executions[op]))

    def _moves_only(self, kernel: int) -> bool:
        """Whether a kernel computes nothing."""
        cost = self._graph.kernels[kernel].cost if kernel in self._graph.kernels else NOTHING
        return cost != NOTHING and not any(resource.is_arithmetic or resource.unit == "matrix" for resource, _ in cost.amounts)

    def _is_for(self, kernel: int, gone: set[int]) -> bool:
        """Whether a kernel makes whole arrays for some kernels alone, or takes arrays from these alone."""
        graph = self._graph
        taken = [array for array in graph.read(kernel) if graph.arrays[array].elements > 1]
        if taken and all(kernel_before(graph, array) in gone for array in taken):
            return True
        made = graph.written(kernel)
        largest = max((graph.arrays[array].elements for array in taken), default=0)
        if not made or any(graph.arrays[array].elements < largest for array in made):
            return False
        return all(user in gone for array in made for user in kernels_after(graph, array))


def _touching(graph: Graph, scores: Scores) -> set[int]:
    """The kernels that make or use scores."""
    nodes = {node.gives: node for array in scores.arrays for node in graph.users.get(array, ())}
    nodes |= {graph.maker[array].gives: graph.maker[array] for array in scores.arrays if array in graph.maker}
    return {node.kernel for node in nodes.values()} - {NO_KERNEL}


def _by_phase(graph: Graph, scores: Scores, kernels: set[int]) -> dict[Phase, list[int]]:
    """The kernels that multiply scores in each phase. Where a program tells no phases, gradients come after the first two."""
    products: dict[Phase, list[int]] = {}
    for node in scores.products:
        if node.kernel in kernels:
            products.setdefault(node.phase, []).append(node.kernel)
    forward, most = sorted(products.get(Phase.FORWARD, ())), PRODUCTS_PER_KERNEL[Phase.FORWARD]
    if products.keys() == {Phase.FORWARD} and len(forward) > most and _is_sure(graph, scores):
        return {Phase.FORWARD: forward[:most], Phase.BACKWARD: forward[most:]}
    return products


def _is_sure(graph: Graph, scores: Scores) -> bool:
    """Whether the products of scores are known, and not matched by size."""
    return graph.arrays[scores.first.gives[0]].sure


def _cost(attention: Attention) -> Cost:
    """The cost of one execution: two products forward, five backward; queries, keys, values and results once."""
    pairs = float(attention.heads) * float(attention.queries) * float(attention.keys) / (2 if attention.causal else 1)
    flops = (10 if attention.backward else 4) * pairs * float(attention.size)
    rows = float(attention.heads) * float(attention.queries) + float(attention.groups) * float(attention.keys)
    arrays = (4 if attention.backward else 2) * rows * float(attention.size) * width(attention.dtype)
    return Cost.of({matrix(attention.dtype): flops, HBM: arrays})
