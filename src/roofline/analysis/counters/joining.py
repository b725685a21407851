"""Counter files: hardware counters per launch, matched to the operations of a profile.

A counter file (Nsight Compute) lists kernels, a profile lists operations. The source of the profile says which kernels each operation
launched (`KernelUse`); `join` finds the operation of each counted launch, by the kernel's name, the order of launches and the grid.
`counted` is what callers use: it matches launches, scales the counts to totals (`scaled`), and rejects a file that matches nothing.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec.structs import replace

from ...cost import Cost, sum_or_unknown
from ...errors import SourceError
from ...sources.ncu.recording import read_counters
from ...workload import COUNTED, UNPRICED, KernelUse, Launch, Op, Recording, Workload
from . import LaunchCounters, is_copy, launches_kernels
from .kernel_names import align, named

LISTED = 5  # names in a note; more are counted
BY_COUNTERS = f"{COUNTED}by hardware counters, as the model does not know its cost"


def with_counters(recording: Recording, files: Sequence[str | Path]) -> Recording:
    """The recording with the counters of these files (Nsight Compute CSVs) added to each op."""
    found = [read_counters(Path(file)) for file in files]
    joined = counted(recording, [launch for launches, _ in found for launch in launches], ", ".join(map(str, files)))
    notes = dict.fromkeys(f"counters: {note}" for _, some in found for note in some)
    return replace(joined, notes=(*joined.notes, *notes))


def counted(recording: Recording, launches: Sequence[Launch], source: str) -> Recording:
    """The recording with counters added to each op, as totals over all its launches; ``source`` names the file they are from.

    An error when the recording has no kernels to join to, or launched none of those that were counted.
    """
    profile = ", ".join(recording.files) or "the input"
    if not launches_kernels(recording.kernels):
        raise SourceError(
            f"{source}: counters need a GPU profile, but {profile} has no kernels; analyze the counters alone: roofline analyze {source}"
        )
    joined = join(recording, launches)
    if all(op.counters is None for op in joined.workload):
        names = _names(Counter(named(launch.name) for launch in launches))
        raise SourceError(f"{source}: none of its kernels ran in {profile} ({names}); use counters of the profiled program")
    whole = scaled(joined)
    counted_s = _seconds(op for op in whole.workload if op.counters is not None)
    priced = priced_by_counters(whole)
    more_s = _seconds(op for before, op in zip(whole.workload, priced.workload, strict=True) if op.priced and not before.priced)
    cover = whole.coverage
    return replace(
        priced, coverage=replace(cover, counted_s=counted_s, priced_s=None if cover.priced_s is None else cover.priced_s + more_s)
    )


def _seconds(ops: Iterable[Op]) -> float:
    return sum(op.self_time_s or op.time_s or 0.0 for op in ops)


def join(recording: Recording, launches: Sequence[Launch], uses: Iterable[KernelUse] | None = None) -> Recording:
    """The recording with counters added to each op whose kernels were counted; ``uses`` are by default the recording's own kernels.

    A launch is matched to an op that launched a kernel with the same full name; else with the same name without return type, namespaces and
    parameters; else without template arguments; else without the number at its end. Among several, the grid decides, then the order:
    launches of the file are aligned with those of the profile so that as many as possible keep their order. Nothing is scaled; notes say
    how many of an op's launches were counted, and name the launches and ops without a match.
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
    """One use for each kernel and grid of an op, in the order of first launches: one pass through the program, however often it ran."""
    merged: dict[tuple[int, str, tuple[int, ...] | None, int], KernelUse] = {}
    for use in uses:
        key = (use.op_index, use.kernel_name, use.grid, use.nth)
        had = merged.get(key)
        merged[key] = replace(had, order=min(had.order, use.order), count=had.count + use.count) if had else use
    return sorted(merged.values(), key=lambda use: use.order)


def _counted(op: Op, pairs: list[tuple[KernelUse, list[Launch]]]) -> Op:
    """The op with the counters of its launches. Kernels that no counter file lists (memsets, copies) do not count as missing."""
    kernels = [(use, launches) for use, launches in pairs if launches or not is_copy(use.kernel_name)]
    launches = [launch for _, some in kernels for launch in some]
    if not launches:
        return op
    of = sum(use.count for use, _ in kernels)
    totals = [_total(some, use.count) for use, some in kernels]
    costs = [cost for cost, _ in totals if cost is not None]
    times = [time_s for _, time_s in totals if time_s is not None]
    counters = LaunchCounters(
        cost=sum((launch.cost for launch in launches), Cost()),
        time_s=sum_or_unknown([launch.time_s for launch in launches]),
        launches=len(launches),
        of=of,
        total=sum(costs, Cost()) if len(costs) == len(totals) else None,
        total_s=sum(times) if len(times) == len(totals) else None,
    )
    return replace(
        op, counters=counters, counted=tuple(launches), notes=(*op.notes, f"counters: counted {len(launches):,} of {of:,} launches")
    )


def _total(launches: list[Launch], count: int) -> tuple[Cost | None, float | None]:
    """Cost and seconds of ``count`` launches like those that were counted."""
    if not launches:
        return None, None
    time_s = sum_or_unknown([launch.time_s for launch in launches])
    if count == len(launches):
        return sum((launch.cost for launch in launches), Cost()), time_s
    times = count / len(launches)
    whole = int(times) if times.is_integer() else times  # keeps exact counts exact
    return sum((launch.cost for launch in launches), Cost()) * whole, None if time_s is None else time_s * times


def _notes(launches: Sequence[Launch], owners: list[int | None], ops: tuple[Op, ...], used: set[int]) -> list[str]:
    joined = sum(owner is not None for owner in owners)
    having = [op for op in ops if op.counters is not None]
    notes = [f"counters: {joined:,} of {len(launches):,} launches matched to {len(having):,} of {len(used):,} ops with kernels"]
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
    shown = [name if times == 1 else f"{name} ({times:,} times)" for name, times in counted.most_common(LISTED)]
    more = len(counted) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more else "")


def scaled(recording: Recording) -> Recording:
    """The recording with the counters of each op as totals over all its launches, like the modelled amounts, with a note on the scaling.

    An op of which some kernel was never counted loses its counters: a part is not a total.
    """
    return replace(recording, workload=Workload(tuple(_scaled(op) for op in recording.workload)))


def priced_by_counters(recording: Recording) -> Recording:
    """The recording with the counted cost for each op whose cost the model does not know, such as kernels of the user's own."""
    return replace(recording, workload=Workload(tuple(_priced(op) for op in recording.workload)))


def _priced(op: Op) -> Op:
    if op.priced or op.counters is None or not op.counters.cost.is_known:
        return op
    notes = tuple(note for note in op.notes if not note.startswith(UNPRICED))
    return replace(op, cost=op.counters.cost, work_provenance="counter", bytes_provenance="counter", notes=(*notes, BY_COUNTERS))


def _scaled(op: Op) -> Op:
    counters = op.counters
    if not isinstance(counters, LaunchCounters):
        return op
    if counters.total is None:
        return replace(op, counters=None, notes=(*op.notes, "counters: left out, because some kernels of this op were not counted"))
    whole = replace(counters, cost=counters.total, time_s=counters.total_s)
    if counters.launches == counters.of:
        return replace(op, counters=whole)
    return replace(op, counters=whole, notes=(*op.notes, f"counters: scaled from {counters.launches:,} to {counters.of:,} launches"))
