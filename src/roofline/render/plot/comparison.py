"""The figure of changes: two runs side by side, op by op, the largest change first."""

from matplotlib.axes import Axes
from msgspec.structs import replace

from ...comparison.values import TIME, Comparison, Delta, Side
from ...errors import UsageError
from ...units import show
from ..comparison import folded, speed_text
from ..geometry import Extent
from .sheet import Axis, Entry, Sheet, bar_height
from .style import Theme, short_name, styled

_ROWS = 3  # a line that names the op, and two bars
_MOST_OPS = 16
_OF = {"step": " per step", "run": " by wall clock"}


@styled
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
    rows = _ROWS * len(shown)
    longest = max(max(delta.before.time_s or 0.0, delta.after.time_s or 0.0) for delta in shown)
    # y is minus the number of the row.
    extent = Extent(left=0.0, right=1.04 * longest or 1.0, bottom=-rows, top=0.0, x_log=False, y_log=False)
    time = Axis(label=f"{comparison.basis}{_OF.get(comparison.per, '')}", dimension="s")
    sheet = Sheet(ax, theme, extent, time, Axis(label=""), height=bar_height(rows))
    ticks: list[tuple[float, str]] = []
    for index, delta in enumerate(shown):
        top = -float(_ROWS * index)
        sheet.name_group(_summary(delta), top - 0.5)
        for y, side, colour in ((top - 1.5, delta.before, sheet.theme.muted), (top - 2.5, delta.after, _colour(delta, sheet.theme))):
            sheet.bar(y, side.time_s or 0.0, colour)
            ticks.append((y, show(side.time_s, "s", 3)))
    sheet.name_rows(ticks)
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


def _caption(count: int, changes: bool) -> list[str]:
    """What the bars are of, where that is not every op."""
    if not changes:
        return ["No op changed." + (f" Showing the {_MOST_OPS} longest of {count:,}." if count > _MOST_OPS else "")]
    return [f"Showing the {_MOST_OPS} largest of {count:,} changes."] if count > _MOST_OPS else []


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


def _summary(delta: Delta) -> str:
    how = {"new": "new, ", "vanished": "gone, "}.get(delta.matched, "")
    return f"{short_name(delta.label or delta.name, 72)}: {how}{_signed(delta.change_s)}"


def _signed(seconds: float | None) -> str:
    if not seconds:
        return "no change"
    return f"{show(abs(seconds), 's', 3)} {'less' if seconds < 0 else 'more'}"
