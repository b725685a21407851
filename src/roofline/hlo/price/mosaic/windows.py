"""The blocks that a kernel's pipeline copies: which part of each array a step of the grid needs, and when that changes.

An input's block is fetched when it differs from that of the step before; an output's is written when the next step has another, and at the
end. Of a block that reaches beyond its array only the part inside is copied.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import prod

import numpy as np
from msgspec import Struct

from ...ir.shapes import Shape
from .code import Kernel, Misread, Operation
from .ranges import MOST_POINTS, Numbers, Range
from .scalars import Scalars
from .work import Bounds


class Window(Struct, frozen=True):
    """A window of a kernel: its block's sizes, the block's position in each step, in elements, and how many copies VMEM has of it.

    ``tables`` are the arguments of the kernel, by place, in which the position is looked up.
    """

    bounds: tuple[int, ...]
    starts: tuple[Range, ...]
    copies: int
    tables: frozenset[int] = frozenset()


def window(kernel: Kernel, settings: Mapping[str, object], scalars: Scalars) -> Window | None:
    """A window by its settings; ``None`` for an array that the kernel accesses itself."""
    bounds = settings.get("window_bounds")
    name = str(settings.get("transform_indices", "")).removeprefix("@")
    if not isinstance(bounds, list) or not name:
        return None
    sizes = tuple(size for size in bounds if isinstance(size, int))
    function = kernel.functions.get(name)
    if function is None:
        raise Misread("a window without the function of its blocks")
    indices = tuple(indices_of(function, scalars))
    if len(indices) != len(sizes):
        raise Misread("a window whose blocks have another rank than their positions")
    if "element_window" not in str(settings.get("window_kind", "")):
        indices = tuple(_times(index, size) for index, size in zip(indices, sizes, strict=True))
    copies = 1 if "synchronous" in str(settings.get("pipeline_mode", "")) else 2
    return Window(sizes, indices, copies, frozenset(_looked_up(function)))


def blocks_along(kernel: Kernel, settings: Mapping[str, object], scalars: Scalars, shape: Shape, axis: int) -> int | None:
    """How many steps of an axis of the grid have blocks inside an array; ``None`` where its blocks do not follow that axis alone."""
    function = kernel.functions.get(str(settings.get("transform_indices", "")).removeprefix("@"))
    bounds = settings.get("window_bounds")
    if function is None or not isinstance(bounds, list):
        return None
    values, yielded = inside(function, scalars), function.body().yielded
    in_elements = "element_window" in str(settings.get("window_kind", ""))
    limits = [
        values.longest(function.body().arguments[axis], index, size if in_elements else -(-size // max(1, bound)), 0)
        for index, size, bound in zip(yielded, shape.dims, bounds, strict=False)
    ]
    return min((limit for limit in limits if limit is not None), default=None)


def indices_of(function: Operation, scalars: Scalars) -> list[Range]:
    """What a function of the grid's steps and the tables returns."""
    inner = inside(function, scalars)
    return [inner.value(value) for value in function.body().yielded]


def _looked_up(function: Operation) -> Iterator[int]:
    """The places of the arguments that a function of the grid's steps reads numbers from."""
    body = function.body()
    for operation in body.everything():
        if operation.name == "memref.load" and operation.operands and operation.operands[0] in body.arguments:
            yield body.arguments.index(operation.operands[0])


def inside(function: Operation, scalars: Scalars) -> Scalars:
    """The values in a window's function, whose arguments are the kernel's first ones: the step of the grid, then the tables."""
    arguments = function.body().arguments
    outer = scalars.kernel.body.arguments
    values = {inner: scalars.axis(place) for place, inner in enumerate(arguments[: len(scalars.extents)])}
    tables = {inner: scalars.tables[passed] for inner, passed in zip(arguments, outer, strict=False) if passed in scalars.tables}
    return Scalars(scalars.kernel, scalars.shape, values, tables, scalars.extents, spent=scalars.spent)


def _times(index: Range, size: int) -> Range:
    low = index.low * size
    return Range(low, low) if index.is_known else Range(low, index.high * size, index.coarse)


