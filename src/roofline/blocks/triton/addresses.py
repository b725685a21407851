"""Which addresses the blocks of a Triton kernel touch, and how often their loops run, by evaluating its integer arithmetic.

The IR is evaluated with the real sizes and strides, for many blocks at once: a scalar is an array with one number for each block, a
tensor has its own axes behind that of the blocks. Whole numbers that are loaded come from the tensor that was given, if it has values;
else they are taken as different from one another (`Guess`), which tells what indices touch, but no mask and no loop's end. Other values
from memory are unknown (``None``), and so is what is computed from them.
Loops are evaluated for their first two iterations: addresses move by the difference in each later one. Of branches, and behind early
returns, each block runs the side that its condition says, both where that is unknown.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from .ir import BLOCK, Kernel, Operation, Type

Array = Any  # of whole numbers, or of truth values
Known = Array | None
BASE = 44  # bits between the addresses of two arguments: more than any of them has bytes
INDICES = 1 << 20  # as many indices that memory holds are told apart
SCATTER = 0x9E3779B1  # Knuth's multiplier, which spreads consecutive numbers


class Guess(np.ndarray):
    """Numbers in place of those that memory holds; what numpy computes from them is such an array, too."""


class Descriptor(Struct, frozen=True):
    """A tensor descriptor that is an argument: the sizes and strides of its tensor."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Access(Struct, frozen=True):
    """A load or store as the blocks run it: byte addresses and mask of its first execution, and, for each loop around it from the
    outermost, how often it runs and by how many bytes the addresses move in an iteration. ``None`` is unknown; addresses then come from
    memory. ``runs`` says which blocks get there, ``None`` that all may.
    """

    operation: Operation
    tile: Type
    addresses: Known
    mask: Known
    trips: tuple[Known, ...]
    moves: tuple[Known, ...]
    runs: Known = None

    @property
    def is_store(self) -> bool:
        return "store" in self.operation.name or "atomic" in self.operation.name


class Loop(Struct, frozen=True):
    """A loop and how often it runs in each block that gets there (``runs``); of an inner loop, in each iteration of the outer one."""

    operation: Operation
    trips: Known
    outer: tuple[Operation, ...]
    runs: Known = None

    @property
    def mean(self) -> float:
        """How often it runs on average, once if that is not known."""
        if self.trips is None:
            return 1.0
        if self.runs is None or not np.any(self.runs):
            return float(np.mean(self.trips))
        return float(np.mean(np.broadcast_to(self.trips, self.runs.shape), where=self.runs))


class Evaluation(Struct, frozen=True):
    """What some blocks touch, how often their loops run, the share of each side of a branch, and of each block behind an early return, that
    runs (by the identity of its operation), and for each block of the grid how much of the kernel's code it runs.
    """

    accesses: tuple[Access, ...]
    loops: tuple[Loop, ...]
    sides: Mapping[int, tuple[float, float]]
    code: Array


def corners(start: int, end: int) -> Array:
    """The first and last number of a range: enough to tell the tiles of two blocks apart."""
    return np.array([start, end - 1] if end - start > 1 else [start], dtype=np.int64)


def whole(start: int, end: int) -> Array:
    """Every number of a range."""
    return np.arange(start, end, dtype=np.int64)


