"""Parses large JSON in pieces, because a single call could not be interrupted by Ctrl-C for seconds.

A document is cut at commas between the items of its long lists. They are found from brackets and quotes alone, some megabytes at a time.
"""

import re
from collections.abc import Iterator
from itertools import chain, pairwise
from typing import Any, TypeVar, get_args, get_origin

import msgspec

from ..errors import SourceError
from ..units import parse

BLOCK_BYTES = int(parse("1 MiB", "B"))  # searched for brackets and quotes at once
PIECE_BYTES = int(parse("4 MiB", "B"))  # decoded at once
LARGE_BYTES = int(parse("16 MiB", "B"))  # larger documents are parsed in pieces; a single item of a list must be smaller
_CHARACTERS = b'{[}],"\\'
_OBJECT, _LIST, _OBJECT_END, _LIST_END, _COMMA, _QUOTE, _BACKSLASH = range(1, len(_CHARACTERS) + 1)
_DEEPER = (0, 1, 1, -1, -1, 0)
_KINDS = bytes(_CHARACTERS.find(bytes([one])) + 1 for one in range(256))
_BACKSLASHES = re.compile(rb"\\*")
_KEY = re.compile(rb'"([^"\\]{1,100})"\s*:\s*\Z')
T = TypeVar("T", bound=msgspec.Struct)


def decode(data: bytes, kind: type[T]) -> T:
    """The document as a struct, whose long lists are decoded in pieces; errors are those of msgspec."""
    if len(data) < LARGE_BYTES:
        return msgspec.json.decode(data, type=kind)
    types = {field.encode_name: (field.name, field.type) for field in msgspec.structs.fields(kind)}
    values: dict[str, tuple[Any, ...]] = {}
    rest, done = [], 0
    for key, places in _long_lists(data):
        name, type = types.get(key, ("", tuple[Any, ...]))
        if get_origin(type) is not tuple:  # not a list in the struct: left in place, so that decoding reports the error
            continue
        decoder = msgspec.json.Decoder(list[get_args(type)[0]])  # type: ignore[misc]
        pieces = [decoder.decode(b"[" + _checked_size(data[begin + 1 : end]) + b"]") for begin, end in pairwise(places)]
        if len(pieces) > 1 and not pieces[-1]:
            raise msgspec.DecodeError(f"JSON is malformed: a comma without an item after it (byte {places[-1]})")
        if name:
            values[name] = tuple(chain.from_iterable(pieces))
        rest += [data[done : places[0]], b"[]"]
        done = places[-1] + 1
    return msgspec.structs.replace(msgspec.json.decode(_checked_size(b"".join([*rest, data[done:]])), type=kind), **values)


def check_rows_end(data: bytes, name: str) -> None:
    """Raises an error if a large table has a very long row: Python's JSON parser can be interrupted only after each row."""
    if len(data) < LARGE_BYTES:
        return
    import numpy as np

    last = 0
    for places, kinds, _ in _structure(data):
        ends = np.concatenate([[last], places[kinds == _OBJECT_END]])
        last = int(ends[-1])
        if np.diff(ends).max(initial=0) > LARGE_BYTES or (len(places) and int(places[-1]) - last > LARGE_BYTES):
            raise SourceError(f"{name}: not a table: {LARGE_BYTES:,} bytes of JSON without the end of a row")


def _checked_size(piece: bytes) -> bytes:
    if len(piece) > LARGE_BYTES:
        raise msgspec.DecodeError(f"a value of more than {LARGE_BYTES:,} bytes")
    return piece


def _long_lists(data: bytes) -> Iterator[tuple[str, list[int]]]:
    """The lists in the outermost object that extend over more than one block.

    Each is given by its key and the places of its opening bracket, of the commas at which it is cut, and of its closing bracket.
    """
    found: list[int] = []  # the places of the current list
    for places, kinds, depths in _structure(data):
        top = depths <= 2
        places, kinds, depths = places[top], kinds[top], depths[top]
        ends = places[(depths == 1) & (kinds >= _OBJECT_END) & (kinds <= _LIST_END)]
        if found and len(ends):
            if data[ends[0]] == _CHARACTERS[_LIST_END - 1] and (key := _KEY.search(data, max(0, found[0] - 200), found[0])):
                yield key[1].decode("utf-8", "replace"), [*found, int(ends[0])]
            found = []
        begins = places[(depths == 2) & (kinds == _LIST)]
        if not found and len(begins) and (not len(ends) or begins[-1] > ends[-1]):
            found = [int(begins[-1])]
        if found:
            commas = places[(depths == 2) & (kinds == _COMMA)]
            if len(commas) and commas[-1] > found[-1] + PIECE_BYTES:
                found.append(int(commas[-1]))


def _structure(data: bytes) -> "Iterator[tuple[Any, Any, Any]]":
    """Brackets and commas outside of strings, block by block: their places, their kinds, and the nesting depth after each."""
    import numpy as np

    begin = depth = quoted = 0
    while begin < len(data):
        end = min(begin + BLOCK_BYTES, len(data))
        if data[end - 1] == _CHARACTERS[_BACKSLASH - 1] and (run := _BACKSLASHES.match(data, end)):
            end = min(run.end() + 1, len(data))  # a block must not end between a backslash and the escaped character
        block = np.frombuffer(data[begin:end].translate(_KINDS), np.uint8)
        places = np.flatnonzero(block)
        kinds = block[places]
        quotes = kinds == _QUOTE
        if (kinds == _BACKSLASH).any():
            quotes &= ~np.isin(places, _escaped(places[kinds == _BACKSLASH]), assume_unique=True)
        inside = (np.cumsum(quotes, dtype=np.uint8) + np.uint8(quoted)) & 1  # overflow does not change the lowest bit
        quoted = int(inside[-1]) if len(inside) else quoted
        use = (inside == 0) & (kinds < _QUOTE)
        places, kinds = places[use], kinds[use]
        depths = depth + np.cumsum(np.array(_DEEPER, np.int64)[kinds])
        depth = int(depths[-1]) if len(depths) else depth
        yield places + begin, kinds, depths
        begin = end


def _escaped(backslashes: Any) -> Any:
    """The places of escaped characters: those after a backslash that is not escaped itself (the first, third, … of a run)."""
    import numpy as np

    order = np.arange(len(backslashes))
    begins = np.diff(backslashes, prepend=-2) != 1
    first = np.maximum.accumulate(np.where(begins, order, 0))
    return backslashes[(order - first) % 2 == 0] + 1
