"""Values: the arrays that the instructions of a computation make, and when each is last used. One array may have many names.

Tuples, their elements, bitcasts and the halves of asynchronous operations only rename arrays. A loop updates its operand in place, and so
does an instruction whose result aliases an operand.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from math import prod

from msgspec import Struct

from ...resource import HBM
from ..ir.callgraph import in_order
from ..ir.module import Computation, HloModule, Instruction
from ..ir.platforms import Platform
from ..ir.renaming import IN_PLACE, SHARING, Path, aliases
from ..ir.shapes import Shape
from ..price.bodies import bytes_of
from ..price.memory_spaces import level

NAMES_ONLY = IN_PLACE | {"tuple", "get-tuple-element", "parameter"}


class Value(Struct, eq=False):
    """One array in the memory that is looked at: where it was made and how large it is.

    ``bytes`` is 0 if a dimension has no bound. ``first`` (where it is made) and ``last`` (its last use) are positions in the order of
    execution. ``leaf`` is its number among the arrays of the computation's parameters, if it is one of them.
    """

    index: int
    shape: Shape
    bytes: int
    first: int
    last: int
    leaf: int | None = None


Tree = Value | None | tuple["Tree", ...]  # an array, a token, or a tuple
Renamed = Mapping[Path, Tree]  # by the path in a result
BEFORE = -1  # when a parameter is made


def leaves(tree: Tree) -> Iterator[Value | None]:
    """The arrays of a value, in order; ``None`` for a token, and for an array in another memory."""
    if isinstance(tree, tuple):
        for part in tree:
            yield from leaves(part)
    else:
        yield tree


def part_at(tree: Tree, path: tuple[int, ...]) -> Tree:
    """The part of a value at a path; ``None`` where there is none."""
    for place in path:
        if not isinstance(tree, tuple) or place >= len(tree):
            return None
        tree = tree[place]
    return tree


class Values(Struct, eq=False):
    """What the instructions of one computation make.

    ``order`` is the order of execution, ``trees`` the value of each instruction, ``parameters`` the arrays of its parameters in order,
    ``arrays`` all others.
    """

    computation: Computation
    order: tuple[int, ...]
    trees: list[Tree]
    parameters: list[Value | None]
    arrays: list[Value]

    @property
    def root(self) -> Tree:
        return self.trees[self.computation.root]


class ValuesOf:
    """The values of every computation of a module that runs: in main memory, or in the memory spaces with these numbers."""

    def __init__(self, module: HloModule, platform: Platform, spaces: frozenset[int] = frozenset()) -> None:
        self.module, self.platform, self.spaces = module, platform, spaces
        self._known: dict[int, Values] = {}
        self._sizes: dict[int, int | None] = {}  # by the shape, which readers share and the module keeps
        self.donated = donated(module)
        # What is left of reshapes in a program that was compiled for TPUs moves elements to other tiles; the others are bitcasts there.
        moves = {"reshape"} if platform == "tpu" and module.is_scheduled else set()
        self._in_place, self._names_only = IN_PLACE - moves, NAMES_ONLY - moves

    def __getitem__(self, number: int) -> Values:
        if number not in self._known:
            self._known[number] = self._walk(number)
        return self._known[number]

    def walked(self) -> tuple[Values, ...]:
        """The values of the computations walked so far."""
        return tuple(self._known.values())

    def _walk(self, number: int) -> Values:
        computation = self.module.computations[number]
        order = in_order(computation)
        values = Values(computation, order, [None] * len(order), [], [])
        for index in computation.parameters:
            values.trees[index] = self._fresh(values, index, computation[index].shape, BEFORE)
        for time, index in enumerate(order):
            instruction = computation.instructions[index]
            if instruction.opcode not in self._names_only:
                used = time - 1 if _joins_in_place(instruction) else time
                for operand in instruction.operands:
                    tree = values.trees[operand]
                    for value in (tree,) if isinstance(tree, Value) else leaves(tree):
                        if value is not None:
                            value.last = max(used, value.last)
            if instruction.opcode != "parameter":
                values.trees[index] = self._result(values, number, index, time)
        for value in leaves(values.root):
            if value is not None:
                value.last = len(order)
        return values

    def _fresh(self, values: Values, index: int, shape: Shape, time: int, renamed: Renamed | None = None, path: Path = ()) -> Tree:
        """New arrays of a shape, except for the parts in ``renamed``; with the time `BEFORE` they are a parameter's."""
        if renamed and path in renamed:
            return renamed[path]
        if shape.parts:
            return tuple([self._fresh(values, index, part, time, renamed, (*path, place)) for place, part in enumerate(shape.parts)])
        size = self._size(shape)
        value = None if size is None else Value(index, shape, size, time, time)
        if time == BEFORE:
            if value is not None:
                value.leaf = len(values.parameters)
            values.parameters.append(value)
        elif value is not None:
            values.arrays.append(value)
        return value

    def _size(self, shape: Shape) -> int | None:
        """Bytes of an array; ``None`` for tokens and for arrays in other memories."""
        if id(shape) not in self._sizes:
            is_main = level(shape, self.platform, "write") == HBM
            is_there = shape.is_array and (shape.memory_space in self.spaces if self.spaces else is_main)
            size = max(bytes_of(shape, shape.elements), _tile_bytes(shape)) if is_there and shape.is_bounded else 0
            self._sizes[id(shape)] = size if is_there else None
        return self._sizes[id(shape)]

    def _result(self, values: Values, number: int, index: int, time: int) -> Tree:
        """The value of an instruction: arrays of its operands, or new ones."""
        instruction = values.computation.instructions[index]
        if instruction.opcode not in SHARING:
            return self._fresh(values, index, instruction.shape, time)
        if instruction.opcode == "while" and instruction.called("body") and instruction.operands:
            return self._loop(values, number, instruction, index, time)
        if instruction.opcode == "call" and instruction.calls:
            return self._fresh(values, index, instruction.shape, time, self._passed_on(values, instruction))
        trees = [values.trees[operand] for operand in instruction.operands]
        renamed = {alias.output: part_at(trees[alias.operand], alias.index) for alias in aliases(instruction, self._in_place)}
        return self._fresh(values, index, instruction.shape, time, renamed)

    def _loop(self, values: Values, number: int, instruction: Instruction, index: int, time: int) -> Tree:
        """The result of a loop: its operand, updated in place. An array that must not change is copied if the loop changes it."""
        changed = iter(self.changed(instruction))

        def result(tree: Tree) -> Tree:
            if isinstance(tree, tuple):
                return tuple([result(part) for part in tree])
            changes = next(changed, False)
            if tree is None or not changes or not self.must_stay(number, tree):
                return tree
            return self._fresh(values, index, tree.shape, time)

        return result(values.trees[instruction.operands[0]])

    def changed(self, loop: Instruction) -> list[bool]:
        """Whether a loop changes each of the arrays that it carries."""
        body = self[loop.called("body")[0]]
        return [after is not before for before, after in zip(body.parameters, leaves(body.root), strict=False)]

    def must_stay(self, number: int, value: Value) -> bool:
        """Whether an array in a computation is a constant, or an argument of the program that is not donated."""
        if value.leaf is not None:
            return number == self.module.entry and value.leaf not in self.donated
        return self.module.computations[number][value.index].opcode == "constant"

    def _passed_on(self, values: Values, instruction: Instruction) -> Renamed:
        """The parts of a call's result that are arrays of its operands."""
        called = self[instruction.calls[0].computation]
        given = list(chain.from_iterable([leaves(values.trees[operand]) for operand in instruction.operands]))
        passed = {}
        for path, value in zip(paths(called.root), leaves(called.root), strict=True):
            if value is not None and value.leaf is not None and value.leaf < len(given):
                passed[path] = given[value.leaf]
        return passed


