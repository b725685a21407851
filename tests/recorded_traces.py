"""Traces of the programs of `recorded_calls`, as `roofline capture` records them on a CPU.

    python tests/recorded_traces.py [NAME...]          records them again, with PyTorch

Each is one file in `tests/data/recorded_traces`.
"""

import gzip
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from recorded_calls import PROGRAMS, Program
from roofline.capture.hook.roofline_hook_torch_profiler import Profiler

FOLDER = Path(__file__).parent / "data" / "recorded_traces"
KEPT = ("traceEvents", "roofline_tensors")


def trace_of(program: Program) -> dict[str, Any]:
    """The trace of a program, with PyTorch."""
    import torch

    tensors = [_tensor(torch, shape, getattr(torch, number)) for shape, number in program.tensors]
    for tensor in tensors:
        tensor.requires_grad_(program.backward and tensor.is_floating_point())
    profiler = Profiler(torch, stacks=False)
    with tempfile.TemporaryDirectory() as folder:
        profiler.start()
        result = program.function(torch, *tensors)
        if program.backward:
            result.sum().backward()
        profiler.stop(str(Path(folder) / "trace.json"))
        trace: dict[str, Any] = json.loads((Path(folder) / "trace.json").read_text())
    return trace


def _tensor(torch: Any, shape: tuple[int, ...], number: Any) -> Any:
    return torch.zeros(shape, dtype=number) if number == torch.int64 else torch.ones(shape, dtype=number)


def write(name: str) -> None:
    """Writes the trace of a program, without what the machine adds to it."""
    trace = trace_of(PROGRAMS[name])
    trace["traceEvents"] = [event for event in trace["traceEvents"] if event.get("cat") == "cpu_op"]
    text = json.dumps({key: trace[key] for key in KEPT}, separators=(",", ":")).encode()
    FOLDER.mkdir(exist_ok=True)
    with gzip.GzipFile(FOLDER / f"{name}.json.gz", "wb", mtime=0) as file:
        file.write(text)


if __name__ == "__main__":
    for name in sys.argv[1:] or PROGRAMS:
        write(name)
        print(name)  # noqa: T201
