"""PyTorch's profiler with all options needed for costs: shapes, memory, and Python calls for modules and source lines."""

import contextlib
import json
import os
import threading
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .roofline_hook_torch_tensors import add_tensors
else:
    add_tensors = import_module(f"{__package__}." * bool(__package__) + "roofline_hook_torch_tensors").add_tensors


class Profiler:
    """One profile at a time, and notification of profiles that the program takes itself."""

    def __init__(self, torch: Any, stacks: bool) -> None:
        self.torch, self.stacks = torch, stacks
        self.profile: Any = None
        self.starting = False  # while starting our profile, not the program's

    def start(self, *, own_thread: bool = False) -> None:
        """Start a profile; with ``own_thread``, only of this thread and its backward passes."""
        # CUDA graphs break when CUPTI is detached and attached again; PyTorch sets the same for Inductor.
        os.environ.setdefault("TEARDOWN_CUPTI", "0")
        os.environ.setdefault("DISABLE_CUPTI_LAZY_REINIT", "1")
        profile = self.torch.profiler.profile(**options(self.torch, self.stacks, own_thread))
        self.starting = True
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a warning about events of an earlier cycle, which does not exist here
                profile.start()
        finally:
            self.starting = False
        self.profile = profile

    def note(self, name: str, value: Any) -> None:
        """Write a value to the trace's metadata."""
        with contextlib.suppress(Exception):  # not available in older versions
            self.profile.add_metadata_json(name, json.dumps(value))

    def stop(self, path: "str | None") -> None:
        """Stop, and write the trace if there is a path for it."""
        profile, self.profile = self.profile, None
        self.starting = True
        try:
            profile.stop()
        finally:
            self.starting = False
        if path:
            draft = f"{path}.tmp"
            profile.export_chrome_trace(draft)
            add_tensors(profile, draft)
            os.replace(draft, path)

    def watch_others(self, begins: Any, ends: Any) -> None:
        """Call ``begins`` before the program starts a profile of its own, and ``ends`` after it ended."""
        kind = self.torch.autograd.profiler.profile
        prepare, leave = kind._prepare_trace, kind.__exit__

        def prepared(profile: Any) -> Any:
            if not self.starting:
                begins()
            return prepare(profile)

        def left(profile: Any, *error: Any) -> Any:
            result = leave(profile, *error)
            if not self.starting:
                ends()
            return result

        kind._prepare_trace, kind.__exit__ = prepared, left


def options(torch: Any, stacks: bool = True, own_thread: bool = False) -> "dict[str, Any]":
    """The options of torch.profiler.profile that record everything.

    A profile covers the thread that starts it and its backward passes; only that thread can stop it. A profile of all threads lacks the
    arguments of Inductor's kernels (PyTorch 2.11), so it is used only for programs whose steps run on other threads than the one they end
    on.
    """
    asked: dict[str, Any] = {"record_shapes": True, "profile_memory": True, "with_stack": stacks}
    if not own_thread and threading.current_thread() is not threading.main_thread():
        with contextlib.suppress(Exception):  # not available in older versions
            asked["experimental_config"] = torch.profiler._ExperimentalConfig(profile_all_threads=True)
    return asked
