"""Records a profile of the PyTorch program in this process, without changes to the program.

A step ends with each step of the optimizer; without one, with each call of the outermost module, else each replay of a CUDA graph, else
each outermost `record_function`. The first step loads kernels and creates the optimizer's state; recording begins after the next step
without compilation, and each recorded step is annotated as ``ProfilerStep#N``. If later steps with the same shapes are faster, they are
recorded instead. Earlier captures of CUDA graphs are recorded separately.
"""

import contextlib
import os
import sys
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

_PACKAGE = f"{__package__}." if __package__ else ""
if TYPE_CHECKING:
    from .roofline_hook_recorder import OWN_PROFILE, PATIENCE, RESTARTS, Recorder, later
    from .roofline_hook_torch_graphs import GraphCaptures
    from .roofline_hook_torch_later import STEADY, LaterSteps
    from .roofline_hook_torch_profiler import Profiler
    from .roofline_hook_torch_steps import OTHER, Steps
else:
    _recorder = import_module(f"{_PACKAGE}roofline_hook_recorder")
    OWN_PROFILE, PATIENCE, RESTARTS = _recorder.OWN_PROFILE, _recorder.PATIENCE, _recorder.RESTARTS
    Recorder, later = _recorder.Recorder, _recorder.later
    GraphCaptures = import_module(f"{_PACKAGE}roofline_hook_torch_graphs").GraphCaptures
    _later = import_module(f"{_PACKAGE}roofline_hook_torch_later")
    STEADY, LaterSteps = _later.STEADY, _later.LaterSteps
    Profiler = import_module(f"{_PACKAGE}roofline_hook_torch_profiler").Profiler
    _steps = import_module(f"{_PACKAGE}roofline_hook_torch_steps")
    OTHER, Steps = _steps.OTHER, _steps.Steps

STEPS = 10  # recorded by default: the profiler keeps all events in memory until it stops
TRACE, EARLIER = "trace.json", "earlier.json"  # the trace, and the one that it is to replace
# PyTorch reads these when it is imported: bytes and FLOP of the kernels that Inductor generates, and no messages of the profiler.
VARIABLES = {"TORCHINDUCTOR_BENCHMARK_KERNEL": "1", "KINETO_LOG_LEVEL": "6"}
WARM_UP = 20  # if a graph is captured within this many steps, recorded or not, they were warm-up
MEASURED = 8  # steps before recording that are timed
ENOUGH = 3  # recorded steps that may replace an earlier recording
UNRECORDED = "roofline_step_s"  # in the trace: host time and whole time of a step before recording, and the number of steps
SLOWER = 1.25  # if recorded steps are slower than others by this factor, a note says so


