"""How long a kernel takes with a configuration, from its machine code, what it touches, and the machine.

resident   blocks that run on a core at a time (`occupancy`)
alone      cycles that a block takes if nothing else runs: the way of one of its warps (`warp`)
units      cycles that the resident blocks keep each unit of the core
wave       the larger of these, nearly: they overlap, and the slower ones hold each other up a little
core       waves, the last with fewer blocks on a core; of blocks that take different times the next starts where one ends (`waves`)
L2, HBM    bytes over sustained rates (`traffic`); dispatch: blocks over the rate at which they start
time       the larger of these, nearly, and the launch
"""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from ...errors import UsageError
from ..occupancy import Occupancy, occupancy
from ..waves import makespan
from .addresses import Evaluation, Known, evaluate, whole
from .chips import Chip
from .compiling import Binary, Lowered
from .ir import Kernel, read_ir
from .layouts import touched_lines
from .loops import THREADS, trip_counts, unfused, width, without_rest
from .sass import Instruction, Part, read_sass
from .traffic import Traffic, traffic_of
from .warp import BULK_LOAD, Costs, Line, Uses, followed
from .work import work_of

SHARPNESS = 3.0  # of the norm that combines what overlaps on a core
DATA = ("shared", "l1", "l2 port")  # units of a core that move data to and from its registers and matrix unit
SHARPNESS_SHARED = 2.0  # the same for what the cores share: latencies grow as it fills
MOST_BLOCKS = 4096  # that are evaluated
SAMPLES = 5
EARLY = 0.5  # of the code: a block that runs less returns early


class Estimate(Struct, frozen=True, kw_only=True):
    """A predicted time, its parts in seconds, blocks on a core and what limits these, waves, traffic, work by resource, and the cycles of
    each line of source.
    """

    time_s: float
    parts: Mapping[str, float]
    occupancy: Occupancy
    waves: float
    traffic: Traffic
    work: Mapping[str, float]
    lines: Mapping[Line, float]
    demand: "Demand"


def combined(times: Iterable[float], sharpness: float = SHARPNESS) -> float:
    """The time of things that overlap: at least the longest, at most the sum."""
    values = [time for time in times if time > 0]
    longest = max(values, default=0.0)
    return longest * math.fsum((time / longest) ** sharpness for time in values) ** (1 / sharpness) if longest else 0.0


