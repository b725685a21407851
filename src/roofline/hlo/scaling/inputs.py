"""The dimensions of a program's inputs that can be scaled: ``tok[0]`` as the program has it, or a word for those that move together.

Weights are inputs that products take as they are, tables that are looked up, and the state that is kept with them; the others are data.
The first dimension of the data that no weight has is the ``batch``, the next one the ``sequence`` (a table of positions is as long as the
data); the first of weights that are stacks of matrices is the ``experts``, of those that a loop walks along the ``layers``; the rows of
tables that are looked up are the ``vocabulary``; what one weight makes and another takes is the ``hidden`` width: of the residual stream,
of all heads together, and between two products.
"""

import re
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from ..ir.module import Computation, HloModule, Instruction
from ..partition.propagation import Key
from ..price.elementwise import ELEMENTWISE
from ..price.loops import Loops
from ..unneeded.kernels import DOTS, product_dimensions
from ..unneeded.values import RENAMED, Value, Values
from .growth import Marks, Program, running
from .links import WalkedAxis, called_by, convolution_arrays, walked_axes

_FLOATS = ("f", "bf")
MATRIX = 2  # dimensions of a matrix
_MOST_LOOKS = 200  # values behind a result
LAYERS, EXPERTS = "layers", "experts"


class Input(Struct, frozen=True):
    """An array among a program's arguments: its name, its place, its dimensions, and whether it is a weight."""

    name: str
    key: Key
    dims: tuple[int, ...]
    is_weight: bool


class Dimension(Struct, frozen=True):
    """Dimensions of inputs that move together, under one name; ``marks`` are all arrays that grow with them.

    ``is_hidden`` is true for one of size 1, of which a compiler leaves no trace: then ``marks`` are of the inputs alone. ``grouped`` are
    data that have grown because they are put in as many groups.
    """

    name: str
    size: int
    inputs: tuple[tuple[Input, int], ...]
    marks: Marks
    is_hidden: bool = False
    grouped: tuple[Input, ...] = ()


def inputs_of(program: Program) -> tuple[Input, ...]:
    """The arrays among the arguments of a program."""
    module = program.module
    entry = module.entry_computation
    weights = _weights(program)
    found = []
    for number, index in enumerate(entry.parameters):
        one = entry[index]
        for part, leaf in enumerate(one.shape.leaves):
            if leaf.is_array:
                name = re.sub(r"\s", "", one.op_name) or one.name or f"argument{number}"
                small = leaf.dtype.startswith(_FLOATS) and leaf.rank < 2
                found.append(Input(name, (module.entry, index, part), leaf.dims, index in weights or small))
    # What lies beside weights in one container is of the layer too: stacked gains, tables of positions.
    beside = {_container(one.name) for one in found if one.key[1] in weights} - {""}
    floats = {index for index in entry.parameters if entry[index].shape.dtype.startswith(_FLOATS)}
    return tuple(replace(one, is_weight=True) if one.key[1] in floats and _container(one.name) in beside else one for one in found)


def _container(name: str) -> str:
    """The list or dictionary that an argument lies in, by its name: ``layers[0]`` of ``layers[0]['gain']``."""
    return name[: name.rindex("[")] if name.endswith("]") else ""


def _weights(program: Program) -> set[int]:
    """The arguments that are weights, with the state that is kept with them."""
    weights = _own_weights(program)
    return weights | _kept_with(program, weights)


def _own_weights(program: Program) -> set[int]:
    """What loops walk along, tables that data look up in, kernels of convolutions, operands of products with something computed."""
    module = program.module
    values = Values(module)
    stacks, weights = _walked(module) | _tables(module, values), set[int]()
    multiplied: list[list[list[int]]] = []
    for computation, inside in _bodies(module):
        for index, one in enumerate(computation.instructions):
            value = Value(computation, index, inside)
            if one.convolution is not None and (kernel := _kernel(one)) is not None:
                stacks |= set(_arguments(module, values, values.operand(value, kernel)))
            if (one.opcode in DOTS or one.opcode == "custom-call") and (dims := product_dimensions(one)) is not None:
                sides = [_arguments(module, values, values.operand(value, number)) for number in (0, 1)]
                multiplied.append(sides)
                for mine, others in (sides, sides[::-1]):
                    other = others[0] if others else None
                    for side in mine:
                        if side not in weights | stacks and _is_weight(program, values, side, other, bool(dims.lhs_batch)):
                            weights.add(side)
    return stacks | weights - _trained_on(module, multiplied, stacks | weights)


