"""The times of a program that has not run: its schedule played on the machine, with the expected time of each op.

Two more plays, with the low and the high bound of every op, give the interval: it is as wide as if all errors had one sign.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from ...machine import Machine
from ...report import Expected
from ...resource import DCN, HBM, PCIE
from ...schedule import EngineUse, PredictedTime, Schedule
from ...timeline import CORE, DMA, HOST, Load, Played, play
from ...topology import Topology
from ...units import percent
from ...workload import Coverage, Op, Recording, Share, Step, Workload
from .lanes import lane_of, memory_over_step

STEP = 0  # the key of the only step
UP, DOWN = "up", "down"
LINKS, AXES = "links", "xyz"  # the links of each axis of a slice, each way, are an engine: those of a torus of two axes are "links x up", …
SOURCES = ("the compiler's cycles", "the limits of the units", "collectives by their links", "unknown: their minimum is taken")


def with_played_times(recording: Recording, machine: Machine, predicted: Mapping[int, Expected], floor_s: Sequence[float]) -> Recording:
    """The recording with the times of its schedules; unchanged where it has none, or times of its own."""
    ops = recording.workload.ops
    if not recording.schedules or not predicted or machine.kind != "tpu" or any(op.time_s is not None for op in ops):
        return recording
    runs = [_played(recording.schedules, loads_of(ops, predicted, floor_s, machine, bound)) for bound in ("time_s", "low_s", "high_s")]
    middle, low, high = runs
    timed = _with_times(recording, middle)
    total = sum(played.time_s for played in middle)
    return replace(
        timed,
        predicted=PredictedTime(
            time_s=total,
            low_s=min(sum(played.time_s for played in low), total),
            high_s=max(sum(played.time_s for played in high), total),
            evidence=_evidence(middle, predicted),
            engines=tuple(_engines(middle, total)),
            devices=max(schedule.devices for schedule in recording.schedules),
        ),
        notes=(*recording.notes, *_notes(recording.schedules)),
    )


def replayed(before: Recording, after: Recording, loads: Sequence[Load]) -> Recording:
    """A played recording after changes of its ops' times: played again with the ``loads`` that its ops had, as many times as long.

    Ops that were added come after the rest, on the core.
    """
    pairs = zip(before.workload.ops, after.workload.ops, loads, strict=False)
    scaled = [_times(load, (new.time_s or 0.0) / old.time_s if old.time_s else 1.0) for old, new, load in pairs]
    return _with_times(after, _played(before.schedules, scaled), added=len(after.workload) - len(loads))


def _times(load: Load, times: float) -> Load:
    """A load that takes so many times as long."""
    seconds, memory_s, latency_s = (times * part for part in (load.seconds, load.memory_s, load.latency_s))
    return replace(load, seconds=seconds, memory_s=memory_s, latency_s=latency_s)


def _with_times(recording: Recording, played: Sequence[Played], added: int = 0) -> Recording:
    """A recording with the times of its played schedules; its last ops are ``added`` to these, and have times of their own."""
    ops = recording.workload.ops
    first = len(ops) - added
    timed = (*(_timed(op, number, played) for number, op in enumerate(ops[:first])), *ops[first:])
    total = sum(one.time_s for one in played) + sum(op.time_s or 0.0 for op in ops[first:])
    return replace(
        recording,
        workload=Workload(timed),
        coverage=Coverage(wall_s=total, busy_s=total, attributed_s=total, priced_s=_priced_s(timed), run_s=total),
        steps=(Step(step=STEP, time_s=total, slowest_s=total, span_s=total, busy_s=total, device_seconds=total),),
        timeline=lane_of(played, STEP),
        memory=recording.memory and replace(recording.memory, over_step=memory_over_step(recording.schedules, played)),
    )


def _played(schedules: Sequence[Schedule], loads: Sequence[Load]) -> list[Played]:
    return [play(schedule, loads) for schedule in schedules]


def loads_of(
    ops: Sequence[Op], predicted: Mapping[int, Expected], floor_s: Sequence[float], machine: Machine, bound: str = "time_s"
) -> list[Load]:
    """What one execution of each op takes of the machine."""
    return [load_of(op, predicted.get(number), floor_s[number], machine.topology, bound) for number, op in enumerate(ops)]


def links_of(op: Op, topology: Topology | None) -> tuple[str, ...]:
    """The links that a collective occupies: those of its axes, of all where it is not known which, each way or the one that it goes."""
    ways = tuple(way for way in (UP, DOWN) if op.towards in ("", way))
    axes = [place for place, axis in enumerate(topology.axes) if axis.size > 1] if topology is not None else []
    if len(axes) < 2:
        return tuple(f"{LINKS} {way}" for way in ways)
    return tuple(f"{LINKS} {AXES[axis]} {way}" for axis in (op.compiled.axes or axes) if axis in axes for way in ways)


def load_of(op: Op, prediction: Expected | None, floor_s: float, topology: Topology | None, bound: str = "time_s") -> Load:
    """What one execution of an op takes of the machine."""
    count = op.count or 1
    seconds = (floor_s if prediction is None else float(getattr(prediction, bound))) / count
    memory_s = min((prediction.terms.get(HBM.name, 0.0) if prediction else 0.0) / count, seconds)
    links = {resource.unit for resource, _ in op.cost.amounts if resource.is_link}
    if links - {PCIE.unit, DCN.unit}:
        ways = links_of(op, topology)
        return Load(seconds=seconds, engines=ways if op.compiled.beside else (CORE, *ways))
    if not op.compiled.beside:
        return Load(seconds=seconds, memory_s=memory_s)
    if links:
        return Load(seconds=seconds, engines=(HOST,))
    return Load(seconds=seconds, latency_s=seconds - memory_s if memory_s else 0.0, engines=(DMA,))


def _timed(op: Op, number: int, played: Sequence[Played]) -> Op:
    """An op with its times: beside the core it takes what it is in flight, and its self time is what the core waits for it."""
    own_s = sum(one.core_s.get(number, 0.0) for one in played)
    waited_s = sum(one.waited_s.get(number, 0.0) for one in played)
    time_s = sum(one.in_flight_s.get(number, 0.0) for one in played) if op.compiled.beside else own_s
    return replace(
        op,
        time_s=time_s,
        self_time_s=own_s + waited_s,
        dma_stall_s=waited_s if op.compiled.beside else None,
        by_step=(Share(key=STEP, count=op.count, time_s=time_s),),
    )


def _priced_s(ops: Sequence[Op]) -> float:
    return sum(op.self_time_s or 0.0 for op in ops if op.priced)


def _engines(played: Sequence[Played], total: float) -> Iterator[EngineUse]:
    """How long each engine is busy, the core first."""
    links = sorted({engine for one in played for engine in one.busy_s if engine.startswith(LINKS)}, key=_order)
    for engine in (CORE, DMA, *links, HOST):
        busy_s = sum(one.busy_s.get(engine, 0.0) for one in played)
        if busy_s:
            yield EngineUse(name=engine, busy_s=busy_s, share=min(busy_s / total, 1.0) if total else 0.0)


def _order(engine: str) -> tuple[list[str], bool]:
    """Links by their axis, up before down."""
    *axis, way = engine.split()
    return axis, way == DOWN


def _evidence(played: Sequence[Played], predicted: Mapping[int, Expected]) -> str:
    """What the time on the core is from, by share."""
    sums = dict.fromkeys(SOURCES, 0.0)
    for one in played:
        for number, seconds in one.core_s.items():
            sums[_source(predicted.get(number))] += seconds
    total = sum(sums.values())
    return ", ".join(f"{source} {percent(seconds / total)}" for source, seconds in sums.items() if total and seconds >= 0.005 * total)


def _source(prediction: Expected | None) -> str:
    cycles, limits, links, unknown = SOURCES
    if prediction is None:
        return unknown
    if prediction.family == "collectives":
        return links
    return cycles if "cycles" in prediction.terms else limits


def _notes(schedules: Sequence[Schedule]) -> Iterator[str]:
    loops = [name for schedule in schedules for name in schedule.unsure]
    if loops:
        yield f"the time has one trip of {', '.join(loops[:4])}, whose number of trips depends on data; give it with --trips"


def expected_step(predicted: PredictedTime) -> Expected:
    """The prediction of the whole step as the report has it."""
    return Expected(
        time_s=predicted.time_s,
        low_s=predicted.low_s,
        high_s=predicted.high_s,
        terms={engine.name: engine.busy_s for engine in predicted.engines},
        evidence=predicted.evidence,
    )
