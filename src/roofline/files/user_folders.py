"""The user's folders for caches and data, by the conventions of each system."""

import os
import sys
from pathlib import Path

from ..errors import UsageError


def user_folder(variable: str, kind: str) -> Path:
    """The folder for the ``cache`` or the ``data`` of roofline: from the environment variable, else the system's default."""
    if path := os.environ.get(variable):
        return Path(path)
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        folder = Path(local, "roofline") if local else _home(variable) / "AppData" / "Local" / "roofline"
        return folder / "cache" if kind == "cache" else folder
    if sys.platform == "darwin":
        return _home(variable) / "Library" / {"cache": "Caches", "data": "Application Support"}[kind] / "roofline"
    shared = os.environ.get({"cache": "XDG_CACHE_HOME", "data": "XDG_DATA_HOME"}[kind])
    return Path(shared or _home(variable) / {"cache": ".cache", "data": ".local/share"}[kind], "roofline")


def _home(variable: str) -> Path:
    try:
        return Path.home()
    except (RuntimeError, KeyError):
        raise UsageError(f"this user has no home folder; set HOME, or {variable} to a folder") from None
