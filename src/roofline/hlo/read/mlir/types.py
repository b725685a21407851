"""MLIR types: ``tensor<8x?x16xbf16>``, ``tuple<…>``, ``!stablehlo.token``, and the shapes that they are in HLO."""

import re
from functools import cached_property, lru_cache
from math import prod

from msgspec import Struct

from ...ir.malformed import Malformed, excerpt
from ...ir.shapes import MAX_DEPTH, UNBOUNDED, Shape, tuple_of, whole
from .scanning import end_of_nest, end_of_type, skip

DYNAMIC = -(2**63)  # a size that is not known, ``?``
ARRAYS = ("tensor", "memref", "vector")
_DIMENSION = re.compile(r"(\d+|\?)x")
_INTEGER = re.compile(r"(u|s)?i(1|2|4|8|16|32|64)")
_FLOAT = re.compile(r"bf16|f16|f32|f64|f[468]E\w+")
_ANGLE = re.compile(r"(?<!-)[<>]")
_NAMES = {"i1": "pred", "index": "s64", "tf32": "f32", "complex<f32>": "c64", "complex<f64>": "c128"}
_BOUNDS = re.compile(r"#(?:stablehlo|mhlo)\.(?:bounds|type_extensions)<\s*(?:bounds\s*=\s*\[)?([^\]>]*)")


class Type(Struct, frozen=True, dict=True):  # dict: for its cached properties; operations share their types
    """A type: an array with its sizes (`DYNAMIC` for ``?``) and the type of its elements, a tuple with its parts, any other by its name.

    ``encoding`` are the bounds of a tensor's sizes, or the text after the elements of any other array: the memory space of a memref.
    """

    name: str
    dims: tuple[int, ...] = ()
    parts: tuple["Type", ...] = ()
    encoding: tuple[int, ...] | str = ""

    @property
    def element(self) -> str:
        """The name of the type of its elements; its own if it is not an array."""
        return self.parts[0].name if self.parts and self.name in ARRAYS else self.name

    @cached_property
    def elements(self) -> int:
        """How many elements it has, as far as its sizes are known."""
        return prod(max(size, 0) for size in self.dims)

    @cached_property
    def shape(self) -> Shape:
        """The shape of its values; types without numbers are opaque."""
        if self.name == "tuple":
            return tuple_of(tuple([part.shape for part in self.parts]))
        element = self.element
        if element.startswith("!builtin."):
            raise Malformed(f"the type {excerpt(element)} is not supported; it may be newer than this version of roofline")
        if element.startswith("!"):
            return Shape("token" if self.name.endswith(".token") else "opaque")
        dtype = element_type(element)
        if not dtype:
            raise Malformed(f"unknown element type {excerpt(element)}")
        bounds = self.encoding if isinstance(self.encoding, tuple) and len(self.encoding) == len(self.dims) else self.dims
        largest = [bound if size == DYNAMIC else size for size, bound in zip(self.dims, bounds, strict=True)]
        dims = tuple([UNBOUNDED if size == DYNAMIC else size for size in largest])
        dynamic = tuple([size == DYNAMIC for size in self.dims])
        return Shape(dtype, dims, None, dynamic if any(dynamic) else ())


@lru_cache(maxsize=4096)
def parse_type(text: str) -> Type:
    """A type from its text, equal ones as one object."""
    depth = 0
    for match in _ANGLE.finditer(text):
        depth += 1 if match[0] == "<" else -1
        if depth > MAX_DEPTH:
            raise Malformed(f"tuples nested deeper than {MAX_DEPTH}")
    return _parse(text)


def _parse(text: str) -> Type:
    name, bracket, _ = text.partition("<")
    if name == "!quant.uniform":
        # A quantised number is stored as its integer: !quant.uniform<i8:f32, …>.
        stored = text[len(name) + 1 :].partition(":")[0].partition("<")[0].strip()
        return Type(re.sub(r"^u(?=\d)", "ui", stored))
    if not bracket or name not in (*ARRAYS, "tuple"):
        return Type(text)
    if end_of_nest(text, len(name)) != len(text):
        raise Malformed(f"not a type: {excerpt(text)}")
    inside = text[len(name) + 1 : -1]
    return Type(name, (), tuple([_parse(part) for part in split_types(inside)])) if name == "tuple" else _array(name, inside)


def _array(name: str, inside: str) -> Type:
    dims: list[int] = []
    position = 0
    while match := _DIMENSION.match(inside, position):
        dims.append(DYNAMIC if match[1] == "?" else whole(match[1]))
        position = match.end()
    element, encoding = _split_encoding(inside[position:].strip())
    if element.startswith("*x"):  # of unknown rank, so of unknown size
        dims, element = [DYNAMIC], element[2:]
    bounds = _BOUNDS.search(encoding)
    if bounds is None:
        return Type(name, tuple(dims), (_parse(element),), encoding)
    limits = [limit.strip() for limit in bounds[1].split(",")]
    return Type(name, tuple(dims), (_parse(element),), tuple([DYNAMIC if limit == "?" else whole(limit) for limit in limits]))


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


def split_types(text: str) -> list[str]:
    """The types of a comma-separated list, attributes after them (``tensor<f32> {jax.result_info = "x"}``) left out."""
    types = []
    position = skip(text, 0)
    while position < len(text):
        end = end_of_type(text, position)
        types.append(text[position:end])
        position = skip(text, end)
        if text[position : position + 1] == "{":
            position = skip(text, end_of_nest(text, position))
        if text[position : position + 1] == ",":
            position = skip(text, position + 1)
        elif position < len(text):
            raise Malformed(f"expected ',' between types at {excerpt(text[position:])}")
    return types


def element_type(text: str) -> str:
    """HLO's name of an element type; empty for one that it does not have.

    >>> element_type("ui8"), element_type("f8E4M3FN"), element_type("i1"), element_type("complex<f32>")
    ('u8', 'f8e4m3fn', 'pred', 'c64')
    """
    if text in _NAMES:
        return _NAMES[text]
    integer = _INTEGER.fullmatch(text)
    if integer is not None:
        return ("u" if integer[1] == "u" else "s") + integer[2]
    return text.lower() if _FLOAT.fullmatch(text) else ""
