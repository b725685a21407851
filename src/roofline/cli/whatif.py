"""`roofline whatif`: a profile or program as it is predicted to run after changes."""

from collections.abc import Sequence

from ..analysis.changes import CHANGES
from ..analysis.what_if import what_if
from ..render.what_if import what_if_text
from .options import Parser, chosen_machine, limit_options, machine_options, output_options
from .output import emit_report

SUMMARY = "A profile or program as it is predicted to run after changes: each op's new time, and the step's, with bounds."
EXAMPLE = "roofline whatif run.xplane.pb scale batch=x4 dtype fp8"


def parser() -> Parser:
    listed = "\n".join(f"  {usage.ljust(24)}{meaning}" for _, usage, meaning in CHANGES.values())
    best = f"  {'best'.ljust(24)}alone: every change above that helps this program, each by itself in a note, and all together"
    made = Parser("whatif", f"{SUMMARY}\n\nchanges, which combine:\n{listed}\n{best}", EXAMPLE)
    made.add_argument("path", metavar="PATH", help="profile or compiled program")
    made.add_argument("changes", metavar="CHANGE", nargs="+", help="words of changes, one after the other")
    made.add_argument("--top", type=int, default=12, metavar="N", help="ops to list, those that change the most (default 12)")
    limit_options(made)
    machine_options(made)
    output_options(made, page=True)
    return made


def run(words: Sequence[str]) -> int:
    args = parser().parse_args(words)
    machine = chosen_machine(args) if args.chip or args.set else None
    report = what_if(args.path, args.changes, machine)
    emit_report(args, report, lambda page: what_if_text(report, page, args.top))
    return 0
