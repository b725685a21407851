"""The figure of a measured machine's memory: bandwidth against working set, with the rates and sizes of the levels found in it."""

from matplotlib.axes import Axes

from ...errors import UsageError
from ...machines import Card
from ...units import show
from ..geometry import Extent
from ..machines import SWEPT
from .sheet import Axis, Entry, Sheet
from .style import DASHES, THIN_WIDTH, styled

_LEVELS = ("l1", "l2", "l3", "hbm")


@styled
def sweep_chart(card: Card, *, theme: str = "light", ax: Axes | None = None) -> Axes:
    """The bandwidth of each pattern by working set, and each level's rate with the 5th and 95th percentile of its tries."""
    curves = {
        name: sorted((point.bytes, point.rate) for point in card.sweep if point.pattern == pattern) for pattern, name in SWEPT.items()
    }
    curves = {name: curve for name, curve in curves.items() if len(curve) > 1}
    if not curves:
        raise UsageError(f"{card.machine.name} has no sweep over working sets; measure one: roofline chips measure -o FILE.toml")
    sizes, rates = zip(*(spot for curve in curves.values() for spot in curve), strict=True)
    levels = [
        ceiling
        for name in _LEVELS
        if (ceiling := card.machine.ceiling(name)) and ceiling.spread and min(rates) < ceiling.rate < 2 * max(rates)
    ]
    top = 1.5 * max(max(rates), *(ceiling.rate for ceiling in levels))
    extent = Extent(left=min(sizes), right=max(sizes), bottom=min(rates) / 1.5, top=top)
    sheet = Sheet(ax, theme, extent, Axis(label="working set (B)", dimension="B"), Axis(label="bandwidth (B/s)", dimension="B/s"))
    ends = [(f"{ceiling.resource} {show(ceiling.rate, 'B/s', 3)}", ceiling.rate) for ceiling in levels]
    sheet.label_ends(ends)
    for index, (ceiling, (text, _)) in enumerate(zip(levels, ends, strict=True)):
        colour = sheet.theme.of_series(index)
        if ceiling.spread:
            low, high = max(ceiling.spread.p5, extent.bottom), ceiling.spread.p95
            sheet.area(((extent.left, low), (extent.right, low), (extent.right, high), (extent.left, high)), colour, kind="spread")
        sheet.line(
            ((extent.left, ceiling.rate), (extent.right, ceiling.rate)), colour, width=THIN_WIDTH, dash=(5, 2.5), name=text, kind="level"
        )
    for index, (name, curve) in enumerate(curves.items()):
        sheet.line(curve, sheet.theme.ink, dash=DASHES[index % len(DASHES)], name=name, kind="sweep")
    threads = ", one thread" if card.machine.kind == "cpu" else ""
    legend = [Entry(text=name + threads, colour=sheet.theme.ink, dash=DASHES[index % len(DASHES)]) for index, name in enumerate(curves)]
    return sheet.finish(
        f"Memory of {card.machine.title or card.machine.name}",
        subtitle=f"dashed: rate of each level{', all threads' if threads else ''}; shaded: 5th to 95th percentile of its tries",
        legend=legend,
    )
