"""The times of a program that has not run: its schedule played on the machine, with the expected time of each op.

Two more plays, with the low and the high bound of every op, give the interval: it is as wide as if all errors had one sign.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from ...machine import Machine
from ...prediction import Prediction
from ...report import Expected
from ...resource import HBM, PCIE
from ...schedule import EngineUse, PredictedTime, Schedule
from ...timeline import CORE, DMA, HOST, Load, Played, play
from ...units import percent
from ...workload import Coverage, Op, Recording, Share, Step, Workload
from .lanes import lane_of

STEP = 0  # the key of the only step
UP, DOWN = "up", "down"
LINKS = ("links up", "links down")
SOURCES = ("the compiler's cycles", "the limits of the units", "collectives by their links", "unknown: their minimum is taken")


def with_played_times(recording: Recording, machine: Machine, predicted: Mapping[int, Prediction], floor_s: Sequence[float]) -> Recording:
    """The recording with the times of its schedules; unchanged where it has none, or times of its own."""
    ops = recording.workload.ops
    if not recording.schedules or not predicted or machine.kind != "tpu" or any(op.time_s is not None for op in ops):
        return recording
    runs = [_played(recording.schedules, ops, predicted, floor_s, bound) for bound in ("time_s", "low_s", "high_s")]
    middle, low, high = runs
    total = sum(played.time_s for played in middle)
    timed = tuple(_timed(op, number, middle) for number, op in enumerate(ops))
    coverage = Coverage(wall_s=total, busy_s=total, attributed_s=total, priced_s=_priced_s(timed), run_s=total)
    step = Step(key=STEP, time_s=total, slowest_s=total, span_s=total, busy_s=total, device_seconds=total)
    return replace(
        recording,
        workload=Workload(timed),
        coverage=coverage,
        steps=(step,),
        timeline=lane_of(middle, STEP),
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


def _played(
    schedules: Sequence[Schedule], ops: Sequence[Op], predicted: Mapping[int, Prediction], floor_s: Sequence[float], bound: str
) -> list[Played]:
    loads = [load_of(op, predicted.get(number), floor_s[number], bound) for number, op in enumerate(ops)]
    return [play(schedule, loads) for schedule in schedules]


def load_of(op: Op, prediction: Prediction | None, floor_s: float, bound: str = "time_s") -> Load:
    """What one execution of an op takes of the machine."""
    count = op.count or 1
    seconds = (floor_s if prediction is None else float(getattr(prediction, bound))) / count
    memory_s = min((prediction.terms.get(HBM.name, 0.0) if prediction else 0.0) / count, seconds)
    links = {resource.unit for resource, _ in op.cost.amounts if resource.is_link}
    if links - {PCIE.unit}:
        ways = tuple(way for way, name in zip(LINKS, (UP, DOWN), strict=True) if op.towards in ("", name))
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
    for engine in (CORE, DMA, *LINKS, HOST):
        busy_s = sum(one.busy_s.get(engine, 0.0) for one in played)
        if busy_s:
            yield EngineUse(name=engine, busy_s=busy_s, share=min(busy_s / total, 1.0) if total else 0.0)


def _evidence(played: Sequence[Played], predicted: Mapping[int, Prediction]) -> str:
    """What the time on the core is from, by share."""
    sums = dict.fromkeys(SOURCES, 0.0)
    for one in played:
        for number, seconds in one.core_s.items():
            sums[_source(predicted.get(number))] += seconds
    total = sum(sums.values())
    return ", ".join(f"{source} {percent(seconds / total)}" for source, seconds in sums.items() if total and seconds >= 0.005 * total)


def _source(prediction: Prediction | None) -> str:
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
