"""The operation of a kernel with its sizes, for predictions: a product, attention, a collective, or a streaming kernel."""

from collections.abc import Iterable
from math import prod

from ...cost import Cost, plain_number
from ...errors import FormulaError, SourceError
from ...operation import (
    BYTE_TRANSPOSE,
    COMPLEX,
    GATHERED,
    INTERLEAVED,
    Attention,
    Collective,
    Convolution,
    Operation,
    Product,
    Scattered,
    Streamed,
)
from ...resource import HBM
from ..ir.module import Computation, Instruction
from ..ir.shapes import Shape
from ..ir.values import Value
from ..lower.products import DOTS
from ..price.calls.cudnn import BACKWARD_FILTER, BACKWARD_INPUT, FORWARD
from ..price.calls.cudnn import convolution_sizes as called_convolution_sizes
from ..price.calls.fmha import attention_of
from ..price.calls.traffic import Misfit
from ..price.collectives import group_size
from ..price.contractions import convolution_sizes
from ..price.elementwise import ELEMENTWISE
from ..price.types import Site
from .kernels import Kernels
from .kernels import Product as Found

_ACCESSES = """
scatter sort topk gather reduce-window select-and-scatter rng-bit-generator dynamic-slice custom-call fft cholesky
triangular-solve
"""
SCATTER = "scatter"
_IRREGULAR = frozenset(_ACCESSES.split())
_REDUCED = 64  # a reduction to fewer than one element in this many does not stream
NARROW = 8  # bits of elements that are transposed one by one
EIGHT_BITS = "fp8"  # the rate of 8-bit floats
_PARTIAL = ("slice", "dynamic-slice", "gather", "while", "conditional")  # a fusion with one may not need all of a convolution's result
CONVOLUTION, CONVOLUTION_CALLS = "convolution", (*FORWARD, BACKWARD_INPUT, BACKWARD_FILTER)
_EXCHANGES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")


def operation(kernels: Kernels, index: int, cost: Cost) -> Operation | None:
    """The operation of a kernel; ``None`` if only its cost is known."""
    instruction = kernels.computation[index]
    product = kernels.product(index)
    if product is not None:
        return _product(product, cost)
    if (convolution := _convolution(kernels, instruction, cost)) is not None:
        return convolution
    if instruction.opcode == "custom-call":
        return _attention(kernels, instruction)
    if (kind := instruction.opcode.removesuffix("-start")) in _EXCHANGES:
        return _exchange(kernels, instruction, kind, cost)
    if SCATTER in kernels.values.opcodes(instruction):
        return _scattered(instruction)
    if kernels.platform == "gpu" and instruction.opcode == "fusion" and kernels.values.opcodes(instruction) & _IRREGULAR == {"gather"}:
        return Streamed(kind=GATHERED)
    if kernels.platform != "gpu" or not _streams(kernels, instruction):
        return None
    if moved := _transposed_bytes(kernels, instruction):
        return Streamed(kind=BYTE_TRANSPOSE, elements=moved)
    body = kernels.values.body(instruction)
    parts = body or (instruction,)
    kind = "fusion"
    if _interleaves(parts):
        kind = INTERLEAVED
    elif _computes_complex_numbers(parts):
        kind = COMPLEX
    return Streamed(kind=kind, narrowed=_narrowed(instruction, body))


def _scattered(instruction: Instruction) -> Scattered | None:
    """A scatter by the rows of its result."""
    shape = next((leaf for leaf in instruction.shape.leaves if leaf.is_array), None)
    if shape is None or not shape.dims:
        return None
    return Scattered(rows=shape.dims[0], columns=prod(shape.dims[1:]), number=shape.number.name)


def _narrowed(instruction: Instruction, body: Computation | None) -> int:
    """The elements that a kernel converts to 8-bit floats."""
    if not any(part.opcode == "convert" for part in body or (instruction,)):
        return 0
    return sum(shape.elements for shape in instruction.shape.leaves if shape.is_array and shape.number.rate == EIGHT_BITS)


def _transposed_bytes(kernels: Kernels, instruction: Instruction) -> int:
    """The elements that a kernel only transposes, if they have 8 bits: XLA's kernels move those one by one."""
    shape = instruction.shape
    if not shape.is_array or not shape.dims or shape.number.bits != NARROW or len(instruction.operands) != 1:
        return 0
    body = kernels.values.body(instruction)
    parts = [part for part in body if part.opcode not in ("parameter", "bitcast")] if body else [instruction]
    if len(parts) != 1 or parts[0].opcode not in ("copy", "transpose"):
        return 0
    moved, axis = parts[0], parts[0].shape.minor_axis
    before = (body or kernels.computation)[moved.operands[0]].shape
    order = moved.integers("dimensions") if moved.opcode == "transpose" else ()
    return shape.elements if (order[axis] if axis < len(order) else axis) != before.minor_axis else 0


