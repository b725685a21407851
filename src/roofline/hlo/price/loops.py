"""Trip counts of while loops, from the compiler's annotation or by analysing the program.

A counted loop carries an induction variable in one slot of its tuple: it starts from a constant, the body adds a constant, and the
condition compares it with a bound that does not change; fusions, calls, copies, conversions and enclosing loops may be in between. Any
other loop over integers (``i *= 2``) is run on those integers alone, for up to `MOST_STEPS` steps.
"""

from collections.abc import Callable, Mapping
from math import prod
from operator import add, and_, eq, ge, gt, le, lshift, lt, mul, ne, or_, rshift, sub, xor

from msgspec import Struct, field

from ..ir.module import HloModule, Instruction
from ..ir.shapes import Shape
from ..read.backend_config import known_trip_count

MOST_STEPS = 2**16
_MOST_VALUES = 2**18  # evaluated for one loop
_MAX_DEPTH = 100  # of nested evaluations; deeper values count as unknown
_MAX_BITS = 64

Slot = tuple[int, ...]


class Value(Struct, frozen=True):
    """A whole number: a constant, or a slot of a loop's tuple plus a constant. Of an array the constant, or a part's elements."""

    constant: int
    slot: Slot | None = None
    array: Instruction | tuple[int, ...] | None = None


Bind = Callable[[int, Slot], Value | None]  # the value of a part of a parameter, if it is known

_COMPARE: Mapping[str, Callable[[int, int], bool]] = {"LT": lt, "LE": le, "GT": gt, "GE": ge, "EQ": eq, "NE": ne}
_MIRROR = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "EQ": "EQ", "NE": "NE"}
_BINARY: Mapping[str, Callable[[int, int], int]] = {
    "add": add,
    "subtract": sub,
    "multiply": mul,
    "maximum": max,
    "minimum": min,
    "and": and_,
    "or": or_,
    "xor": xor,
    "shift-left": lambda left, right: lshift(left, right) if 0 <= right < _MAX_BITS else 0,
    "shift-right-logical": lambda left, right: rshift(left, right) if 0 <= right < _MAX_BITS else 0,
    "shift-right-arithmetic": lambda left, right: rshift(left, right) if right >= 0 else 0,
}
_SAME = ("copy", "bitcast", "convert", "reshape", "opt-barrier", "broadcast", "copy-start", "copy-done", "domain", "async-done")
_INLINE = ("fusion", "call", "async-start")


