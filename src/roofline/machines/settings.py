"""Settings: rates given on the command line, ``--set hbm="7.2 TB/s"``, which override everything else."""

from collections.abc import Iterable

from ..errors import RooflineError, UsageError
from ..resource import Resource
from ..units import parse


def parse_settings(settings: Iterable[str]) -> dict[str, float]:
    """Rates by resource, in base units, from texts like ``hbm=7.2 TB/s``; of several for one resource, the last counts.

    >>> parse_settings(["hbm=7.2 TB/s", "matrix/bf16=2307 TFLOP/s"])
    {'hbm': 7200000000000.0, 'matrix/bf16': 2307000000000000.0}
    """
    return dict(_setting(text) for text in settings)


def _setting(text: str) -> tuple[str, float]:
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not name or not value:
        raise UsageError(f"--set {text!r}: write RESOURCE=RATE, like --set hbm='7.2 TB/s'")
    if name.partition(".")[0] == "capacity":
        raise UsageError(f"--set {text!r}: --set changes rates only; for a capacity, write a machine file that extends the chip")
    try:
        resource = Resource(name)
        rate = parse(value, resource.per)
    except RooflineError as error:
        raise UsageError(f"--set {text!r}: {error}") from None
    if not rate > 0:
        raise UsageError(f"--set {text!r}: a rate must be above 0")
    return resource.name, rate
