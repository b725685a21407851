"""Kernels: the arithmetic of one launch, and its compulsory bytes by memory.

Every element of an operand that the kernel needs is read once, every element of a result is written once. Slices and gathers read the
elements they take, updates in place write the elements they change, and an array that is two operands, even under two shapes, is read once.
"""

from collections.abc import Container
from math import prod

from msgspec import Struct, field

from ...cost import Cost
from ...graph.index_sets import NOTHING, WHOLE, Region, count, joined, loosely
from ...operation import MatrixWork
from ...ops.movement import moved
from ...resource import HBM, PCIE
from ...units import show
from ..ir import renaming
from ..ir.module import Computation, HloModule, Instruction
from ..ir.platforms import Platform
from ..ir.renaming import Path, Place
from ..ir.shapes import Shape
from .bodies import PLAIN, TRANSPARENT, Bodies, bytes_of, cost_attributes, reads_target, updated, updates
from .demand import needs
from .memory_spaces import level
from .types import Site
from .work import Work

# Equal for kernels of equal cost. Shapes are compared by id: equal ones of a module are one object.
KernelKey = tuple[object, ...]


class Kernel(Struct, frozen=True):
    """The cost of one launch, notes on it, the opcodes that ran in it, and its products on a TPU's matrix unit."""

    cost: Cost
    notes: tuple[str, ...] = ()
    opcodes: frozenset[str] = frozenset()
    products: tuple[MatrixWork, ...] = ()


