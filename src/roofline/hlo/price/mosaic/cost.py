"""The cost of a Mosaic kernel: the work of its code and the traffic of its windows."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import prod

import numpy as np
from msgspec import Struct

from ....cost import Cost
from ....units import show
from ....workload import COUNTED
from ...ir.platforms import Platform
from ...ir.shapes import Shape
from ...read.literals import MAX_TABLE
from ...read.mlir import MAGIC
from ...read.mlir.types import DYNAMIC
from ..memory_spaces import level
from .code import Kernel, Misread, Operation, read_bytecode
from .grouped import grouped_flops, in_order
from .operations import number
from .ranges import Range, constant, unknown
from .scalars import Scalars
from .text import read_text
from .windows import Window, blocks_along, copied, inside, steps_needed, window
from .work import Bounds, Tally, Walk

_MOST_GRID = 2**16  # steps of a dimension of the grid whose size is data
Table = tuple[int, ...] | None


class KernelCost(Struct, frozen=True):
    """What one execution of a kernel costs: at most, and at least where data decides; the grid, and the VMEM of its windows and scratch."""

    cost: Cost
    least: Cost
    grid: tuple[int, ...]
    vmem: int
    notes: tuple[str, ...] = ()


@lru_cache(maxsize=100)
def _read(code: bytes) -> Kernel:
    """A kernel from its bytecode, or from the text that the compiler itself writes."""
    return read_bytecode(code) if code.startswith(MAGIC) else read_text(code.decode("utf-8", "replace"))


@lru_cache(maxsize=1_000)
def kernel_cost(
    code: bytes,
    operands: tuple[Shape, ...],
    results: tuple[Shape, ...],
    tables: tuple[Table, ...],
    platform: Platform,
    *,
    skips: bool = True,
) -> KernelCost:
    """The cost of a kernel by its code, the arrays of its call, and the integers of its operands that are constants of the program.

    Without ``skips`` blocks behind a condition always run.
    """
    try:
        return _Call(_read(code), operands, results, tables, platform, skips).cost()
    except (IndexError, KeyError, TypeError, ValueError, ArithmeticError, RecursionError, MemoryError) as error:
        raise Misread(f"code that contradicts itself ({type(error).__name__})") from None


class _Call(Struct):
    """A kernel with the arrays that it is called with."""

    kernel: Kernel
    operands: tuple[Shape, ...]
    results: tuple[Shape, ...]
    tables: tuple[Table, ...]
    platform: Platform
    skips: bool

    def cost(self) -> KernelCost:
        main = self.kernel.main
        if "core_type<sc" in main.word("tpu.core_type"):
            raise Misread("a kernel of the SparseCore")
        grid = main.numbers("iteration_bounds")
        given = sum(size == DYNAMIC for size in grid)
        extents, left = [], list(self.tables[:given])
        for size in grid:
            known_size = left.pop(0) if size == DYNAMIC else (size,)
            extents.append(constant(known_size[0]) if known_size else unknown((), 0))
        prefetched = main.number("scalar_prefetch") or 0
        arguments = self.kernel.body.arguments[len(grid) :]
        arrays = (*self.operands[given:], *self.results)
        scratch = arguments[len(arrays) :]
        if len(arguments) < len(arrays) or len(scratch) != (main.number("scratch_operands") or 0):
            raise Misread("a kernel with other arguments than its call")
        tables = {}
        for argument, shape, table in zip(arguments[:prefetched], arrays, self.tables[given:], strict=False):
            if table is not None and len(table) in (1, shape.elements) and shape.elements <= MAX_TABLE:  # one number is broadcast
                tables[argument] = np.broadcast_to(np.array(table, np.int64), shape.elements).reshape(shape.dims)
        scalars = self._scalars(extents, tables)
        settings = _settings(main) or [{}] * (len(arrays) - prefetched)
        if len(settings) != len(arrays) - prefetched:
            raise Misread("a kernel with other windows than arrays")
        scalars = self._bounded(scalars, settings, arrays[prefetched:], len(self.operands) - given - prefetched)
        inputs = len(self.operands) - given
        views = {
            place: view
            for place, setting in enumerate(settings, prefetched)
            if arrays[place].is_bounded and (view := window(self.kernel, setting, scalars)) is not None
        }
        needed = grouped_flops(self.kernel, arguments, arrays, views, inputs)
        tally, vmem = self._windows(scalars, views, arguments, arrays, inputs, is_grouped=needed is not None)
        for argument in scratch:
            kind = self.kernel.type(argument)
            vmem += kind.elements * number(kind.element).bits // 8 if kind.space == "vmem" else 0
        work = self._walk(scalars, arguments, arrays)
        if needed is not None:
            work.notes |= dict.fromkeys(_needs_only(work, needed))
        tally.merge(work)
        if min((*tally.low.values(), *tally.high.values()), default=0) < 0:
            raise Misread("amounts below 0")
        least, most = tally.costs
        return KernelCost(most, least, scalars.shape, vmem, tuple(tally.notes))

    def _scalars(self, extents: Sequence[Range], tables: dict[int, np.ndarray]) -> Scalars:
        """The values of the kernel over its grid; a dimension of unknown size has as many steps as may be."""
        shape = tuple(min(int(extent.high.max(initial=0)), _MOST_GRID) if not extent.is_known else int(extent.low) for extent in extents)
        scalars = Scalars(self.kernel, shape, {}, tables, tuple(extents), _stores(self.kernel))
        scalars.values |= {argument: scalars.axis(place) for place, argument in enumerate(self.kernel.body.arguments[: len(shape)])}
        return scalars

    def _bounded(self, scalars: Scalars, settings: list[dict[str, object]], arrays: Sequence[Shape], inputs: int) -> Scalars:
        """The same with bounds for dimensions of the grid whose size is data: by the tables that they index, and by the results' blocks."""
        extents = list(scalars.extents)
        for axis, extent in enumerate(extents):
            if extent.is_known:
                continue
            code = [(scalars, self.kernel.body)]
            code += [(inside(function, scalars), function.body()) for function in self._functions(settings)]
            rooms = [values.room(block.arguments[axis], block) for values, block in code]
            rooms += [blocks_along(self.kernel, window, scalars, shape, axis) for window, shape in zip(settings, arrays, strict=True)]
            if all(room is None for room in rooms):
                raise Misread("a grid whose size depends on data")
            extents[axis] = unknown((), 0, min(room for room in rooms if room is not None))
        scalars = self._scalars(extents, dict(scalars.tables))
        for axis, extent in enumerate(extents):
            if not extent.is_known:
                windows = [window(self.kernel, setting, scalars) for setting in settings[inputs:]]
                needed = [
                    steps_needed(window_of, shape, extents, axis)
                    for window_of, shape in zip(windows, arrays[inputs:], strict=True)
                    if window_of is not None
                ]
                extents[axis] = unknown((), min(max(needed, default=0), int(extent.high)), int(extent.high))
        return self._scalars(extents, dict(scalars.tables)) if any(not extent.is_known for extent in extents) else scalars

    def _functions(self, settings: list[dict[str, object]]) -> list[Operation]:
        names = [str(setting.get("transform_indices", "")).removeprefix("@") for setting in settings]
        return [self.kernel.functions[name] for name in dict.fromkeys(names) if name in self.kernel.functions]

    def _windows(
        self,
        scalars: Scalars,
        views: Mapping[int, Window],
        arguments: Sequence[int],
        arrays: Sequence[Shape],
        inputs: int,
        *,
        is_grouped: bool,
    ) -> tuple[Tally, int]:
        """The bytes that tables and windows move, and the VMEM of the windows."""
        tally, vmem = Tally(), 0
        for place, (argument, shape) in enumerate(zip(arguments, arrays, strict=False)):
            kind = self.kernel.type(argument)
            if kind.space in ("any", "hbm", "semaphore_mem") or not shape.is_bounded:
                continue
            view = views.get(place)
            moved = Bounds(shape.bytes, shape.bytes) if view is None else copied(view, shape, scalars.extents)
            if view is not None and is_grouped:
                most = copied(in_order(view, shape), shape, scalars.extents).high
                moved = Bounds(min(moved.low, most), most)
            memory = level(shape, self.platform, "read" if place < inputs else "write")
            if memory is not None:
                tally.add(memory, moved)
            if kind.space == "vmem":
                vmem += _in_vmem(kind.elements * number(kind.element).bits // 8, view, scalars)
        return tally, vmem

    def _walk(self, scalars: Scalars, arguments: Sequence[int], arrays: Sequence[Shape]) -> Tally:
        levels = {}
        for argument, shape in zip(arguments, arrays, strict=False):
            if self.kernel.type(argument).space in ("any", "hbm"):
                levels[argument] = {access: level(shape, self.platform, access) for access in ("read", "write")}
        runs = constant(1)
        for place, extent in enumerate(scalars.extents):
            if not extent.is_known:
                steps = scalars.axis(place).low
                runs = Range(runs.low * (steps < extent.low), runs.high * (steps < extent.high))
        return Walk(self.kernel, scalars, self.platform, levels, self.skips).block(self.kernel.body, runs)


def _needs_only(work: Tally, needed: int) -> Iterator[str]:
    """Limits products to the FLOP that their operation needs; a note says how many they may be with the rows of tiles that groups share."""
    for resource, most in work.high.items():
        if resource.unit == "matrix" and most > needed:
            work.high[resource], work.low[resource] = needed, min(work.low[resource], needed)
            yield f"{COUNTED}rows once, blocks in order, as if sorted by group; with tiles that groups share up to {show(most, 'FLOP')}"


def _in_vmem(size: int, view: Window | None, scalars: Scalars) -> int:
    return size * (view.copies if view is not None and prod(scalars.shape) > 1 else 1)


def _settings(main: Operation) -> list[dict[str, object]]:
    value = main.attributes.get("window_params")
    return [item if isinstance(item, dict) else {} for item in value] if isinstance(value, list) else []


def _stores(kernel: Kernel) -> dict[int, list[Operation]]:
    """The operations that write to scalar memory, by the memref that they write to."""
    stores: dict[int, list[Operation]] = {}
    for operation in kernel.body.everything():
        if operation.name == "memref.store" and len(operation.operands) > 1:
            stores.setdefault(kernel.source(operation.operands[1]), []).append(operation)
    return stores
