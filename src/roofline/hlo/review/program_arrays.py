"""Arguments and results of a program that each kernel reads or writes: values that pass through memory between programs."""

from ...workload import Array
from ..ir.module import Computation
from ..ir.shapes import Shape
from ..price.traffic import source

_SMALL = 1 << 20  # bytes: smaller arrays are ignored


def results_of(entry: Computation) -> set[int]:
    """The instructions of an entry whose values the program returns."""
    root = entry.root_instruction
    parts = [entry.root, *(root.operands if root.opcode == "tuple" else ())]
    return {entry.root, *(source(entry, place, ())[0] for place in parts)}


def exchanged(entry: Computation, index: int, results: set[int]) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """The arguments of a program that a kernel of its entry reads, and those of its ``results`` that it writes."""
    instruction = entry[index]
    sources = {source(entry, operand, ())[0] for operand in instruction.operands}
    taken = [entry[place].shape for place in sorted(sources) if entry[place].opcode == "parameter"]
    given = list(instruction.shape.leaves) if index in results else []
    return _arrays(taken), _arrays(given)


def _arrays(shapes: list[Shape]) -> tuple[Array, ...]:
    large = [shape for shape in shapes if shape.is_array and shape.bytes >= _SMALL]
    return tuple(Array(f"{shape.dtype}[{','.join(map(str, shape.dims))}]", shape.bytes) for shape in large)
