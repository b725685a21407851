"""Machines: hardware as data. One TOML file per chip, a loader that finds it by any of its names, and a linter.

`catalogue` finds a chip, `reading` parses its file, `lint` checks it, `detection` recognizes the devices of a profile, `calibrations` say
how long ops take on a chip, and `measuring` measures this computer.
"""

from .catalogue import card, cards, catalogue, load, names, read
from .chip_specs import Card
from .settings import parse_settings

__all__ = ["Card", "card", "cards", "catalogue", "load", "names", "parse_settings", "read"]
