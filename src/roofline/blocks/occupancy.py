"""How many blocks run on a core at one time: what they need of it, and what it has."""

from msgspec import Struct

from ..machines.cores import Core

THREADS = 32  # of a warp
REGISTERS_BY = 8  # registers of a thread are given out by so many


class Occupancy(Struct, frozen=True):
    """Blocks that fit a core, and what allows no more: ``registers``, ``shared memory``, ``warps`` or ``blocks``."""

    blocks: int
    limit: str


def occupancy(core: Core, *, warps: int, registers: int, shared: int) -> Occupancy:
    """The blocks of so many warps, registers of a thread and bytes of shared memory that fit a core.

    Registers are given to warps by scheduler, each of which has an equal part of them.
    """
    each = -(-registers // REGISTERS_BY) * REGISTERS_BY * THREADS
    each = -(-each // core.register_granule) * core.register_granule
    held = core.registers // core.schedulers // max(1, each) * core.schedulers
    limits = {
        "registers": held // warps,
        "shared memory": core.bytes("shared") // (shared + core.bytes("shared_reserved")),
        "warps": core.warps // warps,
        "blocks": core.blocks,
    }
    limit, blocks = min(limits.items(), key=lambda pair: pair[1])
    return Occupancy(blocks, limit)
