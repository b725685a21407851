"""Instructions that make no array of their own: which operand, or which part of one, their result is another name of."""

from collections import deque
from collections.abc import Collection, Iterator

from .attributes import OperandAlias
from .module import Computation, Instruction

Path = tuple[int, ...]  # to a part of a tuple
Place = tuple[int, Path]  # an instruction of a computation, and a part of its result

RENAMING = frozenset(("add-dependency", "bitcast", "domain", "opt-barrier"))  # the first operand as it is
IN_PLACE = RENAMING | {"all-reduce-done", "async-update", "reshape", "set-dimension-size"}  # its memory, which others may see otherwise
# The start of an asynchronous operation returns a tuple: which part of it the done half returns.
_DONE = {"copy-done": 0, "all-gather-done": 1, "collective-permute-done": 1, "async-done": 1, "recv-done": 0}
# Which part of that tuple is the operand itself.
_SOURCE = {"copy-start": 1, "all-gather-start": 0, "collective-permute-start": 0, "async-start": 0}
# Opcodes whose result may be an array of an operand; any other instruction makes a new array.
SHARING = IN_PLACE | {"tuple", "get-tuple-element", *_DONE, *_SOURCE, "while", "call", "fusion", "custom-call"}


def trail(computation: Computation, index: int, path: Path = (), through: Collection[str] = RENAMING) -> Iterator[Place]:
    """A value, and the ones that it is another name of: followed through tuples and through opcodes that hand on their first operand."""
    instructions = computation.instructions
    while True:
        yield index, path
        instruction = instructions[index]
        operands = instruction.operands
        if instruction.opcode == "tuple" and path and path[0] < len(operands):
            index, path = operands[path[0]], path[1:]
        elif instruction.opcode == "get-tuple-element":
            index, path = operands[0], (instruction.integer("index") or 0, *path)
        elif instruction.opcode in through and operands:
            index = operands[0]
        else:
            return


def source(computation: Computation, index: int, path: Path = (), through: Collection[str] = RENAMING) -> Place:
    """Where a value comes from: the last of its trail."""
    return deque(trail(computation, index, path, through), maxlen=1)[0]


def aliases(instruction: Instruction, in_place: Collection[str] = IN_PLACE) -> tuple[OperandAlias, ...]:
    """The parts of a result that are in the memory of operands, apart from those of loops and calls."""
    opcode, operands = instruction.opcode, instruction.operands
    if opcode == "tuple":
        return tuple([OperandAlias((place,), place) for place in range(len(operands))])
    if opcode == "get-tuple-element":
        return (OperandAlias((), 0, (instruction.integer("index") or 0,)),)
    if opcode in _DONE:
        return (OperandAlias((0,) if opcode == "recv-done" else (), 0, (_DONE[opcode],)),) if operands else ()
    if opcode in _SOURCE:
        several = opcode == "async-start" or len(operands) > 1
        return tuple([OperandAlias((_SOURCE[opcode], place) if several else (_SOURCE[opcode],), place) for place in range(len(operands))])
    if opcode == "async-update" and len(operands) > 1:  # SparseCores' operations get their operands only here: their start has none
        return (*instruction.operand_aliases, *[OperandAlias((0, place), place + 1) for place in range(len(operands) - 1)])
    if opcode in in_place:
        return (OperandAlias((), 0),) if operands else ()
    stated = instruction.operand_aliases if opcode in ("fusion", "custom-call") else ()
    return tuple([alias for alias in stated if alias.operand < len(operands)]) if stated else ()
