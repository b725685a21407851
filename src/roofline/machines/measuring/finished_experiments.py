"""The file of finished experiments from which an interrupted measurement resumes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PART = ".part"  # suffix of the file next to the machine file, until that is written


class FinishedExperiments:
    """The answers of finished experiments, in a file next to the target, one per line; those of another device or plan are ignored."""

    def __init__(self, target: Path, about: Mapping[str, Any]) -> None:
        self._file = target.with_name(target.name + PART)
        self.answers: dict[str, dict[str, Any]] = {}
        head = json.dumps(about, sort_keys=True)
        try:
            first, *rest = self._file.read_text("utf-8").splitlines()
        except (OSError, ValueError):
            first, rest = "", []
        if first == head:
            for line in rest:
                try:
                    key, found = json.loads(line)
                except ValueError:  # a truncated line
                    continue
                self.answers[key] = found
        else:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(head + "\n", "utf-8")

    def add(self, key: str, found: dict[str, Any]) -> None:
        self.answers[key] = found
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps([key, found]) + "\n")


def finish(target: Path) -> None:
    """Remove the stored answers after the machine file is written."""
    target.with_name(target.name + PART).unlink(missing_ok=True)
