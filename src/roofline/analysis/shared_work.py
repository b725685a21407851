"""Work that two programs of a step both do: the same products of arguments of the same names, shapes and formats."""

from collections.abc import Sequence

from msgspec.structs import replace

from ..cost import NOTHING
from ..workload import Avoidable, Op, source_line

KIND, CLASS = "duplicated-work", "duplicated"


def with_shared_work(ops: Sequence[Op]) -> tuple[Op, ...]:
    """The ops, with those marked that compute the same as an op of another program in the same steps.

    Ops of the longer program are not marked.
    """
    alike: dict[str, list[int]] = {}
    times: dict[str, float] = {}
    for place, op in enumerate(ops):
        times[op.module] = times.get(op.module, 0.0) + (op.time_s or 0.0)
        if op.value:
            alike.setdefault(op.value, []).append(place)
    marked = list(ops)
    for places in alike.values():
        first = max(places, key=lambda place: (times[ops[place].module], -place))
        for place in places:
            if ops[place].module != ops[first].module and _runs(ops[place]) == _runs(ops[first]):
                facts = {"program": _called(ops[first]), "caller": source_line(ops[place].caller)}
                reason = Avoidable(kind=KIND, instead=NOTHING, cause="program", facts=facts, unneeded=CLASS, extra=True)
                marked[place] = replace(ops[place], avoidable=(*ops[place].avoidable, reason))
    return tuple(marked)


def _called(op: Op) -> str:
    """A program's name, and where it is called."""
    return op.module.removeprefix("jit_") + (f" (called at {source_line(op.caller)})" if op.caller else "")


def _runs(op: Op) -> list[tuple[int, float]]:
    """How often an op runs in each step, or in total without steps."""
    return [(share.key, share.count) for share in op.by_step] or [(0, op.count)]
