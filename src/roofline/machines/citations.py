"""Citations: the short ``id: detail`` of a machine file expanded to readable text."""

import tomllib
from functools import cache
from pathlib import Path

from msgspec import Struct

SOURCES = Path(__file__).with_name("sources.toml")


class Source(Struct, frozen=True, kw_only=True):
    """A source of figures: its citation, its kind and its address.

    ``vendor`` is the chip vendor that published it, if it is the vendor's own document and was read itself.
    """

    id: str
    cite: str
    kind: str
    at: str
    vendor: str = ""
    note: str = ""


@cache
def _text() -> str:
    return SOURCES.read_text("utf-8")


@cache
def sources() -> dict[str, Source]:
    """Every source that the catalogue cites, by id."""
    return {key: Source(id=key, **entry) for key, entry in tomllib.loads(_text()).items() if isinstance(entry, dict)}


@cache
def _entry(key: str) -> dict[str, str] | None:
    """The table of one source. Only the cited ones are parsed, because parsing all takes longer than parsing the chip."""
    _, found, rest = _text().partition(f"\n[{key}]\n")
    return tomllib.loads(rest.partition("\n[")[0]) if found else None


def source_of(citation: str) -> Source | None:
    """The source that a citation refers to; ``None`` for a citation in plain text.

    >>> source_of("rocm_specs").vendor
    'AMD'
    """
    key = citation.partition(":")[0]
    entry = _entry(key)
    return Source(id=key, **entry) if entry is not None else None


def resolve(citation: str) -> str:
    """A citation as readable text; one without a known source id is returned unchanged.

    >>> resolve("ml_engineering: L484")
    'stas00/ml-engineering, compute/accelerator/README.md L484'
    >>> resolve("the vendor's datasheet, page 2")
    "the vendor's datasheet, page 2"
    """
    source = source_of(citation)
    if source is None:
        return citation
    detail = citation.partition(":")[2].strip()
    if not detail:
        return source.cite
    if source.kind == "folder":
        return f"{source.cite}/{detail}"
    return f"{source.cite} {detail}" if detail[0] == "L" and detail[1:2].isdecimal() else f"{source.cite}: {detail}"
