"""The generation of TPU that a program was compiled for, from what only its compiler writes.

A dump names it (``target_arguments.txt``). Otherwise each fact that a program shows leaves some generations, as libtpu 0.0.42.1
compiles the same functions for v2 to v7x:

- the tile of a scalar is 8192 bits on v2 and v3, else 4096;
- arrays live in CMEM (``S(3)``) on v4 alone, in VMEM (``S(1)``) from v5e on;
- large ops are split over the two cores of a v4 or v5p (``megacore_config``);
- parameters carry a limit of VMEM on v7x alone;
- collectives run in steps of other fusions (``continuation_config``) on v5e alone, gathers on SparseCores on v5p, v6e and v7x;
- no stream is faster than the memory, no product faster than the matrix unit, and the best large product in bf16 reaches `REACHED` of it;
- kernels may use `SCOPED_BYTES` of VMEM up to v5p, and twice that on v6e, unless a flag says otherwise.
"""

import re
from collections.abc import Iterable, Iterator, Set
from math import prod
from pathlib import Path

from ..errors import UsageError
from ..hlo.ir.module import HloModule
from ..hlo.ir.platforms import named_platform
from ..hlo.ir.shapes import Shape
from ..hlo.ir.values import Value, Values
from ..hlo.lower.as_written import written_product
from ..hlo.price.compiled import estimated_cycles
from ..hlo.price.elementwise import ELEMENTWISE
from ..hlo.price.memory_spaces import CMEM, VMEM
from ..units import BINARY
from ..workload import Device

V2, V3, V4, V5E, V5P, V6E, V7X = GENERATIONS = ("TPU v2", "TPU v3", "TPU v4", "TPU v5e", "TPU v5p", "TPU v6e", "TPU7x")
# What the matrix units of a device do in a cycle: their number, their sides, the rows that each takes, and 2 FLOP (chip pages of Google's
# documentation; v6e and TPU7x take two rows, by the bundles of their products).
_UNIT, _WIDE_UNIT = 2 * 128 * 128, 2 * 2 * 256 * 256
FLOP_PER_CYCLE = {V2: _UNIT, V3: 2 * _UNIT, V4: 8 * _UNIT, V5E: 4 * _UNIT, V5P: 8 * _UNIT, V6E: 2 * _WIDE_UNIT, V7X: 2 * _WIDE_UNIT}
# Bytes of HBM that a device moves in a cycle: its bandwidth over its clock, both of the catalogue.
BYTES_PER_CYCLE = {V2: 500, V3: 479, V4: 1170, V5E: 546, V5P: 1580, V6E: 936, V7X: 1677}
TWO_CORES = frozenset((V4, V5P))  # of a device
SCALAR_TILES = {8192: frozenset((V2, V3)), 4096: frozenset((V4, V5E, V5P, V6E, V7X))}
LEAST_TILE = 128  # elements: longer arrays may have larger tiles
SPLIT, STEPS, SPARSE = "megacore_config", "continuation_config", "sparse_core_config"  # parts of an op's configuration
SPARSE_CORES = frozenset((V5P, V6E, V7X))
SCOPED_BYTES = 16 * BINARY["Mi"]  # of VMEM that a kernel may use unless a flag says more
LARGE = 8 * 128  # each side of a product that fills the matrix unit of every generation
LARGE_STREAM = 16 * BINARY["Mi"]  # bytes: less may stay in a memory of the chip
STREAMING = ELEMENTWISE | {"parameter", "constant", "broadcast", "convert", "bitcast", "iota"}
# Of the matrix unit's peak, the best large product of a program: 0.93 to 0.98 by the compiler's cycles on v2, v3, v5e and v5p, 0.81 to 0.92
# on v4. On the fastest generation a product may take longer.
REACHED = 0.75
ROUNDING = 1.02  # a clock is rounded, and so is a peak
# Google's names of the chips, as a dump has them.
CODE_NAMES = {
    "JELLYFISH": V2,
    "DRAGONFISH": V3,
    "PUFFERFISH": V4,
    "VIPERFISH": V5P,
    "VIPERFISH lite": V5E,
    "GHOSTLITE": V6E,
    "6acc60406": V7X,
}
_SCOPED = re.compile(r'"used_scoped_memory_configs":\[\{"memory_space":"1","offset":"\d+","size":"(\d{1,19})"')
_LIMITED = '"scoped_memory_configs":[{'
_VERSION = re.compile(r'\bversion: TPU_VERSION_(\w+)(?:\s+variant: "(\w+)")?')
_DUMPED = re.compile(r"module_\d+\..*?(?=\.(?:after|before)_)")
NOTE = "{program} was compiled for a {chip}, by {evidence}: compared with that; choose another chip with --chip"
WHICH = "{path}: compiled for a TPU, which may be {chips}: choose it with --chip {first}"


