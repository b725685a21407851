"""`roofline check`: check a profile, program or function against a budget."""

import argparse
import os
from collections.abc import Callable, Sequence
from functools import partial

from msgspec import to_builtins

from ..analysis import analyze
from ..analysis.budgets import check, read_conditions
from ..analysis.throughput import with_throughput
from ..checking import Check
from ..checking.baselines import baseline_of
from ..comparison.promises import Kept, promises_kept
from ..dtypes import dtype
from ..errors import UsageError
from ..integrations.functions import FRAMEWORKS, report_of_shapes
from ..machines.detection import DEFAULT_CHIP
from ..render.budgets import check_text, checks_text
from ..render.comparison import promises_text
from ..render.export import Row
from ..render.tables import Paper
from ..report import Report
from ..sources.baseline_json import write_baseline
from ..sources.budget_toml import read_budget
from ..sources.remote import is_remote
from ..sources.report_json import stored_report
from ..sources.samples import is_sample
from .functions import load_function, shape
from .options import (
    BROKEN,
    CHIP_VARIABLE,
    NOT_KNOWN,
    Parser,
    chosen_machine,
    chosen_price,
    chosen_throughput,
    is_input,
    machine_options,
    names_machine,
    output_options,
    throughput_options,
)
from .options.slice_options import COMPILATION, MAKE_IT_FIT, compilation_options, record_function, refuse_compilation
from .output import emit, write_message
from .reading import opened, read_options

FITS = "no out-of-memory"  # a condition of every function that is compiled


def parser() -> Parser:
    command = Parser(
        "check",
        "Check a profile, program or function against a budget: conditions that must all hold. Exit status 0 if they do, 3 if one is\n"
        "broken (one line each), 2 if one cannot be decided (no measured times, no baseline).\n"
        "INPUT is whatever analyze reads, or a JAX or PyTorch function, which is not run and needs no device. For a slice of TPUs (--chip\n"
        "v6e:4x4) a JAX function is compiled, as by analyze; status 3 also if it does not fit.",
        "roofline check run.xplane.pb --require 'step < 30 ms' --require 'no above-roof'\n"
        "  roofline check mymodel:layer --args 512x4096 4096x4096 --chip h100 --budget budgets.toml --update\n"
        "  roofline check train.py:plan --chip v6e:4x4 --require 'step < 800 ms' --require 'peak memory < 30 GB'\n"
        "  roofline check program.hlo --require 'hbm of layer*/attn <= 1.1x baseline' --baseline baseline.json",
    )
    command.add_argument("input", metavar="INPUT", help="profile, trace, program, table or report; or MODULE:FUNCTION with --args")
    command.add_argument("--budget", metavar="FILE", help='TOML file with require = ["step < 30 ms", …] and optionally baseline = "FILE"')
    command.add_argument(
        "--require", action="append", default=[], metavar="CONDITION", help="a condition: 'peak memory < 70 GB'; may be repeated"
    )
    compared = "baseline or earlier report to compare with, as in 'flops == baseline' and 'time +5%%' (default: that of --budget)"
    command.add_argument("--baseline", metavar="FILE", help=compared)
    command.add_argument("--update", action="store_true", help="write the baseline from this input, then check")
    function = command.add_argument_group("functions")
    function.add_argument("--args", nargs="+", default=[], metavar="SHAPE", help="shapes of its arguments: 512x4096, or f32[512,4096]")
    function.add_argument("--dtype", default="bf16", metavar="FORMAT", help="number format of arguments without one (default bf16)")
    function.add_argument("--framework", choices=FRAMEWORKS, help="framework of the function (default: the one that its module imports)")
    compilation_options(command, [value for value in COMPILATION if value.name != MAKE_IT_FIT], function)
    throughput_options(command)
    read_options(command)
    machine_options(command)
    output_options(command, figure=False)
    return command


