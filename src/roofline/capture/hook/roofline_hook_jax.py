"""Records a profile of the JAX program in this process, without changes to the program.

Starting JAX's profiler starts JAX's devices, which a program may still want to configure (`jax.config`, `jax.distributed`). So nothing
starts when JAX is imported; the profile begins after a step that ran without compiling or, with ``from_start``, after the first program is
compiled, just before it runs. A step is an annotation; without any, a call of the jitted function that runs longest.
"""

import contextlib
import os
import shutil
import sys
import threading
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

_PACKAGE = f"{__package__}." if __package__ else ""
watch_calls = import_module(f"{_PACKAGE}roofline_hook_jax_calls").watch_calls
check_libtpu = import_module(f"{_PACKAGE}roofline_hook_jax_libtpu").check_libtpu
if TYPE_CHECKING:
    from .roofline_hook_recorder import OWN_PROFILE, PATIENCE, Recorder, later
else:
    _recorder = import_module(f"{_PACKAGE}roofline_hook_recorder")
    OWN_PROFILE, PATIENCE, Recorder, later = _recorder.OWN_PROFILE, _recorder.PATIENCE, _recorder.Recorder, _recorder.later

COMPILING = "/jax/core/compile/"  # prefix of the durations of tracing, lowering and compiling
COMPILED = "/jax/core/compile/backend_compile_duration"  # recorded when a program is compiled or loaded from the compilation cache
HOST_LEVEL = 1  # level of host tracing: step annotations and calls of the runtime

STEADY = 3  # steps after the recording that are timed
PREPARATION_S = 2.0  # a new function within this time means that the recording so far was preparation
PROFILE, ASIDE = "plugins", "aside"  # folders: of the profile, as JAX names it, and of the last one that was discarded

PAUSE_S, PAUSES, LONGEST_WAIT_S = 0.005, 5, 10.0  # a CPU that is idle this many times in a row is done; the longest wait for that


