"""A block's way through a kernel's machine code: the cycles that it takes alone on a core, and what its warps use of each unit of the core.

The warps of a block run the same code side by side, so one of them is followed. It issues its instructions in order. Each waits as long
as the compiler wrote into the one before it, for the barriers of loads and functions whose results it needs, and for the units that the
block's warps share. Products of a warp group and copies to shared memory run on while the warp goes on, until it waits for their group.
Latencies are those of the machine's `Core`. A loop is followed for some iterations and then extrapolated.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping

from msgspec import Struct

from ...machines.cores import Core
from .sass import NO_BARRIER, Instruction, Part

FOLLOWED = 8  # iterations of a loop that are followed
STEADY = 3  # of these, the last ones that are taken for all later ones
WARPGROUP_MATRIX = re.compile(r"(?:HGMMA|QGMMA|IGMMA|BGMMA)\.(\d+)x(\d+)x(\d+)")
WARP_MATRIX = re.compile(r"[DHIQ]MMA\.(?:SP\.)?(\d{1,2})x?(8)x?(\d{1,3})\b")
_COUNT = re.compile(r"0x([0-9a-f]+)\s*$")
_WIDTH = re.compile(r"\.(?:U|S)?(8|16|32|64|128)\b")
Line = tuple[str, int]


class Uses(Struct, frozen=True):
    """What a warp uses: cycles alone, cycles of each unit of the core, both over the whole kernel, and the cycles that each line takes."""

    alone: float
    units: Mapping[str, float]
    lines: Mapping[Line, float]


class Costs(Struct, frozen=True, kw_only=True):
    """What the instructions cost: the core, FLOP of its matrix unit in a cycle by format, a block's warps, and of a load the cycles until
    its data is there, and those that the data of all warps takes through the port to L2.
    """

    core: Core
    matrix_flops: Mapping[str, float]
    warps: int
    load_latency: Callable[[Instruction], float]
    transfer: Callable[[Instruction], float]
    copied: Callable[[Instruction], float]  # the bytes of all warps of a block, or of a bulk copy
    lines: Mapping[Line, float] = {}  # of memory that a warp touches with one load or store, by line of source
    local_passes: float = 1.0  # of spilled registers between L1 and the core: twice as many if L1 cannot hold them


def followed(parts: tuple[Part, ...], trips: Mapping[int, float], costs: Costs) -> Uses:
    """A warp's way through these parts; ``trips`` has how often each loop runs, by the identity of its part."""
    warp = _Warp(costs)
    units: defaultdict[str, float] = defaultdict(float)
    for part in parts:
        _follow(warp, part, trips)
        _count(units, part, trips, 1.0, costs)
    warp.wait_for_others()
    return Uses(warp.time, dict(units), dict(warp.lines))


class _Warp:
    def __init__(self, costs: Costs) -> None:
        self.costs, self.core = costs, costs.core
        self.time = 0.0
        self.own: defaultdict[str, float] = defaultdict(float)  # until when this warp keeps each of its scheduler's units
        self.block: defaultdict[str, float] = defaultdict(float)  # the same of all warps of the block, on a core
        self.products_end = self.port_end = 0.0  # of products of the warp group, and of data from L2
        self.barriers = [0.0] * 8
        self.products: list[float] = []  # when each group of products is done
        self.copies: list[float] = []
        self.copying = 0.0
        self.bulk: list[float] = []  # when each group of bulk copies that nothing waited for is done
        self.lines: defaultdict[Line, float] = defaultdict(float)
        self.uses: dict[int, dict[str, float]] = {}

    def issue(self, instruction: Instruction) -> None:
        start, waits, name, latency = self.time, instruction.waits, instruction.name, self.core.latency
        if waits:
            start = max(start, *(until for barrier, until in enumerate(self.barriers) if waits >> barrier & 1))
        uses = self.uses.get(id(instruction))
        if uses is None:
            uses = self.uses[id(instruction)] = {unit: cycles * self.costs.warps for unit, cycles in use(instruction, self.costs).items()}
        if WARPGROUP_MATRIX.match(instruction.opcode):
            self.products_end = max(start, self.products_end) + max(uses.values())
            done = self.products_end + latency["matrix"]
            if "gsb0" in instruction.operands:
                self.products.append(done)
        else:
            start = self.taken(uses, start)
            done = start + latency.get(name, latency["other"])
        if name in LOADS:
            self.port_end = max(start, self.port_end) + self.costs.transfer(instruction)
            done = self.port_end + self.costs.load_latency(instruction)
            self.copying = max(self.copying, done)
            if name == BULK_LOAD:
                self.bulk[-1:] = [max(done, *self.bulk[-1:])]
        elif name == "SYNCS" and "ARRIVE" in instruction.opcode:
            self.bulk.append(0.0)
        elif name == "SYNCS" and "PHASECHK" in instruction.opcode and self.bulk:
            start = max(start, self.bulk.pop(0))
        elif name == "LDGDEPBAR":
            self.copies.append(self.copying)
            done = start
        elif ".DEPBAR" in instruction.opcode:
            start = max(start, _all_but(self.products, instruction))
        elif name == "DEPBAR":
            start = max(start, _all_but(self.copies, instruction))
        elif name == "BAR":
            start = max(start, *self.block.values()) + latency["barrier"]
        if instruction.sets_result != NO_BARRIER:
            self.barriers[instruction.sets_result] = max(self.barriers[instruction.sets_result], done)
        if instruction.sets_read != NO_BARRIER:
            self.barriers[instruction.sets_read] = max(self.barriers[instruction.sets_read], start + latency["read"])
        after = start + max(1, instruction.stall)
        self.lines[instruction.file, instruction.line] += after - self.time
        self.time = after

    def taken(self, uses: Mapping[str, float], start: float) -> float:
        """When an instruction issues that uses these units for so many cycles of the core: the other warps of the block use them, too."""
        for unit in uses:
            if unit != "issue":
                start = max(start, self.own[unit])
        for unit, cycles in uses.items():
            self.own[unit] = start + cycles / self.costs.warps * (1 if unit in ("shared", "spills") else self.core.schedulers)
            self.block[unit] = max(self.block[unit], start) + cycles
        return start

    def wait_for_others(self) -> None:
        """Until the other warps of the block are as far."""
        self.time = max(self.time, *self.block.values(), 0.0)

    def shift(self, cycles: float) -> None:
        """Moves everything later, by iterations that are not followed."""
        self.time += cycles
        self.copying += cycles
        self.products_end += cycles
        self.port_end += cycles
        for ends in (self.own, self.block):
            for unit in ends:
                ends[unit] += cycles
        for times in (self.barriers, self.products, self.copies, self.bulk):
            times[:] = [time + cycles for time in times]


