"""Label placement on a chart, deterministic.

Lengths are points (1/72 inch) from the chart's bottom left corner; the caller measures texts with its own font. Labels never cover a mark,
each other, a leader or a reserved box, and avoid lines where possible. A label that has to move away from its mark gets a leader line, one
that fits nowhere becomes a number in a key, and one whose number fits nowhere is dropped and counted.
"""

import math
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from .boxes import Box, Scene, Segment
from .geometry import Spot

Size = tuple[float, float]

LEADER_FROM = 9.0  # a label farther from its mark than this gets a leader
_RINGS = (2.0, 5.0, 9.0, 14.0, 20.0, 28.0, 38.0, 50.0, 64.0, 80.0, 100.0, 124.0)
_LINE_GAP = 3.0  # points between a line and the text along it
_TOUCHING = 1e-6  # points: tolerance for discs that touch
_CROSSED_LEADER, _LEADER_OVER_MARK, _NEARER_STRANGER, _LEADER_OVER_LINE = 60.0, 40.0, 8.0, 3.0


class Label(Struct, frozen=True):
    """The text of a mark: the mark's position and radius, the text's measured size."""

    text: str
    x: float
    y: float
    size: Size
    radius: float = 3.0


class Placed(Struct, frozen=True):
    """A placed label: its box, the leader from mark to box if it moved away, its number if the text is in the key."""

    index: int
    box: Box
    leader: Segment | None = None
    number: int | None = None


class Layout(Struct, frozen=True, kw_only=True):
    """The result for all labels: placed on the chart (some as numbers), numbered in the key, or dropped for lack of space."""

    placed: tuple[Placed, ...] = ()
    key: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()


def place_labels(labels: Sequence[Label], scene: Scene, digit: Size = (6.0, 10.0), first: int = 1) -> Layout:
    """Place each label at the cheapest free position near its mark; earlier labels choose first.

    A label without a position off all lines becomes a number in the key; it covers a line only when that fails too.
    ``digit`` is the measured size of one digit, for numbers that refer to the key, which start at ``first``.
    """
    placed: list[Placed] = []
    key: list[int] = []
    dropped: list[int] = []
    for index, label in enumerate(labels):
        number = first + len(key)
        short = replace(label, size=(digit[0] * len(str(number)), digit[1]))
        tries = ((label, False), (short, False), (label, True), (short, True))
        found = next(((asked, place) for asked, cross in tries if (place := _cheapest(asked, scene, cross=cross))), None)
        if found is None:
            dropped.append(index)
            continue
        asked, (box, leader) = found
        if asked is short:
            key.append(index)
        placed.append(Placed(index, box, leader, number if asked is short else None))
        scene = replace(scene, boxes=(*scene.boxes, box), leaders=(*scene.leaders, leader) if leader else scene.leaders)
    return Layout(placed=tuple(placed), key=tuple(key), dropped=tuple(dropped))


def _cheapest(label: Label, scene: Scene, *, cross: bool) -> tuple[Box, Segment | None] | None:
    """The cheapest free position for a label; it covers lines only with ``cross``."""
    best: tuple[float, Box, Segment | None] | None = None
    for ring in _RINGS:
        if best is not None and ring >= best[0]:
            break
        for order, box in enumerate(_around(label, ring)):
            least = ring + 0.35 * order
            if (best is not None and least >= best[0]) or not scene.is_free(box) or (not cross and scene.crosses_line(box)):
                continue
            leader = _leader(label, box)
            if leader and any(other.grown(1).crossed_by(leader) for other in scene.boxes):
                continue
            cost = least + _penalty(label, box, leader, scene)
            if best is None or cost < best[0]:
                best = cost, box, leader
    return None if best is None else (best[1], best[2])


