"""Chains of operators that a compiler would fuse: each reads from memory what the one before it wrote.

A chain is consecutive elementwise operators, casts, copies, concatenations, norms, softmax and reductions on the device, and operators
that only rearrange elements (roll, flip), which a compiler computes as other places to read from; small operators, on indices and the
like, do not break it. The producer of an input is taken to be the last operator before it whose result has that format
and that size, or up to four times that size. A fused kernel does not read that result from memory; nor does it write it, as a compiled
backward pass recomputes it. But a sum that begins a chain of the forward pass is still written, as the next layer adds to it. The foreach
operators of an optimizer are one chain: fused, they read weights, gradients and state once and write weights and state once. Chains with a
log-softmax belong to a loss, which can be fused without compiling the model.
"""

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from ....cost import Cost
from ....graph.fusion import MOST, SMALL
from ....resource import HBM
from ....torch_prices import Tensor
from ....workload import Avoidable
from ..executions import Execution
from ..pricing import PricedOp
from .recorded import PricedExecution, all_tensors, moved_bytes, tensors_of

KIND = "unfused-chain"
LINKED = frozenset(("elementwise", "cast", "copy", "normalisation", "softmax", "reduction", "loss"))
SIZE_KEEPING = LINKED - {"reduction", "loss"}  # their results are as large as their inputs
OPTIMIZER, LOSS = "optimizer", "loss"
LOG_SOFTMAX = "log_softmax"  # in the names of the operator and its gradient
JOINS, SUMS = "aten::cat", ("aten::add", "aten::add_")
# Their results are as large as their inputs. A Swin layer rolls its images before and after attention, in both directions: of 20.6 ms per
# step of six on an H200, rolls take 4.3 ms, and 10.5 ms are left after compiling (predicted: 6.8 ms saved by fusing, 4.4 ms by
# fewer layout copies).
REARRANGED = frozenset(f"aten::{name}" for name in ("roll", "flip", "rot90", "tril", "triu", "pixel_shuffle", "pixel_unshuffle"))
LISTS = "aten::_foreach"  # the names of operators on lists of tensors begin like this
MOST_PARTS = 4  # that a result is split into, each read by another operator
# For the operator that identifies an optimizer: how many lists of tensors it reads and writes, and how many the fused kernel does.
FUSED_LISTS = {"aten::_foreach_addcdiv_": (4, 7), "aten::_foreach_add_": (3, 5)}


def result_of(priced: PricedOp) -> Tensor | None:
    """The result of an op, as large as its operands broadcast together; ``None`` for an op whose result is smaller."""
    if priced.priced.category not in SIZE_KEEPING and priced.name not in REARRANGED:
        return None
    tensors = tensors_of(priced)
    largest = max(tensors, key=lambda one: one.elements, default=None)
    if largest is None:
        return None
    named = [one.dtype for one in tensors if one.dtype is not None and one.dtype.name == priced.priced.dtype]
    return Tensor(broadcast(tensors) or largest.shape, named[0] if named else largest.dtype)


