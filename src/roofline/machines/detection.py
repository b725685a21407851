"""The machine a recording came from: the catalogue's, with the peaks that the device reported of itself.

A device's own figures come before the catalogue's, which stay beside them. A figure far from the catalogue's is a reporting fault (one
driver gives half the bandwidth of its chip): then the catalogue's is used, and a note says so. A GPU's own compute peaks are its units
times its highest clock, which its matrix unit does not keep: they stand beside the catalogue's and are not used. A CPU says nothing of
itself: this computer, which most likely is the one, is measured.
"""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from ..errors import MachineError
from ..machine import Figure, Machine
from ..units import percent, show
from ..workload import Device
from .catalogue import load

PLAUSIBLE = (0.8, 1.25)  # of the catalogue's figure
DEFAULT_CHIP = "h100-sxm"
CITATION = "the profile's own device description"


def machine_for(devices: Sequence[Device]) -> Machine:
    """The machine of the first device that a recording came from; the default chip, with a note, when it names none."""
    if devices:
        return of_device(devices[0])
    machine = load(DEFAULT_CHIP)
    return replace(machine, notes=(*machine.notes, f"no chip given: using {machine.name}"))


def of_device(device: Device) -> Machine:
    """The machine with this device's name and peaks; an error when neither the catalogue nor the device says anything."""
    try:
        known = load(device.name)
    except MachineError:
        if device.name.lower() == "cpu":
            from .measurement import measure

            return measure()
        if not device.rates:
            raise
        name = re.sub(r"[^a-z0-9]+", "-", device.name.lower()).strip("-") or "device"
        return Machine(name=name, ceilings=(), title=device.name, scope="device").override(dict(device.rates), "profile", CITATION)
    machine = known.per_device() if known.devices > 1 else known
    believed, notes = {}, []
    for name, rate in device.rates.items():
        mine = machine.ceiling(name)
        if mine is not None and mine.resource.is_compute and machine.kind == "gpu":
            machine = machine.beside(name, Figure(rate, CITATION, "units times maximum clock"))
        elif mine is None or PLAUSIBLE[0] <= rate / mine.rate <= PLAUSIBLE[1]:
            believed[name] = rate
        else:
            theirs, ours = show(rate, mine.resource.per), show(mine.rate, mine.resource.per)
            notes.append(
                f"the profile reports {theirs} for {name}, {percent(rate / mine.rate)} of the catalogue's {ours}; using the catalogue's"
            )
    return replace(machine.override(believed, "profile", CITATION), notes=(*machine.notes, *notes))
