"""The process that measures an accelerator."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import MachineError


class Worker:
    """The worker process; ``device`` is its description of the device."""

    def __init__(self, kind: str = "gpu", framework: str = "") -> None:
        package = Path(__file__).parents[3]
        paths = os.pathsep.join(filter(None, [str(package), os.environ.get("PYTHONPATH", "")]))
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", f"{__package__}.gpu_worker", framework, kind],
            env={**os.environ, "PYTHONPATH": paths, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.device: Mapping[str, Any] = self.answer()
        if reason := self.device.get("absent"):
            self._end()
            needs = "jax[tpu] on a computer with TPUs" if kind == "tpu" else "PyTorch or JAX with a GPU build"
            raise MachineError(f"no {kind.upper()} can be measured here ({reason}); it takes {needs}")

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
        """The result of the requested experiment; first of all, the description of the device."""
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            self._end()
            raise MachineError("the measuring process ended without an answer; run the same command again to resume")
        return dict(json.loads(line))
