"""Resources: what work asks for and hardware supplies, in one vocabulary.

A resource is a kind of service by one piece of hardware, spelled ``unit`` or ``unit/kind``: ``matrix/bf16``,
``vector/transcendental``, ``hbm``, ``vmem.read``, ``nvlink``, ``ici/hop``. The part before the slash is the unit of
hardware; amounts on one unit add up, units overlap.
"""

import re
from dataclasses import dataclass

from .dtypes import DType, dtype
from .errors import UnitError

COMPUTE_UNITS = ("matrix", "vector", "compute")
SCALE_UP = ("ici", "nvlink", "xgmi", "neuronlink", "xelink", "roce", "ethernet")  # links between chips of one system
LINK_UNITS = (*SCALE_UP, "c2c", "dcn", "pcie")
MEMORY_UNITS = ("hbm", "host", "l3", "l2", "l1", "lds", "vmem", "cmem", "smem", "sbuf", "psum", "tmem", "slc", "sram", "infinity_cache")
_SPELLING = re.compile(r"[a-z][a-z0-9_.]*(/[a-z0-9_]+)?")


@dataclass(frozen=True, slots=True, order=True)
class Resource:
    """One kind of service by one unit of hardware; its name is its identity.

    >>> Resource("matrix/bf16").unit, Resource("hbm").measure, Resource("ici/hop").measure
    ('matrix', 'B', 'hop')
    """

    name: str

    def __post_init__(self) -> None:
        if not _SPELLING.fullmatch(self.name):
            raise UnitError(f"{self.name!r} is not a resource; write it like 'matrix/bf16', 'hbm' or 'ici/hop'")

    @property
    def unit(self) -> str:
        """The piece of hardware."""
        return self.name.partition("/")[0]

    @property
    def kind(self) -> str:
        """The service it gives: a number format, ``transcendental``, ``hop``, or nothing."""
        return self.name.partition("/")[2]

    @property
    def is_compute(self) -> bool:
        return self.unit in COMPUTE_UNITS

    @property
    def is_link(self) -> bool:
        """Whether its bytes cross from one chip to another, or to the host's bus or network."""
        return self.unit.partition(".")[0] in LINK_UNITS

    @property
    def is_memory(self) -> bool:
        return not self.is_compute and not self.is_link

    @property
    def is_arithmetic(self) -> bool:
        """Whether its amounts count as FLOP; transcendentals stand apart."""
        return self.is_compute and self.kind != "transcendental"

    @property
    def measure(self) -> str:
        """What its amounts are counted in: ``FLOP``, ``B`` or ``hop``."""
        if self.is_compute:
            return "FLOP"
        return "hop" if self.kind == "hop" else "B"

    @property
    def per(self) -> str:
        """What its rate is counted in: ``FLOP/s``, ``B/s`` or ``hop/s``."""
        return f"{self.measure}/s"

    def __str__(self) -> str:
        return self.name


def matrix(number: str | DType) -> Resource:
    """The matrix unit working in this number format."""
    return Resource(f"matrix/{dtype(number).rate}")


def vector(number: str | DType) -> Resource:
    """The vector unit working in this number format."""
    return Resource(f"vector/{dtype(number).rate}")


HBM = Resource("hbm")  # main memory, whatever its technology
HOST = Resource("host")  # the host's memory, seen from an accelerator
TRANSCENDENTAL = Resource("vector/transcendental")
UNNAMED_WORK = Resource("compute")  # arithmetic on a unit that nobody can name
