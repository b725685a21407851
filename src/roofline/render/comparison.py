"""Comparisons as text (quantities of both reports, what findings promised, then op by op with equal ops folded) and as JSON."""

import re
from collections.abc import Iterable, Sequence

from msgspec import to_builtins
from msgspec.structs import replace

from ..checking import Check
from ..comparison.promises import Kept, Promise, PromiseSum
from ..comparison.values import TIME, Comparison, Delta, Figure, Side, label_of_change, summed
from ..cost import sum_or_unknown
from ..units import number_of, percent, plain, rounded, show
from .markdown import markdown_table, with_escapes
from .tables import Cell, Paper, facts, table
from .text import notes_text

TOP = 20
DIGITS = 3  # of the times of promises
SAME = 0.005  # of the time: runs that differ by less are as fast as each other
_NUMBER = re.compile(r"\d+")
_OF = {"step": "per step", "run": "by the run's wall clock", "ops": "by op time"}
_TIMED = ["op", "matched by", "before", "after", "change", "share", "efficiency", "bound"]
_WHOLE = ("step time", "run time", "peak memory", "ops")  # figures that are not sums over ops
_UNTIMED = ["op", "matched by", "min. before", "min. after", "change", "share", "work", "hbm", "launches", "bound"]


def comparison_with_checks(found: Comparison, checks: Sequence[Check] = ()) -> dict[str, object]:
    """The output of ``roofline compare --json``: the comparison, and the checked conditions."""
    return {**to_builtins(found), "checks": checks}


def changes_text(found: Comparison, paper: Paper, top: int = TOP) -> str:
    """A comparison for a terminal or a pipe."""
    head = " compared with ".join(paper.paint(name, "bold") for name in found.files)
    parts = [
        head,
        facts([("change", verdict_text(found))], paper),
        table(["", "before", "after", "change"], [figure_cells(one, found.per) for one in found.figures], paper),
        promises_text(found.promises),
        _table(found, paper, top) if top else "",
        notes_text(list(found.notes), paper),
    ]
    return "\n\n".join(part for part in parts if part)


def _table(found: Comparison, paper: Paper, top: int) -> str:
    """The ops that changed, the largest changes first, and how many did not."""
    some = [delta for delta in found.deltas if is_changed(delta)]
    same = len(found.deltas) - len(some)
    if not some:
        return f"All {same:,} ops are the same." if same else ""
    deltas = folded(some)
    headers, rows = _rows(found, deltas[:top])
    more = [f"… and {len(deltas) - top:,} more; show them with --top"] if len(deltas) > top else []
    rest = [f"{number_of(same, 'op')} unchanged"] if same else []
    return "\n".join([table(headers, rows, paper, left=2, elastic=0), *more, *rest])


def verdict_text(found: Comparison) -> str:
    """The change in one line: of the time, or of the minimum time where nothing was timed on both sides."""
    before, after = found.before, found.after
    if found.basis == TIME:
        if not found.speedup:
            return "not measured on both sides"
        sides = {"step": (before.step_s, after.step_s), "run": (before.wall_s, after.wall_s)}
        was, now = sides.get(found.speedup_of or "", (before.time_s, after.time_s))
        return f"{speed_text(found.speedup)} {_OF[found.speedup_of or 'ops']}: {show(was, 's')} → {show(now, 's')}"
    ratio = f" ({speed_text(before.floor_s / after.floor_s)} at the roofline)" if before.floor_s and after.floor_s else ""
    return f"{_signed(found.floor_change_s)} of minimum time{ratio}; no measured times on both sides"


def speed_text(speedup: float) -> str:
    """The speed-up or slow-down, in words.

    >>> speed_text(1.5), speed_text(0.25), speed_text(1.001)
    ('1.5x as fast', '4x as long', 'as fast as before')
    """
    if abs(speedup - 1) < SAME:
        return "as fast as before"
    return f"{plain(speedup, 3)}x as fast" if speedup >= 1 else f"{plain(1 / speedup, 3)}x as long"


def is_changed(delta: Delta) -> bool:
    """Whether anything of an op differs between the runs: time, minimum time, amounts or bound."""
    before, after = (replace(side, ops=(), names=()) for side in (delta.before, delta.after))
    return bool(delta.before.ops) != bool(delta.after.ops) or before != after


def folded(deltas: Iterable[Delta]) -> list[Delta]:
    """The changes with ops merged whose labels differ only in the numbers of their scopes, the largest first."""
    alike: dict[tuple[str, ...], list[Delta]] = {}
    for delta in deltas:
        where = _NUMBER.sub("*", delta.where) if delta.where == delta.scope else delta.where
        bounds = delta.before.bound or "", delta.after.bound or ""
        alike.setdefault((where, delta.what or delta.name, delta.was, delta.matched, *bounds), []).append(delta)
    rows = [_sum(where, what, was, some) if len(some) > 1 else some[0] for (where, what, was, *_), some in alike.items()]
    return sorted(rows, key=lambda row: -abs((row.floor_change_s or 0.0) if row.change_s is None else row.change_s))


def _sum(where: str, what: str, was: str, deltas: Sequence[Delta]) -> Delta:
    often = f"×{len(deltas):,}"
    return replace(
        deltas[0],
        label=f"{label_of_change(where, what, was)}  {often}",
        where=where,
        what=f"{what}  {often}",
        before=summed(one.before for one in deltas),
        after=summed(one.after for one in deltas),
        change_s=sum_or_unknown(one.change_s for one in deltas),
        share=sum_or_unknown(one.share for one in deltas),
        floor_change_s=sum_or_unknown(one.floor_change_s for one in deltas),
    )


