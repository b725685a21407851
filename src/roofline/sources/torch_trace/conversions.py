"""The share of an op's time in kernels with which a library converts a tensor between channels first and channels last, by their names."""

import re
from collections.abc import Callable, Sequence

from .lower.recorded import PricedExecution

_CONVERTS = re.compile(r"n(?:c(?:d?hw|x))To_?n(?:d?hwc|xc)|n(?:d?hwc|xc)To_?nc(?:d?hw|x)", re.IGNORECASE)


def converted_shares(executions: Sequence[PricedExecution], name: Callable[[int], str], time: Callable[[int], int]) -> dict[int, float]:
    """That share, by ``id`` of the priced op; ``name`` gives the name of an event's kernel, ``time`` its duration."""
    whole, converted = dict[int, int](), dict[int, int]()
    for execution, priced in executions:
        for event in execution.events if len(execution.events) > 1 else ():
            whole[id(priced)] = whole.get(id(priced), 0) + time(event)
            if _CONVERTS.search(name(event)):
                converted[id(priced)] = converted.get(id(priced), 0) + time(event)
    return {key: spent / whole[key] for key, spent in converted.items() if whole[key]}
