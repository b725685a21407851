"""`roofline validate torch`: our FLOP count compared with PyTorch's own counters and others, with the reason for each difference."""

from collections.abc import Sequence

from ...dtypes import dtype
from ...errors import MissingExtra, UsageError
from ...render.export import Row
from ...render.tables import Paper, table
from ...render.text import notes_text
from ...torch import require_torch
from ...torch.comparison import BLOCK, Count, TorchComparison, compare_block, compare_function, hand_counts
from ..functions import load_function, shape
from ..options import Parser, output_options
from ..output import emit

FORMAT = "bf16"


def parser() -> Parser:
    command = Parser(
        "validate torch",
        "Compare our FLOP count of a PyTorch module or function with FlopCounterMode, torch.profiler, and fvcore, thop, calflops and\n"
        "DeepSpeed where they are installed, with the reason for each difference.\n"
        "Without a function: one transformer block, also counted by hand. Runs on tensors without data. Without PyTorch: hand counts only.",
        "roofline validate torch\n  roofline validate torch mymodule:model --args 8x1024x4096 --backward",
    )
    command.add_argument(
        "function", nargs="?", metavar="MODULE:FUNCTION", help="module or function of tensors; the current folder is searched first"
    )
    command.add_argument(
        "--args", nargs="+", default=[], metavar="SHAPE", help="shapes of its arguments: 8x1024x4096, or int64[8,1024] with a number format"
    )
    command.add_argument("--dtype", default=FORMAT, metavar="FORMAT", help=f"number format of arguments and weights (default {FORMAT})")
    command.add_argument("--backward", action="store_true", help="count the backward pass too, where a counter can")
    output_options(command, figure=False)
    return command


def run(words: Sequence[str]) -> int:
    args = parser().parse_args(words)
    number = dtype(args.dtype)
    if args.function:
        if not args.args:
            raise UsageError("validate torch: give the shapes of the function's arguments: --args 8x1024x4096")
        shapes = [shape(text) for text in args.args]
        require_torch()
        comparison = compare_function(load_function("validate torch", args.function), args.function, shapes, number, args.backward)
    elif args.args:
        raise UsageError("validate torch: --args are the shapes of a function's arguments; give the function too")
    else:
        try:
            comparison = compare_block(number, args.backward)
        except MissingExtra as missing:
            notes = (f"hand counts only: {missing}",)
            comparison = TorchComparison(function=BLOCK, format=number.name, flops=None, counts=hand_counts(), notes=notes)
    emit(args, lambda page: _text(comparison, page), comparison, lambda: _rows(comparison))
    return 0


def _rows(found: TorchComparison) -> list[Row]:
    return [{"way": one.way, "flops": one.flops, "ratio": _ratio(one, found), "why": one.why} for one in found.counts]


def _ratio(one: Count, found: TorchComparison) -> float | None:
    return one.flops / found.flops if one.flops is not None and found.flops else None


def _text(found: TorchComparison, page: Paper) -> str:
    reasons = list(dict.fromkeys(one.why for one in found.counts if one.why))
    cells = []
    for one in found.counts:
        ratio = _ratio(one, found)
        flops = "–" if one.flops is None else f"{one.flops:,.0f}"
        cells.append([one.way, flops, f"{ratio:.3f}" if ratio else "–", str(reasons.index(one.why) + 1) if one.why else ""])
    title = f"{page.paint(found.function, 'bold')}, {found.format}: FLOP by each counter"
    notes = [f"{number}. {reason}" for number, reason in enumerate(reasons, start=1)] + list(found.notes)
    return "\n\n".join((title, table(["counter", "FLOP", "of ours", "note"], cells, page), notes_text(notes, page)))
