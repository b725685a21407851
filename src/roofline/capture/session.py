"""Capture of a ``with`` block under the profiler of its framework, and the report on it.

with roofline.capture("run") as captured:
    train()
captured.report
"""

import os
import shutil
import sys
import tempfile
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ..analysis import analyze
from ..errors import RooflineError, UsageError
from ..machine import Machine
from ..machines import load
from ..machines.detection import machine_for
from ..report import Report
from ..sources import read
from .hook import roofline_hook_jax as jax_hook
from .hook import roofline_hook_torch as torch_hook
from .hook.roofline_hook_jax_libtpu import CrashingProfiler
from .hook.roofline_hook_torch_profiler import options
from .run_folder import collect, staging_in

Files = tuple[Path, tuple[Path, ...]]


class Capture:
    """A profile of the code inside a ``with`` block; afterwards its ``report``.

    Entering and leaving wait for the devices, so that the profile contains exactly the work of the block. An error in the block propagates,
    and the recording until then is kept.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        chip: str | Machine | None = None,
        name: str | None = None,
        framework: str | None = None,
    ) -> None:
        if framework not in (None, "jax", "torch"):
            raise UsageError(f"unknown framework {framework!r}; one of: jax, torch")
        self._root = Path(tempfile.mkdtemp(prefix="roofline-") if folder is None else folder)
        if folder is None:
            weakref.finalize(self, shutil.rmtree, self._root, ignore_errors=True)
        self._chip, self._name, self._framework = chip, name, framework
        self._stop: Callable[[], Files] | None = None
        self._report: Report | None = None
        self.folder: Path | None = None
        self.files: tuple[Path, ...] = ()

    def __enter__(self) -> "Capture":
        if self._stop is not None:
            raise UsageError("a capture can be used once; create another: roofline.capture(folder)")
        start = _start_torch if (self._framework or _framework()) == "torch" else _start_jax
        self._stop = start(self._root, self._name)
        return self

    def __exit__(self, *error: object) -> None:
        assert self._stop is not None
        self.folder, self.files = self._stop()

    @property
    def report(self) -> Report:
        """The report on the profile, made on first access."""
        if self.folder is None:
            raise UsageError("no profile yet; the report is available after the with block")
        if self._report is None:
            self._report = _analyzed(self.folder, self._chip)
        return self._report


def _framework() -> str:
    """The framework that the program uses: the one it imported; if both, the one whose devices are in use."""
    imported = [name for name in ("jax", "torch") if name in sys.modules]
    if len(imported) < 2:
        return imported[0] if imported else "jax"
    backends = getattr(sys.modules.get("jax._src.xla_bridge"), "_backends", None)
    used = [name for name, is_used in (("jax", backends), ("torch", sys.modules["torch"].cuda.is_initialized())) if is_used]
    if len(used) != 1:
        raise UsageError("both JAX and PyTorch are imported; name one: roofline.capture(folder, framework='torch')")
    return used[0]


def _start_jax(root: Path, name: str | None) -> Callable[[], Files]:
    """Start JAX's profiler. Returns a function that stops it and returns the files of the profile."""
    from ..jax import require_jax

    jax = require_jax()
    stack = ExitStack()
    staging = stack.enter_context(staging_in(root))
    jax_hook.wait_for_devices(jax)
    try:
        jax_hook.start(jax, str(staging))
    except CrashingProfiler as error:
        stack.close()
        raise UsageError(f"cannot start JAX's profiler: {error}") from None
    except RuntimeError as error:
        stack.close()
        raise UsageError(f"cannot start JAX's profiler (it records one profile at a time): {error}") from None

    def stop() -> Files:
        with stack:
            jax_hook.wait_for_devices(jax)
            jax.profiler.stop_trace()
            return collect(staging, root, name)

    return stop


def _start_torch(root: Path, name: str | None) -> Callable[[], Files]:
    """Start PyTorch's profiler. Returns a function that stops it and returns the files of the trace."""
    from ..torch import require_torch
    from ..torch.trace_files import write_trace

    torch: Any = require_torch()
    with staging_in(root):  # fails early if it cannot be written
        pass
    torch_hook.wait_for_devices(torch)
    profiler: Any = torch.profiler.profile(**options(torch))
    try:
        profiler.start()
    except RuntimeError as error:
        raise UsageError(f"cannot start PyTorch's profiler (it records one profile at a time): {error}") from None

    def stop() -> Files:
        torch_hook.wait_for_devices(torch)
        profiler.stop()
        file = write_trace(profiler, root, name)
        return file.parent, (file,)

    return stop


def _analyzed(folder: Path, chip: str | Machine | None = None) -> Report:
    """The report on the profiles in a run folder, for a chip or for their own device."""
    machine = load(chip) if isinstance(chip, str) else chip
    recording = read(folder, machine or machine_for)
    if machine is None and not recording.devices:
        raise RooflineError(f"{folder}: no device activity was recorded; record longer, or start later")
    return analyze(recording, machine)
