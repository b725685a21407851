"""`roofline whatif`: a profile or program as it is predicted to run after changes."""

from collections.abc import Sequence

from ..analysis.changes import CHANGES
from ..analysis.what_if import what_if
from ..render.what_if import what_if_text
from .options import Parser, chosen_machine, machine_options, output_options
from .output import emit_report
from .reading import read_options

SUMMARY = "Predict a profile or program after changes: the new time of each op and of the step, with bounds."
EXAMPLE = "roofline whatif run.xplane.pb scale batch=x4 dtype fp8"


def parser() -> Parser:
    listed = "\n".join(f"  {usage.ljust(24)}{meaning}" for _, usage, meaning in CHANGES.values())
    best = f"  {'best'.ljust(24)}used alone: combine the changes above that help this program; notes give the effect of each"
    command = Parser("whatif", f"{SUMMARY}\n\nchanges, which combine:\n{listed}\n{best}", EXAMPLE)
    command.add_argument("path", metavar="PATH", help="profile or compiled program")
    command.add_argument("changes", metavar="CHANGE", nargs="+", help="changes to apply; chips and sizes come first, remat last")
    command.add_argument("--top", type=int, default=12, metavar="N", help="ops to list, those that change the most (default 12)")
    read_options(command, files=False)
    machine_options(command)
    output_options(command, page=True)
    return command


def run(words: Sequence[str]) -> int:
    args = parser().parse_args(words)
    machine = chosen_machine(args) if args.chip or args.set else None
    report = what_if(args.path, args.changes, machine)
    emit_report(args, report, lambda page: what_if_text(report, page, args.top))
    return 0
