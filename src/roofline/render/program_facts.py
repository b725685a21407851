"""Facts about the whole program besides its findings and ops, as labels and short sentences."""

from collections.abc import Iterator, Sequence, Set
from itertools import chain

from ..peak_memory import LiveLayer, LiveOwner, PeakMemory
from ..quantities import known_flops
from ..report import OpInfo, Point, Report
from ..resource import bound_words
from ..units import approximate, number_of, parse, percent, plain, show
from ..workload import averaged
from .time_bar import SHOWN

LEAST_SPACE = parse("1 MB", "B")  # of a small memory that is told in a terminal; the report has all
BARS, LEVELS = 50, "▁▂▃▄▅▆▇█"  # of the course of the memory over a step
LAYERS = 3  # with the most activations
AT_PEAK = 4  # scopes named in a terminal; the report has them all
OVERLAPPING = 1.05  # times the busy time: a larger sum of op times gets a note
WHOLE = 0.995  # shares above it are shown as 100%


def program_facts(report: Report, devices: int | None = 1) -> list[tuple[str, str]]:
    """The input, the chip, the run and its steps, work, memory, counters; a sentence is empty where it does not apply."""
    points = [point for point in report.points if point.infeed_outfeed] or list(report.points)
    what = ", ".join(report.input.files) or report.input.format
    read = ("input", f"{what}, {number_of(len(report.ops), 'op')}")
    if not points:
        return [read, ("chip", machine_line(report, report.ops))]
    total, cover = points[0], report.coverage
    priced = cover.priced_s / cover.busy_s if cover.priced_s is not None and cover.busy_s else 1.0
    stalled = (cover.dma_stall_s or 0.0) / cover.busy_s if cover.busy_s else 0.0
    return [
        read,
        ("chip", machine_line(report, report.ops)),
        ("run", _run(total, points, {step.step for step in averaged(report.steps)}, cover.before_steps_s)),
        ("work", _work(report.main_point or total, report.ops)),
        ("unneeded", _unneeded(total, report.ops)),
        ("memory", _memory(report.memory)),
        ("for", _owners(report.memory)),
        ("at peak", _at_peak(report.memory)),
        ("over step", _over_step(report)),
        *_spaces(report.memory),
        ("counters", _hardware(report)),
        ("stalled", f"{percent(stalled)} of busy time by DMA, waiting for asynchronous copies" if stalled > SHOWN else ""),
        ("op times", _op_times(report.ops, devices)),
        ("known cost", f"{percent(priced)} of busy time" if priced < WHOLE else ""),
    ]


def machine_line(report: Report, ops: Sequence[OpInfo]) -> str:
    """The machine and the ceilings that these ops use."""
    used = {*chain.from_iterable({op.roofs for op in ops})}
    roofs = [ceiling for ceiling in report.machine.ceilings if ceiling.resource in used]
    ceilings = ", ".join(f"{roof.resource} {show(roof.rate, roof.per)} ({roof.provenance})" for roof in roofs)
    return f"{report.machine.name}: {ceilings}" if ceilings else report.machine.name


def _op_times(ops: Sequence[OpInfo], devices: int | None) -> str:
    """What the times of ops are, and whether they overlap; they are means over so many devices, or over those of each host."""
    several = "the devices of each host" if devices is None else f"{devices:,} devices" if devices > 1 else ""
    means = f"means over {several}" if several else ""
    known = [(op.time_s, op.self_time_s) for op in ops if op.time_s is not None and op.self_time_s is not None]
    whole_s, own_s = (sum([pair[place] for pair in known]) for place in (0, 1))
    if not own_s or whole_s < OVERLAPPING * own_s:
        return means
    factor = approximate(whole_s / own_s, 2)
    overlap = f"ops overlap: their times add up to {factor} times the busy time; share and lost count overlapping time once"
    return "; ".join(filter(None, [means, overlap]))


def _run(total: Point, points: Sequence[Point], averaged: Set[int], before_s: float | None) -> str:
    """The time of the run, its busy share, and its steps."""
    if not total.time_s:
        return ""
    parts = [show(total.time_s, "s")]
    if total.busy_s is not None and total.busy_s < total.time_s:
        parts.append(f"busy {percent(total.busy_s / total.time_s)}")
    return "; ".join(filter(None, [", ".join(parts), _steps(points, averaged, before_s)]))


