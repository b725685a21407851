"""The figure of time by size: the minimum that the roofline allows, and the expected time with its bounds."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes

from ...errors import UsageError
from ...prediction.by_size import SizeTime
from ..geometry import Extent
from .sheet import Axis, Entry, Sheet
from .style import styled

_BAND = 2.5  # opacity of the area between the bounds


@styled
def expected_times(
    name: str, curve: Sequence[SizeTime], *, size: str = "size N", machine: str = "", theme: str = "light", ax: Axes | None = None
) -> Axes:
    """Minimum and expected time of an operation by size, with its 90% interval."""
    if len(curve) < 2 or not all(spot.minimum_s > 0 for spot in curve):
        raise UsageError(f"{name}: needs two or more sizes that take time")
    lowest, highest = min(spot.minimum_s for spot in curve), max(spot.prediction.high_s for spot in curve)
    extent = Extent(left=curve[0].size, right=curve[-1].size, bottom=lowest / 1.5, top=highest * 1.5)
    base = 2 if all(math.log2(spot.size).is_integer() for spot in curve) else 10
    sheet = Sheet(ax, theme, extent, Axis(label=size, base=base), Axis(label="time", dimension="s"))
    colour, ink = sheet.theme.of_series(0), sheet.theme.ink
    upper = [(float(spot.size), spot.prediction.high_s) for spot in curve]
    lower = [(float(spot.size), spot.prediction.low_s) for spot in curve]
    sheet.area((*upper, *reversed(lower)), colour, strength=_BAND, kind="bounds")
    expected = [(float(spot.size), spot.prediction.time_s) for spot in curve]
    least = [(float(spot.size), spot.minimum_s) for spot in curve]
    sheet.line(least, ink, name="minimum", kind="minimum")
    sheet.line(expected, colour, name="expected", kind="expected", z=4)
    sheet.label_ends([("expected", expected[-1][1]), ("minimum", least[-1][1])])
    crossing = next((spot for spot in curve if spot.is_compute_bound), None)
    if crossing is not None and crossing is not curve[0]:
        sheet.dot(crossing.size, crossing.prediction.time_s, colour, radius=4, filled=False, kind="crossing", z=6)
        sheet.label(f"compute-bound from about {crossing.size:,}", crossing.size, crossing.prediction.time_s)
    legend = [
        Entry(text="expected, with its 90% interval", colour=colour),
        Entry(text="minimum (roofline)", colour=ink),
    ]
    where = f" on {machine}" if machine else ""
    return sheet.finish(f"Expected time of {name}{where}", subtitle=curve[-1].prediction.evidence, legend=legend)
