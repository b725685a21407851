"""Attribute values as MLIR text: configurations that are kept as text, and printable strings."""

import json

from .elements import Elements


class Bare(str):
    """Text that MLIR writes without quotes: symbols, types, attributes of dialects, words of enumerations."""


def printable_text(text: str) -> str:
    """Text with bytes that are not UTF-8 (surrogates) shown as escapes."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def written(value: object) -> str:
    """A value as MLIR text, without types, as configurations are kept."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(name)} = {written(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(written(item) for item in value) + "]"
    if isinstance(value, Elements):
        return f"dense<{written(list(value.all))}>"
    if isinstance(value, str):
        return value if isinstance(value, Bare) else quoted(value)
    if isinstance(value, float):
        short = f"{value:.6e}"
        return short if float(short) == value else repr(value)
    return str(value)


def printable(value: object) -> object:
    """A value with all its strings made printable."""
    if isinstance(value, str):
        return printable_text(value) if not value.isascii() else value
    if isinstance(value, list):
        return [printable(item) for item in value]
    if isinstance(value, dict):
        return {printable_text(name): printable(item) for name, item in value.items()}
    return value


def _key(name: str) -> str:
    return name if name.replace(".", "_").isidentifier() else quoted(name)


def quoted(text: str) -> str:
    r"""A quoted MLIR string: characters that do not print are a backslash and two hexadecimal digits.

    >>> quoted('a "b"') == r'"a \22b\22"'
    True
    """
    if text.isascii() and json.dumps(text) == f'"{text}"':
        return f'"{text}"'
    raw = text.encode("utf-8", "surrogateescape")
    return '"' + "".join(chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:02X}" for byte in raw) + '"'
