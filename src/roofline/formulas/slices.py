"""Collectives on a slice: bytes through the busiest link of the axes that a group of devices spans, and of the links that a compiler uses.

An axis that wraps is a ring, any other a line, whose end chips have one link: gathering over a line of n brings (n−1)/n of the result
through that link, twice as much as over a ring; reducing over a line takes the payload, (n−1)/n of it over a ring.
"""

from math import prod

from msgspec import Struct

from ..ledger import Ledger
from ..topology import Axis
from ..units import percent
from .collective import Route, hop_work, sends
from .notation import Dim, Link, ratio

GATHERS, REDUCES, EXCHANGES = ("all-gather", "reduce-scatter"), ("all-reduce",), ("all-to-all", "ragged-all-to-all")


class Span(Struct, frozen=True):
    """The axes of a slice that a group spans, ``inside`` devices of each chip; ``sharing`` groups are on the same chips, and links.

    ``places`` are the numbers of the axes. ``assumed`` is true where the devices' numbers do not say which axes they are, and a compact
    group is taken.
    """

    axes: tuple[Axis, ...]
    inside: int = 1
    sharing: int = 1
    assumed: bool = False
    places: tuple[int, ...] = ()

    @property
    def chips(self) -> int:
        return prod(axis.size for axis in self.axes)

    @property
    def route(self) -> Route:
        """All links of these axes."""
        return Route(sides=tuple(axis.size for axis in self.axes), algorithm="torus", lines=tuple(not axis.is_ring for axis in self.axes))

    def __str__(self) -> str:
        return " x ".join(str(axis) for axis in self.axes if axis.size > 1)


class Plan(Struct, frozen=True):
    """How a compiler says that it runs a collective: the name of its strategy, the links it uses at once, the sides of the group."""

    name: str
    lanes: int
    sides: tuple[int, ...] = ()

    def __str__(self) -> str:
        over = f" over {'x'.join(map(str, self.sides))}" if self.sides else ""
        return f"{self.name}{over}, {self.lanes} link{'s' if self.lanes > 1 else ''} of a chip at once"


def slice_ledger(kind: str, size: int, devices: int, span: Span, plan: Plan | None, link: Link) -> Ledger:
    """The ledger of a collective whose groups span axes of a slice; ``size`` is each device's bytes before it.

    The busiest link carries at least what the axes need, and at least what the links need that the compiler's plan uses.
    """
    route = span.route
    by_axes, what = _share(kind, route)
    by_plan = _planned(kind, route.chips, plan) if plan else 0
    share = max(by_axes, by_plan) * span.sharing
    whole = size * devices if kind == "all-gather" else size * (span.inside if kind in EXCHANGES else 1)
    rows = sends("payload", (whole,), "uint8", share, link)
    twice = 2 if kind in REDUCES else 1
    notes = [f"over {span}, {route.chips} chips: {percent(float(share))} of {what}, through the busiest link in one direction"]
    if span.sharing > 1:
        notes.append(f"the groups of the {span.sharing} devices of a chip share its links")
    if plan and by_plan > by_axes:
        notes.append(f"the compiler's {plan}: all links of these axes would carry {percent(float(by_axes * span.sharing))}")
    if span.assumed:
        notes.append("the devices' numbers do not say which axes the group spans: a compact group is assumed")
    return Ledger(kind, hop_work(link, twice * route.hops), rows, tuple(notes))


def _share(kind: str, route: Route) -> tuple[Dim, str]:
    """The share of a payload that crosses the busiest link of a route, and whose share it is."""
    if kind in GATHERS:
        return route.gathered, "the result" if kind == "all-gather" else "the input"
    if kind in REDUCES:
        return route.reduced, "the payload"
    if kind in EXCHANGES:
        return route.exchanged, "a device's buffer"
    return 1, "the payload"  # from one device to all, or from all to one


def _planned(kind: str, chips: Dim, plan: Plan) -> Dim:
    """The share of a payload over the links that a plan uses."""
    if kind not in (*GATHERS, *REDUCES):
        return 0
    return ratio((2 if kind in REDUCES else 1) * (chips - 1), chips * plan.lanes)
