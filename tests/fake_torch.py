"""As much of PyTorch as the hook of `roofline capture` touches, without any of its work: steps, modules, graphs, profiles."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any


class FakeTorch:
    """A stand-in for the module ``torch``; ``log`` is what its profiler did, in order."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.compiling, self.initialised = False, False
        log, torch = self.log, self

        class Lowest:
            def _prepare_trace(self) -> None:
                log.append("prepare")

            def __exit__(self, *error: Any) -> None:
                log.append("stop")

        class Profile:
            def __init__(self, **options: Any) -> None:
                self.options, self.lowest = options, torch.autograd.profiler.profile()

            def start(self) -> None:
                self.lowest._prepare_trace()
                self.before = len(log)

            def stop(self) -> None:
                self.lowest.__exit__(None, None, None)

            def add_metadata_json(self, key: str, value: str) -> None:
                self.head = {key: json.loads(value)}

            def export_chrome_trace(self, path: str) -> None:
                Path(path).write_text(json.dumps({**getattr(self, "head", {}), "traceEvents": log[self.before :]}))

        class Module:
            def __init__(self, size: int = 0, inner: "Module | None" = None) -> None:
                self.size, self.inner = size, inner

            def __call__(self, *args: Any) -> None:
                if self.inner:
                    self.inner(*args)

            def parameters(self) -> list[Any]:
                return [SimpleNamespace(numel=lambda: self.size)]

        class Optimizer:
            @staticmethod
            def profile_hook_step(step: Any) -> Any:
                return step

            def __init__(self) -> None:
                if not getattr(type(self).step, "hooked", False):
                    type(self).step = self.profile_hook_step(type(self).step)
                    type(self).step.hooked = True

            def step(self) -> None:
                pass

        class RecordFunction:
            def __init__(self, name: str) -> None:
                self.name = name

            def __enter__(self) -> None:
                log.append(f"enter {self.name}")

            def __exit__(self, *error: Any) -> None:
                log.append(f"leave {self.name}")

        class CUDAGraph:
            def capture_begin(self) -> None:
                log.append("capture")

            def capture_end(self) -> None:
                log.append("captured")

            def replay(self) -> None:
                log.append("replay")

        self.nn, self.optim = SimpleNamespace(Module=Module), SimpleNamespace(Optimizer=Optimizer)
        self.profiler = SimpleNamespace(profile=Profile, record_function=RecordFunction)
        self.autograd = SimpleNamespace(profiler=SimpleNamespace(profile=Lowest))
        self.tracing: object = None
        self._C = SimpleNamespace(_get_tracing_state=lambda: self.tracing, _len_torch_dispatch_stack=lambda: 0)
        self.compiler = SimpleNamespace(is_compiling=lambda: self.compiling)
        self.jit = SimpleNamespace(script=lambda function: function)
        self.version = SimpleNamespace(cuda="13.0", hip=None)
        self.cuda = SimpleNamespace(
            CUDAGraph=CUDAGraph,
            is_initialized=lambda: self.initialised,
            _lazy_init=self._initialise,
            device_count=lambda: 2,
            current_device=lambda: 0,
            memory_reserved=lambda number: 0,
            synchronize=lambda number: log.append(f"synchronize {number}"),
        )

    def _initialise(self) -> None:
        self.initialised = True
