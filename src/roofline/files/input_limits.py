"""Limits on the size of inputs.

A small file can need much memory: a gzipped one may unpack to a thousand times its size, and a row of four bytes becomes an op of four
kilobytes. The limits keep memory near a gigabyte unless the user raises them (``--read max-rows=1M``).

They are a setting of the process, and are passed on to helper processes and to a cluster.
"""

from msgspec import Struct
from msgspec.structs import asdict

from ..errors import SourceError, UnitError, UsageError, did_you_mean
from ..units import parse, parse_count


class Limits(Struct, frozen=True, kw_only=True):
    """The limits on an input.

    ``size`` is bytes of a file that is read whole, unpacked; ``values`` are numbers, words and lists in JSON, and cells of a table;
    ``rows`` are those of a table; ``instructions`` are those of a program; ``messages`` are planes, lines and metadata of a profile.
    """

    size: int = int(parse("512 MiB", "B"))
    values: int = int(parse_count("20M"))
    rows: int = int(parse_count("250k"))
    instructions: int = int(parse_count("500k"))
    messages: int = int(parse_count("5M"))


DEFAULT = Limits()
_current = DEFAULT


def limits() -> Limits:
    """The limits of this process."""
    return _current


def set_limits(wanted: Limits) -> None:
    """Use other limits from now on."""
    global _current
    _current = wanted


def parse_limits(words: list[str]) -> Limits:
    """The limits that options give, the defaults for the others.

    >>> parse_limits(["rows=1M", "size=2 GB"]).rows
    1000000
    """
    found = asdict(DEFAULT)
    for word in words:
        name, equals, amount = (part.strip() for part in word.partition("="))
        if not equals or name not in found:
            raise UsageError(f"--read max-{word}: write one of {', '.join(f'max-{known}=N' for known in found)}{did_you_mean(name, found)}")
        try:
            found[name] = int(parse(amount, "B") if name == "size" else parse_count(amount))
        except (UnitError, OverflowError) as error:
            raise UsageError(f"--read max-{word}: {error}") from None
    return Limits(**found)


def check_limit(name: str, amount: int, where: str) -> None:
    """Raise an error for an input that exceeds a limit."""
    if amount > getattr(_current, name):
        raise too_much(name, where)


def too_much(name: str, where: str) -> SourceError:
    """The error about an input that exceeds a limit."""
    return SourceError(f"{where}: {excess(name)}")


def excess(name: str) -> str:
    """The message of such an error, without the location."""
    limit: int = getattr(_current, name)
    what = f"larger than {limit:,} bytes" if name == "size" else f"more than {limit:,} {name}"
    return f"{what}; if you trust the file, raise the limit: --read max-{name}={2 * limit}"
