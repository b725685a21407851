"""Functions that a command line names, and the shapes of their arguments."""

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import UsageError, did_you_mean
from ..integrations.functions import Shape

_SHAPE = re.compile(r"(?:(?P<format>\w+)\[)?(?P<sizes>[\dx, ]*)\]?(?::(?P<after>\w+))?")


def shape(text: str) -> Shape:
    """A number format, or none, and sizes.

    >>> shape("512x4096"), shape("f32[8]"), shape("8x512:bf16")
    (('', (512, 4096)), ('f32', (8,)), ('bf16', (8, 512)))
    """
    match = _SHAPE.fullmatch(text.strip())
    if match is None or (match["format"] and match["after"]):
        raise UsageError(f"--args {text!r}: not a shape; write it like 512x4096, 512x4096:bf16 or f32[512,4096]")
    return match["format"] or match["after"] or "", tuple(int(size) for size in re.findall(r"\d+", match["sizes"]))


def load_function(command: str, name: str) -> Callable[..., Any]:
    """The function that MODULE:FUNCTION, MODULE:CLASS.FUNCTION or FILE.py:FUNCTION names; a module may be in the current folder."""
    module, colon, function = name.rpartition(":")
    if not colon:
        raise UsageError(f"{command}: {name!r} is not a function name; write MODULE:FUNCTION")
    file = Path(module) if module.endswith(".py") else None
    if file is not None and not file.is_file():
        raise UsageError(f"{command}: {name!r}: there is no file {module}")
    sys.path.insert(0, str(file.resolve().parent if file else Path.cwd()))
    try:
        found: Any = importlib.import_module(file.stem if file else module)
    except Exception as error:  # whatever the user's module raises
        message = (str(error).splitlines() or [""])[0] or type(error).__name__
        raise UsageError(f"{command}: {name!r} cannot be loaded: {message}") from None
    finally:
        sys.path.pop(0)
    for part in function.split("."):
        inside = found
        if (found := getattr(inside, part, None)) is None:
            hint = did_you_mean(part, (one for one in dir(inside) if callable(getattr(inside, one, None))))
            raise UsageError(f"{command}: {name!r}: no {part!r} in {getattr(inside, '__name__', part)}{hint}")
    if not callable(found):
        raise UsageError(f"{command}: {name!r} is not a function")
    return found  # type: ignore[no-any-return]
