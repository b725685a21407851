"""The words of changes, read from left to right."""

from ...errors import UsageError


class Words:
    """Words that changes take from the left; ``usage`` is how the one that reads is written."""

    def __init__(self, words: list[str], usage: str = "") -> None:
        self._left, self.usage = words[::-1], usage

    @property
    def first(self) -> str | None:
        """The word that comes next, which stays."""
        return self._left[-1] if self._left else None

    def next(self) -> str | None:
        """The next word, if there is one."""
        return self._left.pop() if self._left else None

    def need(self) -> str:
        """The next word, which must be there."""
        found = self.next()
        if found is None:
            raise UsageError(f"a word is missing; write: {self.usage}")
        return found

    def wrong(self, why: str) -> UsageError:
        return UsageError(f"{why}; write: {self.usage}")
