"""A model of compiler fusion: which kernels a compiler would make of unoptimised HLO or StableHLO.

`fuse` returns an optimised module, as far as costs depend on it: calls are inlined, dead code is removed, equal values are computed once,
and groups of instructions are ``fusion`` instructions with computations of their own, so that they are priced like those of a compiler. It
is an estimate: a compiler considers more than these rules:

1. Elementwise work, conversions, broadcasts, iotas, scalar constants, reshapes, slices, pads, concatenations and transposes are fused into
   the kernel that uses them: each element is computed where it is needed, and is not stored in memory.
2. If several kernels use a value, they become one kernel with several results if they iterate over equally many elements and none depends
   on another: the value is then computed once and its operands are read once. Else each kernel computes the value again, if reading its
   sources moves no more bytes than storing it, with a transcendental counted as a byte: arithmetic is cheaper than memory. Else one kernel
   stores it: if possible one that computes it anyway. Reductions, products and gathers are never repeated.
3. A reduction is fused with its elementwise producers, and with siblings that reduce the same elements in the same way: they read the
   operand once. Its users are in another kernel, because they need the whole reduction first, unless they are elementwise work on the
   result itself, or the reduced dimensions are the minor ones and a row fits on chip (`Rules.row_bytes`): then each row is read, reduced
   and used again in one kernel, as in a softmax or a normalisation.
4. A product (dot, convolution) is a kernel of its own. Its loads convert, transpose, slice and broadcast the operands; its store adds a
   bias, applies an activation, scales, converts and adds a residual, if its result has no other use. How much of this it does depends on
   whether the compiler or a library generates the product: `Rules.loads` and `Rules.stores`.
5. Updates in place (scatter, dynamic-update-slice) are fused with the computation of their updates and indices, but need the updated array
   in memory. A gather is fused into the elementwise work on its result, and elementwise work on its table into the gather, unless the
   gather takes more elements than the table has and would compute some of them twice.
6. Sorts, transforms, random numbers, custom calls, collectives, loops, conditionals, copies and barriers are not fused: their operands and
   results are in memory.
7. A value that is only read after conversion to one narrower format is stored in that format.

No rule increases memory traffic, except for `Rules.copies` (copies of operands that libraries need), and none repeats side effects.
Arithmetic only increases by what rule 2 repeats: it is counted in every kernel that computes it. A compiled module (scheduled, or with
fusions) is returned unchanged, so `fuse` can be applied twice.
"""

from collections.abc import Hashable, Sequence
from heapq import heapify, heappop, heappush

from msgspec import Struct, field
from msgspec.structs import replace

from ..ir.amending import created
from ..ir.module import Call, Computation, HloModule, Instruction
from ..ir.opcodes import PRODUCTS, UPDATES
from ..ir.platforms import Platform
from ..ir.shapes import Shape, tuple_of
from .common_values import with_common_values
from .grouping import grouped
from .groups import Group
from .groups_by_layer import groups_of
from .inlining import computations_that_run, inlined
from .operand_layouts import with_operands_in_order
from .rules import RULES, Rules

__all__ = ["ESTIMATED", "RULES", "Rules", "fuse"]

ESTIMATED = "roofline.fusion"  # the frontend attribute of a module whose kernels this model made
_KINDS = {"loop": "kLoop", "reduce": "kInput", "row": "kCustom", "product": "kOutput", "update": "kInput"}


def fuse(module: HloModule, platform: Platform, rules: Rules | None = None) -> HloModule:
    """The module with the kernels a compiler for this platform would make of it; ``rules`` replaces the platform's own."""
    if module.is_scheduled or "fusion" in module.opcodes:
        return module
    chosen = rules or RULES[platform]
    flat = inlined(module) if chosen.repeats else with_common_values(inlined(module))
    if chosen.copies:
        names = Names({instruction.name for instruction in flat.instructions})
        flat = with_operands_in_order(flat, computations_that_run(flat), names.fresh)
    maker = _Maker(flat)
    for number in computations_that_run(flat):
        computation = flat.computations[number]
        order = _schedule(computation, groups_of(computation, chosen))
        if order is None:  # kernels that wait for each other
            order = _schedule(computation, grouped(computation, chosen, exact=True).groups)
        assert order is not None
        maker.computations[number] = maker.rebuilt(computation, order)
    marked = {**flat.frontend_attributes, ESTIMATED: platform}
    return replace(flat, computations=tuple(maker.computations), frontend_attributes=marked, buffer_assignment=b"")


