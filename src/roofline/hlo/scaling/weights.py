"""Which arguments of a program are weights: operands of products, convolutions and look-ups, whole or one part per layer, and optimizer
state of the same shape. The other arguments are data.
"""

from collections.abc import Collection, Iterable, Iterator

from msgspec import Struct

from ..ir.module import Computation, HloModule, Instruction
from ..ir.opcodes import ELEMENTWISE
from ..ir.values import RENAMED, Value, Values
from ..lower.products import DOTS, product_dimensions
from ..partition.propagation import Key
from .growth import Marks, Program, running
from .links import convolution_arrays

FLOATS = ("f", "bf")
MATRIX = 2  # dimensions of a matrix
_NARROW = 8  # bits of weights that a program widens and multiplies by their scale
_SCALING = ("multiply", "divide", "add", "subtract")
_MOST_STEPS = 200  # values visited per result

_Body = tuple[Computation, tuple[tuple[Computation, Instruction], ...]]


class Factor(Struct, frozen=True):
    """An argument that is an operand of a product, or a part of one: the operand's ``place`` in the program, its ``batch`` dimensions, and
    the arguments that the other operand is made of.

    ``is_part`` is true if the operand is a part of the argument; ``is_second`` if it is contracted along its first dimension, and the other
    is not; ``is_step`` if the operand is a part of the argument and the other is made of whole arguments: a loop steps along the data.
    """

    argument: int
    place: Key
    batch: tuple[int, ...]
    others: tuple[int, ...]
    is_part: bool
    is_second: bool
    is_step: bool


def own_weights(program: Program) -> set[int]:
    """Arguments that loops step along, tables that data index, kernels of convolutions, and operands of products with computed values.

    Caches that a loop steps along are not weights: in products they have batch dimensions, a matrix for each sequence. Nor is data that a
    loop steps along, which is multiplied by the same weights in each step, directly or after other work on it.
    """
    module, values = program.module, Values(program.module)
    walked, factors = walked_by_loops(module), list(_factors(module, values))
    stacks, weights, caches = tables_of(module) | _kernels(module, values), set[int](), set[int]()
    shapes, kept = {module.entry_computation[index].shape.dims for index in walked}, list[Marks]()
    for factor in factors:
        in_batches = bool(factor.batch) and module.entry_computation[factor.argument].shape.rank > MATRIX
        if (in_batches and _is_kept(program, factor, shapes, kept)) or (factor.is_step and factor.argument in walked):
            caches.add(factor.argument)
        elif in_batches or (factor.argument not in weights | stacks and _is_weight(module, values, factor)):
            weights.add(factor.argument)
    stacks |= walked - (caches - weights) - _stepped(module, values, walked, factors)
    data = _trained_on(module, values, factors, stacks | weights)
    trained = {factor.argument for factor in factors if factor.others and data.issuperset(factor.others)}
    return stacks | trained | weights - data


def _factors(module: HloModule, values: Values) -> Iterator[Factor]:
    """The arguments that are operands of products."""
    numbers = {computation.name: number for number, computation in enumerate(module.computations)}
    for computation, inside in _bodies(module, running(module)):
        for index, instruction in enumerate(computation.instructions):
            if (instruction.opcode not in DOTS and instruction.opcode != "custom-call") or (
                dims := product_dimensions(instruction)
            ) is None:
                continue
            operands = [values.operand(Value(computation, index, inside), side) for side in (0, 1)]
            sides = [tuple(source_arguments(module, values, operand)) for operand in operands]
            parts = [_is_part(module, operand, side) for operand, side in zip(operands, sides, strict=True)]
            batches, contracted = (dims.lhs_batch, dims.rhs_batch), (dims.lhs_contracting, dims.rhs_contracting)
            for side, operand in enumerate(operands):
                is_second = contracted[side] == (0,) and 0 not in contracted[1 - side]
                place = (numbers[computation.name], operand.index, 0)
                for argument in sides[side]:
                    is_step = parts[side] and bool(sides[1 - side]) and not parts[1 - side]
                    yield Factor(argument, place, batches[side], sides[1 - side], parts[side], is_second, is_step)


