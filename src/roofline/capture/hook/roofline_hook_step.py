"""Finds the step of the JAX program in this process, traces it for a slice of TPUs, and ends the program instead of running it.

The step is the first jitted function that multiplies matrices and takes a state: arguments that it overwrites (donated), or whose arrays
all have their like among the results, as weights have. Where none does, it is the one with products that is called again and again, or had
the most FLOP when the program ended. Everything before the step runs, on as many CPU devices as the slice has; what is too large to run
here is not computed, and its results are zeros that need no memory.
"""

import atexit
import contextlib
import importlib.util
import inspect
import json
import mmap
import os
import pickle
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

_PACKAGE = f"{__package__}." if __package__ else ""
watch_calls = import_module(f"{_PACKAGE}roofline_hook_jax_calls").watch_calls
flop_of = import_module(f"{_PACKAGE}roofline_hook_jax_work").flop_of

REPEATS = 8  # calls after which a function that takes no state is the step all the same
MOST_FLOP = 10**12  # of a call that runs here: some ten seconds of a laptop
MOST_BYTES = 2**30  # of results that are computed here, where that much memory is free
FREE_SHARE = 8  # results that need more than this part of the free memory are not computed
TRACED = "step.pickle"
MAPPED = "it is mapped by jax.pmap; write step = jax.jit(jax.shard_map(step, mesh=…, in_specs=…, out_specs=…), donate_argnums=0)"


class Call(NamedTuple):
    """A call of a jitted function: its name and place in the source, FLOP of products, bytes of results on all devices, and its state."""

    name: str
    location: str
    is_of_program: bool  # not one of JAX's own
    flop: float
    result_bytes: float
    takes_state: bool


