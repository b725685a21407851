"""Experiments on an accelerator in a separate process, through PyTorch or JAX: a crash or running out of memory ends only this process.

Its first line of output describes the device. Each line of input requests one experiment as JSON: its ``name``, its time limit in seconds,
and its parameters. The answer is one line: ``rates`` (or ``seconds``) of each try and ``how`` they were measured, or ``absent`` with the
reason why this device, or this version of the library, does not support it.
"""

import json
import os
import sys
from typing import Any, Protocol

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


def serve(wanted: str, kind: str) -> None:
    """Answer requests until the input ends. Answers use a separate pipe, because libraries print to standard output."""
    out = os.dup(1)
    os.dup2(2, 1)

    def say(value: object) -> None:
        os.write(out, f"{json.dumps(value)}\n".encode())

    try:
        device = opened(wanted, kind)
    except RuntimeError as error:
        say({"absent": _one_line(error)})
        return
    say(device.describe())
    for line in sys.stdin:
        say(answer(device, json.loads(line)))


if __name__ == "__main__":
    serve(*sys.argv[1:3])