def _around(label: Label, ring: float) -> Iterable[Box]:
    """Boxes that touch a ring around the mark, in order of preference."""
    width, height = label.size
    near = label.radius + ring
    slant = near * math.sqrt(0.5)
    across, along = near + width / 2, near + height / 2
    offsets = [
        (across, 0.0),
        (slant + width / 2, -slant - height / 2),
        (-slant - width / 2, slant + height / 2),
        (-across, 0.0),
        (slant + width / 2, slant + height / 2),
        (-slant - width / 2, -slant - height / 2),
        (0.0, along),
        (0.0, -along),
        *((side * across, shift * height / 2) for side in (1, -1) for shift in (1, -1)),
        *((shift * width / 4, side * along) for side in (1, -1) for shift in (1, -1)),
        *((shift * width / 2, side * along) for side in (1, -1) for shift in (1, -1)),
    ]
    if ring > LEADER_FROM:
        for eighth in (1, 3, 5, 7, 9, 11, 13, 15):
            cos, sin = math.cos(eighth * math.pi / 8), math.sin(eighth * math.pi / 8)
            offsets.append((near * cos + math.copysign(width / 2, cos), near * sin + math.copysign(height / 2, sin)))
    return (Box(label.x + dx, label.y + dy, width, height) for dx, dy in offsets)


def _leader(label: Label, box: Box) -> Segment | None:
    """The line from the mark's edge to the box, when the box is not next to the mark."""
    distance = box.distance(label.x, label.y)
    if distance <= label.radius + LEADER_FROM:
        return None
    x, y = box.nearest(label.x, label.y)
    share = label.radius / math.hypot(x - label.x, y - label.y)
    return (label.x + share * (x - label.x), label.y + share * (y - label.y)), (x, y)


def _penalty(label: Label, box: Box, leader: Segment | None, scene: Scene) -> float:
    """The cost of a position in addition to its distance. Marks that overlap the label's own mark cannot be avoided and are not counted."""
    strangers = [disc for disc in scene.discs if math.hypot(disc.x - label.x, disc.y - label.y) > disc.radius + label.radius]
    if leader is None:
        own = box.distance(label.x, label.y) - label.radius
        return _NEARER_STRANGER * any(box.distance(disc.x, disc.y) - disc.radius < own - 0.5 for disc in strangers)
    cost = _LEADER_OVER_MARK * sum(_reach(leader, disc.x, disc.y) < disc.radius for disc in strangers)
    cost += _CROSSED_LEADER * sum(_cross(leader, other) for other in scene.leaders)
    return cost + _LEADER_OVER_LINE * sum(_cross(leader, line) for line in scene.lines)


def _reach(segment: Segment, x: float, y: float) -> float:
    """The distance from a point to a segment."""
    (x0, y0), (x1, y1) = segment
    dx, dy = x1 - x0, y1 - y0
    length = dx * dx + dy * dy
    along = max(0.0, min(1.0, ((x - x0) * dx + (y - y0) * dy) / length)) if length else 0.0
    return math.hypot(x - x0 - along * dx, y - y0 - along * dy)


def _cross(one: Segment, other: Segment) -> bool:
    """Whether two segments cross."""

    def side(a: Spot, b: Spot, c: Spot) -> float:
        return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])

    (a, b), (c, d) = one, other
    return side(a, b, c) * side(a, b, d) < 0 and side(c, d, a) * side(c, d, b) < 0


def slide(segment: Segment, size: Size, scene: Scene, *, prefer: float = 0.3, sides: Sequence[int] = (1, -1)) -> Box | None:
    """A box for text along a straight line, above or below it, as near as possible to a preferred share of its length.

    ``None`` when no free stretch is long enough: such text never crosses another line. A side of 0 is on the line itself.
    """
    (x0, y0), (x1, y1) = segment
    length, angle = math.hypot(x1 - x0, y1 - y0), math.atan2(y1 - y0, x1 - x0)
    width, height = size
    if length < width:
        return None
    half = width / 2 / length
    shares = sorted((half + (1 - 2 * half) * step / 24 for step in range(25)), key=lambda share: abs(share - prefer))
    for side in sides:
        away = side * (height / 2 + _LINE_GAP)
        for share in shares:
            x = x0 + share * (x1 - x0) - away * math.sin(angle)
            y = y0 + share * (y1 - y0) + away * math.cos(angle)
            box = Box(x, y, width, height, angle)
            if scene.is_free(box, gap=1.5) and not scene.crosses_line(box, gap=0.5):
                return box
    return None


