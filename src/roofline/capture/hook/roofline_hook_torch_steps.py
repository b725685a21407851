"""Detects the steps of a PyTorch program: steps of optimizers, calls of modules, replays of graphs, annotations.

Some of these wrappers are traced by the compiler: under `torch.compiler.is_compiling` they do nothing, so compiled code does not contain
them.
"""

import functools
import re
import threading
import weakref
from collections.abc import Mapping
from typing import Any

OTHER, REPLAY, MODULE, OPTIMIZER = range(4)  # kinds of steps, in increasing order of certainty
LOST = 3  # steps of other optimizers in a row, after which the first optimizer no longer defines the steps
_NO_STEPS = re.compile(r"ProfilerStep|Optimizer\.|enumerate\(DataLoader\)")  # annotations made by PyTorch itself


class Steps:
    """Reports the end of each step to a recorder."""

    def __init__(self, torch: Any, recorder: Any) -> None:
        self.torch, self.recorder = torch, recorder
        self.inside = threading.local()  # per thread: whether it is inside a module, and in which annotations
        self.sizes: Any = weakref.WeakKeyDictionary()  # number of parameters of modules
        self.main: Any = None  # weak reference to the module with the most parameters so far
        self.main_size = -1
        self.optimizer: Any = None  # weak reference to the first optimizer
        self.others = 0  # steps of other optimizers since
        self.annotation = ""  # common part of the names of the annotations that are steps

    def watch(self) -> None:
        self._watch_optimizers()
        self._watch_modules()
        self._watch_annotations()
        self._watch_replays()

    def _watch_optimizers(self) -> None:
        """PyTorch has post-step hooks, but calls them inside its annotation of the step, which would then end in the next step."""
        kind, compiling = self.torch.optim.Optimizer, self.torch.compiler.is_compiling
        wrapped = kind.profile_hook_step

        def profile_hook_step(step: Any) -> Any:
            return stepping(wrapped(step))

        def stepping(step: Any) -> Any:
            @functools.wraps(step)
            def stepped(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
                if compiling():
                    return step(optimizer, *args, **kwargs)
                self.recorder.activity()
                result = step(optimizer, *args, **kwargs)
                self._optimizer_stepped(optimizer)
                return result

            return stepped

        kind.profile_hook_step = staticmethod(profile_hook_step)

    def _optimizer_stepped(self, optimizer: Any) -> None:
        """With several optimizers, only one of them defines the steps."""
        first = self.optimizer() if self.optimizer else None
        if first is None or self.others >= LOST:
            self.optimizer, first = weakref.ref(optimizer), optimizer
        self.others = 0 if first is optimizer else self.others + 1
        if first is optimizer:
            self.recorder.boundary(OPTIMIZER, "optimizer step")

    def _watch_modules(self) -> None:
        kind, tracing = self.torch.nn.Module, self._is_tracing
        steps, inside, call, compiling = self, self.inside, kind.__call__, self.torch.compiler.is_compiling

        def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # the profiler finds the module by the argument's name, self
            if compiling() or getattr(inside, "module", False) or tracing():
                return call(self, *args, **kwargs)
            steps.recorder.activity()
            inside.module = True
            try:
                result = call(self, *args, **kwargs)
            finally:
                inside.module = False
            steps.recorder.called.append(shapes_of([*args, *kwargs.values()]))
            steps._module_called(self)
            return result

        kind.__call__ = __call__

    def _is_tracing(self) -> bool:
        """Whether the code is only being traced: TorchScript, export or a FLOP counter inspect each op, and would see annotations too."""
        core = self.torch._C
        return core._get_tracing_state() is not None or core._len_torch_dispatch_stack() > 0

    def _module_called(self, module: Any) -> None:
        """Steps are calls of the module with the most parameters; others are transforms, losses, parts."""
        size = self._size(module)
        main = self.main() if self.main else None
        anew = size > self.main_size
        if anew or (main is None and size == self.main_size):
            self.main, self.main_size, main = weakref.ref(module), size, module
        if main is module:
            self.recorder.boundary(MODULE if size else OTHER, f"call of {type(module).__name__}", anew)

    def _size(self, module: Any) -> int:
        known = self.sizes.get(module)
        if known is None:
            try:
                known = sum(weight.numel() for weight in module.parameters())
            except Exception:  # lazy modules have parameters without a size
                return 0
            self.sizes[module] = known
        return int(known)

    def _watch_annotations(self) -> None:
        kind = self.torch.profiler.record_function
        enter, leave, script = kind.__enter__, kind.__exit__, self.torch.jit.script

        def entered(annotation: Any) -> Any:
            if not getattr(self.inside, "annotation", None) and not _NO_STEPS.match(annotation.name):
                self.inside.annotation = annotation
                self.recorder.activity()
            return enter(annotation)

        def left(annotation: Any, *error: Any) -> Any:
            name, outermost = annotation.name, getattr(self.inside, "annotation", None) is annotation
            result = leave(annotation, *error)
            if outermost:
                self.inside.annotation = None
                self._annotation_left(name)
            return result

        def scripted(*args: Any, **kwargs: Any) -> Any:
            kind.__enter__, kind.__exit__ = enter, leave  # TorchScript compiles these from their source
            return script(*args, **kwargs)

        kind.__enter__, kind.__exit__, self.torch.jit.script = entered, left, scripted

    def _annotation_left(self, name: str) -> None:
        """Of annotations with several names, the first name defines the steps."""
        family = re.sub(r"\d+", "", name)
        self.annotation = self.annotation or family
        if family == self.annotation:
            self.recorder.boundary(OTHER, f"annotation {name}")

    def _watch_replays(self) -> None:
        kind = getattr(self.torch.cuda, "CUDAGraph", None)
        if kind is None:
            return
        replay = kind.replay

        def replayed(graph: Any) -> Any:
            result = replay(graph)
            if not getattr(self.inside, "module", False):
                self.recorder.boundary(REPLAY, "replay of a graph")
            return result

        kind.replay = replayed


def shapes_of(values: Any, depth: int = 2) -> "tuple[Any, ...]":
    """The shapes of the tensors among the arguments of a call and in their lists and mappings."""
    shapes: list[Any] = []
    for value in values:
        if hasattr(value, "shape"):
            shapes.append(tuple(value.shape))
        elif depth and isinstance(value, (list, tuple)):
            shapes.append(shapes_of(value, depth - 1))
        elif depth and isinstance(value, Mapping):
            shapes.append(shapes_of(value.values(), depth - 1))
    return tuple(shapes)
