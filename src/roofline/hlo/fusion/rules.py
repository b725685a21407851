"""Fusion rules: which opcodes can be fused in which role, and predicates on shapes.

The rules here are about one instruction; `grouping` decides which instructions are fused with each other.
"""

from functools import lru_cache
from math import prod
from typing import Literal

from msgspec import Struct

from ...units import parse
from ..ir.axes import index_map
from ..ir.module import Computation, Instruction
from ..ir.opcodes import ELEMENTWISE, MOVES, PRODUCTS, TRANSCENDENTALS, UPDATES, VIEWS
from ..ir.platforms import Platform

NARROW = 8  # bits
LOOPS = ELEMENTWISE | MOVES | {"iota", "map", "gather"}
TAKES = frozenset(("slice", "dynamic-slice", "gather"))  # read at most as many elements of their first operand as their result has

# Opcodes that a product can apply to its operands as it loads them, and to its result before it stores it.
PROLOGUE = frozenset(("convert", "reshape", "bitcast", "transpose", "broadcast", "slice", "dynamic-slice"))
EPILOGUE = ELEMENTWISE | VIEWS | {"transpose"}

Loads = Literal["any", "matrices"]
Stores = Literal["any", "linear", "none"]
Results = Literal["any", "not rows", "one"]


class Rules(Struct, frozen=True, kw_only=True):
    """The choices of a compiler that are not forced by the program.

    ``row_bytes`` is the largest row that a kernel keeps on chip between a reduction and its use; 0 if the use is always another kernel.
    ``loads`` says what a product can apply to its operands as it loads them: ``any`` conversion, slice, broadcast and permutation, or only
    a transposition (``matrices``). ``stores`` says what it can apply to its result: ``any`` elementwise work with up to two more arrays of
    the result's size (a residual, a mask), ``linear`` work up to a clamp (a bias, a residual, a scale, a ReLU, a conversion) with one such
    array, or ``none``. ``results`` says which kernels may have several results: ``any``, all but those that reduce row by row
    (``not rows``), or none (``one``). Values of up to ``small_bytes`` are repeated rather than stored even if they are costly.
    ``most_operands`` limits the operands and results of a kernel, ``most_repeated`` its instructions that other kernels compute too.
    ``copies`` is true if operands are copied whose layout a library cannot read, ``widens`` if products widen 8-bit operands, ``repeats``
    if equal values are not merged: a compiled program contains them on purpose.
    """

    row_bytes: float = parse("64 KiB", "B")
    loads: Loads = "any"
    stores: Stores = "any"
    results: Results = "any"
    small_bytes: float = parse("64 KiB", "B")
    most_operands: int = 96  # as XLA:GPU, whose kernels' arguments must fit in constant memory
    most_repeated: int = 256
    copies: bool = False
    widens: bool = False
    repeats: bool = False

    def store(self, opcode: str) -> bool:
        """Whether a product can apply an opcode to its result."""
        if self.stores == "linear":
            return opcode in EPILOGUE and opcode not in TRANSCENDENTALS and opcode != "transpose"
        return opcode in EPILOGUE and self.stores == "any"

    @property
    def most_extras(self) -> int:
        """How many more arrays of its result's size a product's kernel may read."""
        return {"any": 2, "linear": 1, "none": 0}[self.stores]


# XLA:TPU fuses any elementwise work into products; a row's reduction and its use are two kernels, but the values between them stay in VMEM,
# so main memory traffic is that of one kernel. XLA:GPU makes one Triton kernel with one result of the two; most of its products are library
# calls. So are those of XLA:CPU, without an epilogue; all its kernels have one result, and a reduction is the last step of a kernel.
RULES: dict[Platform, Rules] = {
    "tpu": Rules(),
    "gpu": Rules(loads="matrices", stores="linear", results="not rows"),
    "cpu": Rules(row_bytes=0, loads="matrices", stores="none", results="one"),
}


def is_loop(instruction: Instruction) -> bool:
    """Whether each element of the result is computed alone, from elements of the operands at positions that depend on its own."""
    if instruction.opcode == "constant":
        return not instruction.shape.dims and instruction.shape.is_array
    return instruction.opcode in LOOPS and instruction.shape.is_array


def is_widening(computation: Computation, index: int) -> bool:
    """Whether a value is an array of at most 8 bits converted to a wider format, scaled or not, or the broadcast scale itself."""
    instruction = computation[index]
    if instruction.opcode == "broadcast":
        return not computation[instruction.operands[0]].shape.dims
    if instruction.opcode == "multiply":
        return any(computation[operand].opcode == "convert" and is_widening(computation, operand) for operand in instruction.operands)
    if instruction.opcode != "convert":
        return False
    narrow = computation[instruction.operands[0]].shape
    return narrow.is_array and instruction.shape.is_array and narrow.number.bits <= NARROW < instruction.shape.number.bits


def is_repeatable(instruction: Instruction) -> bool:
    """Whether it may be computed in several kernels: any loop except gathers and maps."""
    return is_loop(instruction) and instruction.opcode not in ("map", "gather")


def is_cheap(instruction: Instruction) -> bool:
    """Whether computing it twice is negligible compared with the memory traffic it saves."""
    return is_repeatable(instruction) and instruction.opcode not in TRANSCENDENTALS


