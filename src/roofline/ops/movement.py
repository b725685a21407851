"""Bytes of the arrays that one launch moves."""

from collections.abc import Iterable

from ..cost import Cost
from ..resource import Resource


def moved(arrays: Iterable[tuple[Resource, int | None]]) -> Cost:
    """The bytes of arrays by the memory or link that they cross; where a size is not known, unknown besides the known part."""
    total: dict[Resource, int] = {}
    unknown = set()
    for place, size in arrays:
        total[place] = total.get(place, 0) + (size or 0)
        if size is None:
            unknown.add(place)
    return Cost(Cost.of(total).amounts, frozenset(unknown))