def _steps(points: Sequence[Point], averaged: Set[int], before_s: float | None) -> str:
    """The number of steps, the times of those that are averaged, and the time before the first."""
    steps = [(point.step, point.time_s) for point in points if point.scope == "step" and point.time_s is not None]
    average = next((point for point in points if point.scope == "average"), None)
    if average is None or not steps:
        return ""
    times = [time_s for step, time_s in steps if step in averaged]
    span = f"{show(min(times), 's')} to {show(max(times), 's')}" if len(times) > 1 else ""
    if len(times) == len(steps):
        detail = f" of {span}" if span else ""
    else:
        detail = f", {len(times):,} of them averaged{f' ({span})' if span else ''}"
    parts = [f"{number_of(len(steps), 'complete step')}{detail}"]
    if average.slowest_s is not None and average.slowest_s != average.time_s:
        parts.append(f"{show(average.slowest_s, 's')} on the slowest device")
    if before_s:
        parts.append(f"{show(before_s, 's')} recorded before the first")
    return ", ".join(parts)


def _work(point: Point, ops: Sequence[OpInfo]) -> str:
    intensity = f" ({plain(point.intensity)} FLOP/B)" if point.intensity else ""
    per = " per step" if point.scope == "average" else ""
    least = (
        f"; minimum time {show(point.floor_s, 's')} if all ops overlapped, {bound_words(point.bound)}" if point.floor_s is not None else ""
    )
    return f"{amounts_text(point, ops)}{per}{intensity}{least}"


def _unneeded(total: Point, ops: Sequence[OpInfo]) -> str:
    """The work that the model did not need, by class: the share of FLOP, or of bytes for ops that did no needless FLOP."""
    found: dict[tuple[str, str], float] = {}
    padded = 0.0
    for op in [op for op in ops if op.unneeded]:
        if op.needed is None:  # all that was counted; padding of the matrix unit is beyond that
            padded += sum(op.unneeded.values())
        least = sum(amount or 0 for amount in (op.work if op.needed is None else op.needed).values())
        unit = "FLOP" if op.needed is None or least < sum(amount or 0 for amount in op.work.values()) else "bytes"
        for kind, amount in op.unneeded.items():
            found[kind, unit] = found.get((kind, unit), 0) + amount
    moved = sum(total.known.get(level, amount or 0) for level, amount in total.bytes.items())
    whole = {"FLOP": known_flops(total) + padded, "bytes": moved}
    shares = [(amount / whole[unit], kind, unit) for (kind, unit), amount in found.items() if whole[unit]]
    return ", ".join(f"{kind} {percent(share)} of {unit}" for share, kind, unit in sorted(shares, reverse=True) if share > SHOWN)


def amounts_text(point: Point, ops: Sequence[OpInfo] = ()) -> str:
    """FLOP and bytes; of amounts that are not fully known the known part, and for how many ``ops`` the rest is unknown."""
    flops = show(point.flops, "FLOP")
    if point.flops is None and ops:
        flops = f"{show(known_flops(point), 'FLOP')}{_missing(sum(op.flops is None for op in ops))}"
    amounts = [flops]
    for level, amount in point.bytes.items():
        if amount is None and ops:
            known = show(point.known.get(level, 0), "B")
            amounts.append(f"{known} {level}{_missing(sum(op.bytes.get(level, 0) is None for op in ops))}")
        else:
            amounts.append(f"{show(amount, 'B')} {level}")
    return ", ".join(amounts)


def _missing(ops: int) -> str:
    return f" and {'one' if ops == 1 else f'{ops:,}'} unknown" if ops else ""


def _memory(memory: PeakMemory | None) -> str:
    """The peak memory, the capacity, and the kinds of arrays at the peak."""
    if memory is None:
        return ""
    room = ""
    if memory.capacity_bytes:
        room = f" of {show(memory.capacity_bytes, 'B')} ({percent(memory.peak_bytes / memory.capacity_bytes)})"
    donated = f" ({show(memory.donated, 'B')} in donated arguments)" if memory.donated else ""
    parts = [
        f"{name} {show(size, 'B')}{more}"
        for name, size, more in (
            ("arguments", memory.arguments, ""),
            ("outputs", memory.outputs, donated),
            ("constants", memory.constants, ""),
            ("temporaries", memory.temporaries, ""),
        )
        if size * 1000 > memory.peak_bytes
    ]
    too_much = "" if memory.fits else "does not fit: "
    how = f"estimated before compilation by {memory.method}" if memory.is_estimate else f"by {memory.method}"
    gaps = memory.needed_bytes - memory.peak_bytes
    parts += [f"{show(gaps, 'B')} of that in gaps"] if gaps * 1000 > memory.peak_bytes else []
    parts += [f"{show(memory.reserved, 'B')} reserved"] if memory.reserved else []
    return f"{too_much}peak {show(memory.peak_bytes, 'B')}{room}{': ' if parts else ''}{', '.join(parts)}; {how}"