def _stepped(module: HloModule, values: Values, walked: set[int], factors: Iterable[Factor]) -> set[int]:
    """The arguments that loops take one part of in each trip, but no product, where all products take whole arguments: microbatches.

    Where products take one part of an argument, the trips are layers, and the parts of others are their gains.
    """
    whole = {factor.argument for factor in factors if not factor.is_part}
    in_parts = {factor.argument for factor in factors if factor.is_part}
    if not whole & walked or in_parts & walked:
        return set()
    stepped, kept = set[int](), set[int]()
    for number in values.loop_bodies:
        body = module.computations[number]
        for index in range(len(body.instructions)):
            before = values.before_loop(Value(body, index))
            argument = values.origin(before) if before is not None else None
            if argument is None or argument.computation is not module.entry_computation or argument.index not in walked - whole:
                continue
            uses = [value for value in values.uses(Value(body, index)) if value.index != body.root or value.computation is not body]
            if uses and all(map(_takes_one, uses)):
                stepped.add(argument.index)
            elif uses:
                kept.add(argument.index)
    return stepped - kept


def _is_part(module: HloModule, operand: Value, arguments: Iterable[int]) -> bool:
    """Whether an operand is smaller than the arguments that it is made of."""
    return operand.shape.elements < sum(module.entry_computation[index].shape.elements for index in arguments)


def _trained_on(module: HloModule, values: Values, factors: Iterable[Factor], weights: set[int]) -> set[int]:
    """The arguments that are data because a trained weight multiplies them: a result is the updated weight, or has its shape (its
    gradient), and none is or has theirs. Without this rule images would be weights: the gradient of the first layer multiplies them too.
    """
    entry = module.entry_computation
    results = {leaf.dims for leaf in entry.root_instruction.shape.leaves if leaf.is_array}
    if not any(entry[weight].shape.dims in results for weight in weights):
        return set()  # no weight is trained: the result of a forward pass may have the shape of its data
    shaped = {index for factor in factors for index in (factor.argument, *factor.others) if entry[index].shape.dims in results}
    updated = {index for index in shaped if is_updated(module, values, index)}
    return {
        factor.argument
        for factor in factors
        if factor.others and any(factor.argument not in trained and trained.issuperset(factor.others) for trained in (shaped, updated))
    }


def _kernels(module: HloModule, values: Values) -> set[int]:
    """The arguments that are kernels of convolutions; the gradient of a kernel has none."""
    kernels: set[int] = set()
    for computation, inside in _bodies(module, running(module)):
        for index, instruction in enumerate(computation.instructions):
            if instruction.convolution is not None:
                place = convolution_arrays(instruction)[1] if instruction.opcode == "custom-call" else 1
                if place < len(instruction.operands[:2]):
                    kernels |= set(source_arguments(module, values, values.operand(Value(computation, index, inside), place)))
    return kernels


def tables_of(module: HloModule) -> set[int]:
    """The arguments that are tables: integers among the arguments index their rows."""
    values, tables = Values(module), set[int]()
    for computation, inside in _bodies(module, (module.entry,)):
        for index, instruction in enumerate(computation.instructions):
            value = Value(computation, index, inside)
            if (instruction.opcode == "gather" or _is_row(computation, instruction)) and _looked_up(module, values, value):
                tables |= set(source_arguments(module, values, values.operand(value, 0)))
    return {table for table in tables if module.entry_computation[table].shape.dtype.startswith(FLOATS)}


def _is_row(computation: Computation, instruction: Instruction) -> bool:
    """Whether a dynamic-slice takes one row of a matrix, as compilers write a gather of one row."""
    return (
        instruction.opcode == "dynamic-slice"
        and instruction.shape.rank == MATRIX
        and instruction.shape.dims == (1, computation[instruction.operands[0]].shape.dims[1])
    )