def run(words: Sequence[str]) -> int:
    args = parser().parse_args(words)
    texts, file = _budget(args)
    texts += [FITS] if _is_function(args.input) and _is_slice(args) else []
    conditions = read_conditions(texts)
    report, on_chip = _analysed(args)
    if args.update and file:
        write_baseline(file, baseline_of(report, conditions))
        write_message(f"wrote {file}")
    if file and not os.path.exists(file):
        if needing := [one.text for one in conditions if one.of_baseline]:
            raise UsageError(f"condition {needing[0]!r} needs the baseline {file}, which does not exist; write it with --update")
        file = None
    found = check(report, texts, baseline=file, on_chip=on_chip)
    promises = _promises(report, file)

    def text(page: Paper) -> str:
        return "\n\n".join(filter(None, [checks_text(found.checks), promises_text(promises)]))

    value = found if promises is None else {**to_builtins(found), "promises": promises}
    emit(args, text, value, lambda: [_row(one) for one in found.checks])
    return BROKEN if found.broken else NOT_KNOWN if found.not_known else 0


def _promises(report: Report, file: str | None) -> Kept | None:
    """What the findings of an earlier report promised, where the baseline is one, and what arrived."""
    earlier = stored_report(file) if file else None
    return promises_kept(earlier, report, (file or "", ", ".join(report.input.files))) if earlier else None


def _row(one: Check) -> Row:
    return {
        "condition": one.condition,
        "holds": one.holds,
        "found": one.found,
        "allowed": one.allowed,
        "unit": one.unit,
        "baseline": one.baseline,
        "message": check_text(one),
    }


def _budget(args: argparse.Namespace) -> tuple[list[str], str | None]:
    """The conditions of the file and of the options, and the baseline's file."""
    texts, file = list(args.require), args.baseline
    if args.budget:
        kept = read_budget(args.budget)
        texts, file = [*kept.conditions, *texts], file or str(kept.baseline)
    if not texts and not args.update:
        raise UsageError("check: no conditions; give --require 'step < 30 ms' or --budget FILE")
    if args.update and not file:
        raise UsageError("check: --update: name the file to write: --baseline FILE")
    if args.update and file and any(is_input(file, word) for word in (args.input, args.budget) if word):
        raise UsageError(f"check: --update: {file} is also an input; write the baseline to another file")
    return texts, file


def _analysed(args: argparse.Namespace) -> tuple[Report, Callable[[str], Report] | None]:
    """The report on the input, and for a function, how to get its report for another chip."""
    if _is_function(args.input):
        return _function(args)
    if args.args:
        raise UsageError("check: --args are the shapes of a function's arguments; give MODULE:FUNCTION")
    refuse_compilation(args, "check")
    return opened(args, [args.input]).report, None


def _is_function(name: str) -> bool:
    return ":" in name and not (os.path.exists(name) or is_remote(name) or is_sample(name))


def _function(args: argparse.Namespace) -> tuple[Report, Callable[[str], Report]]:
    if _is_slice(args):
        on = partial(_compiled, args)
        return on(args.chip), on
    refuse_compilation(args, "check")
    shapes, number = [shape(text) for text in args.args], dtype(args.dtype)
    machine = chosen_machine(args)
    function = load_function("check", args.input)
    on = report_of_shapes(args.input, function, shapes, number, args.framework)
    if not names_machine(args) and not os.environ.get(CHIP_VARIABLE):
        write_message(f"analyzed for {DEFAULT_CHIP}; choose another with --chip")
    return with_throughput(on(machine), chosen_throughput(args), chosen_price(args)), on


def _is_slice(args: argparse.Namespace) -> bool:
    """Whether functions are compiled for the chip, a slice of TPUs."""
    chip = args.chip or os.environ.get(CHIP_VARIABLE) or ""
    if ":" not in chip and "-" not in chip:
        return False
    from ..jax.tpu.slices import is_slice  # takes 50 ms to import

    return is_slice(chip)


def _compiled(args: argparse.Namespace, chip: str | None) -> Report:
    """The report on a function that is compiled for a slice."""
    recording, _, place = record_function(argparse.Namespace(**{**vars(args), "chip": chip}), args.input)
    return analyze(recording, place.machine, per_step=chosen_throughput(args), price=chosen_price(args))
