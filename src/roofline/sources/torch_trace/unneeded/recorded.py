"""What the rules look at: executions of the first steps on one device as they ran, each with the price of its op."""

from collections.abc import Iterator, Sequence

from ....torch_prices import Tensor
from ..context import Contexts
from ..executions import Execution
from ..pricing import PricedOp, Prices

PricedExecution = tuple[Execution, PricedOp]


class Recorded:
    """Executions in order, and what the trace says of the gradients of their ops."""

    def __init__(self, ordered: Sequence[PricedExecution], prices: Prices, contexts: Contexts) -> None:
        self.ordered = ordered
        self.accumulated = prices.gradients  # each by its step, the place of its op on the host, and its shape
        self.has_shards = (prices.world or 1) > 1  # whose shapes are not those of the weights
        self._contexts = contexts

    def sequence(self, one: Execution) -> int:
        """The number that an op has in common with its gradient, or `NONE`."""
        return self._contexts.sequence(one.op)

    def has_gradient(self, number: int) -> bool:
        """Whether a backward pass ran for the op of a sequence number."""
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
