"""The whole numbers of a kernel, which decide what runs and what is copied: block indices, conditions, bounds of loops, table look-ups.

Each is evaluated over the whole grid at once, on demand. What depends on data that the program does not contain is known by bounds only.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from .code import Block, Kernel, Misread, Operation
from .ranges import ARITHMETIC, MOST_POINTS, Numbers, Range, compared, computed, constant, fitted, joined, known, unknown

_SAME = ("arith.index_cast", "arith.index_castui", "arith.extui", "arith.trunci", "tpu.assume_multiple")
_MOST_DEPTH = 120  # of values that are evaluated for one another; deeper ones count as unknown
_MOST_NUMBERS = 2**25  # that are computed for one kernel: about a second
_EACH = 400  # numbers in the time of an operation on few
_MOST_LENGTH = 2**16  # of an axis whose extent is known only at run time
# Which operand of an access is its array; its indices follow. The part has the shape of a load's result or of a store's first operand.
_ACCESSES = {
    **dict.fromkeys(("memref.load", "vector.load", "tpu.vector_load", "tpu.memref_slice"), 0),
    **dict.fromkeys(("memref.store", "vector.store", "tpu.vector_store"), 1),
}
_BOUNDS = {"i1": (0, 1), "i8": (-(2**7), 2**7 - 1), "i16": (-(2**15), 2**15 - 1), "index": (0, 2**31 - 1)}


class Scalars(Struct):
    """The values of one function, or of a kernel's main function with its loops.

    ``values`` are those that are set: the steps of the grid and of loops. ``tables`` has the contents of scalar memory by the number of
    the memref, where they are constants of the program, and ``shape`` the sizes of the axes: of loops, innermost first, then of the grid.
    """

    kernel: Kernel
    shape: tuple[int, ...]
    values: dict[int, Range]
    tables: Mapping[int, NDArray[np.int64]]
    extents: Sequence[Range] = ()
    stores: Mapping[int, Sequence[Operation]] = field(default_factory=dict)
    depth: int = 0
    spent: list[int] = field(default_factory=lambda: [0])  # shared by all that are made for one kernel

    def trial(self, values: dict[int, Range]) -> "Scalars":
        """The same with other values set and nothing computed yet."""
        return Scalars(self.kernel, self.shape, values, self.tables, self.extents, self.stores, spent=self.spent)

    def axis(self, number: int) -> Range:
        """The step of one dimension of the grid."""
        rank = len(self.extents)
        count = self.shape[len(self.shape) - rank + number]
        if count > MOST_POINTS:
            return unknown((), 0, count - 1, coarse=True)
        steps = np.arange(count, dtype=np.int64)
        return known(steps.reshape((-1,) + (1,) * (rank - 1 - number)))

    def value(self, number: int) -> Range:
        known_value = self.values.get(number)
        if known_value is not None:
            return known_value
        self.depth += 1
        value = self._computed(number) if self.depth < _MOST_DEPTH else self._unknown(number)
        self.depth -= 1
        self.spent[0] += value.low.size + _EACH
        if self.spent[0] > _MOST_NUMBERS:
            raise Misread("code that takes too long to evaluate")
        self.values[number] = value
        return value

    def _unknown(self, number: int) -> Range:
        return unknown((), *_BOUNDS.get(self.kernel.type(number).element, ()), coarse=True)

    def _computed(self, number: int) -> Range:
        definition = self.kernel.definitions.get(number)
        kind = self.kernel.type(number)
        if definition is None or kind.shape or kind.is_vector or kind.space:
            return self._unknown(number)
        operation, place = definition
        name, operands = operation.name, operation.operands
        dialect, _, short = name.partition(".")
        if name == "arith.constant":
            value = operation.attributes.get("value")
            return constant(int(value)) if isinstance(value, int) else self._unknown(number)
        if name in _SAME and operands:
            return self.value(operands[0])
        if name == "arith.extsi" and operands:
            inner = self.value(operands[0])
            return computed("subi", constant(0), inner) if self.kernel.type(operands[0]).element == "i1" else inner
        if dialect == "arith" and short in ARITHMETIC and len(operands) == 2:
            return computed(short, self.value(operands[0]), self.value(operands[1]))
        if name == "arith.cmpi" and len(operands) == 2:
            return compared(operation.number("predicate") or 0, self.value(operands[0]), self.value(operands[1]))
        if name == "arith.select" and len(operands) == 3:
            return joined(self.value(operands[0]), self.value(operands[1]), self.value(operands[2]))
        if name == "memref.load" and operands:
            return self._loaded(number, operation)
        if name == "tpu.iteration_bound":
            axis = operation.number("dim")
            return self.extents[axis] if axis is not None and 0 <= axis < len(self.extents) else self._unknown(number)
        if name == "scf.if" and operands and len(operation.regions) == 2:
            branches = [operation.body(region).yielded for region in (0, 1)]
            if all(place < len(branch) for branch in branches):
                return joined(self.value(operands[0]), *(self.value(branch[place]) for branch in branches))
        return self._unknown(number)

    def _loaded(self, number: int, operation: Operation) -> Range:
        """A number in scalar memory: from a table of the program, else unknown but equal wherever its indices are."""
        source = self.kernel.source(operation.operands[0])
        indices = fitted(*[self.value(index) for index in operation.operands[1:]]) if len(operation.operands) > 1 else ()
        shape, coarse = np.broadcast_shapes(*[index.shape for index in indices]), any(index.coarse for index in indices)
        table = self.tables.get(source)
        if source in self.stores:
            return self._first_then(number, operation, source, table)
        if table is None or source != operation.operands[0] or len(indices) != table.ndim:
            low, high = _BOUNDS.get(self.kernel.type(number).element, (-(2**31), 2**31 - 1))
            return unknown(shape, low, high, coarse=coarse)
        if all(index.is_known for index in indices):
            places = [np.clip(index.low, 0, size - 1) for index, size in zip(indices, table.shape, strict=True)]
            return known(table[tuple(places)] if places else table)
        return unknown(shape, int(table.min(initial=0)), int(table.max(initial=0)), coarse=coarse)

    def _first_then(self, number: int, operation: Operation, source: int, table: NDArray[np.int64] | None) -> Range:
        """A number that the kernel sets to a constant where it reads it, as a flag for the first step: that constant in all other steps."""
        stores = self.stores[source]
        stored = [self.value(store.operands[0]).constant for store in stores if store.operands]
        if table is None or table.size != 1 or len(set(stored)) != 1 or stored[0] is None:
            return self._unknown(number)
        after, size = stored[0], int(np.prod(self.shape, dtype=object)) if self.shape else 1
        if size > MOST_POINTS or not size:
            return self._unknown(number)
        steps = np.full(self.shape, after, np.int64)
        steps[(0,) * len(self.shape)] = table.flat[0]
        return known(steps)

    def trips(self, low: int, high: int, step: int) -> Range:
        """How often a loop from ``low`` to ``high`` runs; the arguments are values of the kernel."""
        first, last, by = self.value(low), self.value(high), self.value(step)
        if first is last:
            return constant(0)
        by_constant = by.constant
        if by_constant is None or by_constant < 1:
            return unknown((), 0)
        length = computed("subi", last, first)
        return computed("maxsi", computed("ceildivsi", length, constant(by_constant)), constant(0))

    def room(self, axis: int, block: Block) -> int | None:
        """How long an axis can be for the arrays that it indexes: tables in scalar memory, blocks in VMEM, arrays that are copied in parts.

        ``None`` if it indexes none. ``axis`` is the value that counts its steps and ``block`` what each of them runs. An array that every
        step accesses is the limit, the smallest of several; else the largest of those that some steps access, or with an index that is
        replaced by a constant outside of a limit. If each step of another axis has a part of the array to itself, that part is the limit,
        as it is for the pages of a sequence.
        """
        always = [limit for access in block.operations if (limit := self._limit(axis, access, 0)) is not None]
        if always:
            return min(always)
        most = 0
        for access in block.everything():
            most = max(most, self._limit(axis, access, most, self._wanted) or 0)
        return most or None

    def _wanted(self, index: int) -> int:
        """The index that an access would have, were it not replaced by a constant where a comparison of it says so."""
        operation = self.kernel.definitions[index][0] if index in self.kernel.definitions else None
        if operation is not None and operation.name in _SAME and operation.operands:
            return self._wanted(operation.operands[0])
        if operation is not None and operation.name == "arith.select" and len(operation.operands) == 3:
            condition, yes, no = operation.operands
            comparison = self.kernel.definitions[condition][0] if condition in self.kernel.definitions else None
            if comparison is not None and comparison.name == "arith.cmpi":
                for kept, replacement in ((yes, no), (no, yes)):
                    if kept in comparison.operands and self.value(replacement).constant is not None:
                        return kept
        return index

    def _limit(self, axis: int, access: Operation, least: int, read: Callable[[int], int] = int) -> int | None:
        """The length of an axis for which an access stays in its array; ``None`` if it does not depend on it, or is below ``least``."""
        place = _ACCESSES.get(access.name)
        if place is None or len(access.operands) <= place:
            return None
        array = self.kernel.type(access.operands[place]).shape
        values = access.results if place == 0 else access.operands
        part = self.kernel.type(values[0]).shape
        if len(part) != len(array):
            part = (1,) * len(array)
        indices = access.operands[place + 1 : place + 1 + len(array)]
        limits = [
            self.longest(axis, read(index), size - max(taken, 1) + 1, least)
            for index, size, taken in zip(indices, array, part, strict=False)
            if size > 0
        ]
        return min((limit for limit in limits if limit is not None), default=None)

    def longest(self, axis: int, index: int, size: int, least: int) -> int | None:
        """The most steps of an axis for which an index stays below a size; ``None`` if it does not grow with the axis."""
        fixed = self.fixed

        def fits(steps: int) -> bool:
            return int(self.trial({**fixed, axis: constant(steps - 1)}).value(index).low.max(initial=0)) < size

        low, high = max(1, least), _MOST_LENGTH + 1
        if not fits(low) or fits(high):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    @property
    def fixed(self) -> dict[int, Range]:
        """The values that are set, not computed: arguments of blocks."""
        return {number: value for number, value in self.values.items() if number not in self.kernel.definitions}


def steps_of(trips: Range, count: int, rank: int) -> tuple[Numbers, Range]:
    """The steps of a loop along a new first axis, and whether each of them runs."""
    steps = np.arange(count, dtype=np.int64).reshape((-1,) + (1,) * rank)
    runs = Range(np.asarray(steps < trips.low, np.int64), np.asarray(steps < trips.high, np.int64))
    return steps, Range(runs.low, runs.low) if trips.is_known else runs
