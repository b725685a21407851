"""Errors about malformed programs, before and after their place in the file is known."""

from ...errors import SourceError, excerpt

__all__ = ["Malformed", "excerpt", "placed"]


class Malformed(SourceError):
    """A program that breaks its own grammar; the reader adds the line or the byte with `placed`.

    ``offset`` is the byte in a protobuf, if it is known where the error is raised.
    """

    def __init__(self, message: str, offset: int | None = None) -> None:
        super().__init__(message)
        self.offset = offset


def placed(error: Malformed, where: str, unit: str, number: int) -> SourceError:
    """The same error with its place in the file.

    >>> str(placed(Malformed("no shape after '='"), "step.hlo", "line", 12))
    "step.hlo: line 12: no shape after '='"
    """
    return SourceError(f"{where}: {unit} {number:,}: {error}")
