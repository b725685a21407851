"""The exceptions of this package; users catch `RooflineError`.

    RooflineError
    ├── UsageError      invalid or contradictory arguments (the command line exits 2)
    ├── UnitError       a quantity that cannot be read: unknown prefix, wrong dimension
    ├── MachineError    an unknown chip, a wrong machine file, work for which no rate is known
    ├── FormulaError    shapes or number formats for which a formula is not defined
    ├── SourceError     an input file that cannot be read: where in it, and why
    ├── OutputError     a file that cannot be written
    └── MissingExtra    a library that is not installed

A message says where, what, and what to do next, on one line.
"""

import re
from collections.abc import Iterable

# Characters that move a terminal's cursor, ring its bell, or reorder or hide what is shown: controls, bidirectional marks, and
# characters of no width. A name in a file may contain any of them. The page uses this pattern too, so it must also be valid in JavaScript.
UNSAFE = r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
MAX_LENGTH = 1200  # characters of an error message: names in files may be of any length
_STYLE = r"(\x1b\[[0-9;]*m)"


def clean(text: str, styled: bool = False) -> str:
    """Text that is safe to print: every unsafe character is a dot; the colours of ``styled`` text stay.

    >>> clean("a\x1b[2Jb")
    'a·[2Jb'
    """
    if text.replace("\n", "").isprintable():
        return text
    if not styled:
        return re.sub(UNSAFE, "·", text)
    return "".join(part if re.fullmatch(_STYLE, part) else re.sub(UNSAFE, "·", part) for part in re.split(_STYLE, text))


def excerpt(text: str, most: int = 60) -> str:
    """A piece of a text from a file, short enough to quote in an error.

    >>> excerpt("x" * 100, 5)
    "'xxxxx…'"
    """
    return repr(text[:most] + ("…" if len(text) > most else ""))


class RooflineError(Exception):
    """The base of all errors that this package raises on purpose."""

    def __str__(self) -> str:
        message = clean(super().__str__())
        return message if len(message) <= MAX_LENGTH else f"{message[: MAX_LENGTH // 2]}…{message[-MAX_LENGTH // 4 :]}"


class UsageError(RooflineError):
    """Invalid or contradictory arguments."""


class UnitError(RooflineError):
    """A quantity that cannot be read."""


class MachineError(RooflineError):
    """A machine that is unknown, badly described, or not rated for the work."""


class FormulaError(RooflineError):
    """Shapes or number formats for which a formula is not defined."""


class SourceError(RooflineError):
    """An input that cannot be read."""


class NoActivity(SourceError):
    """A recording in which no device ran anything."""


class OutputError(RooflineError):
    """An output that cannot be written."""


class MissingExtra(RooflineError):
    """A library that is not installed: part of the optional ``extra``, or, without one, a required dependency."""

    def __init__(self, library: str, extra: str = "") -> None:
        wanted = f"'roofline[{extra}]'" if extra else library
        super().__init__(f"{library} is not installed; run: pip install {wanted}")


def expect(value: object, kind: type, how: str) -> None:
    """Raise an error for an argument of another kind than a function of the public API takes; ``how`` makes one of the right kind.

    >>> expect("h100", float, "float('1')")
    Traceback (most recent call last):
    roofline.errors.UsageError: 'h100' is not a float; make one with float('1')
    """
    if not isinstance(value, kind):
        shown = excerpt(value) if isinstance(value, str) else f"a {type(value).__name__}"
        raise UsageError(f"{shown} is not a {kind.__name__}; make one with {how}")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The tail of an error message about a misspelt name: ``; did you mean 'h100-sxm'?``, or nothing.

    >>> did_you_mean("h10", ["h100", "v5e"])
    "; did you mean 'h100'?"
    >>> did_you_mean("zzz", ["h100", "v5e"])
    ''
    """
    from difflib import get_close_matches  # only needed for a wrong name

    spelling = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), spelling, n=3, cutoff=0.6)
    if not close:
        return ""
    *others, last = [repr(spelling[name]) for name in close]
    return f"; did you mean {', '.join(others) + ' or ' if others else ''}{last}?"
