"""Changes that spare work which the findings name: recomputation, dense experts, copies for want of donation."""

from math import log2

from ...cost import NOTHING
from ...operation import Product
from .state import State
from .words import Words


def remat(state: State, words: Words) -> None:
    """``remat off``: nothing is computed twice."""
    if (word := words.need()) != "off":
        raise words.wrong(f"remat {word}: only off can be worked out from a compiled program")
    _spare(state, "recomputation", "remat off: this program computes nothing twice")


def donate(state: State, words: Words) -> None:
    """``donate``: what is copied whole is updated in place."""
    _spare(state, "missing-donation", "donate: this program copies no argument for want of donation")


def grouped(state: State, words: Words) -> None:
    """``grouped``: dense experts as grouped products."""
    _spare(state, "dense-experts", "grouped: this program computes no experts for every token")


def _spare(state: State, kind: str, otherwise: str) -> None:
    found = False
    for index, op in state:
        reason = next((one for one in op.avoidable if one.kind == kind), None)
        if reason is None:
            continue
        found = True
        cost = reason.instead * op.count
        if cost == NOTHING:
            state.remove(index)
            continue
        flops, left = float(op.cost.flops or 0), float(cost.flops or 0)
        operation = op.operation
        if isinstance(operation, Product) and flops and left:
            share = left / flops
            whole = operation.batch > 1 and kind == "dense-experts"
            operation = (
                _grouped(operation, share)
                if whole
                else Product(
                    m=float(operation.m) * share,
                    k=operation.k,
                    n=operation.n,
                    batch=operation.batch,
                    left=operation.left,
                    right=operation.right,
                    out=operation.out,
                    compute=operation.compute,
                )
            )
        state.put(index, cost, operation, abs(log2(max(left / flops, 2**-6))) if flops and left else 1.0)
    if not found:
        state.notes.append(otherwise)


def _grouped(dense: Product, share: float) -> Product:
    """Batches of which each takes all rows as groups that share them."""
    rows = float(dense.m) * float(dense.batch) * share
    return Product(
        m=rows, k=dense.k, n=dense.n, groups=dense.batch, left=dense.left, right=dense.right, out=dense.out, compute=dense.compute
    )
