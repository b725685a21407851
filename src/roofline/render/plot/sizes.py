"""The figure of intensity against size: where an operation crosses the ridge of each chip."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from matplotlib.axes import Axes

from ...errors import UsageError
from ...units import plain
from ..geometry import Extent, Roof, Spot, crossings
from .sheet import Axis, Entry, Sheet
from .style import DASHES, THIN_WIDTH, Dash, styled

_MOST_DOTS = 40  # most samples of a curve that are drawn as dots


@styled
def intensity_against_size(
    curves: Mapping[str, Iterable[Spot]],
    ridges: Iterable[Roof | tuple[str, float]],
    *,
    size: str = "size N",
    theme: str = "light",
    ax: Axes | None = None,
) -> Axes:
    """Intensity of one or more operations by size, (size, intensity) samples, with the ridges they have to cross.

    Crossings are read off straight lines between samples on log-log axes, which is exact for power laws such as N/3.
    """
    sampled = {name: tuple(sorted(curve)) for name, curve in curves.items()}
    levels = [(one.name, one.ridge) if isinstance(one, Roof) else one for one in ridges]
    _check(sampled, levels)
    extent = _extent(sampled, levels)
    base = 2 if all(math.log2(x).is_integer() for curve in sampled.values() for x, _ in curve) else 10
    intensity = Axis(label="arithmetic intensity (FLOP/B)", dimension="FLOP/B")
    sheet = Sheet(ax, theme, extent, Axis(label=size, base=base), intensity)
    colours = [sheet.theme.of_series(index) for index in range(len(levels))]
    for (name, ridge), colour in zip(levels, colours, strict=True):
        sheet.line(((extent.left, ridge), (extent.right, ridge)), colour, width=THIN_WIDTH, dash=(5, 2.5), name=name, kind="ridge")
    sheet.label_ends([(f"{name}: {plain(ridge, 3)}", ridge) for name, ridge in levels])
    for index, (name, curve) in enumerate(sampled.items()):
        _draw_curve(sheet, name, curve, DASHES[index % len(DASHES)])
    for curve in sampled.values():
        for (_, ridge), colour in zip(levels, colours, strict=True):
            for x in crossings(curve, ridge):
                sheet.dot(x, ridge, colour, radius=4, filled=False, kind="crossing", z=6)
                sheet.label(_size(x, curve), x, ridge)
    entries = [Entry(text=name, colour=sheet.theme.ink, dash=DASHES[index % len(DASHES)]) for index, name in enumerate(sampled)]
    return sheet.finish(
        "Arithmetic intensity by size",
        subtitle=f"dashed: ridge points; rings: the first {size} that is compute-bound",
        legend=entries,
    )


def _size(x: float, curve: Sequence[Spot]) -> str:
    """A crossing as text: the first whole size after it, where sizes are whole."""
    if not all(float(size).is_integer() for size, _ in curve):
        return plain(x)
    return plain(round(x) if math.isclose(x, round(x), rel_tol=1e-9) else math.ceil(x))


def _check(curves: Mapping[str, Sequence[Spot]], levels: Sequence[tuple[str, float]]) -> None:
    if not curves or not levels:
        raise UsageError("nothing to draw; give a curve and a ridge to compare it with")
    for name, curve in curves.items():
        if len(curve) < 2 or not all(0 < value < math.inf for spot in curve for value in spot):
            raise UsageError(f"curve {name!r}: needs two or more (size, intensity) samples, all above 0")
    for name, ridge in levels:
        if not 0 < ridge < math.inf:
            raise UsageError(f"ridge {name!r}: {ridge:g} FLOP/B is not above 0")


def _extent(curves: Mapping[str, Sequence[Spot]], levels: Sequence[tuple[str, float]]) -> Extent:
    """The extent: all sizes, and intensities to just above the highest ridge on a linear axis, which separates close ridges."""
    sizes = [x for curve in curves.values() for x, _ in curve]
    top = 1.35 * max(ridge for _, ridge in levels)
    return Extent(left=min(sizes), right=max(sizes), bottom=0.0, top=top, y_log=False)


def _draw_curve(sheet: Sheet, name: str, curve: Sequence[Spot], dash: Dash) -> None:
    """Draw the curve, interpolated like the crossings."""
    path: list[Spot] = []
    for (x0, y0), (x1, y1) in pairwise(curve):
        steps = 16 if y0 != y1 else 1
        path += [(x0 * (x1 / x0) ** (step / steps), y0 * (y1 / y0) ** (step / steps)) for step in range(steps)]
    path.append(curve[-1])
    sheet.line(path, sheet.theme.ink, dash=dash, name=name, kind="curve", z=4)
    if len(curve) <= _MOST_DOTS:
        for x, y in curve:
            if y <= sheet.inner.top:
                sheet.dot(x, y, sheet.theme.ink, radius=2.5, kind="sample")