def _looked_up(module: HloModule, values: Values, gather: Value) -> bool:
    """Whether the indices of a gather depend on an array among the arguments."""
    ancestors = values.ancestors(values.operand(gather, 1), frozenset(("parameter", "sort", "reduce", "custom-call", "while")))
    return any(
        value.opcode == "parameter" and value.computation is module.entry_computation and value.shape.rank > 0 for value in ancestors
    )


def kept_with(program: Program, weights: set[int]) -> set[int]:
    """The arguments with the shape of a weight and dimensions that grow with it, such as optimizer state."""
    entry, number = program.module.entry_computation, program.module.entry
    arrays = {(number, index, part): leaf for index in entry.parameters for part, leaf in enumerate(entry[index].shape.leaves)}
    others = {
        key: leaf.dims
        for key, leaf in arrays.items()
        if key[1] not in weights and leaf.is_array and leaf.rank >= MATRIX and leaf.dtype.startswith(FLOATS)
    }
    shapes = set(others.values())
    seeds = [(key, axis) for key, leaf in arrays.items() if key[1] in weights and leaf.dims in shapes for axis in range(leaf.rank)]
    like = {leaf.dims for key, leaf in arrays.items() if key[1] in weights}
    marks = program.grown(seeds) if seeds else {}
    kept = set()
    for key, dims in others.items():
        marked = marks.get(key, ())
        if dims in like and marked and all(grows or size == 1 for grows, size in zip(marked, dims, strict=True)):
            kept.add(key[1])
    return kept


def _is_weight(module: HloModule, values: Values, factor: Factor) -> bool:
    """Whether an operand of a product is a weight: it is if the other operand is computed.

    Of two arguments it is the one with fewer users; if they have equally many, the one that the program updates; if it updates both or
    neither, the second one.
    """
    if not factor.others:
        return True
    if factor.batch:
        return False
    other = factor.others[0]
    uses, other_uses = (_uses(module, values, index) for index in (factor.argument, other))
    if uses != other_uses:
        return uses < other_uses
    updated = [is_updated(module, values, index) for index in (factor.argument, other)]
    return updated[0] if updated[0] != updated[1] else factor.is_second


def is_updated(module: HloModule, values: Values, argument: int) -> bool:
    """Whether a result is computed elementwise from an argument, such as a weight after a training step."""
    return _is_returned(module, values, argument, ELEMENTWISE)


def is_written(module: HloModule, values: Values, argument: int) -> bool:
    """Whether a result is an argument with parts overwritten, such as a cache."""
    return _is_returned(module, values, argument, ("dynamic-update-slice", "scatter"))


def _is_returned(module: HloModule, values: Values, argument: int, opcodes: Collection[str]) -> bool:
    """Whether a result of an argument's dimensions is made from it by these opcodes alone; of updates, only the target is followed."""
    entry = module.entry_computation
    root = entry.root_instruction
    for place in root.operands if root.opcode == "tuple" else (entry.root,):
        if entry[place].shape.dims != entry[argument].shape.dims:
            continue
        waiting = [Value(entry, place)]
        for _ in range(_MOST_STEPS):
            if not waiting:
                break
            value = values.origin(waiting.pop())
            if value.computation is entry and value.index == argument:
                return True
            if value.opcode in opcodes:
                waiting += values.operands(value) if value.opcode in ELEMENTWISE else values.operands(value)[:1]
    return False


def _uses(module: HloModule, values: Values, argument: int) -> int:
    """How many kernels of the entry use an argument."""
    entry = module.entry_computation
    count, waiting = 0, [argument]
    while waiting:
        for user in values.users(entry, waiting.pop()):
            if entry[user].opcode in RENAMED | {"tuple", "get-tuple-element"}:
                waiting.append(user)
            else:
                count += 1
    return count


