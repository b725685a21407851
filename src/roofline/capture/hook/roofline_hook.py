"""In every Python process that `roofline capture` starts, wait for the import of a framework, and arm its recorder or finder of the step.

Only the standard library is imported, because the program's interpreter may not have roofline.
"""

import json
import os
import sys
from importlib import import_module
from typing import Any

SETTINGS = "ROOFLINE_CAPTURE"  # the environment variable: a JSON object of the arguments of a recorder, or of the finder of the step

# Top-level modules in the recorded program, part of the package elsewhere.
_PACKAGE = f"{__package__}." if __package__ else ""
StepFinder = import_module(f"{_PACKAGE}roofline_hook_step").StepFinder
JaxRecorder = import_module(f"{_PACKAGE}roofline_hook_jax").JaxRecorder
TorchRecorder = import_module(f"{_PACKAGE}roofline_hook_torch").TorchRecorder


class _Finder:
    """An import hook that notices the import of a framework, leaves finding it to the others, and arms the recorder after the import."""

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
            except Exception as error:  # an unsupported version; the program continues
                self.recorder.finish("failed", f"this version of {self.recorder.framework} is not supported: {error}")

        loader.exec_module = exec_module


def watch() -> None:
    """Install the import hook in this process, if `roofline capture` started it."""
    asked = os.environ.get(SETTINGS)
    if asked:
        settings = json.loads(asked)
        kinds = (StepFinder,) if "devices" in settings else (JaxRecorder, TorchRecorder)
        sys.meta_path[:0] = [_Finder(kind(**settings)) for kind in kinds]
