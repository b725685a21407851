"""Imported by every Python process that `roofline capture` starts: installs the hook, then runs the sitecustomize that this one shadows.

Python imports the first module of this name on its path at startup. `PYTHONPATH` puts this folder first; the module removes it again, so
that the program has its original path.
"""

import contextlib
import os
import sys
from importlib import import_module

_HERE = os.path.dirname(os.path.abspath(__file__))


def _start() -> None:
    with contextlib.suppress(Exception):  # the program must run even if the hook fails
        import_module("roofline_hook").watch()


def _run_shadowed_sitecustomize() -> None:
    """Remove this folder from the path, and import the environment's own sitecustomize, if it has one."""
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
    _run_shadowed_sitecustomize()
