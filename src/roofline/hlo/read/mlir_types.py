"""Shapes from MLIR types: ``tensor<8x?x16xbf16>``, ``tuple<…>``, ``!stablehlo.token``."""

import re

from ..ir.malformed import Malformed, excerpt
from ..ir.shapes import MAX_DEPTH, UNBOUNDED, Shape, tuple_of, whole
from .mlir import split_types
from .mlir_attributes import end_of_nest

_DIMENSION = re.compile(r"(\d+|\?)x")
_INTEGER = re.compile(r"(u|s)?i(\d+)")
_ANGLE = re.compile(r"(?<!-)[<>]")
_FLOATS = {"bf16", "f16", "f32", "f64", "tf32"}
_COMPLEX = {"complex<f32>": "c64", "complex<f64>": "c128"}
_BOUNDS = re.compile(r"#(?:stablehlo|mhlo)\.(?:bounds|type_extensions)<\s*(?:bounds\s*=\s*\[)?([^\]>]*)")


def parse_type(text: str, known: dict[str, Shape], depth: int = 0) -> Shape:
    """The shape of a type; ``known`` caches shapes by their spelling. Types without numbers are opaque."""
    found = known.get(text)
    if found is None:
        found = known[text] = _parse(text.strip(), known, depth)
    return found


def _parse(text: str, known: dict[str, Shape], depth: int) -> Shape:
    if depth == 0:
        _check_depth(text)
    kind, bracket, _ = text.partition("<")
    if bracket and end_of_nest(text, len(kind)) != len(text):
        raise Malformed(f"not a type: {excerpt(text)}")
    inside = text[len(kind) + 1 : -1]
    if kind in ("tensor", "memref", "vector"):
        return _tensor(inside)
    if kind == "tuple":
        return tuple_of(tuple(parse_type(part, known, depth + 1) for part in split_types(inside)))
    if kind.endswith(".token"):
        return Shape("token")
    if text.startswith("!"):
        return Shape("opaque")
    return Shape(element_type(text))


def _check_depth(text: str) -> None:
    """Refuses tuples that are nested too deeply, before any of them is parsed."""
    depth = 0
    for match in _ANGLE.finditer(text):
        depth += 1 if match[0] == "<" else -1
        if depth > MAX_DEPTH:
            raise Malformed(f"tuples nested deeper than {MAX_DEPTH}")


def _tensor(inside: str) -> Shape:
    dims: list[int] = []
    position = 0
    while match := _DIMENSION.match(inside, position):
        dims.append(UNBOUNDED if match[1] == "?" else whole(match[1]))
        position = match.end()
    rest = inside[position:].strip()
    if rest.startswith("*x"):  # of unknown rank, so of unknown size
        dims, rest = [UNBOUNDED], rest[2:]
    element, encoding = _split_encoding(rest)
    if element.startswith("!") and not element.startswith("!quant."):
        return Shape("opaque")  # strings and the like
    dynamic = tuple(dim == UNBOUNDED for dim in dims)
    bounds = _BOUNDS.search(encoding)
    if bounds is not None:
        limits = [limit.strip() for limit in bounds[1].split(",")]
        if len(limits) == len(dims):
            dims = [dim if limit == "?" else whole(limit) for dim, limit in zip(dims, limits, strict=True)]
    return Shape(element_type(element), tuple(dims), None, dynamic if any(dynamic) else ())


def _split_encoding(text: str) -> tuple[str, str]:
    """The element type, and the encoding after its comma."""
    depth = 0
    for position, character in enumerate(text):
        if character in "<(":
            depth += 1
        elif character in ">)":
            depth -= 1
        elif character == "," and depth == 0:
            return text[:position].strip(), text[position + 1 :]
    return text, ""


def element_type(text: str) -> str:
    """HLO's name of an element type.

    >>> element_type("ui8"), element_type("f8E4M3FN"), element_type("i1"), element_type("complex<f32>")
    ('u8', 'f8e4m3fn', 'pred', 'c64')
    """
    if text == "i1":
        return "pred"
    if text == "index":
        return "s64"
    if text in _COMPLEX:
        return _COMPLEX[text]
    integer = _INTEGER.fullmatch(text)
    if integer is not None and integer[2] in ("1", "2", "4", "8", "16", "32", "64"):
        return ("u" if integer[1] == "u" else "s") + integer[2]
    if text.startswith("!quant."):
        # A quantised number is stored as its integer: !quant.uniform<i8:f32, …>.
        stored = text.partition("<")[2].partition(":")[0].partition("<")[0].strip()
        return element_type(stored.replace("u", "ui") if re.fullmatch(r"u\d+", stored) else stored)
    if text in _FLOATS:
        return "f32" if text == "tf32" else text
    if re.fullmatch(r"f[468]E\w+", text):
        return text.lower()
    raise Malformed(f"unknown element type {excerpt(text)}")
