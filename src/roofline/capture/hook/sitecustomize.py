"""Imported by every Python that `roofline capture` starts: watch for JAX, then run the sitecustomize that this one hides.

Python imports the first module of this name on its path at start. `PYTHONPATH` puts this folder first; it takes itself off the path
again, so that the program sees the path it would have had.
"""

import contextlib
import os
import sys
from importlib import import_module

_HERE = os.path.dirname(os.path.abspath(__file__))


def _start() -> None:
    with contextlib.suppress(Exception):  # whatever goes wrong here, the program itself has to run
        import_module("roofline_hook").watch()


def _give_way() -> None:
    """Leave the path, and import the environment's own sitecustomize, if it has one."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != _HERE]
    me = sys.modules.pop("sitecustomize", None)
    try:
        import_module("sitecustomize")
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
        if me is not None:
            sys.modules["sitecustomize"] = me


if __name__ == "sitecustomize":
    _start()
    _give_way()
