"""Architectures: FLOP per core and cycle of GPUs, from which the rates of chips without a machine file are derived.

rate = cores x clock x FLOP per core and cycle
"""

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from msgspec import Struct, convert

from ..machine import Capacity, Ceiling, Machine
from ..resource import HBM, Resource
from ..units import parse, show
from ..workload import Hardware
from .citations import resolve

FILE = Path(__file__).with_name("architectures.toml")


class Architecture(Struct, frozen=True, kw_only=True):
    """FLOP per core and cycle by resource, for the compute capabilities that share them."""

    name: str
    vendor: str
    core: str
    capability: tuple[str, ...]
    source: tuple[str, ...]
    rates: Mapping[str, int]
    geforce: Mapping[str, int] = {}
    matrix_clock: float = 1.0

    def clock_share(self, resource: str) -> float:
        """The share of the maximum clock that a unit sustains; fp64 products draw less power and run at the maximum."""
        return self.matrix_clock if resource.startswith("matrix/") and resource != "matrix/fp64" else 1.0

    def per_cycle(self, name: str) -> dict[str, int]:
        """The rates of one core of the device with this name; the GTX cards of Turing have no matrix unit."""
        rates = {**self.rates, **(self.geforce if is_geforce(name) else {})}
        return {resource: rate for resource, rate in rates.items() if "gtx" not in name.lower() or not resource.startswith("matrix/")}


def is_geforce(name: str) -> bool:
    """Whether a device of this name accumulates products in fp32 at half rate."""
    return "geforce" in name.lower()


@cache
def architectures() -> tuple[Architecture, ...]:
    """Every architecture that is described."""
    return convert(tomllib.loads(FILE.read_text("utf-8"))["architecture"], tuple[Architecture, ...])


def architecture(vendor: str, capability: str) -> Architecture | None:
    """The architecture with this compute capability; of an unknown later minor version, that of the nearest one before."""
    mine = [(_version(known), each) for each in architectures() if each.vendor == vendor for known in each.capability]
    asked = _version(capability)
    known = [pair for pair in mine if asked and pair[0][0] == asked[0] and pair[0] <= asked]
    return max(known, key=lambda pair: pair[0])[1] if known else None


def _version(capability: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)\.(\d+)", capability)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def capability_of(machine: Machine) -> str:
    """The compute capability that a machine's architecture names: ``sm_86`` is 8.6, ``gfx942`` is 9.4."""
    if found := re.search(r"\bsm_(\d+)(\d)", machine.arch):
        return f"{found[1]}.{found[2]}"
    found = re.search(r"\bgfx(\d+)(\d)[0-9a-f]\b", machine.arch)
    return f"{found[1]}.{found[2]}" if found else ""


def derive(name: str, hardware: Hardware) -> Machine | None:
    """A machine from a GPU's cores, clock and compute capability; ``None`` when one of these or its architecture is not known."""
    known = architecture(hardware.vendor, hardware.capability)
    if known is None or not hardware.cores or not hardware.clock_hz:
        return None
    ceilings = [
        Ceiling(
            resource=Resource(resource),
            rate=hardware.cores * hardware.clock_hz * each * known.clock_share(resource),
            provenance="derived",
            citation="; ".join(map(resolve, known.source)),
            note=_how(hardware, known, resource, each),
        )
        for resource, each in known.per_cycle(name).items()
    ]
    if hardware.bandwidth:
        citation = "the profile's own device description"
        ceilings.append(
            Ceiling(resource=HBM, rate=hardware.bandwidth, provenance="derived", citation=citation, note="memory clock x bus width")
        )
    capacity = Capacity(level=HBM, bytes=hardware.memory_bytes, provenance="profile") if hardware.memory_bytes else None
    says = (
        f"{name or 'the device'} is not in the catalogue: its rates are derived from {describe(hardware)}; "
        "choose another chip with --chip, or describe it in a machine file"
    )
    return Machine(
        name=re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "device",
        title=name,
        vendor=hardware.vendor,
        kind="gpu",
        arch=known.name,
        scope="device",
        matrix_unit=any(resource.startswith("matrix/") for resource in known.per_cycle(name)),
        ceilings=tuple(ceilings),
        capacities=(capacity,) if capacity else (),
        notes=(says,),
    )


def _how(hardware: Hardware, known: Architecture, resource: str, each: int) -> str:
    clock = show(hardware.clock_hz, "Hz")
    scale = f" x {share:g} (matrix clock)" if (share := known.clock_share(resource)) != 1 else ""
    return f"{hardware.cores} {known.core}s x {clock} x {each} FLOP per {known.core} and cycle{scale}"


def describe(hardware: Hardware) -> str:
    """The hardware that a device reports, as text."""
    known = architecture(hardware.vendor, hardware.capability)
    core = known.core if known else "core"
    words = (
        hardware.vendor,
        f"compute capability {hardware.capability}" if hardware.capability else "",
        f"{hardware.cores} {core}s" if hardware.cores else "",
        show(hardware.memory_bytes, "B") if hardware.memory_bytes else "",
        show(hardware.clock_hz, "Hz") if hardware.clock_hz else "",
    )
    return ", ".join(filter(None, words))


def clock_of(text: str | int | float) -> float:
    """The clock of a machine file's text, in Hz."""
    return parse(text, "Hz")
