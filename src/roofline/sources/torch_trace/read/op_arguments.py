"""Parses the arguments of ops in traces: four lists with dimensions, types, strides and values, in the order of the op's schema."""

import math
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from ....operation import Label
from ....torch_prices import CPP_TYPES, Tensor

_TENSORS = ("TensorList", "Tensor[]")
_NUMBER = re.compile(r"-?\d+")
_LARGEST = 2**63 - 1  # the most elements of a tensor, and the largest integer that PyTorch writes
_WORDS = {"True": True, "False": False, "None": None, "": None}


def arguments(text: bytes) -> tuple[Any, ...]:
    """The arguments of a call from its dimensions, types, strides and values: four JSON lists with zero bytes between them.

    >>> arguments(b'[[8], []]' + bytes(1) + b'["float", "Scalar"]' + bytes(1) + b'[[1], []]' + bytes(1) + b'["", "0.5"]')[1]
    0.5
    """
    dims, types, strides, values = (_list(line) for line in text.split(b"\0"))
    return tuple(_argument(kind, _at(dims, place), _at(strides, place), _at(values, place)) for place, kind in enumerate(types))


def _list(text: bytes) -> list[Any]:
    try:
        value = msgspec.json.decode(text) if text else []
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    return value if isinstance(value, list) else []


def _at(values: Sequence[Any], place: int) -> Any:
    return values[place] if place < len(values) else None


def _argument(kind: Any, dims: Any, strides: Any, value: Any) -> Any:
    number = CPP_TYPES.get(kind) if isinstance(kind, str) else None
    if kind in _TENSORS or (isinstance(dims, list) and dims and all(isinstance(size, list) for size in dims)):
        return _tensors(dims, strides)
    if number is not None or (isinstance(dims, list) and dims):
        return _tensor(dims, number, strides)
    return _value(value)


def _tensors(dims: Any, strides: Any) -> tuple[Tensor, ...] | None:
    """The tensors of a list; traces do not record their number formats, and leave out lists of more than 30."""
    if not isinstance(dims, list) or not dims:
        return None
    tensors = [_tensor(sizes, None, _at(strides, place) if isinstance(strides, list) else None) for place, sizes in enumerate(dims)]
    return None if any(tensor is None for tensor in tensors) else tuple(tensor for tensor in tensors if tensor is not None)


def _tensor(dims: Any, number: Any, strides: Any) -> Tensor | None:
    sizes = _sizes(dims)
    if sizes is None or any(size < 0 for size in sizes) or math.prod(sizes) > _LARGEST:
        return None
    steps = _sizes(strides)
    is_sparse = bool(sizes) and steps == ()
    return Tensor(sizes, number, steps if steps is not None and len(steps) == len(sizes) else None, is_sparse)


def _sizes(sizes: Any) -> tuple[int, ...] | None:
    if not isinstance(sizes, list) or not all(type(size) is int for size in sizes):
        return None
    return tuple(sizes)


def _value(text: Any) -> Any:
    """The value in a text: a number, a boolean, ``None``, a tuple of these, or the text itself.

    >>> _value("[1, 1]"), _value("False"), _value("1e-05"), _value("cuda:0"), _value("")
    ((1, 1), False, 1e-05, 'cuda:0', None)
    """
    if not isinstance(text, str):
        return text if isinstance(text, float) or (isinstance(text, int) and abs(text) <= _LARGEST) else None
    if text in _WORDS:
        return _WORDS[text]
    if text.startswith("[") and text.endswith("]"):
        return tuple(_value(part.strip()) for part in text[1:-1].split(",")) if text != "[]" else ()
    if _NUMBER.fullmatch(text) and len(text) < 20:
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text


def extra_fields(pairs: Sequence[tuple[str, bytes]]) -> dict[str, Any]:
    """The decoded extra fields of an op, by their names in traces."""
    words = {}
    for name, text in pairs:
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if not isinstance(value, int) or abs(value) <= _LARGEST:
            words[name] = value
    return words


def _first(args: Sequence[Any]) -> list[Tensor]:
    return [argument for argument in args if isinstance(argument, Tensor) and argument.shape][:3]


def first_shapes(args: Sequence[Any]) -> tuple[tuple[int, ...], ...]:
    """The shapes of an op's first tensors, which its label shows."""
    return tuple([tuple(tensor.shape) for tensor in _first(args)])


def label(name: str, args: Sequence[Any]) -> Label:
    """A short label for an op: its name and the shapes and format of its first tensors.

    >>> str(label("aten::mm", (Tensor((8, 4), CPP_TYPES["float"]), Tensor((4, 2), CPP_TYPES["float"]))))
    'mm 8x4, 4x2 fp32'
    """
    tensors = _first(args)
    short = name.rpartition("::")[2]
    if not tensors:
        return Label(does=short)
    shapes = ", ".join("x".join(map(str, tensor.shape)) for tensor in tensors)
    number = next((tensor.dtype.name for tensor in tensors if tensor.dtype is not None), "")
    return Label(does=short, sizes=shapes, format=number)
