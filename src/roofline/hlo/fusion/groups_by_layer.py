"""The kernels of a computation, found once for all of its equal layers where it has many."""

from collections.abc import Hashable, Sequence
from functools import partial

from msgspec.structs import replace

from ..ir.layers import MIDDLE, REACH, LayerRun, layer_length, lengthened, repeated_layers, shortened, takes_the_same
from ..ir.module import Computation, Instruction
from .grouping import grouped
from .groups import Copied, Group, in_order
from .rules import LOOPS, Rules


def groups_of(computation: Computation, rules: Rules) -> tuple[Group, ...]:
    """The kernels of a computation in whose text every value precedes its uses; other instructions are in no kernel."""
    layers = equal_layers(computation)
    groups = groups_in_layers(computation, rules, layers) if layers is not None else None
    return groups if groups is not None else grouped(computation, rules).groups


def equal_layers(computation: Computation) -> LayerRun | None:
    """The layers that a computation repeats; loops alone make one kernel."""
    period, middle = layer_length(computation, _is_alike), len(computation) // 2
    if period is None or all(instruction.opcode in LOOPS for instruction in computation.instructions[middle : middle + period]):
        return None
    return repeated_layers(computation, period, _is_alike)


def _is_alike(instructions: Sequence[Instruction], index: int, period: int) -> bool:
    """Whether an instruction does the same as the one a layer later, with the values of its own layer."""
    if not takes_the_same(instructions, index, period):
        return False
    instruction, other = instructions[index], instructions[index + period]
    attributes = instruction.dialect.unread(instruction.raw)
    return attributes is not None and attributes == other.dialect.unread(other.raw) and instruction.calls == other.calls


def groups_in_layers(computation: Computation, rules: Rules, layers: LayerRun) -> tuple[Group, ...] | None:
    """The kernels of a program of many equal layers, found in one of few; ``None`` where those of its layers differ or reach far."""
    grouping = grouped(shortened(computation, layers), rules)
    by_layer: dict[int, set[Hashable]] = {}
    for group in grouping.groups:
        number = _layer(group, layers)
        if any(abs(layers.layer(member) - number) > REACH for member in group.members if member >= layers.start):
            return None
        by_layer.setdefault(number, set()).add(_form(group, layers, number))
    first = by_layer.get(MIDDLE[0])
    if any(by_layer.get(number) != first for number in MIDDLE) or not grouping.recompute.repeat(layers):
        return None
    every = lengthened(grouping.groups, layers, lambda group: _layer(group, layers), partial(_moved, layers))
    return tuple(sorted(every, key=in_order))


def _layer(group: Group, layers: LayerRun) -> int:
    """The layer of a kernel, by its first result."""
    return layers.layer(min(group.outputs))


def _form(group: Group, layers: LayerRun, number: int) -> Hashable:
    """A kernel as seen from its layer: equal for those that do the same in theirs."""
    base = layers.start + number * layers.period
    parts = (group.members, group.outputs, group.inputs, group.prologue)
    near = [frozenset([index - base for index in part if index >= layers.start]) for part in parts]
    far = [frozenset([index for index in part if index < layers.start]) for part in parts]
    return (group.kind, group.space, group.rows, group.reduced, group.repeated, group.needs_memory, *near, *far)


def _moved(layers: LayerRun, group: Group, by: int) -> Group:
    """The same kernel some layers further on."""
    parts = (group.members, group.outputs, group.inputs, group.prologue)
    start = layers.start
    members, outputs, inputs, prologue = [{index + by if index >= start else index for index in part} for part in parts]
    copied = Copied(group, by, start)
    return replace(group, members=members, outputs=outputs, inputs=inputs, prologue=prologue, copied=copied)
