"""Which arguments of a program are weights: what products, convolutions and look-ups take as it is, or one part of it for each layer, and
the state that is kept with them. The others are data.
"""

from collections.abc import Collection, Iterable, Iterator

from msgspec import Struct

from ..ir.module import Computation, HloModule, Instruction
from ..partition.propagation import Key
from ..price.elementwise import ELEMENTWISE
from ..unneeded.kernels import DOTS, product_dimensions
from ..unneeded.values import RENAMED, Value, Values
from .growth import Marks, Program, running
from .links import convolution_arrays

FLOATS = ("f", "bf")
MATRIX = 2  # dimensions of a matrix
_NARROW = 8  # bits of weights that a program widens and multiplies by their scale
_SCALING = ("multiply", "divide", "add", "subtract")
_MOST_STEPS = 200  # values visited per result

_Body = tuple[Computation, tuple[tuple[Computation, Instruction], ...]]


class Factor(Struct, frozen=True):
    """An argument that is an operand of a product, or a part of one: its ``place`` there, the ``batch`` dimensions of the operand, and the
    arguments that the other operand is made of. ``is_second`` is true where it is contracted along its first dimension, and the other not,
    ``is_step`` where a part of it is multiplied by arguments that are taken whole: one of the steps that a loop takes along data.
    """

    argument: int
    place: Key
    batch: tuple[int, ...]
    others: tuple[int, ...]
    is_second: bool
    is_step: bool


def own_weights(program: Program) -> set[int]:
    """What loops walk along, tables that data look up in, kernels of convolutions, operands of products with something computed.

    Caches that a loop walks along are none: products take them in batches, a matrix for each sequence. Nor are data that it takes step by
    step, which are multiplied by the same weights each time.
    """
    module, values = program.module, Values(program.module)
    walked, factors = walked_by_loops(module), list(_factors(module, values))
    stacks, weights, caches = tables_of(module) | _kernels(module, values), set[int](), set[int]()
    shapes, kept = {module.entry_computation[one].shape.dims for one in walked}, list[Marks]()
    for one in factors:
        in_batches = bool(one.batch) and module.entry_computation[one.argument].shape.rank > MATRIX
        if (in_batches and _is_kept(program, one, shapes, kept)) or (one.is_step and one.argument in walked):
            caches.add(one.argument)
        elif in_batches or (one.argument not in weights | stacks and _is_weight(module, values, one)):
            weights.add(one.argument)
    stacks |= walked - (caches - weights)
    data = _trained_on(module, values, factors, stacks | weights)
    trained = {one.argument for one in factors if one.others and data.issuperset(one.others)}
    return stacks | trained | weights - data


def _factors(module: HloModule, values: Values) -> Iterator[Factor]:
    """The arguments that products take."""
    numbers = {computation.name: number for number, computation in enumerate(module.computations)}
    for computation, inside in _bodies(module, running(module)):
        for index, one in enumerate(computation.instructions):
            if (one.opcode not in DOTS and one.opcode != "custom-call") or (dims := product_dimensions(one)) is None:
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
                    yield Factor(argument, place, batches[side], sides[1 - side], is_second, is_step)


def _is_part(module: HloModule, operand: Value, arguments: Iterable[int]) -> bool:
    """Whether an operand is less than the arguments that it is made of."""
    return operand.shape.elements < sum(module.entry_computation[one].shape.elements for one in arguments)


def _trained_on(module: HloModule, values: Values, factors: Iterable[Factor], weights: set[int]) -> set[int]:
    """The arguments that products take with a weight that is trained: a result is that weight after the step and none is theirs, or has its
    shape (its gradient) and none has theirs. Without it images would be weights, which the gradient of the first layer multiplies as well.
    """
    entry = module.entry_computation
    results = {leaf.dims for leaf in entry.root_instruction.shape.leaves if leaf.is_array}
    if not any(entry[weight].shape.dims in results for weight in weights):
        return set()  # none is trained: a forward pass may end in the shape of its data
    shaped = {one for factor in factors for one in (factor.argument, *factor.others) if entry[one].shape.dims in results}
    updated = {one for one in shaped if is_updated(module, values, one)}
    return {
        one.argument
        for one in factors
        if one.others and any(one.argument not in trained and trained.issuperset(one.others) for trained in (shaped, updated))
    }


def _kernels(module: HloModule, values: Values) -> set[int]:
    """The arguments that are kernels of convolutions; the gradient of a kernel has none."""
    found: set[int] = set()
    for computation, inside in _bodies(module, running(module)):
        for index, one in enumerate(computation.instructions):
            if one.convolution is not None:
                place = convolution_arrays(one)[1] if one.opcode == "custom-call" else 1
                if place < len(one.operands[:2]):
                    found |= set(source_arguments(module, values, values.operand(Value(computation, index, inside), place)))
    return found


def tables_of(module: HloModule) -> set[int]:
    """The arguments that whole numbers among the arguments look up in."""
    values, found = Values(module), set[int]()
    for computation, inside in _bodies(module, (module.entry,)):
        for index, one in enumerate(computation.instructions):
            value = Value(computation, index, inside)
            if (one.opcode == "gather" or _is_row(computation, one)) and _looked_up(module, values, value):
                found |= set(source_arguments(module, values, values.operand(value, 0)))
    return {table for table in found if module.entry_computation[table].shape.dtype.startswith(FLOATS)}


def _is_row(computation: Computation, one: Instruction) -> bool:
    """Whether one row of a matrix is taken, as compilers write a gather of one."""
    return one.opcode == "dynamic-slice" and one.shape.rank == MATRIX and one.shape.dims == (1, computation[one.operands[0]].shape.dims[1])


