"""A program of HLO text while it is being read: the words of each line become instructions, and names become indices.

Attributes stay text until they are needed; only the connections of instructions (operands, called computations, control predecessors) are
read at once.
"""

import re
from functools import lru_cache
from sys import intern
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from ...files.input_limits import excess, limits
from ..ir.malformed import Malformed, excerpt
from ..ir.module import Call, Computation, Instruction
from ..ir.opcodes import LEAVES, asynchronous
from ..ir.shapes import Shape, parse_shape, whole
from .freeform_text import ROLES, operand_names
from .lexing import attributes_of, find_attribute, split
from .shape_inference import infer_shape
from .text_attributes import braced
from .text_dialect import TextDialect, parted

_OPERAND = re.compile(r"%([^\s,(){}\[\]]+)")
# A name without a percent sign: alone or after a shape, whose sizes are separated by commas too.
_UNSIGNED = re.compile(r"(?:\A|[,\]})/])\s*+[A-Za-z_][\w.\-#]*+\s*+(?:,|\Z)")
_NAME = re.compile(r"%?([^\s,{}%\"=]+)")
_ROLE = re.compile(rf"[,\s](?:{'|'.join(ROLES)})=")
_PLAIN, _PARAMETER, _CONSTANT, _CALLER = range(4)


class Draft(Struct):
    """A computation while it is being read."""

    name: str
    line: int
    instructions: list[Instruction] = field(default_factory=list)
    index: dict[str, int] = field(default_factory=dict)
    root: int | None = None
    parameters: dict[int, int] = field(default_factory=dict)
    # Instructions with names that are defined later: position, operands, control predecessors.
    pending: list[tuple[int, list[str], list[str]]] = field(default_factory=list)


