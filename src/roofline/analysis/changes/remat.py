"""``remat on|off``: recompute the forward pass of every layer in the backward pass, or recompute nothing.

A loop over layers stores residuals (the values that gradients need) in arrays with one slice per layer. With ``remat on`` it stores only
the inputs of its layers: kernels that write, fill, move or only read residuals are removed, and those that compute them run again.
"""

import re
from collections import Counter
from fractions import Fraction

from ...cost import NOTHING, Cost
from ...graph.row_chains import Chain
from ...operation import Label, Product
from ...rules.recomputation.recomputed import KIND as RECOMPUTED
from ...workload import Op
from .avoided import remove_avoidable
from .change_words import Words
from .fuse import Indexed, chains_inside, fused_s, grown
from .residuals import with_residuals, without_residuals
from .state import State

# Bounds of recomputation, as shares of the forward time: compilers fuse it with the gradients, or differently than in the forward pass, and
# more matmuls may bring the chip to its power limit (on H200 it took 1.0, 1.2 and 1.3 times as long as the ops that it repeats).
AGAIN = (0.7, 1.3)
# Bounds of a chain that becomes one kernel because no intermediate value is stored for the gradients: a choice, and 2.4 / `ROWS_AT_ONCE`.
FUSED_CHAIN = (0.6, 1.7)
ROWS_AT_ONCE = 1.4  # time over the time of its traffic: one kernel for a softmax waits for whole rows (XLA's on H200: 1.3 to 2.4)
LAYER = 2  # products of a layer, at least


def remat(state: State, words: Words) -> None:
    """``remat off``: nothing is computed twice; ``remat on``: every layer's forward pass again before its gradients."""
    word = words.need()
    if word == "off":
        shorter = AGAIN[1] - 1
        again, done = with_residuals(state, shorter)
        twice = [(index, op) for index, op in state if index not in done and any(one.kind == RECOMPUTED for one in op.avoidable)]
        again += [(index, op) for index, op in twice if op.cost != NOTHING]
        chains = [(chain, _fused_chain_s(state, chain, found)) for chain, found in chains_inside(state, again)]
        if twice or not again:
            remove_avoidable(state, RECOMPUTED, "remat off: this program computes nothing twice", shorter, done)
        for chain, first in chains:  # it now stores values for the gradients, so in the forward pass it is no longer one kernel
            index, op = chain[-1]
            left = sum(part.time_s or 0.0 for _, part in chain) - first
            if left > 0 and op.time_s:
                state.put(index, op.cost * Fraction(min(left / op.time_s, 1.0)), op.operation, 0.0)
                state.fixed[index] = (left, -left, 2 * left)
    elif word == "on":
        _recompute(state)
    else:
        raise words.wrong(f"remat {word}: write on or off")


def _recompute(state: State) -> None:
    """Repeat the forward pass of each layer, except for its last product, whose result no gradient needs."""
    in_loops = without_residuals(state)
    if in_loops is not None:
        _repeat(state, in_loops)
        return
    if not any(op.phase == "backward" for _, op in state):
        state.notes.append("remat on: this program has no gradients")
        return
    forward = [(index, op) for index, op in state if op.phase == "forward" and op.cost != NOTHING]
    layers = _named_layers(forward) or _guessed_layers(state, forward)
    named = "" not in layers
    again = []
    for ops in layers.values():
        last = _last_product(state, ops)
        again += [one for one in ops if last is None or (one[0] != last[0] and (named or _kind(one[1]) != _kind(last[1])))]
    _repeat(state, again)


def _named_layers(forward: Indexed) -> dict[str, Indexed]:
    """The ops of each layer, by the first word of their scope that has a number."""
    layers: dict[str, Indexed] = {}
    for index, op in forward:
        layer = next((word for word in op.scope.split("/") if re.search(r"\d", word)), "")
        if layer:
            layers.setdefault(layer, []).append((index, op))
    return layers


def _guessed_layers(state: State, forward: Indexed) -> dict[str, Indexed]:
    """The ops that are recomputed where scopes name no layers, with a note that says which; several layers together have no name."""
    often = _several_times(state, forward)
    single = [] if any(isinstance(op.operation, Product) for _, op in often) else _one_layer(state, forward)
    if single:
        state.notes.append("remat on: scopes name no layers and no matmul occurs twice, so all but the last matmul is taken for one layer")
        return {"one": single}
    if often:
        state.notes.append("remat on: this recording names no layers, so forward ops that occur several times in a step are recomputed")
        return {"": often}
    state.notes.append("remat on: scopes name no layers, so the whole forward pass except its last matmul is recomputed")
    return {"": forward}


def _repeat(state: State, again: Indexed) -> None:
    """Run some ops of the forward pass once more."""
    fused = set()
    for chain, found in chains_inside(state, again):  # in the forward pass only their last result is needed
        fused |= {index for index, _ in chain}
        state.repeat(chain[-1][0], "again", FUSED_CHAIN, _fused_chain_s(state, chain, found))
    for index, _ in again:
        if index not in fused:
            state.repeat(index, "again", AGAIN)


def _fused_chain_s(state: State, chain: Indexed, found: Chain) -> float:
    """The time of a chain as one kernel, where only its last result is needed."""
    once = ROWS_AT_ONCE * fused_s(state, chain, float(found.least)) / grown(state, chain) * chain[-1][1].count
    return min(once, sum(op.time_s or 0.0 for _, op in chain))


def _several_times(state: State, forward: list[tuple[int, Op]]) -> list[tuple[int, Op]]:
    """The ops that occur several times in a step, as those of layers do: as one row with several executions, or as equal rows."""
    steps, kinds = len(state.recording.steps), Counter(_kind(op) for _, op in forward)
    return [(index, op) for index, op in forward if kinds[_kind(op)] > 1 or (steps and op.count >= 2 * steps)]


def _one_layer(state: State, forward: list[tuple[int, Op]]) -> list[tuple[int, Op]]:
    """The forward ops up to the second to last product, which ends the layer (the last product is the head); empty without a program."""
    module = state.module_of(forward[0][1]) if forward else None
    if module is None:
        return []
    places = {index: module.place(op.name) or (0, 0) for index, op in forward}
    products = sorted(places[index] for index, op in forward if isinstance(op.operation, Product))
    return [(index, op) for index, op in forward if places[index] <= products[-2]] if len(products) > LAYER else []


def _kind(op: Op) -> tuple[Label, Cost]:
    """A key that is equal for the same op of different layers."""
    return op.label, op.cost


def _last_product(state: State, ops: list[tuple[int, Op]]) -> tuple[int, Op] | None:
    """The last product of some ops, by their order in the compiled program; ``None`` without one."""
    module = state.module_of(ops[0][1])
    products = [(index, op) for index, op in ops if isinstance(op.operation, Product)]
    if module is None or not products:
        return None
    return max(products, key=lambda one: module.place(one[1].name) or (0, 0))
