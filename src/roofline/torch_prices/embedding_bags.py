"""Embedding bags: rows of a table summed or averaged in bags, and the gradients of the table and of the samples' weights."""

from .call import Call, Priced, Tensor, needed
from .op_table import op
from .traffic import format_name, pointwise_work, streamed, traffic


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
    work = pointwise_work(indices.elements * width, 2, 0, table.dtype)
    moved = traffic((dy, read, indices, bags), (Tensor((indices.elements,), table.dtype),))
    return Priced(cost=work + moved, category="reduction", dtype=format_name(table))


@op("aten::embedding_renorm")
def renormalised(call: Call) -> Priced | None:
    """Rows of a table with a norm above the limit, scaled in place: only rows that are looked up, once each."""
    table, indices = call.need(0), call.need(1)
    if len(table.shape) != 2:
        return None
    rows = Tensor((min(indices.elements, table.shape[0]), table.shape[1]), table.dtype)
    return streamed("scatter", table, (rows, indices), (rows,), flops=3, elements=rows.elements)
