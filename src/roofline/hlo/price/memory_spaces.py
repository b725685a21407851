"""Memory spaces: the memory that an array is in, or the link to it.

On TPUs memory space 1 is VMEM, 3 the CMEM of a v4, 4 and 6 hold scalars, 2 flags, and 8 to 12 flags and scalars of a SparseCore; no rate is
published for any but VMEM. Anywhere but on CPUs space 5 is host memory, reached over PCIe.
"""

from ...resource import HBM, PCIE, Resource
from ..ir.platforms import Platform
from ..ir.shapes import Shape

_VMEM = {"read": Resource("vmem.read"), "write": Resource("vmem.write")}
VMEM, CMEM, SCALARS, HOST = 1, 3, frozenset((4, 6)), 5
_FLAGS = frozenset((2, 8, 9, 10, 11, 12))


def level(shape: Shape, platform: Platform, access: str) -> Resource | None:
    """The memory that an array is in, or the link to it; ``None`` for one without a rate."""
    return level_of_space(shape.memory_space, platform, access)


def level_of_space(space: int, platform: Platform, access: str) -> Resource | None:
    """The memory with this number in layouts, or the link to it; ``None`` for one without a rate."""
    if not space or platform == "cpu":
        return HBM
    if space == HOST:
        return PCIE
    if platform == "tpu" and (space == CMEM or space in SCALARS or space in _FLAGS):
        return None
    return _VMEM[access] if platform == "tpu" and space == VMEM else HBM
