"""Arrays in memory as reports list them."""

from collections.abc import Iterable, Set

from msgspec.structs import replace

from ...peak_memory import LiveBuffer
from ..ir.module import HloModule, Instruction
from ..ir.scopes import scope
from ..ir.shapes import Shape

LARGEST = 16  # buffers that are named


def buffer_of(kind: str, maker: Instruction | None, shape: Shape | None, size: int) -> LiveBuffer:
    """An array, by the instruction that makes it."""
    if maker is None:
        return LiveBuffer(kind=kind, bytes=size)
    # The name of a program's argument is not a scope: params['layer0'].
    where = "" if kind == "argument" else scope(maker.op_name)
    return LiveBuffer(kind=kind, name=maker.name, scope=where, shape="" if shape is None else plain_shape(shape), bytes=size)


def plain_shape(shape: Shape) -> str:
    """A shape without its layout."""
    return f"{shape.dtype}[{','.join(map(str, shape.dims))}]"


def largest_buffers(module: HloModule, buffers: Iterable[LiveBuffer]) -> tuple[LiveBuffer, ...]:
    """The largest arrays that have a name, with the lines that they come from."""
    named = sorted((buffer for buffer in buffers if buffer.name and buffer.bytes), key=lambda buffer: (-buffer.bytes, buffer.name))[
        :LARGEST
    ]
    writers = _writers(module, {buffer.name for buffer in named})
    return tuple(replace(buffer, location=module.location(writers[buffer.name])) if buffer.name in writers else buffer for buffer in named)


def _writers(module: HloModule, names: Set[str]) -> dict[str, Instruction]:
    """The instructions of these names; for memory that is allocated before a loop, the one in the loop's body that fills it."""
    first: dict[str, Instruction] = {}
    for computation in module:
        for instruction in computation:
            if instruction.name in names:
                first.setdefault(instruction.name, instruction)
            if instruction.opcode != "while" or computation[instruction.operands[0]].opcode != "tuple":
                continue
            root = module.computations[instruction.called("body")[0]].root_instruction
            if root.opcode != "tuple":
                continue
            for before, after in zip(computation[instruction.operands[0]].operands, root.operands, strict=False):
                allocated = computation[before]
                if allocated.name in names and allocated.word("custom_call_target") == "AllocateBuffer":
                    first[allocated.name] = module.computations[instruction.called("body")[0]][after]
    return first