def _looked_up(module: HloModule, values: Values, gather: Value) -> bool:
    """Whether an array of whole numbers among the arguments says which rows are taken."""
    behind = values.behind(values.operand(gather, 1), frozenset(("parameter", "sort", "reduce", "custom-call", "while")))
    return any(one.opcode == "parameter" and one.computation is module.entry_computation and one.shape.rank > 0 for one in behind)


def kept_with(program: Program, weights: set[int]) -> set[int]:
    """The arguments that have the shape of a weight and its dimensions, as the state of an optimizer has."""
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
    found = set()
    for key, dims in others.items():
        held = marks.get(key, ())
        if dims in like and held and all(mine or size == 1 for mine, size in zip(held, dims, strict=True)):
            found.add(key[1])
    return found


def _is_weight(module: HloModule, values: Values, one: Factor) -> bool:
    """Whether an operand of a product is a weight: a matrix times something computed is.

    Of two arguments it is the one that nothing but products takes, or if as many kernels take each, the one that the program updates, or
    if it updates both or none, the second one.
    """
    if not one.others:
        return True
    if one.batch:
        return False
    other = one.others[0]
    mine, theirs = (_uses(module, values, each) for each in (one.argument, other))
    if mine != theirs:
        return mine < theirs
    updated = [is_updated(module, values, each) for each in (one.argument, other)]
    return updated[0] if updated[0] != updated[1] else one.is_second


def is_updated(module: HloModule, values: Values, argument: int) -> bool:
    """Whether a result is made of an argument element by element, as a weight after a training step is."""
    return _is_returned(module, values, argument, ELEMENTWISE)


def is_written(module: HloModule, values: Values, argument: int) -> bool:
    """Whether a result is an argument that the program has written into, as caches are."""
    return _is_returned(module, values, argument, ("dynamic-update-slice", "scatter"))


def _is_returned(module: HloModule, values: Values, argument: int, opcodes: Collection[str]) -> bool:
    """Whether a result of an argument's dimensions is made of it by operations of some kinds alone; what is written into comes first."""
    entry = module.entry_computation
    root = entry.root_instruction
    for place in root.operands if root.opcode == "tuple" else (entry.root,):
        if entry[place].shape.dims != entry[argument].shape.dims:
            continue
        waiting = [Value(entry, place)]
        for _ in range(_MOST_STEPS):
            if not waiting:
                break
            one = values.origin(waiting.pop())
            if one.computation is entry and one.index == argument:
                return True
            if one.opcode in opcodes:
                waiting += values.operands(one) if one.opcode in ELEMENTWISE else values.operands(one)[:1]
    return False


def _uses(module: HloModule, values: Values, argument: int) -> int:
    """How many kernels of the entry take an argument."""
    entry = module.entry_computation
    found, waiting = 0, [argument]
    while waiting:
        for user in values.users(entry, waiting.pop()):
            if entry[user].opcode in RENAMED | {"tuple", "get-tuple-element"}:
                waiting.append(user)
            else:
                found += 1
    return found


def walked_by_loops(module: HloModule) -> set[int]:
    """The arguments that a loop of the entry reads and hands on as they are: the stacked weights of its layers."""
    entry, found = module.entry_computation, set()
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
                    found.add(argument)
    return found


def _is_kept(program: Program, one: Factor, shapes: set[tuple[int, ...]], kept: list[Marks]) -> bool:
    """Whether a product takes an argument in batches because data are: one of these dimensions is one of the program's results, as that of
    experts is not, but for gradients of weights in ``shapes``. Rows that were sorted into groups say nothing of it, nor does a batch of 1.

    ``kept`` are the marks of those that were found before.
    """
    module = program.module
    if 1 in module.entry_computation[one.argument].shape.dims[:-MATRIX]:
        return True
    if any(held[axis] for marks in kept for held in [marks.get(one.place)] if held for axis in one.batch):
        return True
    marks = program.grown([(one.place, axis) for axis in one.batch], mixed=False)
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

    def through(one: Value) -> Value | None:
        if one.opcode == "dynamic-update-slice" or _takes_one(one):
            return values.operand(one, 0)
        return _scaled(values, one) if one.opcode in _SCALING else None

    entry = module.entry_computation
    found, passed = values.sources(value, through)
    if any(one.opcode != "parameter" or one.computation is not entry for one in found):
        return []
    is_scaled = any(one.opcode in _SCALING for one in passed)
    if is_scaled and any(one.shape.number.bits > _NARROW for one in found):
        return []
    return [one.index for one in found]


def _takes_one(value: Value) -> bool:
    """Whether a slice takes one element of every dimension that it cuts: of a stack one part."""
    one = value.instruction
    if one.opcode not in ("slice", "dynamic-slice"):
        return False
    whole = value.computation[one.operands[0]].shape.dims
    return all(part in (1, size) for part, size in zip(one.shape.dims, whole, strict=True))


def _scaled(values: Values, value: Value) -> Value | None:
    """What is combined with a scale or an offset, which is a number or repeated."""
    arrays = [each for each in values.operands(value) if values.origin(each).opcode not in ("broadcast", "constant")]
    return arrays[0] if len(arrays) == 1 else None


def _bodies(module: HloModule, numbers: Iterable[int]) -> Iterator[_Body]:
    """Some computations that are no bodies of fusions, and the bodies of their fusions with the fusion that each is inside of."""
    fused = {one.calls[0].computation for each in module for one in each if one.opcode == "fusion" and one.calls}
    for number in numbers:
        computation = module.computations[number]
        if number not in fused:
            yield computation, ()
            for one in computation:
                if one.opcode == "fusion" and one.calls:
                    yield module.computations[one.calls[0].computation], ((computation, one),)
