"""Sorts of which a few elements of each row are used, where a top-k would do.

A slice of a sorted tensor has rows whose stride is the length of the sorted rows; an op that takes as many elements as were sorted may use
all of them. But if a gather finally picks a few elements, as sampling among the likeliest words does, the ops on whole rows before it were
also needed for these few only. So they were if a sample of a few is drawn from rows of that size: top-p sampling sorts all words, adds up
their probabilities, and marks the likeliest in the order before the sort.
"""

from collections.abc import Iterator, Sequence

from ....cost import Cost
from ....resource import HBM
from ....torch_prices import Tensor
from ....workload import Avoidable, Facts
from .recorded import PricedExecution, Recorded, all_tensors, moved_bytes, tensors_of

KIND, CLASS = "unused-results", "unused"
GROUP, SAMPLED = "sorted", "sampled"  # groups
AHEAD = 16  # executions after a sort in which its results are used
MOST_KEPT = 1 / 4  # of a row: a top-k of more takes as long as a sort
SORTS, GATHER, SAMPLE = ("aten::sort", "aten::argsort"), "aten::gather", "aten::multinomial"


def sorted_parts(recorded: Recorded) -> Iterator[tuple[PricedExecution, Avoidable]]:
    """The sorts after which only a few elements of each row are used, and the ops on whole sorted rows before a gather of a few."""
    for place, held in enumerate(recorded.ordered):
        one, priced = held
        rows = next(iter(tensors_of(priced)), None) if priced.name in SORTS else None
        axes = [arg for arg in priced.args[1:] if isinstance(arg, int) and not isinstance(arg, bool)]
        if rows is None or len(rows.shape) < 2 or not {*axes[:1]} <= {-1, len(rows.shape) - 1}:
            continue
        after = recorded.ordered[place + 1 : place + 1 + AHEAD]
        later = [held for held in after if held[0].mark == one.mark and held[1] is not priced]
        picked, between = _picked(rows, later)
        kept = picked or _kept(rows, later)
        group = SAMPLED if any(held[1].name == SAMPLE for held in between) else GROUP
        if not 0 < kept <= MOST_KEPT * rows.shape[-1]:
            continue
        read = min(float(rows.bytes or 0), moved_bytes(priced))
        cause, facts = "picked" if picked else "", Facts(row=rows.shape[-1], used=kept)
        yield held, _avoidable(held, read, cause, facts, group)
        for each in between:
            yield each, _avoidable(each, moved_bytes(each[1]) * kept / rows.shape[-1], cause, facts, group)


def _avoidable(held: PricedExecution, moved: float, cause: str, facts: Facts, group: str) -> Avoidable:
    cost = held[1].priced.cost or Cost.of({})
    amounts = {resource: amount for resource, amount in cost.amounts if resource != HBM}
    instead = Cost.of({**amounts, HBM: moved})
    return Avoidable(kind=KIND, instead=instead, cause=cause, facts=facts, unneeded=CLASS, group=group)


def _picked(rows: Tensor, after: Sequence[PricedExecution]) -> tuple[int, list[PricedExecution]]:
    """How many elements of each sorted row a gather or a sample picks, and the ops on whole rows until then; 0 if neither does."""
    between: list[PricedExecution] = []
    for held in after:
        tensors = tensors_of(held[1])
        if held[1].name == GATHER and len(tensors) > 1 and tensors[0].elements == rows.elements and tensors[1].shape:
            return tensors[1].shape[-1], between
        if any(tensor.elements == rows.elements for tensor in tensors):
            between.append(held)
            if held[1].name == SAMPLE:
                return (count if isinstance(count := held[1].args[1], int) else 0), between
    return 0, []


def _kept(rows: Tensor, after: Sequence[PricedExecution]) -> int:
    """How many elements of each sorted row the next ops use; 0 if unknown."""
    kept = 0
    for _, priced in after:
        for tensor in all_tensors(priced.args):
            if tensor.elements == rows.elements:
                return 0
            if _is_cut_from(tensor, rows):
                kept = max(kept, tensor.shape[-1])
    return kept


def _is_cut_from(tensor: Tensor, rows: Tensor) -> bool:
    """Whether a tensor is a slice of each row: its rows have the stride of the sorted rows."""
    is_part = len(tensor.shape) == len(rows.shape) and tensor.shape[:-1] == rows.shape[:-1] and tensor.shape[-1] < rows.shape[-1]
    return is_part and tensor.strides is not None and tensor.strides[-2:] == (rows.shape[-1], 1)
