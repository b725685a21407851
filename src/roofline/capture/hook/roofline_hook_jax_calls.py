"""Intercept calls of jitted functions: after compilation, JAX runs them without any Python code.

While calls are watched, the type of jitted functions has a replaced ``__call__``. Python before 3.12 ignores it for types with vectorcall
(PEP 590) unless the type's flag is cleared, which later versions do by themselves.
"""

import ctypes
import sys
from typing import Any

_VECTORCALL = 1 << 11  # Py_TPFLAGS_HAVE_VECTORCALL
_FLAGS_OFFSET = 168  # of tp_flags in the type objects of 64-bit CPython; the value is verified before it is changed


def watch_calls(jax: Any, called: Any) -> Any:
    """Route each call through ``called(function, call, args, kwargs)``.

    Returns a function that ends this, or ``None`` if it is not possible.
    """
    kind: Any = type(jax.jit(lambda: None))
    call = kind.__call__

    def watched(function: Any, *args: Any, **kwargs: Any) -> Any:
        return called(function, call, args, kwargs)

    def stop() -> None:
        kind.__call__ = call
        _set_vectorcall(kind, True)

    try:
        kind.__call__ = watched
    except TypeError:  # an immutable type
        return None
    if kind.__flags__ & _VECTORCALL and not _set_vectorcall(kind, False):
        kind.__call__ = call
        return None
    return stop


def _set_vectorcall(kind: Any, on: bool) -> bool:
    """Set or clear the flag, if it is at the expected offset. Returns whether it now has the wanted value."""
    if sys.implementation.name == "cpython" and ctypes.sizeof(ctypes.c_void_p) == 8:
        flags = ctypes.c_ulong.from_address(id(kind) + _FLAGS_OFFSET)
        if flags.value == kind.__flags__:
            flags.value = flags.value | _VECTORCALL if on else flags.value & ~_VECTORCALL
            ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))
    return bool(kind.__flags__ & _VECTORCALL) == on