def swarm(heights: Sequence[float], radii: Sequence[float], width: float) -> tuple[float, ...]:
    """The smallest horizontal shifts, within half a ``width``, so that discs of one column do not overlap; earlier ones choose first.

    >>> swarm([10.0, 10.0, 50.0], [3.0, 3.0, 3.0], 20.0)
    (0.0, 6.0, 0.0)
    """
    shifts: list[float] = []
    for index, (height, radius) in enumerate(zip(heights, radii, strict=True)):
        near = [other for other in range(index) if abs(heights[other] - height) < radii[other] + radius]
        wanted = [0.0]
        for other in near:
            distance = math.sqrt((radii[other] + radius) ** 2 - (heights[other] - height) ** 2)
            wanted += [shifts[other] + distance, shifts[other] - distance]
        free = [
            shift
            for shift in wanted
            if abs(shift) <= width / 2
            and all(math.hypot(shift - shifts[other], height - heights[other]) >= radii[other] + radius - _TOUCHING for other in near)
        ]
        shifts.append(min(free, key=abs) if free else _least_crowded(index, heights, shifts, width))
    return tuple(shifts)


def _least_crowded(index: int, heights: Sequence[float], shifts: Sequence[float], width: float) -> float:
    """The shift with the least overlap in a crowded column."""
    steps = sorted((width * (step / 12 - 0.5) for step in range(13)), key=abs)
    return max(steps, key=lambda shift: min(math.hypot(shift - other, heights[index] - heights[at]) for at, other in enumerate(shifts)))


def spread(wanted: Sequence[float], heights: Sequence[float], low: float, high: float) -> tuple[float, ...]:
    """Centres for boxes in one column, in the same order, without overlap, each as near as possible to its wanted position.

    >>> spread([10.0, 11.0, 40.0], [10.0, 10.0, 10.0], 0.0, 100.0)
    (5.5, 15.5, 40.0)
    """
    order = sorted(range(len(wanted)), key=lambda index: (wanted[index], index))
    groups: list[tuple[float, float, list[int]]] = []  # bottom, height, members: boxes that touch move together
    for index in order:
        bottom, height, members = wanted[index] - heights[index] / 2, heights[index], [index]
        while groups and groups[-1][0] + groups[-1][1] > bottom:
            below = groups.pop()
            members = below[2] + members
            height += below[1]
            bottom = _centred(members, wanted, heights)
        groups.append((bottom, height, members))
    centres = [0.0] * len(wanted)
    floor = low
    for bottom, height, members in _kept_below(groups, high):
        at = max(bottom, floor)
        for index in members:
            centres[index] = at + heights[index] / 2
            at += heights[index]
        floor = max(bottom, floor) + height
    return tuple(centres)


def _centred(members: Sequence[int], wanted: Sequence[float], heights: Sequence[float]) -> float:
    """The bottom of a stack whose members are on average at their wanted positions."""
    offset, total = 0.0, 0.0
    for index in members:
        total += wanted[index] - (offset + heights[index] / 2)
        offset += heights[index]
    return total / len(members)


def _kept_below(groups: list[tuple[float, float, list[int]]], high: float) -> list[tuple[float, float, list[int]]]:
    """The same stacks, moved down where they would exceed the top."""
    kept = []
    ceiling = high
    for bottom, height, members in reversed(groups):
        bottom = min(bottom, ceiling - height)
        kept.append((bottom, height, members))
        ceiling = bottom
    return kept[::-1]
