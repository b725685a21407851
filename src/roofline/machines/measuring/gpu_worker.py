"""Experiments on an accelerator in a separate process, through PyTorch or JAX: a crash or running out of memory ends only this process.

A request names one experiment, its time limit in seconds, and its parameters. The answer has the ``rates`` (or ``seconds``) of each try and
``how`` they were measured, or ``absent`` with the reason why this device, or this version of the library, does not support it.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, Protocol

from ...errors import MachineError
from ...workers import Worker, WorkerDied

FRAMEWORKS = ("torch", "jax")


class Device(Protocol):
    """A device used through a framework: its description and its experiments."""

    def describe(self) -> dict[str, Any]: ...

    def run(self, name: str, request: dict[str, Any]) -> dict[str, Any]: ...


def opened(wanted: str, kind: str) -> Device:
    """The device, through the first framework that is installed and has one of this kind (``gpu``, ``tpu``, ``cpu``)."""
    problems = []
    for framework in (wanted,) if wanted else ("jax",) if kind == "tpu" else FRAMEWORKS:
        try:
            if framework == "torch":
                from .torch_experiments import TorchDevice

                return TorchDevice(kind)
            from .jax_experiments import JaxDevice

            return JaxDevice(kind)
        except (ImportError, RuntimeError) as error:
            problems.append(f"{framework}: {_one_line(error)}")
    raise RuntimeError("; ".join(problems))


def answer(device: Device, request: dict[str, Any]) -> dict[str, Any]:
    """The result of an experiment, or the framework's exception as the reason why there is none."""
    try:
        return device.run(request.pop("name"), request)
    except Exception as error:
        return {"absent": _one_line(error) or type(error).__name__}


def _one_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:200]


class Accelerator:
    """The worker that measures a device; ``device`` describes it."""

    def __init__(self, kind: str = "gpu", framework: str = "") -> None:
        self._ends = ExitStack()
        with ExitStack() as ends:
            threads = ends.enter_context(ThreadPoolExecutor(1))
            self._worker = ends.enter_context(Worker(XLA_PYTHON_CLIENT_PREALLOCATE="false"))
            self._submit = threads.submit
            self._begin(_open, framework, kind)
            self.device: Mapping[str, Any] = self.answer()
            self._ends = ends.pop_all()

    def __enter__(self) -> "Accelerator":
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def _begin(self, function: Callable[..., dict[str, Any]], *arguments: Any) -> None:
        self._asked = self._submit(self._worker.call, function, *arguments)

    def ask(self, request: Mapping[str, Any]) -> None:
        """Start an experiment."""
        self._begin(_answer, dict(request))

    def answer(self) -> dict[str, Any]:
        """The result of the requested experiment."""
        try:
            result: dict[str, Any] = self._asked.result()
        except WorkerDied as error:
            raise MachineError(f"while measuring {error}; run the same command again to resume") from None
        return result


_opened: list[Device] = []  # the device of a worker


def _open(framework: str, kind: str) -> dict[str, Any]:
    """What a worker does first: it opens and describes the device."""
    try:
        _opened.append(opened(framework, kind))
    except RuntimeError as error:
        needs = "jax[tpu] on a computer with TPUs" if kind == "tpu" else "PyTorch or JAX with a GPU build"
        raise MachineError(f"no {kind.upper()} can be measured here ({_one_line(error)}); it takes {needs}") from None
    return _opened[0].describe()


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    """What a worker does for each request."""
    return answer(_opened[0], request)
