"""Findings about ops that take longer than expected on this chip."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from ..report import Finding
from ..units import approximate
from .excess_causes import VisibleCause
from .finding_kinds import Kinds
from .finding_words import COMPILED, at_place, op_name, with_saving
from .op_times import OpTime, OpTimes
from .program_clock import Clock, Saving


def excess_findings(
    op_times: OpTimes, slow: list[tuple[OpTime, float]], clock: Clock, kinds: Kinds, why: Callable[[Sequence[OpTime]], list[VisibleCause]]
) -> list[Finding]:
    """Ops that take longer than expected on this chip, one finding per family of predictions, the one with the most excess first."""
    families: dict[str, list[tuple[OpTime, float]]] = {}
    for one, seconds in slow:
        families.setdefault(one.prediction.family if one.prediction else "", []).append((one, seconds))
    found = []
    for members in families.values():
        saving = Saving.of([one.id for one, _ in members], [seconds for _, seconds in members], clock)
        if saving.steps_s < clock.notable_s:
            continue
        members.sort(key=lambda each: -each[1])
        ops = [one for one, _ in members]
        ids = [one.id for one in ops]
        kind = kinds["excess"]
        worst = f"{op_name(ops[0].op)}{f' and {len(ops) - 1:,} more' if len(ops) > 1 else ''}"
        times = f"{approximate(ops[0].spent_s / (ops[0].spent_s - members[0][1]), 2)} times"
        excess = f"{at_place(op_times, ids)}{worst} {'take' if len(ops) > 1 else 'takes'} {times}"
        spent = clock.of(clock.spent(op_times, ids))
        causes = why(ops)
        reasons = "".join(f"{one.sentence} " for one in causes)
        message = f"{excess} the usual time of such ops on this chip: {spent}. {reasons}{kind.change}: {clock.after(saving.steps_s)}."
        if kind.compiled and ops[0].op.category.endswith(COMPILED):
            kind = replace(kind, levers=kind.compiled)
        if causes:
            kind = replace(kind, levers=tuple(one.lever for one in causes))
        found.append(with_saving("excess", kind, message, ids, saving, clock))
    return found
