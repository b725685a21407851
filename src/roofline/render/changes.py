"""Comparisons as text, what both reports have, then op by op, the largest change first; and as the value that is written as JSON."""

from collections.abc import Sequence

from msgspec import to_builtins

from ..checking import Check
from ..comparison import TIME, Comparison, Delta, Figure, Side
from ..report_changes import ReportChanges
from ..units import percent, plain, show
from .op_table import efficiency_cell
from .tables import Cell, Paper, facts, table
from .text import notes_text

TOP = 20
_OF = {"step": "per step", "run": "by the run's wall clock", "ops": "by op time"}
_TIMED = ["op", "matched by", "before", "after", "change", "share", "eff. before", "eff. after", "bound"]
_UNTIMED = ["op", "matched by", "min. before", "min. after", "change", "share", "work", "hbm", "launches", "bound"]


def comparison_with_changes(found: Comparison, changes: ReportChanges, checks: Sequence[Check] = ()) -> dict[str, object]:
    """What ``roofline compare --json`` writes: a comparison op by op, what changed in all, and the conditions it was held to."""
    return {**to_builtins(found), "changes": changes, "checks": checks}


def changes_text(found: Comparison, paper: Paper, top: int = TOP) -> str:
    """A comparison for a terminal or a pipe."""
    head = " compared with ".join(paper.paint(name, "bold") for name in found.files)
    headers, rows = _rows(found, top)
    more = f"\n… and {len(found.deltas) - top:,} more; show them with --top" if len(found.deltas) > top else ""
    parts = [
        head,
        facts([("change", _verdict(found))], paper),
        table(["", "before", "after", "change"], [_figure(one) for one in found.figures], paper),
        table(headers, rows, paper, left=2) + more,
        notes_text(list(found.notes), paper),
    ]
    return "\n\n".join(part for part in parts if part)


def _verdict(found: Comparison) -> str:
    """The change in one line: of the time, or of the minimum time where nothing was timed on both sides."""
    if found.basis == TIME:
        speed = f"{found.speedup:.3g}x as fast {_OF[found.speedup_of or 'ops']}" if found.speedup else "not measured on both sides"
        return f"{_signed(found.change_s)}: {speed}" if found.change_s is not None else speed
    before, after = found.before.floor_s, found.after.floor_s
    ratio = f" ({before / after:.3g}x as fast at the roofline)" if before is not None and after else ""
    return f"{_signed(found.floor_change_s)} of minimum time{ratio}; no measured times on both sides"


def _figure(one: Figure) -> list[str | Cell]:
    change = one.change
    shown = [_amount(one.before, one.unit), _amount(one.after, one.unit)]
    if not change:
        return [one.quantity, *shown, "same"]
    sign = "−" if change < 0 else "+"
    better = (change > 0) == one.quantity.endswith("/s")  # more tokens a second are better, more of anything else is worse
    part = f" ({sign}{percent(abs(change) / one.before)})" if one.before else ""
    return [one.quantity, *shown, Cell(f"{sign}{_amount(abs(change), one.unit)}{part}", "green" if better else "red")]


def _amount(amount: float, unit: str) -> str:
    return show(amount, unit) if unit else plain(amount)


def _rows(found: Comparison, top: int) -> tuple[list[str], list[list[str | Cell]]]:
    """The columns and rows of the ops that changed most."""
    if found.basis == TIME:
        return _TIMED, [_timed(delta) for delta in found.deltas[:top]]
    return _UNTIMED, [_untimed(delta) for delta in found.deltas[:top]]


def _timed(delta: Delta) -> list[str | Cell]:
    return [
        *_named(delta),
        show(delta.before.time_s, "s"),
        show(delta.after.time_s, "s"),
        *_changed(delta.change_s, delta.share),
        efficiency_cell(delta.before.efficiency),
        efficiency_cell(delta.after.efficiency),
        _turned(delta.before.bound, delta.after.bound),
    ]


def _untimed(delta: Delta) -> list[str | Cell]:
    before, after = delta.before, delta.after
    return [
        *_named(delta),
        _of(before, show(before.floor_s, "s")),
        _of(after, show(after.floor_s, "s")),
        *_changed(delta.floor_change_s, delta.share),
        _turned(_of(before, show(before.flops, "FLOP")), _of(after, show(after.flops, "FLOP"))),
        _turned(_of(before, show(before.bytes.get("hbm", 0), "B")), _of(after, show(after.bytes.get("hbm", 0), "B"))),
        _turned(_of(before, plain(before.launches)), _of(after, plain(after.launches))),
        _turned(before.bound, after.bound),
    ]


def _named(delta: Delta) -> Sequence[str]:
    return delta.label or delta.name, delta.matched.replace("module", "program")


def _of(side: Side, said: str) -> str:
    """What is said of a side; nothing where it has no ops."""
    return said if side.ops else "–"


def _changed(seconds: float | None, share: float | None) -> tuple[Cell, str]:
    return Cell(_signed(seconds), _colour(seconds)), percent(abs(share)) if share is not None else "–"


def _signed(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return f"{'−' if seconds < 0 else '+'}{show(abs(seconds), 's')}" if seconds else "0 s"


def _colour(seconds: float | None) -> str:
    return "" if not seconds else "green" if seconds < 0 else "red"


def _turned(before: str | None, after: str | None) -> str:
    return before or after or "–" if before == after or not (before and after) else f"{before} → {after}"
