"""`roofline validate`: acceptance checks of a profile, a report or a function."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from ..analysis.validation import validate_report
from ..analysis.validation.acceptance import Validation
from ..analysis.validation.blocks import validate_blocks
from ..blocks.results import read_blocks
from ..comparison.promises import Kept, read_promises, summed_promises
from ..errors import UsageError
from ..render.comparison import promise_sum_text
from ..render.export import Row
from ..render.validation import validation_text
from ..sources.files import all_of
from .functions import load_function, shape
from .options import Parser, chosen_machine, machine_options, names_machine, output_options
from .output import emit
from .reading import opened, read_options

FAILED = 3


def parser() -> Parser:
    command = Parser(
        "validate",
        "Check that counts, peaks and measured times of a program agree: five acceptance checks of a profile, a report, an op table or a\n"
        "JAX function. Each reports what it expected, what it found, and which input is wrong when they differ: wrong bytes or FLOP,\n"
        "the peak of another unit or format, missing communication, times from the wrong clock. A function is run here, also with a\n"
        "doubled batch, to see whether its time follows the bound. Of block sizes that roofline blocks --measure wrote as JSON, the first\n"
        f"choice, the order and the intervals are checked. Exit status {FAILED} when a check fails.",
        "roofline validate run/host.xplane.pb\n"
        "  roofline validate report.json\n"
        "  roofline validate mymodule:layer --args 512x4096 4096x4096",
    )
    command.add_argument(
        "--promises", metavar="FILE", help="sum up what findings promised and what arrived, kept by roofline compare --record"
    )
    command.add_argument(
        "path", nargs="*", metavar="PATH|MODULE:FUNCTION", help="profile, report, op table, measured block sizes, or a function of arrays"
    )
    command.add_argument(
        "--args", nargs="+", default=[], metavar="SHAPE", help="shapes of a function's arguments: 512x4096 or f32[512,4096]"
    )
    command.add_argument(
        "--batch",
        type=int,
        nargs="+",
        default=[0],
        metavar="N",
        help="arguments whose first dimension is the batch (default: 0, the first)",
    )
    machine_options(command)
    read_options(command, limits=False)
    output_options(command, figure=False)
    return command


def run(words: Sequence[str]) -> int:
    args = parser().parse_args(words)
    if args.promises:
        return _promises(args)
    if not args.path:
        raise UsageError("validate: give a profile, report, op table or function, or --promises FILE")
    found = _function(args) if args.args else _recorded(args)
    emit(args, lambda page: validation_text(found, page), found, lambda: _rows(found))
    return 0 if found.holds else FAILED


def _promises(args: argparse.Namespace) -> int:
    """The promises of a file, summed up."""
    if args.path:
        raise UsageError(f"validate: --promises {args.promises}: nothing else is checked; leave {args.path[0]} out")
    kept = read_promises(all_of(Path(args.promises)), args.promises)
    summed = summed_promises(kept)
    value = {"sum": summed, "pairs": kept}
    emit(args, lambda page: promise_sum_text(summed, kept), value, lambda: [_promise_row(one) for one in kept])
    return 0


def _promise_row(one: Kept) -> Row:
    return {
        "before": one.files[0],
        "after": one.files[1],
        "gone": ", ".join(finding.kind for finding in one.gone),
        "before_s": one.before_s,
        "promised_s": one.promised_s,
        "low_s": one.low_s,
        "high_s": one.high_s,
        "after_s": one.after_s,
        "error": one.error,
        "inside": one.holds,
    }


def _recorded(args: argparse.Namespace) -> Validation:
    """The checks of a profile, a table or a saved report, which keeps its machine unless another is named, or of measured block sizes."""
    path = Path(args.path[0])
    if path.suffix == ".json" and path.is_file() and (blocks := read_blocks(path.read_bytes(), str(path))):
        return validate_blocks(blocks, str(path))
    return validate_report(opened(args, args.path).report)


def _function(args: argparse.Namespace) -> Validation:
    from ..jax.validation import validate_function  # only where a function is run

    if len(args.path) != 1:
        raise UsageError("validate: --args are the shapes of one function's arguments")
    function = load_function("validate", args.path[0])
    machine = chosen_machine(args) if names_machine(args) else None
    return validate_function(function, args.path[0], [shape(text) for text in args.args], args.batch, machine)


def _rows(found: Validation) -> list[Row]:
    return [
        {
            "check": one.name,
            "holds": one.holds,
            "expected": one.expected,
            "saw": one.saw,
            "wrong": ", ".join(dict.fromkeys(problem.input for problem in one.problems)),
            "problems": "; ".join(problem.message for problem in one.problems),
        }
        for one in found.checks
    ]
