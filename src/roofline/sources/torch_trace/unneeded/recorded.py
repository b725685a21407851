"""The input of the rules: executions of the first steps on one device, in order, each with the price of its op."""

from collections.abc import Callable, Collection, Iterator, Sequence

from msgspec import Struct

from ....resource import HBM
from ....torch_prices import Tensor
from ..executions import Execution
from ..pricing import PricedOp

PricedExecution = tuple[Execution, PricedOp]
_LEFT_FACTOR = {"aten::mm": 0, "aten::addmm": 1, "aten::bmm": 0, "aten::baddbmm": 1}  # its place among the arguments


class Recorded(Struct, kw_only=True):
    """Executions in order, and the gradients of their ops.

    ``accumulated`` has step, op and shape of each accumulated gradient; with ``has_shards`` these may not be the shapes of the weights.
    ``sequence`` gives the sequence number of an execution's op, which its gradient shares, or `NONE`; ``differentiated`` has the numbers
    of the ops whose gradient was computed. ``checkpoints`` are the user's lines that call torch.utils.checkpoint. ``on_host`` is whether a
    CPU ran them.
    """

    ordered: Sequence[PricedExecution]
    accumulated: Sequence[tuple[int, int, tuple[int, ...]]]
    has_shards: bool
    sequence: Callable[[Execution], int]
    differentiated: Collection[int]
    checkpoints: Sequence[str] = ()
    on_host: bool = False


def tensors_of(priced: PricedOp) -> list[Tensor]:
    """The arguments of an op that are tensors."""
    return [one for one in priced.args if isinstance(one, Tensor)]


def all_tensors(args: Sequence[object]) -> Iterator[Tensor]:
    """The arguments that are tensors, those in lists of tensors too."""
    for one in args:
        yield from one if isinstance(one, tuple) and all(isinstance(each, Tensor) for each in one) else ()
        if isinstance(one, Tensor):
            yield one


def factors_of(priced: PricedOp) -> tuple[Tensor, Tensor] | None:
    """Both matrices, or batches of matrices, that a product multiplies; ``None`` for other ops."""
    place = _LEFT_FACTOR.get(priced.name, len(priced.args))
    factors = priced.args[place : place + 2]
    return factors if len(factors) == 2 and all(isinstance(one, Tensor) for one in factors) else None


def moved_bytes(priced: PricedOp) -> float:
    """The known bytes that an op moves through the main memory."""
    return float(priced.priced.cost.known(HBM)) if priced.priced.cost is not None else 0.0
