"""The arithmetic of a fused body, and which elements of its parameters it needs.

The elements that are needed are found from the root back to the parameters. Each needed element of an instruction counts once, even if the
compiled loop computes it several times.
"""

from collections.abc import Mapping
from math import ceil, prod

from msgspec import Struct
from msgspec.structs import replace

from ...cost import Cost
from ...graph.index_sets import NOTHING, WHOLE, Region, count, joined
from ...resource import UNNAMED_WORK
from ..ir.module import Computation, HloModule, Instruction
from ..ir.opcodes import OPCODES
from ..ir.platforms import Platform
from ..ir.renaming import RENAMING
from ..ir.renaming import Path as Path
from ..ir.shapes import Shape
from .calls import price_call
from .contractions import PRODUCTS
from .demand import SELECTIVE, needs, result_dims
from .elementwise import ELEMENTWISE, each_element, elementwise
from .reductions import REDUCTIONS, windows_within
from .relayouts import RELAYOUTS, relayout
from .types import Site
from .work import NO_WORK, Rule, Sum, Work

Demand = Mapping[Path, Region]

WORK: dict[str, Rule] = {**dict.fromkeys(ELEMENTWISE, elementwise), **PRODUCTS, **REDUCTIONS}
# Opcodes that can compute each element of their result without the others.
SEPARABLE = ELEMENTWISE | PRODUCTS.keys() | {"map", "reduce", "reduce-window"}
OPAQUE = ("custom-call", "while", "conditional")  # opcodes whose elements cannot be traced; XLA itself never fuses them
INLINE = ("fusion", "call", "async-start")  # instructions that run the computation they call as their own
# Opcodes whose result is their operand, unchanged.
TRANSPARENT = RENAMING | {"async-done", "async-update"}
NAMING = frozenset(("tuple", "get-tuple-element", *TRANSPARENT))  # opcodes that may only give values another name
MOVING = OPCODES - WORK.keys() - set(OPAQUE)  # opcodes without arithmetic
# Opcodes with a `dimensions` attribute, on which it depends which elements of the operands are needed.
_ALONG = frozenset(("broadcast", "concatenate", "reduce", "reverse", "transpose"))
# Opcodes whose cost depends on nothing but shapes, called computations and the attributes that `cost_attributes` returns.
PLAIN = ELEMENTWISE | _ALONG | {"bitcast", "constant", "copy", "dot", "iota", "parameter", "reshape", "slice", "tuple"}


class Body(Struct, frozen=True):
    """What a computation does if some of its result is needed: arithmetic, the elements it needs of its parameters, bytes of constants."""

    work: Work
    parameters: tuple[Demand, ...]
    constant_bytes: int
    opcodes: frozenset[str]


