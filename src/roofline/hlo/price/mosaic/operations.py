"""What one execution of an operation of a Mosaic kernel costs: arithmetic on vectors, by unit and number format.

The conventions are those of HLO's elementwise opcodes: an addition, multiplication or division of an element is 1 FLOP, whole numbers too;
comparisons, selections, conversions and moves are 0; moves across lanes are work of the cross-lane unit. Numbers that are not in
vectors are computed by the scalar core and not counted.
"""

import re
from math import prod

from ....cost import NOTHING, Cost
from ....dtypes import DType, dtype, one_pass_note, passes_note, wider
from ....errors import FormulaError
from ....ops.elementwise import FUNCTIONS, MLIR
from ....resource import TRANSCENDENTAL, XLU, vector
from ...ir.malformed import excerpt
from ...ir.platforms import Platform
from ..contractions import unit_at
from .code import Kernel, Misread, Operation, Type

_WHOLE_NUMBERS = """
addi subi muli divsi divui remsi remui andi ori xori shli shrsi shrui
"""
_COMPUTING = {
    **MLIR,
    **{f"arith.{name}": FUNCTIONS["add"] for name in _WHOLE_NUMBERS.split()},
    "vector.fma": FUNCTIONS["fma"],
    "tpu.reciprocal": FUNCTIONS["rsqrt"],  # on the unit of the transcendental functions
}
_ROUNDING = """
absf absi ceil floor round roundeven trunc copysign ctpop ctlz cttz isnan isinf
"""
_FREE_MATH = frozenset(f"math.{name}" for name in _ROUNDING.split())
# Operations of the dialect tpu that compute nothing: moves, masks, layouts, semaphores, random bits, marks for the profiler.
_MOVES = """
assume_layout assume_multiple bitcast broadcast_in_sublanes concatenate core_id create_mask create_subelement_mask delay device_id
dynamic_gather dynamic_rotate erase_memref_layout ext extf fetch_and_add_sync fptosi fptoui gather get_barrier_semaphore internal_scratch
iota iteration_bound load log log_buffer mask_cast memref_bitcast memref_reshape memref_slice memref_squeeze pack_elementwise
pack_subelements pack_vmsk prng_random_bits prng_seed_32 prng_set_seed_32 reduce_index reinterpret_cast relayout repeat reshape roll_vectors
rotate scan_count sem_alloc sem_barrier sem_read sem_signal sem_wait shuffled_load shuffled_store sitofp sort
stochastic_convert stochastic_convert_elementwise store strided_load strided_store
subcore_id sublane_shuffle trace_start trace_stop trace_value transpose
trunc truncf uitofp unpack_elementwise unpack_subelements unroll_vectors vector_load vector_load_idx vector_store vector_store_idx wait_dma
wait_dma2 wait_indirect_dma weird yield
"""
_FREE = frozenset(f"tpu.{name}" for name in _MOVES.split()) | {"cf.assert"}
_FREE_DIALECTS = ("arith", "memref", "vector", "func", "scf", "llvm")  # without the operations above and those below
_TRANSPOSITIONS = ("tpu.transpose", "vector.transpose")
_ROLLS = ("tpu.rotate", "tpu.dynamic_rotate")
_REDUCTIONS = ("vector.multi_reduction", "vector.reduction", "tpu.all_reduce", "tpu.scan")
_SUMS = ("add", "mul", "sum")
_KIND = re.compile(r"<(\w+)>")
_LISTS = re.compile(r"\[([\d, ]*)\]")
_MAP = re.compile(r"\(([^()]*)\) -> \(([^()]*)\)")


def number(element: str) -> DType:
    """The number format of an element type, as MLIR spells it: ``i8``, ``f8E4M3FN``."""
    try:
        return dtype({"i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64"}.get(element, element))
    except FormulaError:
        raise Misread(f"numbers of the format {excerpt(element)}") from None


