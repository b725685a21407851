"""Captures of CUDA graphs: the events of a replay say nothing of ops and shapes, those of the capture do.

Programs capture while they warm up, before the recording. So each capture is a small profile of its own, in a folder beside the trace.
"""

import contextlib
import os
from typing import Any

FOLDER = "capture_traces"  # where the reader of traces looks for them
MOST = 64  # captures that are recorded: servers capture a graph for each size of a batch


class GraphCaptures:
    """Records the captures of a process until its steps are recorded."""

    def __init__(self, torch: Any, recorder: Any) -> None:
        self.recorder = recorder
        self.count, self.depth, self.recording = 0, 0, False
        self.steps = False  # whether steps of the program ended in the capture
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
        """Whether a capture is under way: a device that is waited for then ends it with an error."""
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
            with contextlib.suppress(Exception):  # the graph matters more than its record
                recorder.profiler.start(own_thread=True)  # a graph of a backward pass is captured on the thread of that
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