class Traffic(Struct):
    """Reads and writes of one launch, collected one by one."""

    platform: Platform
    reads: dict[Place, list[tuple[Shape, Region]]] = field(default_factory=dict)
    writes: list[tuple[Shape, int]] = field(default_factory=list)
    constants: int = 0

    def read(self, computation: Computation, index: int, path: Path, region: Region) -> None:
        """Adds a read of a region of an operand; of a tuple, of all its parts."""
        if not region:
            return
        shape = part_of(computation[index].shape, path)
        if shape.is_tuple:
            for place in range(len(shape.parts)):
                self.read(computation, index, (*path, place), WHOLE)
        elif shape.is_array:
            self.reads.setdefault(source(computation, index, path), []).append((shape, region))

    def write(self, shape: Shape, elements: int | None = None) -> None:
        """Adds a write of some elements of a result, or of all of it; of a tuple, of all its parts."""
        for leaf in shape.leaves:
            if leaf.is_array:
                self.writes.append((leaf, leaf.elements if elements is None else elements))

    @property
    def padding(self) -> int:
        """How many of the bytes are padding of tiles."""
        moved = [(shape, _bytes_needed(uses)) for uses in self.reads.values() for shape, _ in uses[:1]]
        moved += [(shape, bytes_of(shape, elements)) for shape, elements in self.writes]
        return sum(size - size * shape.elements // shape.padded_elements for shape, size in moved if shape.padded_elements > shape.elements)

    def cost(self, moves_only: bool) -> Cost:
        """The bytes by memory. A transfer between device and host counts once, as PCIe bytes."""
        sizes = [(level(uses[0][0], self.platform, "read"), _bytes_needed(uses)) for uses in self.reads.values()]
        sizes += [(level(shape, self.platform, "write"), bytes_of(shape, elements)) for shape, elements in self.writes]
        cost = moved(((HBM, self.constants), *((place, size) for place, size in sizes if place is not None)))
        return Cost.of({PCIE: cost.known(PCIE)}) if moves_only and cost.known(PCIE) else cost


def _bytes_needed(uses: list[tuple[Shape, Region]]) -> int:
    """Bytes of one buffer that several uses need: their union if the dimensions are the same, else their sum, at most the buffer's size."""
    regions: dict[tuple[int, ...], tuple[Shape, Region]] = {}
    for shape, region in uses:
        regions[shape.dims] = (shape, joined(regions.get(shape.dims, (shape, NOTHING))[1], region))
    sizes = [bytes_of(shape, count(region, shape.dims)) for shape, region in regions.values()]
    return min(sum(sizes), max(bytes_of(shape, shape.elements) for shape, _ in regions.values()))


def part_of(shape: Shape, path: Path) -> Shape:
    """The part of a tuple at a path; if the path is too long, the part where it ends."""
    for place in path:
        if place >= len(shape.parts):
            break
        shape = shape.parts[place]
    return shape


def source(computation: Computation, index: int, path: Path) -> Place:
    """Where a value comes from, through bitcasts and tuples: an instruction, and the part of its result."""
    return renaming.source(computation, index, path, TRANSPARENT)


def kernel(bodies: Bodies, site: Site) -> Kernel:
    """One launch of one instruction."""
    instruction, computation = site.instruction, site.computation
    traffic = Traffic(site.platform)
    work = bodies.work(site)
    if updated(instruction):
        for operand in updates(instruction):
            traffic.read(computation, operand, (), WHOLE)
        for target, changed, reads in _changes(site.module, computation, instruction):
            traffic.write(computation[target].shape, changed)
            if reads:
                traffic.read(computation, target, (), loosely(changed))
    else:
        for operand, region in zip(instruction.operands, needs(instruction, site.operands, WHOLE), strict=True):
            traffic.read(computation, operand, (), region)
        traffic.write(instruction.shape)
    return _launch(work, traffic, {instruction.opcode})


def fusion_key(bodies: Bodies, site: Site) -> KernelKey | None:
    """What the cost of a fusion depends on: its body, its shape, its operands' shapes, and which operands are the same array.

    ``None`` if it depends on more: attributes, or parts of tuples.
    """
    like = bodies.like(site.instruction.calls[0].computation)
    operands = None if like is None else _operands_alike(site)
    return None if operands is None else (like, id(site.instruction.shape), *operands)


def instruction_key(bodies: Bodies, site: Site) -> KernelKey | None:
    """The same for an instruction that is a kernel by itself; ``None`` if its cost may depend on more."""
    instruction = site.instruction
    operands = _operands_alike(site) if instruction.opcode in PLAIN else None
    if operands is None:
        return None
    attributes = cost_attributes(instruction) if instruction.opcode in ("dot", "slice") else None
    return instruction.opcode, id(instruction.shape), instruction.calls and bodies.called(instruction), attributes, *operands


def _operands_alike(site: Site) -> list[tuple[int, int]] | None:
    """The shape of each operand, and which of them are the same array; ``None`` if one is a tuple."""
    instructions = site.computation.instructions
    places: dict[Place, int] = {}
    operands = []
    for index in site.instruction.operands:
        shape = instructions[index].shape
        if shape.is_tuple:
            return None
        operands.append((id(shape), places.setdefault(source(site.computation, index, ()), len(places))))
    return operands


def fused_kernel(bodies: Bodies, site: Site, without: Container[int] = ()) -> Kernel:
    """One launch of a fusion: the arithmetic of its body, the bytes of its parameters and results.

    Results that are ``without`` instructions of the body are left out, with all that only they need.
    """
    instruction, number = site.instruction, site.instruction.calls[0].computation
    body = bodies.module.computations[number]
    traffic = Traffic(site.platform)
    wanted: dict[Path, Region] = {}
    in_place: dict[int, None] = {}
    for path, leaf in results(body):
        if source(body, leaf, ())[0] in without:
            continue
        chain = in_place_updates(body, leaf, bodies.module)
        if not chain:
            wanted[path] = WHOLE
            traffic.write(part_of(instruction.shape, path))
        in_place.update(dict.fromkeys(chain))
    walked = bodies.walk(number, wanted, tuple(in_place))
    operands = dict(zip(body.parameters, instruction.operands, strict=False))
    for index in in_place:
        for target, changed, reads in _changes(site.module, body, body[index]):
            operand = operands[_base(body, target, bodies.module)]
            traffic.write(site.computation[operand].shape, changed)
            if reads:
                traffic.read(site.computation, operand, (), loosely(changed))
    for operand, parts in zip(instruction.operands, walked.parameters, strict=False):
        for path, region in parts.items():
            traffic.read(site.computation, operand, path, region)
    traffic.constants = walked.constant_bytes
    return _launch(walked.work, traffic, {*walked.opcodes, *(body[index].opcode for index in in_place)})


def _launch(work: Work, traffic: Traffic, opcodes: set[str]) -> Kernel:
    moves_only = not work.cost.unknown and not any(resource.is_compute for resource, _ in work.cost.amounts)
    padding = traffic.padding
    notes = (*work.notes, f"{show(padding, 'B')} of its bytes are padding of tiled layouts") if padding else work.notes
    return Kernel(work.cost + traffic.cost(moves_only), notes, frozenset(opcodes), work.products)


def results(body: Computation) -> list[tuple[Path, int]]:
    """The results of a fused body, each with the instruction that makes it."""
    root = body.root_instruction
    if root.opcode == "tuple":
        return [((place,), operand) for place, operand in enumerate(root.operands)]
    return [((), body.root)]


def _seen_through(body: Computation, index: int, module: HloModule | None) -> int:
    while body[index].operands and (body[index].opcode == "bitcast" or (module is not None and _only_copies(module, body[index]))):
        index = body[index].operands[0]
    return index


def _only_copies(module: HloModule, instruction: Instruction) -> bool:
    """Whether a fusion inside another only changes how elements are packed in registers, as TPUs do with 16-bit ones."""
    if instruction.opcode != "fusion" or len(instruction.operands) != 1 or not instruction.calls:
        return False
    inner = module.computations[instruction.calls[0].computation]
    return all(part.opcode in ("parameter", "copy", "bitcast") and part.shape.dims == instruction.shape.dims for part in inner)


def _base(body: Computation, index: int, module: HloModule | None = None) -> int:
    """The instruction whose memory a chain of updates writes to."""
    index = _seen_through(body, index, module)
    while targets := updated(body[index]):
        index = _seen_through(body, targets[0], module)
    return index


def in_place_updates(body: Computation, index: int, module: HloModule | None = None) -> tuple[int, ...]:
    """The chain of updates that changes a parameter in place to make a result; empty if the result is a new array.

    In a ``module`` that is compiled fusions inside the body may be between.
    """
    chain = []
    index = _seen_through(body, index, module)
    while targets := updated(body[index]):
        chain.append(index)
        if not all(body[_base(body, target, module)].opcode == "parameter" for target in targets):
            return ()
        index = _seen_through(body, targets[0], module)
    return tuple(chain)


def in_place_parameters(body: Computation) -> list[int]:
    """The parameters of a fused body that a result of it updates in place."""
    changing = [index for _, leaf in results(body) for index in in_place_updates(body, leaf)]
    return [_base(body, target) for index in changing for target in updated(body[index])]


def _changes(module: HloModule, computation: Computation, instruction: Instruction) -> list[tuple[int, int, bool]]:
    """The arrays that an update in place changes, how many elements of each, and whether it reads them first."""
    targets = updated(instruction)
    new = instruction.operands[1:2] if instruction.opcode == "dynamic-update-slice" else instruction.operands[-len(targets) :]
    reads = reads_target(module, instruction)
    return [
        (target, min(prod(computation[update].shape.dims), prod(computation[target].shape.dims)), reads)
        for target, update in zip(targets, new, strict=True)
    ]
