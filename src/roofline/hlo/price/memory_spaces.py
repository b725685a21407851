"""Memory spaces: the memory that an array is in, or the link to it.

On TPUs memory space 1 is VMEM, 2, 4 and 6 hold flags and scalars, and 8 to 12 those of a SparseCore; for these no rate is published.
Anywhere but on CPUs space 5 is host memory, reached over PCIe.
"""

from ...resource import HBM, PCIE, Resource
from ..ir.platforms import Platform
from ..ir.shapes import Shape

_VMEM = {"read": Resource("vmem.read"), "write": Resource("vmem.write")}
_VMEM_SPACE, _SCALAR_SPACES, _HOST_SPACE = 1, (2, 4, 6, 8, 9, 10, 11, 12), 5


def level(shape: Shape, platform: Platform, access: str) -> Resource | None:
    """The memory that an array is in, or the link to it; ``None`` for scalar memory."""
    return level_of_space(shape.memory_space, platform, access)


def level_of_space(space: int, platform: Platform, access: str) -> Resource | None:
    """The memory with this number in layouts, or the link to it; ``None`` for scalar memory."""
    if not space or platform == "cpu":
        return HBM
    if space == _HOST_SPACE:
        return PCIE
    if platform == "tpu" and space in _SCALAR_SPACES:
        return None
    return _VMEM[access] if platform == "tpu" and space == _VMEM_SPACE else HBM
