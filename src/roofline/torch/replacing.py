"""Functions of PyTorch that are replaced while a function is traced, for the thread that traces it.

PyTorch has no hook for them: an autocast is an object that sets a flag, and function modes are inactive during a backward pass. Other
threads keep what they have, and PyTorch gets its own function back when the last one has been traced, whatever was raised.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, get_ident
from typing import Any

from msgspec import Struct

Function = Callable[..., Any]


class _Replaced(Struct, eq=False):
    """A replaced function: the original, and what the threads call instead, the innermost last."""

    original: Function
    instead: dict[int, list[Function]]

    def call(self) -> Function:
        """The function in the original's place: a plain one, which a class binds as a method."""

        def called(*args: Any, **kwargs: Any) -> Any:
            instead = self.instead.get(get_ident())
            return (instead[-1] if instead else self.original)(*args, **kwargs)

        return called


_LOCK = Lock()
_REPLACED: dict[tuple[int, str], _Replaced] = {}  # by the id of the module or class, which PyTorch keeps, and the name


@contextmanager
def replaced(owner: Any, name: str, make: Callable[[Function], Function]) -> Iterator[Function]:
    """A context in which this thread calls ``make(original)`` instead of a function of a module or class. Gives the original."""
    key, thread = (id(owner), name), get_ident()
    with _LOCK:
        if key not in _REPLACED:
            _REPLACED[key] = _Replaced(getattr(owner, name), {})
            setattr(owner, name, _REPLACED[key].call())
        entry = _REPLACED[key]
        entry.instead.setdefault(thread, []).append(make(entry.original))
    try:
        yield entry.original
    finally:
        with _LOCK:
            entry.instead[thread].pop()
            if not entry.instead[thread]:
                del entry.instead[thread]
            if not entry.instead:
                setattr(owner, name, entry.original)
                del _REPLACED[key]
