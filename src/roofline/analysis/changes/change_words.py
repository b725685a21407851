"""The arguments of changes, parsed from left to right."""

from ...errors import UsageError


class Words:
    """A list of words that changes consume from the left; ``usage`` is the syntax of the change that is being parsed."""

    def __init__(self, words: list[str], usage: str = "") -> None:
        self._left, self.usage = words[::-1], usage

    @property
    def first(self) -> str | None:
        """The next word, without consuming it."""
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
