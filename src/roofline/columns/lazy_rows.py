"""Lazy rows: a sequence over columns that makes a row only when it is read.

`column` returns one field of all rows, whether they are stored as rows or in columns:

>>> squares = LazyRows(range(3), lambda place: complex(place, place**2), lambda name, places: [place**2 for place in places])
>>> squares[2], column(squares, "imag"), column([1j, 2j], "imag")
((2+4j), [0, 1, 4], [1.0, 2.0])
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count
from operator import attrgetter
from typing import Any, TypeVar, overload

Row = TypeVar("Row")
Value = TypeVar("Value")
Entries = dict[str, list[Any]]
Columns = Callable[[str, Sequence[int]], "list[Any] | Entries | None"]
ABSENT: Any = object()  # marks a key that a row does not have


class LazyRows(Sequence[Row]):
    """A sequence whose rows are made on demand.

    ``places`` are the indices of its rows in the columns, in order. ``make`` makes the row at an index; ``columns`` returns one field of
    the rows at some indices (a mapping field by its keys), or ``None`` if that field needs the rows themselves. ``make_all`` makes several
    rows, where that is faster than one by one.
    """

    def __init__(
        self,
        places: Sequence[int],
        make: Callable[[int], Row],
        columns: Columns,
        make_all: "Callable[[Sequence[int]], Iterable[Row]] | None" = None,
    ) -> None:
        self._places = places
        self._make = make
        self._columns = columns
        self._make_all = make_all
        self._made: tuple[Row, ...] | None = None
        self._kept: dict[str, list[Any]] = {}

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> "LazyRows[Row]": ...
    def __getitem__(self, index: int | slice) -> "Row | LazyRows[Row]":
        if isinstance(index, slice):
            return self._at(self._places[index])
        return self._make(self._places[index]) if self._made is None else self._made[index]

    def __iter__(self) -> Iterator[Row]:
        if self._made is None:
            self._made = tuple(self._make_all(self._places) if self._make_all else map(self._make, self._places))
        return iter(self._made)

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, tuple | LazyRows) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (tuple(self),)

    def take(self, indices: Sequence[int]) -> "LazyRows[Row]":
        """Some of the rows, by their indices."""
        return self if indices == range(len(self)) else self._at(values_at(self._places, indices))

    def _at(self, places: Sequence[int]) -> "LazyRows[Row]":
        return LazyRows(places, self._make, self._columns, self._make_all)

    @cached_property
    def unsorted(self) -> "LazyRows[Row]":
        """The same rows in the order of the columns, in which columns need no reordering."""
        return self._at(range(len(self))) if len(self) == max(self._places, default=-1) + 1 else self

    def column(self, name: str) -> list[Any]:
        """One field of all rows. The list is cached: do not modify it."""
        if name not in self._kept:
            self._kept[name] = self._column(name)
        return self._kept[name]

    def _column(self, name: str) -> list[Any]:
        found = self._columns(name, self._places)
        if isinstance(found, dict):
            return mappings(found, len(self))
        return list(map(attrgetter(name), self)) if found is None else found

    def entries(self, name: str) -> Entries:
        """A field that is a mapping, by its keys."""
        found = self._columns(name, self._places)
        return found if isinstance(found, dict) else by_key(self.column(name))


def column(rows: Sequence[Any], name: str) -> list[Any]:
    """One field of rows."""
    return rows.column(name) if isinstance(rows, LazyRows) else list(map(attrgetter(name), rows))


def unsorted(rows: Sequence[Row]) -> Sequence[Row]:
    """The same rows in the order that is cheapest."""
    return rows.unsorted if isinstance(rows, LazyRows) else rows


def take(rows: Sequence[Row], indices: Sequence[int]) -> Sequence[Row]:
    """Some rows, by their indices."""
    return rows.take(indices) if isinstance(rows, LazyRows) else [rows[index] for index in indices]


def values_at(values: Sequence[Value], places: Sequence[int]) -> Sequence[Value]:
    """The values at some indices; the list itself if those are all.

    >>> values_at("roof", [0, 3]), values_at("roof", range(4))
    (['r', 'f'], 'roof')
    """
    if places == range(len(values)):
        return values
    return places if values == range(len(values)) else list(map(values.__getitem__, places))  # type: ignore[return-value]


def places_of(values: Sequence[int], wanted: Sequence[int]) -> Sequence[int]:
    """The indices of these values, without values that do not occur.

    >>> places_of([7, 5, 6], [6, 8, 7]), places_of([0, 1, 2], [2, 0])
    ([2, 0], [2, 0])
    """
    if values == [*range(len(values))] and min(wanted, default=0) >= 0 and max(wanted, default=-1) < len(values):
        return wanted  # ids of ops are usually their indices
    places = dict(zip(values, count(), strict=False))
    return [place for place in map(places.get, wanted) if place is not None]


def entries(rows: Sequence[Any], name: str) -> Entries:
    """A field of rows that is a mapping, by its keys; `ABSENT` where a row lacks one.

    >>> from types import SimpleNamespace as Row
    >>> [values.count(ABSENT) for values in entries([Row(bytes={"hbm": 1}), Row(bytes={})], "bytes").values()]
    [1]
    """
    return rows.entries(name) if isinstance(rows, LazyRows) else by_key(column(rows, name))


def mappings(found: Entries, count: int) -> list[dict[str, Any]]:
    """The entries of ``count`` rows as one mapping per row, without those that are `ABSENT`."""
    each = zip(*found.values(), strict=True) if found else [()] * count
    if not any(ABSENT in values for values in found.values()):
        return [dict(zip(found, values, strict=True)) for values in each]
    return [{key: value for key, value in zip(found, values, strict=True) if value is not ABSENT} for values in each]


def by_key(rows: Sequence[Mapping[str, Any]]) -> Entries:
    """Mappings by their keys; `ABSENT` where one lacks a key."""
    return {key: [row.get(key, ABSENT) for row in rows] for key in dict.fromkeys(key for row in rows for key in row)}
