"""Experts computed for every token by plain products, of whose results the program uses few.

The results are multiplied by gates, or the chosen ones are gathered. A gate per token and expert is zero except for the chosen experts, if
it is computed from a top-k or an argmax: the expert's number compared with the chosen ones (one-hot), scores compared with the smallest
chosen one, or a scatter to the chosen indices.
"""

from collections.abc import Iterator, Sequence
from math import prod

from msgspec import Struct

from ...cost import Cost, less_traffic
from ...workload import Avoidable, Facts
from ..ir.module import Computation
from .experts import CLASS, KIND
from .kernels import Kernels, Product
from .positions import position
from .values import LAYOUT, Value, Values

_CHOOSING = frozenset(("sort", "topk", "custom-call", "reduce"))
_GATES = frozenset(("compare", "scatter", "gather"))
_STOP = frozenset(("parameter", "constant", "iota", "dot", "sort", "topk", "custom-call"))
_TOP_K = ("topk", "top_k", "selectk", "sort")
_COMPARED = ("EQ", "GE", "GT", "LE", "LT")
_MOST_VISITED = 60


class Expert(Struct, frozen=True):
    """A product with the weights of all experts, or of one: its kernel, the number of experts, and the elements of the weights."""

    index: int
    product: Product
    groups: int
    weights: int

    @property
    def rows(self) -> int:
        """The tokens per expert."""
        return self.product.flops // (2 * self.weights)


