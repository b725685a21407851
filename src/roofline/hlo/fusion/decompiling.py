"""A program compiled for a CPU, as it was before compilation: without fusions and layouts, in the number formats of the source.

XLA's CPU compiler has no products or collectives of 16-bit and 8-bit floats: it converts their operands to fp32 or fp16 and the result
back. An accelerator does not, so these conversions are removed; those in the source stay. An all-reduce of fp8 thus moves 8 bits per
value, as XLA compiles it for GPUs (`GpuFloatSupport::IsSupported` in xla/service/gpu/gpu_float_support.cc).

The CPU compiler also moves conversions out of loops, combines several all-reduces into one, and transposes the operands of products, which
matrix units take in any order.
"""

import re
from collections import Counter
from collections.abc import Mapping
from itertools import chain

from msgspec.structs import replace

from ..ir.amending import amended
from ..ir.module import Call, Computation, HloModule, Instruction
from ..ir.opcodes import PRODUCTS
from ..ir.rewriting import Rewriting, busy_computations, without_dead_code
from ..ir.shapes import NUMBERS, Shape
from .inlining import computations_that_run, inlined

Formats = dict[int, str]  # number formats by the index of an operand, or of a part of a tuple

_REDUCING = ("all-reduce", "reduce-scatter")
_PROMOTED = "bf16"  # the assumed original format of a widened reduction over devices: only 16-bit formats are widened
_COMBINED = "combined"  # an attribute: one of several reductions that the compiler combined in one format
_WIDE = ("f32", "f16", "bf16", "s32")
# Opcodes that only move data: which of their operands are data; the others are indices and sizes.
_KEEPING: dict[str, slice] = {
    **dict.fromkeys(("bitcast", "broadcast", "dynamic-slice", "gather", "reshape", "reverse", "slice", "transpose"), slice(1)),
    **dict.fromkeys(("all-gather", "all-to-all", "collective-broadcast", "collective-permute", "concatenate", "opt-barrier"), slice(None)),
    **dict.fromkeys(("dynamic-update-slice", "pad"), slice(2)),
    "select": slice(1, 3),
    # These also accumulate, in the format that the call names.
    "reduce-window": slice(1),
    "scatter": slice(0, 3, 2),
    "select-and-scatter": slice(2),
}
# What frameworks call a conversion that the user wrote: JAX, TensorFlow, PyTorch/XLA.
_ASKED_FOR = re.compile(r"(?:.*/)?(?:convert_element_type|convert|astype|Cast|xla__cast|aten__(?:to|_to_copy))")


def decompiled(module: HloModule) -> HloModule:
    """The program without its compiler's fusions, copies between layouts and widened formats; not scheduled, so that it can be fused."""
    flat = inlined(replace(module, computations=tuple(map(_unfused, module.computations)), is_scheduled=False, buffer_assignment=b""))
    named = any(instruction.op_name for instruction in flat.entry_computation.instructions if instruction.opcode != "parameter")
    computations, busy = list(flat.computations), busy_computations(flat)
    calls = Counter(call.computation for call in chain(*(instruction.calls for instruction in flat.instructions)))
    carried: dict[int, Formats] = {}
    for number in computations_that_run(flat):
        rewritten = _Narrowing(flat, flat.computations[number], calls, named, carried.get(number, {}))
        computations[number] = without_dead_code(rewritten.written(), busy)
        carried |= rewritten.carried
    return replace(flat, computations=tuple(computations))


def is_widened(module: HloModule) -> bool:
    """Whether a program has products in a format that its compiler widened from a narrower one, as CPU compilers do."""
    instructions = [
        (computation, instruction)
        for computation in module
        for instruction in computation.instructions
        if instruction.opcode in ("convert", *PRODUCTS)
    ]
    widened = {
        instruction.shape.dtype
        for computation, instruction in instructions
        if instruction.opcode == "convert"
        and _is_compilers(instruction)
        and _widens(computation[instruction.operands[0]].shape.dtype, instruction.shape.dtype)
    }
    return any(
        computation[operand].shape.dtype in widened
        for computation, instruction in instructions
        if instruction.opcode != "convert"
        for operand in instruction.operands
    )


