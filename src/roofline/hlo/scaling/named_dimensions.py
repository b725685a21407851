"""The dimensions of a program's inputs that can be scaled: by an input's name (``tok[0]``), or a name for those that grow together.

``batch`` is the first dimension of the data, ``sequence`` the next one (also of a table of positions); ``experts`` is the first dimension
of weights that are stacks of matrices, ``layers`` that of stacks that a loop steps along; ``vocabulary`` is the rows of tables that are
looked up; ``hidden`` is the widths that are a column dimension of one weight and a row dimension of another: of the residual stream, of
all heads together, and between two products.
"""

import re
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from ..partition.propagation import Key
from ..price.loops import Loops
from .data_groups import DataInputs, Group, batch_group, sequence_group
from .growth import Marks, Program, running
from .inputs import Input, inputs_of, reached_by
from .links import WalkedAxis, called_by, walked_axes
from .weights import MATRIX, tables_of, walked_by_loops

BATCH, LAYERS, EXPERTS = "batch", "layers", "experts"


class Dimension(Struct, frozen=True):
    """Dimensions of inputs that grow together, under one name; ``marks`` are all arrays that grow with them.

    ``is_dropped`` is true for one of size 1, which compilers remove: then ``marks`` has the inputs alone. ``grouped`` are data that grow
    because they are divided into that many groups. Sizes a little above or below ``length`` keep their difference to it.
    """

    name: str
    size: int
    inputs: tuple[tuple[Input, int], ...]
    marks: Marks
    is_dropped: bool = False
    grouped: tuple[Input, ...] = ()
    length: int = 0


def walking(program: Program, dimension: Dimension) -> dict[int, int]:
    """The computations of loops that step along a dimension, which run more often as it grows, and how many such loops each is in."""
    module, loops = program.module, Loops(program.module)
    loops_around: dict[int, int] = {}
    for number in running(module):
        for loop in module.computations[number]:
            if loop.opcode == "while" and any(_grows(dimension.marks, walked) for walked in walked_axes(module, loops, number, loop)):
                for inner in called_by(module, loop):
                    loops_around[inner] = loops_around.get(inner, 0) + 1
    return loops_around


def _grows(marks: Marks, walked: WalkedAxis) -> bool:
    """Whether a dimension that a loop steps along grows, and not the part of it per trip."""
    whole, part = (marks.get(key) for key in (walked.whole, walked.part))
    return bool(whole and whole[walked.axis] and not (part and part[walked.axis]))


def dimensions_of(program: Program) -> tuple[Dimension, ...]:
    """The dimensions of a program that have names."""
    inputs = inputs_of(program)
    stacks, kept = _stacks(program, inputs)
    dimensions = [*_vocabulary(program, inputs), *stacks]
    if hidden := _hidden(program, inputs, {*chain(*map(_places, dimensions))}):
        dimensions.append(hidden)
    return (*dimensions, *_data_dimensions(DataInputs(program, inputs, kept), stacks))


def _vocabulary(program: Program, inputs: tuple[Input, ...]) -> list[Dimension]:
    """The rows of the tables that are looked up, if only weights have that dimension."""
    tables = tables_of(program.module)
    size = next((argument.dims[0] for argument in inputs if argument.key[1] in tables and len(argument.dims) == MATRIX), 0)
    if not size:
        return []
    marks = program.grown(
        [
            (argument.key, axis)
            for argument in inputs
            if argument.is_weight and len(argument.dims) == MATRIX
            for axis in (0, 1)
            if argument.dims[axis] == size
        ]
    )
    together = reached_by(inputs, marks)
    return [Dimension("vocabulary", size, together, marks)] if all(argument.is_weight for argument, _ in together) else []


def _stacks(program: Program, inputs: tuple[Input, ...]) -> tuple[list[Dimension], Marks]:
    """The layers that a loop steps over and the experts: the dimensions along which weights are stacked.

    Also returns the arrays that grow with the experts alone, not because tokens are divided into that many groups.
    """
    layers, kept = walked_by_loops(program.module), Marks()
    stacks = {
        LAYERS: [(argument, 0) for argument in inputs if argument.is_weight and argument.key[1] in layers and len(argument.dims) > MATRIX],
        EXPERTS: [
            (argument, axis)
            for argument in inputs
            if argument.is_weight and len(argument.dims) == MATRIX + 1 + (axis := int(argument.key[1] in layers))
        ],
    }
    dimensions: list[Dimension] = []
    for name, all_of_them in stacks.items():
        if name == EXPERTS:
            all_of_them = _multiplied_stacks(program, inputs, all_of_them)
        if not all_of_them:
            continue
        first, axis = all_of_them[0]
        number = first.dims[axis]
        like = [(argument.key, place) for argument, place in all_of_them if argument.dims[place] == number]
        if name == EXPERTS:  # and the router's scores
            like += [
                (argument.key, len(argument.dims) - 1)
                for argument in inputs
                if len(argument.dims) == MATRIX + axis and argument.dims[-1] == number
            ]
        marks = program.grown(like)
        alone = program.grown(like, whole=True) if name == EXPERTS else marks
        reached, own = reached_by(inputs, marks), {(argument.key, place) for argument, place in reached_by(inputs, alone)}
        grouped = tuple(argument for argument, place in reached if not argument.is_weight and (argument.key, place) not in own)
        dimensions.append(Dimension(name, number, reached, marks, grouped=grouped))
        kept = alone if name == EXPERTS else kept
    return dimensions, kept


