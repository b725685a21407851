"""`roofline jax-compare`: theory beside what XLA's cost analysis says of a JAX function, instruction by instruction."""

import importlib
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..cost import NOTHING, Amount, Cost
from ..dtypes import DType, dtype
from ..errors import MissingExtra, UsageError
from ..formulas import matmul
from ..render.export import Row
from ..render.tables import Paper, table
from ..render.text import notes_text
from ..units import plain
from .options import Parser, output_options
from .output import emit

SCHEMA = "roofline.jax-comparison/1"
SIZE = 2048
FORMATS = ("bf16", "fp8")
# The accumulators of the usual hand count: 4 bytes for 16-bit operands, 2 bytes for 8-bit ones.
ACCUMULATORS = {16: "fp32", 8: "bf16"}
_SHAPE = re.compile(r"(?:(?P<format>\w+)\[)?(?P<sizes>[\dx, ]*)\]?")


class Count(Struct, frozen=True, kw_only=True):
    """One way of counting one program: FLOP and bytes; ``None`` where there is no answer."""

    way: str
    flops: float | None
    bytes: float | None

    @property
    def intensity(self) -> float | None:
        return self.flops / self.bytes if self.flops is not None and self.bytes else None


class Line(Struct, frozen=True, kw_only=True):
    """One instruction of the compiled program, counted by us and by XLA, and why they differ."""

    name: str
    opcode: str
    flops: float | None
    bytes: float | None
    xla_flops: float | None
    xla_bytes: float | None
    why: str = ""


class Comparison(Struct, frozen=True, kw_only=True):
    """One number format: every count, and the instructions."""

    format: str
    backend: str
    counts: tuple[Count, ...]
    lines: tuple[Line, ...]


class Answer(Struct, frozen=True, kw_only=True):
    """The whole comparison as JSON."""

    schema: str = SCHEMA
    function: str
    comparisons: tuple[Comparison, ...]
    notes: tuple[str, ...]


def parser() -> Parser:
    made = Parser(
        "jax-compare",
        "Compare our FLOP and byte counts with XLA's cost_analysis() of a JAX function, instruction by instruction.\n"
        "Without a function: a square matrix product, also counted by hand. Compiles but does not run it. Without JAX: hand counts only.",
        "roofline jax-compare\n  roofline jax-compare mymodule:layer --args 512x4096 4096x4096",
    )
    made.add_argument("function", nargs="?", metavar="MODULE:FUNCTION", help="function of arrays; the current folder is searched first")
    made.add_argument(
        "--args", nargs="+", default=[], metavar="SHAPE", help="shapes of its arguments: 512x4096, or f32[512,4096] with a number format"
    )
    made.add_argument("--size", type=int, default=SIZE, metavar="N", help=f"size of the square matrix product (default {SIZE})")
    made.add_argument("--dtype", action="append", metavar="FORMAT", help=f"number formats to try (default {' and '.join(FORMATS)})")
    output_options(made, figure=False)
    return made


def run(words: Sequence[str]) -> int:
    args = parser().parse_args(words)
    if args.size < 1:
        raise UsageError(f"jax-compare: --size {args.size} is not a positive whole number")
    formats = [dtype(name) for name in args.dtype or FORMATS]
    if args.function and not args.args:
        raise UsageError("jax-compare: give the shapes of the function's arguments: --args 512x4096 4096x4096")
    shapes = [_shape(text) for text in args.args] or [("", (args.size, args.size)), ("", (args.size, args.size))]
    comparisons, notes = [], []
    for number in formats:
        theory = [] if args.function else _theory(args.size, number)
        try:
            comparisons.append(_compare(args.function, shapes, number, theory))
        except MissingExtra as missing:
            if args.function:
                raise
            notes = [f"hand counts only: {missing}"]
            comparisons.append(Comparison(format=number.name, backend="", counts=tuple(theory), lines=()))
    answer = Answer(function=args.function or f"matmul {args.size}", comparisons=tuple(comparisons), notes=tuple(notes))
    emit(args, lambda page: _text(answer, page), answer, lambda: _rows(answer))
    return 0


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    """A number format, or none, and sizes."""
    match = _SHAPE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"--args {text!r}: not a shape; write it like 512x4096 or f32[512,4096]")
    return match["format"] or "", tuple(int(size) for size in re.findall(r"\d+", match["sizes"]))


def _theory(size: int, number: DType) -> list[Count]:
    """The hand counts of a square product: operands and output, and the accumulator besides."""
    accumulator = ACCUMULATORS.get(number.bits)
    plain_count, taxed = matmul(size, size, size, dtype=number.name), matmul(size, size, size, dtype=number.name, accumulator=accumulator)
    counts = [_count("by hand: operands and output", plain_count.cost.flops, plain_count.cost.bytes())]
    if accumulator:
        counts.append(_count(f"by hand: with {accumulator} accumulator", taxed.cost.flops, taxed.cost.bytes()))
    return counts


def _count(way: str, flops: Amount | None, moved: Amount | None) -> Count:
    return Count(way=way, flops=None if flops is None else float(flops), bytes=None if moved is None else float(moved))


