"""Collectives: bytes through the busiest link in one direction, and hops, from the payload and the shape of the network.

A route is how a group of p chips is wired:

    ring           one ring, one direction                       1 lane
    bidirectional  one ring, both directions                     2 lanes
    torus          rings along up to three axes, both directions  2 lanes per axis; needs wraparound links
    switch         every chip one hop from every other           1 lane

An axis of two chips has one link, so one lane; so has the last chip of a line, an axis of a slice without a wraparound link. `links`
parallel links widen each lane. A payload in bytes is that many elements of `uint8`.
"""

import re
from math import prod
from typing import Annotated, Unpack

from msgspec import Struct

from ..cost import NOTHING, Cost, plain_number
from ..errors import FormulaError
from ..ledger import Ledger, Row, read, send, write
from ..machine import Ceiling
from ..operation import Collective
from ..resource import SCALE_UP, Resource
from .compute_units import number, vector_work
from .notation import Algorithm as Algorithm
from .notation import Dim, Format, Link, Links, ratio
from .registry import formula

DIRECT = ("switch", "all-to-all", "fully connected")  # words of a topology without rings
NO_MEMORY = "main-memory traffic of the exchange is not counted"
COUNTED_ON_REQUEST = f"{NO_MEMORY}; count it with on_chip=True"


class Route(Struct, frozen=True, kw_only=True):
    """How a group of chips is wired: ``sides`` are the chips along each axis; ``lines`` says which axes have no wraparound link."""

    sides: tuple[Dim, ...]
    algorithm: Algorithm
    links: int = 1
    lines: tuple[bool, ...] = ()

    @property
    def chips(self) -> Dim:
        return prod(self.sides)

    @property
    def lanes(self) -> int:
        """Links out of each chip that carry the payload at the same time; of a chip at the ends of all its lines."""
        if self.algorithm in ("ring", "switch"):
            return self.links
        return max(1, sum(1 if side == 2 or line else 2 for side, line in self._axes if side != 1)) * self.links

    @property
    def _axes(self) -> tuple[tuple[Dim, bool], ...]:
        return tuple(zip(self.sides, self.lines or (False,) * len(self.sides), strict=True))

    @property
    def hops(self) -> Dim:
        """Sequential steps: once around a ring, half of it in both directions, half of each axis of a torus, or one through a switch."""
        if self.chips == 1:
            return 0
        if self.algorithm == "ring":
            return self.chips - 1
        if self.algorithm == "switch":
            return 1
        return sum((_farthest(side, line) for side, line in self._axes if side != 1), 0)

    @property
    def gathered(self) -> Dim:
        """The share of a payload that crosses the busiest link in an all-gather or a reduce-scatter: (p−1)/p, divided by the lanes."""
        return ratio(self.chips - 1, self.chips * self.lanes)

    @property
    def reduced(self) -> Dim:
        """The share of a payload that crosses the busiest link in an all-reduce: a reduce-scatter and an all-gather.

        With lines, the p−1 messages that combine an element and the p−1 that hand it out, over all links in both directions: trees that
        share no link, each of which reduces a part to its root and sends it back, use every link alike. On one line that is the payload.
        """
        if not any(self.lines):
            return 2 * self.gathered
        directed = sum(ratio(self.chips, side) * 2 * (side - 1 if line or side == 2 else side) for side, line in self._axes if side != 1)
        return ratio(2 * (self.chips - 1), directed * self.links) if directed else 0

    @property
    def exchanged(self) -> Dim:
        """The share of a chip's buffer that crosses the busiest link in an all-to-all."""
        if self.algorithm == "ring":
            return ratio(self.chips - 1, 2 * self.links)
        if self.algorithm == "switch":
            return ratio(self.chips - 1, self.chips * self.links)
        return ratio(max(_middle_of_line(side) if line else _average_distance(side) for side, line in self._axes), self.links)


def _farthest(side: Dim, line: bool) -> Dim:
    """Steps to the farthest chip of an axis."""
    if line:
        return side - 1
    return side // 2 if isinstance(side, int) else ratio(side, 2)


def _middle_of_line(side: Dim) -> Dim:
    """The share of a chip's buffer over the middle link of a line: what each half sends to the other."""
    half = side // 2
    return ratio(half * (side - half), side)


def _average_distance(side: Dim) -> Dim:
    """Mean steps along one axis in one of its two directions: side/8, or (side² − 1)/(8 side) if odd; 1/2 for two chips with one link."""
    if side == 2:
        return ratio(1, 2)
    return ratio(side * side - side % 2, 8 * side) if isinstance(side, int) else ratio(side, 8)


