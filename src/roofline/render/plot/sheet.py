"""A sheet: one axes in the style of all figures, which records what is drawn so that labels do not cover it.

Figures draw lines, areas and marks, request labels, and call `finish`; the sheet then places the labels, writes title, legend, caption and
key around the axes, and resizes its own figure to fit. Axes given by a caller keep their size.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from msgspec import Struct
from msgspec.structs import replace

from ..boxes import Box, Disc, Scene, Segment
from ..geometry import Extent, Path, Spot
from ..labels import Label, Placed, place_labels, slide, spread
from .captions import Entry, write_foot, write_head
from .frame import HEIGHT, POINTS, Axis, fit, own_axes, style_axes
from .style import HAIR_WIDTH, ROOF_WIDTH, SMALL, Dash, Theme, cut, drawable, text_size, text_style, theme_named

_MOST_ROOM = 0.42  # of the width, at most, for labels at the right ends of lines
_HALO = 2.5  # points around letters, so that they are legible over dots and lines
_ARROWHEAD = ((1.0, 0.0), (-1.0, 0.7), (-1.0, -0.7), (1.0, 0.0))  # along its direction and across


class _MarkLabel(Struct, frozen=True):
    """A requested label of a mark."""

    text: str
    x: float
    y: float
    radius: float
    size: float
    weight: str
    key: str
    crowd: bool


class _LineLabel(Struct, frozen=True):
    """A requested label along a line, and the legend entry that replaces it where it does not fit."""

    text: str
    path: Path
    prefer: float
    sides: tuple[int, ...]
    instead: Entry


class Sheet:
    """An axes being drawn on. ``ends`` are the labels at the right ends of lines, for which space is reserved."""

    def __init__(
        self, ax: Axes | None, theme: str, extent: Extent, x: Axis, y: Axis, *, ends: Sequence[str] = (), height: float = HEIGHT
    ) -> None:
        self.theme: Theme = theme_named(theme)
        self.owned = ax is None
        self.ax = ax if ax is not None else own_axes(height)
        self.width, self.height = (side / self.ax.figure.dpi * POINTS for side in (self.ax.bbox.width, self.ax.bbox.height))
        wanted = max((text_size(drawable(text), SMALL)[0] + 14 for text in ends), default=0.0)
        self._room = min(wanted, _MOST_ROOM * self.width)
        self.inner, self.outer = extent, extent.widened(self._room / self.width)
        self._discs: list[Disc] = []
        self._lines: list[Segment] = []
        self._boxes: list[Box] = []
        self._asked: list[_MarkLabel] = []
        self._along: list[_LineLabel] = []
        self._ends: list[tuple[str, Spot]] = []
        self._key: list[str] = []
        self._drawn: dict[str, int] = {}
        self._crowded = False
        self.halo = [withStroke(linewidth=_HALO, foreground=self.theme.background)]
        self.numbers = style_axes(self.ax, self.theme, self.outer, extent.right, x, y)

    def spot(self, x: float, y: float) -> Spot:
        """A position in points from the bottom left corner."""
        across, along = self.outer.unit(x, y)
        return across * self.width, along * self.height

    def place(self, across: float, along: float) -> Spot:
        """The position at a distance in points from the bottom left corner, in the units of the axes."""
        return self.outer.place(across / self.width, along / self.height)

    def line(
        self,
        path: Iterable[Spot],
        colour: str,
        *,
        width: float = ROOF_WIDTH,
        dash: Dash = None,
        name: str = "",
        kind: str = "line",
        z: float = 3,
        keep_clear: bool = True,
    ) -> None:
        """Draw a line that labels avoid; ``name`` is its entry in a legend that a caller makes."""
        points = tuple(path)
        if len(points) < 2:
            return
        xs, ys = zip(*points, strict=True)
        self.ax.plot(
            xs,
            ys,
            color=colour,
            linewidth=width,
            linestyle="solid" if dash is None else (0, dash),
            marker="none",
            solid_capstyle="butt",
            solid_joinstyle="round",
            dash_capstyle="butt",
            dash_joinstyle="round",
            label=name or "_",
            zorder=z,
            gid=self._name(kind),
        )
        if keep_clear:
            spots = [self.spot(*point) for point in points]
            self._lines += pairwise(spots)

    def area(self, path: Path, colour: str, *, strength: float = 1.0, kind: str = "area") -> None:
        """A shaded polygon."""
        if path:
            xs, ys = zip(*path, strict=True)
            shade = min(1.0, self.theme.shade * strength)
            self.ax.fill(xs, ys, facecolor=colour, edgecolor="none", linewidth=0, alpha=shade, zorder=1, gid=self._name(kind))

    def bar(self, y: float, length: float, colour: str, *, thickness: float) -> None:
        """A horizontal bar from 0, centred on ``y``."""
        corner = (0.0, y - thickness / 2)
        self.ax.add_patch(
            Rectangle(corner, length, thickness, facecolor=colour, edgecolor="none", linewidth=0, zorder=2, gid=self._name("bar"))
        )

    def dot(
        self,
        x: float,
        y: float,
        colour: str,
        *,
        radius: float = 4.0,
        marker: str | Sequence[Spot] = "o",
        filled: bool = True,
        other: str | None = None,
        kind: str = "dot",
        z: float = 5,
    ) -> None:
        """Draw a mark; ``other`` colours its right half, for two series at one position."""
        paper = self.theme.background
        self.ax.plot(
            [x],
            [y],
            linestyle="none",
            marker=marker,
            markersize=2 * radius,
            markerfacecolor=colour if filled else paper,
            markerfacecoloralt=other or paper,
            fillstyle="left" if other else "full",
            markeredgecolor=paper if filled else colour,
            markeredgewidth=0.8 if filled else 1.5,
            label="_",
            zorder=z,
            clip_on=False,
            gid=self._name(kind),
        )
        self.keep_clear(x, y, radius)

    def dots(self, spots: Sequence[Spot], radii: Sequence[float], colours: Sequence[str], *, z: float = 5) -> None:
        """Draw very many round marks at once, each with its radius and colour; labels then have halos."""
        self._crowded = True
        xs, ys = zip(*spots, strict=True)
        areas = [(2 * radius) ** 2 for radius in radii]
        self.ax.scatter(
            xs, ys, s=areas, c=list(colours), marker="o", alpha=0.85, linewidths=0.7, edgecolors=self.theme.background,
            label="_", zorder=z, clip_on=False, gid=self._name("dots"),
        )  # fmt: skip
        for (x, y), radius in zip(spots, radii, strict=True):
            self.keep_clear(x, y, radius)

    def pointer(self, x: float, y: float, colour: str, *, size: float = 4.0) -> None:
        """Draw an arrowhead at the edge that points to a position beyond it."""
        (far_x, far_y), edge = self.spot(x, y), self.spot(*self.inner.nearest(x, y))
        angle = math.atan2(far_y - edge[1], far_x - edge[0])
        cos, sin = math.cos(angle), math.sin(angle)
        shape = [(along * cos - across * sin, along * sin + across * cos) for along, across in _ARROWHEAD]
        self.dot(*self.place(edge[0] - size * cos, edge[1] - size * sin), colour, radius=size, marker=shape, kind="pointer")

    def keep_clear(self, x: float, y: float, radius: float) -> None:
        """Let labels avoid a round mark."""
        self._discs.append(Disc(*self.spot(x, y), radius + 0.5))

    def arrow(
        self, start: Spot, end: Spot, colour: str, *, both: bool = False, bend: float = 0.0, shrink: float = 5.0, width: float = 1.2
    ) -> None:
        """Draw an arrow, bent by this share of its length."""
        self.ax.annotate(
            "",
            xy=end,
            xytext=start,
            annotation_clip=False,
            zorder=4,
            gid=self._name("arrow"),
            arrowprops={
                "arrowstyle": "<|-|>,head_length=0.45,head_width=0.22" if both else "-|>,head_length=0.5,head_width=0.25",
                "color": colour,
                "linewidth": width,
                "shrinkA": shrink,
                "shrinkB": shrink,
                "connectionstyle": f"arc3,rad={bend}",
                "mutation_scale": 10,
            },
        )
        self._lines += _bent(self.spot(*start), self.spot(*end), bend)

    def label(
        self,
        text: str,
        x: float,
        y: float,
        *,
        radius: float = 4.0,
        size: float = SMALL,
        weight: str = "normal",
        key: str = "",
        crowd: bool = False,
    ) -> None:
        """Request a label of a mark; earlier ones choose first.

        ``key`` is the text for the key if the label does not fit; marks of one ``crowd`` at one position get one label, named after the
        first.
        """
        self._asked.append(_MarkLabel(drawable(text), x, y, radius + 0.5, size, weight, key or text, crowd))

    def label_line(self, text: str, path: Path, instead: Entry, *, prefer: float = 0.3, sides: tuple[int, ...] = (1, -1)) -> None:
        """Request a label along a straight line: above it (1), below (−1) or on it (0)."""
        if len(path) >= 2:
            self._along.append(_LineLabel(drawable(text), path, prefer, sides, instead))

    def label_end(self, text: str, x: float, y: float) -> None:
        """Request a label to the right of a line that ends here."""
        self._ends.append((drawable(" ".join(text.split())), (x, y)))

    def number(self, text: str) -> int:
        """The number under which the key explains a mark that the figure numbers itself."""
        self._key.append(text)
        return len(self._key)

    def words(
        self,
        text: str,
        x: float,
        y: float,
        *,
        size: float = SMALL,
        colour: str | None = None,
        weight: str = "normal",
        align: str = "center",
    ) -> None:
        """Write text at a position that is known to be free, centred or left-aligned."""
        text = cut(drawable(text), self.width, size)
        across, along = self.spot(x, y)
        width, height = text_size(text, size, weight)
        middle = across + width / 2 if align == "left" else across
        self._write(Box(middle, along, width, height), text, size=size, colour=colour, weight=weight, align=align)

    def finish(self, title: str, *, subtitle: str = "", legend: Sequence[Entry] = (), caption: str = "", left: float = 0.0) -> Axes:
        """Place the labels, write the text around the axes, and resize the sheet's own figure; ``left`` is extra space on that side."""
        self._write_ends()
        instead = self._write_along()
        key, dropped = self._write_labels()
        if dropped:
            caption = f"{caption} {dropped:,} more {'label does' if dropped == 1 else 'labels do'} not fit.".strip()
        above = write_head(self.ax, self.theme, self.width, title, subtitle, [*legend, *instead])
        below = write_foot(self.ax, self.theme, self.width, caption, key)
        if self.owned:
            fit(self.ax, self.width, self.height, above=above, below=below, left=left + self.numbers)
        return self.ax

    def _name(self, kind: str) -> str:
        self._drawn[kind] = self._drawn.get(kind, 0) + 1
        return f"{kind}-{self._drawn[kind]}"

    def _scene(self) -> Scene:
        boxes, lines, discs = tuple(self._boxes), tuple(self._lines), tuple(self._discs)
        return Scene(width=self.width, height=self.height, discs=discs, lines=lines, boxes=boxes)

    def _write_ends(self) -> None:
        """Write the labels at line ends in one column; thin leaders connect those that had to move."""
        texts = [cut(text, self._room - 10, SMALL) for text, _ in self._ends]
        sizes = [text_size(text, SMALL) for text in texts]
        spots = [self.spot(*spot) for _, spot in self._ends]
        centres = spread([y for _, y in spots], [height + 1 for _, height in sizes], 2, self.height - 2)
        for text, (width, height), (x, y), centre in zip(texts, sizes, spots, centres, strict=True):
            if abs(centre - y) > 1:
                self._hair((x + 1, y), (x + 7, centre))
            self._write(Box(x + 9 + width / 2, centre, width, height), text)

    def _write_along(self) -> list[Entry]:
        """Write the labels along lines. Returns legend entries for those that do not fit."""
        instead = []
        for asked in self._along:
            segment = self.spot(*asked.path[0]), self.spot(*asked.path[-1])
            box = slide(segment, text_size(asked.text, SMALL), self._scene(), prefer=asked.prefer, sides=asked.sides)
            if box is None:
                instead.append(asked.instead)
            else:
                self._write(box, asked.text)
        return instead

    def _write_labels(self) -> tuple[list[str], int]:
        """Write the labels of marks. Returns the lines of the key and how many labels did not fit at all."""
        gathered = self._gathered()
        labels = [
            Label(asked.text, *self.spot(asked.x, asked.y), text_size(asked.text, asked.size, asked.weight), asked.radius)
            for asked in gathered
        ]
        layout = place_labels(labels, self._scene(), text_size("0", SMALL), first=len(self._key) + 1)
        for place in layout.placed:
            self._write_label(place, gathered[place.index])
        names = [*self._key, *(gathered[index].key.replace("\n", ", ") for index in layout.key)]
        return [f"{number}  {name}" for number, name in enumerate(names, 1)], len(layout.dropped)

    def _gathered(self) -> list[_MarkLabel]:
        """The requested labels, with crowds at one position merged."""
        places: dict[tuple[int, int], list[_MarkLabel]] = {}
        kept = []
        for asked in self._asked:
            across, along = self.spot(asked.x, asked.y)
            company = places.setdefault((round(across), round(along)), []) if asked.crowd else []
            if not company:
                kept.append(asked)
            company.append(asked)
        for first, *others in places.values():
            if others:
                words = f"\nand {len(others):,} more here"
                kept[kept.index(first)] = replace(first, text=first.text + words, key=first.key + words)
        return kept

    def _write_label(self, place: Placed, asked: _MarkLabel) -> None:
        box, (x, y) = place.box, self.spot(asked.x, asked.y)
        arrow = None
        if place.leader:
            end_x, end_y = place.leader[1]
            arrow = {
                "arrowstyle": "-",
                "color": self.theme.muted,
                "linewidth": HAIR_WIDTH,
                "shrinkA": 0,
                "shrinkB": asked.radius,
                "patchA": None,
                "relpos": ((end_x - box.x) / box.width + 0.5, (end_y - box.y) / box.height + 0.5),
            }
        toward = "left" if box.x - box.width / 2 >= x else "right" if box.x + box.width / 2 <= x else "center"
        self.ax.annotate(
            asked.text if place.number is None else str(place.number),
            xy=(asked.x, asked.y),
            xytext=(box.x - x, box.y - y),
            textcoords="offset points",
            arrowprops=arrow,
            annotation_clip=False,
            ha="center",
            va="center",
            multialignment=toward,
            bbox=self._backing(box),
            zorder=7,
            path_effects=self.halo if self._crowded else None,
            gid=self._name("label"),
            **text_style(self.theme.ink, asked.size, asked.weight),
        )

    def _write(
        self, box: Box, text: str, *, size: float = SMALL, colour: str | None = None, weight: str = "normal", align: str = "center"
    ) -> None:
        self.ax.text(
            (box.x - box.width / 2 if align == "left" else box.x) / self.width,
            box.y / self.height,
            text,
            transform=self.ax.transAxes,
            rotation=math.degrees(box.angle),
            rotation_mode="anchor",
            ha=align,
            va="center",
            bbox=self._backing(box),
            zorder=7,
            path_effects=self.halo if self._crowded else None,
            gid=self._name("words"),
            **text_style(colour or self.theme.ink, size, weight),
        )
        self._boxes.append(box)

    def _hair(self, start: Spot, end: Spot) -> None:
        xs, ys = zip(*((x / self.width, y / self.height) for x, y in (start, end)), strict=True)
        look: dict[str, Any] = {"color": self.theme.muted, "linewidth": HAIR_WIDTH, "linestyle": "solid", "marker": "none"}
        self.ax.add_line(Line2D(xs, ys, transform=self.ax.transAxes, label="_", gid=self._name("leader"), **look))

    def _backing(self, box: Box) -> dict[str, Any] | None:
        """Draw a background for a label that covers a line."""
        if not self._scene().crosses_line(box):
            return None
        return {"facecolor": self.theme.background, "edgecolor": "none", "linewidth": 0, "alpha": 0.8, "boxstyle": "square,pad=0.1"}


def _bent(start: Spot, end: Spot, bend: float) -> list[Segment]:
    """A bent arrow (a quadratic curve) as a few straight segments that labels avoid."""
    (x0, y0), (x1, y1) = start, end
    middle = (x0 + x1) / 2 + bend * (y1 - y0), (y0 + y1) / 2 - bend * (x1 - x0)
    curve = []
    for step in range(7):
        t = step / 6
        first, second, third = (1 - t) ** 2, 2 * t * (1 - t), t**2
        curve.append((first * x0 + second * middle[0] + third * x1, first * y0 + second * middle[1] + third * y1))
    return list(pairwise(curve))