def arithmetic(kernel: Kernel, operation: Operation, platform: Platform) -> tuple[Cost, tuple[str, ...]]:
    """The arithmetic of one execution of an operation without regions, and notes; `Misread` for one that is not known."""
    name = operation.name
    kind = kernel.type(operation.results[0]) if operation.results else Type("?")
    if name == "tpu.matmul":
        return _product(kernel, operation, platform, kind)
    if name in ("vector.contract", "vector.outerproduct"):
        return _product(kernel, operation, platform, kind)
    if name in _REDUCTIONS:
        return _reduction(kernel, operation, kind), ()
    if name == "tpu.vector_store" and operation.attributes.get("add") is True:
        stored = kernel.type(operation.operands[0])
        return Cost.of({vector(number(stored.element)): stored.elements}), ()
    if name in (*_TRANSPOSITIONS, *_ROLLS) and kind.is_vector and kind.element != "i1":
        return _across_lanes(operation, kind), ()
    if not kind.is_vector or kind.element == "i1":
        if name in _FREE or name in _FREE_MATH or name in _COMPUTING or name.startswith(_FREE_DIALECTS):
            return NOTHING, ()
    elif (facts := _COMPUTING.get(name)) is not None:
        per_element = Cost.of({vector(number(kind.element)): facts.flops, TRANSCENDENTAL: facts.transcendentals})
        return kind.elements * per_element, ()
    elif name in _FREE or name in _FREE_MATH or name.startswith(_FREE_DIALECTS):
        return NOTHING, ()
    raise Misread(f"the kernel runs {name}, whose cost is unknown")


def _across_lanes(operation: Operation, kind: Type) -> Cost:
    """The bytes of an array whose elements change lanes: in a transposition that moves its last dimension, or a roll along that.

    A roll takes the cross-lane unit longer than a transposition (docs/machines.md), so that these bytes give a lower bound of its time.
    """
    last = len(kind.shape) - 1
    order = operation.numbers("permutation")
    stays = operation.number("dimension") != last if operation.name in _ROLLS else not order or order[-1] == last
    return NOTHING if stays or kind.elements < 2 else Cost.of({XLU: kind.elements * number(kind.element).bits // 8})


def _product(kernel: Kernel, operation: Operation, platform: Platform, result: Type) -> tuple[Cost, tuple[str, ...]]:
    """2 · elements of the result · contracted elements."""
    if len(operation.operands) < 2:
        raise Misread("a product without two operands")
    left, right = (kernel.type(operand) for operand in operation.operands[:2])
    wide = wider(number(left.element), number(right.element))
    unit = unit_at(wide, platform, "highest" if "fp32" in operation.word("precision") else "default")
    flops = 2 * result.elements * prod(left.shape[axis] for axis in _contracted(operation, left, right))
    notes = passes_note(unit.kind) or one_pass_note(wide, unit.kind)
    return Cost.of({unit: flops}), (notes,) if notes else ()


def _contracted(operation: Operation, left: Type, right: Type) -> tuple[int, ...]:
    """The axes of the left operand that a product sums over."""
    if operation.name == "vector.outerproduct":
        return ()
    if operation.name == "vector.contract":
        maps = [_MAP.search(str(item)) for item in _items(operation, "indexing_maps")]
        if len(maps) != 3 or None in maps:
            raise Misread("a contraction without its indexing maps")
        first, _, last = ([word.strip() for word in index_map[2].split(",")] for index_map in maps if index_map is not None)
        axes = tuple(axis for axis, name in enumerate(first) if name not in last)
    else:
        lists = _LISTS.search(operation.word("dimension_numbers"))
        if lists is not None:
            axes = tuple(int(axis) for axis in lists[1].split(",") if axis.strip())
        else:
            axes = (0 if operation.attributes.get("transpose_lhs") is True else len(left.shape) - 1,)
    if not axes or any(not 0 <= axis < len(left.shape) for axis in axes):
        raise Misread("a product that sums over no axis of its operand")
    return axes


def _items(operation: Operation, name: str) -> list[object]:
    value = operation.attributes.get(name)
    return value if isinstance(value, list) else []


def _reduction(kernel: Kernel, operation: Operation, result: Type) -> Cost:
    """(elements − results) additions; a maximum or minimum is not FLOP."""
    source = kernel.type(operation.operands[0]) if operation.operands else Type("?")
    kinds = _KIND.search(operation.word("kind"))
    if kinds is None or kinds[1] not in _SUMS or source.element == "i1":
        return NOTHING
    if operation.name in ("tpu.all_reduce", "tpu.scan"):  # its result has the shape of its operand
        axis = operation.number("dim")
        length = source.shape[axis] if axis is not None and 0 <= axis < len(source.shape) else max(source.shape, default=1)
        outputs = source.elements // max(1, length)
    else:
        outputs = result.elements
    return Cost.of({vector(number(source.element)): max(0, source.elements - outputs)})