def _multiplied_stacks(program: Program, inputs: tuple[Input, ...], stacks: list[tuple[Input, int]]) -> list[tuple[Input, int]]:
    """Those of some stacks that are whole operands of products, as experts are, and not one part per layer."""
    gone = set[tuple[Key, int]]()
    for argument, axis in stacks:
        if (argument.key, axis) not in gone:
            marks = program.grown([(argument.key, axis)])
            gone |= set() if program.products_with(marks) else {(other.key, place) for other, place in reached_by(inputs, marks)}
    return [(stack, axis) for stack, axis in stacks if (stack.key, axis) not in gone]


def _data_dimensions(data: DataInputs, stacks: list[Dimension]) -> list[Dimension]:
    """The batch and the sequence."""
    seen = {
        (argument.key, place)
        for dimension in stacks
        for argument, place in dimension.inputs
        if argument.dims[place] == dimension.size and argument not in dimension.grouped
    }
    batch = batch_group(data, seen)
    data_dimensions = [_grouped(data.program, BATCH, batch)] if batch else []
    seen |= {(argument.key, axis) for argument, axis in batch.reached} if batch else set()
    if batch is None and (ones := tuple((argument, argument.dims.index(1)) for argument in data.arrays if 1 in argument.dims)):
        data_dimensions.append(Dimension(BATCH, 1, ones, {}, True))
    sequence = sequence_group(data, seen, batch)
    return [*data_dimensions, _grouped(data.program, "sequence", sequence)] if sequence else data_dimensions


def _grouped(program: Program, name: str, group: Group) -> Dimension:
    return _computed(program, Dimension(name, group.size, group.reached, group.marks))


def _computed(program: Program, dimension: Dimension) -> Dimension:
    """A dimension of data with the size that the program computes on: one less, if it slices tokens into inputs (without the last) and
    targets (without the first).
    """
    sizes = [dimension.size, *(argument.dims[axis] for argument, axis in dimension.inputs)]
    near = [size for size in dict.fromkeys((*sizes, dimension.size - 1)) if abs(size - dimension.size) <= 1]
    computed = {
        mark for key in program.computed(dimension.marks) if program.is_float(key) for marks in dimension.marks[key] for mark, _ in marks
    }
    size = next((size for size in near if size in computed), dimension.size)
    return replace(dimension, size=size, length=size)


def _hidden(program: Program, inputs: tuple[Input, ...], taken: set[tuple[Key, int]]) -> Dimension | None:
    """The widths of the model: column dimensions of one weight that are row dimensions of another, without those that have names."""
    own = {argument.key[1] for argument in inputs if argument.is_taken}
    matrices = [argument for argument in inputs if argument.is_taken and len(argument.dims) >= MATRIX]
    seeds: list[tuple[Input, int]] = []
    seen = set(taken)
    for argument in matrices:
        for axis in range(len(argument.dims) - MATRIX, len(argument.dims)):
            if (argument.key, axis) in seen:
                continue
            together = reached_by(inputs, program.grown([(argument.key, axis)]))
            places = {(other.key, place) for other, place in together}
            seen |= places
            if not places & taken and sum(key[1] in own for key, _ in places) > 1:
                seeds.append((argument, axis))
    if not seeds:
        return None
    marks = program.grown((argument.key, axis) for argument, axis in seeds)
    return Dimension("hidden", seeds[0][0].dims[seeds[0][1]], reached_by(inputs, marks), marks)


def _places(dimension: Dimension) -> list[tuple[Key, int]]:
    return [(argument.key, axis) for argument, axis in dimension.inputs]


def dimension_named(program: Program, name: str) -> Dimension | None:
    """The dimension with this name: a word, or an input's name and the number of a dimension, as in ``tok[0]``."""
    for known in dimensions_of(program):
        if known.name == name:
            return known
    written = re.fullmatch(r"(.+)\[(\d{1,9})\]", name)
    if written is None:
        return None
    axis = int(written[2])
    for argument in inputs_of(program):
        if argument.name == written[1] and axis < len(argument.dims):
            if argument.dims[axis] == 1:
                return Dimension(name, 1, ((argument, axis),), {}, True)
            marks = program.grown([(argument.key, axis)])
            return _computed(program, Dimension(name, argument.dims[axis], reached_by(inputs_of(program), marks), marks))
    return None
