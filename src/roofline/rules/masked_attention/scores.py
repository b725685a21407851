"""Attention in several kernels whose products compute, or use, scores that a mask of positions removes."""

from collections.abc import Iterator

from ...cost import Cost
from ...graph import Graph
from ...graph.facts.scores import Scores, attention_scores
from ...workload import Avoidable

KIND = "masked-attention"


def masked_scores(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The products of scores of which a causal mask removes a part."""
    for scores in graph.fact(attention_scores):
        for product in scores.products if scores.is_causal else ():
            yield product.kernel, Avoidable(kind=KIND, instead=without_masked(graph.cost(product), scores), unneeded="masked")


def without_masked(cost: Cost, scores: Scores) -> Cost:
    """The cost of a kernel whose products skip the scores that the mask removes."""
    return Cost.of({resource: amount * (1 - scores.removed) if resource.unit == "matrix" else amount for resource, amount in cost.amounts})
