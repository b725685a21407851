"""Intermediate values: those that one kernel writes to main memory and others read, and their bytes.

Kernels are the instructions that a program executes. Values are followed through instructions that cost nothing (tuples, bitcasts, the
second half of an asynchronous pair). Only bytes of main memory count, not those that a compiler keeps in VMEM.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct, field

from ...graph.index_sets import WHOLE, Region
from ...resource import HBM
from ..ir.module import Computation, HloModule, Instruction
from ..ir.opcodes import OPCODES, RUNNERS
from ..ir.platforms import Platform
from ..ir.renaming import RENAMING, Path, Place, trail
from ..ir.shapes import Shape
from ..price.bodies import Bodies, updated, updates
from ..price.demand import needs
from ..price.pricing import even_share
from ..price.program import Executed
from ..price.traffic import Traffic, in_place_updates, part_of, results
from ..price.types import Site

_SECOND_HALVES = [opcode for opcode in OPCODES if opcode.endswith(("-done", "-update"))]
_PASSING = RENAMING.union(("reshape", "transpose", "set-dimension-size"), _SECOND_HALVES)
_MOST_TRACED = 2**14  # instructions of the largest computation for which dependences between kernels are computed


class Reader(Struct, frozen=True):
    """A kernel that reads a value: the bytes it reads per launch, and through which of its operands.

    ``is_late`` says that it also depends on other kernels that use the value or another result of its producer: fusing producer and
    reader would make a cycle, so the value could only be avoided by computing it again.
    """

    kernel: Executed
    bytes: int
    operands: tuple[tuple[int, Path], ...]
    past_barrier: bool = False
    is_late: bool = False


class Intermediate(Struct, frozen=True, kw_only=True):
    """A value between kernels of one computation.

    ``written`` are the bytes that its producer writes. ``is_needed`` says that it must be in memory whatever these readers do: it is a
    result of the program, or the next iteration of a loop or another computation uses it.
    """

    computation: Computation
    producer: Executed
    path: Path
    shape: Shape
    written: int
    readers: tuple[Reader, ...]
    is_needed: bool = False

    @property
    def read(self) -> int:
        return sum(reader.bytes for reader in self.readers)

    @property
    def avoidable(self) -> int:
        """Bytes per launch that would not move if producer and readers were one kernel."""
        return self.read + (0 if self.is_needed else self.written)


def intermediates(module: HloModule, platform: Platform, ran: Iterable[Executed]) -> tuple[Intermediate, ...]:
    """All intermediate values of a program, by computation in the order in which these run."""
    bodies = Bodies(module, platform)
    by_computation: dict[int, list[Executed]] = {}
    for executed in ran:
        by_computation.setdefault(id(executed.site.computation), []).append(executed)
    return tuple(intermediate for kernels in by_computation.values() for intermediate in _Flow(bodies, platform, kernels).intermediates())


class _Use(Struct):
    """The regions that one kernel reads of one value."""

    regions: list[tuple[Shape, Region]] = field(default_factory=list)
    operands: dict[tuple[int, Path], None] = field(default_factory=dict)
    past_barrier: bool = False


class _Flow:
    """The kernels of one computation, and which value each reads from which."""

    def __init__(self, bodies: Bodies, platform: Platform, kernels: list[Executed]) -> None:
        self.bodies = bodies
        self.platform = platform
        self.computation = kernels[0].site.computation
        places = {id(instruction): index for index, instruction in enumerate(self.computation.instructions)}
        self.kernels = {places[id(executed.site.instruction)]: executed for executed in kernels}

    def intermediates(self) -> Iterator[Intermediate]:
        uses: dict[Place, dict[int, _Use]] = {}
        for index, kernel in self.kernels.items():
            for operand, path, region in self._reads(kernel.site):
                self._add_use(uses, index, operand, path, region)
        outside = {self._origin(index, path)[0] for index, path in self._always_in_memory()}
        depends = self._dependences(uses)
        for key in sorted(uses):
            producer = self.kernels.get(key[0])
            if producer is None:
                continue
            readers = []
            for index, use in uses[key].items():
                if moved := self._bytes(key, use.regions):
                    late = bool(depends.get(index, 0) >> key[0] & 1)
                    kernel = self.kernels[index]
                    readers.append(
                        Reader(
                            kernel,
                            min(_share(moved, kernel), _most(kernel)),
                            tuple(use.operands),
                            past_barrier=use.past_barrier,
                            is_late=late,
                        )
                    )
            shape = self._shape(key, next(iter(uses[key].values())).regions[0][0])
            written = self._written(key, shape)
            if readers and written is not None:
                intermediate = Intermediate(
                    computation=self.computation,
                    producer=producer,
                    path=key[1],
                    shape=shape,
                    written=min(_share(written, producer), _most(producer)),
                    readers=tuple(readers),
                    is_needed=key in outside,
                )
                if intermediate.written or intermediate.read:
                    yield intermediate

    def _dependences(self, uses: dict[Place, dict[int, _Use]]) -> dict[int, int]:
        """For each kernel, the instructions on which the producers of its operands depend: one bit each."""
        if len(self.computation) > _MOST_TRACED:
            return {}
        before = [0] * len(self.computation)
        for index, instruction in enumerate(self.computation.instructions):
            for operand in instruction.operands:
                before[index] |= before[operand] | 1 << operand
        dependences: dict[int, int] = {}
        for (index, _), readers in uses.items():
            for reader in readers:
                dependences[reader] = dependences.get(reader, 0) | before[index]
        return dependences

    def _shape(self, key: Place, seen: Shape) -> Shape:
        """The shape of a value in its producer's result, or ``seen``, that of its use, for an asynchronous pair, whose halves differ."""
        shape = part_of(self.computation[key[0]].shape, key[1])
        return shape if shape.is_array and shape.is_bounded and shape.bytes == seen.bytes else seen

    def _add_use(self, uses: dict[Place, dict[int, _Use]], reader: int, operand: int, path: Path, region: Region) -> None:
        """Adds to ``uses`` that a kernel reads a region of an operand; of a tuple, all its parts."""
        position = self.computation[reader].operands[operand]
        shape = part_of(self.computation[position].shape, path)
        if shape.is_tuple:
            for part in range(len(shape.parts)):
                self._add_use(uses, reader, operand, (*path, part), WHOLE)
        elif shape.is_array and shape.is_bounded and region:
            key, past_barrier = self._origin(position, path)
            use = uses.setdefault(key, {}).setdefault(reader, _Use())
            use.regions.append((shape, region))
            use.operands[operand, path] = None
            use.past_barrier = use.past_barrier or past_barrier

    def _origin(self, index: int, path: Path) -> tuple[Place, bool]:
        """Where a value comes from, a kernel or other instruction and the part of its result, and whether a barrier is in between."""
        past_barrier = False
        key = index, path
        for key in trail(self.computation, index, path, _PASSING):
            if key[0] in self.kernels:
                break
            past_barrier = past_barrier or self.computation[key[0]].opcode == "opt-barrier"
        return key, past_barrier

    def _always_in_memory(self) -> Iterator[Place]:
        """Values that must be in memory whatever reads them: the computation's result, and operands of called computations."""
        yield from [(self.computation.root, path) for path in self.computation.root_instruction.shape.paths]
        for instruction in self.computation:
            if instruction.opcode in RUNNERS:
                for operand in instruction.operands:
                    yield from [(operand, path) for path in self.computation[operand].shape.paths]

    def _reads(self, site: Site) -> Iterator[tuple[int, Path, Region]]:
        """The operands of a kernel, by position, and the region it needs of each."""
        instruction = site.instruction
        if instruction.opcode in ("fusion", "async-start") and instruction.calls:
            number = instruction.calls[0].computation
            body = self.bodies.module.computations[number]
            chains = {path: in_place_updates(body, leaf) for path, leaf in results(body)}
            wanted: dict[Path, Region] = {path: WHOLE for path, chain in chains.items() if not chain}
            changed = tuple(dict.fromkeys(index for chain in chains.values() for index in chain))
            for operand, parts in enumerate(self.bodies.walk(number, wanted, changed).parameters):
                yield from ((operand, path, region) for path, region in parts.items())
        elif updated(instruction):
            for operand, value in enumerate(instruction.operands):
                if value in updates(instruction):
                    yield operand, (), WHOLE
        elif instruction.opcode == "custom-call":
            yield from ((operand, (), WHOLE) for operand in range(len(instruction.operands)))
        else:
            yield from ((operand, (), region) for operand, region in enumerate(needs(instruction, site.operands, WHOLE)))

    def _written(self, key: Place, shape: Shape) -> int | None:
        """Bytes of main memory that are written for a value; ``None`` if it is in another memory."""
        index, path = key
        instruction = self.computation[index]
        elements = shape.elements
        if instruction.opcode == "fusion" and instruction.calls:
            body = self.bodies.module.computations[instruction.calls[0].computation]
            chain = next((in_place_updates(body, leaf) for place, leaf in results(body) if place == path), ())
            elements = sum(_changed(body, body[place]) for place in chain) or elements
        elif updated(instruction):
            elements = _changed(self.computation, instruction)
        traffic = Traffic(self.platform, writes=[(shape, min(elements, shape.elements))])
        return int(traffic.cost(moves_only=False).known(HBM)) or None

    def _bytes(self, key: Place, regions: list[tuple[Shape, Region]]) -> int:
        return int(Traffic(self.platform, reads={key: regions}).cost(moves_only=False).known(HBM))


def _share(size: int, kernel: Executed) -> int:
    """One device's part of some bytes, for a kernel that is assumed to be divided evenly over several devices."""
    return size // even_share(kernel.site.instruction)


def _most(kernel: Executed) -> int:
    """The most bytes of main memory that a kernel can move: those of its cost. Collectives' local traffic is not in it."""
    return int(kernel.price.cost.known(HBM))


def _changed(computation: Computation, update: Instruction) -> int:
    """Elements that an update in place writes."""
    new = update.operands[1] if update.opcode == "dynamic-update-slice" else update.operands[-1]
    return computation[new].shape.elements
