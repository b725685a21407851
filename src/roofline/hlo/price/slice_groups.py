"""Which axes of a slice the groups of a collective span, from the numbers of their devices.

Devices are numbered along the last axis first, those of one chip next to each other. A program numbers them by its own mesh, whose place on
the slice it does not contain: where groups are not whole axes in this order, a compact group is assumed.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import gcd, prod

from msgspec import Struct

from ...formulas.slices import Plan, Span
from ...topology import Axis, Topology, Torus
from ..ir.attributes import ReplicaGroups


def span_of(groups: ReplicaGroups | None, size: int, topology: Topology) -> Span:
    """The axes that groups of this size span."""
    if size == topology.devices:
        return Span(topology.axes, inside=topology.devices_per_chip, places=tuple(range(len(topology.axes))))
    listed = groups.groups if groups is not None else ()
    axes = _spanned(listed, size, topology)
    if axes is None:
        inside = gcd(size, topology.devices_per_chip)
        return Span(_compact(size // inside, topology), inside, topology.devices_per_chip // inside, assumed=True)
    inside = topology.devices_per_chip if len(topology.axes) in axes else 1
    places = tuple(place for place in range(len(topology.axes)) if place in axes)
    return Span(tuple(topology.axes[place] for place in places), inside, topology.devices_per_chip // inside, places=places)


def planned_span(span: Span, plan: Plan | None, topology: Topology | None, torus: Torus | None) -> Span:
    """The axes that the compiler says a group spans, if it names several: its order of the devices is the real one.

    Which of them wrap is known from the slice or, without one, from the ``torus`` of the chip.
    """
    sides = tuple(side for side in plan.sides if side > 1) if plan and torus else ()
    if (
        torus is None
        or len(sides) < 2
        or prod(sides) != span.chips
        or sorted(sides) == sorted(axis.size for axis in span.axes if axis.size > 1)
    ):
        return span
    known = {axis.size: axis for axis in (topology.axes if topology else ())}
    axes = tuple(known.get(side) or torus.axis(side) for side in sides)
    return Span(axes, span.inside, span.sharing)


def _spanned(groups: Sequence[tuple[int, ...]], size: int, topology: Topology) -> frozenset[int] | None:
    """The axes, by number, that every group spans whole; the devices of a chip are the one after the last. ``None`` if they do not."""
    axes: frozenset[int] | None = None
    for group in groups:
        places = [_place(device, topology) for device in group]
        varied = frozenset(axis for axis in range(len(topology.axes) + 1) if len({place[axis] for place in places}) > 1)
        if axes not in (None, varied) or max(group, default=0) >= topology.devices:
            return None
        axes = varied
    sides = (*(axis.size for axis in topology.axes), topology.devices_per_chip)
    return axes if axes and prod(sides[axis] for axis in axes) == size else None


def _place(device: int, topology: Topology) -> tuple[int, ...]:
    """Where a device is: its index along each axis, and on its chip."""
    place = []
    for side in reversed((*(axis.size for axis in topology.axes), topology.devices_per_chip)):
        device, index = divmod(device, side)
        place.append(index)
    return tuple(reversed(place))


def _compact(chips: int, topology: Topology) -> tuple[Axis, ...]:
    """The block of a slice with so many chips that has the most links; a part of an axis is a line. A ring where there is no such block."""
    blocks = [block for block in _blocks(chips, topology.axes) if prod(axis.size for axis in block) == chips]
    return max(blocks, key=lambda block: Span(block).route.lanes, default=(Axis(chips, wraps=True),))


def _blocks(chips: int, axes: tuple[Axis, ...]) -> Iterator[tuple[Axis, ...]]:
    """The blocks of a slice whose sides divide a number of chips."""
    if not axes:
        yield ()
        return
    for side in range(1, axes[0].size + 1):
        if chips % side == 0:
            yield from ((Axis(side, axes[0].wraps and side == axes[0].size), *rest) for rest in _blocks(chips // side, axes[1:]))


class Crossed(Struct, frozen=True):
    """How many payloads of a permute cross the busiest link in one direction, and over how many links the longest goes.

    ``assumed`` is true where a pair differs in several axes: its devices are then taken to be neighbours. ``axes`` are the numbers of those
    that payloads go along, where that is known.
    """

    payloads: int
    links: int
    assumed: bool = False
    axes: tuple[int, ...] = ()


def crossed_links(pairs: Sequence[tuple[int, int]], topology: Topology) -> Crossed:
    """The links that a permute crosses, each payload the short way round."""
    chips = [tuple(_place(device, topology)[:-1] for device in pair) for pair in pairs]
    moved = [[axis for axis in range(len(topology.axes)) if start[axis] != end[axis]] for start, end in chips]
    if max(map(len, moved), default=0) > 1 or max(map(max, pairs), default=0) >= topology.devices:
        between = Counter(pair for pair in chips if pair[0] != pair[1])
        return Crossed(max(between.values(), default=0), 1, assumed=True)
    load: Counter[tuple[object, ...]] = Counter()
    farthest = 0
    for (start, end), axes in zip(chips, moved, strict=True):
        for axis in axes:
            path = _path(start[axis], end[axis], topology.axes[axis])
            farthest = max(farthest, len(path) - 1)
            load.update((axis, start[:axis], start[axis + 1 :], before, other) for before, other in pairwise(path))
    return Crossed(max(load.values(), default=0), farthest, axes=tuple(sorted({axis for axes in moved for axis in axes})))


def _path(start: int, end: int, axis: Axis) -> list[int]:
    """The chips from one to another along an axis."""
    ahead = (end - start) % axis.size
    if not axis.is_ring:
        return list(range(start, end + 1)) if start < end else list(range(start, end - 1, -1))
    if 2 * ahead <= axis.size:
        return [(start + step) % axis.size for step in range(ahead + 1)]
    return [(start - step) % axis.size for step in range(axis.size - ahead + 1)]