class Program:
    """The computations of a module, built one instruction at a time; ``line`` is the current one, counted from 1."""

    def __init__(self, where: str) -> None:
        self.line = 1
        self.dialect = TextDialect(where)
        self.shapes: dict[str, Shape] = {}
        self.texts: dict[str, str] = {}  # the texts of attributes, so that equal ones are one object
        self.opcodes: dict[str, tuple[str, int]] = {}
        self.drafts: list[Draft] = []
        self.remaining = limits().instructions  # how many more instructions are allowed
        self.numbers: dict[str, int] = {}
        self.calls: dict[tuple[tuple[str, str], ...], tuple[Call, ...]] = {}
        # Calls of computations that are defined later: draft, position, role and name of each.
        self.later: list[tuple[Draft, int, tuple[tuple[str, str], ...], int]] = []

    def instruction(self, draft: Draft, place: int, words: tuple[Any, ...]) -> None:
        """Adds an instruction to a draft. ``words`` are ROOT or not, name, shape, opcode, operands, and the text after them."""
        root, name, spelling, opcode, inside, rest = words
        shape = self.shapes.get(spelling)
        if shape is None and spelling:
            self.line = place
            shape = parse_shape(spelling, self.shapes)
        kind = self.opcodes.get(opcode)
        if kind is None:
            kind = self.opcodes[opcode] = (intern(opcode), _kind(opcode))
        opcode, sort = kind
        instructions, index = draft.instructions, draft.index
        operands: tuple[int, ...] = ()
        if sort == _PARAMETER:
            self.line = place
            self.parameter(draft, inside)
            rest = f"parameter_number={inside.strip()}{rest}"
        elif sort == _CONSTANT:
            rest = f"literal={shape.dtype if shape else ''} {inside.strip()}{rest}"
        elif inside[:1] == "%":  # as XLA prints nearly all
            try:
                operands = tuple([index[operand] for operand in inside[1:].split(", %")])
            except KeyError:
                operands = self.named(draft, inside, place)
        elif inside:
            operands = self.named(draft, inside, place)
        position = len(instructions)
        if position >= self.remaining:
            raise Malformed(excess("instructions"))
        if name in index or (root and draft.root is not None):
            self.line = place
            raise Malformed(
                f"a second instruction named {excerpt(name)} in this computation" if name in index else "a second ROOT in this computation"
            )
        index[name] = position
        if root:
            draft.root = position
        if shape is None:
            self.line = place
            shape = self.inferred(draft, opcode, operands, rest)
        raw = parted(rest, self.texts)
        if "control-predecessors=" in rest:
            self.line = place
            draft.pending.append((position, [], _control(rest)))
        calls: tuple[Call, ...] = ()
        if sort == _CALLER:
            self.line = place
            opcode, calls = self.link(draft, name, opcode, shape, operands, raw)
        instructions.append(Instruction(name, opcode, shape, operands, calls, (), place, raw, self.dialect))

    def named(self, draft: Draft, inside: str, place: int) -> tuple[int, ...]:
        """The operands that an instruction names, in whichever spelling."""
        names = _OPERAND.findall(inside) if "%" in inside else operand_names(inside)
        if len(names) <= inside.count(",") and "%" in inside and _UNSIGNED.search(inside):
            names = operand_names(inside)
        try:
            return tuple([draft.index[operand] for operand in names])
        except KeyError:
            self.line = place
            return self.later_operands(draft, names)

    def inferred(self, draft: Draft, opcode: str, operands: tuple[int, ...], rest: str) -> Shape:
        """The inferred shape of an instruction whose text does not give it."""
        called: dict[str, Shape] = {}
        for role, name in _calls(rest):
            if name in self.numbers:
                inner = self.drafts[self.numbers[name]]
                called.setdefault(role, inner.instructions[inner.root or 0].shape)
        shapes = tuple(draft.instructions[operand].shape for operand in operands)
        return infer_shape(Instruction("", opcode, Shape("token"), operands, (), (), self.line, rest, self.dialect), shapes, called)

    def later_operands(self, draft: Draft, names: list[str]) -> tuple[int, ...]:
        """Operands some of which are not defined yet: elements of tuples written ``x#1``, or names defined later."""
        for name in names:
            base, *steps = name.split("#")
            index = draft.index.get(base)
            if not steps or index is None:
                continue
            for step in steps:
                base = f"{base}#{step}"
                if base not in draft.index:
                    number, parts = whole(step), draft.instructions[index].shape.parts
                    if not 0 <= number < len(parts):
                        raise Malformed(f"{excerpt(name)} has no element {number}")
                    draft.index[base] = len(draft.instructions)
                    draft.instructions.append(
                        Instruction(base, "get-tuple-element", parts[number], (index,), (), (), self.line, f"index={number}", self.dialect)
                    )
                index = draft.index[base]
        if all(name in draft.index for name in names):
            return tuple(draft.index[name] for name in names)
        draft.pending.append((len(draft.instructions), names, []))
        return ()

    def parameter(self, draft: Draft, inside: str) -> None:
        number = whole(inside)
        if number < 0 or number in draft.parameters:
            raise Malformed(f"a second parameter({number})")
        draft.parameters[number] = len(draft.instructions)

    def link(
        self, draft: Draft, name: str, opcode: str, shape: Shape, operands: tuple[int, ...], raw: object
    ) -> tuple[str, tuple[Call, ...]]:
        """The opcode and the calls of the next instruction of a draft; short spellings of asynchronous operations are expanded."""
        names = _calls(raw[0] if isinstance(raw, tuple) else str(raw))
        if opcode == "custom-call":
            names = tuple(("called_computations", called) for _, called in names)
        halves = asynchronous(opcode)
        if halves is None:
            return opcode, self.call(draft, names)
        half, operation = halves
        if half != "async-start":
            return half, ()
        return half, (Call("calls", self.wrap(draft, name, intern(operation), shape, operands, raw, names)),)

    def call(self, draft: Draft, names: tuple[tuple[str, str], ...]) -> tuple[Call, ...]:
        """Calls by role and name; empty until `resolve` if a computation is defined later."""
        calls = self.calls.get(names)
        if calls is None:
            if not all(name in self.numbers for _, name in names):
                self.later.append((draft, len(draft.instructions), names, self.line))
                return ()
            calls = self.calls[names] = tuple(Call(role, self.numbers[name]) for role, name in names)
        return calls

    def wrap(
        self,
        draft: Draft,
        name: str,
        operation: str,
        shape: Shape,
        operands: tuple[int, ...],
        raw: object,
        names: tuple[tuple[str, str], ...],
    ) -> int:
        """The computation of an async-start in short spelling: parameters and one operation."""
        inner = Draft(f"{name}.wrapped", self.line)
        for number, operand in enumerate(operands):
            inner.parameters[number] = number
            taken = draft.instructions[operand].shape
            text = f"parameter_number={number}"
            inner.instructions.append(Instruction(f"{inner.name}.{number}", "parameter", taken, (), (), (), self.line, text, self.dialect))
        # An async-start's shape is (operands, result, context…).
        result = shape.parts[1] if len(shape.parts) > 1 else shape
        inner.root = len(operands)
        taken_all = tuple(range(len(operands)))
        calls = self.call(inner, names)
        inner.instructions.append(Instruction(f"{name}.{operation}", operation, result, taken_all, calls, (), self.line, raw, self.dialect))
        return self.add(inner)

    def add(self, draft: Draft) -> int:
        if draft.name in self.numbers:
            self.line = draft.line
            raise Malformed(f"a second computation named {excerpt(draft.name)}")
        self.numbers[draft.name] = len(self.drafts)
        self.drafts.append(draft)
        self.remaining -= len(draft.instructions)
        return len(self.drafts) - 1

    def complete(self, draft: Draft) -> None:
        """Resolves names that are used before their definition, and makes the checks that need the whole computation."""
        for position, names, control in draft.pending:
            instruction = draft.instructions[position]
            self.line = instruction.place
            for name in (*names, *control):
                if name not in draft.index:
                    raise Malformed(f"{excerpt(instruction.name)} uses {excerpt(name)}, which this computation does not define")
            operands = tuple(draft.index[name] for name in names) or instruction.operands
            predecessors = tuple(draft.index[name] for name in control) or instruction.control
            draft.instructions[position] = replace(instruction, operands=operands, control=predecessors)
        self.line = draft.line
        if draft.root is None:
            draft.root = len(draft.instructions) - 1
        if sorted(draft.parameters) != list(range(len(draft.parameters))):
            raise Malformed(f"the parameters of {excerpt(draft.name)} are not numbered 0, 1, 2, …")

    def resolve(self) -> None:
        """Resolves calls of computations that are defined after their callers."""
        for draft, position, names, line in self.later:
            self.line = line
            for _, name in names:
                if name not in self.numbers:
                    raise Malformed(
                        f"{excerpt(draft.instructions[position].name)} calls {excerpt(name)}, which the program does not define"
                    )
            calls = tuple(Call(role, self.numbers[name]) for role, name in names)
            draft.instructions[position] = replace(draft.instructions[position], calls=calls)

    def computations(self) -> tuple[Computation, ...]:
        """The computations that were read, in order."""
        return tuple(
            Computation(
                name=draft.name,
                instructions=tuple(draft.instructions),
                root=draft.root or 0,
                parameters=tuple(draft.parameters[number] for number in range(len(draft.parameters))),
            )
            for draft in self.drafts
        )


def _kind(opcode: str) -> int:
    """How an instruction is read beyond its operands. An unknown opcode may call computations."""
    if opcode == "parameter":
        return _PARAMETER
    if opcode == "constant":
        return _CONSTANT
    return _PLAIN if opcode in LEAVES else _CALLER


@lru_cache(maxsize=1_000)  # instructions that call a reduction or a library repeat their attributes
def _calls(rest: str) -> tuple[tuple[str, str], ...]:
    """Role and name of each computation that the attributes after an instruction's operands call."""
    if _ROLE.search(rest) is None:
        return ()
    called = [(ROLES[role], _called(role, rest[start:end])) for role, start, end in attributes_of(rest) if role in ROLES]
    return tuple([(role, name) for role, names in called for name in names])


def _called(role: str, value: str) -> list[str]:
    names = braced(value) if value.startswith("{") else value
    if "=" in names:
        raise Malformed(f"{role} is not a list of computations: {excerpt(names)}")
    return [name.strip().lstrip("%") for name in names.split(",") if name.strip()]


def _control(rest: str) -> list[str]:
    place = find_attribute(rest, "control-predecessors")
    if place is None:
        return []
    return [match[1] for item in split(braced(rest[slice(*place)])) if (match := _NAME.fullmatch(item))]
