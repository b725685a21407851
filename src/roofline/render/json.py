"""Any value of ours as JSON: the report by the contract, and what other commands answer.

msgspec writes it, except where a value is so small that importing msgspec and telling it of our classes (some 50 ms, half of a whole
command) would take longer than writing it by hand. The bytes are the same.
"""

from collections.abc import Callable
from math import isfinite

FEW_CELLS = 20_000  # about as many as are written by hand before msgspec is ready to
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
    plain = _PLAIN.get(value.__class__)
    if plain is not None:
        return plain(value)
    inner = indent + " "
    if isinstance(value, dict):
        return _block("{", [f"{_key(key)}: {write(held, inner)}" for key, held in value.items()], "}", inner)
    if isinstance(value, (tuple, list)):
        return _block("[", [write(held, inner) for held in value], "]", inner)
    try:
        fields = value.__value_specs__  # type: ignore[attr-defined]
    except AttributeError:
        raise NotPlain(f"{type(value).__name__}: {value!r}") from None
    return _block("{", [f'"{field.name}": {write(getattr(value, field.name), inner)}' for field in fields], "}", inner)


def _block(begin: str, parts: list[str], end: str, inner: str) -> str:
    return f"{begin}{inner}{f',{inner}'.join(parts)}{inner[:-1]}{end}" if parts else begin + end


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise NotPlain(f"{key!r} as a key")
    return _text(key)


def _text(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'


def _number(number: float) -> str:
    """The shortest digits that give the number again; 1e-05 is 0.00001, 1e+16 is 1e16. JSON has no infinity and no NaN."""
    if not isfinite(number):
        return "null"
    mantissa, letter, exponent = repr(number).partition("e")
    if exponent == "-05":
        sign, digits = ("-", mantissa[1:]) if number < 0 else ("", mantissa)
        return f"{sign}0.0000{digits.replace('.', '')}"
    return f"{mantissa}e{int(exponent)}" if letter else mantissa


_PLAIN: dict[type, Callable[..., str]] = {
    str: _text,
    float: _number,
    int: repr,
    bool: lambda truth: "true" if truth else "false",
    type(None): lambda _: "null",
}
