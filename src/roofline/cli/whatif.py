"""`roofline whatif`: a profile or program as it is predicted to run after changes."""

import argparse
from collections.abc import Sequence
from tempfile import TemporaryDirectory

from msgspec.structs import replace

from ..analysis.changes import CHANGES
from ..analysis.what_if import what_if
from ..errors import UsageError
from ..render.what_if import what_if_text
from ..report import Report
from .options import Parser, chosen_machine, machine_options, output_options
from .options.slice_options import COMPILATION, MAKE_IT_FIT, functions_of, record_function, slice_options
from .output import emit_report
from .reading import read_options

SUMMARY = "Predict a profile or program after changes: the new time of each op and of the step, with bounds."
EXAMPLE = "roofline whatif run.xplane.pb scale batch=x4 dtype fp8"


def parser() -> Parser:
    listed = "\n".join(f"  {usage.ljust(24)}{meaning}" for _, usage, meaning in CHANGES.values())
    best = f"  {'best'.ljust(24)}used alone: combine the changes above that help this program; notes give the effect of each"
    command = Parser("whatif", f"{SUMMARY}\n\nchanges, which combine:\n{listed}\n{best}", EXAMPLE)
    command.add_argument("path", metavar="PATH", help="profile or compiled program, or MODULE.py:FUNCTION for a slice of TPUs")
    command.add_argument("changes", metavar="CHANGE", nargs="+", help="changes to apply; chips and sizes come first, remat last")
    command.add_argument("--top", type=int, default=12, metavar="N", help="ops to list, those that change the most (default 12)")
    read_options(command, files=False)
    slice_options(command, [value for value in COMPILATION if value.name not in ("save", MAKE_IT_FIT)])
    machine_options(command)
    output_options(command, page=True)
    return command


def run(words: Sequence[str]) -> int:
    args = parser().parse_args(words)
    if functions_of(args, [args.path]):
        report = _of_function(args)
    else:
        report = what_if(args.path, args.changes, chosen_machine(args) if args.chip or args.set else None)
    emit_report(args, report, lambda page: what_if_text(report, page, args.top))
    return 0


def _of_function(args: argparse.Namespace) -> Report:
    """The report on a function that is compiled for a slice, after the changes."""
    with TemporaryDirectory(prefix="roofline-") as folder:
        _, is_refused, place = record_function(argparse.Namespace(**vars(args), save=folder), args.path)
        if is_refused:
            raise UsageError(f"{args.path}: it does not fit {place.title}; roofline analyze says what would make it fit")
        report = what_if(folder, args.changes, place.machine)
    return replace(report, input=replace(report.input, files=(args.path,)))
