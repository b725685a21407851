"""Chains of operators that a compiler would fuse: each reads from memory what the one before it wrote there.

A chain is elementwise operators, casts, copies, joins, norms, softmax and reductions that follow each other on the device; small operators,
on indices and the like, do not break it. The producer of an input is the last operator before it that made a tensor of that size and
format, or one of which the input is a half or a quarter. In one kernel that tensor is not read again; nor is it written: a compiled
backward pass computes it again rather than read it. But a sum that begins a chain of the forward pass is kept, as the next layer adds to
it. An optimizer's foreach operators are one chain: fused, they read weights, gradients and state once and write weights and state once.
The chains around a log-softmax are those of a loss, which can be fused without compiling the model.
"""

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from ....cost import Cost
from ....resource import HBM
from ....torch_prices import Tensor
from ....units import parse
from ....workload import Avoidable
from ..executions import Execution
from ..pricing import PricedOp
from .recorded import PricedExecution, tensors_of

KIND = "unfused-chain"
LINKED = frozenset(("elementwise", "cast", "copy", "normalisation", "softmax", "reduction", "loss"))
GIVING = LINKED - {"reduction", "loss"}  # their results are as large as what they read
OPTIMIZER, LOSS = "optimizer", "loss"
WHY = {
    "": "runs elementwise operators one by one, each through memory",
    OPTIMIZER: "runs the optimizer as many operators, each over all parameters (fused=True runs one)",
    LOSS: "computes its loss by operators that each pass the logits through memory",
}
LOG_SOFTMAX = "log_softmax"  # in the names of the operator, of its gradient, and of what autograd calls them
JOINS, SUMS = "aten::cat", ("aten::add", "aten::add_")
LONGEST = 64  # operators of a chain: a compiler's kernels are no longer
MOST_PARTS = 4  # that a tensor is split into, each of which is taken by itself
SMALL = parse("1 MB", "B")  # moved by an operator that parts no chain
# By the operator that tells an optimizer: how many lists it reads and writes itself, and how many the fused kernel does.
FUSED_LISTS = {"aten::_foreach_addcdiv_": (4, 7), "aten::_foreach_add_": (3, 5)}


def result_of(priced: PricedOp) -> Tensor | None:
    """The tensor that an op made: as large as its operands broadcast together; ``None`` for one that makes a smaller one."""
    if priced.priced.category not in GIVING:
        return None
    tensors = tensors_of(priced)
    largest = max(tensors, key=lambda one: one.elements, default=None)
    if largest is None:
        return None
    named = [one.dtype for one in tensors if one.dtype is not None and one.dtype.name == priced.priced.dtype]
    return Tensor(_broadcast(tensors) or largest.shape, named[0] if named else largest.dtype)