def _unfused(computation: Computation) -> Computation:
    """The computation with calls instead of fusions, combined all-reduces split into one per value, and no copies within one memory."""
    writing = Rewriting(computation)
    for index, old in enumerate(computation.instructions):
        instruction = writing.moved(_plain(computation, old))
        if instruction.opcode == "all-reduce" and instruction.shape.is_tuple:
            parts = zip(instruction.operands, instruction.shape.parts, strict=True)
            instructions = [
                replace(instruction, name=f"{instruction.name}.{place}", operands=(part,), shape=shape)
                for place, (part, shape) in enumerate(parts)
            ]
            instruction = replace(
                instruction,
                opcode="tuple",
                operands=tuple(map(writing.put, [amended(part, **{_COMBINED: True}) for part in instructions])),
                calls=(),
            )
        writing.where[index] = writing.put(instruction)
    return writing.finished()


def _plain(computation: Computation, instruction: Instruction) -> Instruction:
    if instruction.opcode == "fusion":
        return replace(instruction, opcode="call", calls=tuple(Call("to_apply", call.computation) for call in instruction.calls))
    if instruction.opcode == "copy" and computation[instruction.operands[0]].shape.memory_space == instruction.shape.memory_space:
        return replace(instruction, opcode="bitcast")
    return instruction


