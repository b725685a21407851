"""Where a value comes from, followed through changes of layout and number format and through the boundaries of fusions.

A kernel's operand may be another kernel's result; the instruction that computes it is inside that kernel. A `Value` is an instruction and
the fusions it is inside of, so that a fused body's parameter can be followed to the fusion's operand.
"""

from collections import deque
from collections.abc import Callable, Iterator
from functools import cached_property

from msgspec import Struct

from .module import Computation, HloModule, Instruction
from .shapes import Shape

LAYOUT = frozenset(("bitcast", "reshape", "transpose", "copy", "optimization-barrier", "opt-barrier"))
RENAMED = LAYOUT | {"convert", "bitcast-convert", "reduce-precision"}
_BORDERS = frozenset(("fusion", "parameter", "get-tuple-element", "async-start", "async-done"))
_MOST_SOURCES = 1_000  # of one value
_MOST_STEPS = 10_000  # of one search, which visits a value once per path to it


class Value(Struct, frozen=True, gc=False):
    """An instruction, and the fusions that it is inside of, innermost last."""

    computation: Computation
    index: int
    inside: tuple[tuple[Computation, Instruction], ...] = ()

    @property
    def instruction(self) -> Instruction:
        return self.computation.instructions[self.index]

    @property
    def shape(self) -> Shape:
        """The shape; for a tuple that of the first part: a library call returns its result, then its workspace."""
        shape = self.computation.instructions[self.index].shape
        return shape.parts[0] if shape.is_tuple and shape.parts else shape

    @property
    def opcode(self) -> str:
        return self.computation.instructions[self.index].opcode

    @property
    def kernel(self) -> str:
        """The name of the kernel that computes it, inside or as its result."""
        return self.inside[0][1].name if self.inside else self.instruction.name

    @property
    def key(self) -> tuple[str, int, str]:
        """Its position in the program, with the fusion: several may call one computation."""
        return self.computation.name, self.index, self.inside[-1][1].name if self.inside else ""


