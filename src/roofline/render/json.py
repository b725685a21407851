"""Any value of ours as JSON: the report by the contract, and what other commands answer.

msgspec writes it, except where a value is so small that importing msgspec and telling it of our classes (some 50 ms, half of a whole
command) would take longer than writing it by hand. The bytes are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from math import isfinite

from ..value import getter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FEW_CELLS = 40_000  # about as many as are written by hand before msgspec is ready to
LATEST = 1000  # texts and numbers that are remembered: a report has the same few words throughout, and an op one time in several places
_LEAST, _MOST = 1e-4, 1e16  # between them Python writes no exponent, and msgspec none either
_ESCAPES = {
    **{code: f"\\u{code:04x}" for code in range(32)},
    **{ord(plain): escape for plain, escape in zip('\b\t\n\f\r"\\', ("\\b", "\\t", "\\n", "\\f", "\\r", '\\"', "\\\\"), strict=True)},
}


def to_json(value: object) -> bytes:
    """A value in the order of its fields, ending in a newline."""
    if _is_small(value):
        try:
            return f"{write(value)}\n".encode()
        except NotPlain:
            pass
    import msgspec

    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def _is_small(value: object) -> bool:
    """Whether it has few cells: rows times the fields of each."""
    if isinstance(value, (tuple, list)):
        tables = [value]
    else:
        held = value.values() if isinstance(value, dict) else [getattr(value, spec.name) for spec in getattr(value, "__value_specs__", ())]
        tables = [one for one in held if isinstance(one, (tuple, list))]
    return sum(len(table) * len(getattr(table[0], "__value_specs__", "1")) for table in tables if table) <= FEW_CELLS


class NotPlain(TypeError):
    """Something that only msgspec knows how to write."""


def write(value: object, indent: str = "\n") -> str:
    """A value, its parts each on a line of their own; ``indent`` is the line break and the spaces before its closing bracket.

    >>> write({"rate": 1e-7, "per": ("B", None)})
    '{\\n "rate": 1e-7,\\n "per": [\\n  "B",\\n  null\\n ]\\n}'
    """
    return _each((value,), indent)[0]


def _each(values: Iterable[Any], indent: str) -> list[str]:
    """Every one of some values. Most are plain: a call for each of those would take as long as writing it."""
    inner = indent + " "
    written = []
    for value in values:
        kind = value.__class__
        if kind is int:
            written.append(repr(value))
        elif kind is float:
            written.append(_number(value) if value else repr(value))  # to what remembers numbers, 0.0 and -0.0 are one
        elif kind is str:
            written.append(_text(value))
        elif value is None:
            written.append("null")
        elif kind is bool:
            written.append("true" if value else "false")
        elif isinstance(value, dict):
            pairs = [f"{_text(key)}: {held}" for key, held in zip(value, _each(value.values(), inner), strict=True)]
            written.append(f"{{{inner}{f',{inner}'.join(pairs)}{indent}}}" if pairs else "{}")
        elif isinstance(value, (tuple, list)):
            written.append(f"[{inner}{f',{inner}'.join(_each(value, inner))}{indent}]" if value else "[]")
        else:
            form, fields = _form(kind, indent)
            written.append(form % tuple(_each(fields(value), inner)))
    return written


@cache
def _form(kind: type, indent: str) -> tuple[str, Callable[[Any], tuple[Any, ...]]]:
    """What all values of one of our classes have in common at one depth: a text to fill with their fields, and what gets these."""
    try:
        names = [spec.name for spec in kind.__value_specs__]  # type: ignore[attr-defined]
    except AttributeError:
        raise NotPlain(kind.__name__) from None
    inner = indent + " "
    return "{" + ",".join([f'{inner}"{name}": %s' for name in names]) + (indent if names else "") + "}", getter(names)


@lru_cache(LATEST)
def _text(text: object) -> str:
    """A text, or a key, which may be something else."""
    if not isinstance(text, str):
        raise NotPlain(f"{text!r} as a key")
    return f'"{text.translate(_ESCAPES)}"'


@lru_cache(LATEST)
def _number(number: float) -> str:
    """The shortest digits that give the number again; 1e-05 is 0.00001, 1e+16 is 1e16. JSON has no infinity and no NaN."""
    if _LEAST <= number < _MOST:
        return repr(number)
    if not isfinite(number):
        return "null"
    mantissa, letter, exponent = repr(number).partition("e")
    if exponent == "-05":
        sign, digits = ("-", mantissa[1:]) if number < 0 else ("", mantissa)
        return f"{sign}0.0000{digits.replace('.', '')}"
    return f"{mantissa}e{int(exponent)}" if letter else mantissa
