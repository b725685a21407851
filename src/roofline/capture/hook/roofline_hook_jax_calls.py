"""Calls of jitted functions, seen from outside: once compiled, JAX runs them without any Python of its own.

While calls are watched, the type of jitted functions has a ``__call__`` of ours. Python before 3.12 does not look at it for types that have
a faster way to be called (PEP 590), unless the flag that says so is cleared, as later versions do by themselves.
"""

import ctypes
import sys
from typing import Any

_VECTORCALL = 1 << 11  # Py_TPFLAGS_HAVE_VECTORCALL
_FLAGS_OFFSET = 168  # of tp_flags in the type objects of CPython on 64 bits; what stands there is compared before it is changed


def watch_calls(jax: Any, called: Any) -> Any:
    """Has ``called(function, call, args, kwargs)`` make each call instead; a function that ends this, or ``None`` where it cannot be."""
    kind: Any = type(jax.jit(lambda: None))
    call = kind.__call__

    def watched(function: Any, *args: Any, **kwargs: Any) -> Any:
        return called(function, call, args, kwargs)

    def stop() -> None:
        kind.__call__ = call
        _set_vectorcall(kind, True)

    try:
        kind.__call__ = watched
    except TypeError:  # a type that cannot be changed
        return None
    if kind.__flags__ & _VECTORCALL and not _set_vectorcall(kind, False):
        kind.__call__ = call
        return None
    return stop


def _set_vectorcall(kind: Any, on: bool) -> bool:
    """Set or clear the flag, if it is where it should be; whether it is as asked."""
    if sys.implementation.name == "cpython" and ctypes.sizeof(ctypes.c_void_p) == 8:
        flags = ctypes.c_ulong.from_address(id(kind) + _FLAGS_OFFSET)
        if flags.value == kind.__flags__:
            flags.value = flags.value | _VECTORCALL if on else flags.value & ~_VECTORCALL
            ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))
    return bool(kind.__flags__ & _VECTORCALL) == on
