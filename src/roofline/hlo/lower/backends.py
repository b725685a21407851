"""XLA's backends: the formats that each multiplies in by default, and what it was measured to do in the same kernel (`backends.toml`)."""

import tomllib
from functools import cache
from pathlib import Path

from ...dtypes import DTYPES
from ...graph import CPU, Backend
from ...graph.backend import WIDE
from ..ir.platforms import Platform
from ..price.contractions import default_unit

_MEASURED = Path(__file__).with_name("backends.toml")


@cache
def backend(platform: Platform) -> Backend:
    """The backend of a platform."""
    units = {number.rate: default_unit(number, platform) for number in DTYPES.values()}
    formats = {rate: unit.kind for rate, unit in units.items() if unit.unit == "matrix" and unit.kind != rate}
    measured = tomllib.loads(_MEASURED.read_text(encoding="utf-8")).get(platform, {})
    return Backend(formats, CPU.wide if platform == "cpu" else WIDE, frozenset(measured.get("biased", ())))
