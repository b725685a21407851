"""The attributes of instructions in HLO text, read when they are asked for."""

from functools import lru_cache

from msgspec import Struct

from .lexing import attributes_of, find_attribute
from .text_attributes import parse_metadata, read_attribute, read_literal


class TextDialect(Struct, frozen=True):
    """Attributes of HLO text: an instruction keeps what follows its operands, its metadata apart."""

    where: str

    def attribute(self, raw: object, name: str) -> object | None:
        text, metadata = raw if isinstance(raw, tuple) else (str(raw), "")
        if metadata and name == "metadata":
            return parse_metadata(metadata)
        if name != "literal":
            return read_attribute(text, name)
        found = find_attribute(text, name)
        return None if found is None else read_literal(text[slice(*found)])

    def names(self, raw: object) -> tuple[str, ...]:
        text, metadata = raw if isinstance(raw, tuple) else (str(raw), "")
        found = _names(text)
        return (*found, "metadata") if metadata else found

    def unread(self, raw: object) -> str:
        return raw[0] if isinstance(raw, tuple) else str(raw)

    def place(self, place: int) -> str:
        return f"line {place:,}"


@lru_cache(maxsize=1_000)
def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name, _, _ in attributes_of(text) if name not in ("literal", "parameter_number"))