def _trained_on(module: HloModule, multiplied: list[list[list[int]]], weights: set[int]) -> set[int]:
    """The arguments that products take with a weight that is trained: a result has the shape of that (its gradient, or the weight itself
    after the step) and none has theirs. Without it images would be weights, which the gradient of the first layer multiplies as well.
    """
    entry = module.entry_computation
    results = {leaf.dims for leaf in entry.root_instruction.shape.leaves if leaf.is_array}
    if not any(entry[weight].shape.dims in results for weight in weights):
        return set()  # none is trained: a forward pass may end in the shape of its data
    return {
        side
        for sides in multiplied
        for mine, others in (sides, sides[::-1])
        for side in mine
        if others and entry[side].shape.dims not in results and all(entry[other].shape.dims in results for other in others)
    }


def _kernel(one: Instruction) -> int | None:
    """Which operand of a convolution is its kernel; the gradient of a kernel has none."""
    place = convolution_arrays(one)[1] if one.opcode == "custom-call" else 1
    return place if place < len(one.operands[:2]) else None


def _tables(module: HloModule, values: Values) -> set[int]:
    """The arguments that whole numbers among the arguments look up in."""
    found: set[int] = set()
    for computation, inside in _bodies(module):
        for index, one in enumerate(computation.instructions):
            value = Value(computation, index, inside)
            if (one.opcode == "gather" or _is_row(computation, one)) and _looked_up(module, values, value):
                found |= set(_arguments(module, values, values.operand(value, 0)))
    return {table for table in found if module.entry_computation[table].shape.dtype.startswith(_FLOATS)}


def _is_row(computation: Computation, one: Instruction) -> bool:
    """Whether one row of a matrix is taken, as compilers write a gather of one."""
    return one.opcode == "dynamic-slice" and one.shape.rank == MATRIX and one.shape.dims == (1, computation[one.operands[0]].shape.dims[1])