def _tile_bytes(shape: Shape) -> int:
    """The bytes of the tile that a scalar takes on a TPU; 0 for other arrays."""
    tiles = shape.layout.tiles if shape.layout is not None and not shape.dims else ()
    return prod(tiles[0]) * shape.number.bits // 8 if tiles else 0


def _joins_in_place(instruction: Instruction) -> bool:
    """Whether an instruction only calls slices that lie one after another by one name: they were put where the whole array is."""
    return instruction.opcode == "custom-call" and instruction.custom_call_target == "ConcatBitcast"


def paths(tree: Tree, path: Path = ()) -> Iterator[Path]:
    """Where the arrays of a value are, in the order of its `leaves`."""
    if isinstance(tree, tuple):
        for place, part in enumerate(tree):
            yield from paths(part, (*path, place))
    else:
        yield path


def donated(module: HloModule) -> dict[int, tuple[int, ...]]:
    """The arrays of the program's arguments whose memory an output takes over, by number, each with the path of that output."""
    entry = module.entry_computation
    numbers: dict[tuple[int, tuple[int, ...]], int] = {}
    for parameter, index in enumerate(entry.parameters):
        for path in entry[index].shape.paths:
            numbers[parameter, path] = len(numbers)
    is_tuple = entry.root_instruction.shape.is_tuple
    return {
        numbers[alias.parameter, alias.index]: alias.output if is_tuple else ()
        for alias in module.aliases
        if (alias.parameter, alias.index) in numbers
    }
