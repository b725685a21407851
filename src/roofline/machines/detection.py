"""Find the machine of a recording: the catalogue's chip, with the peaks that the device reports.

A device is looked up by its name; without a name, by its hardware (compute capability, cores, memory, clock). A GPU that is not in the
catalogue gets rates derived from its hardware, and a slice or partition of a GPU its share of the whole. A name that several chips share
(``Orin``, two versions of one card) is used if the number of cores agrees. A device's own figures take precedence over the catalogue's,
which are kept as other figures. A figure far from the catalogue's is a reporting error (one driver reports half the bandwidth of its chip):
then the catalogue's is used, with a note. A GPU's reported compute peaks are its units times its maximum clock, which its matrix unit does
not sustain: they are kept as other figures and not used. A CPU reports no figures: this computer's, measured or estimated, are used
instead, with a note.
"""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from ..errors import MachineError
from ..machine import Capacity, Figure, Machine
from ..resource import HBM
from ..units import percent, show
from ..workload import Device, Hardware
from .architectures import capability_of, clock_of, derive, describe
from .catalogue import cards, catalogue_card, load, slice_of
from .chip_specs import Card
from .local import local_card
from .partitions import SAME_SIZE, may_be_part, partition

PLAUSIBLE = (0.8, 1.25)  # of the catalogue's figure
SAME_CLOCK = 0.04  # variants of one chip differ by more
DEFAULT_CHIP = "h100-sxm"
CITATION = "the profile's own device description"
NAMELESS = ("", "gpu", "amd gpu", "nvidia gpu", "intel gpu", "tpu")  # placeholders for the name of a device
DEFAULT_TPU, DEFAULT_AMD = "tpu-v5e", "mi300x"  # if only the kind or the vendor is known
MARKETS = ("geforce", "laptop", "mobile", "max-q", "radeon", "instinct")  # chips with the same cores are sold under several names


def machine_for(devices: Sequence[Device]) -> Machine:
    """The machine of the first named device of a recording; the default chip, with a note, if none is known."""
    if devices:
        return of_device(next((device for device in devices if not _is_nameless(device.name)), devices[0]))
    machine = load(DEFAULT_CHIP)
    return replace(machine, notes=(*machine.notes, f"no chip given: using {machine.name}"), assumed=True)


def of_device(device: Device) -> Machine:
    """The machine with this device's name, hardware and peaks; an error if only an unknown name is given."""
    if device.name.lower() == "cpu":
        return _this_computer()
    known = _named(device) or _identified(device)
    if known is not None:
        return _with_reported(known.per_device() if known.devices > 1 else known, device)
    if derived := derive(device.name, _hardware(device)):
        return derived
    if _is_nameless(device.name) and not any(name.partition("/")[0] in ("matrix", "vector") for name in device.rates):
        return _with_reported(_default(device), device)
    if not device.rates:
        try:
            catalogue_card(device.name)
        except MachineError as error:
            raise MachineError(f"{error}; or choose one with --chip") from None
    name = re.sub(r"[^a-z0-9]+", "-", device.name.lower()).strip("-") or "device"
    return Machine(name=name, ceilings=(), title=device.name, scope="device").override(dict(device.rates), "profile", CITATION)


def _this_computer() -> Machine:
    machine = local_card().machine
    note = f"the profile does not name its CPU: using this computer's ({machine.title}); choose another chip with --chip"
    return replace(machine, notes=(note, *machine.notes), assumed=True)


def _hardware(device: Device) -> Hardware:
    """The device's hardware, with the bandwidth from its peaks if the hardware has none."""
    bandwidth = device.hardware.bandwidth or device.rates.get(HBM.name)
    return replace(device.hardware, bandwidth=bandwidth)


def _is_nameless(name: str) -> bool:
    return name.strip().lower() in NAMELESS


def _named(device: Device) -> Machine | None:
    """The chip of the catalogue with the device's name, or the slice of one."""
    if _is_nameless(device.name):
        return None
    try:
        part = slice_of(device.name, device.hardware.cores)
        return part.machine if part else _with_cores(catalogue_card(device.name), device)
    except MachineError:
        return None


def _with_cores(card: Card, device: Device) -> Machine:
    """The chip with the device's name; if the number of cores differs, a partition of it, or another chip of that name."""
    machine, cores = card.machine, device.hardware.cores
    if machine.kind != "gpu" or not cores or not card.cores or cores * machine.devices == card.cores:
        return machine
    if part := partition(card, device.hardware):
        return part
    derived = derive(device.name, device.hardware)
    if derived is None:
        return machine
    difference = f"{machine.name} has {card.cores}: its rates are derived from {describe(device.hardware)}; choose another chip with --chip"
    return replace(derived, notes=(f"{device.name} has {cores} cores and the catalogue's {difference}",))