def broadcast(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    """The shape of tensors broadcast together; empty if they cannot be."""
    rank = max(len(one.shape) for one in tensors)
    padded = [(1,) * (rank - len(one.shape)) + one.shape for one in tensors]
    sizes = [set(axis) - {1} for axis in zip(*padded, strict=True)]
    return tuple(next(iter(size), 1) for size in sizes) if all(len(size) < 2 for size in sizes) else ()


class Spared(Struct, frozen=True):
    """Bytes that an op would not move in fused kernels, averaged over its executions, and the group of its chains."""

    bytes: float
    group: str


def spared_bytes(ordered: Sequence[PricedExecution], keeps: Callable[[Execution], bool]) -> dict[int, Spared]:
    """The bytes that each priced op would not move in fused kernels, by ``id`` of the op.

    ``ordered`` are the executions on one device in order; ``keeps`` is whether a backward pass may need the result of one.
    """
    spared: dict[int, float] = {}
    groups: dict[int, str] = {}
    counts: dict[int, int] = {}
    for _, priced in ordered:
        counts[id(priced)] = counts.get(id(priced), 0) + 1
    known: dict[tuple[int, ...], list[float]] = {}  # the bytes spared in each op of a chain, by the ids of its ops
    optimizers = _optimizers(ordered)
    in_lists = {id(one) for chain in optimizers.values() for one, _ in chain}
    for chain in _chains([held for held in ordered if id(held[0]) not in in_lists]):
        key = (*(id(priced) for _, priced in chain), keeps(chain[0][0]))
        if key not in known:
            updates = all(one.context.optimizer for one, _ in chain)
            known[key] = _spared_in([priced for _, priced in chain], is_kept=keeps(chain[0][0]), updates=updates)
            if any(LOG_SOFTMAX in priced.name for _, priced in chain):
                groups.update((id(priced), LOSS) for _, priced in chain)
            elif updates:
                groups.update((id(priced), OPTIMIZER) for _, priced in chain)
        for (_, priced), size in zip(chain, known[key], strict=True):
            spared[id(priced)] = spared.get(id(priced), 0) + size
    for chain in optimizers.values():
        share = _fused_share(chain)
        for _, priced in chain if share < 1 else ():
            spared[id(priced)] = spared.get(id(priced), 0) + (1 - share) * moved_bytes(priced)
            groups[id(priced)] = OPTIMIZER
    return {key: Spared(size / counts[key], groups.get(key, "")) for key, size in spared.items() if size}


def _chains(ordered: Sequence[PricedExecution]) -> Iterator[list[PricedExecution]]:
    """Consecutive executions that may be fused, without small ones."""
    chain: list[PricedExecution] = []
    for held in ordered:
        is_linked = held[1].priced.category in LINKED or held[1].name == JOINS or held[1].name in REARRANGED
        if is_linked and moved_bytes(held[1]) < SMALL:
            continue
        if chain and (not is_linked or held[0].mark != chain[0][0].mark or len(chain) == MOST):
            yield chain
            chain = []
        chain += [held] if is_linked else []
    if chain:
        yield chain


def _spared_in(chain: Sequence[PricedOp], *, is_kept: bool, updates: bool) -> list[float]:
    """The bytes that each op of a chain would not move in one kernel: of tensors that one op of the chain writes and another reads.

    A sum that begins a chain of the forward pass (``is_kept``) is still written, as the next layer adds to it. So is what is read again
    after a reduction to one number that later ops need. An optimizer (``updates``) that does the same in place again does it to another
    tensor.
    """
    made: list[tuple[Tensor | None, float]] = [_made(priced) for priced in chain]
    spared = [0.0] * len(chain)
    read_later: set[int] = set()
    read_again: set[int] = set()
    needed = max((place for place, priced in enumerate(chain) if _takes_number(priced)), default=0)
    parting = [place for place, priced in enumerate(chain[:needed]) if _makes_number(priced)]
    for place, priced in enumerate(chain):
        for one in _taken(priced):
            before = next((earlier for earlier in reversed(range(place)) if _is_of(one, made[earlier][0])), None)
            if updates and before is not None and chain[before].name == priced.name.removesuffix("_") + "_":
                continue
            if before is not None and any(before < between < place for between in parting):
                read_again.add(before)
            elif before is not None:
                spared[place] += one.bytes or made[before][1] * one.elements / max(_elements(made[before][0]), 1)
                read_later.add(before)
    for place in read_later - read_again:
        if not (is_kept and place == 0 and chain[0].name in SUMS):
            spared[place] += made[place][1]
    return spared


def _makes_number(priced: PricedOp) -> bool:
    """Whether an op reduces a tensor to one number: it names no dimensions."""
    dimensions = [one for one in priced.args[1:] if isinstance(one, (int, tuple)) and not isinstance(one, bool) and one != ()]
    return priced.priced.category == "reduction" and not dimensions


def _takes_number(priced: PricedOp) -> bool:
    """Whether an op takes a number from the device beside its tensor; Python's numbers are recorded as fp64."""
    return any(not one.shape and one.dtype is not None and one.dtype.name != "fp64" for one in tensors_of(priced)[1:])


def _taken(priced: PricedOp) -> Iterator[Tensor]:
    """The tensors that an op reads; the target of a copy is not one of them."""
    return all_tensors(priced.args[1:] if priced.name == "aten::copy_" else priced.args)


def _made(priced: PricedOp) -> tuple[Tensor | None, float]:
    """The result of an op, and its bytes."""
    if priced.name == JOINS:
        elements = sum(one.elements for one in _taken(priced))
        return (Tensor((elements,)) if elements else None), moved_bytes(priced) / 2
    result = result_of(priced)
    return result, float(result.bytes or 0) if result is not None else 0.0


def _elements(tensor: Tensor | None) -> int:
    return tensor.elements if tensor is not None else 0


def _is_of(taken: Tensor, made: Tensor | None) -> bool:
    """Whether an input may be a result, or one of its equal parts."""
    if made is None or not taken.elements or (taken.dtype != made.dtype and None not in (taken.dtype, made.dtype)):
        return False
    return made.elements % taken.elements == 0 and made.elements <= MOST_PARTS * taken.elements


def _optimizers(ordered: Sequence[PricedExecution]) -> dict[int, list[PricedExecution]]:
    """The operators of each step's optimizer, by its mark, if most of them take lists of tensors; it may fall back to others."""
    lists: dict[int, list[PricedExecution]] = {}
    others: dict[int, list[PricedExecution]] = {}
    for held in ordered:
        if held[1].priced.category == OPTIMIZER and held[1].name.startswith(LISTS):
            lists.setdefault(held[0].mark, []).append(held)
        elif held[0].context.optimizer and held[1].priced.category in LINKED:
            others.setdefault(held[0].mark, []).append(held)
    return {mark: [*mine, *_if_fewer(others.get(mark, []), mine)] for mark, mine in lists.items()}


def _if_fewer(some: Sequence[PricedExecution], main: Sequence[PricedExecution]) -> Sequence[PricedExecution]:
    """These operators, if they move less than the main ones: a fused optimizer, too, updates its step counters as a list."""
    moved, of_main = (sum(moved_bytes(priced) for _, priced in each) for each in (some, main))
    return some if moved < of_main else ()


def _fused_share(chain: Sequence[PricedExecution]) -> float:
    """The share of a chain's bytes that a fused optimizer would move."""
    total = sum(moved_bytes(priced) for _, priced in chain)
    for name, (own, fused) in FUSED_LISTS.items():
        whole = sum(moved_bytes(priced) for _, priced in chain if priced.name == name)
        if whole and name == "aten::_foreach_add_":
            whole = max(moved_bytes(priced) for _, priced in chain if priced.name == name)
        if whole:
            return min(1.0, fused * whole / own / total) if total else 1.0
    return 1.0


def _read_again(priced: PricedOp) -> float:
    """The bytes that an op reads twice, fused or not: a batch norm in training computes its statistics first."""
    if "batch_norm" not in priced.name or "no_" in priced.name or False in priced.args[5:6]:
        return 0.0
    tensors = tensors_of(priced)
    largest = max((one.elements for one in tensors), default=0)
    return float(sum(one.bytes or 0 for one in tensors if one.elements == largest))


def unfused(priced: PricedOp, spared: Spared) -> tuple[Avoidable, ...]:
    """The cost of an op as a part of a fused kernel."""
    cost = priced.priced.cost
    if cost is None:
        return ()
    amounts = {resource: amount for resource, amount in cost.amounts if resource != HBM}
    moved = float(cost.known(HBM))
    less = spared.bytes * (moved / (moved + _read_again(priced)) if moved else 1.0)
    instead = Cost(Cost.of({**amounts, HBM: max(0.0, moved - less)}).amounts)
    return (Avoidable(kind=KIND, instead=instead, cause="" if spared.group else "operators", group=spared.group),)
