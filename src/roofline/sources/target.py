"""The machine that a source is read for: it decides over which links collectives run, and how many of them."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..errors import MachineError
from ..machine import Machine
from ..workload import Device

if TYPE_CHECKING:
    from ..formulas.network import Network

Target = Machine | Callable[[Sequence[Device]], Machine]  # a machine, or how to find that of some devices


def network_for(target: Target | None, device: Device) -> "Network | None":
    """The network of the machine, or of the device's own chip; ``None`` if it is not known."""
    if target is None:
        return None
    from ..formulas.network import network_of  # only programs with several devices need it

    try:
        return network_of(target if isinstance(target, Machine) else target([device]))
    except MachineError:  # analysis reports it
        return None
