"""Attention written as separate operators: two products with a softmax between them store scores that a fused kernel keeps on chip."""

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from ....cost import Cost, less_traffic
from ....resource import HBM
from ....torch_prices import Tensor
from ....workload import Avoidable
from ..pricing import PricedOp
from .recorded import PricedExecution, factors_of, tensors_of

KIND, MASKED = "stored-attention", "masked-attention"
NEAR = 12  # executions between a softmax and its products
_SOFTMAX = re.compile(r"(?<!log)(?:_|::)(?:safe_|masked_)?softmax(?!_backward)")
_PRODUCT, TRIANGLES = "matmul", ("aten::triu", "aten::tril", "aten::triu_", "aten::tril_")


class Scores(Struct, frozen=True):
    """The scores of one attention: their number, and the number of queries and keys; ``is_causal`` if a triangular mask applies."""

    elements: int
    queries: int
    keys: int
    is_causal: bool = False

    def is_like(self, tensor: Tensor) -> bool:
        """Whether a tensor has one element per score."""
        return tensor.elements == self.elements and self.queries in tensor.shape and self.keys in tensor.shape


def written_attention(ordered: Sequence[PricedExecution]) -> dict[int, list[Avoidable]]:
    """The costs of operators on scores in a fused kernel, by ``id`` of the priced op, from executions in order."""
    found = {scores.elements: scores for scores in _all_scores(ordered)}
    reasons: dict[int, list[Avoidable]] = {}
    for priced in {id(priced): priced for _, priced in ordered}.values() if found else ():
        for scores in found.values():
            if mine := list(_spared(priced, scores)):
                reasons[id(priced)] = mine
                break
    return reasons


def _all_scores(ordered: Sequence[PricedExecution]) -> Iterator[Scores]:
    """The scores of all attentions: results of a batched product that go through a softmax along the keys into another batched product."""
    triangles = {one.shape[-2:] for _, priced in ordered if priced.name in TRIANGLES for one in tensors_of(priced) if len(one.shape) > 1}
    known: set[int] = set()
    for place, (_, priced) in enumerate(ordered):
        if id(priced) in known or not _SOFTMAX.search(priced.name):
            continue
        known.add(id(priced))
        largest = max(tensors_of(priced), key=lambda one: one.elements, default=None)
        if largest is None or len(largest.shape) < 3:
            continue
        queries, keys = largest.shape[-2:]
        scores = Scores(largest.elements, queries, keys, (queries, keys) in triangles)
        before = [one for _, one in ordered[max(place - NEAR, 0) : place]]
        after = [one for _, one in ordered[place + 1 : place + 1 + NEAR]]
        if any(_makes(one, scores) for one in before) and any(_takes(one, scores) for one in after):
            yield scores


def _result(priced: PricedOp) -> tuple[int, ...]:
    """The shape of a batched product's result; empty for other ops."""
    factors = factors_of(priced)
    if factors is None or any(len(one.shape) < 3 for one in factors):
        return ()
    left, right = factors
    return (*left.shape[:-1], right.shape[-1])


def _makes(priced: PricedOp, scores: Scores) -> bool:
    made = _result(priced)
    return bool(made) and Tensor(made).elements == scores.elements and made[-1] == scores.keys


def _takes(priced: PricedOp, scores: Scores) -> bool:
    return bool(_result(priced)) and any(scores.is_like(one) for one in tensors_of(priced))


def _spared(priced: PricedOp, scores: Scores) -> Iterator[Avoidable]:
    """The costs of an op on scores without storing them and, if the mask is causal, without the scores that it removes."""
    cost = priced.priced.cost
    if cost is None:
        return
    mine = [one for one in tensors_of(priced) if scores.is_like(one)]
    others = [one for one in tensors_of(priced) if not scores.is_like(one)]
    if priced.priced.category != _PRODUCT:
        if mine:
            amounts = {**dict(cost.amounts), HBM: sum(one.bytes or 0 for one in others)}
            yield Avoidable(kind=KIND, instead=Cost.of(amounts))
        return
    if not _result(priced):
        return
    stored = sum(one.bytes or 0 for one in mine)
    if not mine and _makes(priced, scores):
        stored = scores.elements * ((others[0].dtype.bits if others[0].dtype else 0) // 8)
    if not stored:
        return
    if scores.is_causal:
        cost = Cost.of({resource: amount / 2 if resource.unit == "matrix" else amount for resource, amount in cost.amounts})
        yield Avoidable(kind=MASKED, instead=cost, unneeded="masked")
    yield Avoidable(kind=KIND, instead=less_traffic(cost, stored))
