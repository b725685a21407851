"""Commands that XLA records from a computation into a CUDA graph, and the graph nodes they become.

A graph is recorded from consecutive instructions. Each instruction that launches something is one command and one node, in the order of the
schedule. A conditional is a node that sets the condition, then one node per branch, with a graph of its own for the branch's body (branches
come in groups of eight; with a predicate, the second of the two branches comes first). A loop, where loops are recorded, is the commands of
its condition, a node that sets the condition, and a node with a graph for body, condition and setter.
"""

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from ...hlo.ir.module import Instruction
from .modules import CONTROL, Place, Program

LOOP_SETTER, CASE_SETTER = "set_while_condition", "set_case_condition"
BRANCHES_AT_ONCE = 8
_OPCODES_WITHOUT_LAUNCH = """
parameter constant bitcast tuple get-tuple-element after-all add-dependency opt-barrier domain async-update async-done copy-done
all-gather-done all-reduce-done collective-permute-done send-done recv-done
"""
_WITHOUT_LAUNCH = frozenset(_OPCODES_WITHOUT_LAUNCH.split())
_CALLS_WITHOUT_LAUNCH = ("AllocateBuffer", "Pin", "Unpin", "CreateBuffer")
_NUMBER = re.compile(r"(?:[._]\d+)+\Z")
_KERNEL_SUFFIX = ".kd"  # of AMD's kernels


class Command(Struct, frozen=True):
    """An instruction that launches something. ``bodies`` are the branches of a conditional, in the order in which they are recorded.

    ``kernel`` is the name of its kernel if XLA compiled one for it, ``stem`` the part of it that equal kernels share.
    """

    place: Place
    opcode: str
    kernel: str
    stem: str
    bodies: tuple[tuple["Command", ...], ...] = ()

    @property
    def calls_library(self) -> bool:
        """Whether a library launches its kernels: then its node has a graph of its own, and its kernels have the library's names."""
        return self.opcode == "custom-call"


class Slot(Struct, frozen=True):
    """An expected node: its command, and the expected nodes of the graph inside it, if it is a branch or a loop.

    ``setter`` is the kernel that sets a condition.
    """

    command: Command
    body: tuple["Slot", ...] | None = None
    setter: str = ""

    @property
    def is_call(self) -> bool:
        """Whether it is a library call, whose own graph has an unknown number of nodes."""
        return self.body is None and not self.setter and self.command.calls_library


def stem(name: str) -> str:
    """A name without its number. XLA compiles equal fusions into one kernel, named after one of them: only the stems agree.

    >>> stem("loop_multiply_fusion.4"), stem("loop_multiply_fusion_12"), stem("sort_6_1")
    ('loop_multiply_fusion', 'loop_multiply_fusion', 'sort')
    """
    return _kernel_name(_NUMBER.sub("", name.removesuffix(_KERNEL_SUFFIX)))


def commands(program: Program, computation: int) -> tuple[Command, ...]:
    """The commands of a computation, in the order of its schedule; those of a called computation are included."""
    return tuple(_commands(program, computation))


def launching_places(program: Program) -> Iterator[Place]:
    """The instructions that launch something when a program runs, in its entry and in the calls, loops and branches in it."""
    reached, seen = [program.module.entry], {program.module.entry}
    for computation in reached:
        for index, instruction in enumerate(program.module.computations[computation].instructions):
            if instruction.opcode not in _WITHOUT_LAUNCH:
                yield Place(computation, index)
            for call in instruction.calls if instruction.opcode in CONTROL else ():
                if call.computation not in seen:
                    seen.add(call.computation)
                    reached.append(call.computation)


