"""The dimensions of a program's inputs that can be scaled: by an input's name (``tok[0]``), or a name for those that grow together.

``batch`` is the first dimension of the data, ``sequence`` the next one (also of a table of positions); ``experts`` is the first dimension
of weights that are stacks of matrices, ``layers`` that of stacks that a loop steps along; ``vocabulary`` is the rows of tables that are
looked up; ``hidden`` is the widths that are a column dimension of one weight and a row dimension of another: of the residual stream, of
all heads together, and between two products.
"""

import re

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
    found: dict[int, int] = {}
    for number in running(module):
        for loop in module.computations[number]:
            if loop.opcode == "while" and any(_grows(dimension.marks, one) for one in walked_axes(module, loops, number, loop)):
                for inner in called_by(module, loop):
                    found[inner] = found.get(inner, 0) + 1
    return found


def _grows(marks: Marks, walked: WalkedAxis) -> bool:
    """Whether a dimension that a loop steps along grows, and not the part of it per trip."""
    whole, part = (marks.get(key) for key in (walked.whole, walked.part))
    return bool(whole and whole[walked.axis] and not (part and part[walked.axis]))


def dimensions_of(program: Program) -> tuple[Dimension, ...]:
    """The dimensions of a program that have names."""
    inputs = inputs_of(program)
    stacks, kept = _stacks(program, inputs)
    found = [*_vocabulary(program, inputs), *stacks]
    if hidden := _hidden(program, inputs, {place for one in found for place in _places(one)}):
        found.append(hidden)
    return (*found, *_data_dimensions(DataInputs(program, inputs, kept), stacks))


def _vocabulary(program: Program, inputs: tuple[Input, ...]) -> list[Dimension]:
    """The rows of the tables that are looked up, if only weights have that dimension."""
    tables = tables_of(program.module)
    size = next((one.dims[0] for one in inputs if one.key[1] in tables and len(one.dims) == MATRIX), 0)
    if not size:
        return []
    marks = program.grown(
        [(one.key, axis) for one in inputs if one.is_weight and len(one.dims) == MATRIX for axis in (0, 1) if one.dims[axis] == size]
    )
    together = reached_by(inputs, marks)
    return [Dimension("vocabulary", size, together, marks)] if all(one.is_weight for one, _ in together) else []


def _stacks(program: Program, inputs: tuple[Input, ...]) -> tuple[list[Dimension], Marks]:
    """The layers that a loop steps over and the experts: the dimensions along which weights are stacked.

    Also returns the arrays that grow with the experts alone, not because tokens are divided into that many groups.
    """
    layers, kept = walked_by_loops(program.module), Marks()
    stacks = {
        LAYERS: [(one, 0) for one in inputs if one.is_weight and one.key[1] in layers and len(one.dims) > MATRIX],
        EXPERTS: [(one, axis) for one in inputs if one.is_weight and len(one.dims) == MATRIX + 1 + (axis := int(one.key[1] in layers))],
    }
    found: list[Dimension] = []
    for name, all_of_them in stacks.items():
        if name == EXPERTS:
            all_of_them = _multiplied_stacks(program, inputs, all_of_them)
        if not all_of_them:
            continue
        first, axis = all_of_them[0]
        number = first.dims[axis]
        like = [(one.key, place) for one, place in all_of_them if one.dims[place] == number]
        if name == EXPERTS:  # and the router's scores
            like += [(one.key, len(one.dims) - 1) for one in inputs if len(one.dims) == MATRIX + axis and one.dims[-1] == number]
        marks = program.grown(like)
        alone = program.grown(like, whole=True) if name == EXPERTS else marks
        reached, own = reached_by(inputs, marks), {(one.key, place) for one, place in reached_by(inputs, alone)}
        grouped = tuple(one for one, place in reached if not one.is_weight and (one.key, place) not in own)
        found.append(Dimension(name, number, reached, marks, grouped=grouped))
        kept = alone if name == EXPERTS else kept
    return found, kept


