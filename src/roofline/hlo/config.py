"""Backend configurations: what a compiler backend noted on an instruction, in JSON or as an MLIR dictionary.

>>> parse_config('{"known_trip_count":{"n":"8"}}')
{'known_trip_count': {'n': '8'}}
>>> parse_config('{grid_x = 16384 : i32, debug = false, name = "k"}')
{'grid_x': 16384, 'debug': False, 'name': 'k'}
"""

import json
import re

from . import mlir
from .malformed import Malformed

_LOOKS_LIKE_MLIR = re.compile(r"\{\s*(?:[A-Za-z_][\w$.\-]*|\"[^\"]*\")\s*(?:=|,|\})")


def parse_config(text: str) -> dict[str, object]:
    """The dictionary written there; empty for a configuration of another kind, which only its own backend can read."""
    text = text.strip()
    if not text.startswith("{"):
        return {}
    try:
        found = mlir.parse_dictionary(text, 0)[0] if _LOOKS_LIKE_MLIR.match(text) else json.loads(text)
    except (ValueError, RecursionError, Malformed):
        return {}
    return found if isinstance(found, dict) else {}