class Loops(Struct):
    """The loops of one module."""

    module: HloModule
    _evaluated: int = 0
    _trips: dict[tuple[int, str], int | None] = field(default_factory=dict)  # by computation and name: a loop may have to be run

    def trip_count(self, number: int, loop: Instruction) -> int | None:
        """The trip count of a while in a computation; ``None`` if it depends on data."""
        if (number, loop.name) not in self._trips:
            self._trips[number, loop.name] = self._trip_count(number, loop)
        return self._trips[number, loop.name]

    def _trip_count(self, number: int, loop: Instruction) -> int | None:
        known = known_trip_count(loop)
        if known is not None:
            return known
        if not (loop.called("body") and loop.called("condition") and loop.operands):
            return None
        self._evaluated = 0
        counted = self._counted(number, loop)
        if counted is not None:
            return _steps(*counted)
        return self._run(number, loop)

    def table(self, number: int, index: int) -> tuple[int, ...] | None:
        """The integers of a constant array, copied or carried unchanged through loops; ``None`` if it is computed or was left out."""
        self._evaluated = 0
        known = self._value(number, index, (), self._outer(number, 0), 0)
        return None if known is None or known.slot is not None else _elements(known)

    def _start(self, number: int, loop: Instruction, slot: Slot, depth: int = 0) -> Value | None:
        """The value of a slot before the first iteration, if it is a constant."""
        start = self._value(number, loop.operands[0], slot, self._outer(number, depth), depth + 1)
        return start if start is not None and start.slot is None else None

    def _number(self, number: int, loop: Instruction, slot: Slot) -> int | None:
        """The whole number in a slot before the first iteration, if it is a constant."""
        initial = self._start(number, loop, slot)
        return initial.constant if initial is not None and initial.array is None else None

    def _next(self, loop: Instruction, slot: Slot, bind: Bind, depth: int = 0) -> Value | None:
        """The value of a slot after an iteration."""
        body = loop.called("body")[0]
        return self._value(body, self.module.computations[body].root, slot, bind, depth + 1)

    def _stays(self, loop: Instruction, slot: Slot, depth: int = 0) -> bool:
        """Whether no iteration changes a slot."""
        return self._next(loop, slot, _slots, depth) == Value(0, slot)

    def _throughout(self, number: int, loop: Instruction, slot: Slot, depth: int) -> Value | None:
        """The constant in a slot in all iterations: none changes it, or each takes it from a slot that has the same and is not changed."""
        after, first = self._next(loop, slot, _slots, depth + 1), self._start(number, loop, slot, depth + 1)
        if after is None or first is None or after.slot is None or after.constant:
            return None
        if after.slot == slot:
            return first
        source = self._start(number, loop, after.slot, depth + 1) if self._stays(loop, after.slot, depth + 1) else None
        return first if source is not None and _elements(source) == _elements(first) is not None else None

    def _counted(self, number: int, loop: Instruction) -> tuple[int, int, int, str] | None:
        """Start, bound, step and comparison of a loop that compares an induction variable with a bound."""
        condition = loop.called("condition")[0]
        compared = self._comparison(condition, self.module.computations[condition].root, _slots, 0)
        if compared is None:
            return None
        left, right, direction = compared
        if right is not None and right.slot is not None and not self._stays(loop, right.slot):
            left, right, direction = right, left, _MIRROR[direction]
        if left is None or right is None or left.slot is None:
            return None
        bound = right.constant
        if right.slot is not None:
            at_start = self._number(number, loop, right.slot) if self._stays(loop, right.slot) else None
            if at_start is None:
                return None
            bound += at_start
        after, start = self._next(loop, left.slot, _slots), self._number(number, loop, left.slot)
        if after is None or after.slot != left.slot or start is None:
            return None
        return start + left.constant, bound, after.constant, direction

    def _run(self, number: int, loop: Instruction) -> int | None:
        """The trip count of a loop whose condition depends on known integers alone, by running it on them."""
        condition = loop.called("condition")[0]
        root = self.module.computations[condition].root
        state: dict[Slot, int] = {}
        needed: dict[Slot, None] = {}

        def record(parameter: int, slot: Slot) -> Value | None:
            needed[slot] = None
            return None

        def current(parameter: int, slot: Slot) -> Value | None:
            return Value(state[slot]) if slot in state else None

        self._value(condition, root, (), record, 0)
        slots: list[Slot] = []
        while len(needed) > len(slots):
            slots = list(needed)
            for slot in slots:
                self._next(loop, slot, record)
        for slot in slots:
            first = self._number(number, loop, slot)
            if first is None:
                return None
            state[slot] = first
        for step in range(MOST_STEPS + 1):
            continues = self._value(condition, root, (), current, 0)
            if continues is None or self._evaluated > _MOST_VALUES:
                return None
            if not continues.constant:
                return step
            after = {slot: self._next(loop, slot, current) for slot in slots}
            if any(value is None or value.constant.bit_length() > _MAX_BITS for value in after.values()):
                return None
            state.update((slot, value.constant) for slot, value in after.items() if value is not None)
        return None

    def _outer(self, number: int, depth: int) -> Bind:
        """The known parameters of a computation, from its only caller."""

        def bind(parameter: int, slot: Slot) -> Value | None:
            callers = self.module.callers.get(number, ())
            if len(callers) != 1 or depth > _MAX_DEPTH:
                return None
            caller, instruction = callers[0]
            if instruction.opcode == "while":
                return self._throughout(caller, instruction, slot, depth) if instruction.called("body") == (number,) else None
            place = parameter
            if instruction.opcode == "conditional":
                branches = instruction.called("branch_computations")
                place = 1 + branches.index(number)
            elif instruction.opcode not in _INLINE:
                return None
            if place >= len(instruction.operands):
                return None
            return self._value(caller, instruction.operands[place], slot, self._outer(caller, depth + 1), depth + 1)

        return bind

    def _comparison(self, number: int, index: int, bind: Bind, depth: int) -> tuple[Value | None, Value | None, str] | None:
        """The operands and direction of the comparison that is a condition's result, fused or not."""
        computation = self.module.computations[number]
        instruction = computation[index]
        if depth > _MAX_DEPTH or not instruction.operands:
            return None
        if instruction.opcode in _SAME:
            return self._comparison(number, instruction.operands[0], bind, depth + 1)
        if instruction.opcode in _INLINE and instruction.calls:
            called = instruction.calls[0].computation
            return self._comparison(
                called, self.module.computations[called].root, self._inside(number, instruction, bind, depth), depth + 1
            )
        direction = instruction.word("direction")
        if instruction.opcode != "compare" or direction not in _COMPARE or len(instruction.operands) != 2:
            return None
        left, right = (self._value(number, operand, (), bind, depth + 1) for operand in instruction.operands)
        return left, right, direction

    def _inside(self, number: int, instruction: Instruction, bind: Bind, depth: int) -> Bind:
        """The known parameters of a computation that an instruction calls."""

        def inner(parameter: int, slot: Slot) -> Value | None:
            if parameter >= len(instruction.operands):
                return None
            return self._value(number, instruction.operands[parameter], slot, bind, depth + 1)

        return inner

    def _value(self, number: int, index: int, slot: Slot, bind: Bind, depth: int) -> Value | None:
        """The value of a part of an instruction's result, if it is known."""
        self._evaluated += 1
        if depth > _MAX_DEPTH or self._evaluated > _MOST_VALUES:
            return None
        computation = self.module.computations[number]
        instruction = computation[index]
        opcode, operands = instruction.opcode, instruction.operands
        if opcode == "parameter":
            return bind(computation.parameters.index(index), slot)
        if opcode == "constant":
            return _constant(instruction)
        if not operands:
            return None
        if opcode in _SAME:
            return self._value(number, operands[0], slot, bind, depth + 1)
        if opcode == "get-tuple-element":
            return self._value(number, operands[0], (instruction.integer("index") or 0, *slot), bind, depth + 1)
        if opcode == "tuple":
            return self._value(number, operands[slot[0]], slot[1:], bind, depth + 1) if slot and slot[0] < len(operands) else None
        if opcode in _INLINE and instruction.calls:
            called = instruction.calls[0].computation
            inside = self._inside(number, instruction, bind, depth)
            return self._value(called, self.module.computations[called].root, slot, inside, depth + 1)
        if opcode == "while":
            return self._value(number, operands[0], slot, bind, depth + 1) if self._stays(instruction, slot, depth) else None
        if opcode == "dynamic-slice":
            return _part(self._value(number, operands[0], (), bind, depth + 1), computation[operands[0]].shape, instruction.shape)
        values = [self._value(number, operand, (), bind, depth + 1) for operand in operands]
        return _applied(instruction, values)


