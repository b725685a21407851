"""Caches of keys and values that are copied before attention reads them: all rows in another order, as beam search does after every token,
the pages of each sequence into one piece, or all positions shifted by one to append another.
"""

from collections.abc import Iterator

from ....cost import NOTHING
from ....torch_prices import Tensor
from ....units import parse
from ....workload import Avoidable, Usual
from ..pricing import PricedOp
from .recorded import PricedExecution, Recorded, tensors_of

# The kind, the group, the words, and the class of unneeded work.
BEAMS = Avoidable(
    kind="layout-copies",
    instead=NOTHING,
    unneeded="layout",
    group="beams",
    usual=Usual.UNLESS_ASKED,
)
PAGES = Avoidable(
    kind="layout-copies",
    instead=NOTHING,
    unneeded="copied",
    group="pages",
    usual=Usual.UNLESS_ASKED,
)
SHIFTED = Avoidable(kind="missing-donation", instead=NOTHING, cause="shifted", unneeded="copied", extra=True)
LEAST = parse("1 MB", "B")  # of what is copied
AHEAD = 8  # executions from a gather of pages to attention
ROLL = "aten::roll"
_MULTIPLIES = ("aten::bmm", "aten::baddbmm")

Size = tuple[int, tuple[int, ...]]  # the elements and the last two sizes of a tensor: batches and heads may be merged


def reordered_caches(recorded: Recorded) -> Iterator[tuple[PricedExecution, Avoidable]]:
    """The copies of whole caches in another order or shifted, and of pages in one piece, in order of time."""
    read = {_size(one) for _, priced in recorded.ordered for one in _keys_and_values(priced)}
    for place, held in enumerate(recorded.ordered):
        if held[0].context.backward:
            continue
        cache = _reordered(held[1])
        if cache is not None and _size(cache) in read:
            yield held, SHIFTED if held[1].name == ROLL else BEAMS
        elif (page := _page(held[1])) and any(
            one.elements % page == 0 and one.elements > page
            for _, priced in recorded.ordered[place + 1 : place + 1 + AHEAD]
            if priced.priced.category == "attention"
            for one in _keys_and_values(priced)
        ):
            yield held, PAGES


def _size(one: Tensor) -> Size:
    return one.elements, tuple(sorted(one.shape[-2:]))


def _keys_and_values(priced: PricedOp) -> list[Tensor]:
    if priced.priced.category == "attention":
        return tensors_of(priced)[1:3]
    return tensors_of(priced)[-1:] if priced.name in _MULTIPLIES else []


def _reordered(priced: PricedOp) -> Tensor | None:
    """The tensor that an op shifts, or of which it takes as many rows as there are, by index along the first axis; else ``None``."""
    tensors = tensors_of(priced)
    if priced.name == ROLL and tensors and len(tensors[0].shape) > 2 and (tensors[0].bytes or 0) >= LEAST:
        return tensors[0]
    if len(tensors) < 2 or len(tensors[0].shape) < 3 or (tensors[0].bytes or 0) < LEAST or priced.args[1] != 0:
        return None
    whole, index = tensors[:2]
    if priced.name == "aten::gather":  # of whole rows: the index is expanded along all other axes
        return whole if index.shape == whole.shape and index.distinct == index.shape[0] else None
    return whole if priced.name == "aten::index_select" and index.elements == whole.shape[0] else None


def _page(priced: PricedOp) -> int:
    """The elements of a page, where an op gathers pages of a pool by index: tokens, heads and the size of a head; else 0."""
    pool = next(iter(tensors_of(priced)), None) if priced.name in ("aten::index", "aten::index_select", "aten::gather") else None
    if pool is None or len(pool.shape) != 4 or (pool.bytes or 0) < LEAST or priced.args[1:2] not in ((0,), (None,), ()):
        return 0
    return pool.elements // max(pool.shape[0], 1)
