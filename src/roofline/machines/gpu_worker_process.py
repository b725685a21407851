"""The process that measures an accelerator, and the file of finished experiments from which an interrupted measurement resumes."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import MachineError

PART = ".part"  # finished experiments, beside the machine file, until that is written


class Worker:
    """A process with a device; ``device`` is what it says of it."""

    def __init__(self, kind: str = "gpu", framework: str = "") -> None:
        package = Path(__file__).parents[2]
        paths = os.pathsep.join(filter(None, [str(package), os.environ.get("PYTHONPATH", "")]))
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", f"{__package__}.gpu_worker", framework, kind],
            env={**os.environ, "PYTHONPATH": paths, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.device: Mapping[str, Any] = self._answer()
        if reason := self.device.get("absent"):
            self._end()
            raise MachineError(f"no GPU can be measured here ({reason}); it takes PyTorch or JAX with a GPU build")

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, request: Mapping[str, Any]) -> None:
        """Start an experiment."""
        try:
            assert self._process.stdin
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise MachineError("the measuring process has ended; run the same command again to resume") from None

    def answer(self) -> dict[str, Any]:
        """The result of the experiment that was asked for."""
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            self._end()
            raise MachineError("the measuring process ended without an answer; run the same command again to resume")
        return dict(json.loads(line))


class FinishedExperiments:
    """Answers of finished experiments, in a file beside the target, one per line; those of another device or plan are not used."""

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
                except ValueError:  # cut off while it was written
                    continue
                self.answers[key] = found
        else:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(head + "\n", "utf-8")

    def add(self, key: str, found: dict[str, Any]) -> None:
        self.answers[key] = found
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps([key, found]) + "\n")

    def delete(self) -> None:
        """Delete the file, once the machine file is written."""
        self._file.unlink(missing_ok=True)