def copied(window: Window, shape: Shape, extents: Sequence[Range]) -> Bounds:
    """The bytes of a window's copies in all steps."""
    if len(shape.dims) != len(window.bounds):
        raise Misread("a window of another rank than its array")
    most = tuple(int(extent.high) for extent in extents)
    least = tuple(int(extent.low) for extent in extents)
    sizes: list[Numbers] = []
    for start, bound, size in zip(window.starts, window.bounds, shape.dims, strict=True):
        inside_array = np.clip(size - start.low, 0, bound) if start.is_known else np.array(min(bound, size))
        is_even = inside_array.min() == inside_array.max()
        sizes.append(np.array(inside_array.flat[0]) if is_even else inside_array)
    width = shape.bytes / max(1, shape.elements)
    high = _changes(window.starts, sizes, most, surely=False)
    low = high if most == least and all(start.is_known for start in window.starts) else _changes(window.starts, sizes, least, surely=True)
    return Bounds(round(low * width), round(high * width))


def _changes(starts: Sequence[Range], sizes: Sequence[Numbers], grid: tuple[int, ...], *, surely: bool) -> int:
    """The elements copied: those of the first step's block, and those of each block that differs from the one before.

    The steps count through the grid with its last dimension fastest. Where one moves along an axis, the axes after it go from their
    last position to their first.
    """
    if 0 in grid:
        return 0
    rank = len(grid)
    parts = [_full(size, grid) for size in sizes]
    total = prod(int(part[(0,) * rank]) for part in parts)
    for axis in range(rank):
        if grid[axis] < 2:
            continue
        moving = [start for start in starts if start.coarse or any(size > 1 for size in start.low.shape[::-1][: rank - axis])]
        changed = np.zeros((1,) * rank, bool)
        after = [_after(part, axis) for part in parts]
        ends = [(_full(start.low, grid), _full(start.high, grid)) for start in moving]
        steps = prod(grid[:axis]) * (grid[axis] - 1)
        if prod(np.broadcast_shapes(*[_after(low, axis).shape for low, _ in ends], *[part.shape for part in after])) > MOST_POINTS:
            total += 0 if surely else steps * prod(int(part.max(initial=0)) for part in parts)
            continue
        for start, (low, high) in zip(moving, ends, strict=True):
            if surely or start.is_known:
                changed = changed | (_before(low, axis) > _after(high, axis)) | (_before(high, axis) < _after(low, axis))
            else:
                changed = changed | np.True_
        amount = changed.astype(np.int64)
        for part in after:
            amount = amount * part
        total += int(amount.sum()) * (steps // prod(amount.shape))
    return total


def _full(values: Numbers, grid: tuple[int, ...]) -> Numbers:
    """An array with an axis for each dimension of the grid, cut to its size."""
    values = values.reshape((1,) * (len(grid) - values.ndim) + values.shape)
    return values[tuple(slice(size) for size in grid)]


def _before(values: Numbers, axis: int) -> Numbers:
    """The positions before a move along an axis: all but the last on it, the last on those after it."""
    rank = values.ndim
    along = slice(None, -1) if values.shape[axis] > 1 else slice(None)
    return values[(slice(None),) * axis + (along,) + (slice(-1, None),) * (rank - axis - 1)]


def _after(values: Numbers, axis: int) -> Numbers:
    """The positions after a move along an axis: all but the first on it, the first on those after it."""
    rank = values.ndim
    along = slice(1, None) if values.shape[axis] > 1 else slice(None)
    return values[(slice(None),) * axis + (along,) + (slice(None, 1),) * (rank - axis - 1)]


def steps_needed(window: Window, shape: Shape, extents: Sequence[Range], axis: int) -> int:
    """The least length of an axis of the grid for which each block of a result is written once.

    Where the block is the step itself, a grid whose size is data says that it may be fewer.
    """
    if len(shape.dims) != len(window.bounds):
        return 0
    needed = 1
    for start, bound, size in zip(window.starts, window.bounds, shape.dims, strict=True):
        full = start.low.reshape((1,) * (len(extents) - start.low.ndim) + start.low.shape)
        if full.shape[axis] > 1:
            if start.is_known:
                return 0
            needed *= -(-size // max(1, bound))
    others = [
        place for place in range(len(extents)) if place != axis and any(_moves(start, place, axis, len(extents)) for start in window.starts)
    ]
    return needed if not others else 0


def _moves(start: Range, place: int, axis: int, rank: int) -> bool:
    """Whether a position that depends on one axis depends on another too."""
    full = (1,) * (rank - start.low.ndim) + start.low.shape
    return full[axis] > 1 and full[place] > 1