def _kept_with(program: Program, weights: set[int]) -> set[int]:
    """The arguments that have the shape of a weight and its dimensions, as the state of an optimizer has."""
    entry, number = program.module.entry_computation, program.module.entry
    arrays = {(number, index, part): leaf for index in entry.parameters for part, leaf in enumerate(entry[index].shape.leaves)}
    others = {
        key: leaf.dims
        for key, leaf in arrays.items()
        if key[1] not in weights and leaf.is_array and leaf.rank >= MATRIX and leaf.dtype.startswith(_FLOATS)
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


def _is_weight(program: Program, values: Values, side: int, other: int | None, in_batches: bool) -> bool:
    """Whether an argument that is an operand of a product is a weight.

    A matrix times something computed is; so is a stack of matrices whose number is not among the results' dimensions, as of experts. Of
    two arguments it is the one that nothing but products takes, or if as many kernels take each, the one that the program updates.
    """
    if program.module.entry_computation[side].shape.rank > MATRIX and in_batches:
        return not _is_kept(program, side)
    if other is None:
        return True
    if in_batches:
        return False
    mine, theirs = (_uses(program.module, values, each) for each in (side, other))
    if mine == theirs:
        return _is_updated(program.module, values, side) and not _is_updated(program.module, values, other)
    return mine < theirs


def _is_updated(module: HloModule, values: Values, argument: int) -> bool:
    """Whether a result is made of an argument element by element, as a weight after a training step is."""
    entry = module.entry_computation
    root = entry.root_instruction
    for place in root.operands if root.opcode == "tuple" else (entry.root,):
        if entry[place].shape.dims != entry[argument].shape.dims:
            continue
        waiting = [Value(entry, place)]
        for _ in range(_MOST_LOOKS):
            if not waiting:
                break
            one = values.origin(waiting.pop())
            if one.computation is entry and one.index == argument:
                return True
            waiting += values.operands(one) if one.opcode in ELEMENTWISE else []
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


def _walked(module: HloModule) -> set[int]:
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


def walking(program: Program, dimension: Dimension) -> dict[int, int]:
    """The computations of loops that walk along a dimension, which run more often with more of it, and how many such loops each is in."""
    module, loops = program.module, Loops(program.module)
    found: dict[int, int] = {}
    for number in running(module):
        for loop in module.computations[number]:
            if loop.opcode == "while" and any(_grows(dimension.marks, one) for one in walked_axes(module, loops, number, loop)):
                for inner in called_by(module, loop):
                    found[inner] = found.get(inner, 0) + 1
    return found


def _grows(marks: Marks, walked: WalkedAxis) -> bool:
    """Whether a dimension that a loop walks along grows, and not the part that it takes of it in each trip."""
    whole, part = (marks.get(key) for key in (walked.whole, walked.part))
    return bool(whole and whole[walked.axis] and not (part and part[walked.axis]))


def _bodies(module: HloModule) -> list[tuple[Computation, tuple[tuple[Computation, Instruction], ...]]]:
    """The entry, and the bodies of its fusions with the fusion that each is inside of."""
    entry = module.entry_computation
    fusions = [one for one in entry if one.opcode == "fusion" and one.calls]
    return [(entry, ()), *((module.computations[one.calls[0].computation], ((entry, one),)) for one in fusions)]


def _looked_up(module: HloModule, values: Values, gather: Value) -> bool:
    """Whether an array of whole numbers among the arguments says which rows are taken."""
    behind = values.behind(values.operand(gather, 1), frozenset(("parameter", "sort", "reduce", "custom-call", "while")))
    return any(one.opcode == "parameter" and one.computation is module.entry_computation and one.shape.rank > 0 for one in behind)


def _is_kept(program: Program, argument: int) -> bool:
    """Whether the first dimension of an argument is one of the program's results. Rows that were sorted into groups say nothing of it."""
    module = program.module
    marks = program.grown([((module.entry, argument, 0), 0)], mixed=False)
    root = module.entry_computation.root
    leaves = len(list(module.entry_computation[root].shape.leaves))
    return any(any(held for held in marks.get((module.entry, root, part), ())) for part in range(leaves))


def _arguments(module: HloModule, values: Values, value: Value) -> list[int]:
    """The arguments of the program that a value is, or is put together from, but for its layout and format; none if it is computed."""
    sources = values.pieces(value, RENAMED | {"get-tuple-element"})
    if any(source.opcode != "parameter" or source.computation is not module.entry_computation for source in sources):
        return []
    return [source.index for source in sources]


def dimensions_of(program: Program) -> tuple[Dimension, ...]:
    """The dimensions of a program that have names."""
    inputs = inputs_of(program)
    stacks, kept = _stacks(program, inputs)
    found = [*_vocabulary(program, inputs), *stacks]
    if hidden := _hidden(program, inputs, {place for one in found for place in _places(one)}):
        found.append(hidden)
    return (*found, *_data_dimensions(program, inputs, stacks, kept))


def _vocabulary(program: Program, inputs: tuple[Input, ...]) -> list[Dimension]:
    """How many rows the tables have that are looked up, if nothing but weights has as many."""
    tables = _tables(program.module, Values(program.module))
    size = next((one.dims[0] for one in inputs if one.key[1] in tables and len(one.dims) == MATRIX), 0)
    if not size:
        return []
    marks = program.grown(
        [(one.key, axis) for one in inputs if one.is_weight and len(one.dims) == MATRIX for axis in (0, 1) if one.dims[axis] == size]
    )
    together = _reached(inputs, marks)
    return [Dimension("vocabulary", size, together, marks)] if all(one.is_weight for one, _ in together) else []


def _stacks(program: Program, inputs: tuple[Input, ...]) -> tuple[list[Dimension], Marks]:
    """How many layers a loop walks over, and how many experts there are: weights are stacked along these.

    Also the arrays that grow with the experts alone, not because tokens are put in as many groups.
    """
    layers, kept = _walked(program.module), Marks()
    stacks = {
        LAYERS: [(one, 0) for one in inputs if one.key[1] in layers and len(one.dims) > MATRIX],
        EXPERTS: [(one, axis) for one in inputs if one.is_weight and len(one.dims) == MATRIX + 1 + (axis := int(one.key[1] in layers))],
    }
    found: list[Dimension] = []
    for name, all_of_them in stacks.items():
        if not all_of_them:
            continue
        first, axis = all_of_them[0]
        number = first.dims[axis]
        like = [(one.key, place) for one, place in all_of_them if one.dims[place] == number]
        if name == EXPERTS:  # and the router's scores
            like += [(one.key, len(one.dims) - 1) for one in inputs if len(one.dims) == MATRIX + axis and one.dims[-1] == number]
        marks = program.grown(like)
        alone = program.grown(like, whole=True) if name == EXPERTS else marks
        reached, own = _reached(inputs, marks), {(one.key, place) for one, place in _reached(inputs, alone)}
        grouped = tuple(one for one, place in reached if not one.is_weight and (one.key, place) not in own)
        found.append(Dimension(name, number, reached, marks, grouped=grouped))
        kept = alone if name == EXPERTS else kept
    return found, kept


def _data_dimensions(program: Program, inputs: tuple[Input, ...], stacks: list[Dimension], kept: Marks) -> Iterator[Dimension]:
    """The batch and the sequence: the first dimensions of data that are of no other kind."""
    names = ["batch", "sequence"]
    data = [one for one in inputs if not one.is_weight]
    seen = {(one.key, place) for each in stacks for one, place in each.inputs if one.dims[place] == each.size and one not in each.grouped}
    for place in range(max((len(one.dims) for one in inputs), default=0)):
        while names and (here := [one for one in data if place < len(one.dims) and (one.key, place) not in seen]):
            if names[0] == "batch" and place == 0 and any(one.dims[0] == 1 and len(one.dims) > 1 for one in here):
                together = tuple((one, 0) for one in data if one.dims[:1] == (1,))
                yield Dimension(names.pop(0), 1, together, {}, True)
                seen |= {(one.key, 0) for one, _ in together}
                continue
            seen |= {(one.key, place) for one in here if one.dims[place] == 1}
            if largest := _together(program, inputs, [one for one in here if one.dims[place] > 1], place):
                seeds = [(one.key, place) for one in largest]
                marks = program.grown(seeds)
                together = _reached(inputs, marks)
                if kept and any(one.is_weight for one, _ in together):
                    marks = program.grown(seeds, kept)
                    together = _reached(inputs, marks)
                seen |= {(one.key, axis) for one, axis in together}
                if all(_follows_data(program, one) for one, _ in together if one.is_weight):
                    yield Dimension(names.pop(0), largest[0].dims[place], together, marks)


def _follows_data(program: Program, weight: Input) -> bool:
    """Whether a weight may be as long as the data: one that no product takes and nothing looks up, such as a table of positions."""
    return len(weight.dims) >= MATRIX and weight.key[1] not in _own_weights(program)


def _together(program: Program, inputs: tuple[Input, ...], data: list[Input], place: int) -> list[Input]:
    """Of some data those whose dimension in one place moves together: what is linked with the most of them, and others of its size.

    Others that have another dimension linked with it are of that size by chance.
    """
    groups: list[tuple[Input, set[Key]]] = []
    seen: set[Key] = set()
    for one in data:
        if one.key not in seen:
            reached = _reached(inputs, program.grown([(one.key, place)]))
            groups.append((one, {other.key for other, _ in reached}))
            seen |= {other.key for other, axis in reached if axis == place}
    if not groups:
        return []
    first, linked = max(groups, key=lambda group: len(group[1]))
    return [first, *(one for one, _ in groups if one is not first and one.dims[place] == first.dims[place] and one.key not in linked)]


def _hidden(program: Program, inputs: tuple[Input, ...], taken: set[tuple[Key, int]]) -> Dimension | None:
    """The widths of the model: the dimensions that one weight makes and another takes, but for those that have names."""
    own = _own_weights(program)
    matrices = [one for one in inputs if one.key[1] in own and len(one.dims) >= MATRIX]
    seeds: list[tuple[Input, int]] = []
    seen = set(taken)
    for one in matrices:
        for axis in range(len(one.dims) - MATRIX, len(one.dims)):
            if (one.key, axis) in seen:
                continue
            together = _reached(inputs, program.grown([(one.key, axis)]))
            places = {(other.key, place) for other, place in together}
            seen |= places
            if not places & taken and sum(key[1] in own for key, _ in places) > 1:
                seeds.append((one, axis))
    if not seeds:
        return None
    marks = program.grown((one.key, axis) for one, axis in seeds)
    return Dimension("hidden", seeds[0][0].dims[seeds[0][1]], _reached(inputs, marks), marks)


def _places(dimension: Dimension) -> list[tuple[Key, int]]:
    return [(one.key, axis) for one, axis in dimension.inputs]


def _reached(inputs: tuple[Input, ...], marks: Marks) -> tuple[tuple[Input, int], ...]:
    """The dimensions of inputs that have marks."""
    return tuple((one, axis) for one in inputs for axis, held in enumerate(marks.get(one.key, ())) if held)


def dimension_named(program: Program, name: str) -> Dimension | None:
    """The dimension with this name: a word, or an input's name and the number of a dimension, as in ``tok[0]``."""
    for known in dimensions_of(program):
        if known.name == name:
            return known
    written = re.fullmatch(r"(.+)\[(\d+)\]", name)
    if written is None:
        return None
    axis = int(written[2])
    for one in inputs_of(program):
        if one.name == written[1] and axis < len(one.dims):
            if one.dims[axis] == 1:
                return Dimension(name, 1, ((one, axis),), {}, True)
            marks = program.grown([(one.key, axis)])
            return Dimension(name, one.dims[axis], _reached(inputs_of(program), marks), marks)
    return None
