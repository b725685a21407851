"""Boxes, marks and lines on a page, and whether they touch. Lengths are points (1/72 inch) from a chart's bottom left corner."""

import math

from msgspec import Struct
from msgspec.structs import replace

from .geometry import Spot

Segment = tuple[Spot, Spot]
GAP = 2.5  # between a label and anything it must not cover


class Box(Struct, frozen=True):
    """A rectangle: its centre, its size and its rotation in radians."""

    x: float
    y: float
    width: float
    height: float
    angle: float = 0.0

    @property
    def corners(self) -> tuple[Spot, Spot, Spot, Spot]:
        cos, sin = math.cos(self.angle), math.sin(self.angle)
        half_w, half_h = self.width / 2, self.height / 2
        return (
            (self.x - half_w * cos + half_h * sin, self.y - half_w * sin - half_h * cos),
            (self.x + half_w * cos + half_h * sin, self.y + half_w * sin - half_h * cos),
            (self.x + half_w * cos - half_h * sin, self.y + half_w * sin + half_h * cos),
            (self.x - half_w * cos - half_h * sin, self.y - half_w * sin + half_h * cos),
        )

    def grown(self, by: float) -> "Box":
        return replace(self, width=self.width + 2 * by, height=self.height + 2 * by)

    def overlaps(self, other: "Box") -> bool:
        """Whether two boxes share any area."""
        if not self.angle and not other.angle:
            across = abs(self.x - other.x) < (self.width + other.width) / 2
            return across and abs(self.y - other.y) < (self.height + other.height) / 2
        return not _separated(self, other)

    def distance(self, x: float, y: float) -> float:
        """The distance of a point from the box; 0 inside."""
        across, along = self._local(x, y)
        return math.hypot(max(0.0, abs(across) - self.width / 2), max(0.0, abs(along) - self.height / 2))

    def crossed_by(self, segment: Segment) -> bool:
        """Whether a line segment passes through the box."""
        (x0, y0), (x1, y1) = self._local(*segment[0]), self._local(*segment[1])
        enter, leave = 0.0, 1.0
        for start, end, half in ((x0, x1, self.width / 2), (y0, y1, self.height / 2)):
            step = end - start
            if step == 0:
                if abs(start) >= half:
                    return False
                continue
            near, far = sorted(((-half - start) / step, (half - start) / step))
            enter, leave = max(enter, near), min(leave, far)
            if enter >= leave:
                return False
        return True

    def nearest(self, x: float, y: float) -> Spot:
        """The point of an upright box that is nearest to another point."""
        return (
            min(max(x, self.x - self.width / 2), self.x + self.width / 2),
            min(max(y, self.y - self.height / 2), self.y + self.height / 2),
        )

    def _local(self, x: float, y: float) -> Spot:
        dx, dy = x - self.x, y - self.y
        if not self.angle:
            return dx, dy
        cos, sin = math.cos(self.angle), math.sin(self.angle)
        return dx * cos + dy * sin, dy * cos - dx * sin


def _separated(one: Box, other: Box) -> bool:
    """Whether the line through some side of one box separates it from the other box."""
    for angle in (one.angle, one.angle + math.pi / 2, other.angle, other.angle + math.pi / 2):
        cos, sin = math.cos(angle), math.sin(angle)
        mine = [x * cos + y * sin for x, y in one.corners]
        theirs = [x * cos + y * sin for x, y in other.corners]
        if max(mine) <= min(theirs) or max(theirs) <= min(mine):
            return True
    return False


class Disc(Struct, frozen=True):
    """A mark, as the circle around it."""

    x: float
    y: float
    radius: float


def _near(box: Box, disc: Disc, gap: float) -> bool:
    """Whether a mark is closer to a box than ``gap``; one coordinate rules out most marks."""
    reach = disc.radius + gap
    if not box.angle and (abs(disc.x - box.x) >= box.width / 2 + reach or abs(disc.y - box.y) >= box.height / 2 + reach):
        return False
    return box.distance(disc.x, disc.y) < reach


class Scene(Struct, frozen=True, kw_only=True):
    """What the chart already contains: marks, lines, reserved boxes and leaders."""

    width: float
    height: float
    discs: tuple[Disc, ...] = ()
    lines: tuple[Segment, ...] = ()
    boxes: tuple[Box, ...] = ()
    leaders: tuple[Segment, ...] = ()

    def contains(self, box: Box) -> bool:
        return all(1 <= x <= self.width - 1 and 1 <= y <= self.height - 1 for x, y in box.corners)

    def is_free(self, box: Box, gap: float = GAP) -> bool:
        """Whether a box is inside the chart and covers nothing but lines."""
        around = box.grown(gap)
        return (
            self.contains(box)
            and not any(around.overlaps(other) for other in self.boxes)
            and not any(_near(box, disc, gap) for disc in self.discs)
            and not any(around.crossed_by(leader) for leader in self.leaders)
        )

    def crosses_line(self, box: Box, gap: float = 1.0) -> bool:
        around = box.grown(gap)
        return any(around.crossed_by(line) for line in self.lines)
