"""Avoidable work of a function's calls, by the rules for PyTorch traces that look at operators and shapes alone."""

from collections.abc import Sequence

from ..rule_failures import RuleFailures
from ..sources.torch_trace.columns import NONE
from ..sources.torch_trace.context import Context
from ..sources.torch_trace.executions import Execution
from ..sources.torch_trace.pricing import PricedOp
from ..sources.torch_trace.unneeded import BY_SHAPE
from ..sources.torch_trace.unneeded.recorded import PricedExecution, Recorded
from ..torch_prices import Priced
from ..workload import Avoidable
from .recorder import BACKWARD, Kept, Seen

UNUSED = "unused-results"


def avoidable_in(calls: Sequence[Seen], prices: Sequence[Priced], kept: Kept, failures: RuleFailures) -> dict[int, tuple[Avoidable, ...]]:
    """The avoidable work of calls that shows in other calls, by their place. ``kept`` is what is live when the function ends."""
    ops: dict[tuple[object, ...], PricedOp] = {}
    contexts: dict[Context, Context] = {}
    ordered: list[PricedExecution] = []
    for place, (seen, price) in enumerate(zip(calls, prices, strict=True)):
        call = seen.call
        key = (call.op, call.overload, call.args, call.outputs)
        if key not in ops:
            ops[key] = PricedOp(call.op, call.args, price)
        context = Context(
            scope=tuple(seen.scope.split("/")), location=seen.location, backward=seen.phase == BACKWARD, recomputed=seen.again
        )
        one = Execution(place, place, 0, 0, events=[place], context=contexts.setdefault(context, context))
        ordered.append((one, ops[key]))
    recorded = Recorded(
        ordered=ordered,
        accumulated=(),
        has_shards=False,
        sequence=lambda one: calls[one.op].sequence,
        differentiated=frozenset(seen.sequence for seen in calls if seen.phase == BACKWARD and seen.sequence != NONE),
    )
    found: dict[int, dict[str, Avoidable]] = {}
    for (one, _), reason in failures.evidence(BY_SHAPE, recorded):
        if not (reason.kind == UNUSED and any(number in kept for number, _ in calls[one.op].writes)):  # the caller may use all of it
            found.setdefault(one.op, {})[reason.kind] = reason
    return {place: tuple(reasons.values()) for place, reasons in sorted(found.items())}
