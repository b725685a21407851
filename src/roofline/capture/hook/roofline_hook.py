"""A profile of the JAX program in this process, taken without the program's help.

Starting JAX's profiler starts JAX's devices, which a program may still want to configure (`jax.config`, `jax.distributed`). So nothing
starts when JAX is imported; the profile begins once a step ran without compiling, or if asked to when the first program has been
compiled, just before it runs, and ends with the process or when asked to. A step is an annotation; without any, a call of the jitted
function that runs longest. What happened is left in a file for the process that started this one, for nothing may be printed here.

Only the standard library and JAX are imported: the program's interpreter may be one without roofline.
"""

import atexit
import contextlib
import json
import os
import shutil
import signal
import sys
import threading
import time
from importlib import import_module
from typing import Any

# By itself in the program that is recorded, as a part of roofline elsewhere.
watch_calls = import_module(f"{__package__}.roofline_hook_calls" if __package__ else "roofline_hook_calls").watch_calls

SETTINGS = "ROOFLINE_CAPTURE"  # the environment variable: a JSON object of the fields of `Recorder`
COMPILING = "/jax/core/compile/"  # tracing, lowering and compiling have durations of their own
COMPILED = "/jax/core/compile/backend_compile_duration"  # recorded when a program is compiled or comes from the compilation cache
HOST_LEVEL = 1  # what the host traces: annotations of steps and calls of the runtime

PATIENCE = 8  # steps that compile, after which recording begins all the same
RESTARTS, PREPARATION_S = 8, 2.0  # how often, and how soon, a new function may show that what was recorded was preparation

PAUSE_S, PAUSES, LONGEST_WAIT_S = 0.005, 5, 10.0  # a CPU that rests this often is done; one that never does is not asked for ever


