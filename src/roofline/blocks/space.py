"""Configurations to try: all combinations of a space, or a list."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from ..errors import UsageError

MOST = 2000
Space = Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]


def configurations(space: Space) -> list[dict[str, Any]]:
    """The configurations of a space, or of a list of them.

    >>> configurations({"BM": (64, 128), "num_warps": (4,)})
    [{'BM': 64, 'num_warps': 4}, {'BM': 128, 'num_warps': 4}]
    """
    if isinstance(space, Mapping):
        for name, values in space.items():
            if isinstance(values, str) or not isinstance(values, Sequence) or not values:
                raise UsageError(f"space: {name} needs a list of values, such as (64, 128)")
        found = [dict(zip(space, values, strict=True)) for values in product(*space.values())]
    else:
        found = [dict(config) for config in space]
    if not found:
        raise UsageError("no configurations; give a space, such as {'BM': (64, 128), 'num_warps': (4, 8)}")
    if len(found) > MOST:
        raise UsageError(f"the space has {len(found):,} configurations; at most {MOST:,} are compiled")
    return found