def _slots(parameter: int, slot: Slot) -> Value | None:
    """A loop's tuple with symbolic slots: the value of each is the slot itself."""
    return Value(0, slot) if parameter == 0 else None


def _elements(value: Value) -> tuple[int, ...] | None:
    """The integers of a constant; ``None`` where they were left out."""
    if value.array is None:
        return (value.constant,)
    if isinstance(value.array, tuple):
        return value.array
    elements = value.array.table
    return None if elements is None else tuple(int(element) for element in elements if isinstance(element, int))


def _part(value: Value | None, source: Shape, part: Shape) -> Value | None:
    """A slice of a constant array that starts where only the running program knows, if all such slices are equal."""
    elements = _elements(value) if value is not None and value.array is not None else None
    if elements is None or len(elements) != source.elements or len(source.dims) != len(part.dims):
        return None
    axes = [(prod(source.dims[axis + 1 :]), whole, part.dims[axis]) for axis, whole in enumerate(source.dims)]
    for inner, whole, size in axes:
        if size < whole and any(index // inner % whole and element != elements[index - inner] for index, element in enumerate(elements)):
            return None
    kept = [element for index, element in enumerate(elements) if all(index // inner % whole < size for inner, whole, size in axes)]
    return Value(0, array=tuple(kept))


def _constant(instruction: Instruction) -> Value | None:
    literal = instruction.literal
    if literal is not None and len(literal) == 1:
        return Value(int(literal[0])) if isinstance(literal[0], int) else None
    shape = instruction.shape
    return Value(0, array=instruction) if shape.is_array and shape.elements > 1 and shape.dtype[0] in "su" else None


def _applied(instruction: Instruction, values: list[Value | None]) -> Value | None:
    """An operation on scalars."""
    opcode, first = instruction.opcode, values[0] if values else None
    if first is None or any(value is not None and value.array is not None for value in values):
        return None
    if opcode == "select" and len(values) == 3 and first.slot is None:
        return values[1] if first.constant else values[2]
    if opcode in ("negate", "not") and len(values) == 1 and first.slot is None:
        return Value(-first.constant if opcode == "negate" else int(not first.constant))
    if len(values) != 2 or (second := values[1]) is None:
        return None
    if first.slot is None and second.slot is None:
        return _computed(instruction, first.constant, second.constant)
    if opcode == "add" and (first.slot is None or second.slot is None):
        return Value(first.constant + second.constant, second.slot if first.slot is None else first.slot)
    if opcode == "subtract" and second.slot is None:
        return Value(first.constant - second.constant, first.slot)
    return None


def _computed(instruction: Instruction, left: int, right: int) -> Value | None:
    """An operation on two known numbers."""
    opcode = instruction.opcode
    if opcode == "compare":
        compare = _COMPARE.get(instruction.word("direction"))
        return Value(int(compare(left, right))) if compare else None
    if (both := _BINARY.get(opcode)) is not None:
        return Value(both(left, right))
    if opcode in ("divide", "remainder") and left >= 0 and right > 0:
        return Value(left // right if opcode == "divide" else left % right)
    return None


def _steps(first: int, bound: int, step: int, direction: str) -> int | None:
    """How many times a number that starts at ``first`` and grows by ``step`` compares true with a bound; ``None`` if for ever.

    >>> _steps(0, 10, 3, "LT"), _steps(0, 9, 3, "LE"), _steps(10, 0, -1, "GT"), _steps(0, 6, 3, "NE"), _steps(5, 5, 1, "LT")
    (4, 4, 10, 2, 0)
    >>> _steps(0, 10, -1, "LT") is None
    True
    """
    if not _COMPARE[direction](first, bound):
        return 0
    if direction == "EQ":
        return 1 if step else None
    if direction == "NE":
        steps, rest = divmod(bound - first, step) if step else (0, 1)
        return steps if not rest and steps > 0 else None
    if direction in ("GT", "GE"):
        first, bound, step = -first, -bound, -step
    if step <= 0:
        return None
    return (bound - first) // step + 1 if direction in ("LE", "GE") else -((first - bound) // step)
