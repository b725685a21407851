"""The program of one device of an unpartitioned program: shapes split by the shardings, with the collectives that this needs.

Each operation runs on the parts that its result's sharding requires. Operands with another sharding are resharded first (all-gather,
all-to-all; a slice if the device has the whole array). A sum over a split dimension gives each device a partial sum, which an all-reduce
completes, or a reduce-scatter if the result is split along the same axes. An operation without sharding runs whole on every device. One
that cannot be split in this model counts as an even share over its devices.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import chain

from msgspec import Struct, field
from msgspec.structs import replace

from ...errors import SourceError
from ...graph.axes import Factors, IndexMap
from ..fusion.inlining import computations_that_run, inlined
from ..ir.amending import amended, created, resized
from ..ir.attributes import ReplicaGroups, SliceRange
from ..ir.axes import index_map
from ..ir.module import Computation, HloModule, Instruction
from ..ir.opcodes import IDENTITIES, RUNNERS
from ..ir.rewriting import Rewriting
from ..ir.shapes import Shape
from ..ir.shardings import MANUAL, MESHES, Axes, Sharding, axes_of, device_count, meshes_of, parse_shardings, ways
from ..price.collectives import COLLECTIVES
from ..price.pricing import EVEN_SHARE
from .propagation import FULL_TO_LOCAL, Shardings, factors_of, is_annotation, joined, propagated


class Partitioned(Struct, frozen=True, kw_only=True):
    """The program of one device: how many values were annotated, the collectives added, the operations whose even share is assumed."""

    module: HloModule
    devices: int
    annotated: int
    exchanges: Counter[str]
    assumed: Counter[str]


def devices_of(module: HloModule) -> int:
    """How many devices a program is for: by its header, or else the most that a sharding in it names."""
    if module.num_partitions > 1:
        return module.num_partitions
    meshes = meshes_of(module.frontend_attributes.get(MESHES, ""))
    texts = {*chain(*map(_texts, _distinct_instructions(module)))} - {""}
    return max((device_count(text, meshes) for text in texts), default=1)


def _distinct_instructions(module: HloModule) -> Iterator[Instruction]:
    """The instructions of a module, one for each opcode and text of attributes."""
    seen: set[tuple[str, object]] = set()
    for instruction in module.instructions:
        attributes = instruction.dialect.unread(instruction.raw)
        key = (instruction.opcode, attributes)
        if key not in seen:
            if attributes is not None:
                seen.add(key)
            yield instruction


def _texts(instruction: Instruction) -> tuple[str, ...]:
    if instruction.opcode == "call":
        return instruction.word("sharding"), instruction.word("in_shardings")
    if instruction.opcode == "custom-call":
        return instruction.word("sharding"), *(
            instruction.frontend_attributes.get(name, "") for name in ("xla.sdy.sharding", "xla.sdy.in_shardings")
        )
    return (instruction.word("sharding"),)


def is_written_for_one_device(module: HloModule) -> bool:
    """Whether a program has collectives of its own and no unpartitioned shapes: it is partitioned already."""
    instructions = [*module.instructions]
    enters = any(instruction.opcode == "custom-call" and instruction.custom_call_target in MANUAL for instruction in instructions)
    has_regions = enters or any(instruction.opcode == "call" and instruction.word("in_shardings") for instruction in instructions)
    return not has_regions and any(instruction.opcode in COLLECTIVES for instruction in instructions)


def shared_evenly(module: HloModule, devices: int) -> HloModule:
    """The program with each kernel annotated as an even share of the work of ``devices`` devices."""
    computations = list(module.computations)
    for number in computations_that_run(module):
        marked = tuple(
            instruction if instruction.opcode in RUNNERS else amended(instruction, **{EVEN_SHARE: devices})
            for instruction in computations[number].instructions
        )
        computations[number] = replace(computations[number], instructions=marked)
    return replace(module, computations=tuple(computations))


def partitioned(module: HloModule) -> Partitioned:
    """The program of one device of an uncompiled program."""
    try:
        return _partitioned(module, devices_of(module))
    except (IndexError, KeyError, ValueError) as error:
        raise SourceError(f"{module.name}: its shardings do not fit its shapes ({error}); is the file damaged?") from None


def _partitioned(module: HloModule, devices: int) -> Partitioned:
    flat = inlined(module, keeps_shardings=True)
    shardings = propagated(flat)
    numbers = computations_that_run(flat)
    _make_consistent(flat, numbers, shardings)
    tally = _Tally()
    computations = list(flat.computations)
    for number in numbers:
        computations[number] = _Part(flat, number, shardings, devices, tally).written()
    part = replace(flat, computations=tuple(computations), num_partitions=devices)
    return Partitioned(
        module=part, devices=devices, annotated=shardings.annotated, exchanges=Counter(tally.exchanges), assumed=Counter(tally.assumed)
    )


class _Tally(Struct):
    """Counts of added collectives and assumed operations, and the names in use."""

    exchanges: Counter[str] = field(default_factory=Counter)
    assumed: Counter[str] = field(default_factory=Counter)
    names: Counter[str] = field(default_factory=Counter)


def _make_consistent(module: HloModule, numbers: tuple[int, ...], shardings: Shardings) -> None:
    """Makes shardings consistent: the state of a loop, and a branch's arguments and results, have one sharding everywhere."""
    for number in numbers:
        for index, instruction in enumerate(module.computations[number].instructions):
            if instruction.opcode == "while":
                _make_loop_consistent(module, number, index, instruction, shardings)
            elif instruction.opcode == "conditional":
                _make_branches_consistent(module, number, index, instruction, shardings)


