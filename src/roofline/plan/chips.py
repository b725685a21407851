"""Chips of a plan: one framework device with its rates, the fast domain around it, and the network beyond.

inside a domain      links · rate of a link · what NCCL reaches of it (single-collective calibrations)
between domains      the ranks of a group that a domain holds share their NICs: ranks · NIC · 0.8, at most the link
inside a slice       lanes of the axes that a group spans (formulas/collective.py) · rate of a link · what permutes reach of it
"""

from functools import cached_property

from msgspec import Struct

from ..errors import MachineError, UsageError
from ..formulas.collective import Route, connected
from ..machine import Machine
from ..machines.calibrations import calibration_for
from ..machines.catalogue import load
from ..prediction.calibration import Calibration
from ..resource import HBM
from ..topology import Topology

LINK, NETWORK = "nvlink", "dcn"
OF_LINK = 0.7  # of a link's peak in gathers and scatters, where no calibration has it (NCCL on H100 and B200: 0.68 to 0.72)
OF_AXIS = 0.96  # of an ICI link's rate (permutes on v6e 0.964, gathers on v7x 0.997)
OF_NETWORK = 0.8  # of a NIC's rate
USUAL_DOMAIN = 8  # GPUs of a server
GATHER_FLOOR_S, HOP_S, MOST_HOPS = 6e-6, 0.5e-6, 64  # of a gather inside and across servers


class Chips(Struct, frozen=True, kw_only=True, dict=True):  # dict: for its cached properties
    """``count`` chips, in ``slices`` that a slower network joins; ``domain`` devices share fast links."""

    machine: Machine
    count: int
    slices: int = 1
    domain: int
    network: float

    @property
    def devices(self) -> int:
        return self.count * self.machine.devices

    @property
    def is_tpu(self) -> bool:
        return self.machine.kind == "tpu"

    @cached_property
    def architecture(self) -> str:
        return "tpu" if self.is_tpu else self.machine.arch.partition(" ")[0].lower()

    @cached_property
    def calibration(self) -> Calibration:
        return calibration_for(self.machine)

    @property
    def capacity(self) -> float:
        capacity = self.machine.capacity(HBM)
        if capacity is None:
            raise MachineError(f"{self.machine.name}: its memory's capacity is not known; give a machine file that has it")
        return capacity

    @cached_property
    def link(self) -> float:
        """Bytes a second into one device over all its fast links, in gathers and scatters."""
        ceiling = next((rated for name in (LINK, "xgmi", "ici") if (rated := self.machine.ceiling(name))), None)
        if ceiling is None:
            return self.network
        family = self.calibration.family("collectives", "all-gather")
        share = family.values["link"] if family and not self.is_tpu else OF_LINK
        return (ceiling.peak or ceiling.rate) * ceiling.count * share

    @property
    def between(self) -> float:
        """Bytes a second from one device to another domain or slice."""
        return self.network * OF_NETWORK

    @cached_property
    def axes(self) -> Topology:
        """The torus of one slice."""
        if self.machine.topology:
            return self.machine.topology
        torus = self.machine.torus
        sides = torus.usual(self.count // self.slices) if torus else None
        if torus is None or sides is None:
            raise UsageError(
                f"{self.machine.chip_name}: no slice of {self.count // self.slices} chips; write the slices, such as 2x v5p:4x4x8"
            )
        return torus.slice(sides, self.machine.devices)

    def lanes(self, stride: int, ranks: int) -> int:
        """ICI links of a chip that a group of devices uses, ``stride`` devices apart: those of the axes it spans."""
        per_chip = self.machine.devices
        before, here = max(1, stride // per_chip), max(1, stride * ranks // per_chip) // max(1, stride // per_chip)
        sides, lines = [], []
        for axis in reversed(self.axes.axes):
            taken = _common(axis.size, before)
            before //= taken
            left = axis.size // taken
            part = _common(left, here) if before == 1 else 1
            here //= part
            if part > 1:
                sides.append(part)
                lines.append(not axis.is_ring or part < axis.size)
        return Route(sides=tuple(sides), algorithm="torus", lines=tuple(lines)).lanes if sides else 1

    def speed(self, stride: int, ranks: int) -> float:
        """Bytes a second into one device of a ring over ``ranks`` devices that are ``stride`` apart."""
        if self.is_tpu:
            ceiling = self.machine.ceiling("ici")
            if stride * ranks > self.devices // self.slices:
                return self.between
            rate = ceiling.rate if ceiling else self.network
            return self.lanes(stride, ranks) * rate * OF_AXIS / self.machine.devices  # the devices of a chip share its links
        near = max(1, min(ranks, self.domain // stride))
        return self.link if ranks <= near else min(self.link, near * self.between)

    def gather(self, size: float, stride: int, ranks: int) -> float:
        """Seconds of an all-gather or a reduce-scatter of ``size`` bytes in all."""
        if ranks <= 1:
            return 0.0
        return size * (ranks - 1) / ranks / self.speed(stride, ranks) + GATHER_FLOOR_S + HOP_S * min(ranks, MOST_HOPS)


def _common(side: int, wanted: int) -> int:
    """The part of a side that a group of so many takes: all of it, or the wanted number where that divides it."""
    if wanted >= side:
        return side if wanted % side == 0 else 1
    return wanted if side % wanted == 0 else 1


def chips_of(name: str, count: int | None = None, *, slices: int = 1, domain: int | None = None, network: float | None = None) -> Chips:
    """The chips with a name of the catalogue; ``network`` is the bytes a second of a chip's NIC, ``domain`` the chips of fast links."""
    machine = load(name).per_device()
    if machine.topology:
        own = machine.topology.chips * slices
        if count not in (None, own):
            raise UsageError(f"{slices} x {name} is {own} chips, not {count}; leave the number out")
        count = own
    if count is None:
        raise UsageError(f"{name}: how many chips? write them after the name, such as x256")
    return chips_on(machine, count, slices=slices, domain=domain, network=network)


def chips_on(machine: Machine, count: int, *, slices: int = 1, domain: int | None = None, network: float | None = None) -> Chips:
    """So many chips of a machine, which is one device."""
    if count % slices:
        raise UsageError(f"{count} chips cannot be {slices} slices of one size")
    ceiling = machine.ceiling(NETWORK)
    if network is None and ceiling is None and count > USUAL_DOMAIN and machine.kind != "tpu":
        raise UsageError(f"{machine.chip_name}: its scale-out network is not known; give --network, such as --network '50 GB/s'")
    rate = network if network is not None else (ceiling.rate * ceiling.count if ceiling else machine.rate(HBM))
    link = machine.ceiling(LINK)
    usual = (connected(link) if link else 0) or USUAL_DOMAIN
    whole = count // slices if machine.kind == "tpu" else usual
    return Chips(
        machine=machine,
        count=count,
        slices=slices,
        domain=(domain or whole) * machine.devices,
        network=rate / (machine.devices if network is not None else 1),
    )
