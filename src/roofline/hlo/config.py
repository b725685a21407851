"""Backend configurations: what a compiler backend noted on an instruction, in JSON or as an MLIR dictionary.

>>> parse_config('{"known_trip_count":{"n":"8"}}')
{'known_trip_count': {'n': '8'}}
>>> parse_config('{grid_x = 16384 : i32, debug = false, name = "k"}')
{'grid_x': 16384, 'debug': False, 'name': 'k'}
"""

from ..patterns import pattern
from .malformed import Malformed

_LOOKS_LIKE_MLIR = pattern(r"\{\s*(?:[A-Za-z_][\w$.\-]*|\"[^\"]*\")\s*(?:=|,|\})")


def parse_config(text: str) -> dict[str, object]:
    """The dictionary written there; empty for a configuration of another kind, which only its own backend can read."""
    text = text.strip()
    if not text.startswith("{"):
        return {}
    try:
        found = _parse_mlir(text) if _LOOKS_LIKE_MLIR.match(text) else _parse_json(text)
    except (ValueError, RecursionError, Malformed):
        return {}
    return found if isinstance(found, dict) else {}


def _parse_mlir(text: str) -> object:
    from .mlir import parse_dictionary

    return parse_dictionary(text, 0)[0]


def _parse_json(text: str) -> object:
    from json import loads

    return loads(text)
