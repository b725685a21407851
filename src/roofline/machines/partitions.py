"""Partitions of AMD GPUs: a chip set to DPX, TPX, QPX or CPX appears as several devices, each with an equal part of its CUs.

rate of a partition = rate of the chip x its CUs / the chip's CUs

Memory is partitioned separately (NPS1 to NPS8): a device sees all of it, or one of 2, 4 or 8 parts.
"""

from msgspec.structs import replace

from ..machine import Machine
from ..resource import HBM
from ..workload import Hardware
from .chip_specs import Card

MOST_PARTS = 8  # dies with CUs per GPU
SAME_SIZE = 0.1  # drivers reserve some of the memory


def partition(card: Card, hardware: Hardware) -> Machine | None:
    """The partition of a chip with the device's number of CUs; ``None`` if that is not one of 2 to 8 equal parts."""
    chip = card.machine
    parts = _parts(card, hardware)
    if parts is None:
        return None
    title = f"{chip.title}, one of {parts} partitions"
    part = chip.sliced(f"{chip.name}-1-of-{parts}", title, 1 / parts, 1 / parts)
    note = (
        f"a partition of {chip.name} with {hardware.cores} of its {card.cores} CUs: rates and bandwidth are that share of the chip's; "
        "while other partitions are idle it may get more of the bandwidth"
    )
    return replace(part, notes=(*chip.notes, note))


def may_be_part(card: Card, hardware: Hardware) -> bool:
    """Whether a device may be a partition of a chip: its CUs are an equal part of the chip's, its memory all or an equal part."""
    parts, whole, memory = _parts(card, hardware), card.machine.capacity(HBM), hardware.memory_bytes
    if parts is None or not whole or not memory:
        return False
    return any(abs(memory * split / whole - 1) <= SAME_SIZE for split in range(1, parts + 1) if parts % split == 0)


def _parts(card: Card, hardware: Hardware) -> int | None:
    if card.machine.vendor != "AMD" or not card.cores or not hardware.cores:
        return None
    parts, rest = divmod(card.cores, hardware.cores * card.machine.devices)
    return parts if not rest and 2 <= parts <= MOST_PARTS else None
