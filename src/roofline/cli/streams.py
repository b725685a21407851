"""Standard output and error of a process that may have been started without them."""

import os
import sys
from typing import TextIO


def is_closed(stream: TextIO) -> bool:
    """Whether the process was started without this stream, for which `opened_streams` put another."""
    return getattr(stream, "name", "") == os.devnull


def opened_streams() -> None:
    """Standard output and error where they can be written to: a process may be started without them."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115  for as long as the process lives
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