def _owners(memory: PeakMemory | None) -> str:
    """What the memory is for at the peak, and what layouts pad."""
    rows = [row for row in memory.owners if row.bytes * 100 >= memory.peak_bytes] if memory else []
    padding = sum(row.padding for row in memory.owners) if memory else 0
    parts = [f"{row.owner} {show(row.bytes, 'B')}{_by_layer(row)}" for row in rows]
    parts += [f"of that {show(padding, 'B')} is padding of layouts"] if memory and padding * 100 >= memory.peak_bytes else []
    return ", ".join(parts)


def _by_layer(owner: LiveOwner) -> str:
    """The activations of each layer, in parentheses."""
    layers = [layer for layer in owner.layers if layer.bytes * 100 >= owner.bytes]
    if not any(layer.layers > 1 or layer.layer for layer in layers):
        return ""
    told = [_of_layer(layer) for layer in layers[:LAYERS]]
    more = [f"{len(layers) - LAYERS:,} more"] if len(layers) > LAYERS else []
    return f" ({', '.join([*told, *more])})"


def _of_layer(layer: LiveLayer) -> str:
    if layer.layers > 1:
        return f"{show(layer.bytes / layer.layers, 'B')} in each of {layer.layers:,} layers"
    return f"{layer.layer or 'no scope'} {show(layer.bytes, 'B')}"


def _at_peak(memory: PeakMemory | None) -> str:
    """The scopes with the most temporary arrays at the peak, and the largest array."""
    rows = [row for row in memory.at_peak if row.kind == "temporary"] if memory else []
    if not memory or not rows or memory.temporaries * 1000 < memory.peak_bytes:
        return ""
    scopes = [f"{row.scope or 'no scope'} {show(row.bytes, 'B')}" for row in rows[:AT_PEAK]]
    scopes += [f"{len(rows) - AT_PEAK:,} more"] if len(rows) > AT_PEAK else []
    largest = next((one for one in memory.largest if one.kind == "temporary"), None)
    return ", ".join(scopes) + (f"; largest {largest.name} {largest.shape}, {show(largest.bytes, 'B')}" if largest else "")


def _over_step(report: Report) -> str:
    """The course of the memory over a step that was played, as a row of bars, and what it is at first, at the most and at last."""
    course = report.memory.over_step if report.memory else ()
    if not course or not (most := max(course, key=lambda moment: moment.bytes)).bytes:
        return ""
    width = -(-len(course) // BARS)
    parts = [max(moment.bytes for moment in course[first : first + width]) for first in range(0, len(course), width)]
    bars = "".join(LEVELS[min(round(len(LEVELS) * size / most.bytes), len(LEVELS)) - 1] if size else " " for size in parts)
    op = next((op for op in report.ops if op.id == most.op), None)
    during = f" during {op.label or op.name}" if op else ""
    first, last = (show(course[place].bytes, "B") for place in (0, -1))
    return f"{bars} {first} at first, most {percent(most.begin_s / (course[-1].begin_s or 1))} into the step{during}, {last} at last"


def _spaces(memory: PeakMemory | None) -> Iterator[tuple[str, str]]:
    """The peak of each small memory, how full it is, and what is in it then."""
    if memory is None:
        return
    for space in (space for space in memory.spaces if space.peak_bytes >= LEAST_SPACE):
        least = "" if memory.is_assigned else "at least "
        room = f" of {show(space.capacity_bytes, 'B')} ({percent(space.peak_bytes / space.capacity_bytes)})" if space.capacity_bytes else ""
        scoped = f", scoped {show(space.scoped_bytes, 'B')}" if space.scoped_bytes else ""
        largest = space.largest[0] if space.largest else None
        what = f"; largest {largest.name} {largest.shape}, {show(largest.bytes, 'B')}" if largest else ""
        yield (
            space.space,
            f"peak {least}{show(space.peak_bytes, 'B')}{room}: arrays {show(space.arrays_bytes, 'B')}{scoped}; at {space.at}{what}",
        )


def _hardware(report: Report) -> str:
    """What hardware counters measured, and for how much of the program."""
    hardware = next((point for point in report.points if point.scope == "hardware"), None)
    if hardware is None:
        return ""
    cover = report.coverage
    if cover.counted_s is None:
        busy = ", ".join(f"{unit} {percent(share)}" for unit, share in hardware.utilization.items())
        return f"busy, from whole-chip counters: {busy}"
    share = f"; covers {percent(cover.counted_s / cover.busy_s)} of busy time" if cover.busy_s else ""
    return f"{amounts_text(hardware)} counted, {bound_words(hardware.bound)}, roofline efficiency {percent(hardware.efficiency)}{share}"
