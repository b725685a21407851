"""The figure of changes: two runs side by side, op by op, the largest change first."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from msgspec.structs import replace

from ...comparison import TIME, Comparison, Delta, Side
from ...errors import UsageError
from ...units import show
from ..comparison import speed_text
from ..geometry import Extent, Tick
from .captions import Entry
from .frame import Axis
from .sheet import Sheet
from .style import short_name

_ROW, _HEAD, _SPACE = 15.0, 17.0, 9.0  # points: one bar, the line that names an op, the space below it
_MOST_OPS = 16
_OF = {"step": " per step", "run": " by wall clock"}


def change_bars(comparison: Comparison, *, theme: str = "light", ax: Axes | None = None) -> Axes:
    """Seconds before and after for the ops that changed most: measured, or minimum times where nothing was measured on both sides."""
    if comparison.basis != TIME:
        comparison = _by_minimum(comparison)
    changed = [delta for delta in comparison.deltas if delta.change_s is not None]
    shown = changed[:_MOST_OPS]
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
        after = sheet.theme.good if (delta.change_s or 0.0) <= 0 else sheet.theme.compute
        sheet.bar(top - _HEAD - 0.5 * _ROW, delta.before.time_s or 0.0, sheet.theme.muted, thickness=_ROW - 5)
        sheet.bar(top - _HEAD - 1.5 * _ROW, delta.after.time_s or 0.0, after, thickness=_ROW - 5)
        sheet.words(_summary(delta), *sheet.place(5, sheet.spot(0.0, top - _HEAD / 2)[1]), align="left")
    legend = [
        Entry(text="before", colour=sheet.theme.muted, marker="s"),
        Entry(text="after, faster", colour=sheet.theme.good, marker="s"),
        Entry(text="after, slower", colour=sheet.theme.compute, marker="s"),
    ]
    caption = f"Showing the {_MOST_OPS} largest of {len(changed)} changes." if len(changed) > len(shown) else ""
    speed = f"{speed_text(comparison.speedup)}{_OF.get(comparison.speedup_of or '', '')}; " if comparison.speedup else ""
    return sheet.finish(
        f"{speed}{_signed(comparison.change_s)} of {comparison.basis} in all ops{_OF.get(comparison.per, '')}",
        legend=legend,
        caption=caption,
    )


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
    return f"{short_name(delta.name, 44)}: {how}{_signed(delta.change_s)}"


def _signed(seconds: float | None) -> str:
    if not seconds:
        return "no change"
    return f"{show(abs(seconds), 's', 3)} {'less' if seconds < 0 else 'more'}"
