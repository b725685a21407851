"""The attributes of instructions in HLO text, parsed on first use."""

from functools import lru_cache

from msgspec import Struct

from .lexing import attributes_of, find_attribute
from .literals import MAX_ELEMENTS, MAX_TABLE
from .text_attributes import parse_metadata, read_attribute, read_literal


class TextDialect(Struct, frozen=True):
    """The dialect of instructions from HLO text, whose ``raw`` is the text after the operands, with the metadata separate if possible."""

    where: str

    def attribute(self, raw: object, name: str) -> object | None:
        text, metadata = raw if isinstance(raw, tuple) else (str(raw), "")
        if metadata and name == "metadata":
            return parse_metadata(metadata)
        if name not in ("literal", "table"):
            return read_attribute(text, name)
        place = find_attribute(text, "literal")
        return None if place is None else read_literal(text[slice(*place)], MAX_TABLE if name == "table" else MAX_ELEMENTS)

    def names(self, raw: object) -> tuple[str, ...]:
        text, metadata = raw if isinstance(raw, tuple) else (str(raw), "")
        names = _names(text)
        return (*names, "metadata") if metadata else names

    def unread(self, raw: object) -> str:
        return raw[0] if isinstance(raw, tuple) else str(raw)

    def place(self, place: int) -> str:
        return f"line {place:,}"


@lru_cache(maxsize=1_000)
def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name, _, _ in attributes_of(text) if name not in ("literal", "parameter_number"))


def parted(rest: str, texts: dict[str, str]) -> object:
    """The attributes of an instruction, separate from its metadata: many instructions repeat them, so equal texts become one object and are
    parsed once.

    The text stays whole if the end of the metadata is not certain without parsing.
    """
    start = rest.find(", metadata={")
    if start < 0:
        return texts.setdefault(rest, rest)
    end = rest.find("}", start) + 1
    before, metadata = rest[:start], rest[start + len(", metadata=") : end]
    if metadata.count("{") != 1 or metadata.count('"') % 2 or before.count('"') % 2 or "\\" in rest[:end]:
        return rest
    text = before + rest[end:] if end < len(rest) else before
    return texts.setdefault(text, text), metadata
