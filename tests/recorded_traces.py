"""Traces of the programs of `recorded_calls`, as `roofline capture` records them on a CPU.

    python tests/recorded_traces.py [NAME...]          records them again, with PyTorch

Each is one file in `tests/data/recorded_traces`; those of `OBSERVED` were also recorded with an `ExecutionTraceObserver`, and have a folder
in `tests/data/execution_traces` with a trace and the observer's file.
"""

import gzip
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recorded_calls import PROGRAMS, Program
from roofline.capture.hook.roofline_hook_torch_profiler import Profiler


def _trained(torch: Any, kinds: Mapping[str, Any], *tensors: Any) -> None:
    """Two steps of training, in which `kinds` says what is done with the gradients of both weights of a network."""
    x, first, second = tensors
    optimizers = [
        torch.optim.SGD([weight for weight, number in ((first, 0), (second, 1)) if number in updated], lr=0.1, momentum=0.9)
        for updated in kinds["updated"]
    ]
    for weight in (first, second):
        weight.requires_grad_()
    for _ in range(2):
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=not kinds.get("fills"))
            for _ in range(kinds.get("passes", 1)):
                (torch.relu(x @ first) @ second).sum().backward()
            optimizer.step()


def _training(**kinds: Any) -> Program:
    weights = (((256, 512), "float32"), ((512, 128), "float32"))
    return Program(lambda torch, *tensors: _trained(torch, kinds, *tensors), ((1024, 256), "float32"), *weights)


# Two steps of training a network with two weights. Each set of weights has an optimizer that updates them, in turn.
TRAINED = {
    "gradients_dropped": _training(updated=[{0, 1}]),
    "gradients_filled": _training(updated=[{0, 1}], fills=True),
    "gradients_filled_and_accumulated": _training(updated=[{0, 1}], fills=True, passes=2),
    "gradients_frozen": _training(updated=[{1}]),  # those of the first weight add up
    "gradients_zeroed": _training(updated=[{0}, {1}]),
}
FOLDER = Path(__file__).parent / "data" / "recorded_traces"
OBSERVED_FOLDER = Path(__file__).parent / "data" / "execution_traces"
OBSERVED = ("products_beside", "one_hot_trained", "gathered_and_joined", "one_hot_written_in_part", "repeated_heads")
TRACE, OBSERVER = "trace.json.gz", "pytorch_et.json.gz"
KEPT = ("traceEvents", "roofline_tensors")


def trace_of(program: Program) -> dict[str, Any]:
    """The trace of a program, with PyTorch."""
    import torch

    tensors = _tensors(torch, program)
    profiler = Profiler(torch, stacks=False)
    with tempfile.TemporaryDirectory() as folder:
        profiler.start()
        result = _run(torch, program, tensors)
        profiler.stop(str(Path(folder) / "trace.json"))
        trace: dict[str, Any] = json.loads((Path(folder) / "trace.json").read_text())
    del result  # it lives while the program is recorded
    return trace


def observed(program: Program) -> tuple[dict[str, Any], dict[str, Any]]:
    """The trace of a program and its execution trace, with PyTorch."""
    import torch

    tensors = _tensors(torch, program)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        observer = torch.profiler.ExecutionTraceObserver().register_callback(str(Path(folder) / "et.json"))
        with torch.profiler.profile(record_shapes=True, execution_trace_observer=observer) as profiler:
            _run(torch, program, tensors)
        profiler.export_chrome_trace(str(file))
        return json.loads(file.read_text()), json.loads((Path(folder) / "et.json").read_text())


def _tensors(torch: Any, program: Program) -> list[Any]:
    tensors = [_tensor(torch, shape, getattr(torch, number)) for shape, number in program.tensors]
    for tensor in tensors:
        tensor.requires_grad_(program.backward and tensor.is_floating_point())
    return tensors


def _tensor(torch: Any, shape: tuple[int, ...], number: Any) -> Any:
    """Zeros for indices; else ones, and more on the diagonal of square matrices, which have an inverse then."""
    if number == torch.int64:
        return torch.zeros(shape, dtype=number)
    tensor = torch.ones(shape, dtype=number)
    if len(shape) > 1 and shape[-1] == shape[-2]:
        tensor.diagonal(dim1=-2, dim2=-1).add_(1)
    return tensor


def _run(torch: Any, program: Program, tensors: list[Any]) -> Any:
    result = program.function(torch, *tensors)
    if program.backward:
        result.sum().backward()
    return result


def write(name: str) -> None:
    """Writes the traces of a program, without what the machine adds to them."""
    _pack(FOLDER / f"{name}.json.gz", _slim(trace_of({**PROGRAMS, **TRAINED}[name])))
    if name in OBSERVED:
        trace, execution = observed(PROGRAMS[name])
        _pack(OBSERVED_FOLDER / name / TRACE, _slim(trace))
        _pack(OBSERVED_FOLDER / name / OBSERVER, execution)


def _slim(trace: Mapping[str, Any]) -> dict[str, Any]:
    events = [event for event in trace["traceEvents"] if event.get("cat") in ("cpu_op", "user_annotation")]
    return {key: events if key == "traceEvents" else trace[key] for key in KEPT if key in trace}


def _pack(target: Path, value: Mapping[str, Any]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with gzip.GzipFile(target, "wb", mtime=0) as file:
        file.write(json.dumps(value, separators=(",", ":")).encode())


if __name__ == "__main__":
    for name in sys.argv[1:] or (*PROGRAMS, *TRAINED):
        write(name)
        print(name)  # noqa: T201