def _broadcast(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    """The shape of tensors that are broadcast to each other; empty where they are not."""
    rank = max(len(one.shape) for one in tensors)
    padded = [(1,) * (rank - len(one.shape)) + one.shape for one in tensors]
    sizes = [set(axis) - {1} for axis in zip(*padded, strict=True)]
    return tuple(next(iter(size), 1) for size in sizes) if all(len(size) < 2 for size in sizes) else ()


class Spared(Struct, frozen=True):
    """Bytes that an op would not move in fused kernels, on the average of its executions, and the group of its chains."""

    bytes: float
    group: str


def spared_bytes(ordered: Sequence[PricedExecution], keeps: Callable[[Execution], bool]) -> dict[int, Spared]:
    """What each priced op would not move in fused kernels, by its identity.

    ``ordered`` are the executions on one device as they ran; ``keeps`` is whether a backward pass may need what one makes.
    """
    spared: dict[int, float] = {}
    groups: dict[int, str] = {}
    counts: dict[int, int] = {}
    for _, priced in ordered:
        counts[id(priced)] = counts.get(id(priced), 0) + 1
    known: dict[tuple[int, ...], list[float]] = {}  # what is spared of each chain's ops, by their identities
    for chain in _chains(ordered):
        key = (*(id(priced) for _, priced in chain), keeps(chain[0][0]))
        if key not in known:
            known[key] = _spared_in([priced for _, priced in chain], is_kept=keeps(chain[0][0]))
            if any(LOG_SOFTMAX in priced.name for _, priced in chain):
                groups.update((id(priced), LOSS) for _, priced in chain)
        for (_, priced), size in zip(chain, known[key], strict=True):
            spared[id(priced)] = spared.get(id(priced), 0) + size
    for chain in _optimizers(ordered):
        share = _fused_share(chain)
        for _, priced in chain if share < 1 else ():
            spared[id(priced)] = spared.get(id(priced), 0) + (1 - share) * _moved(priced)
            groups[id(priced)] = OPTIMIZER
    return {key: Spared(size / counts[key], groups.get(key, "")) for key, size in spared.items() if size}


def _chains(ordered: Sequence[PricedExecution]) -> Iterator[list[PricedExecution]]:
    """Executions in a row that may fuse, small ones left out."""
    chain: list[PricedExecution] = []
    for held in ordered:
        is_linked = held[1].priced.category in LINKED or held[1].name == JOINS
        if is_linked and _moved(held[1]) < SMALL:
            continue
        if chain and (not is_linked or held[0].mark != chain[0][0].mark or len(chain) == LONGEST):
            yield chain
            chain = []
        chain += [held] if is_linked else []
    if chain:
        yield chain


def _spared_in(chain: Sequence[PricedOp], *, is_kept: bool) -> list[float]:
    """The bytes of each op of a chain that one kernel would not move: tensors that the chain makes and takes itself.

    The first sum of a forward pass is kept, as what the next layer adds to.
    """
    made: list[tuple[Tensor | None, float]] = [_made(priced) for priced in chain]
    spared = [0.0] * len(chain)
    handed_on: set[int] = set()
    for place, priced in enumerate(chain):
        for one in _taken(priced):
            before = next((earlier for earlier in reversed(range(place)) if _is_of(one, made[earlier][0])), None)
            if before is not None:
                spared[place] += one.bytes or made[before][1] * one.elements / max(_elements(made[before][0]), 1)
                handed_on.add(before)
    for place in handed_on:
        if not (is_kept and place == 0 and chain[0].name in SUMS):
            spared[place] += made[place][1]
    return spared


def _taken(priced: PricedOp) -> Iterator[Tensor]:
    """What an op reads; for a copy, without its target."""
    for one in priced.args[1:] if priced.name == "aten::copy_" else priced.args:
        yield from one if isinstance(one, tuple) and all(isinstance(each, Tensor) for each in one) else ()
        if isinstance(one, Tensor):
            yield one


def _made(priced: PricedOp) -> tuple[Tensor | None, float]:
    """The tensor that an op made, and its bytes."""
    if priced.name == JOINS:
        elements = sum(one.elements for one in _taken(priced))
        return (Tensor((elements,)) if elements else None), _moved(priced) / 2
    result = result_of(priced)
    return result, float(result.bytes or 0) if result is not None else 0.0


def _elements(tensor: Tensor | None) -> int:
    return tensor.elements if tensor is not None else 0


def _is_of(taken: Tensor, made: Tensor | None) -> bool:
    """Whether a tensor is one that was made, or an even part of it."""
    if made is None or not taken.elements or (taken.dtype != made.dtype and None not in (taken.dtype, made.dtype)):
        return False
    return made.elements % taken.elements == 0 and made.elements <= MOST_PARTS * taken.elements


def _optimizers(ordered: Sequence[PricedExecution]) -> list[list[PricedExecution]]:
    """The optimizer's operators of each step."""
    chains: dict[int, list[PricedExecution]] = {}
    for one, priced in ordered:
        if priced.priced.category == OPTIMIZER and priced.name.startswith("aten::_foreach"):
            chains.setdefault(one.mark, []).append((one, priced))
    return list(chains.values())


def _fused_share(chain: Sequence[PricedExecution]) -> float:
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


def _read_again(priced: PricedOp) -> float:
    """The bytes that an op reads a second time, fused or not: a batch norm that trains takes its statistics first."""
    if "batch_norm" not in priced.name or "no_" in priced.name or False in priced.args[5:6]:
        return 0.0
    tensors = tensors_of(priced)
    largest = max((one.elements for one in tensors), default=0)
    return float(sum(one.bytes or 0 for one in tensors if one.elements == largest))


def unfused(priced: PricedOp, spared: Spared) -> tuple[Avoidable, ...]:
    """What an op would cost as a part of a fused kernel."""
    cost = priced.priced.cost
    if cost is None:
        return ()
    amounts = {resource: amount for resource, amount in cost.amounts if resource != HBM}
    moved = float(cost.known(HBM))
    less = spared.bytes * (moved / (moved + _read_again(priced)) if moved else 1.0)
    instead = Cost(Cost.of({**amounts, HBM: max(0.0, moved - less)}).amounts)
    return (Avoidable(kind=KIND, instead=instead, why=WHY[spared.group], group=spared.group),)
