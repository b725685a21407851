"""Slots: the pieces of memory that the arrays of a computation use one after another.

Elementwise work and updates write over an operand that is not used again, and a result of the program over the argument that is donated
for it. Programs of the TPU compiler state which results were written over which operands.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from ..ir.module import Computation, HloModule, Instruction
from ..ir.shapes import Shape
from ..price.bodies import updated
from ..price.elementwise import ELEMENTWISE
from ..price.live_values import Value, Values, ValuesOf
from ..price.traffic import in_place_parameters
from .aliasing import stated_aliases

_ELEMENTWISE = ELEMENTWISE | {"copy", "all-reduce", "sort"}
_RESULTS_TRIED = 64  # results whose memory is tried for one temporary array
_IN_BODIES = ELEMENTWISE | {"bitcast", "copy", "tuple"}


class Slot(Struct, eq=False):
    """A piece of memory that arrays use one after another. ``over`` is the parameter that the first of them is written over, if any.

    It ``is_free`` where the caller has allocated it already, for its own array or for the result; ``before`` is the parameter that is in it
    until its last use, if any.
    """

    over: Value | None = None
    values: list[Value] = field(default_factory=list)
    bytes: int = 0
    end: int = -1
    is_free: bool = False
    before: Value | None = None

    def add(self, value: Value) -> None:
        """Adds an array that uses the memory after the others."""
        self.values.append(value)
        if value.bytes > self.bytes:
            self.bytes = value.bytes
        if value.last > self.end:
            self.end = value.last

    def fits(self, before: Value | None, value: Value) -> bool:
        """Whether its arrays, and ``value`` after them, can all use the memory of the parameter ``before``."""
        return before is None or self.over is before or before.last < (self.start if self.values else value.first)

    @property
    def start(self) -> int:
        return self.values[0].first

    def occupant(self, time: int) -> Value | None:
        """The array in it at a time."""
        return next((value for value in reversed(self.values) if value.first <= time <= value.last), None)


class Slots(Struct, frozen=True):
    """The slots of one computation in the order in which they are made, and that of each array."""

    every: tuple[Slot, ...]
    of_array: Mapping[int, Slot]  # by the identity of the array

    @property
    def own(self) -> list[Slot]:
        """The slots that the caller has not allocated."""
        return [slot for slot in self.every if not slot.is_free]

    def lender(self, value: Value) -> Slot | Value | None:
        """Whose memory an array is in: its slot, or the parameter that is in the memory which the caller has allocated for it."""
        slot = self.of_array.get(id(value))
        if slot is None:
            return value
        return slot.before if slot.is_free else slot

    def gaps(self, values: Values, lent: frozenset[int]) -> list[tuple[Value, int, int]]:
        """The arrays that a loop carries in memory ``lent`` to its body: from when to when this has neither their value nor the next."""
        gaps = []
        for place in lent:
            before, result = values.parameters[place], values.root[place] if place < len(values.root) else None
            if before is None or result is before or (result is not None and id(result) not in self.of_array):
                continue
            slot = None if result is None else self.of_array[id(result)]
            if slot is None or (slot.before is before and slot.over is not before and slot.is_free):
                end = len(values.computation) if slot is None else slot.start
                if before.last + 1 < end:
                    gaps.append((before, before.last + 1, end))
        return gaps


class SlotsOf:
    """The slots of every computation of a module."""

    def __init__(self, values: ValuesOf) -> None:
        self.values, self.module = values, values.module
        places = {path: place for place, path in enumerate(self.module.entry_computation.root_instruction.shape.paths)}
        self.donated = {places[path]: leaf for leaf, path in values.donated.items() if path in places}
        self._over: dict[int, frozenset[int]] = {}
        self._elementwise: dict[tuple[object, ...], frozenset[int]] = {}  # by the contents of a fused body, which layers repeat

    def of(self, number: int, role: str) -> Slots:
        """The slots of a computation; ``role`` is ``body`` in a loop."""
        values = self.values[number]
        root = values.root if role != "condition" else ()  # a loop's caller has no memory for that
        results = {id(value): place for place, value in enumerate(root) if value is not None}
        slots: dict[int, Slot] = {}
        every: list[Slot] = []
        gone: set[int] = set()
        instructions = values.computation.instructions
        for value in values.arrays:
            instruction = instructions[value.index]
            if instruction.opcode == "constant":
                continue  # part of the program
            taken = self._taken_over(values, number, instruction, value, gone)
            slot = (slots.get(id(taken)) if taken is not None else None) or Slot(taken)
            if instruction.opcode == "all-reduce" and self.values.platform == "tpu" and not _is_own(instruction, slot):
                slot = Slot()
            if id(value) in results:
                # A result is written to the caller's memory, if an argument that is there is no longer needed.
                before = self._replaced(values, number, role, results[id(value)])
                fits = [choice for choice in (slot, Slot()) if choice.fits(before, value)]
                slot = fits[0] if fits else slot
                slot.is_free, slot.before = bool(fits), before
            if not slot.values:
                every.append(slot)
            slot.add(value)
            slots[id(value)] = slot
        if number == self.module.entry and (self.values.platform != "tpu" or _reuses_results(self.module)):
            _place_in_results(every)
        return Slots(tuple(every), slots)

    def _replaced(self, values: Values, number: int, role: str, place: int) -> Value | None:
        """The parameter whose memory a result takes over: in a loop the value before it, in the program a donated argument."""
        if role == "body":
            return values.parameters[place] if place < len(values.parameters) else None
        leaf = self.donated.get(place) if number == self.module.entry else None
        return None if leaf is None else values.parameters[leaf]

    def _taken_over(self, values: Values, number: int, instruction: Instruction, value: Value, gone: set[int]) -> Value | None:
        """The operand that a result is written over, because its instruction is the last use; ``gone`` are operands already taken."""
        stated = stated_aliases(instruction) if self.values.platform == "tpu" else None
        if stated is not None:
            return self._stated(values, instruction, value, stated)
        for operand in self._candidates(values, instruction):
            for old in values.leaves[operand]:
                if old is None or not old.last == value.first > old.first or id(old) in gone or not _alike(old, value):
                    continue
                if old.leaf is None or number != self.module.entry or old.leaf in self.values.donated:
                    gone.add(id(old))
                    return old
        return None

    @staticmethod
    def _stated(values: Values, instruction: Instruction, value: Value, stated: Mapping[int, int]) -> Value | None:
        """The operand that the compiler says a result is written over."""
        if not stated:
            return None
        number = next((place for place, leaf in enumerate(values.leaves[value.index]) if leaf is value), None)
        operand = None if number is None else stated.get(number)
        old = None if operand is None else values.array(instruction.operands[operand])
        return old if old is not None and old.bytes == value.bytes else None

    def _candidates(self, values: Values, instruction: Instruction) -> Sequence[int]:
        """The operands that an instruction may write its result over."""
        opcode = instruction.opcode
        if opcode in _ELEMENTWISE:
            return instruction.operands
        if opcode in ("dynamic-update-slice", "scatter"):
            return updated(instruction)
        if opcode != "fusion" or not instruction.calls:
            return ()
        number = instruction.calls[0].computation
        body, over = self.module.computations[number], self._written_over(number)
        pairs = zip(instruction.operands, body.parameters, strict=False)
        return [operand for operand, parameter in pairs if parameter in over and not values.computation[operand].shape.is_tuple]

    def _written_over(self, number: int) -> frozenset[int]:
        """The parameters of a fused body that its result may be written over: updated in place, or used elementwise alone."""
        if number not in self._over:
            body = self.module.computations[number]
            form = (body.root, body.parameters, *[(instruction.opcode, instruction.operands) for instruction in body.instructions])
            if form not in self._elementwise:
                self._elementwise[form] = frozenset([*in_place_parameters(body), *_elementwise_parameters(body)])
            self._over[number] = self._elementwise[form]
        return self._over[number]


def _is_own(instruction: Instruction, slot: Slot) -> bool:
    """Whether memory holds nothing but the result of an operand itself: only there an all-reduce of a TPU that may run in place does."""
    return len(slot.values) == 1 and slot.values[0].index in instruction.operands


def _alike(old: Value, value: Value) -> bool:
    """Whether two arrays have their elements in the same places: as many bytes, and one order and tiling of dimensions."""
    before, after = old.shape, value.shape
    if old.bytes != value.bytes or before.rank != after.rank:
        return old.bytes == value.bytes
    return before.major_to_minor == after.major_to_minor and _tiles(before) == _tiles(after)


def _tiles(shape: Shape) -> tuple[int, ...]:
    """The first tile of a layout; later ones pack elements inside it."""
    return shape.layout.tiles[0] if shape.layout is not None and shape.layout.tiles else ()


def _elementwise_parameters(body: Computation) -> list[int]:
    """The parameters that a body uses elementwise: an element of the result needs only the same element of them."""
    reached = [0] * len(body)  # for each instruction the parameters it depends on, as bits
    other = 0  # the parameters with a use that is not elementwise
    for bit, parameter in enumerate(body.parameters):
        reached[parameter] = 1 << bit
    for index, instruction in enumerate(body.instructions):
        for operand in instruction.operands:
            reached[index] |= reached[operand]
        if instruction.opcode not in _IN_BODIES:
            other |= 0 if instruction.opcode == "parameter" else reached[index]
    return [parameter for bit, parameter in enumerate(body.parameters) if reached[body.root] & ~other & (1 << bit)]


def _reuses_results(module: HloModule) -> bool:
    """Whether the TPU compiler placed temporary arrays in the memory of results.

    libtpu 0.0.42 does, 0.0.51 does not, and only 0.0.51 writes a ``buffering_level`` for each op with windows.
    """
    configs = [config for instruction in module.instructions if "window_config" in (config := instruction.backend_config_text)]
    return bool(configs) and not any("buffering_level" in config for config in configs)


def _place_in_results(slots: list[Slot]) -> None:
    """Places arrays in the memory of the program's results until these are written, as XLA does: the largest first, where they fit best."""
    results = sorted((slot for slot in slots if slot.is_free and slot.before is None), key=lambda slot: slot.bytes)
    sizes, busy = [slot.bytes for slot in results], [[(slot.start, slot.end)] for slot in results]
    for slot in sorted((slot for slot in slots if not slot.is_free), key=lambda slot: -slot.bytes):
        first = bisect_left(sizes, slot.bytes)
        for place in range(first, min(first + _RESULTS_TRIED, len(results))):
            if _claimed(busy[place], slot.start, slot.end):
                slot.is_free = True
                break


def _claimed(busy: list[tuple[int, int]], start: int, end: int) -> bool:
    """Inserts an interval into a sorted list of disjoint ones, if it overlaps none of them; whether it did."""
    after = bisect_left(busy, (start, end))
    if (after and busy[after - 1][1] >= start) or (after < len(busy) and busy[after][0] <= end):
        return False
    busy.insert(after, (start, end))
    return True
