"""Waits, in every Python that `roofline capture` starts, for the import of a framework, and arms the recorder of that framework.

Only the standard library is imported: the program's interpreter may be one without roofline.
"""

import json
import os
import sys
from importlib import import_module
from typing import Any

SETTINGS = "ROOFLINE_CAPTURE"  # the environment variable: a JSON object of the fields of a recorder

# By itself in the program that is recorded, as a part of roofline elsewhere.
_BESIDE = f"{__package__}." if __package__ else ""
JaxRecorder = import_module(f"{_BESIDE}roofline_hook_jax").JaxRecorder
TorchRecorder = import_module(f"{_BESIDE}roofline_hook_torch").TorchRecorder


class _Finder:
    """Sees the import of a framework, lets the others find it, and arms its recorder when it is there."""

    def __init__(self, recorder: Any) -> None:
        self.recorder = recorder

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != self.recorder.module:
            return None
        sys.meta_path.remove(self)
        self.recorder.prepare()
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                self._arm_after(spec.loader)
                return spec
        return None

    def _arm_after(self, loader: Any) -> None:
        run = loader.exec_module

        def exec_module(module: Any) -> None:
            del loader.exec_module
            run(module)
            try:
                self.recorder.arm(module)
            except Exception as error:  # a version without what is asked of it; the program goes on
                self.recorder.finish("failed", f"this version of {self.recorder.framework} is not supported: {error}")

        loader.exec_module = exec_module


def watch() -> None:
    """Wait for the frameworks in this process, if `roofline capture` asked for it."""
    asked = os.environ.get(SETTINGS)
    if asked:
        settings = json.loads(asked)
        sys.meta_path[:0] = [_Finder(JaxRecorder(**settings)), _Finder(TorchRecorder(**settings))]
