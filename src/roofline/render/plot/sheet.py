"""A sheet: one axes in the style of all figures, with its title, legend and caption.

Figures draw lines, areas and marks, ask for labels, and call `finish`, which lets matplotlib lay the figure out and then writes the labels
where they cover nothing. Axes given by a caller keep their figure's size and layout.
"""

import textwrap
from collections.abc import Iterable, Sequence
from typing import cast

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from matplotlib.transforms import ScaledTranslation
from msgspec import Struct
from msgspec.structs import replace

from ..geometry import Extent, Path, Spot, tick_label
from .labels import LineLabel, MarkLabel, Surroundings, spread_ends, write_ends
from .style import LINE, NORMAL, ROOF_WIDTH, SMALL, Dash, Theme, drawable, theme_named

_WIDTH, _HEIGHT = 9.0, 5.4  # inches of a new figure, without its caption
_LETTERS, _WIDE_LETTERS = 125, 68  # that fit in a line of a caption, and of a title
_SAME_PLACE = 0.002  # of the axes: marks closer than this get one label


class Entry(Struct, frozen=True, kw_only=True):
    """A line of the legend: a mark or a line, and what it means."""

    text: str
    colour: str
    marker: str = ""
    dash: Dash = None
    filled: bool = True


class Axis(Struct, frozen=True, kw_only=True):
    """One axis: its label, the dimension of its numbers and the base of their powers."""

    label: str
    dimension: str = ""
    base: int = 10


