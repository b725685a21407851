"""Captures of CUDA graphs: the events of a replay have no ops and shapes, those of the capture do.

Programs capture during warm-up, before the recording. So each capture is recorded as a small separate profile, in a folder next to the
trace.
"""

import contextlib
import os
from typing import Any

FOLDER = "capture_traces"  # read by sources/torch_trace
MOST = 64  # most captures recorded: servers capture a graph for each batch size


class GraphCaptures:
    """Records the captures of a process until its steps are recorded."""

    def __init__(self, torch: Any, recorder: Any) -> None:
        self.recorder = recorder
        self.count, self.depth, self.recording = 0, 0, False
        self.steps = False  # whether steps of the program ended during the capture
        kind = getattr(torch.cuda, "CUDAGraph", None)
        if kind is None:
            return
        begin, end = kind.capture_begin, kind.capture_end

        def begins(graph: Any, *args: Any, **kwargs: Any) -> Any:
            self._begin()
            try:
                return begin(graph, *args, **kwargs)
            except BaseException:
                self._end()
                raise

        def ends(graph: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return end(graph, *args, **kwargs)
            finally:
                self._end()

        kind.capture_begin, kind.capture_end = begins, ends

    @property
    def capturing(self) -> bool:
        """Whether a capture is in progress: waiting for the device would make it fail."""
        return self.depth > 0

    def _begin(self) -> None:
        self.depth += 1
        recorder = self.recorder
        if self.depth > 1 or os.getpid() != recorder.process:
            return
        recorder.activity()
        recorder.captured()
        self.count += 1
        self.steps = False
        if recorder.state == "waiting" and not recorder.own_profile and self.count <= MOST:
            with contextlib.suppress(Exception):  # a failure here must not break the capture itself
                recorder.profiler.start(own_thread=True)  # the graph of a backward pass is captured on that pass's thread
                self.recording = True

    def _end(self) -> None:
        self.depth -= 1
        if not self.depth and self.steps:
            self.recorder.steps_are_captured()
        if self.depth or not self.recording:
            return
        self.recording = False
        folder = os.path.join(self.recorder.folder, FOLDER)
        with contextlib.suppress(Exception):
            os.makedirs(folder, exist_ok=True)
            self.recorder.profiler.stop(os.path.join(folder, f"{self.count:04d}.json"))