class TorchRecorder(Recorder):
    """One profile of a PyTorch program."""

    framework, module = "PyTorch", "torch"

    def __init__(self, folder: str, **settings: Any) -> None:
        super().__init__(folder, **settings)
        bounded = self.duration_s is not None or self.from_start
        self.most = self.steps if self.steps is not None else None if bounded else STEPS
        self.kind, self.what = -1, ""  # kind of the detected steps (how certain it is that they are steps), and its description
        self.compilations, self.captures = 0, 0  # counts at the end of the last step
        self.step: Any = None  # the annotation of the step being recorded
        self.unfinished = ""  # the name of the annotation that was open when recording ended
        self.step_began_s, self.step_s = 0.0, 0.0  # start of the last step, and duration of unrecorded steps
        self.ended_s: list[float] = []  # end times of unrecorded steps since the last one that compiled
        self.least_s = 0.0  # host time of such steps
        self.first_s = 0.0  # when the first recorded step ended
        self.due, self.late = False, False  # whether the delay is over, and the duration
        self.called: list[Any] = []  # the shapes with which modules were called since the last step
        self.shapes: list[Any] = []  # the same of each step until the end of the recording
        self.later_steps: Any = None  # the steps after a recording
        self.earlier: Any = None  # of the recording that is to be replaced: its notes, and its number of steps
        self.profiler: Any = None
        self.torch: Any = None
        self.graphs: Any = None

    def prepare(self) -> None:
        for name, value in VARIABLES.items():
            os.environ.setdefault(name, value)

    def watch(self, framework: Any) -> None:
        self.torch = framework
        self.profiler = Profiler(framework, self.python is not False)
        self.graphs = GraphCaptures(framework, self)
        self.profiler.watch_others(self._program_profile_begins, self._program_profile_ends)
        Steps(framework, self).watch()
        if self.from_start:
            self._watch_devices()

    def start(self) -> None:
        os.makedirs(self.folder, exist_ok=True)
        self.profiler.start()
        if self.step_s:
            self.profiler.note(UNRECORDED, [self.least_s, self.step_s, len(self.ended_s) - 1])
        self._annotate()

    def stop(self) -> None:
        self.unfinished = f"ProfilerStep#{self.seen}" if self.step is not None else ""
        self._close()
        if self.earlier and self.recorded < ENOUGH:
            self.profiler.stop(None)
            self._keep_earlier()
            return
        self.profiler.stop(os.path.join(self.folder, TRACE))
        self.earlier = None
        self._remove(EARLIER)

    def wait_for_devices(self) -> None:
        wait_for_devices(self.torch)

    def discard(self) -> None:
        self._close()
        if self.state == "recording":
            self.profiler.stop(None)
        self.shapes, self.later_steps, self.earlier = [], None, None
        self._remove(TRACE)
        self._remove(EARLIER)

    def _remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(self.folder, name))

    def certainty(self) -> int:
        return int(self.kind)

    def message(self) -> "dict[str, Any]":
        rank = os.environ.get("RANK", "")
        before_s = self.step_s if self.recorded and len(set(self.shapes[-self.recorded - 1 :])) == 1 else 0.0
        return {
            **super().message(),
            "unfinished": self.unfinished,
            "rank": int(rank) if rank.isdecimal() else None,
            "before_s": before_s,
        }

    def final_note(self) -> str:
        """A note about steps that never repeat, or about how much slower the program was while it was recorded."""
        recorded = self.shapes[-self.recorded :]
        if len(recorded) >= ENOUGH and all(recorded) and len(set(recorded)) == len(recorded) and self.later_steps is None:
            return "no two recorded steps have the same shapes: each may include what is done once a shape, such as choosing kernels"
        if self.recorded < 2 or not self.step_s:  # the first one includes the start of the profiler
            return ""
        recorded_s = (self.step_began_s - self.first_s) / (self.recorded - 1)
        if recorded_s < SLOWER * self.step_s:
            return ""
        less = "" if self.python is False else "; --no-python slows it less"
        return f"a step took {_shown(recorded_s)} while it was recorded, {_shown(self.step_s)} before: the host is slower{less}"

    def activity(self) -> None:
        """Called when the program first uses PyTorch."""
        if self.ran or os.getpid() != self.process:
            return
        self.ran = True
        if self.from_start:
            self.begin()
        elif self.delay_s:
            later(self.delay_s, self._delay_is_over)

    def _delay_is_over(self) -> None:
        self.due = True

    def time_is_up(self) -> None:
        self.late = True  # the thread that started the profile must stop it

    def boundary(self, kind: int, what: str, anew: bool = False) -> None:
        """Called at the end of a step; ``anew`` if it is of another, more certain kind than those before."""
        if os.getpid() != self.process or kind < self.kind or self.own_profile:
            return
        if self.graphs.capturing:
            self.graphs.steps = True
            return
        if kind > self.kind or anew:
            self._switch_steps(kind, what)
        now, compiled = time.monotonic(), self._compiled()
        shapes, self.called = frozenset(self.called), []
        self.step_began_s = now
        self.seen += 1
        if self.state == "done":
            self._watch_later(now, shapes, compiled)
            return
        if self.warming:
            self.shapes.append(shapes)
        if self.state == "recording":
            self.recorded += self.step is not None
            self.first_s = now if self.recorded <= 1 else self.first_s
            self._close()
            if self.late or (self.most is not None and self.recorded >= self.most):
                self.end()
                return
            self._annotate()
        elif self.state == "waiting":
            self.ended_s = [] if compiled else self.ended_s[-MEASURED:]
            if self.warming and not self.ended_s:  # the device may still work for the first step
                wait_for_devices(self.torch)
                now = time.monotonic()
            self.ended_s.append(now)
            self._decide(compiled)

    def _watch_later(self, now: float, shapes: Any, compiled: bool) -> None:
        """Record again if later steps are faster than the recorded ones were before the recording."""
        if not (self.warming and self.step_s and self.kind > OTHER and self.restarts < RESTARTS):
            return
        self.later_steps = self.later_steps or self._steps_after()
        step_s = self.later_steps.ended(now, shapes, compiled)
        if self.later_steps.measured_s not in (0.0, self.unprofiled_s) and self._are_alike():
            self.unprofiled_s = self.later_steps.measured_s
            self.write_message()
        if not step_s:
            return
        os.replace(os.path.join(self.folder, TRACE), os.path.join(self.folder, EARLIER))
        once = f"{1 - step_s / self.step_s:.0%} of their time was work that is done once"
        why = f"earlier steps took {_shown(self.step_s)} and were discarded, these take {_shown(step_s)}: {once}"
        self.earlier, self.notes = (self.notes, self.recorded), []
        self.state, self.restarts = "waiting", self.restarts + 1
        self.least_s, self.step_s, self.ended_s = step_s, step_s, [now] * (STEADY + 1)
        self.later_steps = self._steps_after()
        self.begin_warm(f"recording began again after {self.what} {self.seen}: {why}")
        if self.state == "recording":
            self.step_began_s = time.monotonic()
        else:
            self._keep_earlier()
            self.state = "done"
            self.write_message()

    def _are_alike(self) -> bool:
        """Whether any recorded step stands for the others: all have the same shapes, or each its own, as where lengths grow."""
        return len(set(self.shapes[-self.recorded :])) in (1, self.recorded)

    def _steps_after(self) -> Any:
        return LaterSteps(self.step_s, set(self.shapes), lambda: wait_for_devices(self.torch))

    def _keep_earlier(self) -> None:
        """The program ended, or began a profile of its own, before another recording could replace the earlier one."""
        os.replace(os.path.join(self.folder, EARLIER), os.path.join(self.folder, TRACE))
        self.notes, self.recorded = self.earlier
        self.earlier, self.unfinished, self.shapes, self.step_s = None, "", [], 0.0

    def _measure(self) -> None:
        """Measure the time of the last steps, including their remaining device work."""
        wait_for_devices(self.torch)
        count = len(self.ended_s) - 1
        if count > 0:
            self.least_s = (self.ended_s[-1] - self.ended_s[0]) / count
            self.step_s = (time.monotonic() - self.ended_s[0]) / count

    def _decide(self, compiled: bool) -> None:
        """Whether recording begins now, between two steps."""
        if self.skip or self.delay_s:
            if self.due or 0 < self.skip <= self.seen:
                self._measure()
                self.begin(settled=True)
        elif self.warming and self.seen > 1 and not compiled:
            self._measure()
            self.begin_warm(f"recording began after {self.what} {self.seen}, which did not compile")
        elif self.warming and self.seen >= PATIENCE:
            self.begin_warm(f"recording began although each of {self.seen} steps compiled")
        self.step_began_s = time.monotonic()

    def _switch_steps(self, kind: int, what: str) -> None:
        """A more certain kind of step was found: the recording so far was preparation."""
        if not self.from_start:
            if self.kind >= 0:
                self.restart(even_if_done=True)
            self.seen, self.ended_s, self.shapes = 0, [], []
        self.kind, self.what = kind, what

    def captured(self) -> None:
        """Called when the program captures a CUDA graph: the steps before were warm-up, and later steps are replays."""
        if self.warming:
            self.restart(even_if_done=self.seen <= WARM_UP)
            if self.state == "waiting":
                self.kind, self.seen, self.ended_s = -1, 0, []

    def steps_are_captured(self) -> None:
        """Called when steps ended inside a captured graph: from now on replays are steps."""
        self.kind = -1

    def _compiled(self) -> bool:
        """Whether anything was compiled or captured since the last call."""
        before = self.compilations, self.captures
        metrics = getattr(sys.modules.get("torch._dynamo.utils"), "compilation_time_metrics", {})
        self.compilations, self.captures = sum(map(len, metrics.values())), self.graphs.count
        return before != (self.compilations, self.captures)

    def _annotate(self) -> None:
        if self.kind >= 0 or self.from_start:  # otherwise the kind of step is not known yet
            self.step = self.torch.profiler.record_function(f"ProfilerStep#{self.seen}")
            self.step.__enter__()

    def _close(self) -> None:
        if self.step is not None:
            step, self.step = self.step, None
            step.__exit__(None, None, None)

    def _program_profile_begins(self) -> None:
        self.own_profile = True
        self.own_profiles += 1
        if self.recorded or self.earlier or not self.restart():  # without a step there is nothing to save
            self.end(OWN_PROFILE)
        if self.state == "waiting":
            self.notes = ["the program takes its own profile; only steps outside of it are recorded"]

    def _program_profile_ends(self) -> None:
        self.own_profile = False

    def _watch_devices(self) -> None:
        """With ``from_start``, begin when the program first uses a GPU; without a GPU, now."""
        version = self.torch.version
        if not (version.cuda or getattr(version, "hip", None)):
            self.activity()
            return
        cuda = self.torch.cuda
        initialise = cuda._lazy_init

        def initialised() -> Any:
            result = initialise()
            if cuda.is_initialized():
                cuda._lazy_init = initialise
                self.activity()
            return result

        cuda._lazy_init = initialised


def wait_for_devices(torch: Any) -> None:
    """Wait until the devices of this process are idle; errors on them are raised in the program itself."""
    for name in ("cuda", "xpu"):
        with contextlib.suppress(Exception):
            devices = getattr(torch, name)
            if devices.is_initialized():
                for number in range(devices.device_count()):
                    if number == devices.current_device() or devices.memory_reserved(number):  # others have no context yet
                        devices.synchronize(number)
    with contextlib.suppress(Exception):
        if torch.backends.mps.is_available():
            torch.mps.synchronize()


def _shown(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
