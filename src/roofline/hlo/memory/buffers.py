"""Arrays in memory as reports list them."""

from collections.abc import Iterable

from ...workload import LiveBuffer
from ..ir.module import Instruction
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


def largest_buffers(buffers: Iterable[LiveBuffer]) -> tuple[LiveBuffer, ...]:
    """The largest arrays that have a name."""
    named = [buffer for buffer in buffers if buffer.name and buffer.bytes]
    return tuple(sorted(named, key=lambda buffer: (-buffer.bytes, buffer.name))[:LARGEST])
