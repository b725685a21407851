"""Gathers, scatters and embedding bags: only the rows or elements taken are counted, and at most the whole table.

In a trace, the zeros and copies that some of these make first are calls of their own; in a function that did not run (a call without
kernels) they are part of the call's price.
"""

import re
from math import prod

from ..cost import NOTHING
from ..formulas import embedding as embedding_formula
from ..resource import HBM
from .call import EXECUTION_TRACE, INT64, Call, Priced, Tensor, needed
from .op_table import op
from .traffic import result, streamed

GATHER, SCATTER = "gather", "scatter"
# Threads and elements per thread of a block: index_elementwise_kernel<128, 4>.
_BLOCK = re.compile(r"index_elementwise_kernel<(\d+), (\d+)")


def _gathered(call: Call, table: Tensor, elements: int, index: Tensor | None) -> Priced:
    """A gather of some elements: at most the whole table is read."""
    read = Tensor((min(elements, table.distinct),), table.dtype)
    out = result(call, (elements,), table.dtype)
    return streamed(GATHER, table, (read, index), (out,))


@op("aten::embedding")
def embedding(call: Call) -> Priced | None:
    table, indices = call.need(0), call.need(1)
    if len(table.shape) != 2 or table.dtype is None:
        return None
    vocabulary, width = table.shape
    ledger = embedding_formula(
        indices.elements, width, vocabulary=vocabulary, dtype=table.dtype.name, indices=(indices.dtype or INT64).name
    )
    return Priced(cost=ledger.cost, category=GATHER, dtype=table.dtype.name)


@op("aten::embedding_dense_backward")
def embedding_backward(call: Call) -> Priced | None:
    """Rows of the gradient added to a table of V rows, which is zero at first."""
    dy, indices, vocabulary = call.need(0), call.need(1), needed(call.number(2))
    if not dy.shape:
        return None
    width = dy.shape[-1]
    rows = int(vocabulary) if not call.kernels else min(indices.elements, int(vocabulary))
    written = Tensor((rows, width), dy.dtype)
    return streamed(SCATTER, dy, (dy, indices), (written,), flops=1)


@op("aten::index_select", "aten::gather", "aten::take", "aten::take_along_dim")
def gather(call: Call) -> Priced | None:
    """``index_select`` takes whole slices along an axis; the others take one element per index."""
    table = call.need(0)
    place = 1 if call.op in ("aten::take", "aten::take_along_dim") else 2
    index = call.need(place)
    if call.op != "aten::index_select":
        return _gathered(call, table, index.elements, index)
    elements = _of_slices(call, table, index)
    return None if elements is None else _gathered(call, table, elements, index)


def _of_slices(call: Call, table: Tensor, index: Tensor) -> int | None:
    """The elements of the slices of a table that an index names, along the axis in argument 1; ``None`` if it has no such axis."""
    axis = int(call.number(1, 0) or 0)
    if not -len(table.shape) <= axis < len(table.shape):
        return None
    size = table.shape[axis]
    return table.elements // size * index.elements if size else 0


@op("aten::index", "aten::_unsafe_index")
def index(call: Call) -> Priced | None:
    """x[indices]: the number of elements is known from the result; in traces, which drop the indices, from the kernel's grid."""
    table, indices = call.need(0), call.tensors(1)
    if call.outputs:
        return _gathered(call, table, call.outputs[0].elements, _together(indices))
    for kernel in call.kernels:
        if kernel.grid and "vectorized_gather_kernel" in kernel.name:
            return _gathered(call, table, kernel.grid[0] * prod(table.shape[1:]), Tensor((kernel.grid[0],), INT64))
        if kernel.grid and (found := _BLOCK.search(kernel.name)):
            block = int(found.group(1)) * int(found.group(2))
            least, most = ((kernel.grid[0] - 1) * block + 1, kernel.grid[0] * block)
            priced = _gathered(call, table, most, None)
            low = _gathered(call, table, least, None)
            bounds = (low.cost or NOTHING).known(HBM), (priced.cost or NOTHING).known(HBM)
            return Priced(cost=priced.cost, category=GATHER, dtype=priced.dtype, interval=bounds, missing=EXECUTION_TRACE)
    if indices is not None:
        elements = max(one.elements for one in indices) * prod(table.shape[len(indices) :])
        return _gathered(call, table, elements, _together(indices))
    return Priced(cost=None, category=GATHER, missing=EXECUTION_TRACE)


def _together(indices: tuple[Tensor, ...] | None) -> Tensor | None:
    """Several index tensors as one with all their elements."""
    return Tensor((sum(one.distinct for one in indices),), indices[0].dtype or INT64) if indices else None


def _scattered(call: Call, target: Tensor, index: Tensor | None, source: Tensor | None, elements: int, adds: bool) -> Priced:
    """Some elements written or added to a tensor, in place or to a copy of it."""
    touched = Tensor((min(elements, target.distinct),), target.dtype)
    read = [index, source, touched if adds else None]
    written = [touched]
    if not call.kernels and not call.op.endswith("_"):
        kept = Tensor((target.elements - touched.elements,), target.dtype)
        read, written = [*read, kept], [*written, kept]
    return streamed(SCATTER, target, read, written, flops=1, elements=elements if adds else 0)


