"""Changes that spare work which the findings name: dense experts, copies that donation avoids."""

from collections.abc import Collection
from fractions import Fraction
from math import log2

from msgspec.structs import replace

from ...cost import NOTHING, Cost
from ...operation import Product, Streamed
from ..expected_times import predict_op
from .state import State
from .words import Words

FUSED = 0.15  # of the time of work that is spared, at most: what other kernels have of it, fused into them
STORED = 0.25  # of the time of work that is spared, at most: what it takes to store and read its results instead


def donate(state: State, words: Words) -> None:
    """``donate``: arguments that are copied in full are updated in place."""
    spare(state, "missing-donation", "donate: this program copies no argument that donation would update in place")


def spare(state: State, kind: str, otherwise: str, shorter: float = FUSED, done: Collection[int] = ()) -> dict[int, float]:
    """Give the ops of a kind what they need; the shares of their arithmetic that products are left with, by their indices.

    Others may take less long for it, by a share of the time of those that go at most. Those that are ``done`` stay as they are.
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
    """Move an op's result to memory and back instead of computing it, which takes no longer than it took."""
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
    """A product of which only a share is needed: fewer rows, or each row with one expert of several."""
    experts = round(1 / share)
    if kind != "dense-experts" or experts < 2:
        return replace(one, m=float(one.m) * share)
    if one.batch > 1:
        return replace(one, m=float(one.m) * float(one.batch) * share, batch=1, groups=one.batch)
    wide = "k" if float(one.k) % experts == 0 and one.k >= one.n else "n"
    return replace(one, groups=experts, **{wide: float(getattr(one, wide)) / experts})