class Names(Struct):
    """Names that are taken, and new ones."""

    taken: set[str]
    last: dict[str, int] = field(default_factory=dict)

    def fresh(self, name: str) -> str:
        """This name, with a number appended if it is taken."""
        if name not in self.taken:
            self.taken.add(name)
            return name
        unique, number = name, self.last.get(name, 0)
        while unique in self.taken:
            number += 1
            unique = f"{name}.{number}"
        self.last[name] = number
        self.taken.add(unique)
        return unique


class _Plan(Struct, frozen=True):
    """A group as a fusion: its members and results in order, the values from outside, the instruction it is named after, and its body."""

    members: Sequence[int]
    outside: Sequence[int]
    outputs: Sequence[int]
    hero: int
    body: int

    def moved(self, by: int, start: int) -> "_Plan":
        """The same plan ``by`` instructions later; instructions before ``start`` stay the same."""
        parts = (self.members, self.outside, self.outputs, (self.hero,))
        members, outside, outputs, (hero,) = [[index + by if index >= start else index for index in part] for part in parts]
        return _Plan(members, outside, outputs, hero, self.body)


class _Maker:
    """Builds the fused computations with unique names. Equal kernels, such as those of equal layers, call one computation."""

    def __init__(self, module: HloModule) -> None:
        self.module = module
        self.computations = list(module.computations)
        self.bodies: dict[Hashable, int] = {}
        self.plans: dict[int, tuple[int, _Plan]] = {}  # id of the original of copied groups -> distance of a copy from it, and its plan
        self.titles = Names({computation.name for computation in module})
        running = set(computations_that_run(module))
        self.names = Names(
            {instruction.name for number, computation in enumerate(module) if number not in running for instruction in computation}
        )

    def rebuilt(self, computation: Computation, order: Sequence[Group | int]) -> Computation:
        """The computation with a fusion for each group of more than one instruction, in this order."""
        instructions: list[Instruction] = []
        where: dict[int, int] = {}  # old index -> new index, of values that are in memory
        for node in order:
            if isinstance(node, Group) and len(node.members) > 1:
                self.fusion(computation, node, instructions, where)
            else:
                index = node if isinstance(node, int) else next(iter(node.members))
                old = computation.instructions[index]
                where[index] = len(instructions)
                operands = tuple([where[operand] for operand in old.operands])
                control = tuple([where[before] for before in old.control])
                instructions.append(replace(old, name=self.names.fresh(old.name), operands=operands, control=control))
        parameters = tuple(where[parameter] for parameter in computation.parameters)
        return replace(computation, instructions=tuple(instructions), root=where[computation.root], parameters=parameters)

    def fusion(self, computation: Computation, group: Group, instructions: list[Instruction], where: dict[int, int]) -> None:
        """Appends a fusion and, if it has several results, the elements of its tuple."""
        old, plan = computation.instructions, self.plan(computation, group)
        hero, outputs = old[plan.hero], plan.outputs
        operands = tuple([where[value] for value in plan.outside])
        shape = self.computations[plan.body].root_instruction.shape
        name = self.names.fresh(f"{group.kind}_{hero.opcode.replace('-', '_')}_fusion")
        fusion = created(hero, name, "fusion", shape, operands, kind=_KINDS[group.kind], metadata=hero.metadata)
        instructions.append(replace(fusion, calls=(Call("calls", plan.body),)))
        if len(outputs) == 1:
            where[outputs[0]] = len(instructions) - 1
            return
        whole = len(instructions) - 1
        for position, output in enumerate(outputs):
            where[output] = len(instructions)
            element, shape, about = self.names.fresh(f"{name}.{position}"), old[output].shape, old[output].metadata
            instructions.append(created(old[output], element, "get-tuple-element", shape, (whole,), index=position, metadata=about))

    def plan(self, computation: Computation, group: Group) -> "_Plan":
        """The plan of a group, made once for all copies in equal layers; reserves the names of its members."""
        old, copied = computation.instructions, group.copied
        known = None if copied is None else self.plans.get(id(copied.group))  # its copies keep this group alive
        if copied is not None and known is not None:
            plan = known[1].moved(copied.by - known[0], copied.start)
            for member in plan.members:
                self.names.fresh(old[member].name)
            return plan
        members, inside = sorted(group.members), group.members
        outside = tuple(dict.fromkeys([index for member in members for index in old[member].operands if index not in inside]))
        hero = _hero(computation, group, members)
        body = self.body(computation, group, members, outside, old[hero])
        plan = _Plan(members, outside, sorted(group.outputs), hero, body)
        if copied is not None:
            self.plans[id(copied.group)] = copied.by, plan
        return plan

    def body(self, computation: Computation, group: Group, members: list[int], outside: tuple[int, ...], hero: Instruction) -> int:
        """The number of the computation of a fusion; ``outside`` are the values that become its parameters."""
        old, outputs = computation.instructions, sorted(group.outputs)
        where = {value: place for place, value in enumerate((*outside, *members))}
        operands = [tuple([where[operand] for operand in old[member].operands]) for member in members]
        key = (
            tuple([id(old[value].shape) for value in outside]),  # instructions share their shapes
            tuple([_form(old[member]) for member in members]),
            tuple(operands),
            tuple([where[output] for output in outputs]),
        )
        names = [self.names.fresh(old[member].name) for member in members]
        known = self.bodies.get(key)
        if known is not None:
            return known
        instructions: list[Instruction] = []

        def put(name: str, opcode: str, shape: Shape, operands: tuple[int, ...], **attributes: object) -> None:
            instructions.append(created(old[members[0]], self.names.fresh(name), opcode, shape, operands, **attributes))

        for number, taken in enumerate(outside):
            put(f"param_{number}", "parameter", old[taken].shape, (), parameter_number=number)
        for member, name, taking in zip(members, names, operands, strict=True):
            instructions.append(replace(old[member], name=name, operands=taking))
        if len(outputs) > 1:
            shapes = tuple([old[output].shape for output in outputs])
            put("tuple", "tuple", tuple_of(shapes), tuple([where[output] for output in outputs]))
        root = where[outputs[0]] if len(outputs) == 1 else len(instructions) - 1
        title = self.titles.fresh(f"fused_{hero.opcode.replace('-', '_')}")
        self.computations.append(
            Computation(name=title, instructions=tuple(instructions), root=root, parameters=tuple(range(len(outside))))
        )
        self.bodies[key] = len(self.computations) - 1
        return len(self.computations) - 1


