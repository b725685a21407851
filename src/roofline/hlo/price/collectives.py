"""Collectives and transfers: bytes through the busiest link, and hops, from the operands and the replica groups.

A collective's bytes are link bytes; its own traffic in main memory is not counted. Within a group of one nothing crosses a link, and
the operands are merely copied.
"""

from __future__ import annotations

from math import prod

from msgspec import Struct

from ...cost import NOTHING, Cost, tidy
from ...errors import UsageError, did_you_mean
from ...formulas import collective as formulas
from ...formulas.collective import Algorithm
from ...formulas.notation import Link
from ...ledger import Ledger
from ...machine import Machine
from ...resource import LINK_UNITS, PCIE, SCALE_UP
from ..ir.platforms import Platform
from .types import Price, Site
from .work import Sum


class Network(Struct, frozen=True):
    """How the chips of a program are joined: the link, the way it is wired, and how many such links each chip drives at once."""

    link: str = "nvlink"
    algorithm: Algorithm = "ring"
    links: int = 1
    sides: tuple[int, ...] = ()  # of the torus, where it is known

    @staticmethod
    def of(link: str | Network | None, platform: Platform) -> Network:
        """The network a caller names, or the platform's usual one: rings of ICI, an NVLink switch, a data-centre network of CPUs."""
        if isinstance(link, Network):
            return link
        usual = _USUAL[platform]
        return usual if link is None else Network(link, usual.algorithm if link == usual.link else "ring")


def network_of(machine: Machine, link: str | None = None) -> Network | None:
    """How a machine's chips are joined: over its own scale-up link, or the one named, by the best algorithm there."""
    ceiling = next((found for unit in ([link] if link else SCALE_UP) if (found := machine.ceiling(unit))), None)
    if ceiling is None:
        return Network(link) if link else None
    return Network(ceiling.resource.name, *formulas.wiring(ceiling))


def asked_network(machine: Machine, link: str | None, topology: str | None, algorithm: Algorithm | None) -> Network | None:
    """The network that a user asks for: any of the link, the topology (``ring``, ``switch`` or the sides of a torus) and the algorithm."""
    if link is not None and not (machine.ceiling(link) and link in LINK_UNITS):
        known = [ceiling.resource.name for ceiling in machine.links]
        others = did_you_mean(link, known) or f"; it has: {', '.join(known) or 'none'}"
        raise UsageError(f"--link {link}: {machine.name} has no such link{others}")
    own = network_of(machine, link)
    if own is None or topology is algorithm is None:
        return own
    sides: tuple[int, ...] = ()
    if topology is not None and topology not in ("ring", "switch"):
        words = topology.lower().split("x")
        if not (1 <= len(words) <= 3 and all(word.isdecimal() and int(word) for word in words)):
            raise UsageError(f"--topology {topology}: write ring, switch, or the sides of a torus such as 4x4")
        sides = tuple(int(word) for word in words)
    ceiling = machine.ceiling(own.link)
    best: Algorithm = {None: own.algorithm, "ring": "bidirectional", "switch": "switch"}.get(topology, "torus")
    chosen: Algorithm = algorithm or best
    return Network(own.link, chosen, ceiling.count if ceiling and chosen == "switch" else 1, sides)


_USUAL: dict[Platform, Network] = {
    "tpu": Network("ici", "bidirectional"),
    "gpu": Network("nvlink", "switch"),
    "cpu": Network("dcn", "switch"),
}


def group_size(site: Site) -> int:
    """How many devices take part together: the largest replica group's, or all there are."""
    groups = site.instruction.replica_groups
    if groups is None or not groups.count or not groups.size:
        return max(1, site.module.replica_count * site.module.num_partitions)
    return groups.size


def collective(site: Site, network: Network, kind: str = "") -> Price:
    """A collective on the network: its formula, or that of another ``kind``, over the bytes of the operands."""
    opcode = kind or site.instruction.opcode.removesuffix("-start")
    size = sum(operand.shape.bytes for operand in site.operands)
    chips = group_size(site)
    if opcode == "collective-permute":
        crosses = any(source != target for source, target in site.instruction.source_target_pairs)
        chips = 2 if crosses else 1
    if chips == 1:
        return Price(Cost.of({"hbm": 2 * size}), opcode, ("a group of one device: no link traffic",))
    notes: tuple[str, ...] = ()
    if opcode == "ragged-all-to-all":
        size = site.operands[0].shape.bytes if site.operands else 0
        notes = ("sizes are known only at run time: the whole buffer is counted",)
    ledger = _ledger(opcode, size, chips, network)
    return Price(_whole(ledger), opcode, (*(note for note in ledger.notes if "chips:" in note), *notes))


def _whole(ledger: Ledger) -> Cost:
    return Cost(tuple((resource, tidy(amount)) for resource, amount in ledger.cost.amounts), ledger.cost.unknown)


def _ledger(kind: str, size: int, chips: int, network: Network) -> Ledger:
    """The formula of a collective, each chip holding so many bytes before it."""
    link: Link = network.link  # type: ignore[assignment]
    if kind in ("collective-permute", "collective-broadcast", "collective-reduce"):
        once = formulas.permute(size, dtype="uint8", links=network.links, link=link)
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
    # A group that is not the whole torus is taken to lie along one axis of it.
    over, over_y, over_z = (*network.sides, 1, 1)[:3] if network.algorithm == "torus" and prod(network.sides) == chips else (chips, 1, 1)
    return rule(whole, dtype="uint8", over=over, over_y=over_y, over_z=over_z, algorithm=network.algorithm, links=network.links, link=link)


def send(site: Site, network: Network) -> Price:
    """A send: the payload over the link to another device, or over PCIe to the host."""
    size = site.operands[0].shape.bytes if site.operands else 0
    if site.instruction.flag("is_host_transfer"):
        return Price(Cost.of({PCIE: size}), "host transfer")
    return Price(_whole(_ledger("collective-permute", size, 2, network)), "send")


def receive(site: Site, network: Network) -> Price:
    """A receive: the host's payload over PCIe; another device's is counted where it is sent."""
    if site.instruction.flag("is_host_transfer"):
        payload = site.instruction.shape.parts[0] if site.instruction.shape.parts else site.instruction.shape
        return Price(Cost.of({PCIE: payload.bytes}), "host transfer")
    return Price(NOTHING, "recv")


def infeed(site: Site, network: Network) -> Price:
    """What the host feeds in, over PCIe."""
    return Price(Cost.of({PCIE: site.instruction.shape.bytes}), "infeed")


def outfeed(site: Site, network: Network) -> Price:
    """What the host takes out, over PCIe."""
    total = Sum()
    for operand in site.operands:
        total.add(Cost.of({PCIE: operand.shape.bytes}))
    return Price(total.cost, "outfeed")
