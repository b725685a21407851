"""Unneeded work in a PyTorch trace (recomputed, padded, duplicated…), and work that would be cheaper if it were written differently.

`Patterns.avoidable` adds what can be seen from one op alone. `second_passes` runs before, as passes that run again get other contexts.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice

from ....rule_failures import RuleFailures
from ....workload import Avoidable
from ..context import Context, Contexts
from ..lower import graph_of
from ..pricing import PricedOp, Prices
from ..recorded import PricedExecution, Recorded
from ..used_tensors import UsedTensors
from .channel_order import channels_first, converted_shares
from .second_passes import repeated_pass

MOST_SHOWN = 2  # lines that call torch.utils.checkpoint


class Patterns:
    """Avoidable work of ops, found in the executions of the first steps."""

    def __init__(
        self,
        in_order: Sequence[PricedExecution],
        priced: Sequence[int],
        prices: Prices,
        contexts: Contexts,
        time: Callable[[int], int],
        tensors: UsedTensors | None,
    ) -> None:
        """``in_order`` are the executions of the first steps, ``priced`` the numbers of all prices; ``time`` gives an event's duration;
        ``tensors`` are those that ops used, if the trace has them.
        """
        self._contexts = contexts
        self._failures = RuleFailures("this trace")
        attempt = self._failures.attempt
        self._converted = (
            attempt("channel order", converted_shares, in_order, lambda event: str(prices.names[prices.kernel(event)[0]]), time) or {}
        )
        recorded = Recorded(
            ordered=in_order,
            accumulated=prices.gradients,
            has_shards=(prices.world or 1) > 1,
            sequence=lambda one: contexts.sequence(one.op),
            checkpoints=[line.rpartition("/")[2] for line in islice(contexts.checkpoints, MOST_SHOWN)],
            on_host=any(prices.names[prices.kernel(one.events[0])[0]] == op.name for one, op in in_order[:1] if len(one.events)),
        )
        self.graph = attempt("graphs", graph_of, recorded, tensors)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on rules that failed."""
        return self._failures.notes

    def avoidable(self, priced: PricedOp, context: Context) -> tuple[Avoidable, ...]:
        """The avoidable work of an op in a context."""
        attempt, converted = self._failures.attempt, self._converted.get(id(priced), 0.0)
        return (
            *((repeated_pass(context.again, backward=context.backward),) if context.again is not None else ()),
            *priced.priced.recomputed,
            *(attempt("channel order", partial(channels_first, converting=bool(self._converted)), priced, converted) or ()),
        )