def _form(instruction: Instruction) -> Hashable:
    """A key that is equal for instructions that do the same to their operands."""
    attributes = instruction.dialect.unread(instruction.raw)
    return instruction.opcode, id(instruction.shape), instruction.calls, id(instruction) if attributes is None else attributes


def _hero(computation: Computation, group: Group, members: list[int]) -> int:
    """The instruction a kernel is named after: its product or update, else its first result."""
    if group.kind in ("product", "update"):
        for member in members:
            if computation[member].opcode in PRODUCTS or computation[member].opcode in UPDATES:
                return member
    return min(group.outputs)


def _schedule(computation: Computation, groups: tuple[Group, ...]) -> list[Group | int] | None:
    """Kernels and unfused instructions, each after those it depends on, and otherwise in the program's order.

    ``None`` if some kernels depend on each other.
    """
    instructions = computation.instructions
    inside = set().union(*[group.members for group in groups])
    nodes: list[Group | int] = [*groups, *(index for index in range(len(instructions)) if index not in inside)]
    writer: dict[int, int] = {}  # value -> number of the node that computes it
    for number, node in enumerate(nodes):
        for output in node.outputs if isinstance(node, Group) else (node,):
            writer[output] = number
    leads: list[list[int]] = [[] for _ in nodes]
    missing: list[int] = []  # per node, how many nodes it depends on that are not scheduled yet
    for number, node in enumerate(nodes):
        if isinstance(node, Group):  # its members have no control dependencies
            read = set().union(*[instructions[member].operands for member in node.members]) - node.members
        else:
            read = {*instructions[node].operands, *instructions[node].control}
        needs = {writer[value] for value in read}
        missing.append(len(needs))
        for before in needs:
            leads[before].append(number)
    parameters = set(computation.parameters)
    lasts = [max(node.outputs) if isinstance(node, Group) else node for node in nodes]
    ready = [(lasts[number] not in parameters, lasts[number], number) for number, count in enumerate(missing) if not count]
    heapify(ready)
    order: list[Group | int] = []
    while ready:
        *_, number = heappop(ready)
        order.append(nodes[number])
        for after in leads[number]:
            missing[after] -= 1
            if not missing[after]:
                heappush(ready, (lasts[after] not in parameters, lasts[after], after))
    return order if len(order) == len(nodes) else None
