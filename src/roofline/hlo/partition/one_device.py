"""The program of one device of an unpartitioned program: shapes split by the shardings, with the collectives that this needs.

Each operation runs on the parts that its result's sharding requires. Operands with another sharding are resharded first (all-gather,
all-to-all; a slice if the device has the whole array). A sum over a split dimension gives each device a partial sum, which an all-reduce
completes, or a reduce-scatter if the result is split along the same axes. An operation without sharding runs whole on every device. One
that cannot be split in this model counts as an even share over its devices.
"""

from collections import Counter
from collections.abc import Iterator

from msgspec import Struct, field
from msgspec.structs import replace

from ...errors import SourceError
from ...graph.axes import IndexMap
from ..fusion.inlining import computations_that_run, inlined
from ..ir.amending import MappedDialect, amended
from ..ir.attributes import ReplicaGroups, SliceRange
from ..ir.axes import index_map
from ..ir.module import Computation, HloModule, Instruction
from ..ir.opcodes import IDENTITIES, RUNNERS
from ..ir.shapes import Shape
from ..price.collectives import COLLECTIVES
from ..price.pricing import EVEN_SHARE
from .propagation import FULL_TO_LOCAL, Shardings, factors_of, is_annotation, joined, propagated
from .shardings import MANUAL, MESHES, Axes, Sharding, axes_of, device_count, meshes_of, parse_shardings, ways


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
    texts = {text for one in _distinct_instructions(module) for text in _texts(one) if text}
    return max((device_count(text, meshes) for text in texts), default=1)


def _distinct_instructions(module: HloModule) -> Iterator[Instruction]:
    """The instructions of a module, one for each opcode and text of attributes."""
    seen: set[tuple[str, object]] = set()
    for each in module.computations:
        for one in each.instructions:
            attributes = one.dialect.unread(one.raw)
            key = (one.opcode, attributes)
            if key not in seen:
                if attributes is not None:
                    seen.add(key)
                yield one


def _texts(one: Instruction) -> tuple[str, ...]:
    if one.opcode == "call":
        return one.word("sharding"), one.word("in_shardings")
    if one.opcode == "custom-call":
        return one.word("sharding"), *(one.frontend_attributes.get(name, "") for name in ("xla.sdy.sharding", "xla.sdy.in_shardings"))
    return (one.word("sharding"),)


def is_written_for_one_device(module: HloModule) -> bool:
    """Whether a program has collectives of its own and no unpartitioned shapes: it is partitioned already."""
    instructions = [one for each in module for one in each.instructions]
    enters = any(one.opcode == "custom-call" and one.custom_call_target in MANUAL for one in instructions)
    has_regions = enters or any(one.opcode == "call" and one.word("in_shardings") for one in instructions)
    return not has_regions and any(one.opcode in COLLECTIVES for one in instructions)


def shared_evenly(module: HloModule, devices: int) -> HloModule:
    """The program with each kernel annotated as an even share of the work of ``devices`` devices."""
    computations = list(module.computations)
    for number in computations_that_run(module):
        marked = tuple(one if one.opcode in RUNNERS else amended(one, **{EVEN_SHARE: devices}) for one in computations[number].instructions)
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
        for index, one in enumerate(module.computations[number].instructions):
            if one.opcode == "while":
                _make_loop_consistent(module, number, index, one, shardings)
            elif one.opcode == "conditional":
                _make_branches_consistent(module, number, index, one, shardings)


def _make_loop_consistent(module: HloModule, number: int, index: int, loop: Instruction, shardings: Shardings) -> None:
    called = [call.computation for call in loop.calls]
    states = [(each, module.computations[each].parameters[0]) for each in called]
    results = [(each, module.computations[each].root) for each in loop.called("body")]
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


