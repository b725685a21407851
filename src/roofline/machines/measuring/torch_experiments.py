"""Experiments on a GPU through PyTorch, with Triton kernels where they measure better; the same on a CPU build, for tests."""

import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import torch

from ...units import parse
from .kernel_shapes import (
    BLOCKS,
    CACHED,
    COPY,
    PER_CORE,
    PROGRAMS_PER_CORE,
    REGISTER_BLOCK,
    REPEATS,
    VERBS,
    WORD,
    copy_words,
    enough_passes,
    product_words,
)
from .torch_timing import BURST, FEW, WARM_UP, TorchTimer, Work

TRY_S = parse("0.4 ms", "s")  # wanted time of a try of a small working set
IN_GRAPH, LAUNCHES = 100, 400
IN_A_ROW = 20  # all-reduces per wait
UNROLLED = 16
DTYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp8": getattr(torch, "float8_e4m3fn", None),
    "int8": torch.int8,
    "fp4": getattr(torch, "float4_e2m1fn_x2", None),
}
TWO_LAYOUTS = ("fp64", "fp32", "tf32", "bf16", "fp16")  # formats whose right operand may have either layout
LONGEST_S = parse("60 ms", "s")  # if a product takes longer, larger ones are not tried
SCALED_BLOCK = 16  # elements that share a scale in the 4-bit format


