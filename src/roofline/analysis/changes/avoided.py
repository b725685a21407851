"""Changes that remove avoidable work named by findings: dense experts, copies that donation avoids."""

from collections.abc import Collection
from fractions import Fraction
from math import log2

from msgspec.structs import replace

from ...cost import NOTHING, Cost
from ...operation import Product, Streamed
from ..expected_times import predict_op
from .change_words import Words
from .state import State

# Bounds of the saving, as shares of the time of removed work: the most by which other kernels get faster, because part of it was fused into
# them, and the most that storing and reading its results takes instead. Both are choices, about as wide as the spread of recomputation
# measured on H200 (`AGAIN` in `remat`).
FUSED, STORED = 0.15, 0.25


def donate(state: State, words: Words) -> None:
    """``donate``: arguments that are copied in full are updated in place."""
    remove_avoidable(state, "missing-donation", "donate: this program copies no argument that donation would update in place")


def remove_avoidable(state: State, kind: str, otherwise: str, shorter: float = FUSED, done: Collection[int] = ()) -> dict[int, float]:
    """Reduce the ops with avoidable work of a kind to the needed work.

    Returns, for products, the share of their FLOP that remains, by op index.

    ``otherwise`` is the note if there is no such op. ``shorter`` is the share of the removed time by which other ops may get faster at
    most. Ops in ``done`` are skipped.
    """
    found = False
    shares = dict[int, float]()
    for index, op in state:
        reason = next((one for one in op.avoidable if one.kind == kind), None)
        if reason is None or index in done:
            continue
        found = True
        cost = reason.instead * op.count
        if cost == NOTHING:
            state.remove(index, STORED, shorter)
            continue
        if not cost.flops and op.cost.flops:
            _stored(state, index, cost)
            continue
        flops, left = float(op.cost.flops or 0), float(cost.flops or 0)
        operation = op.operation
        if isinstance(operation, Product) and flops and left:
            shares[index] = left / flops
            operation = _smaller(operation, left / flops, kind)
        far = abs(log2(max(left / flops, 2**-6))) if flops and left else 1.0
        state.put(index, cost, operation, far, fresh=isinstance(operation, Product) and operation.groups > 0)
    if not found:
        state.notes.append(otherwise)
    return shares


def _stored(state: State, index: int, cost: Cost) -> None:
    """Store an op's result and read it back instead of computing it again; predicted to take at most as long as the op took."""
    state.put(index, cost, Streamed(kind="fusion"), 1.0, fresh=True)
    was, found = (
        state.recording.workload.ops[index].time_s or 0.0,
        predict_op(state.ops[index], state.after_machine, state.after_calibration),
    )
    if found is not None and found.time_s > was:
        share = was / found.time_s
        state.put(index, cost * Fraction(share), Streamed(kind="fusion"), 0.0)
        state.fixed[index] = (was, found.low_s * share, was)


def _smaller(one: Product, share: float, kind: str) -> Product:
    """A product reduced to a share of its work: fewer rows, or each row with one expert of several."""
    experts = round(1 / share)
    if kind != "dense-experts" or experts < 2:
        return replace(one, m=float(one.m) * share)
    if one.batch > 1:
        return replace(one, m=float(one.m) * float(one.batch) * share, batch=1, groups=one.batch)
    wide = "k" if float(one.k) % experts == 0 and one.k >= one.n else "n"
    return replace(one, groups=experts, **{wide: float(getattr(one, wide)) / experts})