def is_fixed(instruction: Instruction) -> bool:
    """Whether it is never fused with any other instruction."""
    shape = instruction.shape
    if not all(leaf.is_array and leaf.is_bounded and not leaf.is_dynamic for leaf in shape.leaves) or instruction.control:
        return True
    if instruction.opcode in ("reduce", *UPDATES):
        return False
    return not shape.is_array or not (is_loop(instruction) or instruction.opcode in PRODUCTS or instruction.opcode == "reduce-window")


class Traits(Struct, frozen=True, kw_only=True):
    """The results of `is_loop`, `is_repeatable`, `is_cheap` and `is_fixed` for an instruction."""

    is_loop: bool
    is_repeatable: bool
    is_cheap: bool
    is_fixed: bool


def traits_of(computation: Computation) -> list[Traits]:
    """The traits of each instruction, found once per opcode and shape object, which instructions share."""
    known: dict[tuple[str, int, bool], Traits] = {}
    by_instruction = []
    for instruction in computation.instructions:
        key = (instruction.opcode, id(instruction.shape), bool(instruction.control))
        traits = known.get(key)
        if traits is None:
            traits = known[key] = Traits(
                is_loop=is_loop(instruction),
                is_repeatable=is_repeatable(instruction),
                is_cheap=is_cheap(instruction),
                is_fixed=is_fixed(instruction),
            )
        by_instruction.append(traits)
    return by_instruction


def reduced_dims(computation: Computation, reduce: Instruction) -> tuple[int, ...]:
    """The dimensions of a reduction's operand."""
    return computation[reduce.operands[0]].shape.dims


def rows_of(computation: Computation, reduce: Instruction) -> int | None:
    """How many rows a reduction over the minor dimensions has; ``None`` if it reduces others."""
    return _minor_rows(reduced_dims(computation, reduce), reduce.dimensions)


@lru_cache(maxsize=1_000)
def _minor_rows(dims: tuple[int, ...], reduced: tuple[int, ...]) -> int | None:
    kept = len(dims) - len(reduced)
    return prod(dims[:kept]) if sorted(reduced) == list(range(kept, len(dims))) else None


def row_bytes(computation: Computation, reduce: Instruction, rows: int) -> float:
    """Bytes of one row of a reduction's operands."""
    arrays = reduce.operands[: len(reduce.operands) // 2]
    return sum(computation[operand].shape.bytes for operand in arrays) / max(1, rows)


@lru_cache(maxsize=1_000)
def major(dims: tuple[int, ...], rows: int) -> int | None:
    """How many of the major dimensions have ``rows`` elements together; ``None`` if no number of them does.

    >>> major((8, 1024, 2048), 8192), major((8192, 1), 8192), major((2048,), 8192)
    (2, 1, None)
    """
    size = 1
    for count, dim in enumerate((*dims, 0)):
        if size == rows:
            return count
        size *= dim
    return None


def keeps_rows(computation: Computation, instruction: Instruction, rows: int) -> bool:
    """Whether each row of the result depends only on the same row of the operands."""
    here = major(instruction.shape.dims, rows) if instruction.shape.is_array else None
    if here is None or instruction.opcode in ELEMENTWISE or instruction.opcode in VIEWS:
        return here is not None
    operands = computation.operands(instruction)
    mapping = index_map(instruction, operands) if instruction.opcode in ("broadcast", "reduce", "transpose") else None
    before = major(operands[0].shape.dims, rows) if mapping is not None else None
    return mapping is not None and before is not None and mapping.operands[0][:before] == mapping.results[0][:here]


def swaps_operands(computation: Computation, transpose: Instruction) -> bool:
    """Whether a transposition of a dot's result is the same dot with its operands swapped."""
    product = computation[transpose.operands[0]]
    mapping = index_map(product, computation.operands(product)) if product.opcode == "dot" and transpose.opcode == "transpose" else None
    if mapping is None:
        return False
    left, right, axes = *mapping.operands[:2], mapping.results[0]
    swapped = sorted(range(len(axes)), key=lambda axis: (axes[axis] not in right, axes[axis] not in left))
    return transpose.dimensions == tuple(swapped)


def folds(computation: Computation, product: Instruction, operand: int) -> bool:
    """Whether a dot can read a transposed operand without a copy: its batch, contracted and free dimensions each stay contiguous.

    A matrix library reads a batch of matrices, each possibly transposed. ``operand`` is the transpose instruction.
    """
    if product.opcode != "dot" or computation[operand].opcode != "transpose":
        return False
    order = computation[operand].dimensions
    numbers = product.dot
    left = product.operands[0] == operand
    batch, contracted = (numbers.lhs_batch, numbers.lhs_contracting) if left else (numbers.rhs_batch, numbers.rhs_contracting)
    if any(axis >= len(order) for axis in (*batch, *contracted)):
        return False
    free = tuple(axis for axis in range(len(order)) if axis not in batch and axis not in contracted)
    places = [tuple(order[axis] for axis in axes) for axes in (batch, contracted, free)]
    together = all(part == tuple(range(part[0], part[0] + len(part))) for part in places if part)
    return together and len(order) - 1 not in places[0]
