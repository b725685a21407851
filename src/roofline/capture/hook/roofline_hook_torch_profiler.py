"""PyTorch's profiler with everything on that says what an op costs: shapes, memory, and Python calls for modules and lines."""

import contextlib
import json
import os
import threading
import warnings
from typing import Any


class Profiler:
    """One profile at a time, and notice of those that the program takes itself."""

    def __init__(self, torch: Any, stacks: bool) -> None:
        self.torch, self.stacks = torch, stacks
        self.profile: Any = None
        self.starting = False  # a profile of ours, not of the program

    def start(self, *, own_thread: bool = False) -> None:
        """Start a profile; with ``own_thread`` of this thread and its backward passes alone."""
        # CUDA graphs do not survive a profiler that lets go of the device and takes hold of it again; PyTorch sets the same for Inductor.
        os.environ.setdefault("TEARDOWN_CUPTI", "0")
        os.environ.setdefault("DISABLE_CUPTI_LAZY_REINIT", "1")
        profile = self.torch.profiler.profile(**options(self.torch, self.stacks, own_thread))
        self.starting = True
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that events of an earlier cycle are gone, of which there is none
                profile.start()
        finally:
            self.starting = False
        self.profile = profile

    def note(self, name: str, value: Any) -> None:
        """Write a value into the head of the trace."""
        with contextlib.suppress(Exception):  # an older version without it
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
    """The options of torch.profiler.profile that lose nothing.

    A profile is of the thread that starts it and of its backward passes; only that thread can end it. One of all threads lacks the
    arguments of Inductor's kernels (PyTorch 2.11), so it is for programs whose steps run on other threads than the one they end on.
    """
    asked: dict[str, Any] = {"record_shapes": True, "profile_memory": True, "with_stack": stacks}
    if not own_thread and threading.current_thread() is not threading.main_thread():
        with contextlib.suppress(Exception):  # an older version without it
            asked["experimental_config"] = torch.profiler._ExperimentalConfig(profile_all_threads=True)
    return asked
