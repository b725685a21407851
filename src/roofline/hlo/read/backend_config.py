"""Backend configurations: a compiler backend's settings for an instruction, in JSON or as an MLIR dictionary.

>>> parse_config('{"known_trip_count":{"n":"8"}}')
{'known_trip_count': {'n': '8'}}
>>> parse_config('{grid_x = 16384 : i32, debug = false, name = "k"}')
{'grid_x': 16384, 'debug': False, 'name': 'k'}
"""

import json
import re
from collections.abc import Mapping

from ..ir.malformed import Malformed
from ..ir.module import Instruction

_LOOKS_LIKE_MLIR = re.compile(r"\{\s*(?:[A-Za-z_][\w$.\-]*|\"[^\"]*\")\s*(?:=|,|\})")


def backend_config(instruction: Instruction) -> Mapping[str, object]:
    """An instruction's backend configuration, from JSON or an MLIR dictionary; empty if it is neither."""
    return parse_config(instruction.backend_config_text)


def known_trip_count(instruction: Instruction) -> int | None:
    """The trip count of a while, if the compiler found it."""
    if instruction.opcode != "while" or "known_trip_count" not in instruction.backend_config_text:
        return None
    known = backend_config(instruction).get("known_trip_count")
    count = known.get("n") if isinstance(known, dict) else known
    return int(count) if isinstance(count, (int, str)) and str(count).isdecimal() and len(str(count)) < 20 else None


def parse_config(text: str) -> dict[str, object]:
    """A configuration as a dictionary; empty for one in another format, which only its own backend can read."""
    text = text.strip()
    if not text.startswith("{"):
        return {}
    try:
        config = _dictionary(text) if _LOOKS_LIKE_MLIR.match(text) else json.loads(text)
    except (ValueError, RecursionError, Malformed):
        return {}
    return config if isinstance(config, dict) else {}


def _dictionary(text: str) -> object:
    from .mlir.attributes import parse_dictionary  # few programs have one

    return parse_dictionary(text, 0)[0]
