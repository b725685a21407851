"""Machines as JSON: what `roofline chips --json` writes."""

from msgspec import Struct

from ..report import MachineInfo


class ChipListing(Struct, frozen=True, kw_only=True):
    """Some machines, each as a report shows its own."""

    schema: str = "roofline.machines/1"
    machines: tuple[MachineInfo, ...]