def gated_experts(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The products of every token with the weights of all experts, in a program that chooses some of them."""
    opcodes = kernels.module.opcodes
    if opcodes.isdisjoint(_CHOOSING) or opcodes.isdisjoint(_GATES):
        return
    experts = list(_with_all_experts(kernels)) or list(_one_by_one(kernels))
    experts += _gradients(kernels, experts)
    groups = {one.groups for one in experts}
    computations = dict.fromkeys((kernels.number, kernels.module.entry)) if experts else ()
    choices = [found for number in computations for found in _choices(kernels.values, kernels.module.computations[number], groups)]
    for one in experts:
        # There is a gate per token, or per chosen expert of a token; an expert with fewer rows has gates of its own.
        tops = [top for groups, gates, top in choices if groups == one.groups and one.rows in (gates, gates / top)]
        top = max(tops, default=one.groups)
        if 2 * top > one.groups:
            continue
        cost, factor, found = kernels.costs[one.index], one.groups / top, one.product
        amounts = {resource: amount / factor if resource.unit == "matrix" else amount for resource, amount in cost.amounts}
        written = found.made.shape.bytes if found.made.shape.is_array else 0
        instead = less_traffic(Cost.of(amounts), written * (1 - 1 / factor))
        facts = Facts(experts=one.groups, product=str(found), chosen=top)
        yield one.index, Avoidable(kind=KIND, instead=instead, facts=facts, unneeded=CLASS, group=str(one.groups), factor=factor)


def _with_all_experts(kernels: Kernels) -> Iterator[Expert]:
    """The products with an argument that has one matrix per expert, all experts at once or one by one."""
    parts: dict[int, list[Expert]] = {}
    for index, found in kernels.products.items():
        for side in (found.right, found.left):
            origin = kernels.values.origin(side, LAYOUT | {"convert", "slice"})
            if origin.opcode not in ("parameter", "get-tuple-element") or len(origin.shape.dims) != 3:
                continue
            one = Expert(index, found, origin.shape.dims[0], side.shape.elements)
            if origin.shape.elements == one.weights:
                yield one
            elif origin.shape.elements == one.weights * one.groups:
                parts.setdefault(origin.index, []).append(one)
                if len(parts[origin.index]) == one.groups:
                    yield from parts[origin.index]
            break


def _one_by_one(kernels: Kernels) -> Iterator[Expert]:
    """The products of a loop with the weights of one expert per iteration, if the loop also reads the gates of one expert."""
    if kernels.number not in kernels.values.loop_bodies:
        return
    cut = [one for one in _inside(kernels.values, kernels.computation) if one.opcode == "dynamic-slice"]
    gates = {(one.shape.elements, kernels.values.operand(one, 0).shape.elements) for one in cut}
    for index, found in kernels.products.items():
        for side in (found.right, found.left):
            made = kernels.values.origin(side, LAYOUT | {"convert"})
            every = kernels.values.operand(made, 0).shape if made.opcode == "dynamic-slice" else None
            if every is None or len(every.dims) != 3 or every.elements != every.dims[0] * side.shape.elements:
                continue
            one = Expert(index, found, every.dims[0], side.shape.elements)
            if (one.rows, one.rows * one.groups) in gates:
                yield one
            break


def _gradients(kernels: Kernels, experts: Sequence[Expert]) -> Iterator[Expert]:
    """The gradients of the experts' weights: products with the same FLOP, and a result of the size of the weights."""
    known = {one.index for one in experts}
    alike = {(one.product.flops, one.weights): one for one in experts}
    for index, found in kernels.products.items():
        one = alike.get((found.flops, found.made.shape.elements)) if found.made.shape.is_array else None
        if one is not None and index not in known:
            yield Expert(index, found, one.groups, one.weights)


def _choices(values: Values, computation: Computation, groups: set[int]) -> Iterator[tuple[int, int, int]]:
    """Each top-k over experts: the number of experts, of gates per expert, and of chosen experts."""
    for made in _inside(values, computation):
        if made.opcode == "gather":
            yield from _gathered(values, made, groups)
            continue
        for count in groups & set(made.shape.dims if made.shape.is_array else ()):
            top = _chosen(values, made, count)
            if top is not None:
                yield count, made.shape.elements // count, top


def _inside(values: Values, computation: Computation) -> Iterator[Value]:
    """The instructions of a computation, and of the bodies of its fusions."""
    for place in range(len(computation)):
        yield from values.parts(computation, place)


def _gathered(values: Values, made: Value, groups: set[int]) -> Iterator[tuple[int, int, int]]:
    """The same for a gather that takes the results of the chosen experts out of those of all."""
    rows = made.shape.elements // max(prod(made.instruction.integers("slice_sizes")), 1)
    for count in groups & set(values.operand(made, 0).shape.dims):
        top = _top(values, values.operand(made, 1), count)
        if top is not None:
            yield count, rows, top


def _chosen(values: Values, made: Value, groups: int) -> int | None:
    """How many of the ``groups`` experts a gate selects; ``None`` if a value is not a gate."""
    if made.opcode == "scatter" and len(made.instruction.operands) >= 3:
        return _top(values, values.operand(made, 1), groups)
    if made.opcode != "compare" or made.instruction.word("direction").upper() not in _COMPARED:
        return None
    sides = [values.operand(made, number) for number in (0, 1)]
    for other, index in (sides, sides[::-1]):
        counted = position(values, other)
        if counted is not None and counted[0].shape.dims[counted[1]] != groups:
            continue
        top = _top(values, index, groups)
        if top is not None:
            return top
    return None


def _top(values: Values, value: Value, groups: int) -> int | None:
    """The k of the top-k over ``groups`` experts that a value is computed from."""
    kept = groups
    for one in values.ancestors(value, _STOP, most=_MOST_VISITED):
        size = one.shape.dims[-1] if one.shape.is_array and one.shape.dims else groups
        if one.opcode == "reduce" and one.instruction.shape.is_tuple and groups in values.operand(one, 0).shape.dims:
            return 1  # an argmax
        if one.opcode in _CHOOSING and _chooses(one):
            kept = min(size, kept) if size < groups else kept  # a slice of a sort of all
            return kept if kept < groups else None
        if one.opcode == "slice":
            kept = _reached(one, values.operand(one, 0).shape.dims[-1], groups)
    return None


def _reached(cut: Value, size: int, groups: int) -> int:
    """The k of a slice of sorted scores: the position of its last score, counted from the best; the second best alone is a top-2 threshold.
    The best may be at either end.
    """
    ranges = cut.instruction.slices
    if not ranges:
        return cut.shape.dims[-1]
    last = ranges[-1]
    return min(last.limit, size - last.start) if size == groups else last.limit


def _chooses(value: Value) -> bool:
    target = value.instruction.custom_call_target.lower() if value.opcode == "custom-call" else value.opcode
    return any(word in target for word in _TOP_K)
