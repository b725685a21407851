"""Theory compared with XLA's cost analysis of a JAX function, instruction by instruction. Nothing is executed."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..cost import NOTHING, Amount, Cost
from ..dtypes import DType, dtype
from ..errors import UsageError
from ..formulas import matmul
from ..hlo.price.program import executed
from ..hlo.read import parse
from . import require_jax
from .xla_costs import instruction_costs

# The accumulators of the usual hand count: 4 bytes for 16-bit operands, 2 bytes for 8-bit ones.
ACCUMULATORS = {16: "fp32", 8: "bf16"}
JAX_FORMATS = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp32": "float32",
    "fp64": "float64",
    "fp8": "float8_e4m3fn",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
}
Shape = tuple[str, tuple[int, ...]]  # a number format, or none, and sizes


class Count(Struct, frozen=True, kw_only=True):
    """One way of counting one program: FLOP and bytes; ``None`` if there is no answer."""

    way: str
    flops: float | None
    bytes: float | None

    @property
    def intensity(self) -> float | None:
        return self.flops / self.bytes if self.flops is not None and self.bytes else None


class InstructionCounts(Struct, frozen=True, kw_only=True):
    """One instruction of the compiled program, counted by roofline and by XLA, and why they differ."""

    name: str
    opcode: str
    flops: float | None
    bytes: float | None
    xla_flops: float | None
    xla_bytes: float | None
    why: str = ""


class FormatComparison(Struct, frozen=True, kw_only=True):
    """One number format: every count, and the instructions."""

    format: str
    backend: str
    counts: tuple[Count, ...]
    lines: tuple[InstructionCounts, ...]


class XlaComparison(Struct, frozen=True, kw_only=True):
    """The whole comparison as JSON."""

    schema: str = "roofline.jax-comparison/1"
    function: str
    comparisons: tuple[FormatComparison, ...]
    notes: tuple[str, ...]


def compare_product(size: int, number: DType) -> FormatComparison:
    """A square matrix product: by hand and by XLA."""
    product = _product(require_jax())
    return _compared(product, "matmul", [("", (size, size))] * 2, number, hand_counts(size, number))


def compare_function(function: Callable[..., Any], name: str, shapes: Sequence[Shape], number: DType) -> FormatComparison:
    """A function of arrays of these shapes; ``number`` is the default number format."""
    return _compared(function, name, shapes, number, ())


def hand_counts(size: int, number: DType) -> tuple[Count, ...]:
    """The hand counts of a square product: operands and output, without and with an accumulator."""
    accumulator = ACCUMULATORS.get(number.bits)
    bare = matmul(size, size, size, dtype=number.name)
    counts = [_count("by hand: operands and output", bare.cost)]
    if accumulator:
        taxed = matmul(size, size, size, dtype=number.name, accumulator=accumulator)
        counts.append(_count(f"by hand: with {accumulator} accumulator", taxed.cost))
    return tuple(counts)


def _compared(function: Callable[..., Any], name: str, shapes: Sequence[Shape], number: DType, theory: Sequence[Count]) -> FormatComparison:
    """Lowers and compiles a function for the backend here, and counts it every way."""
    jax = require_jax()
    arguments = [jax.ShapeDtypeStruct(sizes, jax_format(jax, dtype(fixed) if fixed else number)) for fixed, sizes in shapes]
    try:
        lowered = jax.jit(function).lower(*arguments)
        compiled = lowered.compile()
    except Exception as error:  # whatever the user's function or the compiler raises
        raise UsageError(f"validate jax: {name} in {number}: {str(error).splitlines()[0]}") from None
    backend = jax.default_backend()
    module = parse(compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto(), "compiled program")
    ours = {found.site.instruction.name: found.op.cost for found in executed(module)}
    total: Cost = sum(ours.values(), NOTHING)
    before, after = _dictionary(lowered.cost_analysis()), _dictionary(compiled.cost_analysis())
    counts = (
        *theory,
        Count(way="cost_analysis() before compiling", flops=before.get("flops"), bytes=before.get("bytes accessed")),
        Count(way=f"cost_analysis() compiled for {backend}", flops=after.get("flops"), bytes=after.get("bytes accessed")),
        _count(f"roofline, compiled for {backend}", total),
    )
    lines = []
    for said in instruction_costs(compiled):
        cost = ours.get(said.name)
        flops, moved = (None, None) if cost is None else (_float(cost.flops), _float(cost.bytes()))
        line = InstructionCounts(name=said.name, opcode=said.opcode, flops=flops, bytes=moved, xla_flops=said.flops, xla_bytes=said.bytes)
        lines.append(replace(line, why=_why(line, cost is not None)))
    return FormatComparison(format=number.name, backend=backend, counts=counts, lines=tuple(lines))


def _count(way: str, cost: Cost) -> Count:
    return Count(way=way, flops=_float(cost.flops), bytes=_float(cost.bytes()))


def _float(amount: Amount | None) -> float | None:
    return None if amount is None else float(amount)


def _dictionary(said: Any) -> dict[str, float]:
    """A cost analysis as a dictionary; older versions return a list of one."""
    return dict(said[0] if isinstance(said, (list, tuple)) else said or {})


def _product(jax: Any) -> Callable[..., Any]:
    """A matrix product whose result has the operands' format."""

    def matmul(a: Any, b: Any) -> Any:
        return jax.lax.dot_general(a, b, (((1,), (0,)), ((), ())), preferred_element_type=a.dtype)

    return matmul


def format_name(number: DType) -> str:
    """What JAX calls a number format."""
    return JAX_FORMATS.get(number.name, number.name)


def jax_format(jax: Any, number: DType) -> Any:
    """The JAX dtype of a number format."""
    name = format_name(number)
    if not hasattr(jax.numpy, name):
        raise UsageError(f"JAX has no number format {number}; try bf16, fp16, fp32 or fp8")
    return getattr(jax.numpy, name)


def _why(line: InstructionCounts, priced: bool) -> str:
    """The conventions that explain a difference, if there is one."""
    if not priced:
        return "roofline: no cost, it moves no data"
    if line.flops is None or line.bytes is None:
        return "roofline: unknown cost; XLA counts 0"
    reasons = []
    if (line.xla_flops or 0) > line.flops:
        reasons.append("XLA counts 1 FLOP per element for conversions, comparisons and selects; roofline counts 0")
    elif (line.xla_flops or 0) < line.flops:
        reasons.append("XLA does not count inside library calls, and counts a loop body once")
    if (line.xla_bytes or 0) > line.bytes:
        reasons.append("XLA counts whole operands where only part is accessed, or an operand twice")
    elif (line.xla_bytes or 0) < line.bytes:
        reasons.append("XLA leaves out operands or results that roofline counts")
    return "; ".join(reasons)
