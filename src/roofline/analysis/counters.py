"""Counters: what hardware measured, launch by launch, matched to the operations of a profile and compared with the model.

A counter file (Nsight Compute) knows kernels, a profile knows operations. The source of the profile says which kernels each operation
launched (`KernelUse`); `join` finds the operation of each counted launch, by the kernel's name, the order of launches and the grid.
`counted` is what the front doors call: it joins, turns what was counted into totals, and refuses a file that matches nothing.

What counters say is of the launches that were counted, usually one execution out of many: `LaunchCounters` keeps both numbers, `scaled`
turns them into totals over all executions, `hardware` sums them up, and `model_against_counters` shows the ratio, op by op.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ..cost import Amount, Cost
from ..errors import SourceError
from ..resource import HBM, Resource
from ..workload import Counters, KernelUse, Launch, Op, Recording, Workload
from .kernel_names import align, named

LISTED = 5  # names that a note spells out; the rest is a number
FLOATING = ("fp", "bf", "tf")  # number formats whose arithmetic both the model and the counters call FLOP


class LaunchCounters(Counters, frozen=True, kw_only=True):
    """Counters of some of an op's launches: ``cost`` and ``time_s`` of the ``launches`` that were counted, out of ``of``.

    ``total`` and ``total_s`` are over all launches, each kernel's mean times its launches; ``None`` when a kernel of the op was never
    counted, since then nobody knows.
    """

    launches: int
    of: int
    total: Cost | None
    total_s: float | None


def with_counters(recording: Recording, files: Sequence[str | Path]) -> Recording:
    """The recording with the counters of these files (Nsight Compute CSVs) beside the model of each op."""
    from ..sources.ncu import read_counters

    found = [read_counters(Path(file)) for file in files]
    joined = counted(recording, [launch for launches, _ in found for launch in launches], ", ".join(map(str, files)))
    notes = dict.fromkeys(f"counters: {note}" for _, some in found for note in some)
    return replace(joined, notes=(*joined.notes, *notes))


def counted(recording: Recording, launches: Sequence[Launch], source: str) -> Recording:
    """The recording with counters beside the model of each op, as totals over all its launches; ``source`` names where they are from.

    An error when the recording has no kernels to join to, or launched none of those that were counted.
    """
    profile = ", ".join(recording.files) or "the input"
    if not launches_kernels(recording):
        raise SourceError(
            f"{source}: counters need a GPU profile, but {profile} has no kernels; analyze the counters alone: roofline analyze {source}"
        )
    joined = join(recording, launches)
    if all(op.counters is None for op in joined.workload):
        names = _names(Counter(named(launch.name) for launch in launches))
        raise SourceError(f"{source}: none of its kernels ran in {profile} ({names}); use counters of the profiled program")
    whole = scaled(joined)
    seconds = sum(op.self_time_s or op.time_s or 0.0 for op in whole.workload if op.counters is not None)
    return replace(whole, coverage=replace(whole.coverage, counted_s=seconds))


def launches_kernels(recording: Recording) -> frozenset[int]:
    """The ops, by their places, that launch kernels which counters can see: copies and memsets are not among them."""
    return frozenset(use.op_index for use in recording.kernels if not _is_copy(use.kernel_name))


def join(recording: Recording, launches: Sequence[Launch], uses: Iterable[KernelUse] | None = None) -> Recording:
    """The recording with counters beside the model of each op whose kernels were counted; ``uses`` are its own kernels unless given.

    A launch belongs to an op that launched a kernel of its full name; else of its name without return type, namespaces and parameters;
    else without template arguments; else without the number at its end. Among several, the grid decides, then the order: launches
    of the file are laid along those of the profile so that as many as possible follow each other there as they do here. Nothing is
    scaled; notes say how many of an op's launches were counted, and name the launches and ops that found no partner.
    """
    kernels = _merge(recording.kernels if uses is None else uses)
    owners = align(
        [(launch.name, launch.grid) for launch in launches],
        [(use.kernel_name, use.grid) for use in kernels],
    )
    counted: dict[int, list[Launch]] = {}
    for launch, owner in zip(launches, owners, strict=True):
        if owner is not None:
            counted.setdefault(owner, []).append(launch)
    of_op: dict[int, list[tuple[KernelUse, list[Launch]]]] = {}
    pooled: dict[tuple[int, str, tuple[int, ...] | None], tuple[KernelUse, list[Launch]]] = {}
    for place, use in enumerate(kernels):
        key = (use.op_index, use.kernel_name, use.grid)
        had, seen = pooled.get(key, (replace(use, count=0), []))
        pooled[key] = (replace(had, count=had.count + use.count), [*seen, *counted.get(place, [])])
    for use, seen in pooled.values():
        of_op.setdefault(use.op_index, []).append((use, seen))
    ops = tuple(_counted(op, of_op.get(index, [])) for index, op in enumerate(recording.workload))
    notes = _notes(launches, owners, ops, {index for index, pairs in of_op.items() if pairs})
    return replace(recording, workload=Workload(ops), notes=(*recording.notes, *notes))


def _merge(uses: Iterable[KernelUse]) -> list[KernelUse]:
    """One use for each kernel and grid of an op, in the order of first launches: the program once, however often it ran."""
    merged: dict[tuple[int, str, tuple[int, ...] | None, int], KernelUse] = {}
    for use in uses:
        key = (use.op_index, use.kernel_name, use.grid, use.nth)
        had = merged.get(key)
        merged[key] = replace(had, order=min(had.order, use.order), count=had.count + use.count) if had else use
    return sorted(merged.values(), key=lambda use: use.order)


def _counted(op: Op, pairs: list[tuple[KernelUse, list[Launch]]]) -> Op:
    """The op with the counters of its launches. Kernels that no counter file lists (memsets, copies) do not count as missing."""
    kernels = [(use, launches) for use, launches in pairs if launches or not _is_copy(use.kernel_name)]
    launches = [launch for _, some in kernels for launch in some]
    if not launches:
        return op
    of = sum(use.count for use, _ in kernels)
    totals = [_total(some, use.count) for use, some in kernels]
    costs = [cost for cost, _ in totals if cost is not None]
    times = [time_s for _, time_s in totals if time_s is not None]
    counters = LaunchCounters(
        cost=sum((launch.cost for launch in launches), Cost()),
        time_s=_sum([launch.time_s for launch in launches]),
        launches=len(launches),
        of=of,
        total=sum(costs, Cost()) if len(costs) == len(totals) else None,
        total_s=sum(times) if len(times) == len(totals) else None,
    )
    return replace(op, counters=counters, notes=(*op.notes, f"counters: counted {len(launches)} of {of} launches"))


def _total(launches: list[Launch], count: int) -> tuple[Cost | None, float | None]:
    """Cost and seconds of ``count`` launches like those that were counted."""
    if not launches:
        return None, None
    time_s = _sum([launch.time_s for launch in launches])
    if count == len(launches):
        return sum((launch.cost for launch in launches), Cost()), time_s
    times = count / len(launches)
    whole = int(times) if times.is_integer() else times  # keeps exact counts exact
    return sum((launch.cost for launch in launches), Cost()) * whole, None if time_s is None else time_s * times


def _sum(times: list[float | None]) -> float | None:
    known = [time for time in times if time is not None]
    return sum(known) if len(known) == len(times) else None


def _is_copy(name: str) -> bool:
    return name.lower().startswith(("memset", "memcpy"))


def _notes(launches: Sequence[Launch], owners: list[int | None], ops: tuple[Op, ...], used: set[int]) -> list[str]:
    joined = sum(owner is not None for owner in owners)
    having = [op for op in ops if op.counters is not None]
    notes = [f"counters: {joined} of {len(launches)} launches matched to {len(having)} of {len(used)} ops with kernels"]
    lost = Counter(launch.name for launch, owner in zip(launches, owners, strict=True) if owner is None)
    if lost:
        notes.append(f"counters: not matched to any op: {_names(lost)}")
    bare = Counter(op.name for index, op in enumerate(ops) if index in used and op.counters is None)
    if bare:
        notes.append(f"counters: missing for {_names(bare)}")
    partial = Counter(op.name for op in having if isinstance(op.counters, LaunchCounters) and op.counters.total is None)
    if partial:
        notes.append(f"counters: incomplete (some kernels not counted) for {_names(partial)}")
    return notes


def _names(counted: Counter[str]) -> str:
    """``a, b (3 times) and 4 more``."""
    shown = [name if times == 1 else f"{name} ({times} times)" for name, times in counted.most_common(LISTED)]
    more = len(counted) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def scaled(recording: Recording) -> Recording:
    """The recording with the counters of each op as totals over all its launches, like the modelled amounts, each saying so.

    An op of which some kernel was never counted loses its counters: a part is not a total.
    """
    return replace(recording, workload=Workload(tuple(_scaled(op) for op in recording.workload)))


def _scaled(op: Op) -> Op:
    counters = op.counters
    if not isinstance(counters, LaunchCounters):
        return op
    if counters.total is None:
        return replace(op, counters=None, notes=(*op.notes, "counters: left out, because some kernels of this op were not counted"))
    whole = replace(counters, cost=counters.total, time_s=counters.total_s)
    if counters.launches == counters.of:
        return replace(op, counters=whole)
    return replace(op, counters=whole, notes=(*op.notes, f"counters: scaled from {counters.launches} to {counters.of} launches"))


class Hardware(Struct, frozen=True, kw_only=True):
    """A program by its counters: the cost of the ops that were counted, scaled to all their launches.

    ``time_s`` is what those ops took in the profile, ``counted_s`` what the counters saw (one kernel at a time, caches cold), both
    over all launches; ``ops`` of the ``of`` ops that could be counted are in it. It is the program's only when ``covers_all``.
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
    """The program as the counters saw it; ``None`` when no op has counters of all its kernels.

    ``countable`` are the places of the ops that launch kernels, where that is known; else every op that took time.
    """
    every = list(ops)
    known = [(op, total) for op in every if (total := _whole(op)) is not None]
    if not known:
        return None
    return Hardware(
        cost=sum((cost for _, (cost, _) in known), Cost()),
        time_s=_sum([op.time_s for op, _ in known]),
        counted_s=_sum([time_s for _, (_, time_s) in known]),
        ops=len(known),
        of=sum(1 for place, op in enumerate(every) if op.counters is not None or (op.time_s if countable is None else place in countable)),
    )


def _whole(op: Op) -> tuple[Cost, float | None] | None:
    """Counters as totals over all launches, whatever form they have."""
    if op.counters is None:
        return None
    if isinstance(op.counters, LaunchCounters):
        return None if op.counters.total is None else (op.counters.total, op.counters.total_s)
    return op.counters.cost, op.counters.time_s


class Comparison(Struct, frozen=True, kw_only=True):
    """One quantity of one op by the model and by counters, both totals over all launches; their ``ratio`` is counted over modelled.

    ``quantity`` is ``matrix`` or ``vector`` (FLOP in floating-point formats) or a memory level (bytes), of which a model mostly knows
    main memory alone.
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
        # The model knows a cache level only where some formula or source gives it; then absence there is no 0 bytes.
        known = quantity not in caches or any(resource.unit == quantity for resource in op.cost)
        modelled = _amount(op.cost, quantity) if known else None
        measured = None if counted is None else _amount(counted, quantity)
        if modelled or measured or (modelled is None) != (measured is None):
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
