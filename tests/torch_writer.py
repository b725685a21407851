"""Small PyTorch profiler traces for tests, written event by event.

    trace = TorchTrace()
    trace.op("aten::mm", 10, 5, tensors=[(8, 4), (4, 2)])
    trace.run("gemm", launched=12, start=20, dur=3)
    data = trace.text()

Times are microseconds. `run` writes a launch and the event on the device that it led to; `product` and `copy` write all of a short one;
`steps` annotates steps. `Kernels` writes ops in a row, where times do not matter.
"""

import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from roofline.analysis import analyze
from roofline.report import Report

H200 = {
    "id": 0,
    "name": "NVIDIA H200",
    "totalGlobalMem": 150109880320,
    "computeMajor": 9,
    "computeMinor": 0,
    "warpSize": 32,
    "numSms": 132,
}
MAIN, BACKWARD = 1, 2  # threads
SMALL = ((8, 4), (4, 2))  # a product that takes no time
NODE = "autograd::engine::evaluate_function: "


class TorchTrace:
    """A trace that grows; ``base`` is added to every time."""

    def __init__(self, base: float = 0, **head: Any) -> None:
        self.head: dict[str, Any] = {"schemaVersion": 1, "deviceProperties": [H200], "record_shapes": 1, **head}
        self.events: list[dict[str, Any]] = []
        self.base, self._correlation = base, 0

    def add(self, cat: str, name: str, start: float, dur: float, pid: Any, tid: Any, args: dict[str, Any]) -> None:
        self.events.append({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": self.base + start, "dur": dur, "args": args})

    def op(
        self,
        name: str,
        start: float,
        dur: float,
        tensors: Sequence[Sequence[int]] = (),
        *,
        dtype: str = "c10::BFloat16",
        types: Sequence[str] = (),
        strides: Sequence[Sequence[int]] | None = None,
        values: Sequence[str] = (),
        thread: int = MAIN,
        cat: str = "cpu_op",
        **args: Any,
    ) -> None:
        """An op with tensors of one type, or of a type each, then other arguments by their values."""
        given = {
            "Input Dims": [*map(list, tensors), *([] for _ in values)],
            "Input type": [*(types or (dtype for _ in tensors)), *("Scalar" for _ in values)],
            "Input Strides": [*map(list, strides or map(_contiguous, tensors)), *([] for _ in values)],
            "Concrete Inputs": [*("" for _ in tensors), *values],
        }
        named = {word.replace("_", " ").capitalize(): value for word, value in args.items()}
        self.add(cat, name, start, dur, 100, thread, {"External id": 1, **(given if tensors or values else {}), **named})

    def annotation(self, name: str, start: float, dur: float, thread: int = MAIN) -> None:
        self.add("user_annotation", name, start, dur, 100, thread, {"External id": 2})

    def frame(self, name: str, start: float, dur: float, thread: int = MAIN) -> None:
        self.add("python_function", name, start, dur, 100, thread, {"Python id": 1})

    def allocation(self, start: float, allocated: int, reserved: int, device_type: int = 1) -> None:
        """An allocation, or its end, by the bytes that are allocated and reserved after it."""
        said = {"Total Allocated": allocated, "Total Reserved": reserved, "Bytes": 512, "Device Id": 0, "Device Type": device_type}
        event = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 100, "tid": MAIN, "ts": self.base + start}
        self.events.append({**event, "args": said})

    def launch(self, start: float, name: str = "cudaLaunchKernel", dur: float = 6.2, thread: int = MAIN, **args: Any) -> int:
        """A call of the runtime; its correlation id."""
        self._correlation += 1
        self.add("cuda_runtime", name, start, dur, 100, thread, {"cbid": 211, "correlation": self._correlation, **args})
        return self._correlation

    def ran(
        self,
        name: str,
        start: float,
        dur: float,
        correlation: int,
        *,
        grid: Sequence[int] = (1, 1, 1),
        stream: int = 7,
        device: int = 0,
        cat: str = "kernel",
        **args: Any,
    ) -> None:
        """An event on a device."""
        said = {"device": device, "stream": stream, "correlation": correlation, **args}
        self.add(cat, name, start, dur, device, stream, said if cat != "kernel" else {**said, "grid": list(grid)})

    def run(self, name: str, *, launched: float, start: float, dur: float, thread: int = MAIN, **args: Any) -> None:
        """A launch, and the kernel it led to."""
        self.ran(name, start, dur, self.launch(launched, thread=thread), **args)

    def product(
        self,
        start: float,
        dur: float,
        *,
        launched: float,
        ran: float,
        took: float,
        tensors: Sequence[Sequence[int]] = SMALL,
        thread: int = MAIN,
    ) -> None:
        """A product, its launch and its kernel."""
        self.op("aten::mm", start, dur, tensors, thread=thread)
        self.run("gemm", launched=launched, start=ran, dur=took, thread=thread)

    def copy(self, way: str, size: int, *, launched: float, ran: float, took: float, call: float = 1) -> None:
        """A copy between host and device (``"DtoH (Device -> Pageable)"``), and the call that asked for it."""
        self.ran(f"Memcpy {way}", ran, took, self.launch(launched, "cudaMemcpyAsync", call), cat="gpu_memcpy", bytes=size)

    def steps(self, count: int, length: int) -> Iterator[int]:
        """When each of some steps begins, which follow each other and are annotated."""
        for step in range(count):
            self.annotation(f"ProfilerStep#{step}", length * step, length - 1)
            yield length * step

    def text(self) -> bytes:
        return json.dumps({**self.head, "traceEvents": self.events, "traceName": "t.json"}).encode()

    def write(self, path: Path) -> Path:
        data = self.text()
        path.write_bytes(gzip.compress(data, 1) if path.suffix == ".gz" else data)
        return path


class Kernels:
    """Ops in a row, each with a kernel of 100 µs."""

    def __init__(self, trace: TorchTrace, begin: float) -> None:
        self.trace, self.at, self.ran = trace, begin + 1, begin + 20

    def op(self, name: str, tensors: Sequence[Sequence[int]], *, thread: int = MAIN, **args: Any) -> None:
        self.trace.op(name, self.at, 5, tensors, thread=thread, **args)
        self.run("kernel", thread)

    def node(self, name: str, count: int, **args: Any) -> None:
        """A node of the backward pass around the next ops."""
        self.trace.op(NODE + name, self.at - 1, 10 * count, thread=BACKWARD, **args)

    def run(self, kernel: str, thread: int = MAIN) -> None:
        self.trace.run(kernel, launched=self.at + 1, start=self.ran, dur=100, thread=thread)
        self.at, self.ran = self.at + 10, self.ran + 100


def steps_of(write: Callable[[Kernels], None]) -> TorchTrace:
    """Three steps of 3 ms, whose ops a function writes."""
    trace = TorchTrace()
    for begin in trace.steps(3, 3000):
        write(Kernels(trace, begin))
    return trace


def report_on(trace: TorchTrace, folder: Path) -> Report:
    return analyze(trace.write(folder / "trace.json"))


def _contiguous(shape: Sequence[int]) -> list[int]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return strides[::-1]


def training(steps: int = 3, **head: Any) -> TorchTrace:
    """Steps of one product forward and two backward, 100 µs each, launched by the host far ahead of the device.

    The product is 64x32 by 32x16: 2·64·32·16 = 65,536 FLOP; its gradients are as large.
    """
    trace = TorchTrace(**head)
    for step in range(steps):
        host, device = 50 * step, 1000 + 100 * step
        trace.annotation(f"ProfilerStep#{step + 5}", host, 48)
        trace.frame("train.py(10): main", host + 1, 40)
        trace.frame("nn.Module: Linear_0", host + 2, 8)
        trace.op("aten::linear", host + 3, 6, [(64, 32), (16, 32)], sequence_number=10 + step)
        trace.op("aten::mm", host + 4, 4, [(64, 32), (32, 16)], sequence_number=10 + step)
        trace.run("gemm_bf16", launched=host + 5, start=device, dur=10, grid=(4, 1, 1))
        trace.op(f"{NODE}MmBackward0", host + 20, 20, thread=BACKWARD, sequence_number=10 + step, fwd_thread_id=1)
        trace.op("MmBackward0", host + 21, 18, [(64, 16)], thread=BACKWARD, sequence_number=10 + step)
        trace.op("aten::mm", host + 22, 4, [(32, 64), (64, 16)], thread=BACKWARD)
        trace.run("gemm_bf16", launched=host + 23, start=device + 20, dur=10, thread=BACKWARD, grid=(2, 1, 1))
        trace.op("aten::mm", host + 30, 4, [(64, 16), (16, 32)], thread=BACKWARD)
        trace.run("memset", launched=host + 31, start=device + 40, dur=1, thread=BACKWARD, cat="gpu_memset", bytes=4)
        trace.run("gemm_bf16", launched=host + 32, start=device + 42, dur=10, thread=BACKWARD, grid=(8, 1, 1))
    return trace
