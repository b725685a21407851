"""Kernels that only change the layout of an array: transposes and copies that move every byte and compute nothing.

A copy that keeps the layout does not count, unless the array was transposed before: the compiler adds it where a buffer is overwritten
while its old value is still needed. The TPU compiler also copies arrays into the order and the tiles that one of its kernels reads best:
such copies count where the author decides on the order, which is that of an argument, of a result, or of a transpose in the program.
"""

from collections.abc import Iterator

from ...cost import NOTHING, less_traffic
from ...resource import HBM, XLU
from ...workload import Avoidable, Facts, Usual
from ..ir.module import Computation, Instruction
from ..ir.shapes import Shape
from .kernels import Kernels
from .layout_words import reordering
from .program_arrays import results_of
from .values import Value

KIND, CLASS = "layout-copies", "layout"
ARGUMENTS = "arguments"  # the group of arguments that are copied for matmuls
_MOVES = ("transpose", "copy")
_ALLOWED = frozenset(
    (*_MOVES, "bitcast", "reshape", "convert", "parameter", "slice", "concatenate", "broadcast", "constant", "tuple", "get-tuple-element")
)
_SMALL = 1 / 16  # of a reordered array: the work for an update of at most that size does not count


def layout_copies(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that only change a layout, those that also update a small part of the array, and copies of their results."""
    found: set[int] = set()
    for index, cost in kernels.costs.items():
        instruction = kernels.computation[index]
        body = kernels.values.body(instruction)
        if instruction.opcode == "copy" and instruction.operands[0] in found:
            yield index, Avoidable(kind=KIND, instead=NOTHING, unneeded=CLASS, usual=Usual.UNLESS_ASKED)
            continue
        parts = body.instructions if body is not None else (instruction,)
        within = body if body is not None else kernels.computation
        moved = max((one for one in parts if changes_order(within, one)), key=lambda one: one.shape.elements, default=None)
        if moved is None or 2 * (reordered := moved.shape.elements) < instruction.shape.elements or cost.unknown:
            continue
        if not _is_authors(kernels, index, within, moved):
            continue
        only_moves = {resource for resource, _ in cost.amounts} - {XLU} == {HBM} and (
            body is None or kernels.values.opcodes(instruction) <= _ALLOWED
        )
        how = reordering(kernels, index, within, moved)
        if only_moves:
            found.add(index)
            argument = _turned_argument(kernels, index) or ""
            facts, group = Facts(reordered=how, argument=argument), ARGUMENTS if argument else ""
            yield index, Avoidable(kind=KIND, instead=NOTHING, facts=facts, unneeded=CLASS, group=group, usual=Usual.UNLESS_ASKED)
        elif body is not None and (updated := _updated_bytes(body, reordered)):
            instead = less_traffic(cost, 2 * (instruction.shape.bytes - updated))
            yield index, Avoidable(kind=KIND, instead=instead, facts={"reordered": how}, unneeded=CLASS, usual=Usual.UNLESS_ASKED)


def _is_authors(kernels: Kernels, index: int, within: Computation, moved: Instruction) -> bool:
    """Whether the author of a program decides on the order that a kernel changes; on other platforms than TPUs all kernels count."""
    instruction = kernels.computation[index]
    if kernels.platform != "tpu" or not kernels.module.is_scheduled:
        return True
    if "transpose" in (moved.op_name.rpartition("/")[2], instruction.op_name.rpartition("/")[2]):
        return True
    if moved.opcode == "copy" and _order(within[moved.operands[0]].shape)[:-1] == _order(moved.shape)[:-1]:
        return False  # other tiles alone
    if kernels.are_in_entry and index in results_of(kernels.computation):
        return True
    sources, _ = kernels.values.sources(Value(kernels.computation, instruction.operands[0]), _sliced)
    return any(source.opcode == "parameter" and source.computation is kernels.module.entry_computation for source in sources)


def _sliced(value: Value) -> Value | None:
    """The array that an instruction takes a slice of."""
    is_slice = value.opcode in ("slice", "dynamic-slice")
    return Value(value.computation, value.instruction.operands[0], value.inside) if is_slice else None


def _turned_argument(kernels: Kernels, index: int) -> str:
    """The name of the argument that a kernel copies for matmuls alone, if the program keeps it as it is; empty for other kernels."""
    users = kernels.users(index)
    if not kernels.are_in_entry or not users or not users <= kernels.products.keys():
        return ""
    made = kernels.values.origin(Value(kernels.computation, index))
    if made.opcode != "parameter" or made.inside:
        return ""
    number = kernels.computation.parameters.index(made.index)
    is_replaced = any(alias.parameter == number for alias in kernels.module.aliases)
    return "" if is_replaced else made.instruction.op_name or f"argument {number}"


def _updated_bytes(body: Computation, reordered: int) -> int:
    """The bytes that a body updates of the array of ``reordered`` elements, if it does nothing else to it; 0 otherwise."""
    updates = [one for one in body if one.opcode == "dynamic-update-slice" and one.shape.elements == reordered]
    large = [one for one in body if one.shape.is_array and one.shape.elements > _SMALL * reordered and one not in updates]
    if any(one.opcode not in _ALLOWED for one in large):
        return 0
    return sum(body[one.operands[1]].shape.bytes for one in updates)


def changes_order(computation: Computation, instruction: Instruction) -> bool:
    """Whether an instruction changes the order of an array's elements in memory."""
    if instruction.opcode != "copy" or not instruction.operands:
        return instruction.opcode in _MOVES
    return _order(computation[instruction.operands[0]].shape) != _order(instruction.shape)


def _order(shape: Shape) -> tuple[object, ...]:
    """The dimensions of an array from major to minor, without those of size 1, and its tiles."""
    return (*(axis for axis in shape.major_to_minor if shape.dims[axis] != 1), shape.layout.tiles if shape.layout is not None else ())
