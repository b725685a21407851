"""Timing of work on PyTorch's GPU by the device's own events; on a CPU build, for tests, by the host's clock.

Bursts are a few tries after a pause, so that the chip is cool and below its power limit; sustained rates are those of the second half of
continuous work over seconds.
"""

import time
from collections.abc import Callable
from itertools import pairwise

import torch

from ...units import parse

REST_S, BURST, WARM_UP = parse("120 ms", "s"), 8, 2
FEW = 3  # least number of tries

Work = Callable[[], object]


class TorchTimer:
    """Times work on the GPU that PyTorch uses by default, or on the CPU."""

    def __init__(self, kind: str) -> None:
        if kind == "gpu" and not torch.cuda.is_available():
            raise RuntimeError("no GPU that PyTorch can use")
        self.is_gpu = kind == "gpu"
        self.where = "cuda" if self.is_gpu else "cpu"

    def sync(self) -> None:
        if self.is_gpu:
            torch.cuda.synchronize()

    def each(self, work: Work, tries: int) -> list[float]:
        """The seconds of each of some tries, one after the other without a pause."""
        if not self.is_gpu:
            times = []
            for _ in range(tries):
                began = time.perf_counter()
                work()
                times.append(time.perf_counter() - began)
            return times
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(tries + 1)]
        marks[0].record()
        for mark in marks[1:]:
            work()
            mark.record()
        marks[-1].synchronize()
        return [parse(f"{first.elapsed_time(second)} ms", "s") for first, second in pairwise(marks)]

    def burst(self, work: Work, seconds: float, rest_s: float = REST_S) -> list[float]:
        """The seconds of tries in bursts, each after a rest; warm-up tries do not count."""
        end = time.monotonic() + seconds
        times: list[float] = []
        while not times or time.monotonic() < end:
            self.sync()
            time.sleep(rest_s)
            times += self.each(work, WARM_UP + BURST)[WARM_UP:]
        return times

    def hold(self, work: Work, seconds: float) -> list[float]:
        """The seconds of tries in the second half of continuous work."""
        began = time.monotonic()
        times: list[float] = []
        while (spent := time.monotonic() - began) < seconds or len(times) < FEW:
            found = self.each(work, BURST)
            times += found if spent >= seconds / 2 else []
        return times

    def repeat_for(self, work: Work, seconds: float) -> list[float]:
        """Tries for ``seconds`` seconds, at least a few."""
        self.each(work, 1)
        times, end = self.each(work, FEW), time.monotonic() + seconds
        while time.monotonic() < end:
            times += self.each(work, FEW)
        return times

    def as_one(self, work: Work, times: int) -> Work:
        """Several calls as one: a graph on a GPU."""
        if not self.is_gpu:

            def all_of_them() -> None:
                for _ in range(times):
                    work()

            return all_of_them
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            work()
            with torch.cuda.graph(graph, stream=stream):
                for _ in range(times):
                    work()
        torch.cuda.current_stream().wait_stream(stream)
        replay: Work = graph.replay
        return replay

    def host_times(self, work: Work, seconds: float) -> list[float]:
        self.sync()
        times, end = list[float](), time.monotonic() + seconds
        while len(times) < FEW or time.monotonic() < end:
            began = time.perf_counter()
            work()
            times.append(time.perf_counter() - began)
        return times
