"""Chains of operators that a compiler would fuse: each reads from memory what the one before it wrote there.

Two executions are linked when one follows the other on the device, both are elementwise, casts, copies, norms, softmax or reductions, and
the second takes a tensor of the size and format that the first made. Small operators in between, of indices and the like, do not part
them. In one kernel that tensor is not read again; nor is it written, unless the forward pass of a training step may have to keep it. An
optimizer's foreach operators are one chain: fused, they read weights, gradients and state once and write weights and state once.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

from ...cost import Cost
from ...resource import HBM
from ...torch_prices import Tensor
from ...units import parse
from ...workload import Avoidable
from .executions import Execution
from .pricing import PricedOp

KIND = "unfused-chain"
WHY = "runs elementwise operators one by one, each through memory"
UPDATES = "runs the optimizer as many operators, each over all parameters (fused=True runs one)"
LINKED = frozenset(("elementwise", "cast", "copy", "normalisation", "softmax", "reduction", "loss"))
GIVING = LINKED - {"reduction", "loss"}  # their results are as large as what they read
OPTIMIZER = "optimizer"
SMALL = parse("1 MB", "B")  # moved by an operator that parts no chain
# By the operator that tells an optimizer: how many lists it reads and writes itself, and how many the fused kernel does.
FUSED_LISTS = {"aten::_foreach_addcdiv_": (4, 7), "aten::_foreach_add_": (3, 5)}

Held = tuple[Execution, PricedOp]


def result_of(priced: PricedOp) -> Tensor | None:
    """The tensor that an op made, by its largest operand; ``None`` for one that makes a smaller one."""
    if priced.priced.category not in GIVING:
        return None
    tensors = [one for one in priced.args if isinstance(one, Tensor)]
    largest = max(tensors, key=lambda one: one.elements, default=None)
    if largest is None:
        return None
    named = [one.dtype for one in tensors if one.dtype is not None and one.dtype.name == priced.priced.dtype]
    return Tensor(largest.shape, named[0] if named else largest.dtype)


def spared_bytes(ordered: Sequence[Held], keeps: Callable[[Execution], bool]) -> dict[int, float]:
    """Bytes that each priced op would not move in fused kernels, on the average of its executions, by its identity.

    ``ordered`` are the executions on one device as they ran; ``keeps`` is whether a backward pass may need what one makes.
    """
    spared: dict[int, float] = {}
    counts: dict[int, int] = {}
    links: dict[tuple[int, int], int] = {}
    for _, priced in ordered:
        counts[id(priced)] = counts.get(id(priced), 0) + 1
    large = [held for held in ordered if _moved(held[1]) >= SMALL or held[1].priced.category not in LINKED]
    for (first, made), (second, used) in pairwise(large):
        pair = (id(made), id(used))
        if pair not in links:
            links[pair] = _handed_on(made, used)
        if (size := links[pair]) and first.mark == second.mark:
            spared[pair[1]] = spared.get(pair[1], 0) + size
            if not keeps(first):
                spared[pair[0]] = spared.get(pair[0], 0) + size
    for chain in _optimizers(ordered):
        share = _fused_share(chain)
        for _, priced in chain if share < 1 else ():
            spared[id(priced)] = spared.get(id(priced), 0) + (1 - share) * _moved(priced)
    return {key: size / counts[key] for key, size in spared.items()}


def _handed_on(made: PricedOp, used: PricedOp) -> int:
    """Bytes of the tensor that one op makes and the next takes; none where they would not fuse."""
    result = result_of(made) if used.priced.category in LINKED else None
    if result is None or result.bytes is None:
        return 0
    taken = any(isinstance(one, Tensor) and one.elements == result.elements and one.dtype == result.dtype for one in used.args)
    return result.bytes if taken else 0


def _optimizers(ordered: Sequence[Held]) -> list[list[Held]]:
    """The optimizer's operators of each step."""
    chains: dict[int, list[Held]] = {}
    for one, priced in ordered:
        if priced.priced.category == OPTIMIZER and priced.name.startswith("aten::_foreach"):
            chains.setdefault(one.mark, []).append((one, priced))
    return list(chains.values())


def _fused_share(chain: Sequence[Held]) -> float:
    """What a fused optimizer would move of a chain's bytes."""
    total = sum(_moved(priced) for _, priced in chain)
    for name, (own, fused) in FUSED_LISTS.items():
        whole = sum(_moved(priced) for _, priced in chain if priced.name == name)
        if whole and name == "aten::_foreach_add_":
            whole = max(_moved(priced) for _, priced in chain if priced.name == name)
        if whole:
            return min(1.0, fused * whole / own / total) if total else 1.0
    return 1.0


def _moved(priced: PricedOp) -> float:
    return float(priced.priced.cost.known(HBM)) if priced.priced.cost is not None else 0.0


def unfused(priced: PricedOp, spared: float) -> tuple[Avoidable, ...]:
    """What an op would cost as a part of a fused kernel."""
    cost = priced.priced.cost
    if cost is None or not spared:
        return ()
    amounts = {resource: amount for resource, amount in cost.amounts if resource != HBM}
    instead = Cost(Cost.of({**amounts, HBM: max(0.0, cost.known(HBM) - spared)}).amounts)
    is_update = priced.priced.category == OPTIMIZER
    return (Avoidable(kind=KIND, instead=instead, why=UPDATES if is_update else WHY, group=OPTIMIZER if is_update else ""),)
