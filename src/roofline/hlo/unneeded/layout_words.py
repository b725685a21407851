"""Which array a kernel puts in another order, and what for, as far as the program says it."""

import re

from ...workload import source_line
from ..ir.module import Computation, Instruction
from ..ir.shapes import Shape
from .kernels import Kernels

MOST_SIZES = 6  # of an array that is described by its sizes
_EINSUM = r"(?<![\w.])[a-zA-Z.]+(?:,[a-zA-Z.]+)*->[a-zA-Z.]*(?![\w.])"


def reordering(kernels: Kernels, index: int, within: Computation, moved: Instruction) -> str:
    """Such as "[8,16,512,64] to [8,512,16,64] by a transpose, for einsum 'bqhd,bkhd->bhqk' at model.py:7"; empty for very many sizes.

    ``moved`` is the instruction ``within`` a kernel that changes the order.
    """
    sizes = _sizes(within[moved.operands[0]].shape, moved)
    return f"{sizes}{_source(moved.op_name)}{_reader(kernels, index)}" if sizes else ""


def _sizes(before: Shape, moved: Instruction) -> str:
    """The sizes of an array in memory, the outermost first, without those of 1, before and after."""
    axes = moved.dimensions if moved.opcode == "transpose" else range(before.rank)
    after = [axes[axis] for axis in moved.shape.major_to_minor]
    old, new = ([before.dims[axis] for axis in order if before.dims[axis] != 1] for order in (before.major_to_minor, after))
    return "" if len(old) > MOST_SIZES else f"[{','.join(map(str, old))}] to [{','.join(map(str, new))}]"


def _source(op_name: str) -> str:
    """What made the array or asked for the order: an einsum, a transpose of the program, or a loop that carries the array."""
    words = op_name.rpartition(";")[2]
    if einsum := _einsum(words):
        return f" from einsum '{einsum}'"
    last = words.rpartition("/")[2]
    return {"transpose": " by a transpose", "while": " for a loop that carries it"}.get(last, "")


def _reader(kernels: Kernels, index: int) -> str:
    """The first matmul that reads the result: its einsum, and its line."""
    product = next((user for user in sorted(kernels.users(index)) if user in kernels.products), None)
    if product is None:
        return ""
    made = kernels.computation[product]
    einsum, line = _einsum(made.op_name), source_line(kernels.module.location(made))
    what = f"einsum '{einsum}'" if einsum else "a matmul"
    return f", for {what}{f' at {line}' if line else ''}"


def _einsum(op_name: str) -> str:
    found = re.search(_EINSUM, op_name)
    return found[0] if found else ""