class _Narrowing(Rewriting):
    """Rewrites one computation with narrow formats: ``where`` maps each value to its new index, ``narrow`` to that in its narrow format.

    ``named`` says whether the program has the framework's names: without them a conversion by the compiler looks like one the user wrote.
    ``calls`` counts the callers of each computation. ``given`` are the narrow formats of parts of the loop state, if the computation is
    the body or condition of a loop; ``carried`` are those of the loops in it.
    """

    def __init__(self, module: HloModule, computation: Computation, calls: Mapping[int, int], named: bool, given: Formats) -> None:
        super().__init__(computation)
        self.module, self.calls, self.named, self.given = module, calls, named, given
        self.carried: dict[int, Formats] = {}
        self.narrow: dict[int, int] = {}
        self.wanted = self._wanted()

    def written(self) -> Computation:
        for index, instruction in enumerate(self.old.instructions):
            self._write(index, instruction)
        return self.finished()

    def _wanted(self) -> dict[int, str]:
        """The narrow format to which the compiler converts every use of a value, directly or after data movement."""
        by_user: dict[int, set[str]] = {self.old.root: {""}}
        wanted: dict[int, str] = {}
        for index in reversed(range(len(self.old))):
            user = self.old[index]
            formats = by_user.get(index, {""})
            if len(formats) == 1 and "" not in formats:
                (wanted[index],) = formats
            for place, operand in enumerate(user.operands):
                by_user.setdefault(operand, set()).add(self._wants(user, place, wanted.get(index, "")))
        return wanted

    def _wants(self, user: Instruction, place: int, wanted: str) -> str:
        """The narrow format to which an operand is converted by one of its users; empty if it is used in its own format."""
        if user.opcode == "convert":
            given = self.old[user.operands[0]].shape.dtype
            return user.shape.dtype if _is_compilers(user) and _widens(user.shape.dtype, given) else ""
        return wanted if place in _data(user) or user.opcode == "get-tuple-element" else ""

    def _is_promoted(self, instruction: Instruction) -> bool:
        """Whether the compiler widened a reduction over devices: it adds ``promoted`` to the name of the applied computation.

        Of several combined reductions it names only the first one's.
        """
        called = (self.module.computations[call.computation].name for call in instruction.calls)
        return not instruction.flag(_COMBINED) and any("promoted" in name for name in called)

    def _format(self, index: int) -> str:
        """The narrow format in which a value is available."""
        return self.new[self.narrow[index]].shape.dtype if index in self.narrow else ""

    def _write(self, index: int, instruction: Instruction) -> None:
        if instruction.opcode == "convert" and self._format(instruction.operands[0]) == instruction.shape.dtype:
            self.where[index] = self.narrow[instruction.operands[0]]  # converted and converted back
        elif instruction.opcode == "bitcast" and instruction.shape == self.old[instruction.operands[0]].shape:
            self.where[index] = self.where[instruction.operands[0]]
            if instruction.operands[0] in self.narrow:
                self.narrow[index] = self.narrow[instruction.operands[0]]
        elif instruction.opcode == "while" and (formats := self._invariants(index, instruction)):
            self._loop(index, instruction, formats)
        elif self.given and (instruction.opcode == "parameter" or (index == self.old.root and instruction.opcode == "tuple")):
            self._state(index, instruction)
        elif instruction.opcode in PRODUCTS:
            self._product(index, instruction)
        elif kept := self._moved_format(index, instruction):
            self._narrowed(index, instruction, dict.fromkeys(_data(instruction), kept), kept)
        else:
            self._unchanged(index, instruction)

    def _invariants(self, index: int, loop: Instruction) -> Formats:
        """The narrow formats of the parts of a loop's state that were widened before the loop and that it does not change."""
        start, numbers = self.old[loop.operands[0]], [call.computation for call in loop.calls]
        if start.opcode != "tuple" or _is_whole(self.old, index):
            return {}
        if any(self.calls[number] > 1 or _is_whole(self.module.computations[number]) for number in numbers):
            return {}
        body = self.module.computations[loop.called("body")[0]]
        state = body.parameters[0]
        if body.root_instruction.opcode != "tuple":
            return {}
        parts = body.operands(body.root_instruction)
        same = {
            instruction.integer("index")
            for instruction in parts
            if instruction.opcode == "get-tuple-element" and instruction.operands[0] == state
        }
        widened = {place: narrow for place, operand in enumerate(start.operands) if (narrow := self._format(operand))}
        return {place: narrow for place, narrow in widened.items() if place in same and parts[place].integer("index") == place}

    def _loop(self, index: int, loop: Instruction, formats: Formats) -> None:
        """Writes a loop that carries some of its state in narrow formats."""
        start = self.old[loop.operands[0]]
        operands = tuple(self._in(number, formats.get(place, "")) for place, number in enumerate(start.operands))
        state = self._put(start, operands, _with_parts(start.shape, formats))
        self.where[index] = self.narrow[index] = self._put(loop, (state,), _with_parts(loop.shape, formats))
        self.carried |= dict.fromkeys((call.computation for call in loop.calls), formats)

    def _state(self, index: int, instruction: Instruction) -> None:
        """Writes the state of a loop at the beginning of its body or condition, or at the end of its body."""
        operands = tuple(self._in(operand, self.given.get(place, "")) for place, operand in enumerate(instruction.operands))
        self.where[index] = self.narrow[index] = self._put(instruction, operands, _with_parts(instruction.shape, self.given))

    def _unchanged(self, index: int, instruction: Instruction) -> None:
        """Writes an instruction in its own format; notes the narrow format of a value that the compiler widened."""
        if instruction.opcode == "get-tuple-element" and instruction.operands[0] in self.narrow:
            whole = self.narrow[instruction.operands[0]]
            part = self.new[whole].shape.parts[instruction.integer("index") or 0]
            self.where[index] = self._put(instruction, (whole,), part)
            if part.dtype != instruction.shape.dtype:
                self.narrow[index] = self.where[index]
                self.where[index] = self._converted(instruction, self.narrow[index], instruction.shape.dtype)
            return
        self.where[index] = self._put(instruction, tuple(self.where[operand] for operand in instruction.operands), instruction.shape)
        if (
            instruction.opcode == "convert"
            and _is_compilers(instruction)
            and _widens(self.old[instruction.operands[0]].shape.dtype, instruction.shape.dtype)
        ):
            self.narrow[index] = self.narrow.get(instruction.operands[0], self.where[instruction.operands[0]])

    def _moved_format(self, index: int, instruction: Instruction) -> str:
        """The narrow format for data movement: that of the operand, or the one the result is converted to."""
        if instruction.opcode not in _KEEPING and instruction.opcode not in _REDUCING:
            return ""
        wanted = self.wanted.get(index, "")
        if instruction.shape.is_tuple:
            return wanted
        moved = {
            self._format(instruction.operands[place])
            for place in _data(instruction)
            if self.old[instruction.operands[place]].opcode != "constant"
        }
        known = moved.pop() if len(moved) == 1 else ""
        if instruction.opcode not in _REDUCING:
            return wanted or known
        if self._is_promoted(instruction):
            return wanted or known or _PROMOTED
        may_be = instruction.flag(_COMBINED) or (wanted and NUMBERS[wanted].bits <= 8)  # XLA widens fp8 without renaming anything
        return wanted if may_be and wanted == known else ""

    def _product(self, index: int, instruction: Instruction) -> None:
        wanted = self.wanted.get(index, "")
        known = [self._format(operand) for operand in instruction.operands[:2]]
        if not all(known):
            # Both operands of a product have one format: the other's was lost when the compiler removed a pair of conversions.
            known = [own or max(known) or wanted if self.named else "" for own in known]
        wide = [self.old[operand].shape.dtype for operand in instruction.operands[:2]]
        formats = {place: own for place, (own, was) in enumerate(zip(known, wide, strict=True)) if own and _widens(own, was)}
        self._narrowed(index, instruction, formats, wanted)

    def _narrowed(self, index: int, instruction: Instruction, formats: Formats, result: str) -> None:
        """Writes an instruction with some operands, and perhaps its result, in narrow formats."""
        operands = tuple(self._in(operand, formats.get(place, "")) for place, operand in enumerate(instruction.operands))
        if instruction.opcode == "dot":
            instruction, operands = self._untransposed(instruction, operands)
        written = self._put(instruction, operands, _in_format(instruction.shape, result) if result else instruction.shape)
        self.where[index] = written
        if result:
            self.narrow[index] = written
            if instruction.shape.is_array:
                self.where[index] = self._converted(instruction, written, instruction.shape.dtype)

    def _untransposed(self, dot: Instruction, operands: tuple[int, ...]) -> tuple[Instruction, tuple[int, ...]]:
        """A product of the operands before their transpositions, if its result stays the same."""
        numbers = dot.dot
        sides = [(numbers.lhs_batch, numbers.lhs_contracting), (numbers.rhs_batch, numbers.rhs_contracting)]
        taken = list(operands)
        for side, (batch, contracting) in enumerate(sides):
            source = self.new[taken[side]]
            order = source.dimensions if source.opcode == "transpose" else ()
            free = [axis for place, axis in enumerate(order) if place not in batch and place not in contracting]
            if order and free == sorted(free):
                taken[side] = source.operands[0]
                sides[side] = tuple(order[place] for place in batch), tuple(order[place] for place in contracting)
        if taken == list(operands):
            return dot, operands
        names = ("lhs_batch_dims", "lhs_contracting_dims", "rhs_batch_dims", "rhs_contracting_dims")
        return amended(dot, **dict(zip(names, (*sides[0], *sides[1]), strict=True))), tuple(taken)

    def _in(self, operand: int, wanted: str) -> int:
        """The new index of an operand in a format, converted if necessary; without a format, of the operand in its own."""
        if not wanted:
            return self.where[operand]
        if self._format(operand) == wanted:
            return self.narrow[operand]
        return self._converted(self.old[operand], self.where[operand], wanted)

    def _converted(self, producer: Instruction, where: int, wanted: str) -> int:
        shape = _in_format(self.new[where].shape, wanted)
        return self._put(replace(producer, opcode="convert", calls=(), control=()), (where,), shape)

    def _put(self, instruction: Instruction, operands: tuple[int, ...], shape: Shape) -> int:
        control = tuple(self.where[before] for before in instruction.control)
        return self.put(replace(instruction, operands=operands, shape=shape, control=control))


