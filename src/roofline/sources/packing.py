"""A part as bytes, and back: what the cache keeps. It is data, not code: whatever is in the bytes, reading them only makes values.

JSON of lists that begin with what they stand for: ``["Instance", "train", 4, 0]``, ``["tuple", …]``, ``["dict", key, value, …]``. Integers
have any length, floats their shortest exact spelling and fractions both their numbers, so a part comes back equal to the last digit.
"""

import json
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from ..cost import Cost
from ..errors import RooflineError
from ..operation import Attention, Collective, Convolution, Product, RowWise, Streamed
from ..resource import Resource
from ..workload import Array, Avoidable, Hardware
from .parts import DevicePart, Extent, IdleKey, IdleTally, Instance, Lane, Launched, Part, Share, Subject, Tally

OPERATIONS = (Attention, Collective, Convolution, Product, RowWise, Streamed)
MADE = (
    Array,
    Avoidable,
    Cost,
    DevicePart,
    Extent,
    Hardware,
    IdleKey,
    IdleTally,
    Instance,
    Lane,
    Launched,
    Part,
    Share,
    Subject,
    Tally,
    *OPERATIONS,
)
VALUES = {made.__name__: made for made in MADE}
FIELDS = {name: made.__struct_fields__ for name, made in VALUES.items()}
PLAIN = (type(None), bool, int, float, str)


def pack(part: Part) -> bytes:
    """A part as bytes."""
    return json.dumps(_flat(part), separators=(",", ":")).encode()


def unpack(data: bytes) -> Part:
    """The part that was packed; a `ValueError` for bytes that no part was packed into."""
    try:
        part = _whole(json.loads(data))
    except (TypeError, KeyError, IndexError, RecursionError, ArithmeticError, RooflineError) as error:
        raise ValueError(f"not a part of a profile: {error!r}") from None
    if not isinstance(part, Part):
        raise ValueError(f"not a part of a profile: a {type(part).__name__}")
    return part


def _flat(held: Any) -> Any:
    kind = type(held)
    if kind in PLAIN:
        return held
    name: str = kind.__name__
    if name in FIELDS:
        return [name, *(_flat(getattr(held, field)) for field in FIELDS[name])]
    if isinstance(held, Mapping):
        return ["dict", *(_flat(one) for pair in held.items() for one in pair)]
    if kind in (tuple, list):
        return [name, *map(_flat, held)]
    if kind is frozenset:
        return [name, *map(_flat, sorted(held))]
    if kind is Resource:
        return [name, held.name]
    if kind is Fraction:
        return [name, held.numerator, held.denominator]
    raise TypeError(f"a part holds a {name}, which has no packed form")


_MAKERS: dict[str, Callable[[list[Any]], Any]] = {
    "dict": lambda held: dict(zip(held[::2], held[1::2], strict=True)),
    "tuple": tuple,
    "list": list,
    "frozenset": frozenset,
    "Resource": lambda held: Resource(*held),
    "Fraction": lambda held: Fraction(*held),
}


def _whole(flat: Any) -> Any:
    if not isinstance(flat, list):
        return flat
    name, held = flat[0], [_whole(one) for one in flat[1:]]
    if name in _MAKERS:
        return _MAKERS[name](held)
    return VALUES[name](**dict(zip(FIELDS[name], held, strict=True)))