class Recorder:
    """One profile of this process: armed when JAX is imported, then waiting, recording, done."""

    def __init__(
        self,
        folder: str,
        delay_s: float = 0.0,
        duration_s: "float | None" = None,
        skip: int = 0,
        steps: "int | None" = None,
        from_start: bool = False,
        python: bool = False,
    ) -> None:
        self.python = python
        self.folder = folder
        self.delay_s, self.duration_s, self.skip, self.steps = delay_s, duration_s, skip, steps
        self.by_steps = bool(skip or steps)
        self.warming = not (from_start or skip or delay_s)  # whether to wait for a step that does not compile
        self.steady = False  # whether there was one
        self.annotated = False
        self.recorded = 0  # annotated steps
        self.compilations, self.before_step = 0, 0
        self.longest_s, self.main = 0.0, ""  # the longest run of a jitted function since a new one came, and its name
        self.compiled_calls, self.steady_calls = 0, 0  # of that function
        self.compile_s, self.known = 0.0, set[str]()
        self.began_s, self.restarts = 0.0, 0
        self.calls = threading.local()
        self.stop_watching: Any = None
        self.state = "waiting"
        self.notes: list[str] = []
        self.seen = 0
        self.lock = threading.RLock()
        self.compiled, self.meanwhile = False, 0  # programs: whether there was one, and how many while recording
        self.jax: Any = None
        self.process = 0

    def arm(self, jax: Any) -> None:
        """Wait for the first program, for steps, for the program's own profiles, and for every way a process ends."""
        self.jax, self.process = jax, os.getpid()  # not before: a process that imports JAX may be a fork of one that did not
        self.folder = os.path.join(self.folder, str(self.process))
        self.start_trace = jax.profiler.start_trace
        self._tell()
        jax.monitoring.register_event_duration_secs_listener(self._on_event)
        self._watch_steps(jax.profiler.StepTraceAnnotation)
        self._watch_calls()
        self._watch_own_profiles()
        atexit.register(self.end)
        self._watch_exits()

    def begin(self, settled: bool = False) -> None:
        """Start the profiler, once; ``settled`` has the devices end first what they are at, so that it is not in the profile."""
        if os.getpid() != self.process:
            return
        with self.lock:
            if self.state != "waiting":
                return
            self.state = "starting"
            try:
                if settled:
                    settle(self.jax)
                start(self.jax, self.folder, self.start_trace, self.python)
            except Exception as error:  # a profile of the program's own is under way, or this JAX has no profiler
                self.finish("failed", f"the profiler did not start: {error}")
                return
            self.state, self.began_s = "recording", time.monotonic()
            self._unwatch_calls()
            self._tell()
        if self.duration_s is not None:
            began = self.began_s
            _later(self.duration_s, lambda: self.end(settled=False) if self.began_s == began else None)

    def end(self, note: str = "", settled: bool = True) -> None:
        """Stop the profiler, once; ``settled`` waits until all that the devices were asked for is in the profile.

        At a time of the clock there is nothing to wait for: the program goes on.
        """
        if os.getpid() != self.process:  # a fork of it
            return
        with self.lock:
            if self.state == "waiting":
                self._tell()
            if self.state != "recording":
                return
            self.state = "stopping"
            try:
                if settled:
                    settle(self.jax)
                self.jax.profiler.stop_trace()
            except Exception as error:
                self.finish("failed", f"the profiler did not stop: {error}")
            else:
                self.finish("done", note or self._tuning())

    def _tuning(self) -> str:
        """A word about compilations in the profile: compilers for accelerators try kernels on them."""
        if not self.meanwhile or self.jax.default_backend() == "cpu":
            return ""
        return f"{self.meanwhile} programs were compiled and tuned during the recording; exclude that with --skip or --delay"

    def _on_event(self, event: str, duration_s: float, fun_name: object = "", **_: object) -> None:
        self.compile_s += duration_s if event.startswith(COMPILING) else 0.0
        if event != COMPILED:
            return
        self.compilations += 1
        new = str(fun_name) not in self.known
        self.known.add(str(fun_name))
        if new:
            self.longest_s, self.main, self.compiled_calls, self.steady_calls = 0.0, "", 0, 0
        if self.state == "recording":
            self.meanwhile += 1
            before_s = time.monotonic() - self.began_s - duration_s
            if self.warming and new and not self.annotated and before_s < max(PREPARATION_S, duration_s):
                self._restart()
        if self.compiled:
            return
        self.compiled = True
        if self.by_steps or self.warming:
            return
        if self.delay_s:
            _later(self.delay_s, self.begin)
        else:
            self.begin()

    def _watch_calls(self) -> None:
        """Without annotations, a step is a call of the jitted function that runs longest."""
        if not self.warming or self.annotated or self.stop_watching:
            return
        with contextlib.suppress(Exception):
            self.stop_watching = watch_calls(self.jax, self._on_call)
        if self.stop_watching is None:
            self.warming = self.by_steps = False
            self.notes.append("calls of jitted functions cannot be seen in this Python: everything was recorded")

    def _unwatch_calls(self) -> None:
        if self.stop_watching:
            self.stop_watching()
            self.stop_watching = None

    def _on_call(self, function: Any, call: Any, args: Any, kwargs: Any) -> Any:
        """A call of a jitted function; those inside of another, which is then being traced, are not steps."""
        if self.state != "waiting" or getattr(self.calls, "inside", False):
            return call(function, *args, **kwargs)
        self.calls.inside, before = True, self.compilations
        begun_s, compile_s = time.monotonic(), self.compile_s
        try:
            result = call(function, *args, **kwargs)
            with contextlib.suppress(Exception):  # what failed on the device is for the program to find
                self.jax.block_until_ready(result)
        finally:
            self.calls.inside = False
        name = getattr(function, "__name__", "a function")
        ran_s = time.monotonic() - begun_s - (self.compile_s - compile_s)
        if ran_s > self.longest_s:
            self.longest_s = ran_s
            if name != self.main:
                self.main, self.compiled_calls, self.steady_calls = name, 0, 0
        if name == self.main:
            self.compiled_calls += self.compilations > before
            self.steady_calls += self.compilations == before
            if self.steady_calls > self.restarts:
                self._begin_warm(f"recording began after a call of {name} that did not compile")
            elif self.compiled_calls >= PATIENCE:
                self._begin_warm(f"recording began although each of {self.compiled_calls} calls of {name} compiled")
        return result

    def _begin_warm(self, why: str) -> None:
        if self.state != "waiting":
            return
        self.begin(settled=True)
        if self.state == "recording":
            self.notes = [note for note in self.notes if not note.startswith("recording began")]
            self.notes.append(f"{why}; --from-start records everything")
            self._tell()

    def _restart(self) -> None:
        """Throw away what was recorded, and wait again."""
        with self.lock:
            if self.state != "recording" or self.restarts >= RESTARTS:
                return
            self.restarts += 1
            try:
                self.jax.profiler.stop_trace()
            except Exception as error:
                self.finish("failed", f"the profiler did not stop: {error}")
                return
            shutil.rmtree(os.path.join(self.folder, "plugins"), ignore_errors=True)
            self.state, self.meanwhile = "waiting", 0
            self._watch_calls()

    def _step_begins(self) -> None:
        """Before an annotated step of which it is not known in advance whether it is to be recorded."""
        if not self.annotated:
            self.annotated = True
            self._unwatch_calls()
            self._restart()
        if self.steady:
            self._begin_warm(f"recording began with annotated step {self.seen}, after one that did not compile")
        elif self.seen > PATIENCE:
            self._begin_warm(f"recording began although each of {self.seen - 1} annotated steps compiled")
        self.before_step = self.compilations

    def _watch_steps(self, annotation: Any) -> None:
        if not (self.by_steps or self.warming):
            return
        make, leave = annotation.__init__, annotation.__exit__

        def made(step: Any, *args: Any, **kwargs: Any) -> None:
            # An annotation that is made before the profiler starts is not recorded, even if it is entered afterwards.
            self.seen += 1
            if self.warming:
                self._step_begins()
            elif self.by_steps and self.seen == self.skip + 1:
                self.begin(settled=True)
            make(step, *args, **kwargs)

        def left(step: Any, *error: Any) -> Any:
            result = leave(step, *error)
            self.steady = self.steady or self.compilations == self.before_step
            self.recorded += self.state == "recording"
            if self.steps is not None and self.recorded >= self.steps:
                self.end()
            return result

        annotation.__init__, annotation.__exit__ = made, left

    def _watch_own_profiles(self) -> None:
        """Give way to profiles that the program takes itself: JAX takes one at a time, and the program must not fail."""
        inner = sys.modules.get("jax._src.profiler")
        original = self.start_trace

        def start_trace(*args: Any, **kwargs: Any) -> Any:
            self.end("the program started its own profile, which ended this recording")
            return original(*args, **kwargs)

        self.jax.profiler.start_trace = start_trace
        if inner is not None and getattr(inner, "start_trace", None) is original:
            vars(inner)["start_trace"] = start_trace  # where jax.profiler.trace looks for it

    def _watch_exits(self) -> None:
        """Be asked when the process leaves without its exit handlers, and when it is told to stop."""
        leave = os._exit

        def exit_at_once(status: int) -> Any:
            self.end()
            leave(status)

        os._exit = exit_at_once
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._on_terminate)

    def _on_terminate(self, number: int, frame: object) -> None:
        self.end()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def finish(self, state: str, note: str) -> None:
        """Nothing more happens: say how it ended."""
        self.state = state
        if note:
            self.notes.append(note)
        self._tell()

    def _tell(self) -> None:
        """Leave word for whoever started this process; a reader never sees half of it."""
        os.makedirs(self.folder, exist_ok=True)
        said = {"state": self.state, "compiled": self.compiled, "steps": self.seen, "notes": self.notes}
        draft = os.path.join(self.folder, "draft")
        with open(draft, "w", encoding="utf-8") as file:
            json.dump(said, file)
        os.replace(draft, os.path.join(self.folder, "status.json"))


