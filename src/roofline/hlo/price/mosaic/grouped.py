"""Kernels that multiply rows by the weights of their group, and look up in tables which tile of rows and which group a step multiplies.

Groups do not end where tiles do: a tile that several groups share is multiplied once for each, and each keeps its own rows. The operation
needs each row once: 2 · elements of one operand · free elements of the other. The tables go through the blocks in their order, so that a
block is copied once, not at every step: rows are sorted by group.
"""

import re
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from ...ir.shapes import Shape
from .code import Kernel, Operation
from .ranges import known
from .windows import Window

PRODUCTS = ("tpu.matmul", "vector.contract")
_LOADS = ("vector.load", "tpu.vector_load", "vector.transfer_read")
_LISTS = re.compile(r"\[([\d, ]*)\]")
_MOST_STEPS = 200  # values followed from a product back to the arrays that it multiplies


def grouped_flops(
    kernel: Kernel, arguments: Sequence[int], arrays: Sequence[Shape], windows: Mapping[int, Window], inputs: int
) -> int | None:
    """The FLOP that the operation of a grouped kernel needs; ``None`` for other kernels.

    Its one product is of blocks of two arrays, and one table gives the blocks of two windows: of an operand and the result, or of both
    operands, where each group has a result of its own. ``arguments``, ``arrays`` and ``windows`` are by place, the ``inputs`` first.
    """
    products = [operation for operation in kernel.body.everything() if operation.name in PRODUCTS]
    pairs = {tuple(_source(kernel, operand, arguments) for operand in operation.operands[:2]) for operation in products}
    if len(pairs) != 1:
        return None
    left, right = pairs.pop()
    if left is None or right is None or not {left, right} <= windows.keys():
        return None
    results = {table for place, window in windows.items() if place >= inputs for table in window.tables}
    if not windows[left].tables & (windows[right].tables | results) and not windows[right].tables & results:
        return None
    free = [_free(kernel, products[0], side, windows[place], arrays[place]) for side, place in enumerate((left, right))]
    flops = [2 * arrays[place].elements * others for place, others in ((left, free[1]), (right, free[0])) if others is not None]
    return min(flops, default=None)


def in_order(window: Window, shape: Shape) -> Window:
    """A window that goes through its array in order along the axis of the grid by which it looks up its position."""
    starts = list(window.starts)
    for place, (start, bound, size) in enumerate(zip(window.starts, window.bounds, shape.dims, strict=True)):
        steps = start.low.size
        if not start.is_known and 1 < steps == max(start.low.shape):
            last = -(-size // max(1, bound)) - 1
            starts[place] = known((np.minimum(np.arange(steps), last) * bound).reshape(start.low.shape))
    return replace(window, starts=tuple(starts))


def _source(kernel: Kernel, value: int, arguments: Sequence[int]) -> int | None:
    """The place of the array whose block alone a value is loaded from: through conversions, changes of shape and masks."""
    sources, values, seen = set(), [value], {value}
    while values and len(seen) < _MOST_STEPS:
        definition = kernel.definitions.get(values.pop())
        if definition is None:
            return None  # carried by a loop
        operation = definition[0]
        if operation.name in _LOADS:
            sources.add(kernel.source(operation.operands[0]))
        elif operation.regions or operation.name in PRODUCTS:
            return None
        else:
            inner = [operand for operand in operation.operands if kernel.type(operand).is_vector and operand not in seen]
            values += inner
            seen |= {*inner}
    if len(sources) != 1 or values:
        return None
    source = sources.pop()
    return list(arguments).index(source) if source in arguments else None


def _free(kernel: Kernel, product: Operation, side: int, window: Window, shape: Shape) -> int | None:
    """How many elements an array has along the axes of an operand that the product keeps; ``None`` where its block is another than that."""
    lists = _LISTS.findall(product.word("dimension_numbers"))
    if len(lists) < 4 or any(batch.strip() for batch in lists[5:7]):
        return None
    block = kernel.type(product.operands[side]).shape
    axes = [axis for axis, size in enumerate(window.bounds) if size != 1]
    if [window.bounds[axis] for axis in axes] != list(block):
        return None
    free = 1
    for axis in lists[2 + side].split(","):
        free *= shape.dims[axes[int(axis)]]
    return free
