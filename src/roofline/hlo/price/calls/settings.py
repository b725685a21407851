"""Reading backend configurations, whose JSON writes 64-bit numbers as strings and omits values that are zero or empty."""

import re
from collections.abc import Mapping

from .traffic import Misfit

Config = Mapping[str, object]
_WHOLE = re.compile(r"-?[0-9]{1,20}")


def section(config: Config, *names: str) -> Config:
    """A part of a configuration by its path; empty when it is not there."""
    for name in names:
        value = config.get(name)
        config = value if isinstance(value, dict) else {}
    return config


def whole(value: object) -> int:
    """A whole number, spelled as a number or as a string."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, (int, str)) or not _WHOLE.fullmatch(str(value)):
        raise Misfit(f"{str(value)[:40]!r} is not a whole number")
    return int(value)


def integer(config: Config, name: str, default: int = 0) -> int:
    """A whole number of a configuration."""
    return whole(config[name]) if name in config else default


def integers(config: Config, name: str) -> tuple[int, ...]:
    """A list of whole numbers of a configuration; absent is empty."""
    values = config.get(name, [])
    if not isinstance(values, list):
        raise Misfit(f"{name} is not a list")
    return tuple(whole(item) for item in values)


def real(config: Config, name: str, default: float = 0.0) -> float:
    """A number of a configuration."""
    value = config.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Misfit(f"{name} is not a number")
    try:
        return float(value)
    except OverflowError:
        raise Misfit(f"{name} is too large for a float") from None


def word(config: Config, name: str, default: str = "") -> str:
    """A word of a configuration."""
    value = config.get(name, default)
    return value if isinstance(value, str) else default


def flag(config: Config, name: str) -> bool:
    """A truth value of a configuration; absent is false."""
    return config.get(name) is True


def words(config: Config, name: str) -> tuple[str, ...]:
    """A list of words of a configuration; absent is empty."""
    values = config.get(name, [])
    return tuple(item for item in values if isinstance(item, str)) if isinstance(values, list) else ()