def _streams(kernels: Kernels, instruction: Instruction) -> bool:
    """Whether a kernel does the same to every element, so that its time depends on its traffic alone: no sort, scatter or transform, and
    no reduction to so few elements that most of the chip is idle."""
    opcodes = kernels.values.opcodes(instruction)
    if not opcodes.isdisjoint(_IRREGULAR):
        return False
    if "reduce" not in opcodes:
        return True
    read = sum(shape.elements for operand in instruction.operands for shape in kernels.computation[operand].shape.leaves if shape.is_array)
    return sum(shape.elements for shape in instruction.shape.leaves if shape.is_array) * _REDUCED > read


def _interleaves(parts: Iterable[Instruction]) -> bool:
    """Whether a kernel computes several levels of a scan over pairs, or of its gradient: it pads between elements, or takes every other
    element of arrays of several sizes.
    """
    halves = set()
    for part in parts:
        if part.opcode == "pad" and any(side.interior for side in part.padding):
            return True
        if part.opcode == "slice" and any(side.stride > 1 for side in part.slices):
            halves.add(part.shape.elements)
    return len(halves) > 1


def _computes_complex_numbers(parts: Iterable[Instruction]) -> bool:
    """Whether a kernel computes with complex numbers, other than to move them."""
    computing = (part for part in parts if part.opcode in ELEMENTWISE or part.opcode == "reduce")
    return any(leaf.is_array and leaf.number.name.startswith("complex") for part in computing for leaf in part.shape.leaves)


def _product(factors: Found, cost: Cost) -> Product:
    compute = next((resource.kind for resource, _ in cost.amounts if resource.unit == "matrix"), factors.left.shape.number.rate)
    formats = [side.shape.number.name if side.shape.is_array else compute for side in (factors.left, factors.right, factors.result)]
    return Product(
        m=factors.rows,
        k=factors.depth,
        n=factors.columns,
        batch=factors.batch,
        groups=factors.groups,
        left=formats[0],
        right=formats[1],
        out=formats[2],
        compute=compute,
        widened=sum(
            [side.shape.bytes - _stored(side).bytes for side in (factors.left, factors.right) if side.inside and side.shape.is_array]
        ),
    )


def _stored(side: Value) -> Shape:
    """The shape of an operand as the kernel reads it: before the conversion if the kernel widens it itself (weights in int8)."""
    value, elements = side, side.shape.elements
    while value.inside and value.opcode != "parameter":
        operands = [Value(value.computation, index, value.inside) for index in value.instruction.operands]
        same = [
            operand
            for operand in operands
            if operand.opcode != "broadcast" and operand.shape.is_array and operand.shape.elements == elements
        ]
        if len(same) != 1 or value.opcode in DOTS:
            break
        value = same[0]
    read = value.shape if value.opcode == "parameter" else side.shape
    return read if read.number.bits < side.shape.number.bits else side.shape


def _convolution(kernels: Kernels, instruction: Instruction, cost: Cost) -> Convolution | None:
    """A convolution: alone, as a library call, or the only product of a fusion that needs all of its result."""
    computation, product, alone = kernels.computation, instruction, True
    if body := kernels.values.body(instruction):
        if CONVOLUTION not in kernels.values.opcodes(instruction):
            return None
        inner = [inside for inside in body.instructions if inside.opcode in (CONVOLUTION, *DOTS)]
        if len(inner) != 1 or any(inside.opcode in _PARTIAL for inside in body.instructions):
            return None
        computation, product, alone = body, inner[0], False
    is_call = product.opcode == "custom-call" and product.custom_call_target in CONVOLUTION_CALLS
    if (product.opcode != CONVOLUTION and not is_call) or not product.operands:
        return None
    site = Site(kernels.module, computation, product, kernels.platform)
    number = site.operands[0].shape.number
    compute = next((resource.kind for resource, _ in cost.amounts if resource.unit == "matrix"), number.rate)
    if number.name.startswith("complex"):  # four products for one
        return None
    try:
        batch, features, pairs = (called_convolution_sizes if is_call else convolution_sizes)(site)
    except (Misfit, SourceError, FormulaError, IndexError, ValueError):
        return None
    moved = plain_number(cost.known(HBM)) if alone and HBM not in cost.unknown else None
    groups = product.feature_group_count
    return Convolution(batch=batch, features=features, pairs=pairs, bytes=moved, compute=compute, groups=groups)


def _attention(kernels: Kernels, instruction: Instruction) -> Attention | None:
    site = Site(kernels.module, kernels.computation, instruction, kernels.platform)
    try:
        attention = attention_of(site)
    except (Misfit, SourceError, FormulaError, IndexError):
        return None
    return None if attention is None else attention.by_cudnn(backward="Backward" in instruction.custom_call_target)


def _exchange(kernels: Kernels, instruction: Instruction, kind: str, cost: Cost) -> Collective | None:
    link = next((resource.name for resource, _ in cost.amounts if resource.is_link and resource.measure == "B"), "")
    devices = group_size(Site(kernels.module, kernels.computation, instruction, kernels.platform))
    arrays = [shape for operand in instruction.operands for shape in kernels.computation[operand].shape.leaves if shape.is_array]
    if not link or devices < 2 or not arrays:
        return None
    moved = sum(shape.bytes for shape in arrays) * (devices if kind == "all-gather" else 1)
    return Collective(kind=kind, devices=devices, bytes=moved, link=link)
