"""`roofline compare`: compare two reports op by op."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from ..analysis import analyze
from ..comparison import Comparison, Delta, Totals, compare
from ..render.export import Row
from ..render.op_table import efficiency_cell
from ..render.tables import Cell, Paper, facts, table
from ..render.text import notes_text
from ..report import Report
from ..sources.files import all_of
from ..sources.report_json import stored_report
from ..units import percent, show
from .options import Parser, at_least, chosen_machine, is_page, machine_options, names_machine, output_options
from .output import draw, emit, write_page
from .reading import host_options, read_input


def parser() -> Parser:
    made = Parser(
        "compare",
        "Compare two reports op by op: what got faster, what got slower, what is new.\n"
        "Each is a JSON report of roofline, or any file or folder that analyze reads (analysed for --chip).",
        "roofline compare before.json after.json",
    )
    made.add_argument("before", metavar="A", help="the report before")
    made.add_argument("after", metavar="B", help="the report after")
    made.add_argument("--top", type=at_least(0), default=20, metavar="N", help="ops to show in the table (default 20)")
    host_options(made)
    machine_options(made)
    output_options(made, page=True)
    return made


def run(words: Sequence[str]) -> int:
    args = parser().parse_args(words)

    def report(name: str) -> Report:
        # A report keeps its machine, unless another is asked for.
        if not names_machine(args) and (kept := stored_report(name)) is not None:
            return kept
        recording = read_input(args, [name], lambda: chosen_machine(args))
        return analyze(recording, chosen_machine(args, recording.devices))

    before, after = report(args.before), report(args.after)
    found = compare(before, after, (args.before, args.after))
    if args.output and is_page(args.output):
        from ..render.page.report_page import comparison_page

        write_page(args, comparison_page(before, after, written=(_written(args, args.before), _written(args, args.after))))
    elif args.output:
        from ..render.plot import change_bars

        draw(args, change_bars(found, theme=args.theme))
    emit(args, lambda page: _text(found, args.top, page), found, lambda: [_row(delta) for delta in found.deltas])
    return 0


def _written(args: argparse.Namespace, name: str) -> bytes | None:
    """The bytes of a report that is kept as it was written, so that a page holds those and no others."""
    path = Path(name)
    kept = not names_machine(args) and path.is_file() and stored_report(name) is not None
    return all_of(path) if kept else None


def _row(delta: Delta) -> Row:
    return {
        "name": delta.name,
        "module": delta.module,
        "category": delta.category,
        "matched": delta.matched,
        "before_s": delta.before.time_s,
        "after_s": delta.after.time_s,
        "change_s": delta.change_s,
        "share": delta.share,
        "efficiency_before": delta.before.efficiency,
        "efficiency_after": delta.after.efficiency,
        "bound_before": delta.before.bound,
        "bound_after": delta.after.bound,
    }


def _text(found: Comparison, top: int, page: Paper) -> str:
    speed = f"{found.speedup:.3g}x as fast" if found.speedup else "not measured on both sides"
    total = facts(
        [
            ("before", _side(found.before)),
            ("after", _side(found.after)),
            ("change", f"{_signed(found.change_s)}: {speed}"),
        ],
        page,
    )
    rows: list[list[str | Cell]] = [
        [
            delta.name,
            delta.matched.replace("module", "program"),
            show(delta.before.time_s, "s"),
            show(delta.after.time_s, "s"),
            Cell(_signed(delta.change_s), _colour(delta.change_s)),
            percent(abs(delta.share)) if delta.share is not None else "–",
            efficiency_cell(delta.before.efficiency),
            efficiency_cell(delta.after.efficiency),
            _turned(delta.before.bound, delta.after.bound),
        ]
        for delta in found.deltas[:top]
    ]
    headers = ["op", "matched by", "before", "after", "change", "share", "eff. before", "eff. after", "bound"]
    more = f"\n… and {len(found.deltas) - top:,} more; show them with --top" if len(found.deltas) > top else ""
    head = " compared with ".join(page.paint(name, "bold") for name in found.files)
    return "\n\n".join(
        part for part in (head, total, table(headers, rows, page, left=2) + more, notes_text(list(found.notes), page)) if part
    )


def _side(total: Totals) -> str:
    return f"{show(total.time_s, 's')}, roofline efficiency {percent(total.efficiency)}, {total.ops:,} ops"


def _signed(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return f"{'−' if seconds < 0 else '+'}{show(abs(seconds), 's')}" if seconds else "0 s"


def _colour(seconds: float | None) -> str:
    return "" if not seconds else "green" if seconds < 0 else "red"


def _turned(before: str | None, after: str | None) -> str:
    return before or after or "–" if before == after or not (before and after) else f"{before} → {after}"
