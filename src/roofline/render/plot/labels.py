"""Labels in a chart, each where it covers no mark, no other label, and no line if it can: matplotlib measures texts and paths."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.path import Path
from matplotlib.patheffects import withStroke
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Affine2D, Bbox
from msgspec import Struct

from ..geometry import Spot
from .style import NORMAL, SMALL, Theme, drawable

_DISTANCES = (2.0, 6.0, 12.0, 20.0, 30.0, 42.0, 56.0, 72.0, 90.0, 110.0)  # points between a mark and its label
_LEADER_FROM = 9.0  # points: a label farther from its mark is joined to it by a line
_DIRECTIONS = ((1, 0), (1, -1), (-1, 1), (-1, 0), (1, 1), (-1, -1), (0, 1), (0, -1), (2, 1), (-2, 1), (2, -1), (-2, -1))
_GAP = 2.0  # points around a label
_HALO = 2.5  # points around letters, so that they are legible over lines
_STEPS = 24  # places to try along a line
_UPRIGHT = Affine2D()


class MarkLabel(Struct, frozen=True, kw_only=True):
    """The words of a mark at a position of the axes; ``radius`` is that of the mark, in points."""

    text: str
    x: float
    y: float
    radius: float = 4.0
    size: float = SMALL
    weight: str = "normal"
    colour: str = ""


class LineLabel(Struct, frozen=True, kw_only=True):
    """Words along a straight line: above it (1), below it (−1) or on it (0), near this share of its length."""

    text: str
    path: Sequence[Spot]
    prefer: float
    side: int = 1


class Surroundings:
    """What labels of axes must not cover, in pixels: marks, lines and the labels that are there. The axes must have their final size."""

    def __init__(self, ax: Axes, theme: Theme) -> None:
        self.ax, self.theme = ax, theme
        self.pixel = ax.figure.dpi / 72  # of a point
        self.area: Bbox = ax.get_window_extent()
        marks: list[tuple[float, float, float]] = []
        self.lines: list[Path] = []
        for line in ax.lines:
            path = line.get_transform().transform_path(line.get_path())
            if line.get_marker() not in ("None", "none", "", None):
                marks += [(x, y, line.get_markersize() / 2) for x, y in np.asarray(path.vertices)]
            else:
                self.lines.append(path)
        for dots in ax.collections:
            if isinstance(dots, PathCollection):
                places = dots.get_offset_transform().transform(dots.get_offsets())
                marks += [(x, y, math.sqrt(area) / 2) for (x, y), area in zip(places, dots.get_sizes(), strict=True)]
        self.marks = np.array(marks, dtype=float).reshape(-1, 3) * (1, 1, self.pixel)
        self.taken = [_outline(text.get_window_extent()) for text in ax.texts if text.get_text()]
        self.leaders: list[Path] = []

    def is_free(self, box: Bbox, turn: Affine2D = _UPRIGHT, *, cross: bool = False) -> bool:
        """Whether a box, turned around its centre, is inside the axes and covers nothing; lines only with ``cross``."""
        corners, inside = turn.transform(box.corners()), self.area.padded(1)
        if not all(inside.contains(x, y) for x, y in corners):
            return False
        back = turn.inverted()
        if len(self.marks):
            x, y = back.transform(self.marks[:, :2]).T
            away = np.hypot(np.clip(x, box.x0, box.x1) - x, np.clip(y, box.y0, box.y1) - y)
            if (away < self.marks[:, 2] + _GAP * self.pixel).any():
                return False
        around = box.padded(_GAP * self.pixel)
        if any(back.transform_path(path).intersects_bbox(around) for path in self.taken):
            return False
        thin = self.leaders if cross else [*self.leaders, *self.lines]
        return not any(back.transform_path(path).intersects_bbox(around, filled=False) for path in thin)

    def is_clear(self, leader: Path) -> bool:
        """Whether a leader covers no label."""
        return not any(leader.intersects_path(path) for path in self.taken)

    def place(self, label: MarkLabel) -> bool:
        """Write a label beside its mark, near it and off all lines if possible; whether there is room at all."""
        text = self._text(label.text, label.size, label.weight, label.colour)
        spot = self._pixel_of(label.x, label.y)
        box = text.get_window_extent()
        for cross in (False, True):
            for distance in _DISTANCES:
                for across, along in _DIRECTIONS:
                    moved = self._moved_inside(_beside(box, spot, across, along, (label.radius + distance) * self.pixel))
                    leader = _leader(spot, moved) if distance > _LEADER_FROM else None
                    if self.is_free(moved, cross=cross) and (leader is None or self.is_clear(leader)):
                        self._write(text, label, moved, leader)
                        return True
        text.remove()
        return False

    def place_along(self, label: LineLabel) -> bool:
        """Write a label along a line, off all other lines; whether there is room."""
        text = self._text(label.text, SMALL)
        (x0, y0), (x1, y1) = self.ax.transData.transform((label.path[0], label.path[-1]))
        box = text.get_window_extent()
        length, angle = math.hypot(x1 - x0, y1 - y0), math.atan2(y1 - y0, x1 - x0)
        away = label.side * (box.height / 2 + _GAP * self.pixel + 1)
        half = box.width / 2 / length
        shares = [half + (1 - 2 * half) * step / _STEPS for step in range(_STEPS + 1)] if half < 0.5 else []
        for share in sorted(shares, key=lambda share: abs(share - label.prefer)):
            x = x0 + share * (x1 - x0) - away * math.sin(angle)
            y = y0 + share * (y1 - y0) + away * math.cos(angle)
            moved, turn = _centred(box, x, y), Affine2D().rotate_around(x, y, angle)
            if self.is_free(moved, turn):
                text.set(position=self._inside(x, y), rotation=math.degrees(angle), gid="along-line")
                self.taken.append(turn.transform_path(_outline(moved)))
                return True
        text.remove()
        return False

    def _moved_inside(self, box: Bbox) -> Bbox:
        """A box that would leave the axes, at their edge."""
        right = max(self.area.x0 - box.x0, 0) + min(self.area.x1 - box.x1, 0)
        up = max(self.area.y0 - box.y0, 0) + min(self.area.y1 - box.y1, 0)
        return box.translated(right, up)

    def _text(self, words: str, size: float, weight: str = "normal", colour: str = "") -> Text:
        return self.ax.text(
            0.5, 0.5, words, transform=self.ax.transAxes, size=size, weight=weight, color=colour or self.theme.ink, ha="center",
            va="center", zorder=7, in_layout=False, path_effects=[withStroke(linewidth=_HALO, foreground=self.theme.background)],
        )  # fmt: skip

    def _pixel_of(self, x: float, y: float) -> Spot:
        across, along = self.ax.transData.transform((x, y))
        return float(across), float(along)

    def _inside(self, x: float, y: float) -> Spot:
        """A pixel as a fraction of the axes' width and height."""
        across, along = self.ax.transAxes.inverted().transform((x, y))
        return float(across), float(along)

    def _write(self, text: Text, label: MarkLabel, box: Bbox, leader: Path | None) -> None:
        x, y = (box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2
        mark, _ = self._pixel_of(label.x, label.y)
        text.set(position=self._inside(x, y), gid="beside-mark")
        if not box.x0 < mark < box.x1:
            text.set_multialignment("left" if box.x0 >= mark else "right")
        self.taken.append(_outline(box))
        if leader is not None:
            (across, along), (end_x, end_y) = (self._inside(*spot) for spot in np.asarray(leader.vertices))
            self.ax.annotate(
                "", (across, along), (end_x, end_y), "axes fraction", zorder=4, gid="leader", in_layout=False,
                arrowprops={"arrowstyle": "-", "color": self.theme.muted, "linewidth": 0.7, "shrinkA": 0, "shrinkB": label.radius},
            )  # fmt: skip
            self.leaders.append(leader)


def _outline(box: Bbox) -> Path:
    return Path(np.array([*box.corners()[[0, 1, 3, 2]], box.corners()[0]]), closed=True)


def _centred(box: Bbox, x: float, y: float) -> Bbox:
    return Bbox.from_bounds(x - box.width / 2, y - box.height / 2, box.width, box.height)


def _beside(box: Bbox, spot: Spot, across: int, along: int, distance: float) -> Bbox:
    """A box in one of the directions around a mark; 2 across is half a box further up or down than level."""
    x, y = spot
    slant = distance * (math.sqrt(0.5) if abs(across) == abs(along) == 1 else 1.0)
    side = math.copysign(1, across) if across else 0
    up = along * (box.height / 2 if abs(across) == 2 else slant + box.height / 2)
    return _centred(box, x + side * (slant + box.width / 2), y + up)


def _leader(spot: Spot, box: Bbox) -> Path:
    """The line from a mark to the nearest point of its label."""
    x, y = spot
    return Path([(x, y), (min(max(x, box.x0), box.x1), min(max(y, box.y0), box.y1))])


def write_ends(ax: Axes, ends: Iterable[tuple[str, float]], theme: Theme) -> list[Annotation]:
    """Labels right of the axes at these heights, for which matplotlib's layout makes room."""
    look = {"arrowstyle": "-", "color": theme.muted, "linewidth": 0.7, "shrinkA": 0, "shrinkB": 0, "relpos": (0, 0.5)}
    return [
        ax.annotate(
            drawable(text), (1, height), (8, 0), ax.get_yaxis_transform(), textcoords="offset points", size=SMALL, va="center",
            annotation_clip=False, arrowprops=look, gid="at-end",
        )
        for text, height in sorted(ends, key=lambda end: end[1])
    ]  # fmt: skip


def spread_ends(ends: Sequence[Annotation]) -> None:
    """Move the labels of one column up, and down again where they would leave the axes, until none covers another."""
    if not ends:
        return
    ax, pixel = ends[0].axes, ends[0].figure.dpi / 72
    assert ax is not None
    wanted = [ax.transData.transform((ax.get_xlim()[1], end.xy[1]))[1] / pixel for end in ends]
    line, top = NORMAL * 1.2, ax.bbox.y1 / pixel
    heights: list[float] = []
    for height in wanted:
        heights.append(max(height, heights[-1] + line) if heights else height)
    for place in reversed(range(len(heights))):
        heights[place], top = min(heights[place], top), min(heights[place], top) - line
    for end, height, at in zip(ends, heights, wanted, strict=True):
        end.set_position((8, height - at))
