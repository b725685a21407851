"""Serialises parts for the cache. Unlike a pickle, the bytes cannot run code: unpacking them only creates values.

The format is JSON; each value is a list that begins with its type: ``["Instance", "train", 4, 0]``, ``["tuple", …]``,
``["dict", key, value, …]``. Integers have any length, floats are exact and fractions have two integers, so an unpacked part is equal to the
original.
"""

import json
from collections.abc import Callable, Mapping
from enum import Enum
from fractions import Fraction
from typing import Any

from msgspec import StructMeta

from ..cost import Cost
from ..dtypes import DType
from ..errors import RooflineError
from ..graph import backend, graph, operators
from ..operation import Attention, Collective, Convolution, Product, RowWise, Streamed
from ..resource import Resource
from ..workload import Array, Avoidable, Hardware, Saves, Usual
from .parts import DevicePart, Extent, IdleKey, IdleTally, Instance, Lane, Launched, Part, PartGraph, Share, Subject, Tally

OPERATIONS = (Attention, Collective, Convolution, Product, RowWise, Streamed)
STRUCTS = (
    Array,
    Avoidable,
    Cost,
    DType,
    DevicePart,
    Extent,
    Hardware,
    IdleKey,
    IdleTally,
    Instance,
    Lane,
    Launched,
    Part,
    PartGraph,
    Share,
    Subject,
    Tally,
    *OPERATIONS,
)
OF_GRAPHS = {
    f"graph.{name}": type for module in (backend, graph, operators) for name, type in vars(module).items() if isinstance(type, StructMeta)
}
TYPES = {type.__name__: type for type in STRUCTS} | OF_GRAPHS
NAMES: dict[Any, str] = {type: name for name, type in TYPES.items()}
FIELDS = {name: type.__struct_fields__ for name, type in TYPES.items()}
PLAIN = (type(None), bool, int, float, str)


def pack(part: Part) -> bytes:
    """A part as bytes."""
    return json.dumps(_to_json(part), separators=(",", ":")).encode()


def unpack(data: bytes) -> Part:
    """The part that was packed; a `ValueError` if the bytes are not a packed part."""
    try:
        part = _from_json(json.loads(data))
    except (TypeError, KeyError, IndexError, RecursionError, ArithmeticError, RooflineError) as error:
        raise ValueError(f"not a part of a profile: {error!r}") from None
    if not isinstance(part, Part):
        raise ValueError(f"not a part of a profile: a {type(part).__name__}")
    return part


def _to_json(value: Any) -> Any:
    kind = type(value)
    if kind in PLAIN:
        return value
    name: str = NAMES.get(kind) or kind.__name__
    if name in FIELDS:
        return [name, *(_to_json(getattr(value, field)) for field in FIELDS[name])]
    if isinstance(value, Mapping):
        return ["dict", *(_to_json(one) for pair in value.items() for one in pair)]
    if kind in (tuple, list):
        return [name, *map(_to_json, value)]
    if kind in (set, frozenset):
        return [name, *map(_to_json, sorted(value))]
    if kind is Resource:
        return [name, value.name]
    if isinstance(value, Enum):
        return [name, value.value]
    if kind is range:
        return [name, value.start, value.stop, value.step]
    if kind is Fraction:
        return [name, value.numerator, value.denominator]
    raise TypeError(f"a part holds a {name}, which has no packed form")


_MAKERS: dict[str, Callable[[list[Any]], Any]] = {
    "dict": lambda values: dict(zip(values[::2], values[1::2], strict=True)),
    "tuple": tuple,
    "list": list,
    "set": set,
    "frozenset": frozenset,
    "range": lambda values: range(*values),
    "Operator": lambda values: operators.Operator(*values),
    "Phase": lambda values: graph.Phase(*values),
    "Resource": lambda values: Resource(*values),
    "Saves": lambda values: Saves(*values),
    "Usual": lambda values: Usual(*values),
    "Fraction": lambda values: Fraction(*values),
}


def _from_json(packed: Any) -> Any:
    if not isinstance(packed, list):
        return packed
    name, values = packed[0], [_from_json(one) for one in packed[1:]]
    if name in _MAKERS:
        return _MAKERS[name](values)
    return TYPES[name](**dict(zip(FIELDS[name], values, strict=True)))
