"""What may share a kernel with what: the opcodes by the part they play, and the predicates on shapes.

Values here are facts about one instruction; which instructions come together is decided in `grouping`.
"""

from functools import lru_cache
from math import prod
from typing import Literal

from msgspec import Struct

from ...units import parse
from ..ir.module import Computation, Instruction
from ..ir.platforms import Platform
from ..price.elementwise import ELEMENTWISE, TRANSCENDENTALS

NARROW = 8  # bits
VIEWS = frozenset(("reshape", "bitcast"))  # the same elements in the same order: free wherever they stand
MOVES = VIEWS | {"broadcast", "transpose", "slice", "reverse", "pad", "concatenate", "dynamic-slice"}
LOOPS = ELEMENTWISE | MOVES | {"iota", "map", "gather"}
PRODUCTS = frozenset(("dot", "ragged-dot", "scaled-dot", "convolution"))
UPDATES = frozenset(("scatter", "dynamic-update-slice"))
TAKES = frozenset(("slice", "dynamic-slice", "gather"))  # read no more of their first operand than their result holds

# What a product's own loads can do on the way, and its stores: formats, places, copies of one element; elementwise work.
PROLOGUE = frozenset(("convert", "reshape", "bitcast", "transpose", "broadcast", "slice", "dynamic-slice"))
EPILOGUE = ELEMENTWISE | VIEWS | {"transpose"}

Loads = Literal["any", "matrices"]
Stores = Literal["any", "linear", "none"]
Results = Literal["any", "not rows", "one"]


class Rules(Struct, frozen=True, kw_only=True):
    """The choices of a compiler that are not forced by the program.

    ``row_bytes`` is how much of a row a kernel keeps on chip between a reduction and its use, 0 for compilers that always start anew.
    ``loads`` says what a product does to its operands as it reads them: ``any`` conversion, slice, broadcast and permutation, or none
    but taking ``matrices`` in either order. ``stores`` says what it does to its result before it writes it: ``any`` elementwise work
    with two more arrays as large (a residual, a mask), what is ``linear`` up to a clamp (a bias, a residual, a scale, a ReLU, a
    conversion) with one, or ``none``. ``results`` says which kernels store several values: ``any``, those that do not go row by row
    (``not rows``), or none (``one`` each). ``small_bytes`` is up to where even costly work is repeated rather than stored.
    ``most_operands`` bounds operands and results of one kernel, ``most_repeated`` the instructions in it that other kernels compute too.
    ``copies`` is whether operands are copied that a library cannot take as they lie, ``widens`` whether products widen operands of 8 bits,
    ``repeats`` whether equal values stay apart: of a compiled program those that are there twice are meant to be.
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
        """Whether a product can do this to its result."""
        if self.stores == "linear":
            return opcode in EPILOGUE and opcode not in TRANSCENDENTALS and opcode != "transpose"
        return opcode in EPILOGUE and self.stores == "any"

    @property
    def most_extras(self) -> int:
        """How many arrays as large as its result a product's kernel may read in addition."""
        return {"any": 2, "linear": 1, "none": 0}[self.stores]


# XLA:TPU's products load and store through any elementwise work; it leaves a row's reduction and its use apart but keeps what lies
# between in VMEM, which costs main memory as little as one kernel would. XLA:GPU joins those in one Triton kernel of one result; most of
# its products are library calls. XLA:CPU's are too, with no epilogue; all its kernels have one result, and a reduction ends one.
RULES: dict[Platform, Rules] = {
    "tpu": Rules(),
    "gpu": Rules(loads="matrices", stores="linear", results="not rows"),
    "cpu": Rules(row_bytes=0, loads="matrices", stores="none", results="one"),
}


def is_loop(instruction: Instruction) -> bool:
    """Whether each element of the result is computed by itself, from elements of the operands at positions that follow from its own."""
    if instruction.opcode == "constant":
        return not instruction.shape.dims and instruction.shape.is_array
    return instruction.opcode in LOOPS and instruction.shape.is_array


def is_widening(computation: Computation, index: int) -> bool:
    """Whether a value is an array of 8 bits or fewer in a wider format, scaled or not, or what it is scaled by."""
    one = computation[index]
    if one.opcode == "broadcast":
        return not computation[one.operands[0]].shape.dims
    if one.opcode == "multiply":
        return any(computation[operand].opcode == "convert" and is_widening(computation, operand) for operand in one.operands)
    if one.opcode != "convert":
        return False
    narrow = computation[one.operands[0]].shape
    return narrow.is_array and one.shape.is_array and narrow.number.bits <= NARROW < one.shape.number.bits


