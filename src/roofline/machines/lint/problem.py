"""Problems: what the linter reports."""

from msgspec import Struct

from ..chip_specs import Card


class Problem(Struct, frozen=True, kw_only=True):
    """A problem of a machine file: the check, the figure, the file and a message; ``severity`` is error or warning."""

    check: str
    resource: str
    where: str
    message: str
    severity: str = "error"

    def __str__(self) -> str:
        return f"{self.where}: {self.severity}: {self.message} [{self.check}]"


def problem(check: str, card: Card, resource: object, message: str, severity: str = "error") -> Problem:
    """A problem with one figure of a card."""
    return Problem(check=check, resource=str(resource), where=f"{card.where}: {resource}", message=message, severity=severity)
