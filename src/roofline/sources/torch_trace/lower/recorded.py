"""The input of a graph: executions of the first steps on one device, in order, each with the price of its op."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from ....graph import CPU, GPU_BY_REQUEST, Backend, Phase
from ..executions import Execution
from ..pricing import PricedOp

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

    @property
    def phases(self) -> Iterator[Phase]:
        """The phase of each execution. A recomputed one does what one of the forward pass does: gradients of gradients are recorded too."""
        contexts = [(execution.context, id(priced)) for execution, priced in self.ordered]
        forward = {priced for context, priced in contexts if not context.backward and not context.optimizer}
        for context, priced in contexts:
            if context.recomputed and priced in forward:
                yield Phase.RECOMPUTED
            elif context.optimizer:
                yield Phase.UPDATE
            else:
                yield Phase.BACKWARD if context.backward else Phase.FORWARD

    @property
    def backend(self) -> Backend:
        """What the programs run on."""
        return CPU if self.on_host else GPU_BY_REQUEST


def forced(place: int, execution: Execution, priced: PricedOp) -> set[int]:
    """The kernel of an execution, if it is a copy in an operator whose layout the program does not choose."""
    return {place} if execution.context.fixed_layout and priced.priced.category == "copy" else set()