def _commands(program: Program, computation: int) -> Iterator[Command]:
    for index, instruction in enumerate(program.module.computations[computation].instructions):
        is_call = instruction.opcode == "custom-call"
        if instruction.opcode in _WITHOUT_LAUNCH or (is_call and instruction.custom_call_target in _CALLS_WITHOUT_LAUNCH):
            continue
        if instruction.opcode == "call" and instruction.calls:
            yield from _commands(program, instruction.calls[0].computation)
            continue
        launcher = _launcher(program, instruction)
        yield Command(
            Place(computation, index),
            instruction.opcode,
            _kernel_name(launcher.name),
            stem(launcher.name),
            _bodies(program, computation, instruction) if instruction.opcode == "conditional" else (),
        )


def _launcher(program: Program, instruction: Instruction) -> Instruction:
    """The instruction that the kernel is named after: the one inside an asynchronous instruction, or the sort in a fusion."""
    if not instruction.calls or instruction.opcode not in ("async-start", "fusion"):
        return instruction
    inside = instruction.calls[0].computation
    if instruction.opcode == "async-start":
        return _launcher(program, program.module.computations[inside].root_instruction)
    return program.sorts.get(inside, instruction)


def _kernel_name(name: str) -> str:
    return name.replace(".", "_").replace("-", "_")


def _bodies(program: Program, computation: int, instruction: Instruction) -> tuple[tuple[Command, ...], ...]:
    branches = instruction.called("branch_computations")
    operands = program.module.computations[computation].operands(instruction)
    if operands and operands[0].shape.dtype == "pred":
        branches = tuple(reversed(branches))
    return tuple(commands(program, branch) for branch in branches)


def slots(program: Program, sequence: Iterable[Command]) -> list[Slot]:
    """The expected nodes of a sequence of commands, in the order of their numbers."""
    found: list[Slot] = []
    for command in sequence:
        if command.opcode == "conditional":
            for first in range(0, len(command.bodies), BRANCHES_AT_ONCE):
                found.append(Slot(command, setter=CASE_SETTER))
                found += [Slot(command, tuple(slots(program, body))) for body in command.bodies[first : first + BRANCHES_AT_ONCE]]
        elif command.opcode == "while":
            loop = program.instruction(command.place)
            condition, body = (
                [slot for number in loop.called(role) for slot in slots(program, commands(program, number))]
                for role in ("condition", "body")
            )
            setter = Slot(command, setter=LOOP_SETTER)
            found += [*condition, setter, Slot(command, (*body, *condition, setter))]
        else:
            found.append(Slot(command))
    return found


def is_memset(kernel: str) -> bool:
    """Whether a kernel is a memset, by its name."""
    return kernel.lower().startswith("memset")


def is_copy(kernel: str) -> bool:
    """Whether a kernel is a copy, by its name."""
    return kernel.lower().startswith("memcpy")


SAME, ALIKE, POSSIBLE, WRONG = 3, 2, 1, 0


def fit(kernel: str | None, slot: Slot, stems: frozenset[str]) -> int:
    """How well a kernel's name matches an expected node. ``kernel`` is ``None`` for a node that did not run, as those that own a graph.

    ``stems`` are those of the program's own kernels: a kernel with such a name is not a library's.
    """
    command = slot.command
    if slot.body is not None or slot.setter:
        return SAME if kernel == (slot.setter or None) else WRONG
    loose = command.calls_library or command.opcode == "async-start" or "slice" in command.stem
    if kernel is None:
        return POSSIBLE if loose else WRONG
    if is_copy(kernel):
        if command.opcode in ("copy", "copy-start"):
            return SAME
        return POSSIBLE if loose or command.stem == "sort" else WRONG
    if is_memset(kernel):
        return POSSIBLE
    own = kernel.removesuffix(_KERNEL_SUFFIX)
    if own == command.kernel or (own.startswith(f"{command.kernel}_") and command.stem == "sort"):
        return SAME
    if stem(kernel) == command.stem:
        return ALIKE
    # A fusion may run as a kernel of a library (cuDNN, CUTLASS).
    foreign = stem(kernel) not in stems
    return POSSIBLE if foreign and (loose or command.opcode == "fusion") else WRONG
