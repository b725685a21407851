"""What thirty-three commands show, approved by eye; `python tests/screens/screens.py [NAME ...]` writes the screens anew.

`commands.txt` names them. `NAME.txt` is what the terminal shows at 100 columns, standard error included, and the exit status, if not 0.
"""

import io
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

from roofline.cli import main

HERE = Path(__file__).parent
COMMANDS: Mapping[str, Sequence[str]] = {
    name: words for name, *words in map(shlex.split, (HERE / "commands.txt").read_text().splitlines()) if name
}


def screen(name: str) -> str:
    """What the command of this name shows now."""
    shown = io.StringIO()
    with chdir(HERE.parents[1]), patch.dict(os.environ, COLUMNS="100"), redirect_stdout(shown), redirect_stderr(shown):
        status = main(COMMANDS[name])
    return shown.getvalue() + f"(exit status {status})\n" * (status != 0)


def approved(name: str) -> Path:
    """The file that holds the approved screen of a command."""
    return HERE / f"{name}.txt"


if __name__ == "__main__":
    for name in sys.argv[1:] or COMMANDS:
        approved(name).write_text(screen(name))
