"""Products with the weights of all experts, of which each row needs those that it chose: its other results are multiplied by zero.

Gates are zero where they are computed from a top-k or an index (`choices`). A product is spared where a factor is zero by such a choice, as
in a backward pass, or its result is needed by one alone. Experts that run one after another, and both branches of a condition for each row,
are told apart by what selects their rows.
"""

from collections.abc import Iterator
from math import prod

from msgspec import Struct

from ...cost import NOTHING, Cost, less_traffic
from ...graph import NO_KERNEL, Factor, Graph, Node, Operator
from ...graph.facts.choices import Choice, Choices
from ...graph.facts.chosen_needs import OTHERS, chosen_needs
from ...workload import Avoidable, Facts
from ..unused_results.parts import CLASS as UNUSED
from ..unused_results.parts import KIND as UNUSED_RESULTS

KIND, CLASS = "dense-experts", "dense"
LEAST = 2  # times the needed work: with less, a grouped product takes about as long


class Chosen(Struct, frozen=True):
    """A product with the choice by which its elements are needed, or zero, and the bytes of the arrays for which this is so.

    ``spread`` is the factor that is zero, if it has its rows once for each group.
    """

    node: Node
    choice: Choice
    bytes: int
    spread: int | None = None

    @property
    def is_alone(self) -> bool:
        """Whether only other products with the same source tell how many groups there are."""
        return not self.choice.groups

    def avoidable(self, graph: Graph, groups: int, kind: str = KIND) -> Avoidable:
        factor, chosen = groups / self.choice.chosen, round(self.choice.chosen)
        amounts = {unit: amount / factor if unit.unit == "matrix" else amount for unit, amount in graph.cost(self.node).amounts}
        instead = less_traffic(Cost.of(amounts), self.bytes * (1 - 1 / factor))
        if kind == KIND:
            facts = Facts(experts=groups, product=str(self.node.sizes), chosen=chosen)
            return Avoidable(kind=kind, instead=instead, facts=facts, unneeded=CLASS, group=str(groups), factor=factor)
        facts = Facts(branches=groups, chosen=chosen)
        return Avoidable(kind=kind, instead=instead, cause="branches", facts=facts, unneeded=UNUSED, factor=factor)


def dense_experts(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The products that compute more experts, or branches, for each row than it uses, and the kernels that spread rows over experts."""
    chosen = list(_chosen(graph))
    for product in chosen:
        groups = product.choice.groups
        if groups and groups >= LEAST * product.choice.chosen:
            yield product.node.kernel, product.avoidable(graph, groups)
            yield from _spreading(graph, product, groups)
    by_source: dict[tuple[int, float], dict[object, list[Chosen]]] = {}
    for product in (product for product in chosen if product.is_alone):
        members = by_source.setdefault((product.choice.source, product.choice.chosen), {})
        members.setdefault(product.choice.member, []).append(product)
    for (_, most), members in by_source.items():
        work = {tuple(sorted(product.node.sizes.multiplications for product in products)) for products in members.values()}
        if len(work) == 1 and len(members) >= LEAST * most:
            kind = KIND if len(members.keys() - {OTHERS}) > 1 else UNUSED_RESULTS
            for product in (product for products in members.values() for product in products):
                yield product.node.kernel, product.avoidable(graph, len(members), kind)


def _chosen(graph: Graph) -> Iterator[Chosen]:
    """The products of which a choice tells what is needed."""
    products = [node for node in graph.of(Operator.DOT) if node.kernel != NO_KERNEL and not node.sizes.groups]
    if not products or not graph.of(Operator.SELECT, Operator.MULTIPLY, Operator.GATHER, Operator.AND):
        return
    choices = Choices(graph)
    needs = chosen_needs(graph, choices)
    for product in products:
        result = product.gives[0]
        factors = (product.sizes.left, product.sizes.right)
        spared = [
            (array, choice)
            for array, factor in zip(product.takes, factors, strict=False)
            if (choice := choices.zero(array)) is not None and _has_groups(graph, array, choice, factor)
        ]
        need = needs.get(result)
        if spared:
            array, choice = spared[0]
            bytes_of = graph.arrays[array].bytes + (graph.arrays[result].bytes if choices.zero(result) is not None else 0)
            yield Chosen(product, choice, bytes_of, array if choice.axis in factors[product.takes.index(array)].summed else None)
        elif need is not None and _has_groups(graph, result, need, _of_result(product, need)):
            yield Chosen(product, need, graph.arrays[result].bytes)


def _of_result(product: Node, choice: Choice) -> Factor:
    """The axes of the result of a product; of those that are of one factor alone, those of the factor with the groups are ``summed``."""
    left, right = product.sizes.left, product.sizes.right
    batch, rows = range(len(left.batch)), range(len(left.batch), len(left.batch) + len(left.free))
    columns = range(rows.stop, rows.stop + len(right.free))
    return (
        Factor(tuple(batch), tuple(columns), tuple(rows)) if choice.axis in columns else Factor(tuple(batch), tuple(rows), tuple(columns))
    )


def _has_groups(graph: Graph, array: int, choice: Choice, factor: Factor) -> bool:
    """Whether the groups of an array are matrices: those of a batch, or beside other columns; each row of one-hot ones is a number."""
    shape = graph.arrays[array].shape
    if all(size == 1 or axis in choice.rows or axis == choice.axis for axis, size in enumerate(shape) if axis not in factor.batch):
        return choice.axis is not None and choice.axis not in factor.batch and shape[choice.axis] > choice.groups
    if choice.axis is None or choice.axis in factor.batch:
        return True
    beside = factor.summed if choice.axis in factor.summed else factor.free
    return not choice.rows & {*beside} and prod(shape[axis] for axis in beside) > choice.groups


def _spreading(graph: Graph, product: Chosen, groups: int) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that only repeat each row for every group, with zeros in all but its own, or change the layout of these."""
    array = product.spread
    mask = graph.made_by(array, Operator.SELECT, Operator.MULTIPLY) if array is not None else None
    if array is None or mask is None or not any(graph.distinct(side) < graph.arrays[side].elements for side in mask.takes[1:]):
        return
    kernels = {node.kernel for node in (mask, *graph.between(array))} - {NO_KERNEL, product.node.kernel}
    for kernel in sorted(kernels):
        if not any(node.operator == Operator.DOT for node in graph.inside[kernel]):
            facts = Facts(experts=groups)
            yield kernel, Avoidable(kind=KIND, instead=NOTHING, cause="spread", facts=facts, unneeded=CLASS, group=str(groups))