def _identified(device: Device) -> Machine | None:
    """The chip of the catalogue with this hardware: the same compute capability, cores and memory, and the nearest clock."""
    hardware = device.hardware
    if not hardware.cores or not hardware.memory_bytes:
        return None
    alike = [card for card in cards() if _alike(card, hardware) and _same_market(card, device)]
    if not alike:
        return _partitioned(device)
    clock_distance = {card.machine.name: _clock_distance(card, hardware) for card in alike}
    best = min(alike, key=lambda card: (clock_distance[card.machine.name], not card.usual, card.machine.name)).machine
    if not _is_nameless(device.name) and clock_distance[best.name] > SAME_CLOCK:
        return None
    others = [name for name, distance in clock_distance.items() if name != best.name and distance <= clock_distance[best.name]]
    doubt = f" (as is {' and '.join(others)})" if others else ""
    who = f"{device.name!r} is not in the catalogue" if not _is_nameless(device.name) else "the profile does not name its device"
    note = f"{who}: identified as {best.name}{doubt} by its hardware ({describe(hardware)}); choose another chip with --chip"
    return replace(best, notes=(*best.notes, note))


def _partitioned(device: Device) -> Machine | None:
    """The partition of an AMD GPU that matches an unnamed device: same compute capability, and equal parts of CUs and memory."""
    hardware = device.hardware
    whole = [card for card in cards() if capability_of(card.machine) == hardware.capability and may_be_part(card, hardware)]
    if not whole or not _is_nameless(device.name):
        return None
    best = min(whole, key=lambda card: (_clock_distance(card, hardware), not card.usual, card.machine.name))
    part = partition(best, hardware)
    others = [card.machine.name for card in whole if card is not best]
    doubt = f" (or of {' or '.join(others)})" if others else ""
    how = f"by its hardware ({describe(hardware)}); choose another chip with --chip"
    note = f"the profile does not name its device: identified as a partition of {best.machine.name}{doubt} {how}"
    return replace(part, notes=(*part.notes, note)) if part else None


def _alike(card: Card, hardware: Hardware) -> bool:
    machine = card.machine
    memory = machine.capacity(HBM)
    return (
        machine.kind == "gpu"
        and (not hardware.vendor or machine.vendor == hardware.vendor)
        and capability_of(machine) == hardware.capability
        and card.cores == (hardware.cores or 0) * machine.devices
        and memory is not None
        and abs((hardware.memory_bytes or 0) * machine.devices / memory - 1) <= SAME_SIZE
    )


def _same_market(card: Card, device: Device) -> bool:
    """Whether a device with another name may still be this chip: same market segment, and about the same bandwidth."""
    if _is_nameless(device.name):
        return True
    title, name = card.machine.title.lower(), device.name.lower()
    mine, theirs = card.machine.ceiling(HBM), _hardware(device).bandwidth
    near = mine is None or theirs is None or PLAUSIBLE[0] <= theirs / mine.rate <= PLAUSIBLE[1]
    return near and all((word in title) == (word in name) for word in MARKETS)


def _clock_distance(card: Card, hardware: Hardware) -> float:
    clock = card.spec("clock")
    return abs(clock_of(clock) / hardware.clock_hz - 1) if clock and hardware.clock_hz else SAME_CLOCK


def _default(device: Device) -> Machine:
    name = device.name.strip().upper()
    machine = load(DEFAULT_TPU if name == "TPU" else DEFAULT_AMD if name.startswith("AMD") else DEFAULT_CHIP)
    known = describe(device.hardware)
    note = f"the file does not name its device{f' ({known})' if known else ''}: using {machine.name}; choose the right one with --chip"
    return replace(machine, notes=(*machine.notes, note), assumed=True)


def _with_reported(machine: Machine, device: Device) -> Machine:
    """The machine with the memory size and the peaks that the device reports, if they are plausible."""
    plausible: dict[str, float] = {}
    machine, notes = _with_memory(machine, device.hardware.memory_bytes)
    for name, rate in device.rates.items():
        mine = machine.ceiling(name)
        if mine is not None and mine.resource.is_compute and machine.kind == "gpu":
            machine = machine.with_other_figure(name, Figure(rate, CITATION, "units times maximum clock"))
        elif mine is None or PLAUSIBLE[0] <= rate / mine.rate <= PLAUSIBLE[1]:
            plausible[name] = rate
        else:
            theirs, ours = show(rate, mine.resource.per), show(mine.rate, mine.resource.per)
            notes.append(
                f"the profile reports {theirs} for {name}, {percent(rate / mine.rate)} of the catalogue's {ours}; using the catalogue's"
            )
    return replace(machine.override(plausible, "profile", CITATION), notes=(*machine.notes, *notes))


def _with_memory(machine: Machine, reported: float | None) -> tuple[Machine, list[str]]:
    """The machine with the device's main memory size, if that is another version of the chip."""
    capacity = next((each for each in machine.capacities if each.level == HBM), None)
    if not reported or capacity is None or abs(reported / capacity.bytes - 1) <= SAME_SIZE:
        return machine, []
    kept = Figure(capacity.bytes, capacity.citation, f"{capacity.provenance}, of another version")
    own = Capacity(level=HBM, bytes=reported, provenance="profile", citation=CITATION, others=(kept, *capacity.others))
    capacities = tuple(own if each is capacity else each for each in machine.capacities)
    note = (
        f"the device has {show(reported, 'B')} of memory, {machine.name} in the catalogue {show(capacity.bytes, 'B')}; using the device's"
    )
    return replace(machine, capacities=capacities), [note]