class StepFinder:
    """Waits for the step of a JAX program; ``named`` is the name of the function, where the user gives it."""

    framework, module = "JAX", "jax"

    def __init__(self, folder: str, tracers: str, devices: int, named: str = "", changes: "Sequence[str]" = (), **placing: Any) -> None:
        self.folder, self.tracers, self.devices, self.named, self.placing = folder, tracers, devices, named, placing
        self.changes = changes  # to make to the step
        self.calls = threading.local()
        self.counts: Counter[str] = Counter()
        self.largest: Any = None  # the call with the most FLOP that takes no state, with its function and the shapes of its arguments
        self.blank = mmap.mmap(-1, mmap.PAGESIZE)  # memory that nothing is written to
        self.blanks: dict[int, Any] = {}  # arrays in it, by their id
        self.zeros_of: list[str] = []  # functions that were not computed
        self.mapped: list[str] = []  # functions that the program gave to jax.pmap
        self.process = 0
        self.jax: Any = None
        self.is_over = False

    def prepare(self) -> None:
        """Called before JAX is imported."""

    def arm(self, jax: Any) -> None:
        """Called after JAX is imported."""
        self.jax, self.process = jax, os.getpid()
        self.folder = os.path.join(self.folder, f"{self.process}-{self.module}")
        os.makedirs(self.folder, exist_ok=True)
        jax.distributed.initialize = lambda *_, **__: None  # one process stands for all hosts
        jax.pmap = partial(self._noted_pmap, jax.pmap)
        if watch_calls(jax, self._on_call) is None:
            self.finish("failed", "calls of jitted functions cannot be seen in this Python")
            return
        if self.changes:
            _loaded(self.tracers, "changes").prepare(self.changes)
        inner: Any = sys.modules.get("jax._src.pjit")
        lower = getattr(inner, "jit_lower", None)
        if lower:  # functions that are compiled before they are called
            inner.jit_lower = lambda function, *args, **kwargs: self._on_call(function, lower, args, kwargs)
        self.finish("waiting", "")
        atexit.register(self._at_exit)

    def finish(self, state: str, note: str, **facts: Any) -> None:
        """Write a message for the parent process, atomically."""
        message = {"state": state, "note": note, "called": list(self.counts), "zeros_of": self.zeros_of, **facts}
        draft = os.path.join(self.folder, "draft")
        with open(draft, "w", encoding="utf-8") as file:
            json.dump(message, file)
        os.replace(draft, os.path.join(self.folder, "status.json"))

    def _on_call(self, function: Any, call: Any, args: Any, kwargs: Any) -> Any:
        """A call of a jitted function; those while another one is traced or runs are its parts."""
        if getattr(self.calls, "inside", False) or os.getpid() != self.process or self.is_over or self._is_tracing(args, kwargs):
            return call(function, *args, **kwargs)
        self.calls.inside = True
        try:
            traced = None
            with contextlib.suppress(Exception):  # of the program, which is to raise it by itself
                traced = function.trace(*args, **kwargs)
            if traced is None:
                return call(function, *args, **kwargs)
            found = self._described(function, traced, args)
            if found.is_of_program:
                self.counts[found.name] += 1
            if self._is_step(found):
                self._end_with(found, function, args, kwargs)
            if found.is_of_program and not self.named and found.flop > (self.largest[0].flop if self.largest else 0):
                self.largest = (found, function, *self._shapes((args, kwargs)))
            if call.__name__ != "jit_lower" and self._is_too_large(found, args, kwargs):
                self.zeros_of += [found.name] if found.is_of_program else []
                return self._zeros(traced, args, kwargs)
            return call(function, *args, **kwargs)
        finally:
            self.calls.inside = False

    def _noted_pmap(self, pmap: Any, fun: Any, *args: Any, **kwargs: Any) -> Any:
        self.mapped.append(getattr(inspect.unwrap(fun), "__name__", "a function"))
        return pmap(fun, *args, **kwargs)

    def _is_tracing(self, args: Any, kwargs: Any) -> bool:
        """Whether a function is only traced, as inside jax.eval_shape or jax.grad."""
        if any(isinstance(leaf, self.jax.core.Tracer) for leaf in self.jax.tree.leaves((args, kwargs))):
            return True
        core: Any = sys.modules.get("jax._src.core")
        return not getattr(core, "trace_state_clean", lambda: True)()

    def _described(self, function: Any, traced: Any, args: Any) -> Call:
        inner = inspect.unwrap(function)
        inner = getattr(inner, "func", inner)  # functools.partial
        code = getattr(inner, "__code__", None)
        results = self.jax.tree.leaves(traced.out_info)
        flop = flop_of(traced.jaxpr.jaxpr)
        return Call(
            name=getattr(function, "__name__", "") or getattr(inner, "__name__", "a function"),
            location=f"{code.co_filename}:{code.co_firstlineno}" if code else "",
            is_of_program=not (getattr(inner, "__module__", None) or "").startswith("jax."),
            flop=flop,
            result_bytes=float(sum(_bytes(result) for result in results)),
            takes_state=bool(flop) and self._takes_state(traced, args, results),
        )

    def _takes_state(self, traced: Any, args: Any, results: Any) -> bool:
        """Whether arguments are overwritten, or all arrays of one of them have their like among the results.

        An array alone is a state where it is at least half of what the function takes: others may only pass through.
        """
        if any(leaf.donated for leaf in self.jax.tree.leaves(traced.args_info)):
            return True
        given = Counter(map(_kind, results))
        floats = [[leaf for leaf in self.jax.tree.leaves(arg) if _is_float_array(leaf)] for arg in args]
        taken = sum(_bytes(leaf) for leaves in floats for leaf in leaves)
        return any(
            leaves and not Counter(map(_kind, leaves)) - given and (len(leaves) > 1 or 2 * _bytes(leaves[0]) >= taken) for leaves in floats
        )

    def _is_step(self, call: Call) -> bool:
        if self.named:
            return call.name == self.named
        if not call.is_of_program:
            return False
        is_repeated = self.counts[call.name] >= REPEATS and self.largest is not None and call.name == self.largest[0].name
        return call.takes_state or is_repeated

    def _is_too_large(self, call: Call, args: Any, kwargs: Any) -> bool:
        if any(id(leaf) in self.blanks for leaf in self.jax.tree.leaves((args, kwargs))):
            return True
        most = min(MOST_BYTES, _free_bytes() / FREE_SHARE)
        return call.flop > MOST_FLOP or call.result_bytes > most

    def _zeros(self, traced: Any, args: Any, kwargs: Any) -> Any:
        """Arrays of zeros in place of results: all are the same memory, which is never written to, so it takes none.

        A result whose sharding is not stated has that of an argument of its shape.
        """
        like = {_kind(leaf): leaf.sharding for leaf in self.jax.tree.leaves((args, kwargs)) if isinstance(leaf, self.jax.Array)}
        alone = self.jax.sharding.SingleDeviceSharding(self.jax.devices()[0])

        def zero(result: Any) -> Any:
            sharding = getattr(result, "sharding", None) or like.get(_kind(result), alone)
            made = self.jax.make_array_from_callback(result.shape, sharding, lambda index: self._piece(result, sharding))
            self.blanks[id(made)] = made
            return made

        return self.jax.tree.map(zero, traced.out_info)

    def _piece(self, result: Any, sharding: Any) -> Any:
        """One device's part of an array of zeros."""
        numpy = import_module("numpy")
        sizes = sharding.shard_shape(result.shape)
        count = int(numpy.prod(sizes))
        size = count * result.dtype.itemsize
        if len(self.blank) < size:
            self.blank = mmap.mmap(-1, size)
        return numpy.frombuffer(self.blank, numpy.uint8, size).view(result.dtype).reshape(sizes)

    def _shapes(self, arguments: Any) -> Any:
        """Arguments as shapes with shardings, so that no array is kept for them."""

        def shape(leaf: Any) -> Any:
            is_array = isinstance(leaf, self.jax.Array)
            return self.jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding) if is_array else leaf

        return self.jax.tree.map(shape, arguments)

    def _at_exit(self) -> None:
        """The program ended without a step: the function with the most FLOP is it."""
        if self.is_over or os.getpid() != self.process:
            return
        if self.mapped and not self.named:
            self.finish("failed", MAPPED, name=self.mapped[-1])
            return
        if self.largest is None:
            self.finish("ended", "")
            return
        self.calls.inside = True
        self._end_with(*self.largest)

    def _end_with(self, call: Call, function: Any, args: Any, kwargs: Any) -> None:
        """Trace the step for the slice, write it for the parent process, and end this one."""
        self.is_over = True
        try:
            change = partial(_loaded(self.tracers, "changes").changed, changes=self.changes) if self.changes else None
            found = _loaded(self.tracers, "lowering").shipped(function, (args, kwargs), self.devices, change=change, **self.placing)
            with open(os.path.join(self.folder, TRACED), "wb") as file:
                pickle.dump(tuple(found.portable), file)
        except Exception as error:  # of the function, or of its shardings
            self.finish("failed", f"{type(error).__name__}: {error}", name=call.name, location=call.location)
        else:
            arrays = [leaf for leaf in self.jax.tree.leaves((args, kwargs)) if hasattr(leaf, "dtype")]
            facts = {
                **call._asdict(),
                "arrays": len(arrays),
                "argument_bytes": sum(map(_bytes, arrays)),
                "axes": found.axes,
                "assumed": list(found.assumed),
                "whole": dict(found.whole),
                "python": sys.executable,
                "has_compiler": importlib.util.find_spec("libtpu") is not None,
            }
            self.finish("found", "", **facts)
        for name in ("stdout", "stderr"):  # what the program printed
            with contextlib.suppress(AttributeError, OSError, ValueError):
                getattr(sys, name).flush()
        os._exit(0)


def _loaded(folder: str, name: str) -> Any:
    """The module of this name in a folder: this package need not be installed here."""
    spec = importlib.util.spec_from_file_location(f"roofline_{name}", os.path.join(folder, f"{name}.py"))
    module = importlib.util.module_from_spec(spec) if spec else None
    if spec is None or spec.loader is None or module is None:
        raise ImportError(name)
    spec.loader.exec_module(module)
    return module


def _kind(array: Any) -> "tuple[Any, ...]":
    """What arrays have in common with their like."""
    return tuple(array.shape), str(array.dtype)


def _bytes(array: Any) -> int:
    return int(array.size * array.dtype.itemsize) if hasattr(array, "size") else 0


def _is_float_array(leaf: Any) -> bool:
    return bool(getattr(leaf, "shape", ())) and "float" in str(getattr(leaf, "dtype", ""))


def _free_bytes() -> float:
    """The memory that is free here; without end where the system does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            return next(int(line.split()[1]) * 2.0**10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return float("inf")
