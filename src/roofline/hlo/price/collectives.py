"""Collectives and transfers: bytes through the busiest link, and hops, from the operands and the replica groups.

A collective's bytes are link bytes; its own traffic in main memory is not counted. Within a group of one nothing crosses a link, and
the operands are merely copied.
"""

from __future__ import annotations

from ...cost import NOTHING, Cost
from ...formulas.network import Network as Network
from ...formulas.network import asked_network as asked_network
from ...formulas.network import collective_ledger, collective_notes, whole_cost
from ...formulas.network import network_of as network_of
from ...resource import PCIE
from .types import Price, Site

_OPCODES = """
all-gather all-gather-start all-reduce all-reduce-start all-to-all collective-broadcast collective-permute collective-permute-start
collective-reduce ragged-all-to-all reduce-scatter
"""
COLLECTIVES = frozenset(_OPCODES.split())


def group_size(site: Site) -> int:
    """Devices per replica group: of the largest group, or all devices if no groups are given."""
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
    ledger = collective_ledger(opcode, size, chips, network)
    return Price(whole_cost(ledger), opcode, (*collective_notes(ledger, chips, network), *notes))


def send(site: Site, network: Network) -> Price:
    """A send: the payload over the link to another device, or over PCIe to the host."""
    size = site.operands[0].shape.bytes if site.operands else 0
    if site.instruction.flag("is_host_transfer"):
        return Price(Cost.of({PCIE: size}), "host transfer")
    return Price(whole_cost(collective_ledger("collective-permute", size, 2, network)), "send")


def receive(site: Site) -> Price:
    """A receive: the host's payload over PCIe; another device's is counted where it is sent."""
    if site.instruction.flag("is_host_transfer"):
        payload = site.instruction.shape.parts[0] if site.instruction.shape.parts else site.instruction.shape
        return Price(Cost.of({PCIE: payload.bytes}), "host transfer")
    return Price(NOTHING, "recv")


def infeed(site: Site) -> Price:
    """An infeed: bytes from the host over PCIe."""
    return Price(Cost.of({PCIE: site.instruction.shape.bytes}), "infeed")


def outfeed(site: Site) -> Price:
    """An outfeed: bytes to the host over PCIe."""
    return Price(Cost.of({PCIE: sum(operand.shape.bytes for operand in site.operands)}), "outfeed")
