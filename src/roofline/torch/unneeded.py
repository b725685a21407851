"""Avoidable work of a function's calls, by the rules for PyTorch traces that look at operators and shapes alone."""

from collections.abc import Callable, Sequence

from ..rule_failures import RuleFailures
from ..rules import RULES
from ..rules.kernel_names import with_kernel_name
from ..sources.torch_trace.columns import NONE
from ..sources.torch_trace.context import Context
from ..sources.torch_trace.executions import Execution
from ..sources.torch_trace.pricing import PricedOp
from ..sources.torch_trace.unneeded import BY_SHAPE
from ..sources.torch_trace.unneeded.recorded import PricedExecution, Recorded
from ..torch_prices import Call, Priced
from ..workload import Avoidable
from .lower import graph_of
from .recorder import BACKWARD, Kept, Seen

UNUSED = "unused-results"


def avoidable_in(
    calls: Sequence[Seen], price: Callable[[Call], Priced], kept: Kept, failures: RuleFailures
) -> dict[int, tuple[Avoidable, ...]]:
    """The avoidable work of calls that shows in other calls, by their place. ``kept`` is what is live when the function ends."""
    ops: dict[tuple[object, ...], PricedOp] = {}
    contexts: dict[Context, Context] = {}
    ordered: list[PricedExecution] = []
    for place, seen in enumerate(calls):
        call = seen.call
        key = (call.op, call.overload, call.args, call.outputs)
        if key not in ops:
            ops[key] = PricedOp(call.op, call.args, price(call))
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
    graph = failures.attempt("graphs", graph_of, calls, [op.priced for _, op in ordered], kept)
    found: dict[int, dict[str, Avoidable]] = {}

    def name(place: int) -> str:
        seen = calls[place]
        return f"{seen.call.op.rpartition('::')[2]} at {seen.location}" if seen.location else seen.call.op.rpartition("::")[2]

    for place, reason in failures.evidence(RULES, graph) if graph is not None else ():
        found.setdefault(place, {}).setdefault(reason.kind, with_kernel_name(reason, name))
    for (one, _), reason in failures.evidence(BY_SHAPE, recorded):
        if not (reason.kind == UNUSED and any(number in kept for number, _ in calls[one.op].writes)):  # the caller may use all of it
            found.setdefault(one.op, {})[reason.kind] = reason
    return {place: tuple(reasons.values()) for place, reasons in sorted(found.items())}
