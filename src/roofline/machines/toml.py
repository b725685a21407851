"""TOML files, and those of the package parsed when it is built: parsing them again, and importing what parses, would take longer than
anything else a short command does with a machine.

``parsed.bin`` beside this file, which ``setup.py`` writes, holds what each text gave under its checksum, and which chip each name
names. It is never out of date: a text that is not in it, because it was changed, or because the file is a user's, is parsed.
"""

from __future__ import annotations

import marshal
import os
from functools import cache
from zlib import crc32

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

HERE = os.path.dirname(__file__)
PARSED = os.path.join(HERE, "parsed.bin")
Checksum = tuple[int, int]  # a text's bytes, and their CRC-32
Named = tuple[str, bool, Checksum]  # a chip, whether the name is its family's, and the checksum of the head that says so


def read_text(path: str | Path) -> str:
    """What a file says; all of them are UTF-8."""
    with open(path, encoding="utf-8") as file:
        return file.read()


def parse(text: str) -> dict[str, Any]:
    """The tables of a text; one that is not TOML is a ``tomllib.TOMLDecodeError``."""
    kept = _parsed()[0].get(checksum(text))
    if kept is not None:
        tables: dict[str, Any] = marshal.loads(kept)
        return tables
    import tomllib

    return tomllib.loads(text)


def head_of(text: str) -> str:
    """What stands before the first table: a chip's names."""
    return text.partition("\n[")[0]


def names() -> dict[str, Named]:
    """What each name named when the package was built; empty where that is not known."""
    return _parsed()[1]


def write_parsed(file: str | Path = PARSED, named: dict[str, Named] | None = None) -> None:
    """Parse every file of the package, whole and its head, and keep what they give, and what the catalogue's names name."""
    import tomllib
    from pathlib import Path

    texts = [read_text(path) for path in sorted(Path(HERE).rglob("*.toml"))]
    parsed = {checksum(text): marshal.dumps(tomllib.loads(text), _FORMAT) for whole in texts for text in (whole, head_of(whole))}
    Path(file).write_bytes(marshal.dumps((parsed, named or {}), _FORMAT))


_FORMAT = 4  # of marshal, which every Python from 3.4 on reads


def checksum(text: str) -> Checksum:
    data = text.encode()
    return len(data), crc32(data)


@cache
def _parsed() -> tuple[dict[Checksum, bytes], dict[str, Named]]:
    try:
        with open(PARSED, "rb") as file:
            texts, named = marshal.loads(file.read())
    except (OSError, EOFError, ValueError, TypeError):
        return {}, {}
    return texts, named