class _Part:
    """Rewrites one computation for one device."""

    def __init__(self, module: HloModule, number: int, shardings: Shardings, devices: int, tally: _Tally) -> None:
        self.module, self.number, self.shardings, self.devices, self.tally = module, number, shardings, devices, tally
        self.old = module.computations[number]
        self.new: list[Instruction] = []
        self.where: dict[int, int] = {}
        self.exchanged: dict[tuple[int, Sharding], int] = {}
        self.meshes = meshes_of(module.frontend_attributes.get(MESHES, ""))

    def written(self) -> Computation:
        for index, one in enumerate(self.old.instructions):
            self.where[index] = self._write(index, one)
        parameters = tuple(self.where[parameter] for parameter in self.old.parameters)
        return replace(self.old, instructions=tuple(self.new), root=self.where[self.old.root], parameters=parameters)

    def _write(self, index: int, one: Instruction) -> int:
        target = one.custom_call_target if one.opcode == "custom-call" else ""
        if one.opcode == "parameter":
            return self._put(one, (), self._local(index))
        if is_annotation(one) and self.old[one.operands[0]].shape.is_array:
            return self._operand(one.operands[0], self._sharding(index))
        if target in MANUAL:
            return self._crossed(index, one)
        if one.opcode == "call" and one.word("in_shardings"):
            return self._put(one, self._region_operands(one, one.word("in_shardings")), self._local(index))
        if one.opcode == "tuple":
            return self._tuple(index, one)
        if one.opcode == "get-tuple-element":
            whole = self.where[one.operands[0]]
            return self._put(one, (whole,), self.new[whole].shape.parts[one.integer("index") or 0])
        if one.opcode in RUNNERS | IDENTITIES or one.opcode == "after-all":
            return self._put(one, self._as_they_are(one), self._local(index))
        return self._operation(index, one)

    def _operation(self, index: int, one: Instruction) -> int:
        mapping = index_map(one, self.old.operands(one))
        split = [self._sharding(operand, part) for operand in one.operands for part in range(len(self.old[operand].shape.leaves))]
        split += [self._sharding(index, part) for part in range(len(one.shape.leaves))]
        if not any(map(axes_of, split)):
            return self._put(one, self._as_they_are(one), one.shape)
        if mapping is None or any(mapping.whole.intersection(factors) for factors in self._factors(index, one, mapping)):
            return self._assumed(index, one, ways(tuple({axis for each in split for axis in axes_of(each)})))
        return self._by_rule(index, one, mapping)

    def _factors(self, index: int, one: Instruction, mapping: IndexMap) -> list[dict[int, Axes]]:
        """The axes of each factor, for every operand, then for every result."""
        found = [factors_of(self._sharding(operand), dims, mapping) for operand, dims in zip(one.operands, mapping.operands, strict=True)]
        return [*found, *(factors_of(self._sharding(index, part), dims, mapping) for part, dims in enumerate(mapping.results))]

    def _by_rule(self, index: int, one: Instruction, mapping: IndexMap) -> int:
        """An operation on one device's parts, with operands resharded before and partial sums completed after."""
        factors = self._factors(index, one, mapping)
        taken, given = factors[: len(one.operands)], factors[len(one.operands) :]
        chosen: dict[int, Axes] = {}
        added: list[tuple[int, int]] = []
        for factor in sorted(mapping.summed):
            holders = [axes for axes, dims in zip(taken, mapping.operands, strict=True) if any(factor in each for each in dims)]
            chosen[factor] = _summed(factor, holders)
            added += chosen[factor]
        for each_given in given:
            for factor, axes in each_given.items():
                chosen.setdefault(factor, tuple(axis for axis in axes if axis not in added))
        operands = tuple(
            self._operand(operand, tuple(joined(chosen, each) for each in dims))
            for operand, dims in zip(one.operands, mapping.operands, strict=True)
        )
        before = [tuple(joined(chosen, each) for each in dims) for dims in mapping.results]
        shape = _with_leaves(one.shape, [local_shape(leaf, each) for leaf, each in zip(one.shape.leaves, before, strict=True)])
        made = self._put(self._fitted(one, [self.new[operand].shape for operand in operands], shape), operands, shape)
        if one.shape.is_array:
            return self._completed(one, made, one.shape, before[0], tuple(added), self._sharding(index))
        parts = []
        for part, leaf in enumerate(one.shape.leaves):
            element = self._new(one, "get-tuple-element", self.new[made].shape.parts[part], (made,), {"index": part})
            parts.append(self._completed(one, element, leaf, before[part], tuple(added), self._sharding(index, part)))
        return self._new(one, "tuple", _with_leaves(one.shape, [self.new[part].shape for part in parts]), tuple(parts), {})

    def _fitted(self, one: Instruction, operands: list[Shape], shape: Shape) -> Instruction:
        """An operation with the sizes in its attributes changed to those of one device's parts."""
        if one.opcode == "slice":
            full = self.old[one.operands[0]].shape.dims
            ranges = [
                SliceRange(0, size) if size != whole else each for each, size, whole in zip(one.slices, operands[0].dims, full, strict=True)
            ]
            return amended(one, slice=tuple(ranges))
        if one.opcode == "dynamic-slice":
            return amended(one, dynamic_slice_sizes=shape.dims)
        if one.opcode == "gather":
            full = self.old[one.operands[0]].shape.dims
            sizes = zip(one.integers("slice_sizes"), operands[0].dims, full, strict=True)
            return amended(one, slice_sizes=tuple(part if size == whole else min(size, part) for size, part, whole in sizes))
        return one

    def _completed(self, one: Instruction, made: int, full: Shape, before: Sharding, added: Axes, wanted: Sharding) -> int:
        """A result summed over the axes ``added`` along which its terms are split, in the sharding ``wanted``."""
        kept = tuple(axis for axis in added if axis in axes_of(wanted))
        if kept:
            after = tuple(tuple(axis for axis in axes if axis in own or axis in kept) for own, axes in zip(before, wanted, strict=True))
            made = self._exchange(one, "reduce-scatter", local_shape(full, after), made, kept)
            before = after
        if rest := tuple(axis for axis in added if axis not in kept):
            made = self._exchange(one, "all-reduce", self.new[made].shape, made, rest)
        return self._resharded(one, made, full, before, wanted)

    def _operand(self, index: int, wanted: Sharding) -> int:
        """The new index of an operand in a sharding."""
        own = self._sharding(index)
        if own == wanted or not self.old[index].shape.is_array:
            return self.where[index]
        if (index, wanted) not in self.exchanged:
            one = self.old[index]
            made = self._made_again(index, wanted)
            self.exchanged[index, wanted] = self._resharded(one, self.where[index], one.shape, own, wanted) if made is None else made
        return self.exchanged[index, wanted]

    def _made_again(self, index: int, wanted: Sharding) -> int | None:
        """A value made of scalars alone, computed again in another sharding without communication; ``None`` for other values."""
        one = self.old[index]
        if one.opcode in ("constant", "iota") or (one.opcode == "broadcast" and not self.old[one.operands[0]].shape.dims):
            return self._put(one, self._as_they_are(one), local_shape(one.shape, wanted))
        if one.opcode == "convert" and (operand := self._made_again(one.operands[0], wanted)) is not None:
            return self._put(one, (operand,), local_shape(one.shape, wanted))
        return None

    def _resharded(self, one: Instruction, made: int, full: Shape, own: Sharding, wanted: Sharding) -> int:
        """A value in another sharding: sliced if the device has it all, exchanged if an axis moves to another dimension, else gathered."""
        mine, theirs = axes_of(own), axes_of(wanted)
        if sliced := [axis for axis in theirs if axis not in mine]:
            own = tuple((*axes, *(axis for axis in goal if axis in sliced)) for axes, goal in zip(own, wanted, strict=True))
            ranges = tuple(SliceRange(0, size) for size in local_shape(full, own).dims)
            made = self._new(one, "slice", local_shape(full, own), (made,), {"slice": ranges})
        moved = [axis for axes, goal in zip(own, wanted, strict=True) for axis in axes if axis not in goal and axis in theirs]
        if moved:
            own = tuple(
                (*(axis for axis in axes if axis not in moved), *(axis for axis in goal if axis in moved))
                for axes, goal in zip(own, wanted, strict=True)
            )
            made = self._exchange(one, "all-to-all", local_shape(full, own), made, tuple(moved))
        if gathered := tuple(axis for axis in mine if axis not in theirs):
            made = self._exchange(one, "all-gather", local_shape(full, wanted), made, gathered)
        return made

    def _exchange(self, one: Instruction, kind: str, shape: Shape, operand: int, axes: Axes) -> int:
        size = ways(axes)
        self.tally.exchanges[kind] += 1
        return self._new(one, kind, shape, (operand,), {"replica_groups": ReplicaGroups(max(1, self.devices // size), size)})

    def _assumed(self, index: int, one: Instruction, devices: int) -> int:
        """An operation in full shapes, annotated as an even share; its operands and results are viewed in full shapes at no cost."""
        self.tally.assumed[one.custom_call_target or one.opcode] += 1
        operands = tuple(self._viewed(self.old[operand], self.where[operand], self.old[operand].shape) for operand in one.operands)
        made = self._put(amended(one, **{EVEN_SHARE: devices}), operands, one.shape)
        return self._viewed(one, made, self._local(index))

    def _crossed(self, index: int, one: Instruction) -> int:
        """Values that enter or leave a region written for one device."""
        if one.custom_call_target not in FULL_TO_LOCAL:
            made = self.where[one.operands[0]] if len(one.operands) == 1 else self._put(one, self._as_they_are(one), self._local(index))
            return self._viewed(one, made, self._local(index)) if len(one.operands) == 1 else made
        written = one.frontend_attributes.get("xla.sdy.in_shardings", "")
        operands = self._region_operands(one, written) if written else self._as_they_are(one)
        if one.shape.is_array:
            return self._viewed(one, operands[0], one.shape)
        viewed = tuple(self._viewed(one, made, part) for made, part in zip(operands, one.shape.parts, strict=True))
        return self._new(one, "tuple", one.shape, viewed, {})

    def _viewed(self, one: Instruction, made: int, shape: Shape) -> int:
        """A value viewed in another shape at no cost, as at the borders of regions written for one device."""
        if self.new[made].shape == shape:
            return made
        return self._new(one, "custom-call", shape, (made,), {"custom_call_target": FULL_TO_LOCAL[0]})

    def _region_operands(self, one: Instruction, text: str) -> tuple[int, ...]:
        """The operands of a region, in the shardings that it requires."""
        ranks = tuple(self.old[operand].shape.rank for operand in one.operands)
        wanted = parse_shardings(text, ranks, self.meshes)
        pairs = zip(one.operands, wanted, strict=True)
        return tuple(self.where[operand] if each is None else self._operand(operand, each) for operand, each in pairs)

    def _tuple(self, index: int, one: Instruction) -> int:
        operands, part = [], 0
        for operand in one.operands:
            operands.append(
                self._operand(operand, self._sharding(index, part)) if self.old[operand].shape.is_array else self.where[operand]
            )
            part += len(self.old[operand].shape.leaves)
        shape = replace(one.shape, parts=tuple(self.new[operand].shape for operand in operands))
        return self._put(one, tuple(operands), shape)

    def _as_they_are(self, one: Instruction) -> tuple[int, ...]:
        return tuple(self.where[operand] for operand in one.operands)

    def _sharding(self, index: int, part: int = 0) -> Sharding:
        return self.shardings.known[self.number, index, part] if self.old[index].shape.parts or not part else ()

    def _local(self, index: int) -> Shape:
        """The shape of one device's part of a value."""
        shape = self.old[index].shape
        return _with_leaves(shape, [local_shape(leaf, self._sharding(index, part)) for part, leaf in enumerate(shape.leaves)])

    def _new(self, one: Instruction, opcode: str, shape: Shape, operands: tuple[int, ...], raw: dict[str, object]) -> int:
        """Adds a new instruction, named after the one it is for."""
        name = f"{one.name}.{opcode}"
        self.tally.names[name] += 1
        unique = name if self.tally.names[name] == 1 else f"{name}.{self.tally.names[name] - 1}"
        raw = {**raw, "metadata": one.metadata}
        self.new.append(Instruction(unique, opcode, shape, operands, (), (), one.place, raw, MappedDialect(one.dialect.where)))
        return len(self.new) - 1

    def _put(self, one: Instruction, operands: tuple[int, ...], shape: Shape) -> int:
        self.new.append(replace(one, operands=operands, shape=shape, control=()))
        return len(self.new) - 1


def _summed(factor: int, holders: list[dict[int, Axes]]) -> Axes:
    """The axes along which a sum is split: those that split it in every operand. If only one operand is split, XLA gathers it."""
    splits = [each.get(factor, ()) for each in holders]
    return tuple(axis for axis in splits[0] if all(axis in each for each in splits)) if splits else ()


def local_shape(shape: Shape, sharding: Sharding) -> Shape:
    """The shape of one device's part; sizes that do not divide are rounded up to the largest part."""
    if not any(sharding):
        return shape
    dims = tuple(-(-size // ways(axes)) if size > 0 else size for size, axes in zip(shape.dims, sharding, strict=True))
    return replace(shape, dims=dims)


def _with_leaves(shape: Shape, leaves: list[Shape]) -> Shape:
    """A shape with the arrays in it replaced, in order."""
    left = iter(leaves)

    def rebuilt(one: Shape) -> Shape:
        return replace(one, parts=tuple(map(rebuilt, one.parts))) if one.is_tuple else next(left)

    return rebuilt(shape)
