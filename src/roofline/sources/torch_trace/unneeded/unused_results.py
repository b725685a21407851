"""Forward work whose result is not used, such as a head whose loss was left out.

This shows, in a step with a backward pass, as consecutive ops that are recorded for gradients but whose gradients are never computed, with
products among them. No later op may read the last result, judged by its size: results that are used but detached have no gradient either.
"""

from collections.abc import Iterator, Mapping, Sequence

from ....cost import NOTHING
from ....resource import HBM
from ....torch_prices import Tensor
from ....workload import Avoidable
from ..pricing import PricedOp
from ..read.columns import NONE
from .recorded import PricedExecution, Recorded, all_tensors

KIND, CLASS = "unused-results", "unused"
_MULTIPLY = frozenset(("matmul", "convolution", "attention"))


def unused_results(recorded: Recorded) -> Iterator[tuple[PricedExecution, Avoidable]]:
    """The ops of results that nothing uses, in order of time."""
    steps: dict[int, list[tuple[PricedExecution, int]]] = {}
    for held in recorded.ordered:
        context = held[0].context
        if held[0].op != NONE and not (context.backward or context.optimizer):
            steps.setdefault(held[0].mark, []).append((held, recorded.sequence(held[0])))
    reason = Avoidable(kind=KIND, instead=NOTHING, cause="never", unneeded=CLASS)
    for mine in steps.values():
        if not any(number in recorded.differentiated for _, number in mine if number != NONE):
            continue
        takers: dict[int, list[tuple[int, Tensor]]] = {}  # tensors that ops read and the ops' places, by number of elements
        for place, ((_, priced), _) in enumerate(mine):
            for one in all_tensors(priced.args):
                takers.setdefault(one.elements, []).append((place, one))
        for begin, end in _runs(
            [number == NONE or number not in recorded.differentiated for _, number in mine], [number for _, number in mine]
        ):
            run = [held for held, _ in mine[begin:end]]
            if any(priced.priced.category in _MULTIPLY for _, priced in run) and not _is_taken(run[-1][1], takers, end):
                yield from ((held, reason) for held in run)


def _runs(unused: Sequence[bool], numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Ranges of consecutive ops without a gradient, from the first to the last that is recorded for gradients."""
    begin = None
    last = 0
    for place, (is_unused, number) in enumerate(zip((*unused, False), (*numbers, 0), strict=True)):
        if is_unused and number != NONE:
            begin, last = place if begin is None else begin, place
        elif not is_unused and begin is not None:
            yield begin, last + 1
            begin = None


def _is_taken(priced: PricedOp, takers: Mapping[int, Sequence[tuple[int, Tensor]]], end: int) -> bool:
    """Whether later ops read a tensor like an op's result: of the same size and, if it has as many axes, with as many channels."""
    elements, rank, channels = _made(priced)
    later = (one for place, one in takers.get(elements, ()) if place >= end)
    return any(len(one.shape) != rank or one.shape[1:2] == (channels,) or rank < 2 for one in later)


def _made(priced: PricedOp) -> tuple[int, int, int]:
    """Elements, axes and channels of an op's result; those of a product from the bytes it moves in addition to its operands."""
    tensors = list(all_tensors(priced.args))
    largest = max(tensors, key=lambda one: one.elements, default=Tensor(()))
    if priced.priced.category not in _MULTIPLY or priced.priced.cost is None or len(tensors) < 2:
        return largest.elements, len(largest.shape), largest.shape[1] if len(largest.shape) > 1 else 1
    moved = float(priced.priced.cost.known(HBM)) - sum(one.bytes or 0 for one in tensors)
    width = next((one.dtype.bits / 8 for one in tensors if one.dtype is not None), 1)
    is_convolution = priced.priced.category == "convolution"
    channels = tensors[1].shape[0] if is_convolution else tensors[-1].shape[-1] if tensors[-1].shape else 1
    return round(moved / width), len(tensors[0].shape) if is_convolution else 2, channels
