"""One step of a plan along time, on every pipeline stage: waits while the pipeline fills, its work by part, waits, the rest of the step.

In 1F1B stage s starts after s forward passes and ends s backward passes before the first; between its first forward and its first backward
pass it waits for the stages behind it. All stages wait as long in sum: the bubble.
"""

from msgspec import Struct

from .plans import Plan

LAST = ("data exchange", "optimizer")  # after the last microbatch
WAIT = "wait"
FORWARD_SHARE = 1 / 3  # of a microbatch's time
MOST_STAGES = 32


class Span(Struct, frozen=True, array_like=True):
    """Seconds of a stage from its start: work of one part, or a wait."""

    stage: int
    start_s: float
    time_s: float
    part: str


def spans(plan: Plan) -> tuple[Span, ...]:
    """What every stage does in a step; the parts of its work are summed over microbatches, in a fixed order."""
    stages = min(plan.mesh["pp"], MOST_STAGES)
    bubble = plan.parts.get("bubble", 0.0)
    work = [(part, seconds) for part, seconds in plan.parts.items() if part not in (*LAST, "bubble", "imbalance")]
    late = plan.parts.get("imbalance", 0.0)
    ending = [(part, plan.parts[part]) for part in LAST if part in plan.parts]
    timeline = []
    for stage in range(stages):
        behind = stage / max(1, stages - 1)  # of the bubble, before and after the work
        row = [(WAIT, FORWARD_SHARE * behind * bubble), *work, (WAIT, (1 - behind) * bubble + late)]
        row += [(WAIT, (1 - FORWARD_SHARE) * behind * bubble), *ending]
        start = 0.0
        for part, seconds in row:
            if seconds:
                timeline.append(Span(stage, start, seconds, part))
            start += seconds
    return tuple(timeline)