def _multiplied_stacks(program: Program, inputs: tuple[Input, ...], stacks: list[tuple[Input, int]]) -> list[tuple[Input, int]]:
    """Those of some stacks that are whole operands of products, as experts are, and not one part per layer."""
    gone = set[tuple[Key, int]]()
    for one, axis in stacks:
        if (one.key, axis) not in gone:
            marks = program.grown([(one.key, axis)])
            gone |= set() if program.products_with(marks) else {(other.key, place) for other, place in reached_by(inputs, marks)}
    return [(one, axis) for one, axis in stacks if (one.key, axis) not in gone]


def _data_dimensions(data: DataInputs, stacks: list[Dimension]) -> list[Dimension]:
    """The batch and the sequence."""
    seen = {(one.key, place) for each in stacks for one, place in each.inputs if one.dims[place] == each.size and one not in each.grouped}
    batch = batch_group(data, seen)
    found = [_grouped(data.program, BATCH, batch)] if batch else []
    seen |= {(one.key, axis) for one, axis in batch.reached} if batch else set()
    if batch is None and (ones := tuple((one, one.dims.index(1)) for one in data.arrays if 1 in one.dims)):
        found.append(Dimension(BATCH, 1, ones, {}, True))
    sequence = sequence_group(data, seen, batch)
    return [*found, _grouped(data.program, "sequence", sequence)] if sequence else found


def _grouped(program: Program, name: str, group: Group) -> Dimension:
    return _computed(program, Dimension(name, group.size, group.reached, group.marks))


def _computed(program: Program, dimension: Dimension) -> Dimension:
    """A dimension of data with the size that the program computes on: one less, if it slices tokens into inputs (without the last) and
    targets (without the first).
    """
    sizes = [dimension.size, *(one.dims[axis] for one, axis in dimension.inputs)]
    near = [size for size in dict.fromkeys((*sizes, dimension.size - 1)) if abs(size - dimension.size) <= 1]
    made = {mark for key in program.computed(dimension.marks) if program.is_float(key) for held in dimension.marks[key] for mark, _ in held}
    size = next((size for size in near if size in made), dimension.size)
    return replace(dimension, size=size, length=size)


def _hidden(program: Program, inputs: tuple[Input, ...], taken: set[tuple[Key, int]]) -> Dimension | None:
    """The widths of the model: column dimensions of one weight that are row dimensions of another, without those that have names."""
    own = {one.key[1] for one in inputs if one.is_taken}
    matrices = [one for one in inputs if one.is_taken and len(one.dims) >= MATRIX]
    seeds: list[tuple[Input, int]] = []
    seen = set(taken)
    for one in matrices:
        for axis in range(len(one.dims) - MATRIX, len(one.dims)):
            if (one.key, axis) in seen:
                continue
            together = reached_by(inputs, program.grown([(one.key, axis)]))
            places = {(other.key, place) for other, place in together}
            seen |= places
            if not places & taken and sum(key[1] in own for key, _ in places) > 1:
                seeds.append((one, axis))
    if not seeds:
        return None
    marks = program.grown((one.key, axis) for one, axis in seeds)
    return Dimension("hidden", seeds[0][0].dims[seeds[0][1]], reached_by(inputs, marks), marks)


def _places(dimension: Dimension) -> list[tuple[Key, int]]:
    return [(one.key, axis) for one, axis in dimension.inputs]


def dimension_named(program: Program, name: str) -> Dimension | None:
    """The dimension with this name: a word, or an input's name and the number of a dimension, as in ``tok[0]``."""
    for known in dimensions_of(program):
        if known.name == name:
            return known
    written = re.fullmatch(r"(.+)\[(\d{1,9})\]", name)
    if written is None:
        return None
    axis = int(written[2])
    for one in inputs_of(program):
        if one.name == written[1] and axis < len(one.dims):
            if one.dims[axis] == 1:
                return Dimension(name, 1, ((one, axis),), {}, True)
            marks = program.grown([(one.key, axis)])
            return _computed(program, Dimension(name, one.dims[axis], reached_by(inputs_of(program), marks), marks))
    return None
