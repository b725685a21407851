"""Collectives and transfers: bytes through the busiest link, and hops, from the operands and the replica groups.

A collective's bytes are link bytes; its own traffic in main memory is not counted. Within a group of one nothing crosses a link, and
the operands are merely copied.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from ...cost import NOTHING, Cost
from ...formulas.network import TORUS_LINK, collective_ledger, collective_notes, whole_cost
from ...formulas.network import Network as Network
from ...formulas.network import asked_network as asked_network
from ...formulas.network import network_of as network_of
from ...formulas.slices import Span, slice_ledger
from ...machine import Machine
from ...resource import DCN, HBM, PCIE
from ...topology import Axis, ring_way
from ..ir.module import HloModule
from .collective_plans import plan_of
from .slice_groups import crossed_links, planned_span, span_of
from .types import Price, Site

_OPCODES = """
all-gather all-gather-start all-reduce all-reduce-start all-to-all collective-broadcast collective-permute collective-permute-start
collective-reduce ragged-all-to-all reduce-scatter
"""
COLLECTIVES = frozenset(_OPCODES.split())
BETWEEN_SLICES = "xla_megascale_runtime"  # hosts exchange what their devices send, over the data-centre network
OF_SLICES = "{} of {} slices: by their hosts, over the data-centre network"
ON_CHIP = "between the devices of one chip: no link of the slice"


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
        if crosses and network.link == TORUS_LINK:
            return replace(_permuted(site, network, size), towards=ring_way(site.instruction.source_target_pairs))
    if chips == 1:
        return Price(Cost.of({"hbm": 2 * size}), opcode, ("a group of one device: no link traffic",))
    notes: tuple[str, ...] = ()
    if opcode == "ragged-all-to-all":
        size = site.operands[0].shape.bytes if site.operands else 0
        notes = ("sizes are known only at run time: the whole buffer is counted",)
    if (on_slice := _on_slice(site, network, opcode, size, chips)) is not None:
        return replace(on_slice, notes=(*on_slice.notes, *notes))
    ledger = collective_ledger(opcode, size, chips, network)
    return Price(whole_cost(ledger), opcode, (*collective_notes(ledger, chips, network), *notes))


def _on_slice(site: Site, network: Network, opcode: str, size: int, devices: int) -> Price | None:
    """A collective on the axes of a slice: the machine's, or those that the compiler states. ``None`` if neither is known."""
    topology = network.topology
    plan = plan_of(site.instruction)
    ring = Span((Axis(devices, wraps=True),))
    own = span_of(site.instruction.replica_groups, devices, topology) if topology else ring
    span = planned_span(own, plan, topology, network.torus)
    if span is ring:
        return None
    if span.chips == 1:
        return Price(Cost.of({HBM: 2 * size}), opcode, (ON_CHIP,))
    ledger = slice_ledger(opcode, size, devices, span, plan, network.link)  # type: ignore[arg-type]
    notes = ledger.notes
    if topology and span is not own:
        notes = (*notes, f"the compiler runs it over these axes; by the devices' numbers it would be over {own}")
    return Price(whole_cost(ledger), opcode, notes, axes=span.places)


def _permuted(site: Site, network: Network, size: int) -> Price:
    """A permute over the rings of a slice: its payload over each link that it crosses, where the slice is known; else to a neighbour."""
    link = network.link
    if network.topology is None:
        ledger = collective_ledger("collective-permute", size, 2, network)
        return Price(whole_cost(ledger), "collective-permute", collective_notes(ledger, 2, network))
    crossed = crossed_links(site.instruction.source_target_pairs, network.topology)
    if not crossed.payloads:
        return Price(Cost.of({HBM: 2 * size}), "collective-permute", (ON_CHIP,))
    notes = ("its devices are taken to be neighbours on the slice",) if crossed.assumed else ()
    if crossed.payloads > 1:
        notes = (*notes, f"{crossed.payloads} payloads cross the busiest link")
    cost = Cost.of({link: crossed.payloads * size, f"{link}/hop": crossed.links})
    return Price(cost, "collective-permute", notes, axes=crossed.axes)


def slice_note(module: HloModule, machine: Machine | None) -> str:
    """What is assumed of the slice on which a program with collectives runs; empty where nothing is."""
    devices = module.replica_count * module.num_partitions
    if machine is None or machine.torus is None or devices < 2 or module.opcodes.isdisjoint(COLLECTIVES):
        return ""
    if machine.topology is not None:
        mismatch = f"{module.name} runs on {devices:,} devices; the slice {machine.topology} of {machine.name} has"
        return f"{mismatch} {machine.topology.devices:,}" if machine.topology.devices != devices else ""
    rings = f"{module.name} runs on {devices:,} devices: collectives whose axes the compiler does not state are counted over a ring"
    sides = machine.torus.usual(devices // machine.devices) if devices % machine.devices == 0 else None
    return f"{rings}; name its slice for the real axes: --chip {machine.chip_name}:{'x'.join(map(str, sides))}" if sides else rings


def send(site: Site, network: Network) -> Price:
    """A send: the payload over the link to another device, or over PCIe to the host."""
    size = site.operands[0].shape.bytes if site.operands else 0
    if site.instruction.flag("is_host_transfer"):
        return Price(Cost.of({PCIE: size}), "host transfer")
    return Price(whole_cost(collective_ledger("collective-permute", size, 2, network)), "send")


def receive(site: Site) -> Price:
    """A receive: the host's payload over PCIe, and over the data-centre network what the hosts of other slices send for it.

    Another device's payload is counted where it is sent.
    """
    if not site.instruction.flag("is_host_transfer"):
        return Price(NOTHING, "recv")
    payload = site.instruction.shape.parts[0] if site.instruction.shape.parts else site.instruction.shape
    words = site.instruction.frontend_attributes
    if words.get("_xla_host_transfer_handler_name") != BETWEEN_SLICES:
        return Price(Cost.of({PCIE: payload.bytes}), "host transfer")
    kind, slices = words.get("_xla_megascale_transfer_type", ""), _count(words.get("_xla_megascale_target", ""))
    # A sum is a reduce-scatter and a gather; what is received of the first is its result, a part of the array.
    crossing = {"ALL_REDUCE": 2 / slices, "ALL_GATHER": 1 / slices, "ALL_TO_ALL": 1 / slices}.get(kind, 1.0) * (slices - 1)
    return Price(Cost.of({PCIE: payload.bytes, DCN: crossing * payload.bytes}), "host transfer", (OF_SLICES.format(kind, slices),))


def _count(target: str) -> int:
    """The slices that exchange: ``{1,2}x{0:15}`` are two, with 16 devices each.

    >>> _count("{1,2}x{0:15}"), _count("{0:3}x{0:15}"), _count("")
    (2, 4, 2)
    """
    listed = re.match(r"\{([\d,:]+)\}", target)
    ranges = [[int(number) for number in part.split(":")] for part in listed[1].split(",")] if listed else [[0, 1]]
    return sum(ends[-1] - ends[0] + 1 for ends in ranges)


def infeed(site: Site) -> Price:
    """An infeed: bytes from the host over PCIe."""
    return Price(Cost.of({PCIE: site.instruction.shape.bytes}), "infeed")


def outfeed(site: Site) -> Price:
    """An outfeed: bytes to the host over PCIe."""
    return Price(Cost.of({PCIE: sum(operand.shape.bytes for operand in site.operands)}), "outfeed")
