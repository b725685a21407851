"""Experts computed for every token: a module chooses some of its experts, but multiplies all tokens by the weights of every expert.

This shows as one product per expert, all of the same shape; as a batched product with one batch per expert; or as a product with the
columns of all experts, followed by a weighted sum over experts for each token, as ``einsum`` makes them. If modules were not recorded,
products of the same shape may also be layers; then each expert's result must also be multiplied by one weight per token.
"""

from collections.abc import Iterator, Sequence
from math import prod

from msgspec import Struct

from ....cost import Cost, less_traffic
from ....torch_prices import Tensor
from ....workload import Avoidable
from ..columns import NONE
from ..context import Context
from ..pricing import PricedOp
from .recorded import PricedExecution, Recorded, factors_of, tensors_of

KIND, CLASS = "dense-experts", "dense"
_CHOICES = ("aten::topk", "aten::argmax")
_WEIGHTING = ("aten::mul", "aten::mul_")


class Choice(Struct, frozen=True):
    """A choice of ``chosen`` out of ``experts`` for each of ``tokens``, in the module ``scope``."""

    tokens: int
    experts: int
    chosen: int
    scope: tuple[str, ...]

    @property
    def factor(self) -> float:
        return self.experts / self.chosen


def all_experts(recorded: Recorded) -> Iterator[tuple[PricedExecution, Avoidable]]:
    """The products of all tokens with the weights of all experts, and their gradients, in order of time."""
    choice: Choice | None = None
    like: dict[tuple[str, tuple[int, ...], tuple[int, ...]], list[PricedExecution]] = {}
    wide: list[PricedExecution] = []  # products that may have the columns of all experts
    weighted = 0  # results multiplied by one weight for each token
    forward: dict[int, Choice] = {}

    def dense(products: Sequence[PricedExecution], choice: Choice) -> Iterator[tuple[PricedExecution, Avoidable]]:
        forward.update((recorded.sequence(one), choice) for one, _ in products if recorded.sequence(one) != NONE)
        return ((each, _avoidable(each, choice)) for each in products)

    for held in recorded.ordered:
        one, priced = held
        made = _choice(priced, one.context) if priced.name in _CHOICES else None
        if made is not None:
            choice, like, wide, weighted = made, {}, [], 0
            continue
        if choice is not None and (summed := _summed(priced, choice)):
            yield from dense([mine for mine in wide if _results(mine[1]) == summed], choice)
            wide = []
        if choice is not None and not choice.scope and _is_weighted(priced, one.context, choice):
            weighted += 1
            if weighted == choice.experts:
                for alike in like.values():
                    yield from dense(alike, choice) if len(alike) == choice.experts else ()
        sides = factors_of(priced)
        if sides is None:
            continue
        number = recorded.sequence(one)
        if number in forward:
            yield held, _avoidable(held, forward[number])
        elif choice is not None and _may_be_expert(choice, one.context, sides[0]):
            alike = like.setdefault((priced.name, sides[0].shape, sides[1].shape), [])
            alike.append(held)
            wide += [held] if sides[1].shape[-1] % choice.experts == 0 and _batch(sides[0]) == 1 else []
            if choice.scope and len(alike) * _batch(sides[0]) == choice.experts:  # elsewhere that may be layers
                yield from dense(alike, choice)


def _choice(priced: PricedOp, context: Context) -> Choice | None:
    """The choice that a top-k or argmax makes; ``None`` if it chooses more than half."""
    scores = priced.args[0] if priced.args else None
    if not isinstance(scores, Tensor) or len(scores.shape) < 2 or context.backward:
        return None
    given = priced.args[1] if priced.name == "aten::topk" and len(priced.args) > 1 else 1
    chosen, experts = int(given) if isinstance(given, int) else 0, scores.shape[-1]
    return Choice(scores.elements // experts, experts, chosen, context.scope) if 0 < 2 * chosen <= experts else None


def _results(priced: PricedOp) -> int:
    """The elements of a product's result."""
    left, right = factors_of(priced) or (Tensor(()), Tensor(()))
    return left.elements // left.shape[-1] * right.shape[-1] if left.shape and right.shape and left.shape[-1] else 0


def _summed(priced: PricedOp, choice: Choice) -> int:
    """The elements that an op sums over experts with a weight for each token, by a product or a multiplication; 0 if it does not."""
    tensors = tensors_of(priced)[:2]
    shapes = [one.shape for one in tensors]
    if len(shapes) < 2 or any(len(shape) != 3 or shape[0] != choice.tokens for shape in shapes):
        return 0
    if priced.name == "aten::bmm" and shapes[0][2] == choice.experts and 1 in (shapes[0][1], shapes[1][2]):
        return max(one.elements for one in tensors)
    gates = (choice.tokens, choice.experts, 1)
    return max(one.elements for one in tensors) if priced.name == "aten::mul" and gates in shapes else 0


def _is_weighted(priced: PricedOp, context: Context, choice: Choice) -> bool:
    """Whether an op multiplies each token's result by one number."""
    shapes = [one.shape for one in tensors_of(priced)[:2]]
    if priced.name not in _WEIGHTING or context.backward or len(shapes) < 2:
        return False
    rows = [prod(shape[:-1]) if shape else 0 for shape in shapes]
    return rows == [choice.tokens] * 2 and 1 in (shape[-1] for shape in shapes)


def _batch(left: Tensor) -> int:
    return left.shape[0] if len(left.shape) == 3 else 1


def _may_be_expert(choice: Choice, context: Context, left: Tensor) -> bool:
    """Whether a product has a row for each token, and is in the module that made the choice."""
    inside = context.scope[: len(choice.scope)] == choice.scope
    return inside and not context.backward and left.shape[-2:-1] == (choice.tokens,) and _batch(left) in (1, choice.experts)


def _avoidable(held: PricedExecution, choice: Choice) -> Avoidable:
    cost = held[1].priced.cost or Cost.of({})
    left, right = factors_of(held[1]) or (None, None)
    written = left.dtype.bytes(left.elements // left.shape[-1] * right.shape[-1]) if left and right and left.dtype else 0
    amounts = {resource: amount / choice.factor if resource.unit == "matrix" else amount for resource, amount in cost.amounts}
    instead = less_traffic(Cost.of(amounts), written * (1 - 1 / choice.factor))
    facts = {"experts": choice.experts, "chosen": choice.chosen}
    return Avoidable(kind=KIND, instead=instead, facts=facts, unneeded=CLASS, group=str(choice.experts), factor=choice.factor)