def start(jax: Any, folder: str, start_trace: Any = None, python: bool = False) -> None:
    """Start the profiler: device events, programs and step annotations, and Python calls only if asked for."""
    start_trace = start_trace or jax.profiler.start_trace
    if not hasattr(jax.profiler, "ProfileOptions"):  # JAX before 0.7 traces what it likes
        start_trace(folder)
        return
    options = jax.profiler.ProfileOptions()
    options.host_tracer_level, options.python_tracer_level, options.enable_hlo_proto = HOST_LEVEL, int(python), True
    start_trace(folder, profiler_options=options)


def settle(jax: Any) -> None:
    """Wait until the devices have done what they were asked; what failed there is for the program to find."""
    with contextlib.suppress(Exception):
        jax.effects_barrier()
    for array in jax.live_arrays():
        with contextlib.suppress(Exception):
            array.block_until_ready()
    if jax.default_backend() == "cpu":
        _quiet()
    with contextlib.suppress(Exception):  # no driver of this name: not NVIDIA's
        _wait_for_gpus([device.local_hardware_id for device in jax.local_devices() if device.platform == "gpu"])


def _wait_for_gpus(numbers: "list[int]") -> None:
    """Wait for all that NVIDIA GPUs were asked for: results that nobody kept are not among JAX's live arrays."""
    import ctypes

    if not numbers:
        return
    driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    for number in numbers:
        context = ctypes.c_void_p()
        if driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), number) == 0:  # the context that XLA works in
            driver.cuCtxPushCurrent_v2(context)
            driver.cuCtxSynchronize()
            driver.cuCtxPopCurrent_v2(ctypes.byref(context))
            driver.cuDevicePrimaryCtxRelease_v2(number)


def _quiet() -> None:
    """Wait until this process computes nothing: a CPU may still be at work whose results nobody kept, and JAX has no way to ask."""
    deadline = time.monotonic() + LONGEST_WAIT_S
    before, pauses = time.process_time(), 0
    while pauses < PAUSES and time.monotonic() < deadline:
        time.sleep(PAUSE_S)
        now = time.process_time()
        pauses = 0 if now - before > PAUSE_S / 5 or _others_run() else pauses + 1
        before = now


def _others_run() -> bool:
    """Whether another thread runs, or would if a processor were free; where the system does not say, no."""
    try:
        mine, tasks = str(threading.get_native_id()), os.listdir("/proc/self/task")
        for task in tasks:
            with open(f"/proc/self/task/{task}/stat", "rb") as file:
                state = file.read().rpartition(b")")[2].split()[0]
            if task != mine and state in (b"R", b"D"):
                return True
    except OSError:  # no such folder, or the thread is gone
        return False
    return False


def _later(seconds: float, act: Any) -> None:
    timer = threading.Timer(seconds, act)
    timer.daemon = True  # the program does not wait for it
    timer.start()


class _Finder:
    """Sees the import of JAX, lets the others find it, and arms the recorder when it is there."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != "jax":
            return None
        sys.meta_path.remove(self)
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
            except Exception as error:  # a JAX without what is asked of it; the program goes on
                self.recorder.finish("failed", f"this version of JAX is not supported: {error}")

        loader.exec_module = exec_module


def watch() -> None:
    """Wait for JAX in this process, if `roofline capture` asked for it."""
    asked = os.environ.get(SETTINGS)
    if asked:
        sys.meta_path.insert(0, _Finder(Recorder(**json.loads(asked))))
