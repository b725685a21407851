"""The folder that an agent may read; symbolic links are resolved before the check."""

import os
from itertools import pairwise
from pathlib import Path

from ..checking.conditions import Condition
from ..errors import UsageError
from ..machines.catalogue import is_path
from ..sources.remote import is_remote
from ..sources.samples import is_sample


class AgentFolder:
    """Access to files below one folder, and to samples of the package. Nothing is written."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).resolve()

    def path(self, name: str) -> str:
        """The path of a file or folder that may be read; an error for anything outside the folder."""
        if is_sample(name):
            return name
        if is_remote(name) or name == "-" or "\0" in name:
            raise UsageError(f"{name!r}: only files below {self.root.name}/ are read here")
        found = (self.root / name).resolve()
        self._check(found, name)
        if not found.exists():
            raise UsageError(f"{name}: no such file below {self.root.name}/")
        if not found.is_file() and not found.is_dir():
            raise UsageError(f"{name}: not a file or folder")
        if found.is_dir():
            for folder, folders, files in os.walk(found):
                for one in (*folders, *files):
                    inner = Path(folder, one)
                    if inner.is_symlink():
                        self._check(inner.resolve(), str(inner.relative_to(self.root)))
        return str(found)

    def _check(self, found: Path, name: str) -> None:
        if not found.is_relative_to(self.root):
            raise UsageError(f"{name!r}: outside of {self.root.name}/; only files below it are read here")

    def chip(self, name: str | None) -> str | None:
        """The name of a chip; an error for a machine file, which may refer to further files."""
        if name and is_path(name):
            raise UsageError(f"{name!r}: name a chip of the catalogue; machine files are not read here")
        return name or None

    def changes(self, words: list[str]) -> list[str]:
        """The arguments of a what-if, with any chips in them checked."""
        for change, word in pairwise(words):
            if change == "chip":
                self.chip(word)
        return words

    def conditions(self, conditions: tuple[Condition, ...]) -> tuple[Condition, ...]:
        """Conditions, with any chips in them checked."""
        for one in conditions:
            self.chip(one.quantity.on if one.quantity else None)
        return conditions
