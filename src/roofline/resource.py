"""Resources: what work asks for and hardware supplies, in one vocabulary.

A resource is a kind of service by one piece of hardware, spelled ``unit`` or ``unit/kind``: ``matrix/bf16``,
``vector/transcendental``, ``hbm``, ``vmem.read``, ``nvlink``, ``ici/hop``. The part before the slash is the unit of
hardware; amounts on one unit add up, units overlap.
"""

from functools import cache

from .dtypes import DType, dtype
from .errors import UnitError
from .value import field, value

COMPUTE_UNITS = ("matrix", "vector", "compute")
SCALE_UP = ("ici", "nvlink", "xgmi", "neuronlink", "xelink", "roce", "ethernet")  # links between chips of one system
LINK_UNITS = (*SCALE_UP, "c2c", "dcn", "pcie")
MEMORY_UNITS = ("hbm", "host", "l3", "l2", "l1", "lds", "vmem", "cmem", "smem", "sbuf", "psum", "tmem", "slc", "sram", "infinity_cache")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_WORD = f"{_LETTERS}0123456789_"


@value(kw_only=False, order=True)
class Resource:
    """One kind of service by one unit of hardware; its name is its identity.

    ``unit`` is the piece of hardware and ``kind`` the service it gives: a number format, ``transcendental``, ``hop``, or nothing.
    ``measure`` is what amounts are counted in: FLOP, B or hop. A resource is compute, a link (its bytes cross from one chip to
    another, or to the host's bus or network) or a memory. Arithmetic is compute that counts as FLOP; transcendentals stand apart.

    >>> Resource("matrix/bf16").unit, Resource("hbm").measure, Resource("ici/hop").measure
    ('matrix', 'B', 'hop')
    """

    name: str
    # What follows from the name, worked out once: programs ask millions of times.
    unit: str = field(init=False, repr=False, compare=False)
    kind: str = field(init=False, repr=False, compare=False)
    measure: str = field(init=False, repr=False, compare=False)
    is_compute: bool = field(init=False, repr=False, compare=False)
    is_link: bool = field(init=False, repr=False, compare=False)
    is_memory: bool = field(init=False, repr=False, compare=False)
    is_arithmetic: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        unit, slash, kind = self.name.partition("/") if isinstance(self.name, str) else ("", "", "")
        if not unit or unit[0] not in _LETTERS or unit.strip(f"{_WORD}.") or bool(slash) != bool(kind) or kind.strip(_WORD):
            raise UnitError(f"{self.name!r} is not a resource; write one like 'matrix/bf16', 'hbm' or 'ici/hop'")
        compute, link = unit in COMPUTE_UNITS, unit.partition(".")[0] in LINK_UNITS
        facts = {
            "unit": unit,
            "kind": kind,
            "measure": "FLOP" if compute else "hop" if kind == "hop" else "B",
            "is_compute": compute,
            "is_link": link,
            "is_memory": not compute and not link,
            "is_arithmetic": compute and kind != "transcendental",
        }
        for name, fact in facts.items():
            object.__setattr__(self, name, fact)

    @property
    def per(self) -> str:
        """What its rate is counted in: ``FLOP/s``, ``B/s`` or ``hop/s``."""
        return f"{self.measure}/s"

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name


def matrix(number: str | DType) -> Resource:
    """The matrix unit working in this number format."""
    return named(f"matrix/{dtype(number).rate}")


def vector(number: str | DType) -> Resource:
    """The vector unit working in this number format."""
    return named(f"vector/{dtype(number).rate}")


named = cache(Resource)  # programs name the same few for each of their operations


def bound_words(bound: str | None) -> str:
    """What a bound is called in a sentence.

    >>> bound_words("matrix"), bound_words("hbm"), bound_words("ici"), bound_words("latency")
    ('compute-bound (matrix)', 'memory-bound (hbm)', 'communication-bound (ici)', 'latency-bound')
    """
    if bound is None or bound == "latency":
        return "no known bound" if bound is None else "latency-bound"
    resource = named(bound)
    return f"{'compute' if resource.is_compute else 'communication' if resource.is_link else 'memory'}-bound ({bound})"


HBM = Resource("hbm")  # main memory, whatever its technology
PCIE = Resource("pcie")  # the bus to the host, one direction of it
HOST = Resource("host")  # the host's memory, seen from an accelerator
TRANSCENDENTAL = Resource("vector/transcendental")
UNNAMED_WORK = Resource("compute")  # arithmetic on an unknown unit
