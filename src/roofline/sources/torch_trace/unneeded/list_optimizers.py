"""Optimizers whose operators each update all parameters: one fused kernel reads weights, gradients and state once, and writes them once."""

from collections.abc import Iterator, Sequence

from ....cost import less_traffic
from ....torch_prices.fusing import fuses
from ....workload import Avoidable
from .recorded import PricedExecution, Recorded, moved_bytes

KIND, GROUP = "unfused-chain", "optimizer"
OPTIMIZER = "optimizer"  # the category of its operators
LISTS = "aten::_foreach"  # the names of operators on lists of tensors begin like this
# For the operator that identifies an optimizer: how many lists of tensors it reads and writes, and how many the fused kernel does.
FUSED_LISTS = {"aten::_foreach_addcdiv_": (4, 7), "aten::_foreach_add_": (3, 5)}


def list_optimizers(recorded: Recorded) -> Iterator[tuple[PricedExecution, Avoidable]]:
    """The operators of optimizers that take lists of tensors, with their share of the traffic of a fused kernel."""
    for operators in _optimizers(recorded.ordered).values():
        share = _fused_share(operators)
        for held in operators if share < 1 else ():
            cost = held[1].priced.cost
            if cost is not None:
                instead = less_traffic(cost, (1 - share) * moved_bytes(held[1]))
                yield held, Avoidable(kind=KIND, instead=instead, group=GROUP)


def _optimizers(ordered: Sequence[PricedExecution]) -> dict[int, list[PricedExecution]]:
    """The operators of each step's optimizer, by its mark, if most of them take lists of tensors; it may fall back to others."""
    lists: dict[int, list[PricedExecution]] = {}
    others: dict[int, list[PricedExecution]] = {}
    for held in ordered:
        if held[1].priced.category == OPTIMIZER and held[1].name.startswith(LISTS):
            lists.setdefault(held[0].mark, []).append(held)
        elif held[0].context.optimizer and fuses(held[1].priced.category):
            others.setdefault(held[0].mark, []).append(held)
    return {mark: [*mine, *_if_fewer(others.get(mark, []), mine)] for mark, mine in lists.items()}


def _if_fewer(some: Sequence[PricedExecution], main: Sequence[PricedExecution]) -> Sequence[PricedExecution]:
    """These operators, if they move less than the main ones: a fused optimizer, too, updates its step counters as a list."""
    moved, of_main = (sum(moved_bytes(priced) for _, priced in each) for each in (some, main))
    return some if moved < of_main else ()


def _fused_share(chain: Sequence[PricedExecution]) -> float:
    """The share of a chain's bytes that a fused optimizer would move."""
    total = sum(moved_bytes(priced) for _, priced in chain)
    for name, (own, fused) in FUSED_LISTS.items():
        whole = sum(moved_bytes(priced) for _, priced in chain if priced.name == name)
        if whole and name == "aten::_foreach_add_":
            whole = max(moved_bytes(priced) for _, priced in chain if priced.name == name)
        if whole:
            return min(1.0, fused * whole / own / total) if total else 1.0
    return 1.0
