"""Why a value is stored in memory instead of being fused, as far as the program shows it.

One reason for each value: the strongest that prevents fusing its producer with one of its readers. A compiler may have had others; look
first at values with ``none seen``.
"""

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from ..ir.module import Computation, HloModule, Instruction
from ..ir.renaming import Place, source
from ..price.bodies import reads_target
from ..price.elementwise import ELEMENTWISE
from ..price.traffic import results
from .intermediates import Intermediate, Reader
from .rules import PRODUCTS

Reason = Literal[
    "custom call",
    "collective",
    "dynamic shape",
    "atomics",
    "indexing pattern",
    "layout change",
    "matrix product",
    "reduction before use",
    "explicit materialisation",
    "multiple users",
    "none seen",
]

_COLLECTIVES = ("all-gather", "all-reduce", "all-to-all", "collective-", "ragged-all-to-all", "reduce-scatter", "send", "recv")
_FORCED = ("copy", "copy-start", "rng", "infeed", "outfeed")
_INDEXED = frozenset(["gather", "scatter", "select-and-scatter", "dynamic-slice", "dynamic-update-slice", "sort", "topk"])
_MOVING = frozenset(
    (
        *("fusion", "async-start", "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "reshape", "convert"),
        *("transpose", "copy", "slice", "dynamic-slice"),
    )
)
_LAYOUT = frozenset(("transpose", "copy"))
_PASSING = ELEMENTWISE | {"bitcast", "reshape", "get-tuple-element", "tuple", "copy", "transpose"}


class Blocker(Struct, frozen=True):
    """A reason, and what in the program shows it."""

    reason: Reason
    detail: str = ""


class _Side(Struct, frozen=True):
    """The producer or a reader of an intermediate value.

    ``opcodes`` are all opcodes in the kernel, ``near`` the instructions that make or use the value without a change of its size in between.
    """

    instruction: Instruction
    opcodes: frozenset[str]
    near: tuple[Instruction, ...]

    @property
    def name(self) -> str:
        return self.instruction.name

    @property
    def nearby(self) -> frozenset[str]:
        return frozenset(one.opcode for one in self.near)


class _Case(Struct, frozen=True):
    """A value in memory between two kernels or more: the kernel that makes it, and those that read it."""

    module: HloModule
    value: Intermediate
    producer: _Side
    readers: list[_Side]

    @property
    def sides(self) -> list[_Side]:
        return [self.producer, *self.readers]


def blocker(module: HloModule, found: Intermediate) -> Blocker:
    """The strongest reason why a value is in memory."""
    case = _Case(module, found, _producer(module, found), [_reader(module, reader) for reader in found.readers])
    for rule in _RULES:
        if (seen := rule(case)) is not None:
            return seen
    return Blocker("none seen")


Rule = Callable[[_Case], Blocker | None]


def _only_moves(case: _Case) -> Blocker | None:
    """A kernel that only moves data is the reason, whatever the other kernel does."""
    for side in case.sides:
        if side.opcodes <= _MOVING and (_changes_layout(case.value.computation, side) or "transpose" in side.opcodes):
            return Blocker("layout change", f"{side.name} only reorders elements")
        if side.opcodes <= _MOVING and (taken := sorted(_INDEXED & side.opcodes)):
            return Blocker("indexing pattern", f"{side.name} is only a {taken[0]}")
    return None


def _custom_call(case: _Case) -> Blocker | None:
    for side in case.sides:
        for one in (side.instruction, *side.near):
            if one.opcode == "custom-call":
                return Blocker("custom call", f"{side.name} calls {one.custom_call_target}, which the compiler cannot fuse into")
    return None


def _collective(case: _Case) -> Blocker | None:
    for side in case.sides:
        if side.instruction.opcode.startswith(_COLLECTIVES):
            return Blocker("collective", f"{side.name} exchanges it with other devices")
    return None


def _forced(case: _Case) -> Blocker | None:
    if any(reader.past_barrier for reader in case.value.readers):
        return Blocker("explicit materialisation", "an optimization barrier separates them")
    for side in case.sides:
        opcode = side.instruction.opcode
        if opcode.startswith(_FORCED) and not _changes_layout(case.value.computation, side):
            return Blocker("explicit materialisation", f"{side.name} is a {opcode}")
    return None


def _dynamic(case: _Case) -> Blocker | None:
    if case.value.shape.is_dynamic or any("set-dimension-size" in side.opcodes for side in case.sides):
        return Blocker("dynamic shape", f"the size of {case.value.shape} is known only at run time")
    return None


def _atomics(case: _Case) -> Blocker | None:
    for one in case.producer.near:
        if one.opcode == "scatter" and reads_target(case.module, one):
            return Blocker("atomics", f"{case.producer.name} updates it in any order; it is complete only after the last update")
    if "reduce" in case.producer.nearby:
        for side in case.readers:
            if "reduce" in side.nearby and side.instruction.shape.elements < case.value.shape.elements:
                return Blocker("atomics", f"a reduction in two kernels: {case.producer.name} writes partial results for {side.name}")
    return None


def _indexing(case: _Case) -> Blocker | None:
    for side in case.sides:
        for opcode in sorted(_INDEXED & side.nearby):
            verb = "comes from" if side is case.producer else "goes into"
            return Blocker("indexing pattern", f"it {verb} a {opcode} in {side.name}")
    return None


def _layout(case: _Case) -> Blocker | None:
    for side in case.sides:
        if _changes_layout(case.value.computation, side) or _LAYOUT & side.nearby:
            return Blocker("layout change", f"{side.name} writes the elements in another order")
    return None


def _product(case: _Case) -> Blocker | None:
    for side in case.sides:
        if PRODUCTS & side.opcodes:
            what = (
                "its result; only elementwise ops could be fused" if side is case.producer else "an operand; only its loads could be fused"
            )
            return Blocker("matrix product", f"{side.name} is a matmul and this is {what}")
    return None


def _reduction(case: _Case) -> Blocker | None:
    if "reduce" not in case.producer.opcodes:
        return None
    read = _sources(case.value.computation, case.producer.instruction)
    for side in case.readers:
        if "reduce" in case.producer.nearby and side.instruction.shape.elements > case.value.shape.elements:
            again = (
                "reads the same operand again"
                if read & _sources(case.value.computation, side.instruction)
                else "broadcasts it to more elements"
            )
            return Blocker("reduction before use", f"{case.producer.name} must read a whole row before {side.name} {again}")
    for side in case.readers:
        if "reduce" in side.opcodes:
            return Blocker("reduction before use", f"{case.producer.name} reduces to compute it, and {side.name} reduces it again")
    return None


def _needed_in_memory(case: _Case) -> Blocker | None:
    if case.value.is_needed:
        return Blocker(
            "explicit materialisation", "it is also a result of the program, or used by the next iteration or another computation"
        )
    if all(reader.is_late for reader in case.value.readers):
        return Blocker("explicit materialisation", f"it is stored for later: {case.readers[0].name} also depends on kernels in between")
    return None


def _users(case: _Case) -> Blocker | None:
    if len(case.readers) < 2:
        return None
    late = sum(reader.is_late for reader in case.value.readers)
    return Blocker("multiple users", f"{len(case.readers):,} kernels read it" + (f", {late:,} of them later" if late else ""))


_RULES: tuple[Rule, ...] = (
    _only_moves,
    _custom_call,
    _collective,
    _forced,
    _dynamic,
    _atomics,
    _indexing,
    _layout,
    _product,
    _reduction,
    _needed_in_memory,
    _users,
)


def _producer(module: HloModule, found: Intermediate) -> _Side:
    """The kernel that makes a value, and the instructions in it that make the value, from the last back to a change of size."""
    instruction = found.producer.site.instruction
    body = _body(module, instruction)
    if body is None:
        return _Side(instruction, _opcodes(module, instruction), (instruction,))
    leaf = next((leaf for path, leaf in results(body) if path == found.path), body.root)
    near: dict[int, None] = {leaf: None}
    waiting = [leaf]
    while waiting:
        one = body[waiting.pop()]
        for operand in one.operands if one.opcode in _PASSING else ():
            if operand not in near and body[operand].opcode != "parameter" and body[operand].shape.elements == one.shape.elements:
                near[operand] = None
                waiting.append(operand)
    return _Side(instruction, _opcodes(module, instruction), tuple(body[index] for index in near))


def _reader(module: HloModule, reader: Reader) -> _Side:
    """A kernel that reads a value, and the instructions in it that use the value, from the first on to a change of size."""
    instruction = reader.kernel.site.instruction
    body = _body(module, instruction)
    if body is None:
        return _Side(instruction, _opcodes(module, instruction), (instruction,))
    near: dict[int, None] = {}
    waiting = [body.parameters[operand] for operand, _ in reader.operands if operand < len(body.parameters)]
    for taken in waiting:
        for index, one in enumerate(body):
            if taken in one.operands and index not in near and not _is_index(one, taken):
                near[index] = None
                if one.opcode in ("bitcast", "reshape", "convert", "get-tuple-element"):
                    waiting.append(index)
    return _Side(instruction, _opcodes(module, instruction), tuple(body[index] for index in near))


def _is_index(one: Instruction, value: int) -> bool:
    """Whether a value is only the indices of a slice or a gather; such operands are small and prevent no fusion."""
    if one.opcode in ("dynamic-slice", "gather"):
        return value not in one.operands[:1]
    return one.opcode == "dynamic-update-slice" and value not in one.operands[:2]


def _body(module: HloModule, instruction: Instruction) -> Computation | None:
    """The body of a fusion, also of an asynchronous one."""
    if not instruction.calls or instruction.opcode not in ("fusion", "async-start"):
        return None
    body = module.computations[instruction.calls[0].computation]
    if instruction.opcode == "async-start":
        return _body(module, body.root_instruction) or body
    return body


def _opcodes(module: HloModule, instruction: Instruction) -> frozenset[str]:
    """The opcodes in a kernel, its own included."""
    called = instruction.calls if instruction.opcode in ("fusion", "async-start") else ()
    inner = [_opcodes(module, one) for call in called for one in module.computations[call.computation]]
    return frozenset((instruction.opcode,)).union(*inner)


def _changes_layout(computation: Computation, side: _Side) -> bool:
    """Whether a plain copy or transposition puts the elements into another order."""
    instruction = side.instruction
    if instruction.opcode == "transpose":
        return True
    if instruction.opcode != "copy":
        return False
    before = computation[instruction.operands[0]].shape.layout
    after = instruction.shape.layout
    return before is not None and after is not None and (before.minor_to_major, before.tiles) != (after.minor_to_major, after.tiles)


def _sources(computation: Computation, instruction: Instruction) -> set[Place]:
    """The arrays a kernel reads, followed through instructions that only rename them."""
    return {source(computation, operand, through=("bitcast", "reshape")) for operand in instruction.operands}
