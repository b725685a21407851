"""Collectives between the devices of one machine: hops, bytes through the links, and the change of protocol at middling sizes.

    time   floor + hop · (n − 1) + crossing / (share · bandwidth) + hump · bytes / (bytes + middle)

The crossing is (n − 1)/n of the payload, twice that for an all-reduce; with in-switch reduction less crosses the links in groups of 8.
"""

from ..operation import Collective
from .calibration import Calibration, Family
from .terms import Estimate, floor_of

IN_SWITCH = 8  # devices in a group with in-switch reduction


def collective_time(one: Collective, bandwidth: float, family: Family, calibration: Calibration) -> Estimate:
    """The time of a collective; ``bandwidth`` is that of all links of a device together, in one direction."""
    values, devices, moved = family.values, float(one.devices), float(one.bytes)
    others = devices - 1
    crossing = others / devices * moved * (2 if one.kind == "all-reduce" else 1)
    if devices == IN_SWITCH:
        crossing *= values.get("in_switch", 1.0)
    floor, hops = floor_of(family, calibration, values["hop"]), values["hop"] * others
    link = crossing / (values["link"] * bandwidth)
    protocol = values["hump"] * moved / (moved + values["middle"])
    return Estimate(floor + hops + link + protocol, {"floor": floor, "hops": hops, "link": link, "protocol": protocol})
