"""Functions that a command line names, and the shapes of their arguments."""

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..integrations.functions import Shape

_SHAPE = re.compile(r"(?:(?P<format>\w+)\[)?(?P<sizes>[\dx, ]*)\]?")


def shape(text: str) -> Shape:
    """A number format, or none, and sizes.

    >>> shape("512x4096"), shape("f32[8]")
    (('', (512, 4096)), ('f32', (8,)))
    """
    match = _SHAPE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"--args {text!r}: not a shape; write it like 512x4096 or f32[512,4096]")
    return match["format"] or "", tuple(int(size) for size in re.findall(r"\d+", match["sizes"]))


def load_function(command: str, name: str) -> Callable[..., Any]:
    """The function that MODULE:FUNCTION names, from the current folder or the installed packages."""
    module, colon, function = name.partition(":")
    if not colon:
        raise UsageError(f"{command}: {name!r} is not a function name; write MODULE:FUNCTION")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), function)
    except Exception as error:  # whatever the user's module raises
        raise UsageError(f"{command}: {name!r} cannot be loaded: {error or type(error).__name__}") from None
    finally:
        sys.path.pop(0)
    if not callable(found):
        raise UsageError(f"{command}: {name!r} is not a function")
    return found  # type: ignore[no-any-return]