@op("aten::scatter", "aten::scatter_add", "aten::scatter_reduce", "aten::index_add", "aten::index_copy", "aten::index_fill", "aten::put")
@op("aten::index_reduce")
def scatter(call: Call) -> Priced | None:
    target, index = call.need(0), call.need(1 if call.op.startswith("aten::put") else 2)
    source = call.tensor(2 if call.op.startswith("aten::put") else 3)
    name = call.op.removeprefix("aten::").removesuffix("_")
    adds = "add" in name or "reduce" in name
    elements = _of_slices(call, target, index) if name.startswith("index_") else index.elements
    if elements is None:
        return None
    part = Tensor((min(source.distinct, elements),), source.dtype) if source else None
    return _scattered(call, target, index, part, elements, adds)


@op("aten::index_put", "aten::_index_put_impl", "aten::_unsafe_index_put", "aten::masked_scatter")
def index_put(call: Call) -> Priced | None:
    """x[indices] = values: as many elements as values, or as indices if there is one value for all."""
    target, indices = call.need(0), call.tensors(1)
    mask = call.tensor(1)
    values = call.need(2)
    if mask is not None:
        return _scattered(call, target, mask, values, min(values.elements, mask.elements), False)
    rows = max(one.elements for one in indices) if indices else 0
    elements = max(values.elements, rows * prod(target.shape[len(indices or ()) :]) if indices else 0)
    return _scattered(call, target, _together(indices), values, elements, call.flag(3))


@op("aten::_jagged_to_padded_dense_forward", "aten::_padded_dense_to_jagged_forward", "aten::_nested_from_padded")
def padded_rows(call: Call) -> Priced | None:
    """Sequences padded to the longest (whose length is argument 2), or cut back (to the number of rows in argument 2)."""
    x, offsets = call.need(0), call.tensors(1)
    if not x.shape:
        return None
    out, filled = x, call.ints(2)
    if call.outputs:
        out = call.outputs[0]
    elif "to_padded" in call.op and offsets and filled:
        out = Tensor((max(0, offsets[0].elements - 1), *filled, *x.shape[1:]), x.dtype)
    elif "to_jagged" in call.op and filled:
        out = Tensor((filled[0], *x.shape[2:]), x.dtype)
    kept = Tensor((min(x.elements, out.elements),), x.dtype)
    return streamed(GATHER, x, (kept, _together(offsets)), (out,))


@op("aten::segment_reduce", "aten::_segment_reduce_backward")
def segments(call: Call) -> Priced | None:
    """Rows reduced in segments, whose lengths or offsets are a tensor; backward (gradient, result, rows) in the other direction."""
    tensors = call.all_tensors
    if not tensors:
        return None
    back = call.op.endswith("backward")
    rows = tensors[2] if back and len(tensors) > 2 else tensors[0]
    index = tensors[-1] if len(tensors) > 1 else None
    segments = index.elements if index else 1
    out = Tensor((segments, *rows.shape[1:]), rows.dtype)
    return streamed("reduction", rows, tensors if back else (rows, index), (rows if back else out,), flops=1)


@op("aten::_embedding_bag", "aten::_embedding_bag_forward_only")
def embedding_bag(call: Call) -> Priced | None:
    """(table, indices, offsets): rows of the table summed in bags, one per offset."""
    table, indices, offsets = call.need(0), call.need(1), call.need(2)
    if len(table.shape) != 2:
        return None
    rows, width = table.shape
    read = Tensor((min(indices.elements, rows), width), table.dtype)
    out = Tensor((offsets.elements, width), table.dtype)
    return streamed("gather", table, (read, indices, offsets), (out,), flops=1, elements=indices.elements * width)


# (gradient, indices, …): the positions of the number of the table's rows, and of the weights of the samples.
_BACKWARD = {"aten::_embedding_bag_dense_backward": (5, 8), "aten::_embedding_bag_backward": (6, 10)}


@op(*_BACKWARD)
def embedding_bag_backward(call: Call) -> Priced | None:
    """The gradient of each bag added to its rows; in a call without kernels also the zeros of the whole table."""
    dy, indices = call.tensor(0), call.tensor(1)
    rows_at, weights_at = _BACKWARD[call.op]
    rows = needed(call.number(rows_at))
    if dy is None or indices is None or not dy.shape:
        return None
    width = dy.shape[-1]
    written = Tensor((min(indices.elements, int(rows)) if call.kernels else int(rows), width), dy.dtype)
    bags = [call.tensor(place) for place in range(2, rows_at - 2)]  # offsets and the bag of each index
    return streamed(
        "scatter",
        dy,
        (dy, indices, *bags, call.tensor(weights_at)),
        (written,),
        flops=2 if call.tensor(weights_at) else 1,
        elements=indices.elements * width,
    )


@op("aten::_embedding_bag_per_sample_weights_backward")
def sample_weights_backward(call: Call) -> Priced | None:
    """(gradient, table, indices, offsets, bags): for each index the product of its row and its bag's gradient."""
    dy, table, indices, bags = call.need(0), call.need(1), call.need(2), call.tensor(4)
    if len(table.shape) != 2:
        return None
    rows, width = table.shape
    read = Tensor((min(indices.elements, rows), width), table.dtype)
    written = Tensor((indices.elements,), table.dtype)
    return streamed("reduction", table, (dy, read, indices, bags), (written,), flops=2, elements=indices.elements * width)


@op("aten::embedding_renorm")
def renormalised(call: Call) -> Priced | None:
    """Rows of a table with a norm above the limit, scaled in place: only rows that are looked up, once each."""
    table, indices = call.need(0), call.need(1)
    if len(table.shape) != 2:
        return None
    rows = Tensor((min(indices.elements, table.shape[0]), table.shape[1]), table.dtype)
    return streamed("scatter", table, (rows, indices), (rows,), flops=3, elements=rows.elements)