class Values:
    """The values of one program."""

    def __init__(self, module: HloModule) -> None:
        self.module = module
        self._users: dict[str, dict[int, list[int]]] = {}
        self._opcodes: dict[str, frozenset[str]] = {}

    def users(self, computation: Computation, index: int) -> list[int]:
        """The instructions of a computation that use a value."""
        known = self._users.get(computation.name)
        if known is None:
            known = self._users[computation.name] = {}
            for place, instruction in enumerate(computation.instructions):
                for operand in dict.fromkeys(instruction.operands):
                    known.setdefault(operand, []).append(place)
        return known.get(index, [])

    def opcodes(self, instruction: Instruction) -> frozenset[str]:
        """The opcodes in a fusion's body, or that of another instruction."""
        body = self.body(instruction)
        if body is None:
            return frozenset((instruction.opcode,))
        known = self._opcodes.get(body.name)
        if known is None:
            known = self._opcodes[body.name] = frozenset([instruction.opcode for instruction in body.instructions])
        return known

    def parts(self, computation: Computation, index: int) -> list[Value]:
        """The instructions of a kernel: those in a fusion's body, else itself."""
        instruction = computation[index]
        body = self.body(instruction)
        if body is None:
            return [Value(computation, index)]
        return [Value(body, place, ((computation, instruction),)) for place in range(len(body))]

    def reductions(self, computation: Computation, index: int) -> list[Value]:
        """The reductions of a kernel."""
        if "reduce" not in self.opcodes(computation[index]):
            return []
        return [part for part in self.parts(computation, index) if part.opcode == "reduce"]

    def nested(self, value: Value, opcode: str) -> Iterator[Value]:
        """The instructions of a kernel with an opcode, also in the fusions inside a fusion."""
        waiting = [value]
        for _ in range(_MOST_STEPS):  # bodies that are repeated at every depth have no end
            if not waiting:
                break
            value = waiting.pop()
            body = self.body(value.instruction)
            if body is not None:
                inside = (*value.inside, (value.computation, value.instruction))
                waiting += [Value(body, place, inside) for place in reversed(range(len(body)))]
            elif value.opcode == opcode:
                yield value

    @cached_property
    def loop_bodies(self) -> frozenset[int]:
        """The computations that are the body of a loop which the author wrote."""
        if "while" not in self.module.opcodes:
            return frozenset()
        loops = [instruction for computation in self.module for instruction in computation if instruction.opcode == "while"]
        return frozenset([body for loop in loops for body in loop.called("body") if not self._is_divided_product(loop, body)])

    def _is_divided_product(self, loop: Instruction, body: int) -> bool:
        """Whether a loop is one product that the compiler divided: each step multiplies a part of an operand and sends it on."""
        sends = any(instruction.opcode.startswith("collective-permute") for instruction in self.module.computations[body])
        return sends and bool(loop.op_name) and loop.op_name.rpartition("/")[2] != "while"

    def operand(self, value: Value, number: int) -> Value:
        """An operand of a value's instruction."""
        return Value(value.computation, value.instruction.operands[number], value.inside)

    def operands(self, value: Value) -> list[Value]:
        """All operands of a value's instruction."""
        return [Value(value.computation, index, value.inside) for index in value.instruction.operands]

    def uses(self, value: Value) -> Iterator[Value]:
        """The instructions that use a value, also inside fusions and asynchronous computations."""
        for place in self.users(value.computation, value.index):
            use = Value(value.computation, place, value.inside)
            if use.opcode not in ("fusion", "async-start") or not use.instruction.calls:
                yield use
                continue
            body = self.module.computations[use.instruction.calls[0].computation]
            inside = (*value.inside, (value.computation, use.instruction))
            for number, operand in enumerate(use.instruction.operands):
                if operand == value.index and number < len(body.parameters):
                    yield from self.uses(Value(body, body.parameters[number], inside))

    def made_by(self, value: Value) -> Value:
        """The instruction that makes a value, across the borders of fusions: from a fusion into its body, from a parameter out of it."""
        for _ in range(_MOST_STEPS):
            instruction = value.computation.instructions[value.index]
            if instruction.opcode not in _BORDERS:
                break
            further = self._across(value, instruction)
            if further is None:
                break
            value = further
        return value

    def _across(self, value: Value, instruction: Instruction) -> Value | None:
        """The value on the other side of the border of a fusion, an asynchronous operation or a tuple; ``None`` if there is none."""
        if instruction.opcode == "async-done" and instruction.operands:
            return Value(value.computation, instruction.operands[0], value.inside)
        if instruction.opcode in ("fusion", "async-start") and instruction.calls:
            body = self.module.computations[instruction.calls[0].computation]
            return Value(body, body.root, (*value.inside, (value.computation, instruction)))
        if instruction.opcode == "parameter" and value.inside:
            *outer, (computation, fusion) = value.inside
            number = value.computation.parameters.index(value.index)
            return Value(computation, fusion.operands[number], tuple(outer)) if number < len(fusion.operands) else None
        if instruction.opcode == "get-tuple-element" and instruction.operands:
            source = self.made_by(Value(value.computation, instruction.operands[0], value.inside))
            place = instruction.integer("index") or 0
            if source.opcode == "tuple" and place < len(source.instruction.operands):
                return self.operand(source, place)
            return source if source.opcode == "custom-call" and place == 0 else None
        return None

    def origin(self, value: Value, passing: frozenset[str] = RENAMED) -> Value:
        """The first producer of a value that is not one of ``passing``: these are followed to their first operand."""
        for _ in range(_MOST_STEPS):
            value = self.made_by(value)
            instruction = value.computation.instructions[value.index]
            if instruction.opcode not in passing or not instruction.operands:
                break
            value = Value(value.computation, instruction.operands[0], value.inside)
        return value

    def pieces(self, value: Value, passing: frozenset[str] = RENAMED) -> list[Value]:
        """The origin of a value, or the origins of the arrays that it is concatenated from."""
        origins: list[Value] = []
        waiting = [value]
        while waiting and len(origins) < _MOST_STEPS:
            origin = self.origin(waiting.pop(), passing)
            if origin.opcode == "concatenate":
                waiting += reversed(self.operands(origin))
            else:
                origins.append(origin)
        return origins

    def sources(self, value: Value, through: Callable[[Value], Value | None]) -> tuple[list[Value], list[Value]]:
        """The values that a value is assembled from, and the instructions on the way that ``through`` accepts.

        The search goes back through changes of layout and format, concatenations, tuples, and loops whose trips leave the value unchanged.
        At any other instruction ``through`` returns the operand to continue with, or None if the instruction is a source.
        """
        uses, passed, waiting = list[Value](), list[Value](), [value]
        while waiting and len(uses) + len(passed) < _MOST_SOURCES:
            origin = self.origin(waiting.pop())
            if origin.opcode == "concatenate":
                waiting += reversed(self.operands(origin))
            elif (before := self.before_loop(origin)) is not None:
                waiting.append(before)
            elif origin.opcode == "get-tuple-element":
                waiting.append(self.operand(origin, 0))
            elif (operand := through(origin)) is not None:
                passed.append(origin)
                waiting.append(operand)
            else:
                uses.append(origin)
        return uses, passed

    def ancestors(self, value: Value, stop: frozenset[str], most: int = 200) -> Iterator[Value]:
        """The instructions that a value depends on, nearest first, itself included; operands of opcodes in ``stop`` are not followed."""
        waiting = deque([value])
        seen: set[tuple[str, int, str]] = set()
        while waiting and len(seen) < most:
            value = self.made_by(waiting.popleft())
            key = value.key
            if key in seen:
                continue
            seen.add(key)
            yield value
            if value.opcode not in stop:
                waiting += self.operands(value)

    def before_loop(self, value: Value) -> Value | None:
        """The initial value of a part of a loop's state, if no trip changes it; ``None`` for other values."""
        instruction, root = value.instruction, value.computation.root_instruction
        caller = self.loops.get(value.computation.name)
        if caller is None or value.inside or instruction.opcode != "get-tuple-element" or root.opcode != "tuple":
            return None
        place = instruction.integer("index") or 0
        handed_on = value.computation[root.operands[place]] if place < len(root.operands) else None
        if handed_on is None or handed_on.opcode != "get-tuple-element" or handed_on.operands != instruction.operands:
            return None
        if value.computation[instruction.operands[0]].opcode != "parameter" or (handed_on.integer("index") or 0) != place:
            return None
        start = self.made_by(self.operand(caller, 0))
        return self.operand(start, place) if start.opcode == "tuple" and place < len(start.instruction.operands) else None

    @cached_property
    def loops(self) -> dict[str, Value]:
        """The loops of the program, by the names of their bodies."""
        callers: dict[str, Value] = {}
        for computation in self.module if "while" in self.module.opcodes else ():
            for index, instruction in enumerate(computation.instructions):
                if instruction.opcode == "while":
                    callers |= {self.module.computations[body].name: Value(computation, index) for body in instruction.called("body")}
        return callers

    def body(self, instruction: Instruction) -> Computation | None:
        """The body of a fusion."""
        if instruction.opcode != "fusion" or not instruction.calls:
            return None
        return self.module.computations[instruction.calls[0].computation]