def estimate(lowered: Lowered, binary: Binary, grid: tuple[int, int, int], chip: Chip) -> Estimate:
    """The time of a compiled configuration on a grid of blocks."""
    kernel, code = read_ir(lowered.ir), read_sass(binary.sass)
    fits = occupancy(chip.core, warps=binary.warps, registers=binary.registers, shared=binary.shared)
    blocks = grid[0] * grid[1] * grid[2]
    slots = max(1, max(1, fits.blocks) * chip.cores // lowered.ctas)
    arguments = {**{name: value for name, value in lowered.scalars.items() if not isinstance(value, bool)}, **lowered.tensors}
    wave, samples, everywhere = _evaluations(kernel, arguments, grid, blocks, slots)
    if unknown := next((loop.operation for loop in everywhere.loops if loop.trips is None), None):
        raise UsageError(
            f"how often the loop in line {unknown.line} of {Path(unknown.file).name} runs depends on data in memory: give the tensors of "
            "whole numbers that it reads with values, not on meta; while loops are not predicted"
        )
    traffic = traffic_of(
        wave, samples, blocks=blocks, per_core=fits.blocks,
        l1_bytes=chip.core.bytes("l1") - fits.blocks * binary.shared, l2_bytes=chip.l2_bytes / chip.core.l2_copies,
    )  # fmt: skip
    parts = unfused(code, everywhere.loops)
    uses, varying = _uses(parts, everywhere, binary, fits, traffic, chip, lowered.ctas, touched_lines(binary.layouts, samples))
    of_block = work_of(kernel, {id(loop.operation): loop.mean for loop in everywhere.loops}, everywhere.sides)
    work = {resource: blocks * amount for resource, amount in of_block.items()}
    products = math.fsum(amount / chip.matrix_flops[name[7:]] for name, amount in of_block.items() if name[7:] in chip.matrix_flops)
    last = everywhere
    if blocks > MOST_BLOCKS and (varying or everywhere.code.min() < 1):
        last = evaluate(kernel, arguments, grid, range(blocks - MOST_BLOCKS, blocks))
    demand = _demand(uses, varying, (everywhere, last), binary, fits, traffic, blocks, products, lowered.ctas, chip)
    time_s, seconds = timed(demand, chip)
    return Estimate(
        time_s=time_s, parts=seconds, occupancy=fits, waves=blocks / slots, traffic=traffic, work=work, lines=uses[-1].lines, demand=demand
    )  # fmt: skip


def _evaluations(
    kernel: Kernel, arguments: Mapping[str, Any], grid: tuple[int, int, int], blocks: int, slots: int
) -> tuple[Evaluation, Evaluation, Evaluation]:
    """What a wave of blocks in the middle touches, whole tiles of a few blocks, some of which run most of the code, and the loops of blocks
    all over the grid. Blocks that return early leave their places to others, so a wave has more of them.
    """
    spread = spread_over(blocks)
    everywhere = evaluate(kernel, arguments, grid, [int(block) for block in spread])
    length = min(blocks, round(slots / float(np.mean(everywhere.code))), MOST_BLOCKS)
    first = (blocks - length) // 2
    wave = evaluate(kernel, arguments, grid, range(first, first + length))
    few = sorted({*_some(spread), *_some(spread[_whole(everywhere)])})
    return wave, evaluate(kernel, arguments, grid, few, whole), everywhere


def spread_over(blocks: int) -> np.ndarray:
    """All blocks, or one at random of each of equal parts: at equal distances all could fulfil one condition, such as to be even."""
    if blocks <= MOST_BLOCKS:
        return np.arange(blocks)
    chosen = ((np.arange(MOST_BLOCKS) + np.random.default_rng(0).random(MOST_BLOCKS)) * blocks / MOST_BLOCKS).astype(np.int64)
    return np.union1d(chosen, [0, blocks - 1])


def _some(blocks: np.ndarray) -> list[int]:
    return [int(blocks[round(place * (len(blocks) - 1) / (SAMPLES - 1))]) for place in range(SAMPLES)]


def _whole(evaluation: Evaluation) -> np.ndarray:
    """The blocks that do not return early."""
    busy: np.ndarray = evaluation.code > EARLY
    return busy


def _uses(
    parts: tuple[Part, ...],
    everywhere: Evaluation,
    binary: Binary,
    fits: Occupancy,
    traffic: Traffic,
    chip: Chip,
    ctas: int,
    lines: Mapping[Line, float],
) -> tuple[list[Uses], "Varying | None"]:
    """What a warp uses in blocks whose loops run least, and most often, and the loop by which they differ."""
    loops = everywhere.loops
    latency = chip.core.latency

    def load_latency(instruction: Instruction) -> float:
        if instruction.name == "LDL":
            return latency["l1"]
        l1, l2, hbm = traffic.shares.get((instruction.file, instruction.line), (0.0, 1.0, 0.0))
        return l1 * latency["l1"] + l2 * latency["l2"] + hbm * latency["hbm"]

    def transfer(instruction: Instruction) -> float:
        from_l1, _, _ = traffic.shares.get((instruction.file, instruction.line), (float(instruction.name == "LDL"), 0.0, 0.0))
        return (1 - from_l1) * copied(instruction) / chip.core.l2_bytes

    def copied(instruction: Instruction) -> float:
        if instruction.name == BULK_LOAD:
            return traffic.tiles.get((instruction.file, instruction.line), 0.0) / ctas
        return width(instruction) * THREADS * binary.warps

    room = chip.core.bytes("l1") - fits.blocks * binary.shared
    held = fits.blocks * binary.stack * THREADS * binary.warps <= room
    costs = Costs(
        core=chip.core, matrix_flops=chip.matrix_flops, warps=binary.warps, load_latency=load_latency, transfer=transfer, copied=copied,
        local_passes=1.0 if held else 2.0, lines=lines,
    )  # fmt: skip
    warps = binary.warps * ctas
    whole_blocks = _whole(everywhere)
    of_loops = {id(loop.operation): _of(loop.trips, whole_blocks) for loop in loops}
    varying = [Varying(loop, trips.min(), trips.max()) for loop, trips in of_loops.items() if trips.min() != trips.max()]
    kinds = [np.min, np.max] if varying else [np.mean]
    found = []
    for kind in kinds:
        trips = {loop: float(kind(trips)) for loop, trips in of_loops.items()}
        run = without_rest(parts, loops, trips, warps)
        found.append(followed(run, trip_counts(run, loops, trips, warps), costs))
    return found, varying[0] if varying else None


def _of(trips: Known, blocks: np.ndarray) -> np.ndarray:
    """How often a loop runs in some blocks; once where that is not known."""
    if trips is None:
        return np.ones(1)
    found: np.ndarray = trips[blocks] if len(trips) == len(blocks) else trips
    return found


class Varying(Struct, frozen=True):
    """The loop that runs more often in some blocks than in others, by the identity of its operation, and how often at least and at most."""

    loop: int
    low: float
    high: float

    def share(self, evaluation: Evaluation) -> np.ndarray:
        """For each block how far it is from the least to the most."""
        trips = next(loop.trips for loop in evaluation.loops if id(loop.operation) == self.loop)
        share: np.ndarray = np.clip((np.asarray(trips) - self.low) / (self.high - self.low), 0.0, 1.0)
        return share


class Demand(Struct, frozen=True, kw_only=True):
    """What the blocks of a kernel need: cycles of a block alone, on average and, where they differ, of the last ones in the order of their
    launch; cycles of each unit of a core, blocks, how many run on a core, and seconds of what the whole chip shares.
    """

    alone: float
    last: tuple[float, ...] = ()
    units: Mapping[str, float]
    blocks: int
    resident: int
    shared_s: Mapping[str, float]


def _demand(
    uses: list[Uses], varying: Varying | None, evaluations: tuple[Evaluation, Evaluation], binary: Binary, fits: Occupancy,
    traffic: Traffic, programs: int, products: float, ctas: int, chip: Chip,
) -> Demand:  # fmt: skip
    """What ``programs`` need, each of ``ctas`` blocks; ``evaluations`` are of blocks all over the grid, and of the last ones. ``products``
    are the least cycles of a core's matrix unit for one program.
    """
    core, (everywhere, end) = chip.core, evaluations

    def between(low: float, high: float, evaluation: Evaluation = everywhere) -> np.ndarray:
        share = varying.share(evaluation) if varying else np.zeros(1)
        cycles: np.ndarray = evaluation.code * (low + (high - low) * share)
        return cycles

    first, last = uses[0], uses[-1]
    units = {unit: binary.warps * float(np.mean(between(first.units.get(unit, 0.0), cycles))) for unit, cycles in last.units.items()}
    units |= {"l1": traffic.block_l1 / ctas / core.shared_bytes, "l2 port": traffic.block_l2 / ctas / core.l2_bytes}
    if products:
        units["matrix"] = max(units.get("matrix", 0.0), products / ctas)
    ends = core.latency["start"] + between(first.alone, last.alone, end)
    return Demand(
        alone=core.latency["start"] + float(np.mean(between(first.alone, last.alone))),
        last=tuple(ends.tolist()) if ends.min() < ends.max() else (),
        units=units,
        blocks=programs * ctas,
        resident=max(1, fits.blocks),
        shared_s={"hbm": traffic.hbm / chip.hbm, "dispatch": programs * ctas / core.blocks_per_s},
    )


def _paths(wave: Mapping[str, float]) -> tuple[float, ...]:
    """The paths of a core that overlap: a block alone, the busiest unit that moves data, the matrix unit, the busiest of the others."""
    others = [cycles for unit, cycles in wave.items() if unit not in ("alone", "matrix", "spills", *DATA)]
    data = [wave.get(unit, 0.0) for unit in DATA]
    return wave["alone"], max(data), wave.get("matrix", 0.0), max(others, default=0.0)


def timed(demand: Demand, chip: Chip) -> tuple[float, dict[str, float]]:
    """The time that this takes, and the seconds of everything that overlaps in it."""
    full, rest = divmod(demand.blocks, demand.resident * chip.cores)
    waves = [(demand.resident, full)] + ([(-(-rest // chip.cores), 1)] if rest else [])
    cycles, parts = 0.0, dict.fromkeys(["alone", *demand.units], 0.0)

    def wave_of(resident: int) -> dict[str, float]:
        return {"alone": demand.alone, **{unit: resident * used for unit, used in demand.units.items()}}

    for resident, times in waves:
        wave = wave_of(resident)
        cycles += times * combined(_paths(wave))
        for part, used in wave.items():
            parts[part] += times * used
    if demand.last:
        takes = [combined(_paths(wave_of(resident))) for resident in range(1, demand.resident + 1)]
        sizes = [cycles / demand.alone for cycles in demand.last]
        before = demand.blocks - math.fsum(sizes)  # the sizes of all are 1 on average
        cycles = before * takes[-1] / (demand.resident * chip.cores) + makespan(sizes, chip.cores, takes)
    seconds = {**{part: used / chip.clock for part, used in parts.items()}, **demand.shared_s, "launch": chip.launch_s}
    return chip.launch_s + combined([cycles / chip.clock, *demand.shared_s.values()], SHARPNESS_SHARED), seconds
