"""`roofline validate jax`: our counts compared with XLA's cost analysis of a JAX function, instruction by instruction."""

from collections.abc import Sequence

from msgspec.structs import replace

from ...dtypes import dtype
from ...errors import MissingExtra, UsageError
from ...jax import require_jax
from ...jax.comparison import (
    Count,
    FormatComparison,
    InstructionCounts,
    XlaComparison,
    compare_function,
    compare_product,
    hand_counts,
)
from ...render.export import Row
from ...render.tables import Paper, table
from ...render.text import notes_text
from ...units import plain
from ..functions import load_function, shape
from ..options import Parser, output_options
from ..output import emit

SIZE = 2048
FORMATS = ("bf16", "fp8")


def parser() -> Parser:
    command = Parser(
        "validate jax",
        "Compare our FLOP and byte counts with XLA's cost_analysis() of a JAX function, instruction by instruction.\n"
        "Without a function: a square matrix product, also counted by hand. Compiles but does not run it. Without JAX: hand counts only.",
        "roofline validate jax\n  roofline validate jax mymodule:layer --args 512x4096 4096x4096",
    )
    command.add_argument("function", nargs="?", metavar="MODULE:FUNCTION", help="function of arrays; the current folder is searched first")
    command.add_argument(
        "--args", nargs="+", default=[], metavar="SHAPE", help="shapes of its arguments: 512x4096, or f32[512,4096] with a number format"
    )
    command.add_argument("--size", type=int, default=SIZE, metavar="N", help=f"size of the square matrix product (default {SIZE})")
    command.add_argument(
        "--dtype",
        action="append",
        metavar="FORMAT",
        help=f"number formats to try, of arguments without one (default {' and '.join(FORMATS)})",
    )
    output_options(command, figure=False)
    return command


def run(words: Sequence[str]) -> int:
    args = parser().parse_args(words)
    if args.size < 1:
        raise UsageError(f"validate jax: --size {args.size} is not a positive whole number")
    formats = [dtype(name) for name in args.dtype or FORMATS]
    notes: list[str] = []
    if args.function:
        if not args.args:
            raise UsageError("validate jax: give the shapes of the function's arguments: --args 512x4096 4096x4096")
        shapes = [shape(text) for text in args.args]
        require_jax()
        function = load_function("validate jax", args.function)
        own = list(dict.fromkeys(number for number, _ in shapes))
        if "" not in own:  # no argument is left that takes the formats to try
            found = [replace(compare_function(function, args.function, shapes, dtype(own[0])), format=" and ".join(own))]
        else:
            found = [compare_function(function, args.function, shapes, number) for number in formats]
    elif args.args:
        raise UsageError("validate jax: --args are the shapes of a function's arguments; give the function too")
    else:
        try:
            found = [compare_product(args.size, number) for number in formats]
        except MissingExtra as missing:
            notes = [f"hand counts only: {missing}"]
            found = [FormatComparison(format=one.name, backend="", counts=hand_counts(args.size, one), lines=()) for one in formats]
    comparison = XlaComparison(function=args.function or f"matmul {args.size}", comparisons=tuple(found), notes=tuple(notes))
    emit(args, lambda page: _text(comparison, page), comparison, lambda: _rows(comparison))
    return 0


def _rows(found: XlaComparison) -> list[Row]:
    return [
        {"format": one.format, "way": count.way, "flops": count.flops, "bytes": count.bytes, "intensity": count.intensity}
        for one in found.comparisons
        for count in one.counts
    ]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _text(found: XlaComparison, page: Paper) -> str:
    parts = [f"{page.paint(found.function, 'bold')}: FLOP and bytes by each method"]
    reasons = list(dict.fromkeys(line.why for one in found.comparisons for line in one.lines if line.why))
    for one in found.comparisons:
        parts.append(table([one.format, "FLOP", "bytes", "FLOP/B"], [_cells(count) for count in one.counts], page))
        if one.lines:
            headers = ["  instruction", "opcode", "FLOP", "XLA", "bytes", "XLA", "note"]
            parts.append(table(headers, [_line_cells(line, reasons) for line in one.lines], page, left=2))
    notes = [f"{number}. {reason}" for number, reason in enumerate(reasons, start=1)] + list(found.notes)
    if any(one.lines for one in found.comparisons):
        notes.append(
            f"compiled for {found.comparisons[0].backend}: the compiler may widen operands and split the matmul into several "
            "instructions, each reading and writing memory; in real kernels the accumulator stays on chip"
        )
    return "\n\n".join(part for part in (*parts, notes_text(notes, page)) if part)


def _cells(count: Count) -> list[str]:
    return [count.way, _number(count.flops), _number(count.bytes), plain(count.intensity) if count.intensity else "–"]


def _line_cells(line: InstructionCounts, reasons: list[str]) -> list[str]:
    amounts = [_number(amount) for amount in (line.flops, line.xla_flops, line.bytes, line.xla_bytes)]
    return [f"  {line.name}", line.opcode, *amounts, str(reasons.index(line.why) + 1) if line.why else ""]