class TorchDevice(TorchTimer):
    """The GPU that PyTorch uses by default, or the CPU."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.cores = torch.cuda.get_device_properties(0).multi_processor_count if self.is_gpu else torch.get_num_threads()
        self._fastest: tuple[int, int, int] | None = None
        self.kernels: Any = None
        if self.is_gpu:
            try:
                from . import triton_kernels

                self.kernels = triton_kernels
            except ImportError:  # without Triton, PyTorch's own kernels are used
                pass

    def describe(self) -> dict[str, Any]:
        found: dict[str, Any] = {"framework": f"torch {torch.__version__}", "device": "CPU", "cores": self.cores, "count": 1}
        if self.is_gpu:
            properties = torch.cuda.get_device_properties(0)
            found |= {
                "device": properties.name,
                "memory": properties.total_memory,
                "l2": getattr(properties, "L2_cache_size", None),
                "capability": f"{properties.major}.{properties.minor}",
                "count": torch.cuda.device_count(),
                "libraries": f"CUDA {torch.version.cuda}" if torch.version.cuda else f"ROCm {torch.version.hip}",
            }
        if self.kernels is not None:
            import triton

            found["triton"] = triton.__version__
        return found

    def run(self, name: str, request: dict[str, Any]) -> dict[str, Any]:
        """One experiment by its name."""
        with torch.no_grad():
            found: dict[str, Any] = getattr(self, name.replace("-", "_"))(**request)
        if self.is_gpu:
            torch.cuda.empty_cache()
        return found

    # Matrix products

    def product(
        self,
        number: str,
        shapes: Sequence[Sequence[int]],
        seconds: float,
        held: bool = False,
        zeros: bool = False,
        layout: str | None = None,
    ) -> dict[str, Any]:
        """FLOP/s of products in a number format: the best of the shapes, in bursts or sustained (``held``)."""
        best: tuple[float, Work, Sequence[int], str] | None = None
        layouts = (layout,) if layout else ("NT", "NN") if number in TWO_LAYOUTS else ("NT",)
        for shape in shapes:  # the smallest first
            flop = 2.0 * shape[0] * shape[1] * shape[2]
            if best is not None and flop / best[0] > LONGEST_S:
                continue
            for turned in layouts:
                work = self._product(number, *shape, layout=turned, zeros=zeros)
                self.each(work, WARM_UP)
                rate = flop / sorted(self.burst(work, 0.0))[BURST // 2] if len(shapes) * len(layouts) > 1 else 1.0
                if best is None or rate > best[0]:
                    best = rate, work, shape, turned
        assert best is not None
        _, work, (m, n, k), chosen = best
        times = self.hold(work, seconds) if held else self.burst(work, seconds)
        how = product_words(m, n, k, zeros, held)
        return {"rates": [2.0 * m * n * k / each for each in times], "how": how, "shape": [m, n, k], "layout": chosen}

    def _product(self, number: str, m: int, n: int, k: int, *, layout: str, zeros: bool) -> Work:
        torch.backends.cuda.matmul.allow_tf32 = number == "tf32"
        dtype = DTYPES.get(number)
        if dtype is None or (number == "tf32" and not self.is_gpu):
            raise RuntimeError(f"{number}: no products in this format here")
        left, right = self._operand(number, dtype, m, k, zeros), self._operand(number, dtype, n, k, zeros)
        if number == "int8":
            turned = right.t()
            return lambda: torch._int_mm(left, turned)
        if number in ("fp8", "fp4"):
            return self._scaled(number, left, right, m, n, k)
        out = torch.empty(m, n, dtype=dtype, device=self.where)
        turned = right.t() if layout == "NT" else right.t().contiguous()
        return lambda: torch.matmul(left, turned, out=out)

    def _operand(self, number: str, dtype: Any, rows: int, columns: int, zeros: bool) -> torch.Tensor:
        if number == "fp4":  # two elements per byte
            packed = torch.randint(0, 256, (rows, columns // 2), dtype=torch.uint8, device=self.where)
            return (packed * 0 if zeros else packed).view(dtype)
        if zeros:
            return torch.zeros(rows, columns, device=self.where).to(dtype)
        if number == "int8":
            return torch.randint(-8, 8, (rows, columns), dtype=dtype, device=self.where)
        return torch.randn(rows, columns, device=self.where).to(dtype)

    def _scaled(self, number: str, left: torch.Tensor, right: torch.Tensor, m: int, n: int, k: int) -> Work:
        turned = right.t()
        if number == "fp8":
            one = torch.ones((), device=self.where)
            return lambda: torch._scaled_mm(left, turned, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True)
        scales = [torch.ones(rows * k // SCALED_BLOCK, device=self.where).to(DTYPES["fp8"]) for rows in (m, n)]
        return lambda: torch._scaled_mm(left, turned, scale_a=scales[0], scale_b=scales[1], out_dtype=torch.bfloat16)

    # Memory

    def stream(self, pattern: str, size: int, seconds: float, few_kernels: bool = False) -> dict[str, Any]:
        """B/s of repeatedly reading, writing or copying ``size`` bytes; a copy counts the bytes of both buffers.

        Each shape of the kernel takes a second to compile, so with ``few_kernels`` only one is tried.
        """
        words = max(1, size // WORD // (2 if pattern == "copy" else 1))
        if self.kernels is None:
            return self._plain_stream(pattern, words, seconds)
        if pattern == "per_core":
            return self._triton_stream(pattern, words, PER_CORE, seconds)
        tried = BLOCKS[:1] if few_kernels else BLOCKS
        chosen = (self._cache_kernel(tried),) if size < COPY else tried
        found = [self._triton_stream(pattern, words, block, seconds / len(chosen)) for block in chosen]
        if pattern == "copy" and size >= COPY:
            found.append(self._plain_stream(pattern, words, seconds / len(chosen)))
        return max(found, key=lambda each: sorted(each["rates"])[len(each["rates"]) // 2])

    def _cache_kernel(self, tried: Sequence[tuple[int, int, int]]) -> tuple[int, int, int]:
        """The block, warps and programs that read a cached set fastest: one for the whole sweep, so that its sizes are comparable."""
        if self._fastest is None:
            rates = {each: median(self._triton_stream("read", CACHED // WORD, each, 0.0)["rates"]) for each in tried}
            self._fastest = max(rates, key=lambda each: rates[each])
        return self._fastest

    def _triton_stream(self, pattern: str, words: int, block: tuple[int, int, int], seconds: float) -> dict[str, Any]:
        elements, warps, programs = block
        blocks = max(1, words // elements)
        source = torch.ones(blocks * elements, device=self.where)
        grid = (min(self.cores * programs, blocks),)
        if pattern == "per_core":
            blocks -= blocks % grid[0]
        target = torch.empty(blocks * elements if pattern in ("write", "copy") else grid[0], device=self.where)
        kernel = getattr(self.kernels, pattern)
        moved = WORD * blocks * elements * (2 if pattern == "copy" else 1)

        def work(passes: int) -> Work:
            return lambda: kernel[grid](source, target, blocks, passes, BLOCK=elements, num_warps=warps)

        passes = enough_passes(lambda count: min(self.each(work(count), FEW)), TRY_S)
        times = self.repeat_for(work(passes), seconds)
        how = f"{VERBS[pattern]} repeatedly in one kernel (Triton)"
        return {"rates": [moved * passes / each for each in times], "how": how, "bytes": moved}

    def _plain_stream(self, pattern: str, words: int, seconds: float) -> dict[str, Any]:
        source, target = torch.ones(words, device=self.where), torch.ones(words if pattern == "copy" else 1, device=self.where)
        if pattern == "per_core":
            raise RuntimeError("needs Triton")
        works: dict[str, Work] = {"read": source.sum, "write": lambda: source.fill_(1.0), "copy": lambda: target.copy_(source)}
        moved = WORD * words * (2 if pattern == "copy" else 1)
        work = works[pattern]
        self.each(work, WARM_UP)
        once = min(self.each(work, FEW))
        passes = max(1, min(200, round(TRY_S / max(once, parse("1 us", "s")))))
        if passes > 1:
            work = self.as_one(work, passes)
        return {"rates": [moved * passes / each for each in self.repeat_for(work, seconds)], "how": VERBS[pattern], "bytes": moved}

    # Arithmetic in registers

    def vector(self, number: str, seconds: float) -> dict[str, Any]:
        """FLOP/s of fused multiply-adds in a format, or exponentials per second (``transcendental``)."""
        if self.kernels is None:
            raise RuntimeError("needs Triton")
        special = number == "transcendental"
        kernel = self.kernels.exponentials if special else self.kernels.multiply_adds
        programs = self.cores * PROGRAMS_PER_CORE * 4
        source = torch.rand(programs * REGISTER_BLOCK, dtype=DTYPES["fp32" if special else number], device=self.where)
        target = torch.empty_like(source)
        done = float(programs * REGISTER_BLOCK * REPEATS * UNROLLED * (1 if special else 2))
        times = self.repeat_for(lambda: kernel[(programs,)](source, target, REPEATS, BLOCK=REGISTER_BLOCK, num_warps=4), seconds)
        what = "base-2 exponentials" if special else "fused multiply-adds"
        return {"rates": [done / each for each in times], "how": f"{what} in registers (Triton)"}

    # Launches and copies to the host

    def launch(self, kind: str, seconds: float) -> dict[str, Any]:
        """Seconds of a null kernel inside a graph (``graph``), outside (``stream``), or of a synchronisation with nothing to wait for."""
        if kind == "sync":
            return {"seconds": self.host_times(self.sync, seconds), "how": "synchronisation of an idle device"}
        if kind == "round trip":

            def both() -> None:
                self._null()
                self.sync()

            return {"seconds": self.host_times(both, seconds), "how": "launch of a null kernel and synchronisation"}
        if kind == "graph":
            replay = self.as_one(self._null, IN_GRAPH)
            return {"seconds": [each / IN_GRAPH for each in self.repeat_for(replay, seconds)], "how": f"{IN_GRAPH} null kernels in a graph"}
        self._null()
        self.sync()
        times, end = list[float](), time.monotonic() + seconds
        while not times or time.monotonic() < end:
            began = time.perf_counter()
            for _ in range(LAUNCHES):
                self._null()
            self.sync()
            times.append((time.perf_counter() - began) / LAUNCHES)
        return {"seconds": times, "how": f"{LAUNCHES} null kernels, launched one by one"}

    def _null(self) -> None:
        if self.is_gpu:
            torch.cuda._sleep(1)  # a kernel that waits for one clock cycle
        else:
            torch.empty(0)

    def small(self, kind: str, seconds: float) -> dict[str, Any]:
        """Seconds of the smallest ops of a kind, one after the other in a graph, as predictions need them."""
        rows, columns = 16, 256
        dtype = torch.bfloat16
        left, square = torch.randn(rows, columns, device=self.where).to(dtype), torch.randn(columns, columns, device=self.where).to(dtype)
        out = torch.empty_like(left)
        works: dict[str, Work] = {
            "product": lambda: torch.matmul(left, square, out=out),
            "add": lambda: torch.add(left, left, out=out),
            "norm": lambda: torch.nn.functional.layer_norm(left, (columns,)),
        }
        replay = self.as_one(works[kind], IN_GRAPH)
        words = {"product": f"{rows} x {columns} by {columns} x {columns} products", "add": "additions", "norm": "layer norms"}
        return {"seconds": [each / IN_GRAPH for each in self.repeat_for(replay, seconds)], "how": f"{IN_GRAPH} {words[kind]} in a graph"}

    def host(self, direction: str, pinned: bool, seconds: float) -> dict[str, Any]:
        """B/s of a copy from the host (``in``) or to it (``out``)."""
        if not self.is_gpu:
            raise RuntimeError("a CPU has no link to a host")
        here = torch.ones(COPY, dtype=torch.uint8, pin_memory=pinned)
        there = torch.ones(COPY, dtype=torch.uint8, device=self.where)
        source, target = (here, there) if direction == "in" else (there, here)
        times = self.repeat_for(lambda: target.copy_(source, non_blocking=pinned), seconds)
        return {"rates": [COPY / each for each in times], "how": copy_words(direction, pinned)}

    def peer(self, seconds: float) -> dict[str, Any]:
        """B/s of a copy to the next device."""
        if not self.is_gpu or torch.cuda.device_count() < 2:
            raise RuntimeError("one device")
        source = torch.ones(COPY, dtype=torch.uint8, device="cuda:0")
        target = torch.ones(COPY, dtype=torch.uint8, device="cuda:1")
        times = self.repeat_for(lambda: target.copy_(source, non_blocking=True), seconds)
        return {"rates": [COPY / each for each in times], "how": "copies between two devices"}

    def all_reduce(self, size: int, seconds: float) -> dict[str, Any]:
        """Seconds of an all-reduce over all devices, by the host's clock."""
        count = torch.cuda.device_count() if self.is_gpu else 1
        if count < 2:
            raise RuntimeError("one device")
        each = [torch.ones(size // WORD, device=f"cuda:{number}") for number in range(count)]

        def together() -> None:
            for _ in range(IN_A_ROW):
                torch.cuda.nccl.all_reduce(each)
            for number in range(count):
                torch.cuda.synchronize(number)

        together()
        times = [took / IN_A_ROW for took in self.host_times(together, seconds)]
        return {"seconds": times, "how": f"all-reduce by NCCL over {count} devices", "bytes": WORD * (size // WORD), "devices": count}