def compiled_device(path: Path, modules: Iterable[HloModule]) -> tuple[tuple[Device, ...], list[str]]:
    """The TPU that the programs of a file or folder were compiled for, and a note; none if they were not compiled for a TPU.

    Raises an error that asks for the chip where several fit.
    """
    programs = [module for module in modules if module.is_scheduled and named_platform(module) == "tpu"]
    if not programs:
        return (), []
    dumped = dumped_for(path)
    left, evidence = ({dumped}, ["the compiler's dump"]) if dumped else generations(programs)
    if len(left) != 1:
        chips = [name.lower().removeprefix("tpu").strip() for name in GENERATIONS if name in left]
        raise UsageError(WHICH.format(path=path, chips=f"{', '.join(chips[:-1])} or {chips[-1]}", first=chips[0]))
    (name,) = left
    note = NOTE.format(program=programs[0].name, chip=name, evidence=" and ".join(filter(None, (", ".join(evidence[:-1]), *evidence[-1:]))))
    return (Device(id=0, name=name),), [note]


def dumped_for(path: Path) -> str | None:
    """The generation that the compiler's dump names next to its programs; ``None`` without one, or for a chip that is not known here."""
    folder, module = (path, "*") if path.is_dir() else (path.parent, _DUMPED.match(path.name))
    if module is None:
        return None
    stem = module if isinstance(module, str) else module[0]
    found = {
        match for file in folder.glob(f"{stem}.target_arguments.txt") for match in _VERSION.findall(file.read_text("utf-8", "replace"))
    }
    names = {CODE_NAMES.get(" ".join(filter(None, words))) for words in found}
    return names.pop() if len(names) == 1 else None


def generations(programs: Iterable[HloModule]) -> tuple[set[str], list[str]]:
    """The generations that programs may have been compiled for, and what excludes the others; all of them where facts contradict."""
    facts = _Facts()
    for module in programs:
        facts.add(module)
    left, evidence = set(GENERATIONS), list[str]()
    for some, words in facts.possible(left):
        if left & some != left:
            left &= some
            evidence += [words] if words else []
    return (left, evidence) if left else (set(GENERATIONS), [])


