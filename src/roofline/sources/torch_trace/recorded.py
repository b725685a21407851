"""The input of a graph: executions of the first steps on one device, in order, each with the price of its op."""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from .executions import Execution
from .pricing import PricedOp

PricedExecution = tuple[Execution, PricedOp]


class Recorded(Struct, kw_only=True):
    """Executions in order, and the gradients of their ops.

    ``accumulated`` has step, op and shape of each accumulated gradient; with ``has_shards`` these may not be the shapes of the weights.
    ``sequence`` gives the sequence number of an execution's op, which its gradient shares, or `NONE`. ``checkpoints`` are the user's lines
    that call torch.utils.checkpoint. ``on_host`` is whether a CPU ran them. ``converted`` is the share of an op's time in which a library
    changes layouts, by its ``id``.
    """

    ordered: Sequence[PricedExecution]
    accumulated: Sequence[tuple[int, int, tuple[int, ...]]]
    has_shards: bool
    sequence: Callable[[Execution], int]
    checkpoints: Sequence[str] = ()
    on_host: bool = False
    converted: Mapping[int, float] = {}
