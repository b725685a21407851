"""Values: the arrays that the instructions of a computation make, and when each is last used. One array may have many names.

Tuples, their elements, bitcasts and the halves of asynchronous operations only rename arrays. A loop updates its operand in place, and so
does an instruction whose result aliases an operand.
"""

from collections.abc import Mapping
from itertools import chain, zip_longest
from math import prod
from types import MappingProxyType

from msgspec import Struct

from ...resource import HBM
from ..ir.module import Computation, HloModule, Instruction
from ..ir.platforms import Platform
from ..ir.renaming import IN_PLACE, SHARING, aliases
from ..ir.shapes import Shape
from .bodies import bytes_of
from .memory_spaces import level

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


Given = Mapping[int, Value | None]  # arrays of a result, by their number
NOTHING: Given = MappingProxyType({})
Leaves = tuple[Value | None, ...]  # of a value, in the order of its shape's; None for a token, and for an array in another memory
BEFORE = -1  # when a parameter is made


class Values(Struct, eq=False):
    """What the instructions of one computation make.

    ``leaves`` are the arrays of each instruction's value, ``parameters`` the arrays of the parameters in order, ``arrays`` all others.
    """

    computation: Computation
    leaves: list[Leaves]
    parameters: list[Value | None]
    arrays: list[Value]

    @property
    def root(self) -> Leaves:
        return self.leaves[self.computation.root]

    def array(self, index: int) -> Value | None:
        """The array that an instruction's value is; ``None`` if it is a tuple, a token or in another memory."""
        return None if self.computation[index].shape.is_tuple else self.leaves[index][0]


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
        values = Values(computation, [()] * len(computation), [], [])
        for index in computation.parameters:
            values.leaves[index] = self._fresh(values, index, BEFORE)
        for index, instruction in enumerate(computation.instructions):
            if instruction.opcode not in self._names_only:
                used = index - 1 if _joins_in_place(instruction) else index
                for operand in instruction.operands:
                    for value in values.leaves[operand]:
                        if value is not None and value.last < used:
                            value.last = used
            if instruction.opcode != "parameter":
                values.leaves[index] = self._fresh(values, index, index, self._given(values, number, instruction))
        for value in values.root:
            if value is not None:
                value.last = len(computation)
        return values

    def _fresh(self, values: Values, index: int, time: int, given: Given = NOTHING) -> Leaves:
        """New arrays of a result, except for those that are ``given`` by their number; with the time `BEFORE` they are a parameter's."""
        leaves: list[Value | None] = []
        for place, shape in enumerate(values.computation.instructions[index].shape.leaves):
            if place in given:
                leaves.append(given[place])
                continue
            size = self._size(shape)
            value = None if size is None else Value(index, shape, size, time, time)
            leaves.append(value)
            if time == BEFORE:
                if value is not None:
                    value.leaf = len(values.parameters)
                values.parameters.append(value)
            elif value is not None:
                values.arrays.append(value)
        return tuple(leaves)

    def _size(self, shape: Shape) -> int | None:
        """Bytes of an array; ``None`` for tokens and for arrays in other memories."""
        if id(shape) not in self._sizes:
            is_main = level(shape, self.platform, "write") == HBM
            is_there = shape.is_array and (shape.memory_space in self.spaces if self.spaces else is_main)
            size = max(bytes_of(shape, shape.elements), _tile_bytes(shape)) if is_there and shape.is_bounded else 0
            self._sizes[id(shape)] = size if is_there else None
        return self._sizes[id(shape)]

    def _given(self, values: Values, number: int, instruction: Instruction) -> Given:
        """The arrays of a result that are arrays of operands, by their number."""
        opcode, operands = instruction.opcode, instruction.operands
        if opcode not in SHARING:
            return NOTHING
        if opcode == "while" and instruction.called("body") and operands:
            # A loop updates its operand in place. An array that must not change is copied if the loop changes it.
            pairs = zip_longest(values.leaves[operands[0]], self.changed(instruction))
            kept = [value is None or not changes or not self.must_stay(number, value) for value, changes in pairs]
            return {place: value for place, (value, keeps) in enumerate(zip(values.leaves[operands[0]], kept, strict=False)) if keeps}
        if opcode == "call" and instruction.calls:
            passed = list(chain.from_iterable([values.leaves[operand] for operand in operands]))
            inner = [(place, value.leaf) for place, value in enumerate(self[instruction.calls[0].computation].root) if value is not None]
            return {place: passed[leaf] for place, leaf in inner if leaf is not None and leaf < len(passed)}
        given: dict[int, Value | None] = {}
        for alias in aliases(instruction, self._in_place):
            operand = operands[alias.operand]
            source = values.computation[operand].shape.leaf_range(alias.index)
            given |= zip(instruction.shape.leaf_range(alias.output), values.leaves[operand][source.start : source.stop], strict=False)
        return given

    def changed(self, loop: Instruction) -> list[bool]:
        """Whether a loop changes each of the arrays that it carries."""
        body = self[loop.called("body")[0]]
        return [after is not before for before, after in zip(body.parameters, body.root, strict=False)]

    def must_stay(self, number: int, value: Value) -> bool:
        """Whether an array in a computation is a constant, or an argument of the program that is not donated."""
        if value.leaf is not None:
            return number == self.module.entry and value.leaf not in self.donated
        return self.module.computations[number][value.index].opcode == "constant"


def _tile_bytes(shape: Shape) -> int:
    """The bytes of the tile that a scalar takes on a TPU; 0 for other arrays."""
    tiles = shape.layout.tiles if shape.layout is not None and not shape.dims else ()
    return prod(tiles[0]) * shape.number.bits // 8 if tiles else 0


def _joins_in_place(instruction: Instruction) -> bool:
    """Whether an instruction only calls slices that lie one after another by one name: they were put where the whole array is."""
    return instruction.opcode == "custom-call" and instruction.custom_call_target == "ConcatBitcast"


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
