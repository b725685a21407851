"""Registries of prices: which function prices which name, those of users first, then exact names, then patterns, the longest first.

A pattern has a ``*``, which matches any characters: ``c10d::*``.
"""

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from importlib import import_module
from typing import Any, Generic, TypeVar

from ..cost import Cost
from ..errors import UsageError
from ..ledger import Ledger

Function = TypeVar("Function", bound=Callable[..., Any])
Found = TypeVar("Found")


class Registry(Generic[Function]):
    """The prices of one kind of name, which stand in files of a package that are imported when a name is looked up.

    ``owned`` are the files by what the names in them begin with: for such a name only that file is imported, else all ``files``.
    """

    def __init__(self, kind: str, package: str, files: Sequence[str], owned: Mapping[str, str] | None = None) -> None:
        self.kind, self.package, self.files, self.owned = kind, package, files, owned or {}
        self.own: dict[str, Function] = {}
        self.users: dict[str, Callable[[Any], Any]] = {}
        self._imported: set[str] = set()
        self._known: dict[str, Function | None] = {}

    def __call__(self, *names: str) -> Callable[[Function], Function]:
        """Registers a function of this package for these names."""

        def registered(function: Function) -> Function:
            for name in names:
                if name in self.own:
                    raise ValueError(f"the {self.kind} {name!r} already has a price; choose one function for it")
                self.own[name] = function
            return function

        return registered

    def register(self, name: str, function: Callable[[Any], Any], example: str, forget: str) -> None:
        """Registers a user's function, with an example of a registration and the name of what removes it, for messages."""
        if not name or name == "*":
            raise UsageError(f"the {self.kind} needs a name, as in {example}")
        if name in self.users:
            raise UsageError(f"the {self.kind} {name!r} already has a function, one of yours; remove yours with {forget}")
        self.users[name] = function

    def forget(self, name: str) -> None:
        """Removes a user's function."""
        if name not in self.users:
            raise UsageError(f"you registered no function for the {self.kind} {name!r}")
        del self.users[name]

    def load(self, name: str = "") -> None:
        """Imports the files in which a name may be."""
        files = next(([file] for beginning, file in self.owned.items() if name.startswith(beginning)), self.files)
        for file in files:
            if file not in self._imported:
                import_module(f".{file}", self.package)
                self._imported.add(file)

    def users_function(self, *names: str) -> Callable[[Any], Any] | None:
        """The user's function for a name; of several names for the first that has one."""
        return _find(names, self.users) if self.users else None

    def function(self, *names: str) -> Function | None:
        """This package's function for a name; of several names for the first that has one."""
        if names[0] not in self._known:
            self.load(names[0])
            self._known[names[0]] = _find(names, self.own)
        return self._known[names[0]]

    def answer(self, name: str, function: Callable[[Any], Any], argument: object, *more: type) -> Any:
        """What a user's function says about a call: a `Cost`, a `Ledger`, ``None`` or one of ``more`` types."""
        answer = function(argument)
        if answer is None or isinstance(answer, (Cost, Ledger, *more)):
            return answer
        words = ", ".join(("a Cost", "a Ledger", *(f"a {kind.__name__}" for kind in more)))
        raise UsageError(f"the function for {name!r} returned a {type(answer).__name__}; return {words} or None")


def _find(names: Sequence[str], table: Mapping[str, Found]) -> Found | None:
    for name in names:
        if name in table and "*" not in name:
            return table[name]
    likely = [pattern for pattern in table if "*" in pattern and names[0].startswith(pattern.partition("*")[0])]  # faster than matching all
    fitting = [pattern for pattern in likely if fnmatchcase(names[0], pattern)]
    return table[max(fitting, key=len)] if fitting else None
