"""Regular expressions that are compiled when they are first used: a short command needs few of those that its modules declare.

>>> STEM = pattern(r"[a-z]+")
>>> STEM.match("fusion.12")[0]
'fusion'
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """What ``re.compile`` gives, later."""
    return _Pattern(text, flags)  # type: ignore[return-value]


class _Pattern:
    """Stands for a compiled pattern. What is asked of it is kept, so that from the second time on nothing stands in between."""

    def __init__(self, text: str, flags: int) -> None:
        self._text, self._flags = text, flags

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, found)
        return found