class Sheet:
    """An axes being drawn on; ``height`` is that of a new figure in inches."""

    def __init__(self, ax: Axes | None, theme: str, extent: Extent, x: Axis, y: Axis, *, height: float = _HEIGHT) -> None:
        self.theme: Theme = theme_named(theme)
        self.owned = ax is None
        self.height = height
        self.ax = Figure(figsize=(_WIDTH, height)).subplots() if ax is None else ax
        self.inner = extent
        self._marks: list[MarkLabel] = []
        self._along: list[LineLabel] = []
        self._ends: list[list[Annotation]] = []
        self._foot: Annotation | None = None
        self._drawn: dict[str, int] = {}
        style_axes(self.ax, self.theme)
        self.ax.set(xlabel=drawable(x.label), ylabel=drawable(y.label))
        if extent.x_log:
            self.ax.set_xscale("log", base=x.base)
        if extent.y_log:
            self.ax.set_yscale("log", base=y.base)
        for which, axis, log, low, high in (
            (self.ax.xaxis, x, extent.x_log, extent.left, extent.right),
            (self.ax.yaxis, y, extent.y_log, extent.bottom, extent.top),
        ):
            label = tick_label(axis.dimension)
            if log:
                few = high / low < axis.base**2
                which.set_major_locator(LogLocator(axis.base, (1, 2, 5) if few and axis.base == 10 else (1,), numticks=9))
                which.set_minor_formatter(NullFormatter())
            else:
                which.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
            which.set_major_formatter(FuncFormatter(lambda value, _, label=label: label(value)))
        self.ax.set(xlim=(extent.left, extent.right), ylim=(extent.bottom, extent.top))

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
    ) -> None:
        """Draw a line; ``name`` is its entry in a legend that a caller makes."""
        points = tuple(path)
        if len(points) > 1:
            style = "solid" if dash is None else (0, dash)
            self.ax.plot(*zip(*points, strict=True), color=colour, lw=width, ls=style, label=name or "_", zorder=z, gid=self._name(kind))

    def area(self, path: Path, colour: str, *, strength: float = 1.0, kind: str = "area") -> None:
        """A shaded polygon."""
        if path:
            shade = min(1.0, self.theme.shade * strength)
            self.ax.fill(*zip(*path, strict=True), facecolor=colour, lw=0, alpha=shade, zorder=1, gid=self._name(kind))

    def bar(self, y: float, length: float, colour: str) -> None:
        """A horizontal bar from 0, in a row of its own that is 1 high."""
        self.ax.barh(y, length, height=0.68, color=colour, zorder=2, gid=self._name("bar"))

    def name_rows(self, rows: Iterable[tuple[float, str]]) -> None:
        """What the bars at these heights are of, left of the axis."""
        heights, names = zip(*rows, strict=True)
        self.ax.set_yticks(heights, [drawable(name) for name in names])
        self.ax.tick_params(axis="y", length=0)
        self.ax.grid(False, axis="y")

    def name_group(self, text: str, y: float) -> None:
        """A heading over bars."""
        self.ax.annotate(drawable(text), (0, y), (4, 0), textcoords="offset points", va="center", size=SMALL)

    def dot(
        self,
        x: float,
        y: float,
        colour: str,
        *,
        radius: float = 4.0,
        marker: str = "o",
        filled: bool = True,
        other: str | None = None,
        kind: str = "dot",
        z: float = 5,
    ) -> None:
        """Draw a mark; ``other`` colours its right half, for two series at one position."""
        paper = self.theme.background
        self.ax.plot(
            [x], [y], ls="none", marker=marker, markersize=2 * radius, fillstyle="left" if other else "full",
            markerfacecolor=colour if filled else paper, markerfacecoloralt=other or paper, markeredgecolor=paper if filled else colour,
            markeredgewidth=0.8 if filled else 1.5, label="_", zorder=z, clip_on=False, gid=self._name(kind),
        )  # fmt: skip

    def dots(self, spots: Sequence[Spot], radii: Sequence[float], colours: Sequence[str]) -> None:
        """Draw very many round marks at once, each with its radius and colour."""
        draw_dots(self.ax, spots, radii, colours, gid=self._name("dots"))

    def arrow(self, start: Spot, end: Spot, colour: str, *, bend: float = 0.0) -> None:
        """Draw an arrow, bent by this share of its length."""
        look = {"arrowstyle": "-|>", "color": colour, "lw": 1.3, "shrinkA": 7, "shrinkB": 7, "connectionstyle": f"arc3,rad={bend}"}
        self.ax.annotate("", end, start, arrowprops=look, annotation_clip=False, zorder=4, gid=self._name("arrow"), in_layout=False)

    def label(
        self, text: str, x: float, y: float, *, radius: float = 4.0, size: float = SMALL, weight: str = "normal", colour: str = ""
    ) -> None:
        """Ask for a label of a mark; earlier ones choose first, and marks in one place get one label: the first's, with their number."""
        self._marks.append(MarkLabel(text=drawable(text), x=x, y=y, radius=radius, size=size, weight=weight, colour=colour))

    def label_line(self, text: str, path: Path, *, prefer: float = 0.3, side: int = 1) -> None:
        """Ask for a label along a straight line: above it (1), below it (−1) or on it (0)."""
        if len(path) > 1:
            self._along.append(LineLabel(text=drawable(text), path=path, prefer=prefer, side=side))

    def label_ends(self, ends: Iterable[tuple[str, float]]) -> None:
        """Write labels right of the axes, at the heights of the lines that end there."""
        self.beside(self.ax, ends)

    def beside(self, ax: Axes, ends: Iterable[tuple[str, float]]) -> None:
        """The same right of other axes of the figure."""
        self._ends.append(write_ends(ax, ends, self.theme))

    def finish(self, title: str, *, subtitle: str = "", legend: Sequence[Entry] = (), caption: Sequence[str] = ()) -> Axes:
        """Write title, legend and caption, lay the figure out, and place the labels; ``caption`` are its paragraphs."""
        rows = self._legend(legend)
        above = rows * (SMALL + 6) + 6
        lines = textwrap.wrap(drawable(subtitle), _LETTERS)
        lift = ScaledTranslation(0, above / 72, self.ax.figure.dpi_scale_trans)
        about = self.ax.text(
            0, 1, "\n".join(lines), transform=self.ax.transAxes + lift, color=self.theme.muted, va="bottom", in_layout=False
        )
        about.set_gid("subtitle")
        heading = "\n".join(textwrap.wrap(drawable(title), _WIDE_LETTERS))
        self.ax.set_title(heading, loc="left", pad=above + len(lines) * NORMAL * LINE + 3)
        self._caption(caption, rows)
        cast(Figure, self.ax.get_figure(root=True)).draw_without_rendering()
        for column in self._ends:
            spread_ends(column)
        around = Surroundings(self.ax, self.theme)
        asked: list[tuple[str, bool]] = [(label.text, around.place_along(label)) for label in self._along]
        asked += [(label.text, around.place(label)) for label in self._together()]
        missing = [text.partition("\n")[0] for text, written in asked if not written]
        if missing:
            self._caption([*caption, f"No room for {len(missing)} label{'s' * (len(missing) > 1)}: {'; '.join(missing)}."], rows)
        return self.ax

    def _legend(self, entries: Sequence[Entry]) -> int:
        """The legend above the axes; returns its number of rows."""
        if not entries:
            return 0
        texts = [drawable(textwrap.shorten(entry.text, 80)) for entry in entries]
        columns = max(1, min(len(texts), _LETTERS // (max(map(len, texts)) + 8)))
        handles = [_handle(entry, self.theme) for entry in entries]
        # An underscore at the start of a label would hide the entry.
        shown = [f" {text}" if text.startswith("_") else text for text in texts]
        self.ax.legend(handles, shown, loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, borderaxespad=0.4)
        return -(-len(texts) // columns)

    def _caption(self, paragraphs: Sequence[str], rows: int) -> None:
        """The caption below everything, for which a new figure grows; wrapped to the figure's width."""
        lines = [line for text in paragraphs if text for line in textwrap.wrap(drawable(text), _LETTERS)]
        if self.owned and isinstance(figure := self.ax.figure, Figure):
            figure.set_size_inches(_WIDTH, self.height + (len(lines) * SMALL * LINE + rows * (SMALL + 6)) / 72)
            if lines:
                figure.supxlabel("\n".join(lines), x=0.02, ha="left", size=SMALL, color=self.theme.muted)
        elif lines:
            if self._foot is not None:
                self._foot.remove()
            self._foot = self.ax.annotate(
                "\n".join(lines), (0, 0), (0, -38), "axes fraction", "offset points", va="top", size=SMALL, color=self.theme.muted,
                annotation_clip=False, in_layout=False, gid="caption",
            )  # fmt: skip

    def _together(self) -> list[MarkLabel]:
        """The labels to place: of marks in one place the first, with the number of the others."""
        places: dict[tuple[int, int], list[MarkLabel]] = {}
        for label in self._marks:
            across, along = self.inner.unit(label.x, label.y)
            places.setdefault((round(across / _SAME_PLACE), round(along / _SAME_PLACE)), []).append(label)
        return [
            replace(first, text=f"{first.text}\nand {len(others):,} more here") if others else first for first, *others in places.values()
        ]

    def _name(self, kind: str) -> str:
        self._drawn[kind] = self._drawn.get(kind, 0) + 1
        return f"{kind}-{self._drawn[kind]}"


def bar_height(rows: int) -> float:
    """The inches of a figure of so many rows of bars."""
    return 1.1 + 0.235 * rows


def style_axes(ax: Axes, theme: Theme) -> None:
    """Colours, spines, ticks and grid of the current style, on axes that may have been made in another."""
    ax.figure.set_facecolor(theme.background)  # below the numbers of the axes too
    ax.set_facecolor(theme.background)
    for side, spine in ax.spines.items():
        spine.set(visible=side in ("left", "bottom"), color=theme.muted, linewidth=0.8)
    ax.tick_params(which="both", reset=True, top=False, right=False)
    ax.grid(True, "major")
    ax.set_axisbelow(True)


def draw_dots(ax: Axes, spots: Sequence[Spot], radii: Sequence[float], colours: Sequence[str], *, gid: str) -> None:
    """Round marks, each with its radius in points and its colour."""
    areas = [(2 * radius) ** 2 for radius in radii]
    xs, ys = zip(*spots, strict=True)
    ax.scatter(xs, ys, s=areas, c=list(colours), alpha=0.85, linewidths=0.7, label="_", zorder=5, clip_on=False, gid=gid)


def _handle(entry: Entry, theme: Theme) -> Line2D:
    line = Line2D(
        [], [], color=entry.colour, linestyle="none" if entry.marker else "solid", linewidth=ROOF_WIDTH, marker=entry.marker, markersize=7,
        markerfacecolor=entry.colour if entry.filled else theme.background, markeredgewidth=0 if entry.filled else 1.4,
    )  # fmt: skip
    if entry.dash:
        line.set_linestyle((0, entry.dash))
    return line
