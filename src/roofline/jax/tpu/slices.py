"""Slices of TPUs as users name them (``v5e-16``, ``v5p:4x4x4``, ``2x v6e:16x16``), and as the TPU compiler does."""

import re
from collections.abc import Mapping

from msgspec import Struct

from ...errors import MachineError, RooflineError, UsageError
from ...machine import Machine
from ...machines.catalogue import card
from ...units import number_of, parse

_SEVERAL = re.compile(r"(?P<slices>\d{1,3})\s*x\s+(?P<slice>.+)")
# Families whose name in the compiler differs, and options of their topologies: the two cores of a v4 are one device.
HOST = (2, 2)  # chips of a host, which a slice must have if the compiler is not told otherwise
_TOPOLOGIES: Mapping[str, tuple[str, Mapping[str, str]]] = {"v7x": ("tpu7x", {}), "v4": ("v4", {"chip_config_name": "megacore"})}


# GiB of a device's HBM that programs may use, as the compiler states it (libtpu 0.0.51 and 0.0.42.1): its own part is not among them
_AVAILABLE: Mapping[str, float] = {"v5e": 15.75, "v6e": 31.24, "v7x": 94.74}


class Slice(Struct, frozen=True, kw_only=True):
    """A slice, or ``slices`` equal ones joined by the data-centre network: one device of it, its family, and its sides in chips."""

    machine: Machine
    family: str
    sides: tuple[int, ...]
    slices: int = 1

    @property
    def chips(self) -> int:
        """The chips of all slices."""
        chips = self.slices
        for side in self.sides:
            chips *= side
        return chips

    @property
    def devices(self) -> int:
        """What JAX counts as devices."""
        topology = self.machine.topology
        return self.chips * (topology.devices_per_chip if topology else 1)

    @property
    def available(self) -> float | None:
        """Bytes of a device's main memory that programs may use."""
        known = _AVAILABLE.get(self.family)
        return self.machine.capacity() if known is None else parse(f"{known} GiB", "B")

    @property
    def title(self) -> str:
        """Both of its names: ``v5p-128 (4x4x4, 64 chips)``."""
        several = f"{self.slices}x " if self.slices > 1 else ""
        cores, sides = self.chips // self.slices * self.machine.cores, "x".join(map(str, self.sides))
        return f"{several}{self.family}-{cores} ({sides}, {number_of(self.chips, 'chip')})"

    @property
    def topology(self) -> dict[str, str | int | list[int]]:
        """What names it for the compiler: the arguments of `jax.experimental.topologies.get_topology_desc`."""
        name, options = _TOPOLOGIES.get(self.family, (self.family, {}))
        several = {"num_slices": self.slices} if self.slices > 1 else {}
        host = [min(side, of_host) for side, of_host in zip(self.sides, HOST, strict=False)]
        smaller = {"chips_per_host_bounds": [*host, 1][:3]} if host != [*HOST] else {}
        return {"topology_name": f"{name}:{'x'.join(map(str, self.sides))}", **options, **several, **smaller}


def slice_named(name: str) -> Slice:
    """The slice of this name; a chip alone is a slice of one chip."""
    several = _SEVERAL.fullmatch(name.strip())
    word = several["slice"] if several else name.strip()
    found = card(word.removesuffix("/device"))
    machine = found.machine
    if machine.kind != "tpu" or machine.torus is None:
        raise UsageError(f"{name}: not a slice of a TPU; write it like v6e:4x4 or v6e-16")
    if machine.topology is None:
        found = card(f"{found.family}:{'x'.join('1' for _ in machine.torus.largest)}")
    if found.machine.topology is None:
        raise MachineError(f"{name}: no slice of it is known")
    sides = tuple(axis.size for axis in found.machine.topology.axes)
    device = found.machine.per_device() if found.machine.devices > 1 else found.machine
    return Slice(machine=device, family=found.family, sides=sides, slices=int(several["slices"]) if several else 1)


def is_slice(name: str) -> bool:
    """Whether a name is that of a slice of TPUs, not of a chip."""
    several = _SEVERAL.fullmatch(name.strip())
    try:
        return card((several["slice"] if several else name).strip()).machine.topology is not None
    except RooflineError:
        return False
