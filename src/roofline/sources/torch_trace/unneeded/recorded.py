"""The input of the rules: executions of the first steps on one device, in order, each with the price of its op."""

from collections.abc import Callable, Collection, Iterator, Sequence

from msgspec import Struct

from ....torch_prices import Tensor
from ..executions import Execution
from ..pricing import PricedOp

PricedExecution = tuple[Execution, PricedOp]


class Recorded(Struct, kw_only=True):
    """Executions in order, and the gradients of their ops.

    ``accumulated`` has step, op and shape of each accumulated gradient; with ``has_shards`` these may not be the shapes of the weights.
    ``sequence`` gives the sequence number of an execution's op, which its gradient shares, or `NONE`; ``differentiated`` has the numbers
    of the ops whose gradient was computed.
    """

    ordered: Sequence[PricedExecution]
    accumulated: Sequence[tuple[int, int, tuple[int, ...]]]
    has_shards: bool
    sequence: Callable[[Execution], int]
    differentiated: Collection[int]

    def has_gradient(self, number: int) -> bool:
        """Whether the gradient of the op with this sequence number was computed."""
        return number in self.differentiated


def tensors_of(priced: PricedOp) -> list[Tensor]:
    """The arguments of an op that are tensors."""
    return [one for one in priced.args if isinstance(one, Tensor)]


def all_tensors_of(priced: PricedOp) -> Iterator[Tensor]:
    """The arguments of an op that are tensors, those in lists of tensors too."""
    for one in priced.args:
        yield from one if isinstance(one, tuple) and all(isinstance(each, Tensor) for each in one) else ()
        if isinstance(one, Tensor):
            yield one
