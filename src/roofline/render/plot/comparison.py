"""The figure of changes: two runs side by side, op by op, the largest change first."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from msgspec.structs import replace

from ...comparison import TIME, Comparison, Delta, Side
from ...errors import UsageError
from ...units import show
from ..comparison import folded, speed_text
from ..geometry import Extent, Tick
from .captions import Entry
from .frame import Axis
from .sheet import Sheet
from .style import Theme, short_name

_ROW, _HEAD, _SPACE = 15.0, 17.0, 9.0  # points: one bar, the line that names an op, the space below it
_MOST_OPS = 16
_OF = {"step": " per step", "run": " by wall clock"}


def change_bars(comparison: Comparison, *, theme: str = "light", ax: Axes | None = None) -> Axes:
    """Seconds before and after for the ops that changed most, equal ops as one, or for the longest ops where none changed.

    They are measured, or minimum times where nothing was measured on both sides.
    """
    if comparison.basis != TIME:
        comparison = _by_minimum(comparison)
    timed = [delta for delta in comparison.deltas if delta.change_s is not None]
    some = [delta for delta in timed if delta.change_s]
    ranked = folded(some) if some else sorted(folded(timed), key=lambda delta: -(delta.after.time_s or 0.0))
    shown = ranked[:_MOST_OPS]
    if not shown:
        raise UsageError("no op has a time on both sides, measured or minimum: nothing to draw")
    height = _HEAD + 2 * _ROW + _SPACE
    tops = [height * (len(shown) - index) for index in range(len(shown))]
    longest = max(max(delta.before.time_s or 0.0, delta.after.time_s or 0.0) for delta in shown)
    extent = Extent(left=0.0, right=1.04 * longest or 1.0, bottom=0.0, top=tops[0], x_log=False, y_log=False)
    sheet = Sheet(
        ax,
        theme,
        extent,
        Axis(label=f"{comparison.basis}{_OF.get(comparison.per, '')}", dimension="s"),
        Axis(label="", ticks=_ticks(shown, tops)),
        height=tops[0],
    )
    for delta, top in zip(shown, tops, strict=True):
        sheet.bar(top - _HEAD - 0.5 * _ROW, delta.before.time_s or 0.0, sheet.theme.muted, thickness=_ROW - 5)
        sheet.bar(top - _HEAD - 1.5 * _ROW, delta.after.time_s or 0.0, _colour(delta, sheet.theme), thickness=_ROW - 5)
        sheet.words(_summary(delta), *sheet.place(5, sheet.spot(0.0, top - _HEAD / 2)[1]), align="left")
    used = {_colour(delta, sheet.theme) for delta in shown}
    legend = [
        Entry(text="before" if some else "before and after", colour=sheet.theme.muted, marker="s"),
        *(
            Entry(text=text, colour=colour, marker="s")
            for text, colour in (("after, faster", sheet.theme.good), ("after, slower", sheet.theme.compute))
            if colour in used
        ),
    ]
    speed = f"{speed_text(comparison.speedup)}{_OF.get(comparison.speedup_of or '', '')}; " if comparison.speedup else ""
    heading = f"{speed}{_signed(comparison.change_s)} of {comparison.basis} in all ops{_OF.get(comparison.per, '')}"
    return sheet.finish(
        heading[:1].upper() + heading[1:],
        legend=legend,
        caption=_caption(len(ranked), bool(some)),
    )


def _caption(count: int, changes: bool) -> str:
    """What the bars are of, where that is not every op."""
    if not changes:
        return "No op changed." + (f" Showing the {_MOST_OPS} longest of {count:,}." if count > _MOST_OPS else "")
    return f"Showing the {_MOST_OPS} largest of {count:,} changes." if count > _MOST_OPS else ""


def _colour(delta: Delta, theme: Theme) -> str:
    """The colour of the time after: by whether it is more or less, that of the time before if it is the same."""
    change = delta.change_s or 0.0
    return theme.good if change < 0 else theme.compute if change > 0 else theme.muted


def _by_minimum(comparison: Comparison) -> Comparison:
    """A comparison with minimum times in place of measured ones."""

    def at_minimum(side: Side) -> Side:
        return replace(side, time_s=side.floor_s if side.ops else 0.0)

    deltas = [
        replace(delta, before=at_minimum(delta.before), after=at_minimum(delta.after), change_s=delta.floor_change_s)
        for delta in comparison.deltas
    ]
    before, after = comparison.before.floor_s, comparison.after.floor_s
    speedup = before / after if before is not None and after else None
    return replace(comparison, deltas=tuple(deltas), change_s=comparison.floor_change_s, speedup=speedup, speedup_of=None)


def _ticks(shown: Sequence[Delta], tops: Sequence[float]) -> tuple[Tick, ...]:
    """The seconds of each bar, as its tick label."""
    rows = []
    for delta, top in zip(shown, tops, strict=True):
        for index, side in enumerate((delta.before, delta.after)):
            rows.append(Tick(top - _HEAD - (index + 0.5) * _ROW, show(side.time_s, "s", 3)))
    return tuple(rows)


def _summary(delta: Delta) -> str:
    how = {"new": "new, ", "vanished": "gone, "}.get(delta.matched, "")
    return f"{short_name(delta.label or delta.name, 72)}: {how}{_signed(delta.change_s)}"


def _signed(seconds: float | None) -> str:
    if not seconds:
        return "no change"
    return f"{show(abs(seconds), 's', 3)} {'less' if seconds < 0 else 'more'}"