class JaxRecorder(Recorder):
    """One profile of a JAX program."""

    framework, module = "JAX", "jax"

    def __init__(self, folder: str, **settings: Any) -> None:
        super().__init__(folder, **settings)
        self.by_steps = bool(self.skip or self.steps)
        self.steady = False  # whether a step ran without compiling
        self.annotated = False
        self.compilations, self.before_step = 0, 0
        self.longest_s, self.main = 0.0, ""  # the longest call of a jitted function since a new one appeared, and its name
        self.compiled_calls, self.steady_calls = 0, 0  # of that function
        self.step_s, self.since_s = 0.0, 0.0  # the longest call when recording began, and since a recording was discarded
        self.compile_s, self.known = 0.0, set[str]()
        self.calls = threading.local()
        self.stop_watching: Any = None
        self.meanwhile = 0  # programs compiled while recording
        self.waited_s, self.waited_at = 0.0, 0  # when the devices were last waited for, and before which step after the recording
        self.jax: Any = None

    def watch(self, framework: Any) -> None:
        self.jax = framework
        self.start_trace = framework.profiler.start_trace
        framework.monitoring.register_event_duration_secs_listener(self._on_event)
        self._watch_steps(framework.profiler.StepTraceAnnotation)
        self._watch_calls()
        self._watch_own_profiles()

    def start(self) -> None:
        start(self.jax, self.folder, self.start_trace, bool(self.python))
        self._unwatch_calls()

    def stop(self) -> None:
        self.jax.profiler.stop_trace()

    def wait_for_devices(self) -> None:
        wait_for_devices(self.jax)

    def certainty(self) -> int:
        return 9  # a program that compiles with JAX uses it for more than its data loader

    def discard(self) -> None:
        """Stop the profiler, and set its profile aside: what was taken for preparation may be all that the program does."""
        if self.state == "recording":
            self.wait_for_devices()
            self.jax.profiler.stop_trace()
        shutil.rmtree(self._folder(ASIDE), ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            os.replace(self._folder(PROFILE), self._folder(ASIDE))
        self.meanwhile, self.since_s = 0, 0.0
        self._watch_calls()

    def recover(self) -> bool:
        if self.annotated or self.since_s > self.step_s:  # it was preparation: an annotated step or a longer call followed
            return False
        with contextlib.suppress(FileNotFoundError):
            os.replace(self._folder(ASIDE), self._folder(PROFILE))
            return True
        return False

    def _folder(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def final_note(self) -> str:
        """A note about compilations in the profile: compilers for accelerators run candidate kernels on the device."""
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
                self.restart()
        if self.ran:
            return
        self.ran = True
        if self.by_steps or self.warming:
            return
        if self.delay_s:
            later(self.delay_s, self.begin)
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
        """A call of a jitted function; calls while another one is being traced are not steps."""
        if self.state != "waiting" or getattr(self.calls, "inside", False):
            return call(function, *args, **kwargs)
        self.calls.inside, before = True, self.compilations
        begun_s, compile_s = time.monotonic(), self.compile_s
        try:
            result = call(function, *args, **kwargs)
            with contextlib.suppress(Exception):  # errors on the device are raised in the program itself
                self.jax.block_until_ready(result)
        finally:
            self.calls.inside = False
        name = getattr(function, "__name__", "a function")
        ran_s = time.monotonic() - begun_s - (self.compile_s - compile_s)
        self.since_s = max(self.since_s, ran_s)
        if ran_s > self.longest_s:
            self.longest_s = ran_s
            if name != self.main:
                self.main, self.compiled_calls, self.steady_calls = name, 0, 0
        if name == self.main:
            self.compiled_calls += self.compilations > before
            self.steady_calls += self.compilations == before
            self.step_s = self.longest_s
            if self.steady_calls > self.restarts:
                self.begin_warm(f"recording began after a call of {name} that did not compile")
            elif self.compiled_calls >= PATIENCE:
                self.begin_warm(f"recording began although each of {self.compiled_calls} calls of {name} compiled")
        return result

    def _step_begins(self) -> None:
        """Called before an annotated step, when recording has not begun."""
        if not self.annotated:
            self.annotated = True
            self._unwatch_calls()
            self.restart()
        if self.steady:
            self.begin_warm(f"recording began with annotated step {self.seen}, after one that did not compile")
        elif self.seen > PATIENCE:
            self.begin_warm(f"recording began although each of {self.seen - 1} annotated steps compiled")
        self.before_step = self.compilations

    def _time_unrecorded(self) -> None:
        """Time the last annotated step before the recording, then the first ones after it, between waits for the devices."""
        if self.state == "waiting":
            settle(self.jax)
            now = time.monotonic()
            self.unprofiled_s = now - self.waited_s if self.steady and self.waited_s else 0.0
            self.waited_s = now
        elif self.state == "done" and self.recorded and not self.waited_at:
            settle(self.jax)
            self.waited_s, self.waited_at = time.monotonic(), self.seen
        elif self.waited_at and self.seen == self.waited_at + STEADY:
            settle(self.jax)
            self.unprofiled_s = (time.monotonic() - self.waited_s) / STEADY
            self.write_message()

    def _watch_steps(self, annotation: Any) -> None:
        if not (self.by_steps or self.warming):
            return
        make, leave = annotation.__init__, annotation.__exit__

        def made(step: Any, *args: Any, **kwargs: Any) -> None:
            # An annotation created before the profiler starts is not recorded, even if it is entered afterwards.
            self.seen += 1
            if self.warming:
                self._time_unrecorded()
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
        """Stop recording when the program starts its own profile: JAX allows one at a time, and the program must not fail."""
        inner = sys.modules.get("jax._src.profiler")
        original = self.start_trace

        def start_trace(*args: Any, **kwargs: Any) -> Any:
            self.end(OWN_PROFILE)
            return original(*args, **kwargs)

        self.jax.profiler.start_trace = start_trace
        if inner is not None and getattr(inner, "start_trace", None) is original:
            vars(inner)["start_trace"] = start_trace  # jax.profiler.trace looks it up here


def start(jax: Any, folder: str, start_trace: Any = None, python: bool = False) -> None:
    """Start the profiler: device events, programs and step annotations, and with ``python`` also Python calls."""
    check_libtpu(jax)
    start_trace = start_trace or jax.profiler.start_trace
    if not hasattr(jax.profiler, "ProfileOptions"):  # JAX before 0.7 has no such options
        start_trace(folder)
        return
    options = jax.profiler.ProfileOptions()
    options.host_tracer_level, options.python_tracer_level, options.enable_hlo_proto = HOST_LEVEL, int(python), True
    start_trace(folder, profiler_options=options)


def wait_for_devices(jax: Any) -> None:
    """Wait until the devices are idle; errors on them are raised in the program itself."""
    settle(jax)
    if jax.default_backend() == "cpu":
        _wait_until_idle()


def settle(jax: Any) -> None:
    """Wait until the devices are idle, but for results that the program discarded on a CPU."""
    with contextlib.suppress(Exception):
        jax.effects_barrier()
    for array in jax.live_arrays():
        with contextlib.suppress(Exception):
            array.block_until_ready()
    with contextlib.suppress(Exception):  # no driver of this name: not NVIDIA's
        _wait_for_gpus([device.local_hardware_id for device in jax.local_devices() if device.platform == "gpu"])


def _wait_for_gpus(numbers: "list[int]") -> None:
    """Wait for all work on NVIDIA GPUs: discarded results are not among JAX's live arrays."""
    import ctypes

    if not numbers:
        return
    driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    for number in numbers:
        context = ctypes.c_void_p()
        if driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), number) == 0:  # the context that XLA uses
            driver.cuCtxPushCurrent_v2(context)
            driver.cuCtxSynchronize()
            driver.cuCtxPopCurrent_v2(ctypes.byref(context))
            driver.cuDevicePrimaryCtxRelease_v2(number)


def _wait_until_idle() -> None:
    """Wait until no other thread of this process runs: a CPU may still compute discarded results, and JAX has no call to wait for them."""
    deadline = time.monotonic() + LONGEST_WAIT_S
    before, pauses = time.process_time(), 0
    while pauses < PAUSES and time.monotonic() < deadline:
        time.sleep(PAUSE_S)
        now = time.process_time()
        pauses = 0 if now - before > PAUSE_S / 5 or _other_threads_run() else pauses + 1
        before = now


def _other_threads_run() -> bool:
    """Whether another thread is runnable; false where the system does not report it."""
    try:
        mine, tasks = str(threading.get_native_id()), os.listdir("/proc/self/task")
        for task in tasks:
            with open(f"/proc/self/task/{task}/stat", "rb") as file:
                state = file.read().rpartition(b")")[2].split()[0]
            if task != mine and state in (b"R", b"D"):
                return True
    except OSError:  # no such folder, or the thread has ended
        return False
    return False