def _make_loop_consistent(module: HloModule, number: int, index: int, loop: Instruction, shardings: Shardings) -> None:
    called = [call.computation for call in loop.calls]
    states = [(body, module.computations[body].parameters[0]) for body in called]
    results = [(body, module.computations[body].root) for body in loop.called("body")]
    for part in range(len(loop.shape.leaves)):
        sharding = shardings.known[(*states[0], part)]
        for place in ((number, loop.operands[0]), (number, index), *states, *results):
            shardings.known[(*place, part)] = sharding


def _make_branches_consistent(module: HloModule, number: int, index: int, choice: Instruction, shardings: Shardings) -> None:
    branches = choice.called("branch_computations")
    for called in branches:
        for part in range(len(choice.shape.leaves)):
            shardings.known[called, module.computations[called].root, part] = shardings.known[number, index, part]
    for operand, called in zip(choice.operands[1:], branches, strict=False):
        for part in range(len(module.computations[number][operand].shape.leaves)):
            shardings.known[called, module.computations[called].parameters[0], part] = shardings.known[number, operand, part]


class _Part(Rewriting):
    """Rewrites one computation for one device."""

    def __init__(self, module: HloModule, number: int, shardings: Shardings, devices: int, tally: _Tally) -> None:
        super().__init__(module.computations[number])
        self.module, self.number, self.shardings, self.devices, self.tally = module, number, shardings, devices, tally
        self.exchanged: dict[tuple[int, Sharding], int] = {}
        self.meshes = meshes_of(module.frontend_attributes.get(MESHES, ""))

    def written(self) -> Computation:
        for index, instruction in enumerate(self.old.instructions):
            self.where[index] = self._write(index, instruction)
        return self.finished()

    def _write(self, index: int, instruction: Instruction) -> int:
        target = instruction.custom_call_target if instruction.opcode == "custom-call" else ""
        if instruction.opcode == "parameter":
            return self._put(instruction, (), self._local(index))
        if is_annotation(instruction) and self.old[instruction.operands[0]].shape.is_array:
            return self._operand(instruction.operands[0], self._sharding(index))
        if target in MANUAL:
            return self._crossed(index, instruction)
        if instruction.opcode == "call" and instruction.word("in_shardings"):
            return self._put(instruction, self._region_operands(instruction, instruction.word("in_shardings")), self._local(index))
        if instruction.opcode == "tuple":
            return self._tuple(index, instruction)
        if instruction.opcode == "get-tuple-element":
            whole = self.where[instruction.operands[0]]
            return self._put(instruction, (whole,), self.new[whole].shape.parts[instruction.integer("index") or 0])
        if instruction.opcode in RUNNERS | IDENTITIES or instruction.opcode == "after-all":
            return self._put(instruction, self._as_they_are(instruction), self._local(index))
        return self._operation(index, instruction)

    def _operation(self, index: int, instruction: Instruction) -> int:
        mapping = index_map(instruction, self.old.operands(instruction))
        split = [self._sharding(operand, part) for operand in instruction.operands for part in range(len(self.old[operand].shape.leaves))]
        split += [self._sharding(index, part) for part in range(len(instruction.shape.leaves))]
        if not any(map(axes_of, split)):
            return self._put(instruction, self._as_they_are(instruction), instruction.shape)
        if mapping is None or any(mapping.whole.intersection(factors) for factors in self._factors(index, instruction, mapping)):
            return self._assumed(index, instruction, ways(tuple({*chain(*map(axes_of, split))})))
        return self._by_rule(index, instruction, mapping)

    def _factors(self, index: int, instruction: Instruction, mapping: IndexMap) -> list[dict[int, Axes]]:
        """The axes of each factor, for every operand, then for every result."""
        factors = [
            factors_of(self._sharding(operand), dims, mapping) for operand, dims in zip(instruction.operands, mapping.operands, strict=True)
        ]
        return [*factors, *(factors_of(self._sharding(index, part), dims, mapping) for part, dims in enumerate(mapping.results))]

    def _by_rule(self, index: int, instruction: Instruction, mapping: IndexMap) -> int:
        """An operation on one device's parts, with operands resharded before and partial sums completed after."""
        factors = self._factors(index, instruction, mapping)
        taken, given = factors[: len(instruction.operands)], factors[len(instruction.operands) :]
        chosen: dict[int, Axes] = {}
        added: list[tuple[int, int]] = []
        for factor in sorted(mapping.summed):
            holders = [axes for axes, dims in zip(taken, mapping.operands, strict=True) if factor in chain(*dims)]
            chosen[factor] = _summed(factor, holders)
            added += chosen[factor]
        for each_given in given:
            for factor, axes in each_given.items():
                chosen.setdefault(factor, tuple(axis for axis in axes if axis not in added))

        def sharding(array: list[Factors]) -> Sharding:
            return tuple(joined(chosen, axis) for axis in array)

        operands = tuple(
            self._operand(operand, sharding(dims)) for operand, dims in zip(instruction.operands, mapping.operands, strict=True)
        )
        before = [*map(sharding, mapping.results)]
        shape = _with_leaves(
            instruction.shape, [local_shape(leaf, axes) for leaf, axes in zip(instruction.shape.leaves, before, strict=True)]
        )
        local = instruction
        if operands:
            local = resized(instruction, self.old[instruction.operands[0]].shape, self.new[operands[0]].shape, shape)
        place = self._put(local, operands, shape)
        if instruction.shape.is_array:
            return self._completed(instruction, place, instruction.shape, before[0], tuple(added), self._sharding(index))
        parts = []
        for part, leaf in enumerate(instruction.shape.leaves):
            element = self._new(instruction, "get-tuple-element", self.new[place].shape.parts[part], (place,), {"index": part})
            parts.append(self._completed(instruction, element, leaf, before[part], tuple(added), self._sharding(index, part)))
        return self._new(instruction, "tuple", _with_leaves(instruction.shape, [self.new[part].shape for part in parts]), tuple(parts), {})

    def _completed(self, instruction: Instruction, index: int, full: Shape, before: Sharding, added: Axes, wanted: Sharding) -> int:
        """A result summed over the axes ``added`` along which its terms are split, in the sharding ``wanted``."""
        kept = tuple(axis for axis in added if axis in axes_of(wanted))
        if kept:
            after = tuple(tuple(axis for axis in axes if axis in own or axis in kept) for own, axes in zip(before, wanted, strict=True))
            index = self._exchange(instruction, "reduce-scatter", local_shape(full, after), index, kept)
            before = after
        if rest := tuple(axis for axis in added if axis not in kept):
            index = self._exchange(instruction, "all-reduce", self.new[index].shape, index, rest)
        return self._resharded(instruction, index, full, before, wanted)

    def _operand(self, index: int, wanted: Sharding) -> int:
        """The new index of an operand in a sharding."""
        own = self._sharding(index)
        if own == wanted or not self.old[index].shape.is_array:
            return self.where[index]
        if (index, wanted) not in self.exchanged:
            instruction = self.old[index]
            number = self._made_again(index, wanted)
            self.exchanged[index, wanted] = (
                self._resharded(instruction, self.where[index], instruction.shape, own, wanted) if number is None else number
            )
        return self.exchanged[index, wanted]

    def _made_again(self, index: int, wanted: Sharding) -> int | None:
        """A value made of scalars alone, computed again in another sharding without communication; ``None`` for other values."""
        instruction = self.old[index]
        if instruction.opcode in ("constant", "iota") or (
            instruction.opcode == "broadcast" and not self.old[instruction.operands[0]].shape.dims
        ):
            return self._put(instruction, self._as_they_are(instruction), local_shape(instruction.shape, wanted))
        if instruction.opcode == "convert" and (operand := self._made_again(instruction.operands[0], wanted)) is not None:
            return self._put(instruction, (operand,), local_shape(instruction.shape, wanted))
        return None

    def _resharded(self, instruction: Instruction, index: int, full: Shape, own: Sharding, wanted: Sharding) -> int:
        """A value in another sharding: sliced if the device has it all, exchanged if an axis moves to another dimension, else gathered."""
        own_axes, wanted_axes = axes_of(own), axes_of(wanted)
        if sliced := [axis for axis in wanted_axes if axis not in own_axes]:
            own = tuple((*axes, *(axis for axis in goal if axis in sliced)) for axes, goal in zip(own, wanted, strict=True))
            ranges = tuple(SliceRange(0, size) for size in local_shape(full, own).dims)
            index = self._new(instruction, "slice", local_shape(full, own), (index,), {"slice": ranges})
        moved = [axis for axes, goal in zip(own, wanted, strict=True) for axis in axes if axis not in goal and axis in wanted_axes]
        if moved:
            own = tuple(
                (*(axis for axis in axes if axis not in moved), *(axis for axis in goal if axis in moved))
                for axes, goal in zip(own, wanted, strict=True)
            )
            index = self._exchange(instruction, "all-to-all", local_shape(full, own), index, tuple(moved))
        if gathered := tuple(axis for axis in own_axes if axis not in wanted_axes):
            index = self._exchange(instruction, "all-gather", local_shape(full, wanted), index, gathered)
        return index

    def _exchange(self, instruction: Instruction, kind: str, shape: Shape, operand: int, axes: Axes) -> int:
        size = ways(axes)
        self.tally.exchanges[kind] += 1
        return self._new(instruction, kind, shape, (operand,), {"replica_groups": ReplicaGroups(max(1, self.devices // size), size)})

    def _assumed(self, index: int, instruction: Instruction, devices: int) -> int:
        """An operation in full shapes, annotated as an even share; its operands and results are viewed in full shapes at no cost."""
        self.tally.assumed[instruction.custom_call_target or instruction.opcode] += 1
        operands = tuple(self._viewed(self.old[operand], self.where[operand], self.old[operand].shape) for operand in instruction.operands)
        place = self._put(amended(instruction, **{EVEN_SHARE: devices}), operands, instruction.shape)
        return self._viewed(instruction, place, self._local(index))

    def _crossed(self, index: int, instruction: Instruction) -> int:
        """Values that enter or leave a region written for one device."""
        if instruction.custom_call_target not in FULL_TO_LOCAL:
            place = (
                self.where[instruction.operands[0]]
                if len(instruction.operands) == 1
                else self._put(instruction, self._as_they_are(instruction), self._local(index))
            )
            return self._viewed(instruction, place, self._local(index)) if len(instruction.operands) == 1 else place
        written = instruction.frontend_attributes.get("xla.sdy.in_shardings", "")
        operands = self._region_operands(instruction, written) if written else self._as_they_are(instruction)
        if instruction.shape.is_array:
            return self._viewed(instruction, operands[0], instruction.shape)
        viewed = tuple(self._viewed(instruction, number, part) for number, part in zip(operands, instruction.shape.parts, strict=True))
        return self._new(instruction, "tuple", instruction.shape, viewed, {})

    def _viewed(self, instruction: Instruction, index: int, shape: Shape) -> int:
        """A value viewed in another shape at no cost, as at the borders of regions written for one device."""
        if self.new[index].shape == shape:
            return index
        return self._new(instruction, "custom-call", shape, (index,), {"custom_call_target": FULL_TO_LOCAL[0]})

    def _region_operands(self, instruction: Instruction, text: str) -> tuple[int, ...]:
        """The operands of a region, in the shardings that it requires."""
        ranks = tuple(self.old[operand].shape.rank for operand in instruction.operands)
        wanted = parse_shardings(text, ranks, self.meshes)
        pairs = zip(instruction.operands, wanted, strict=True)
        return tuple(self.where[operand] if sharding is None else self._operand(operand, sharding) for operand, sharding in pairs)

    def _tuple(self, index: int, instruction: Instruction) -> int:
        operands, part = [], 0
        for operand in instruction.operands:
            operands.append(
                self._operand(operand, self._sharding(index, part)) if self.old[operand].shape.is_array else self.where[operand]
            )
            part += len(self.old[operand].shape.leaves)
        shape = replace(instruction.shape, parts=tuple(self.new[operand].shape for operand in operands))
        return self._put(instruction, tuple(operands), shape)

    def _as_they_are(self, instruction: Instruction) -> tuple[int, ...]:
        return tuple(self.where[operand] for operand in instruction.operands)

    def _sharding(self, index: int, part: int = 0) -> Sharding:
        return self.shardings.known[self.number, index, part] if self.old[index].shape.parts or not part else ()

    def _local(self, index: int) -> Shape:
        """The shape of one device's part of a value."""
        shape = self.old[index].shape
        return _with_leaves(shape, [local_shape(leaf, self._sharding(index, part)) for part, leaf in enumerate(shape.leaves)])

    def _new(self, instruction: Instruction, opcode: str, shape: Shape, operands: tuple[int, ...], raw: dict[str, object]) -> int:
        """Adds a new instruction, named after the one it is for."""
        name = f"{instruction.name}.{opcode}"
        self.tally.names[name] += 1
        unique = name if self.tally.names[name] == 1 else f"{name}.{self.tally.names[name] - 1}"
        return self.put(created(instruction, unique, opcode, shape, operands, **{**raw, "metadata": instruction.metadata}))

    def _put(self, instruction: Instruction, operands: tuple[int, ...], shape: Shape) -> int:
        return self.put(replace(instruction, operands=operands, shape=shape, control=()))


def _summed(factor: int, holders: list[dict[int, Axes]]) -> Axes:
    """The axes along which a sum is split: those that split it in every operand. If only one operand is split, XLA gathers it."""
    splits = [holder.get(factor, ()) for holder in holders]
    return tuple(axis for axis in splits[0] if all(axis in holder for holder in splits)) if splits else ()


def local_shape(shape: Shape, sharding: Sharding) -> Shape:
    """The shape of one device's part; sizes that do not divide are rounded up to the largest part."""
    if not any(sharding):
        return shape
    dims = tuple(-(-size // ways(axes)) if size > 0 else size for size, axes in zip(shape.dims, sharding, strict=True))
    return replace(shape, dims=dims)


def _with_leaves(shape: Shape, leaves: list[Shape]) -> Shape:
    """A shape with the arrays in it replaced, in order."""
    left = iter(leaves)

    def rebuilt(part: Shape) -> Shape:
        return replace(part, parts=tuple(map(rebuilt, part.parts))) if part.is_tuple else next(left)

    return rebuilt(shape)