def is_repeatable(instruction: Instruction) -> bool:
    """Whether it may be computed in several kernels: a loop, but not one that jumps through memory or runs a computation of its own."""
    return is_loop(instruction) and instruction.opcode not in ("map", "gather")


def is_cheap(instruction: Instruction) -> bool:
    """Whether computing it twice is negligible compared with the memory traffic it saves."""
    return is_repeatable(instruction) and instruction.opcode not in TRANSCENDENTALS


def is_fixed(instruction: Instruction) -> bool:
    """Whether it is not part of any other kernel, and takes no other instruction into its own."""
    shape = instruction.shape
    if not all(leaf.is_array and leaf.is_bounded and not leaf.is_dynamic for leaf in shape.leaves) or instruction.control:
        return True
    if instruction.opcode in ("reduce", *UPDATES):
        return False
    return not shape.is_array or not (is_loop(instruction) or instruction.opcode in PRODUCTS or instruction.opcode == "reduce-window")


class Traits(Struct, frozen=True, kw_only=True):
    """What an instruction may do in a kernel, as its opcode and shape decide; `is_loop` and the functions after it."""

    is_loop: bool
    is_repeatable: bool
    is_cheap: bool
    is_fixed: bool


def traits_of(computation: Computation) -> list[Traits]:
    """The traits of each instruction; readers share equal shapes, so that of each opcode and shape one is looked at."""
    known: dict[tuple[str, int, bool], Traits] = {}
    found = []
    for one in computation.instructions:
        key = (one.opcode, id(one.shape), bool(one.control))
        traits = known.get(key)
        if traits is None:
            traits = known[key] = Traits(
                is_loop=is_loop(one), is_repeatable=is_repeatable(one), is_cheap=is_cheap(one), is_fixed=is_fixed(one)
            )
        found.append(traits)
    return found


def reduced_dims(computation: Computation, reduce: Instruction) -> tuple[int, ...]:
    """The dimensions of what a reduction reads."""
    return computation[reduce.operands[0]].shape.dims


def rows_of(computation: Computation, reduce: Instruction) -> int | None:
    """How many rows a reduction of the minor dimensions has; ``None`` when it reduces others."""
    return _minor_rows(reduced_dims(computation, reduce), reduce.dimensions)


@lru_cache(maxsize=1_000)
def _minor_rows(dims: tuple[int, ...], reduced: tuple[int, ...]) -> int | None:
    kept = len(dims) - len(reduced)
    return prod(dims[:kept]) if sorted(reduced) == list(range(kept, len(dims))) else None


def row_bytes(computation: Computation, reduce: Instruction, rows: int) -> float:
    """Bytes of one row of what a reduction reads."""
    arrays = reduce.operands[: len(reduce.operands) // 2]
    return sum(computation[operand].shape.bytes for operand in arrays) / max(1, rows)


@lru_cache(maxsize=1_000)
def major(dims: tuple[int, ...], rows: int) -> int | None:
    """How many major dimensions together count the rows; ``None`` when none do.

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
    """Whether each row of the result needs nothing but the same row of the operands."""
    dims = instruction.shape.dims
    here = major(dims, rows)
    if instruction.opcode in ELEMENTWISE or instruction.opcode in VIEWS:
        return here is not None
    if instruction.opcode == "reduce":
        before = major(reduced_dims(computation, instruction), rows)
        return instruction.shape.is_array and before is not None and all(axis >= before for axis in instruction.dimensions)
    if here is None:
        return False
    if instruction.opcode == "broadcast":
        source = computation[instruction.operands[0]].shape.dims
        count = major(source, rows)
        return count is not None and instruction.dimensions[:count] == tuple(range(count)) and source[:count] == dims[:count]
    return instruction.opcode == "transpose" and instruction.dimensions[:here] == tuple(range(here))


def turns(computation: Computation, transpose: Instruction) -> bool:
    """Whether a transposition of a dot's result is the same dot with its operands swapped."""
    product = computation[transpose.operands[0]]
    if product.opcode != "dot" or transpose.opcode != "transpose":
        return False
    numbers = product.dot
    batch = len(numbers.lhs_batch)
    rows = computation[product.operands[0]].shape.rank - batch - len(numbers.lhs_contracting)
    rank = product.shape.rank
    return transpose.dimensions == (*range(batch), *range(batch + rows, rank), *range(batch, batch + rows))


def folds(computation: Computation, product: Instruction, operand: int) -> bool:
    """Whether a dot can take a transposed operand as it lies in memory: batches, rows and columns each stay together.

    That is what a matrix library reads: matrices in either order, one after the other. The transposition is the operand's own.
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