def wiring(link: Ceiling) -> tuple[Algorithm, int]:
    """The best algorithm on a machine's link, and how many such links it uses at once.

    If every chip has links to every other, it uses all of them at once; on rings and tori it uses both directions of one axis. Networks
    between systems (DCN, PCIe) are switched.
    """
    if link.resource.name not in SCALE_UP:
        return "switch", 1
    if not any(word in link.topology.lower() for word in DIRECT):
        return "bidirectional", 1
    peers = direct_peers(link)
    return "switch", link.count // peers * peers if peers else link.count


def direct_peers(link: Ceiling) -> int:
    """The number of chips to which a chip has dedicated links; 0 if they are connected by a switch, or only to their neighbours."""
    words = link.topology.lower()
    if "switch" in words or not any(word in words for word in DIRECT):
        return 0
    group = connected(link)
    return min(group - 1, link.count) if group else link.count


def connected(link: Ceiling) -> int:
    """The number of chips that the links of a server or rack connect; 0 if it is not known."""
    group = re.search(r"(\d+)-(?:gpu|card)", link.topology.lower())
    return int(group[1]) if group else 0


def links_among(links: int, peers: int, chips: Dim) -> int:
    """How many of a chip's links lead to other chips of a group: all of them through a switch, else those to its direct peers.

    >>> links_among(18, 0, 2), links_among(7, 7, 2), links_among(21, 7, 4), links_among(7, 7, 8)
    (18, 1, 9, 7)
    """
    return links // peers * max(int(min(chips - 1, peers)), 1) if peers else links


def route(name: str, over: Dim, over_y: Dim, over_z: Dim, algorithm: Algorithm, links: int) -> Route:
    """The route these options describe; only a torus has more than one axis."""
    for option, side in (("over", over), ("over_y", over_y), ("over_z", over_z)):
        if side < 1:
            raise FormulaError(f"{name}: {option} is {side}; a group needs one chip or more")
    if algorithm != "torus" and (over_y, over_z) != (1, 1):
        raise FormulaError(f"{name}: over_y and over_z need algorithm 'torus'; otherwise give all chips as over")
    return Route(sides=(over, over_y, over_z), algorithm=algorithm, links=links)


def sends(tensor: str, shape: tuple[Dim, ...], one: str, share: Dim, link: Link) -> tuple[Row, ...]:
    """The row of a tensor on a link; empty if nothing crosses it."""
    return (send(tensor, shape, one, level=Resource(link), passes=share),) if share else ()


def hop_work(link: Link, hops: Dim) -> Cost:
    """The cost of hops on a link, each with the link's latency."""
    return Cost.of({f"{link}/hop": hops})


def _describe(way: Route, equation: str) -> tuple[str, ...]:
    hops = "1 hop" if way.hops == 1 else f"{way.hops} hops"
    return (f"{way.algorithm} over {way.chips} chips: {equation}, through the busiest link in one direction; {hops}",)


class GroupOptions(Links, total=False):
    """The options of a collective."""

    over: Annotated[Dim, 2]
    over_y: Annotated[Dim, 1]
    over_z: Annotated[Dim, 1]
    dtype: Annotated[Format, "bf16"]
    on_chip: Annotated[bool, False]


class _Exchange:
    """A collective of some elements among the chips of a group."""

    def __init__(self, name: str, elements: Dim, options: GroupOptions) -> None:
        self.name, self.elements, self.options = name, elements, options
        self.way = route(name, options["over"], options["over_y"], options["over_z"], options["algorithm"], options["links"])
        self.dtype = number(options["dtype"])

    @property
    def shard(self) -> Dim:
        """The elements of one chip."""
        return ratio(self.elements, self.way.chips)

    @property
    def additions(self) -> Cost:
        """The adds of one chip: of each element those of all chips but one are shared among them."""
        return vector_work(self.elements * ratio(self.way.chips - 1, self.way.chips), 0, None)

    def ledger(
        self, tensor: str, share: Dim, equation: str, reads: tuple[str, Dim], writes: tuple[str, Dim], phases: int = 1, work: Cost = NOTHING
    ) -> Ledger:
        """The ``share`` of a tensor over the busiest link; what a chip reads, writes and computes where that is asked for."""
        way, link, kind = self.way, self.options["link"], self.name.replace("_", "-")
        rows = sends(tensor, (self.elements,), self.dtype.name, share, link)
        notes, hops = _describe(way, equation), hop_work(link, phases * way.hops)
        if self.options["on_chip"]:
            rows += (read(reads[0], (reads[1],), self.dtype), write(writes[0], (writes[1],), self.dtype))
            hops += work
        else:
            notes += (COUNTED_ON_REQUEST,)
        moved = Collective(kind=kind, devices=plain_number(way.chips), bytes=plain_number(self.dtype.bytes(self.elements)), link=str(link))
        return Ledger(self.name, hops, rows, notes, operation=moved)


