"""Counters of the operations of a profile, compared with the model; `joining` finds the operation of each counted launch.

Counters cover only the launches that were counted, usually one execution out of many: `LaunchCounters` has both numbers, `hardware` scales
them to all executions, and `model_against_counters` compares them with the model, op by op.
"""

from collections.abc import Collection, Iterable

from msgspec import Struct

from ...cost import Amount, Cost, sum_or_unknown
from ...resource import HBM, Resource
from ...workload import Counters, KernelUse, Op

FLOATING = ("fp", "bf", "tf")  # number formats whose arithmetic both the model and the counters call FLOP


class LaunchCounters(Counters, frozen=True, kw_only=True):
    """Counters of some of an op's launches: ``cost`` and ``time_s`` of the ``launches`` that were counted, out of ``of``.

    ``total`` and ``total_s`` are over all launches, each kernel's mean times its launches; ``None`` when a kernel of the op was never
    counted.
    """

    launches: int
    of: int
    total: Cost | None
    total_s: float | None


def launches_kernels(kernels: Iterable[KernelUse]) -> frozenset[int]:
    """The indices of the ops that launch kernels which counters can measure; copies and memsets are not among them."""
    return frozenset(use.op_index for use in kernels if not is_copy(use.kernel_name))


def is_copy(name: str) -> bool:
    """Whether a kernel's name is that of a copy or a memset, which no counter file lists."""
    return name.lower().startswith(("memset", "memcpy"))


class Hardware(Struct, frozen=True, kw_only=True):
    """A program as counters measured it: the cost of the counted ops, scaled to all their launches.

    ``time_s`` is the time of those ops in the profile, ``counted_s`` their time under the counters (one kernel at a time, cold caches),
    both over all launches. ``ops`` of the ``of`` countable ops are included; the figures are those of the whole program only when
    ``covers_all``.
    """

    cost: Cost
    time_s: float | None
    counted_s: float | None
    ops: int
    of: int

    @property
    def covers_all(self) -> bool:
        return self.ops == self.of


def hardware(ops: Iterable[Op], countable: Collection[int] | None = None) -> Hardware | None:
    """The program as counters measured it; ``None`` when no op has counters of all its kernels.

    ``countable`` are the indices of the ops that launch kernels, where that is known; else every op that took time.
    """
    every = list(ops)
    known = [(op, total) for op in every if (total := _whole(op)) is not None]
    if not known:
        return None
    return Hardware(
        cost=sum((cost for _, (cost, _) in known), Cost()),
        time_s=sum_or_unknown([op.time_s for op, _ in known]),
        counted_s=sum_or_unknown([time_s for _, (_, time_s) in known]),
        ops=len(known),
        of=sum(1 for place, op in enumerate(every) if op.counters is not None or (op.time_s if countable is None else place in countable)),
    )


def _whole(op: Op) -> tuple[Cost, float | None] | None:
    """An op's counters as totals over all launches."""
    if op.counters is None:
        return None
    if isinstance(op.counters, LaunchCounters):
        return None if op.counters.total is None else (op.counters.total, op.counters.total_s)
    return op.counters.cost, op.counters.time_s


class Comparison(Struct, frozen=True, kw_only=True):
    """One quantity of one op by the model and by counters, both totals over all launches; their ``ratio`` is counted over modelled.

    ``quantity`` is ``matrix`` or ``vector`` (FLOP in floating-point formats) or a memory level (bytes); the model usually has bytes of main
    memory only.
    """

    op_index: int
    name: str
    quantity: str
    modelled: float | None
    counted: float | None
    launches: int | None = None
    of: int | None = None

    @property
    def ratio(self) -> float | None:
        return self.counted / self.modelled if self.counted is not None and self.modelled else None


def model_against_counters(ops: Iterable[Op]) -> tuple[Comparison, ...]:
    """The model and the counters, a row for each op and quantity that either of them has.

    Matrix FLOP and bytes of main memory should agree. Vector FLOP by counters exceed the model's, which counts mathematics and not
    machine code (GELU is 9 FLOP per element by the convention, 21 in fp32 instructions): the ratio is shown, not forced.
    """
    return tuple(row for index, op in enumerate(ops) if op.counters is not None for row in _rows(index, op))


def _rows(index: int, op: Op) -> Iterable[Comparison]:
    whole = _whole(op)
    counted = whole[0] if whole is not None else None
    launches, of = (op.counters.launches, op.counters.of) if isinstance(op.counters, LaunchCounters) else (None, None)
    caches = {resource.unit for resource in counted or Cost() if resource.is_memory} - {HBM.name}
    for quantity in ("matrix", "vector", HBM.name, *sorted(caches, reverse=True)):
        # The model has bytes of a cache level only where a formula or source gives them; otherwise they are unknown, not 0.
        is_modelled = op.work_provenance != "counter"
        known = is_modelled and (quantity not in caches or any(resource.unit == quantity for resource in op.cost))
        modelled = _amount(op.cost, quantity) if known else None
        measured = None if counted is None else _amount(counted, quantity)
        if modelled or measured or (is_modelled and (modelled is None) != (measured is None)):
            yield Comparison(op_index=index, name=op.name, quantity=quantity, modelled=modelled, counted=measured, launches=launches, of=of)


def _amount(cost: Cost, quantity: str) -> float | None:
    """FLOP in floating-point formats on a compute unit, or bytes over a memory level."""
    if quantity not in ("matrix", "vector"):
        moved = cost.bytes(quantity)
        return None if moved is None else float(moved)
    mine = [resource for resource in cost if resource.unit == quantity and _is_flop(resource)]
    if any(resource in cost.unknown for resource in mine):
        return None
    total: Amount = sum((cost.known(resource) for resource in mine), 0)
    return float(total)


def _is_flop(resource: Resource) -> bool:
    return not resource.kind or resource.kind.startswith(FLOATING)
