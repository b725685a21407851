"""The input of the rules: executions of the first steps on one device, in order, each with the price of its op."""

from collections.abc import Iterator, Sequence

from ....torch_prices import Tensor
from ..context import Contexts
from ..executions import Execution
from ..pricing import PricedOp, Prices

PricedExecution = tuple[Execution, PricedOp]


class Recorded:
    """Executions in order, and the gradients of their ops."""

    def __init__(self, ordered: Sequence[PricedExecution], prices: Prices, contexts: Contexts) -> None:
        self.ordered = ordered
        self.accumulated = prices.gradients  # step, op and shape of each accumulated gradient
        self.has_shards = (prices.world or 1) > 1  # with several ranks, gradients may not have the shapes of the weights
        self._contexts = contexts

    def sequence(self, one: Execution) -> int:
        """The sequence number of an op, which its gradient shares, or `NONE`."""
        return self._contexts.sequence(one.op)

    def has_gradient(self, number: int) -> bool:
        """Whether the gradient of the op with this sequence number was computed."""
        return number in self._contexts.differentiated


def tensors_of(priced: PricedOp) -> list[Tensor]:
    """The arguments of an op that are tensors."""
    return [one for one in priced.args if isinstance(one, Tensor)]


def all_tensors_of(priced: PricedOp) -> Iterator[Tensor]:
    """The arguments of an op that are tensors, those in lists of tensors too."""
    for one in priced.args:
        yield from one if isinstance(one, tuple) and all(isinstance(each, Tensor) for each in one) else ()
        if isinstance(one, Tensor):
            yield one
