"""The network between the devices of a group, and the cost of a collective on it: bytes through the busiest link, and hops."""

from __future__ import annotations

from math import prod

from msgspec import Struct

from ..cost import Cost, tidy
from ..errors import UsageError, did_you_mean
from ..ledger import Ledger
from ..machine import Machine
from ..resource import LINK_UNITS, SCALE_UP
from ..topology import Topology, Torus
from . import collective as formulas
from .collective import Algorithm
from .notation import Link

TORUS_LINK = "ici"  # the link that joins the chips of a slice


class Network(Struct, frozen=True):
    """The network between a program's chips: the link, the algorithm, and how many such links each chip uses at once.

    ``peers`` is the number of chips to which each has dedicated links, without a switch: a smaller group uses fewer of them. ``reach`` is
    the number of chips that the links connect, where it is known. ``topology`` is the slice that the devices are in; without one, ``torus``
    says which axes of a slice would wrap.
    """

    link: str = "nvlink"
    algorithm: Algorithm = "ring"
    links: int = 1
    sides: tuple[int, ...] = ()  # of the torus, where it is known
    peers: int = 0
    reach: int = 0
    topology: Topology | None = None
    torus: Torus | None = None

    @staticmethod
    def of(link: str | Network | None, platform: str) -> Network:
        """The network a caller names, or the platform's usual one: rings of ICI, an NVLink switch, a data-centre network of CPUs."""
        if isinstance(link, Network):
            return link
        usual = _USUAL[platform]
        return usual if link is None else Network(link, usual.algorithm if link == usual.link else "ring")


def network_of(machine: Machine, link: str | None = None) -> Network | None:
    """The network of a machine's chips: its scale-up link or the given one, with the best algorithm for it."""
    ceiling = next((found for unit in ([link] if link else SCALE_UP) if (found := machine.ceiling(unit))), None)
    if ceiling is None:
        return Network(link) if link else None
    peers, reach = formulas.direct_peers(ceiling), formulas.connected(ceiling)
    topology, torus = (machine.topology, machine.torus) if ceiling.resource.name == TORUS_LINK else (None, None)
    return Network(ceiling.resource.name, *formulas.wiring(ceiling), peers=peers, reach=reach, topology=topology, torus=torus)


def asked_network(machine: Machine, link: str | None, topology: str | None, algorithm: Algorithm | None) -> Network | None:
    """The network with the user's choice of link, topology (``ring``, ``switch`` or the sides of a torus) and algorithm."""
    if link is not None and not (machine.ceiling(link) and link in LINK_UNITS):
        known = [ceiling.resource.name for ceiling in machine.links]
        others = did_you_mean(link, known) or f"; it has: {', '.join(known) or 'none'}"
        raise UsageError(f"link {link}: {machine.name} has no such link{others}")
    own = network_of(machine, link)
    if own is None or topology is algorithm is None:
        return own
    sides: tuple[int, ...] = ()
    if topology is not None and topology not in ("ring", "switch"):
        words = topology.lower().split("x")
        if not (1 <= len(words) <= 3 and all(word.isdecimal() and int(word) for word in words)):
            raise UsageError(f"topology {topology}: write ring, switch, or the sides of a torus such as 4x4")
        sides = tuple(int(word) for word in words)
    ceiling = machine.ceiling(own.link)
    best: Algorithm = {None: own.algorithm, "ring": "bidirectional", "switch": "switch"}.get(topology, "torus")
    chosen: Algorithm = algorithm or best
    return Network(own.link, chosen, ceiling.count if ceiling and chosen == "switch" else 1, sides)


_USUAL: dict[str, Network] = {
    "tpu": Network("ici", "bidirectional"),
    "gpu": Network("nvlink", "switch"),
    "cpu": Network("dcn", "switch"),
}


def collective_ledger(kind: str, size: int, chips: int, network: Network) -> Ledger:
    """The ledger of a collective; ``size`` is each chip's bytes before it."""
    link: Link = network.link  # type: ignore[assignment]
    if kind in ("collective-permute", "collective-broadcast", "collective-reduce"):
        sending = 2 if kind == "collective-permute" else chips
        once = formulas.permute(size, dtype="uint8", links=formulas.links_among(network.links, network.peers, sending), link=link)
        if kind == "collective-permute":
            return once
        # From one device to all, or from all to one: the payload crosses each link of a ring once, piece after piece.
        hops = formulas.Route(sides=(chips,), algorithm=network.algorithm, links=network.links).hops
        return Ledger(once.name, formulas.hop_work(link, hops), once.rows)
    rule = {
        "all-gather": formulas.all_gather,
        "all-reduce": formulas.all_reduce,
        "all-to-all": formulas.all_to_all,
        "ragged-all-to-all": formulas.all_to_all,
        "reduce-scatter": formulas.reduce_scatter,
    }[kind]
    whole = size * chips if kind == "all-gather" else size
    # A group that is not the whole torus is assumed to be along one axis of it.
    over, over_y, over_z = (*network.sides, 1, 1)[:3] if network.algorithm == "torus" and prod(network.sides) == chips else (chips, 1, 1)
    links = formulas.links_among(network.links, network.peers, chips)
    return rule(whole, dtype="uint8", over=over, over_y=over_y, over_z=over_z, algorithm=network.algorithm, links=links, link=link)


def collective_notes(ledger: Ledger, chips: int, network: Network) -> tuple[str, ...]:
    """How a collective was counted, and what the count leaves out."""
    notes = tuple(note for note in ledger.notes if "chips:" in note)
    if not 0 < network.reach < chips:
        return notes
    return (*notes, f"{network.link} connects {network.reach} of its {chips} chips: the slower network between nodes is not counted")


def whole_cost(ledger: Ledger) -> Cost:
    """The cost of a ledger, with whole amounts as ints."""
    return Cost(tuple((resource, tidy(amount)) for resource, amount in ledger.cost.amounts), ledger.cost.unknown)