class Bodies:
    """The computations of one module on one platform; results are cached by computation and needed elements."""

    def __init__(self, module: HloModule, platform: Platform) -> None:
        self.module, self.platform = module, platform
        self._known: dict[tuple[int, frozenset[tuple[Path, Region]], tuple[int, ...]], Body] = {}
        self._arithmetic: dict[int, Work] = {}
        self._likes: dict[int, int | None] = {}
        self._forms: dict[tuple[object, ...], int] = {}

    def arithmetic(self, number: int) -> Work:
        """The arithmetic of one execution of a computation, all of its result being needed."""
        like = self._first_like(number)
        known = self._arithmetic.get(like)
        if known is None:
            known = self._arithmetic[like] = self.walk(number, {(): WHOLE}).work
        return known

    def like(self, number: int) -> int | None:
        """The first computation of the same cost: with the same instructions on the same shapes. ``None`` if any is not in `PLAIN`.

        A program repeats a fused body for each layer and each weight.
        """
        if number not in self._likes:
            self._likes[number] = self._like(number)
        return self._likes[number]

    def _like(self, number: int) -> int | None:
        computation = self.module.computations[number]
        opcodes = {instruction.opcode for instruction in computation.instructions}
        if not opcodes <= PLAIN:
            return None
        # Only operands of a slice are needed in part, and then the axes matter.
        with_attributes = {"dot", "slice"} | _ALONG if "slice" in opcodes else {"dot"}
        # Readers share equal shapes, and the module keeps them: comparing the objects' ids is faster than comparing their fields.
        form = [
            (instruction.opcode, id(instruction.shape), instruction.operands, instruction.calls and self.called(instruction))
            for instruction in computation.instructions
        ]
        attributes = [cost_attributes(instruction) for instruction in computation.instructions if instruction.opcode in with_attributes]
        return self._forms.setdefault((computation.root, computation.parameters, *form, *attributes), number)

    def called(self, instruction: Instruction) -> tuple[tuple[str, int], ...]:
        """The computations that an instruction calls, each by the number of the first equivalent one."""
        return tuple((call.role, self._first_like(call.computation)) for call in instruction.calls)

    def _first_like(self, number: int) -> int:
        """The first computation of the same cost, or the computation itself."""
        like = self.like(number)
        return number if like is None else like

    def work(self, site: Site) -> Work:
        """The arithmetic of one execution of an instruction; none for one that moves data, unknown for one without a price."""
        opcode = site.instruction.opcode
        rule = WORK.get(opcode)
        if rule is not None:
            return rule(site, self.arithmetic)
        if self.platform == "tpu" and opcode in RELAYOUTS:
            return relayout(site)
        return _opaque(site) if opcode in OPAQUE or opcode not in OPCODES else NO_WORK

    def walk(self, number: int, wanted: Demand, in_place: tuple[int, ...] = ()) -> Body:
        """The body of a computation if ``wanted`` of its root is needed. Updates ``in_place`` are computed without reading their target."""
        if not in_place and all(region.whole for region in wanted.values()):
            number = self._first_like(number)
        key = (number, frozenset(wanted.items()), in_place)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._walk(number, wanted, in_place)
        return known

    def _walk(self, number: int, wanted: Demand, in_place: tuple[int, ...]) -> Body:
        """Follows the needed elements from the root to the parameters, users before producers, and adds up the arithmetic."""
        computation = self.module.computations[number]
        demand: list[dict[Path, Region]] = [{} for _ in computation.instructions]
        done, constants, opcodes = Sum(), 0, set[str]()
        for path, region in wanted.items():
            _want(demand, computation.root, path, region)
        for index in in_place:
            self._do(computation, computation[index], WHOLE, done)
            for operand in updates(computation[index]):
                _want(demand, operand, (), WHOLE)
        for index in reversed(range(len(computation))):
            here = demand[index]
            if not here:
                continue
            instruction = computation.instructions[index]
            opcode = instruction.opcode
            opcodes.add(opcode)
            if opcode == "parameter" or (opcode in NAMING and _passed_on(demand, instruction, here)):
                continue
            if opcode == "constant":
                constants += _bytes_read(instruction.shape, here)
            elif opcode in INLINE and instruction.calls:
                inner = self.walk(instruction.calls[0].computation, here)
                done.add(inner.work.cost, notes=inner.work.notes, products=inner.work.products)
                constants += inner.constant_bytes
                opcodes |= inner.opcodes
                for operand, parts in zip(instruction.operands, inner.parameters, strict=False):
                    for path, region in parts.items():
                        _want(demand, operand, path, region)
            else:
                region = _all_of(instruction.shape, here)
                if (opcode not in MOVING or (self.platform == "tpu" and opcode in RELAYOUTS)) and index not in in_place:
                    self._do(computation, instruction, region, done)
                if region.whole and opcode not in SELECTIVE:
                    for operand in instruction.operands:
                        demand[operand][()] = WHOLE
                else:
                    needed = needs(instruction, computation.operands(instruction), region)
                    for operand, region in zip(instruction.operands, needed, strict=True):
                        _want(demand, operand, (), region)
        return Body(done.work, tuple([demand[index] for index in computation.parameters]), constants, frozenset(opcodes))

    def _do(self, computation: Computation, instruction: Instruction, region: Region, done: Sum) -> None:
        """Adds the arithmetic of the needed part of an instruction, or of all of it if parts cannot be computed alone."""
        shape = instruction.shape
        if instruction.opcode in ELEMENTWISE:
            if per_element := each_element(computation, instruction):
                elements = shape.elements  # raises for a dimension without bound
                done.add_each(per_element, elements if region.whole else count(region, shape.dims))
            return
        site = Site(self.module, computation, instruction, self.platform)
        if instruction.opcode == "reduce-window" and region.boxes and not region.loose:
            work = windows_within(site, self.arithmetic, region.boxes)
        else:
            work = self.work(site)
            if not region.whole and instruction.opcode in SEPARABLE | RELAYOUTS and work is not NO_WORK:
                part, whole = _share(shape, region)
                products = tuple([replace(product, flops=-(-product.flops * part // whole)) for product in work.products])
                work = Work(_scaled(work.cost, part, whole), work.notes, products)
        if work is not NO_WORK:
            done.add(work.cost, notes=work.notes, products=work.products)


def cost_attributes(instruction: Instruction) -> object:
    """The attributes that the cost of a `PLAIN` instruction depends on, if all of its result is needed."""
    if instruction.opcode == "dot":
        return instruction.dot, instruction.word("algorithm"), instruction.operand_precision
    return instruction.slices if instruction.opcode == "slice" else instruction.dimensions


def _opaque(site: Site) -> Work:
    """The arithmetic of a call in a fused body, if its target has a price."""
    call = price_call(site) if site.instruction.opcode == "custom-call" else None
    if call is None:
        what = site.instruction.custom_call_target or site.instruction.opcode
        return Work(Cost.of({UNNAMED_WORK: None}), (f"the cost of {what} is unknown",))
    amounts = tuple((resource, amount) for resource, amount in call.cost.amounts if resource.is_compute)
    return Work(Cost(amounts, frozenset(resource for resource in call.cost.unknown if resource.is_compute)), call.notes, call.products)


def _passed_on(demand: list[dict[Path, Region]], instruction: Instruction, here: Demand) -> bool:
    """Whether an instruction only renames values: then what is needed of it is added to what is needed of its operands."""
    opcode, operands = instruction.opcode, instruction.operands
    if opcode == "tuple":
        for path, region in here.items():
            for operand, rest in ((operands[path[0]], path[1:]),) if path else ((operand, ()) for operand in operands):
                _want(demand, operand, rest, region)
    elif opcode == "get-tuple-element":
        place = instruction.integer("index") or 0
        for path, region in here.items():
            _want(demand, operands[0], (place, *path), region)
    elif instruction.shape.is_tuple:
        for path, region in here.items():
            _want(demand, operands[0], path, region)
    else:
        return False
    return True


def _want(demand: list[dict[Path, Region]], index: int, path: Path, region: Region) -> None:
    here = demand[index]
    if region.whole:
        here[path] = WHOLE
    elif region:
        here[path] = joined(here.get(path, NOTHING), region)


def _all_of(shape: Shape, here: Demand) -> Region:
    """What is needed of an instruction as one region: the union over a tuple's parts if their dimensions are equal, else all of it."""
    if not shape.is_tuple:
        return here.get((), WHOLE)
    dims = {leaf.dims for leaf in shape.leaves if leaf.is_array}
    if len(dims) != 1 or () in here:
        return WHOLE
    union = NOTHING
    for region in here.values():
        union = joined(union, region)
    return union


def _share(shape: Shape, region: Region) -> tuple[int, int]:
    """How many elements a region has, and how many the whole array."""
    dims = result_dims(shape)
    return count(region, dims), prod(dims) or 1


def _scaled(cost: Cost, part: int, whole: int) -> Cost:
    """The fraction ``part / whole`` of a cost, rounded up to whole operations."""
    return Cost(tuple((resource, ceil(-(-amount * part // whole))) for resource, amount in cost.amounts if part), cost.unknown)


def _bytes_read(shape: Shape, here: Demand) -> int:
    """Bytes read of a constant; none for a scalar, which is part of the kernel's code."""
    return bytes_of(shape, count(_all_of(shape, here), shape.dims)) if prod(shape.dims) > 1 else 0


def bytes_of(shape: Shape, elements: int) -> int:
    """Bytes of some elements of an array, with the padding of its tiles in proportion."""
    if not shape.is_array:
        return 0
    bits = (shape.layout.element_bits if shape.layout is not None else 0) or shape.number.bits
    if shape.layout is not None and shape.layout.tiles and shape.elements:
        return -(-elements * shape.padded_elements * bits // (8 * shape.elements))
    return -(-elements * bits // 8)


def updates(instruction: Instruction) -> tuple[int, ...]:
    """The operands that an update in place always reads: all but the arrays that it updates."""
    if instruction.opcode == "dynamic-update-slice":
        return instruction.operands[1:]
    return instruction.operands[_targets(instruction) :]


def _targets(instruction: Instruction) -> int:
    """How many arrays a scatter updates: its operands are n arrays, the indices, and n updates."""
    return (len(instruction.operands) - 1) // 2


def updated(instruction: Instruction) -> tuple[int, ...]:
    """The operands that an update in place writes to; none for other instructions."""
    if instruction.opcode == "dynamic-update-slice":
        return instruction.operands[:1]
    return instruction.operands[: _targets(instruction)] if instruction.opcode == "scatter" else ()


def reads_target(module: HloModule, instruction: Instruction) -> bool:
    """Whether an update in place needs the old values: a scatter that combines them with the new ones."""
    if instruction.opcode != "scatter" or not instruction.called("to_apply"):
        return False
    combine = module.computations[instruction.called("to_apply")[0]]
    first = set(combine.parameters[: _targets(instruction)])
    needed = [combine.root]
    seen: set[int] = set()
    while needed:
        index = needed.pop()
        if index in first:
            return True
        if index not in seen:
            seen.add(index)
            needed += combine[index].operands
    return False
