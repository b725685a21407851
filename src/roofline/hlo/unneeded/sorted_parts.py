"""Sorts of which only a few elements of each row are used: at one end, where a top-k is cheaper, or inside, which is a quantile."""

from collections.abc import Iterator

from ...cost import Cost
from ...resource import HBM
from ...rules.unused_results.parts import CLASS, KIND
from ...workload import Avoidable
from ..ir.module import Instruction
from .kernels import Kernels
from .values import LAYOUT, Value

GROUP, QUANTILE = "sorted", "quantile"
_MOST_KEPT = 1 / 4  # of a row: a top-k of more takes as long as a sort
_FEW = 1 / 1000  # of a row: fewer elements inside of it are quantiles
_LONG = 2**20  # elements of a row of which a much smaller sample gives a good estimate
_SLICES = ("slice", "dynamic-slice")
_NEIGHBOURS = 2  # elements between which a quantile is interpolated; a longer slice is not one
_LIBRARY = ("__cub$DeviceRadixSort", "xla.gpu.ext.cub_sort")
_PASSED = LAYOUT | {"get-tuple-element", "convert", "reverse", "negate"}
_TOP_K = "top_k"  # JAX's name: XLA itself sorts for a top-k of many elements


def sorted_parts(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The sorts of a computation of which every user takes a few elements of each row."""
    if kernels.module.opcodes.isdisjoint(("sort", "custom-call")):
        return
    for index, cost in kernels.costs.items():
        instruction = kernels.computation[index]
        if not sorts(instruction) or _TOP_K in instruction.op_name or not instruction.operands:
            continue
        row = _row(instruction, kernels.computation[instruction.operands[0]].shape.dims)
        most, group = _kept(kernels, Value(kernels.computation, index), row), GROUP
        if not most or most > _MOST_KEPT * row:
            most, group = _taken(kernels, Value(kernels.computation, index), row), QUANTILE
            if not most or most > _FEW * row or row < _LONG:
                continue
        read = sum(kernels.computation[operand].shape.bytes for operand in instruction.operands[:1])
        amounts = {resource: amount for resource, amount in cost.amounts if resource != HBM}
        instead = Cost.of({**amounts, HBM: min(read, cost.known(HBM))})
        facts = {"row": row, "used": most}
        yield index, Avoidable(kind=KIND, instead=instead, facts=facts, unneeded=CLASS, group=group)


def sorts(instruction: Instruction) -> bool:
    """Whether an instruction sorts, by itself or by a library."""
    return instruction.opcode == "sort" or (instruction.opcode == "custom-call" and instruction.custom_call_target.startswith(_LIBRARY))


def _row(instruction: Instruction, dims: tuple[int, ...]) -> int:
    """How many elements are sorted together; a library sorts along the last dimension."""
    axis = instruction.dimensions[0] if instruction.opcode == "sort" and instruction.dimensions else len(dims) - 1
    return dims[axis] if 0 <= axis < len(dims) else 1


def _kept(kernels: Kernels, value: Value, row: int) -> int:
    """How many elements at one end of each sorted row are used; all of them unless every use is a slice."""
    kept = []
    for use in kernels.values.uses(value):
        kept.append(_cut(kernels, use, row) if use.opcode == "slice" else _kept(kernels, use, row) if use.opcode in _PASSED else row)
    return max(kept, default=row)


def _taken(kernels: Kernels, value: Value, row: int) -> int:
    """How many elements of each sorted row are used, wherever they are; all of them unless every use is a slice or a gather."""
    taken = 0
    for use in kernels.values.uses(value):
        if use.opcode in (*_SLICES, "gather") and kernels.values.operand(use, 0).shape == value.shape:
            each = max(use.shape.elements * row // max(value.shape.elements, 1), 1)
            taken += row if use.opcode in _SLICES and each > _NEIGHBOURS else each
        else:
            taken += _taken(kernels, use, row) if use.opcode in _PASSED else row
    return min(taken, row)


def _cut(kernels: Kernels, cut: Value, row: int) -> int:
    whole = kernels.values.operand(cut, 0).shape.dims
    for axis, part in enumerate(cut.instruction.slices):
        if axis < len(whole) and whole[axis] == row and part.stride == 1 and (part.start == 0 or part.limit == row):
            return part.limit - part.start
    return row