class _Facts:
    """What the instructions of programs show of the chip."""

    def __init__(self) -> None:
        self.spaces = set[int]()
        self.scalar_tile_bits = 0
        self.marks = set[str]()
        self.has_limits = False
        self.scoped_bytes = 0
        self.rate = 0.0  # FLOP per cycle of the best large product in bf16
        self.stream = 0.0  # bytes per cycle of the best large elementwise op

    def add(self, module: HloModule) -> None:
        values = Values(module)
        for computation in module:
            for index, instruction in enumerate(computation.instructions):
                self._add_layouts(instruction.shape.leaves)
                config = instruction.backend_config_text
                if not config:
                    continue
                self.marks.update(mark for mark in (SPLIT, STEPS, SPARSE) if mark in config)
                if computation is module.entry_computation and instruction.opcode == "parameter":
                    self.has_limits |= _LIMITED in config
                self.scoped_bytes = max([self.scoped_bytes, *map(int, _SCOPED.findall(config))])
                cycles = estimated_cycles(instruction)
                if cycles:
                    value = Value(computation, index)
                    self.rate = max(self.rate, _large_products(values, value) / cycles)
                    self.stream = max(self.stream, _streamed_bytes(values, value) / cycles)

    def _add_layouts(self, shapes: Iterable[Shape]) -> None:
        for shape in shapes:
            if shape.layout is None or not shape.is_array:
                continue
            self.spaces.add(shape.layout.memory_space)
            if len(shape.dims) < 2 and shape.elements <= LEAST_TILE and len(shape.layout.tiles) == 1:
                self.scalar_tile_bits = max(self.scalar_tile_bits, prod(shape.layout.tiles[0]) * int(shape.number.bits))

    def possible(self, left: Set[str]) -> Iterator[tuple[Set[str], str]]:
        """The generations that each fact leaves, and its words; ``left`` are those that the facts before have left."""
        yield ({V7X}, "the memory limits of its parameters") if self.has_limits else ({*GENERATIONS} - {V7X}, "")
        if self.scalar_tile_bits:
            yield SCALAR_TILES.get(self.scalar_tile_bits, {*GENERATIONS}), "the tiles of its scalars"
        if CMEM in self.spaces:
            yield {V4}, "its arrays in CMEM"
        if VMEM in self.spaces:
            yield {V5E, V5P, V6E, V7X}, "its arrays in VMEM"
        if SPLIT in self.marks:
            yield TWO_CORES, "the two cores that share its ops"
        elif self.rate or self.stream:  # these would be shared as well
            yield {*GENERATIONS} - TWO_CORES, ""
        if STEPS in self.marks:
            yield {V5E}, "its collectives in steps of other ops"
        if SPARSE in self.marks:
            yield SPARSE_CORES, "its work on SparseCores"
        if self.stream:
            yield {name for name, moved in BYTES_PER_CYCLE.items() if self.stream <= ROUNDING * moved}, "the cycles of its streams"
        if self.rate:
            yield _with_rate(self.rate, left), "the cycles of its products"
        if SCOPED_BYTES < self.scoped_bytes <= 2 * SCOPED_BYTES and len(left) > 1:
            yield {V6E, V7X}, "the VMEM that its kernels use"


def _with_rate(flop_per_cycle: float, names: Set[str]) -> Set[str]:
    """Of some generations the one whose matrix unit runs large products at this rate; all where none does."""
    peaks = sorted((FLOP_PER_CYCLE[name], name) for name in names)
    enough = [(peak, name) for peak, name in peaks if flop_per_cycle <= ROUNDING * peak]
    if not enough:
        return names
    slowest = enough[0][0]
    if flop_per_cycle < REACHED * slowest and enough[-1][0] > ROUNDING * slowest:
        return {name for _, name in enough}
    return {name for peak, name in enough if peak <= ROUNDING * slowest}


def _streamed_bytes(values: Values, value: Value) -> int:
    """The bytes that a large elementwise fusion reads and writes in HBM; 0 for other ops, which may touch a part of their operands."""
    instruction = value.instruction
    if instruction.opcode != "fusion" or not values.opcodes(instruction) <= STREAMING:
        return 0
    shapes = [shape for operand in values.operands(value) for shape in operand.shape.leaves] + list(instruction.shape.leaves)
    moved = sum(int(shape.elements * shape.number.bits) // 8 for shape in shapes if shape.is_array and _is_in_hbm(shape))
    return moved if moved >= LARGE_STREAM else 0


def _is_in_hbm(shape: Shape) -> bool:
    return shape.layout is None or shape.layout.memory_space == 0


def _large_products(values: Values, value: Value) -> int:
    """FLOP of the products in a kernel, if all are in bf16 and one is large; else 0."""
    flops, is_large = 0, False
    for convolution in values.nested(value, "convolution"):
        operands = [operand.instruction for operand in values.operands(convolution)[:2]]
        sizes = written_product(convolution.instruction, operands)
        if sizes is None or any(operand.shape.dtype != "bf16" for operand in operands):
            return 0
        is_large |= min(sizes[1:]) >= LARGE
        flops += 2 * prod(sizes)
    return flops if is_large else 0