def figure_cells(one: Figure, per: str = "") -> list[str | Cell]:
    """One quantity of both reports, ``per`` step where it is, and its change: green is better, red is worse."""
    change = one.change
    name = f"{one.quantity}/{per}" if per and one.quantity not in _WHOLE and not one.quantity.endswith("/s") else one.quantity
    shown = [_amount(one.before, one.unit), _amount(one.after, one.unit)]
    if not change:
        return [name, *shown, "same"]
    sign = "−" if change < 0 else "+"
    better = (change > 0) == one.quantity.endswith("/s")  # a higher throughput is better; for all other quantities lower is better
    part = f" ({sign}{percent(abs(change) / one.before)})" if one.before else ""
    return [name, *shown, Cell(f"{sign}{_amount(abs(change), one.unit)}{part}", "green" if better else "red")]


def _amount(amount: float, unit: str) -> str:
    return show(amount, unit) if unit else plain(amount)


def _rows(found: Comparison, deltas: Iterable[Delta]) -> tuple[list[str], list[list[str | Cell]]]:
    """The columns and rows of some changes."""
    if found.basis == TIME:
        words = [f"{word}/{found.per}" if found.per and word in ("before", "after", "change") else word for word in _TIMED]
        return words, [_timed(delta) for delta in deltas]
    return _UNTIMED, [_untimed(delta) for delta in deltas]


def _timed(delta: Delta) -> list[str | Cell]:
    return [
        *_named(delta),
        show(delta.before.time_s, "s"),
        show(delta.after.time_s, "s"),
        *_changed(delta.change_s, delta.share),
        _turned(*(percent(side.efficiency) if side.efficiency is not None else None for side in (delta.before, delta.after))),
        _turned(delta.before.bound, delta.after.bound),
    ]


def _untimed(delta: Delta) -> list[str | Cell]:
    before, after = delta.before, delta.after
    return [
        *_named(delta),
        _if_any(before, show(before.floor_s, "s")),
        _if_any(after, show(after.floor_s, "s")),
        *_changed(delta.floor_change_s, delta.share),
        _turned(_if_any(before, show(before.flops, "FLOP")), _if_any(after, show(after.flops, "FLOP"))),
        _turned(_if_any(before, show(before.bytes.get("hbm", 0), "B")), _if_any(after, show(after.bytes.get("hbm", 0), "B"))),
        _turned(_if_any(before, plain(before.launches)), _if_any(after, plain(after.launches))),
        _turned(before.bound, after.bound),
    ]


def _named(delta: Delta) -> Sequence[str]:
    return delta.label or delta.name, delta.matched.replace("module", "program")


def _if_any(side: Side, text: str) -> str:
    """A text about one side; empty if it has no ops."""
    return text if side.ops else "–"


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


def promises_text(kept: Kept | None) -> str:
    """A line for each finding of the report before, and one for those that are gone together; nothing if none is gone."""
    return "\n".join(["promises", *(f"  {line}" for line in promise_lines(kept))]) if kept and kept.gone else ""


def promises_markdown(kept: Kept | None) -> str:
    """The same as a table of a comment."""
    if kept is None or not kept.gone:
        return ""
    rows = [[one.kind, with_escapes(one.title), _promised(one), _arrived(one)] for one in kept.findings]
    together = f"\n\n{with_escapes(together_text(kept))}" if kept.promised_s is not None else ""
    return f"### Promises\n\n{markdown_table(['finding', 'about', 'promised', 'arrived'], rows)}{together}"


def promise_lines(kept: Kept) -> list[str]:
    """The promises one by one, and the time that was promised for all that are gone."""
    lines = [f"{one.kind}: promised {_promised(one)}, {_arrived(one)}{f'  ({one.title})' if one.title else ''}" for one in kept.findings]
    return [*lines, together_text(kept)] if kept.promised_s is not None else lines


def together_text(kept: Kept) -> str:
    """The promised and the measured time."""
    if kept.promised_s is None:
        return "no finding is gone"
    interval = f" ({_seconds(kept.low_s)} to {_seconds(kept.high_s)})" if kept.low_s is not None and kept.high_s is not None else ""
    inside = {True: ", inside", False: ", outside", None: ""}[kept.holds]
    more = kept.after_s / kept.promised_s - 1 if kept.promised_s else 0.0
    off = f", {percent(abs(more))} {'more' if more > 0 else 'less'} than promised" if more else ""
    per = f"{kept.per} without the profiler" if kept.unprofiled else kept.per
    return (
        f"per {per}: {_seconds(kept.before_s)} before, promised {_seconds(kept.promised_s)}{interval}, "
        f"measured {_seconds(kept.after_s)}{inside}{off}"
    )


def promise_sum_text(found: PromiseSum, kept: list[Kept]) -> str:
    """The pairs of a file, and how well their promises were kept."""
    lines = [f"{' → '.join(one.files)}: {together_text(one)}" for one in kept]
    if found.mean_error is None or found.near is None or found.inside is None:
        return "\n".join([*lines, "no pair in which a finding is gone"])
    pairs = f"{found.pairs:,} pair{'' if found.pairs == 1 else 's'}"
    shares = f"{percent(found.near)} within 25%, {percent(found.inside)} inside the interval"
    return "\n".join([*lines, f"{pairs}: mean error {percent(found.mean_error)}, {shares}"])


def _promised(one: Promise) -> str:
    return _seconds(one.promised_s)


def _arrived(one: Promise) -> str:
    if one.arrived_s is not None:
        return f"arrived {_seconds(one.arrived_s)}"
    return "gone" if one.is_gone else f"remains ({_seconds(one.left_s)})" if one.left_s else "remains"


def _seconds(seconds: float | None) -> str:
    return "–" if seconds is None else show(rounded(seconds, DIGITS), "s")