def _is_whole(computation: Computation, index: int | None = None) -> bool:
    """Whether a tuple (by default the parameter) has uses other than taking its elements."""
    index = computation.parameters[0] if index is None else index
    users = (instruction for instruction in computation.instructions if index in instruction.operands)
    return index == computation.root or any(instruction.opcode != "get-tuple-element" for instruction in users)


def _data(instruction: Instruction) -> range:
    """The operands that are data which an instruction moves, or reduces over devices."""
    places = range(len(instruction.operands))
    return places if instruction.opcode in _REDUCING else places[_KEEPING.get(instruction.opcode, slice(0))]


def _is_compilers(convert: Instruction) -> bool:
    """Whether the compiler added a conversion."""
    return not _ASKED_FOR.fullmatch(convert.op_name)


def _widens(narrow: str, wide: str) -> bool:
    """Whether a CPU compiler may widen one format to another, because its products do not support it."""
    return wide in _WIDE and narrow in NUMBERS and NUMBERS[narrow].bits < NUMBERS[wide].bits and _is_float(narrow) == _is_float(wide)


def _is_float(name: str) -> bool:
    return "int" not in NUMBERS[name].rate


def _in_format(shape: Shape, number: str) -> Shape:
    """A shape with its elements, or those of its parts, in another format."""
    if shape.is_tuple:
        return replace(shape, parts=tuple(_in_format(part, number) for part in shape.parts))
    return replace(shape, dtype=number)


def _with_parts(shape: Shape, formats: Formats) -> Shape:
    """A tuple with some of its parts in other formats."""
    parts = tuple(_in_format(part, formats[place]) if place in formats else part for place, part in enumerate(shape.parts))
    return replace(shape, parts=parts)