def _all_but(groups: list[float], instruction: Instruction) -> float:
    """When all but the last groups are done, of which the instruction gives the number."""
    found = _COUNT.search(instruction.operands)
    left = int(found[1], 16) if found else 0
    waited = groups[: len(groups) - left] if left else groups
    return max(waited, default=0.0)


def _follow(warp: _Warp, part: Part, trips: Mapping[int, float]) -> None:
    for instruction in part.instructions:
        warp.issue(instruction)
    if not part.loop:
        return
    times = trips.get(id(part), 1.0)
    begins: list[float] = []
    for _ in range(min(FOLLOWED, max(1, round(times)))):
        begins.append(warp.time)
        if len(begins) == FOLLOWED - STEADY + 1:
            before = dict(warp.lines)
        for inner in part.loop:
            _follow(warp, inner, trips)
        warp.wait_for_others()
    if times > FOLLOWED:
        steady = (warp.time - begins[-STEADY]) / STEADY
        left = times - FOLLOWED
        for line, cycles in list(warp.lines.items()):
            warp.lines[line] = cycles + (cycles - before.get(line, 0.0)) * left / STEADY
        warp.shift(steady * left)


def _count(units: defaultdict[str, float], part: Part, trips: Mapping[int, float], runs: float, costs: Costs) -> None:
    for instruction in part.instructions:
        for unit, cycles in use(instruction, costs).items():
            units[unit] += runs * cycles
    for inner in part.loop:
        _count(units, inner, trips, runs * trips.get(id(part), 1.0), costs)


def use(instruction: Instruction, costs: Costs) -> dict[str, float]:
    """Cycles of the core's units that one warp's instruction takes: each scheduler has its own issue slot and pipes, the rest is shared."""
    core = costs.core
    uses = {"issue": 1 / core.schedulers}
    if found := WARPGROUP_MATRIX.match(instruction.opcode):
        # All four warps of a group issue it, and it runs once.
        uses["matrix"] = flops_of(found) / costs.matrix_flops[format_of(instruction)] / 4
        rows, columns, depth = int(found[1]), int(found[2]), int(found[3])
        size = {"H": 2, "Q": 1, "I": 1}.get(instruction.opcode[0], 2)
        from_shared = instruction.operands.count("gdesc")
        read = columns * depth * size + (
            rows * depth * size if from_shared > 1 or "gdesc" in instruction.operands.partition(",")[2].partition(",")[0] else 0
        )
        uses["shared"] = read / core.shared_bytes / 4
        return uses
    if found := WARP_MATRIX.match(instruction.opcode):
        uses["matrix"] = flops_of(found) / costs.matrix_flops[format_of(instruction)] / core.warp_products
        return uses
    name = instruction.name
    if name in SHARED or name in GLOBAL:
        width = _WIDTH.search(instruction.opcode)
        size = int(width[1]) // 8 if width else 4
        if name == "LDSM":
            size = 4 * int(instruction.opcode[-1]) if instruction.opcode[-1].isdigit() and "M88" in instruction.opcode else 4
        uses["shared"] = max(1.0, 32 * size / core.shared_bytes)
        if name in LOCAL:
            uses["shared"] = uses["spills"] = costs.local_passes * 32 * size / core.l2_bytes
        elif name in GLOBAL or name == "LDGSTS":  # each line of L1 is looked up in a cycle of its own
            uses["shared"] = max(uses["shared"], costs.lines.get((instruction.file, instruction.line), 0.0))
        return uses
    if name == BULK_LOAD:
        uses["shared"] = costs.copied(instruction) / core.shared_bytes / costs.warps
    pipe = core.pipe_of(name)
    if pipe:
        uses[pipe] = core.cycles[pipe] / core.schedulers
    return uses


SHARED = ("LDS", "STS", "LDSM", "STSM", "LDGSTS", "SHFL", "ATOMS")
LOCAL = ("LDL", "STL")
BULK_LOAD = "UTMALDG"  # of a tile to shared memory by the copy engine, which a barrier in shared memory counts
LOADS = ("LDG", "LDGSTS", "LD", "LDL", "ATOMG", "ATOM", BULK_LOAD)
GLOBAL = ("LDG", "STG", "LDL", "STL", "ATOMG", "RED")


def flops_of(found: "re.Match[str]") -> float:
    rows, columns, depth = (int(size) for size in found.groups())
    return 2.0 * rows * columns * depth


def format_of(instruction: Instruction) -> str:
    """The number format of a product, as the matrix unit's rates name it; fp16 runs at the rate of bf16."""
    if instruction.opcode.startswith("Q"):
        return "fp8"
    if instruction.opcode.startswith("I"):
        return "int8"
    if instruction.opcode.startswith("D"):
        return "fp64"
    return "tf32" if ".TF32" in instruction.opcode else "bf16"