@formula("all_gather", group="collective", example=(2**26,), aliases=("allgather", "all_gather_into_tensor", "ncclAllGather"))
def all_gather(elements: Dim, **options: Unpack[GroupOptions]) -> Ledger:
    """All-gather: every chip holds 1/p of `elements` and receives the other (p−1)/p over its lanes.

    bytes = size · (p−1)/(p · lanes · links); hops = p−1 on a ring, p//2 in both directions, the sum of side//2 on a torus, 1 through
    a switch. `elements` counts the gathered result.
    """
    exchange = _Exchange("all_gather", elements, options)
    equation = "(p−1)/(p·lanes) of the result"
    return exchange.ledger("gathered", exchange.way.gathered, equation, ("shard", exchange.shard), ("gathered", elements))


@formula("reduce_scatter", group="collective", example=(2**26,), aliases=("reducescatter", "psum_scatter", "ncclReduceScatter"))
def reduce_scatter(elements: Dim, **options: Unpack[GroupOptions]) -> Ledger:
    """Reduce-scatter: every chip holds `elements`, ends with the sum of 1/p of them and sends (p−1)/p over its lanes.

    The reverse of an all-gather, with its bytes and hops. `elements` counts one chip's input. On chip it does (p−1)/p adds per element.
    """
    exchange = _Exchange("reduce_scatter", elements, options)
    equation, share = "(p−1)/(p·lanes) of the input", exchange.way.gathered
    return exchange.ledger("partial", share, equation, ("partial", elements), ("shard", exchange.shard), work=exchange.additions)


@formula("all_reduce", group="collective", example=(2**26,), aliases=("allreduce", "psum", "ncclAllReduce"))
def all_reduce(elements: Dim, **options: Unpack[GroupOptions]) -> Ledger:
    """All-reduce: every chip ends with the sum of all `elements`: a reduce-scatter and an all-gather, twice the bytes and hops of one.

    bytes = 2 · size · (p−1)/(p · lanes · links). On chip the payload is read once and written once, with (p−1)/p adds per element.
    """
    exchange = _Exchange("all_reduce", elements, options)
    equation, share = "2(p−1)/(p·lanes) of the payload in both phases together", exchange.way.reduced
    return exchange.ledger("payload", share, equation, ("payload", elements), ("sum", elements), 2, exchange.additions)


@formula("all_to_all", group="collective", example=(2**26,), aliases=("alltoall", "all_to_all_single", "ncclAllToAll"))
def all_to_all(elements: Dim, **options: Unpack[GroupOptions]) -> Ledger:
    """All-to-all: every chip sends a different 1/p of its `elements` to every other, over the links between them.

    bytes = size times (p−1)/2 on a ring, p/8 in both directions (as (p²−1)/(8p) for odd p), s/8 on a torus whose longest side is s,
    (p−1)/p through a switch; divided by `links`. `elements` counts one chip's buffer.
    """
    exchange = _Exchange("all_to_all", elements, options)
    equation = "the buffer times the links each part crosses"
    return exchange.ledger("buffer", exchange.way.exchanged, equation, ("buffer", elements), ("received", elements))


@formula("permute", group="collective", example=(2**26,), aliases=("ppermute", "collective_permute", "send_recv", "ncclSend"))
def permute(
    elements: Dim, *, dtype: Format = "bf16", distance: int = 1, links: int = 1, link: Link = "ici", on_chip: bool = False
) -> Ledger:
    """Permute: every chip sends its `elements` to the chip `distance` steps along a ring; each link carries `distance` payloads.

    bytes = size · distance / links; hops = distance. Through a switch the distance is 1.
    """
    one = number(dtype)
    rows = sends("payload", (elements,), one.name, ratio(distance, links), link)
    if on_chip:
        rows += (read("payload", (elements,), one), write("received", (elements,), one))
    return Ledger("permute", hop_work(link, distance), rows, () if on_chip else (COUNTED_ON_REQUEST,))