def evaluate(
    kernel: Kernel,
    arguments: Mapping[str, Any],
    grid: tuple[int, int, int],
    blocks: Sequence[int],
    sample: Callable[[int, int], Array] = corners,
) -> Evaluation:
    """The accesses and loops of these blocks, numbered as they are launched; ``arguments`` are scalars, and tensors of whole numbers
    with values, by name.
    """
    number = np.asarray(blocks, dtype=np.int64)
    places = (number % grid[0], number // grid[0] % grid[1], number // (grid[0] * grid[1]))
    run = _Run(dict(zip("xyz", places, strict=True)), dict(zip("xyz", grid, strict=True)), sample)
    for place, (name, kind) in enumerate(kernel.arguments, 1):
        value = arguments.get(name.removeprefix("%"))
        if kind.is_pointer:
            run.values[name] = np.array([place << BASE], dtype=np.int64)
            if isinstance(value, np.ndarray):
                run.tables[place] = value.ravel()
        elif isinstance(value, Descriptor):
            sizes, strides = (tuple(np.array([number]) for number in numbers) for numbers in (value.shape, value.strides))
            run.descriptors[name] = np.array([place << BASE], dtype=np.int64), sizes, strides
        else:
            run.values[name] = np.array([value], dtype=np.int64) if isinstance(value, int) else None
    with np.errstate(all="ignore"):
        run.block(kernel.operations, (), ())
    return Evaluation(tuple(run.accesses()), tuple(run.loops.values()), run.sides, run.code_share(len(number)))


class _Run:
    def __init__(self, places: dict[str, Array], grid: dict[str, int], sample: Callable[[int, int], Array]) -> None:
        self.places, self.grid, self.sample = places, grid, sample
        self.values: dict[str, Known] = {}
        self.tables: dict[int, Array] = {}
        self.descriptors: dict[str, tuple[Known, tuple[Known, ...], tuple[Known, ...]]] = {}
        self.loops: dict[int, Loop] = {}
        self.touched: dict[int, dict[tuple[int, ...], tuple[Operation, Type, Known, Known, Known]]] = {}
        self.around: dict[int, tuple[int, ...]] = {}
        self.active: list[Known] = []
        self.edges: dict[str, list[tuple[Known, list[Known]]]] = {}  # the conditions and values with which branches lead to a block
        self.sides: dict[int, tuple[float, float]] = {}
        self.ran: Array = np.zeros(1)  # elements of the operations that each block runs

    def block(self, operations: Sequence[Operation], path: tuple[int, ...], around: tuple[Operation, ...]) -> list[Known]:
        """Evaluates some operations; what they yield at their end."""
        for operation in operations:
            if operation.name in ("scf.yield", "scf.condition"):
                return [self.value(name) for name in operation.operands]
            if operation.name in ("cf.br", "cf.cond_br"):
                self.leave(operation)
            elif operation.name == BLOCK:
                self.enter(operation, path, around)
            elif operation.name == "scf.for":
                self.loop(operation, path, around)
            elif operation.name == "scf.if":
                self.branch(operation, path, around)
            elif operation.name == "scf.while":
                self.block(operation.body, path, around)
                self.block(operation.otherwise, path, around)
                self.give(operation, [None] * len(operation.results))
                self.loops[id(operation)] = Loop(operation, None if _works(operation) else np.ones(1), around)
            else:
                if not any(path):
                    self.count(operation)
                self.touch(operation, path, around)
                self.give(operation, [self.result(operation)] * len(operation.results))
        return []

    def value(self, name: str) -> Known:
        return self.values.get(name)

    def give(self, operation: Operation, values: Sequence[Known]) -> None:
        self.values.update(zip(operation.results, values, strict=False))

    def loop(self, operation: Operation, path: tuple[int, ...], around: tuple[Operation, ...]) -> None:
        low, high, step, *first = (self.value(name) for name in operation.operands)
        trips = None
        if low is not None and high is not None and step is not None and not _guessed(low, high, step):
            trips = np.maximum(0, -((low - high) // step))
        if id(operation) not in self.loops:
            self.loops[id(operation)] = Loop(operation, trips, around, self.runs())
        index, *inside = operation.carried
        values, ends = list(first), []
        for iteration in (0, 1):
            self.values[index] = None if low is None or step is None else low + iteration * step
            self.values.update(zip(inside, values, strict=False))
            values = self.block(operation.body, (*path, iteration), (*around, operation))
            ends.append(values)
        self.give(operation, [_after(trips, start, one, two) for start, one, two in zip(first, *ends, strict=False)])

    def branch(self, operation: Operation, path: tuple[int, ...], around: tuple[Operation, ...]) -> None:
        condition = _sure(self.value(operation.operands[0]))
        if condition is not None and not any(path):
            share = float(np.mean(condition))
            self.sides[id(operation)] = share, 1 - share
        self.active.append(condition)
        yes = self.block(operation.body, path, around)
        self.active[-1] = None if condition is None else ~condition
        no = self.block(operation.otherwise, path, around)
        self.active.pop()
        both = zip(yes, no, strict=False)
        self.give(operation, [_merged(condition, a, b) for a, b in both])

    def leave(self, branch: Operation) -> None:
        """Keeps with which condition and values a branch leads on: to its first target where its condition holds."""
        condition = _sure(self.value(branch.operands[0])) if branch.name == "cf.cond_br" else None
        here = self.runs()
        for number, (label, names) in enumerate(branch.targets()):
            holds = None if condition is None else ~condition if number else condition
            self.edges.setdefault(label, []).append((_both(here, holds), [self.value(name) for name in names]))

    def enter(self, block: Operation, path: tuple[int, ...], around: tuple[Operation, ...]) -> None:
        """Evaluates a block that branches lead to, for the blocks of the grid that get there."""
        edges = self.edges.get(block.text, [(None, [None] * len(block.carried))])
        runs, given = edges[0]
        for condition, values in edges[1:]:
            given = [_merged(condition, value, other) for value, other in zip(values, given, strict=True)]
            runs = None if runs is None or condition is None else runs | condition
        self.values.update(zip(block.carried, given, strict=False))
        share = 1.0 if runs is None else float(np.mean(runs))
        self.sides[id(block)] = share, share
        before, self.active = self.active, [runs]
        self.block(block.body, path, around)
        self.active = before

    def runs(self) -> Known:
        """Which blocks run what is evaluated now; ``None`` if all may."""
        runs: Known = None
        for condition in self.active:
            runs = _both(runs, condition)
        return runs

    def count(self, operation: Operation) -> None:
        """Adds the elements of an operation to what the blocks run, once, however often loops around it do."""
        runs = self.runs()
        self.ran = self.ran + operation.type.elements * (np.ones(1) if runs is None else runs)

    def code_share(self, blocks: int) -> Array:
        """For each block how much of the code it runs, over the one that runs most."""
        ran = np.broadcast_to(self.ran, (blocks,))
        return ran / max(1.0, float(ran.max()))

    def touch(self, operation: Operation, path: tuple[int, ...], around: tuple[Operation, ...]) -> None:
        if operation.name not in ACCESSES or not operation.operands:
            return
        tile = operation.type
        pointer, mask = self.place(operation)
        if (runs := self.runs()) is not None:
            mask = _both(mask, runs.reshape(runs.shape + (1,) * len(tile.shape)))
        self.touched.setdefault(id(operation), {})[path] = (operation, tile, pointer, mask, runs)
        self.around[id(operation)] = tuple(map(id, around))

    def place(self, operation: Operation) -> tuple[Known, Known]:
        """The addresses that a load or store touches, and its mask."""
        first, *others = operation.operands
        if operation.name.startswith("tt.descriptor_"):
            return self.described(self.descriptors.get(first), [self.value(name) for name in others], operation.type)
        behind = ACCESSES[operation.name] - 1
        return self.value(first), _sure(self.value(others[behind])) if behind < len(others) else None

    def described(self, descriptor: Any, corner: Sequence[Known], tile: Type) -> tuple[Known, Known]:
        """The addresses of a tile of a tensor descriptor, and which are inside of the tensor."""
        if descriptor is None or descriptor[0] is None or len(descriptor[1]) != len(tile.shape):
            return None, None
        pointer, sizes, strides = descriptor
        rank = len(tile.shape)
        wide = (-1, *(1,) * rank)
        addresses, inside = pointer.reshape(wide), None
        for axis, (length, at, size, stride) in enumerate(zip(tile.shape, corner, sizes, strides, strict=False)):
            if at is None or size is None or stride is None:
                return None, None
            along = self.sample(0, length).reshape(1, *(-1 if place == axis else 1 for place in range(rank)))
            index = at.reshape(wide) + along
            addresses = addresses + index * stride.reshape(wide) * tile.bytes
            within = (index >= 0) & (index < size.reshape(wide))
            inside = within if inside is None else inside & within
        return addresses, _sure(inside)

    def loaded(self, operation: Operation) -> Known:
        """What a load of whole numbers brings."""
        pointer = self.value(operation.operands[0])
        if pointer is None or not operation.type.element.startswith("i"):
            return None
        index = (pointer & (1 << BASE) - 1) // operation.type.bytes
        table = self.tables.get(int(pointer.flat[0]) >> BASE)
        if table is None or _guessed(pointer):
            return (index * SCATTER // 64 % INDICES).view(Guess)
        return table[np.clip(index, 0, len(table) - 1)]

    def accesses(self) -> list[Access]:
        found = []
        for key, executions in self.touched.items():
            depth = len(self.around[key])
            operation, tile, pointer, mask, runs = executions[(0,) * depth]
            moves: list[Known] = []
            for level in range(depth):
                later = executions[tuple(int(place == level) for place in range(depth))][2]
                moves.append(None if later is None or pointer is None else _first(later - pointer))
            trips = tuple(self.loops[loop].trips for loop in self.around[key])
            found.append(Access(operation, tile, pointer, mask, trips, tuple(moves), runs))
        return found

    def result(self, operation: Operation) -> Known:
        name = operation.name
        rank = len(operation.type.shape)
        if name == "tt.get_program_id":
            return self.places[operation.text.split()[1]]
        if name == "tt.get_num_programs":
            return np.array([self.grid[operation.text.split()[1]]], dtype=np.int64)
        if name == "arith.constant":
            return _constant(operation.text, rank)
        if name == "tt.make_range":
            return self.sample(_attribute(operation.text, "start"), _attribute(operation.text, "end"))[None, :]
        if name == "tt.load":
            return self.loaded(operation)
        if name == "tt.make_tensor_descriptor":
            pointer, *numbers = (self.value(operand) for operand in operation.operands)
            rank = len(numbers) // 2
            self.descriptors[operation.results[0]] = pointer, tuple(numbers[:rank]), tuple(numbers[rank:])
            return None
        operands = [value for operand in operation.operands if (value := self.value(operand)) is not None]
        if not operands or len(operands) < len(operation.operands):
            return None
        if name == "tt.splat":
            return operands[0].reshape(operands[0].shape[:1] + (1,) * rank)
        if name == "tt.expand_dims":
            return np.expand_dims(operands[0], _attribute(operation.text, "axis") + 1)
        if name == "tt.trans":
            order = [int(number) for number in operation.text.partition("array<i32:")[2].partition(">")[0].split(",")]
            return operands[0].transpose(0, *(place + 1 for place in order))
        if name == "tt.addptr":
            return operands[0] + operands[1] * operation.type.bytes
        if name == "arith.cmpi":
            return COMPARISONS[operation.text.split()[1].strip(",")](*operands)
        if name == "arith.select":
            return _merged(*operands)
        if name in SAME:
            return operands[0]
        compute = ARITHMETIC.get(name)
        return compute(*operands) if compute else None


# operation -> where its mask is among its operands
ACCESSES = {"tt.load": 1, "tt.store": 2, "tt.atomic_rmw": 2, "tt.atomic_cas": 3}
ACCESSES |= {f"tt.descriptor_{access}": 0 for access in ("load", "store", "reduce", "gather", "scatter")}
SAME = {"tt.broadcast", "arith.extsi", "arith.extui", "arith.trunci", "arith.index_cast", "arith.index_castui", "tt.unsplat", "tt.bitcast"}


def _divided(one: Array, other: Array) -> Array:
    return np.sign(one) * np.sign(other) * (np.abs(one) // np.maximum(1, np.abs(other)))


ARITHMETIC: Mapping[str, Callable[..., Array]] = {
    "arith.addi": np.add,
    "arith.subi": np.subtract,
    "arith.muli": np.multiply,
    "arith.divsi": _divided,
    "arith.divui": _divided,
    "arith.ceildivsi": lambda one, other: -(-one // np.maximum(1, other)),
    "arith.remsi": lambda one, other: one - _divided(one, other) * other,
    "arith.remui": lambda one, other: one - _divided(one, other) * other,
    "arith.minsi": np.minimum,
    "arith.minui": np.minimum,
    "arith.maxsi": np.maximum,
    "arith.maxui": np.maximum,
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
    "arith.shli": np.left_shift,
    "arith.shrsi": np.right_shift,
    "arith.shrui": np.right_shift,
}
COMPARISONS: Mapping[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    **{f"{sign}lt": np.less for sign in "su"},
    **{f"{sign}le": np.less_equal for sign in "su"},
    **{f"{sign}gt": np.greater for sign in "su"},
    **{f"{sign}ge": np.greater_equal for sign in "su"},
}


def _constant(text: str, rank: int) -> Known:
    value = text.removeprefix("arith.constant").partition(" : ")[0].rpartition("}")[2].strip()
    value = value.removeprefix("dense<").removesuffix(">")
    number: Array
    if value in ("true", "false"):
        number = np.array([value == "true"])
    elif value.removeprefix("-").isdecimal():
        number = np.array([int(value)], dtype=np.int64)
    else:
        return None
    return number.reshape((1,) * (rank + 1))


def _attribute(text: str, name: str) -> int:
    return int(text.partition(f"{name} = ")[2].split()[0].rstrip(",}"))


def _first(moved: Array) -> Array:
    """By how much the first element of each block's tile moves."""
    return moved.reshape(moved.shape[0], -1)[:, 0]


def _after(trips: Known, start: Known, one: Known, two: Known) -> Known:
    """A value after a loop, from its values before and after one and two iterations."""
    if trips is None or start is None or one is None or two is None or one.dtype == bool:
        return None
    wide = trips.reshape(trips.shape + (1,) * (one.ndim - trips.ndim))
    return _chosen(wide > 0, one + (two - one) * (wide - 1), start)


def _guessed(*values: Known) -> bool:
    return any(isinstance(value, Guess) for value in values)


def _sure(value: Known) -> Known:
    """A truth value if it is known."""
    return None if _guessed(value) else value


def _merged(condition: Known, yes: Known, no: Known) -> Known:
    """One value where a condition holds, else the other, if all three are known."""
    if condition is None or yes is None or no is None:
        return None
    return _chosen(condition.reshape(condition.shape + (1,) * (yes.ndim - condition.ndim)), yes, no)


def _both(one: Known, other: Known) -> Known:
    """Where two conditions hold of which ``None`` always does."""
    return other if one is None else one if other is None else one & other


def _chosen(condition: Array, yes: Array, no: Array) -> Array:
    chosen: Array = np.where(condition, yes, no)
    return chosen.view(Guess) if _guessed(condition, yes, no) else chosen


def _works(loop: Operation) -> bool:
    """Whether a loop moves or multiplies data; one that does not waits, as for a lock, and ends at once if nobody holds that."""
    return any(inside.name in ("tt.load", "tt.store", "tt.dot", "tt.descriptor_load") for inside in loop.everything())