def _compare(function: str | None, shapes: Sequence[tuple[str, tuple[int, ...]]], number: DType, theory: list[Count]) -> Comparison:
    """Lower and compile a function for the backend at hand and count it every way."""
    from ..hlo.price.program import executed
    from ..hlo.read import parse
    from ..jax import require_jax
    from ..jax.xla_costs import instruction_costs

    jax = require_jax()
    called = _load(function) if function else _product(jax)
    arguments = [jax.ShapeDtypeStruct(sizes, _jax_format(jax, dtype(fixed) if fixed else number)) for fixed, sizes in shapes]
    try:
        lowered = jax.jit(called).lower(*arguments)
        compiled = lowered.compile()
    except Exception as error:  # whatever the user's function or the compiler raises
        raise UsageError(f"jax-compare: {function or 'matmul'} in {number}: {str(error).splitlines()[0]}") from None
    backend = jax.default_backend()
    module = parse(compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto(), "compiled program")
    ours = {found.site.instruction.name: found.op for found in executed(module)}
    total: Cost = sum((op.cost for op in ours.values()), NOTHING)
    before, after = _dictionary(lowered.cost_analysis()), _dictionary(compiled.cost_analysis())
    counts = [
        *theory,
        Count(way="cost_analysis() before compiling", flops=before.get("flops"), bytes=before.get("bytes accessed")),
        Count(way=f"cost_analysis() compiled for {backend}", flops=after.get("flops"), bytes=after.get("bytes accessed")),
        _count(f"roofline, compiled for {backend}", total.flops, total.bytes()),
    ]
    lines = []
    for said in instruction_costs(compiled):
        op = ours.get(said.name)
        flops, moved = (None, None) if op is None else (_float(op.cost.flops), _float(op.cost.bytes()))
        line = Line(name=said.name, opcode=said.opcode, flops=flops, bytes=moved, xla_flops=said.flops, xla_bytes=said.bytes)
        lines.append(replace(line, why=_why(line, op is not None)))
    return Comparison(format=number.name, backend=backend, counts=tuple(counts), lines=tuple(lines))


def _float(amount: Amount | None) -> float | None:
    return None if amount is None else float(amount)


def _dictionary(said: Any) -> dict[str, float]:
    """Cost analyses come as a dictionary, in older versions as a list of one."""
    return dict(said[0] if isinstance(said, (list, tuple)) else said or {})


def _product(jax: Any) -> Callable[..., Any]:
    """A matrix product whose result has the operands' format, so that nothing is widened unasked."""

    def matmul(a: Any, b: Any) -> Any:
        return jax.lax.dot_general(a, b, (((1,), (0,)), ((), ())), preferred_element_type=a.dtype)

    return matmul


def _jax_format(jax: Any, number: DType) -> Any:
    names = {
        "bf16": "bfloat16",
        "fp16": "float16",
        "fp32": "float32",
        "fp64": "float64",
        "fp8": "float8_e4m3fn",
        "fp8_e4m3": "float8_e4m3fn",
        "fp8_e5m2": "float8_e5m2",
    }
    name = names.get(number.name, number.name)
    if not hasattr(jax.numpy, name):
        raise UsageError(f"jax-compare: JAX has no number format {number}; try bf16, fp16, fp32 or fp8")
    return getattr(jax.numpy, name)


def _load(name: str) -> Callable[..., Any]:
    """The function that MODULE:FUNCTION names, from the current folder or the installed packages."""
    module, colon, function = name.partition(":")
    if not colon:
        raise UsageError(f"jax-compare: {name!r} is not a function name; write MODULE:FUNCTION")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"jax-compare: {name!r} cannot be loaded: {error}") from None
    finally:
        sys.path.pop(0)
    if not callable(found):
        raise UsageError(f"jax-compare: {name!r} is not a function")
    return found  # type: ignore[no-any-return]


def _why(line: Line, priced: bool) -> str:
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


def _rows(answer: Answer) -> list[Row]:
    return [
        {"format": one.format, "way": count.way, "flops": count.flops, "bytes": count.bytes, "intensity": count.intensity}
        for one in answer.comparisons
        for count in one.counts
    ]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _text(answer: Answer, page: Paper) -> str:
    parts = [f"{page.paint(answer.function, 'bold')}: FLOP and bytes by each method"]
    reasons = list(dict.fromkeys(line.why for one in answer.comparisons for line in one.lines if line.why))
    for one in answer.comparisons:
        parts.append(table([one.format, "FLOP", "bytes", "FLOP/B"], [_cells(count) for count in one.counts], page))
        if one.lines:
            headers = ["  instruction", "opcode", "FLOP", "XLA", "bytes", "XLA", "note"]
            parts.append(table(headers, [_line_cells(line, reasons) for line in one.lines], page, left=2))
    notes = [f"{number}. {reason}" for number, reason in enumerate(reasons, start=1)] + list(answer.notes)
    if any(one.lines for one in answer.comparisons):
        notes.append(
            f"compiled for {answer.comparisons[0].backend}: the compiler may widen operands and split the product into several "
            "instructions, each reading and writing memory; in real kernels the accumulator stays on chip"
        )
    return "\n\n".join(part for part in (*parts, notes_text(notes, page)) if part)


def _cells(count: Count) -> list[str]:
    return [count.way, _number(count.flops), _number(count.bytes), plain(count.intensity) if count.intensity else "–"]


def _line_cells(line: Line, reasons: list[str]) -> list[str]:
    amounts = [_number(amount) for amount in (line.flops, line.xla_flops, line.bytes, line.xla_bytes)]
    return [f"  {line.name}", line.opcode, *amounts, str(reasons.index(line.why) + 1) if line.why else ""]