def walked_by_loops(module: HloModule) -> set[int]:
    """The arguments that a loop of the entry carries without changing them: the stacked weights of its layers."""
    entry, walked = module.entry_computation, set()
    for loop in entry:
        start = entry[loop.operands[0]] if loop.opcode == "while" else None
        if start is None or start.opcode != "tuple":
            continue
        for called in loop.called("body"):
            body = module.computations[called]
            end = body.root_instruction
            for place, argument in enumerate(start.operands):
                kept = body[end.operands[place]] if end.opcode == "tuple" else None
                same = kept is not None and kept.opcode == "get-tuple-element" and kept.operands[0] in body.parameters
                if same and kept is not None and (kept.integer("index") or 0) == place and entry[argument].opcode == "parameter":
                    walked.add(argument)
    return walked


def _is_kept(program: Program, factor: Factor, shapes: set[tuple[int, ...]], kept: list[Marks]) -> bool:
    """Whether an operand has batch dimensions because data has, as a cache does and experts do not: one of them is a dimension of a result.
    Results with the ``shapes`` of weights do not count, since they may be gradients, nor do dimensions that are only related by a sort. A
    batch of 1 is data's.

    ``kept`` are the marks of the operands found so far.
    """
    module = program.module
    if 1 in module.entry_computation[factor.argument].shape.dims[:-MATRIX]:
        return True
    if any(marked[axis] for marks in kept for marked in [marks.get(factor.place)] if marked for axis in factor.batch):
        return True
    marks = program.grown([(factor.place, axis) for axis in factor.batch], mixed=False)
    root = module.entry_computation.root
    for part, leaf in enumerate(module.entry_computation[root].shape.leaves):
        if leaf.dims not in shapes and any(marks.get((module.entry, root, part), ())):
            kept.append(marks)
            return True
    return False


def source_arguments(module: HloModule, values: Values, value: Value) -> list[int]:
    """The arguments of the program that a value is assembled from, whatever its layout and format; none if anything in it is computed.

    The value may be one part of an argument, such as one layer's of stacked weights, an argument after a dynamic-update-slice, or an 8-bit
    argument that is widened and scaled.
    """

    def through(source: Value) -> Value | None:
        if source.opcode == "dynamic-update-slice" or _takes_one(source):
            return values.operand(source, 0)
        return _scaled(values, source) if source.opcode in _SCALING else None

    entry = module.entry_computation
    sources, passed = values.sources(value, through)
    if any(source.opcode != "parameter" or source.computation is not entry for source in sources):
        return []
    is_scaled = any(source.opcode in _SCALING for source in passed)
    if is_scaled and any(source.shape.number.bits > _NARROW for source in sources):
        return []
    return [source.index for source in sources]


def _takes_one(value: Value) -> bool:
    """Whether a slice takes one part of a stack: in each dimension, one element or all."""
    instruction = value.instruction
    if instruction.opcode not in ("slice", "dynamic-slice"):
        return False
    whole = value.computation[instruction.operands[0]].shape.dims
    return all(part in (1, size) for part, size in zip(instruction.shape.dims, whole, strict=True))


def _scaled(values: Values, value: Value) -> Value | None:
    """The array operand of an operation with a scale or an offset, which is a constant or a broadcast; ``None`` for other operations."""
    arrays = [source for source in values.operands(value) if values.origin(source).opcode not in ("broadcast", "constant")]
    return arrays[0] if len(arrays) == 1 else None


def _bodies(module: HloModule, numbers: Iterable[int]) -> Iterator[_Body]:
    """These computations, unless they are bodies of fusions, and the bodies of their fusions, each with the fusion it is in."""
    fused = {fusion.calls[0].computation for fusion in module.instructions if fusion.opcode == "fusion" and fusion.calls}
    for number in numbers:
        computation = module.computations[number]
        if number not in fused:
            yield computation, ()
            for instruction in computation:
                if instruction.opcode == "fusion" and instruction.calls:
                    yield module.computations[instruction.calls[0].computation], ((computation, instruction),)
