"""Changes that spare work which the findings name: recomputation, dense experts, copies that donation avoids."""

import re
from math import log2

from msgspec.structs import replace

from ...cost import NOTHING
from ...operation import Product
from ...workload import Op
from .state import State
from .words import Words

AGAIN = (0.7, 1.1)  # bounds of recomputing, as shares of the first time: compilers fuse it with the gradients
FUSED = 0.1  # of the time of work that is spared, at most: what other kernels have of it, fused into them
STORED = 0.25  # of the time of work that is spared, at most: what it takes to store and read its results instead


def remat(state: State, words: Words) -> None:
    """``remat off``: nothing is computed twice; ``remat on``: every layer's forward pass again before its gradients."""
    word = words.need()
    if word == "off":
        _spare(state, "recomputation", "remat off: this program computes nothing twice")
    elif word == "on":
        _again(state)
    else:
        raise words.wrong(f"remat {word}: write on or off")


def _again(state: State) -> None:
    """The ops of the forward pass of each layer once more, but for its last product, of which no gradient needs the result."""
    forward = [(index, op) for index, op in state if op.phase == "forward"]
    layers: dict[str, list[tuple[int, Op]]] = {}
    for index, op in forward:
        layer = next((word for word in op.scope.split("/") if re.search(r"\d", word)), "")
        if layer:
            layers.setdefault(layer, []).append((index, op))
    if not any(op.phase == "backward" for _, op in state):
        state.notes.append("remat on: this program has no gradients")
        return
    if not layers and not state.programs and (often := _several_times(state, forward)):
        layers[""] = often
        state.notes.append("remat on: this recording names no layers, so the forward ops that run several times per step are recomputed")
    elif not layers:
        layers[""] = forward
        state.notes.append("remat on: scopes name no layers, so the whole forward pass except its last matmul is recomputed")
    for ops in layers.values():
        last = _last_product(state, ops)
        for index, op in ops:
            if index != last:
                state.repeat(op, "again", AGAIN)


def _several_times(state: State, forward: list[tuple[int, Op]]) -> list[tuple[int, Op]]:
    """The ops that run more than once in a step, as those of layers do where one row stands for all of them."""
    steps = len(state.recording.steps)
    return [(index, op) for index, op in forward if steps and op.count >= 2 * steps]


def _last_product(state: State, ops: list[tuple[int, Op]]) -> int | None:
    """The last product of some ops, by their order in the compiled program; unknown without one."""
    module = state.module_of(ops[0][1])
    products = [(index, op) for index, op in ops if isinstance(op.operation, Product)]
    if module is None or not products:
        return None
    return max(products, key=lambda one: module.place(one[1].name) or (0, 0))[0]


def donate(state: State, words: Words) -> None:
    """``donate``: arguments that are copied in full are updated in place."""
    _spare(state, "missing-donation", "donate: this program copies no argument that donation would update in place")


def grouped(state: State, words: Words) -> None:
    """``grouped``: dense experts as grouped products."""
    _spare(state, "dense-experts", "grouped: this program does not compute every expert for every token")


def _spare(state: State, kind: str, otherwise: str) -> None:
    found = False
    for index, op in state:
        reason = next((one for one in op.avoidable if one.kind == kind), None)
        if reason is None:
            continue
        found = True
        cost = reason.instead * op.count
        if cost == NOTHING:
            state.remove(index, STORED, FUSED)
            continue
        flops, left = float(op.cost.flops or 0), float(cost.flops or 0)
        operation = op.operation
        if isinstance(operation, Product) and flops and left:
            operation = _smaller(operation, left / flops, kind)
        state.put(index, cost, operation, abs(log2(max(left / flops, 2**-6))) if flops and left else 1.0)
    if not found:
        state.notes.append(otherwise)


def _smaller(one: Product, share: float, kind: str) -> Product:
    """A product of which only a share is needed: fewer rows, or each row with one expert of several."""
    experts = round(1 / share)
    if kind != "dense-experts" or experts < 2:
        return replace(one, m=float(one.m) * share)
    if one.batch > 1:
        return replace(one, m=float(one.m) * float(one.batch) * share, batch=1, groups=one.batch)
    wide = "k" if float(one.k) % experts == 0 and one.k >= one.n else "n"
    return replace(one, groups=experts, **{wide: float(getattr(one, wide)) / experts})
