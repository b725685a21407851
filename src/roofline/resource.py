"""Resources: the common vocabulary for what work needs and what hardware supplies.

A resource is a kind of service by one piece of hardware, spelled ``unit`` or ``unit/kind``: ``matrix/bf16``,
``vector/transcendental``, ``hbm``, ``vmem.read``, ``nvlink``, ``ici/hop``. The part before the slash is the unit of
hardware; amounts on one unit add up, units overlap.
"""

import re
from collections.abc import Iterable
from functools import cache, total_ordering
from typing import ClassVar

from .dtypes import DTYPES, DType, dtype
from .errors import UnitError, UsageError, did_you_mean

COMPUTE_UNITS = ("matrix", "vector", "eup", "compute")  # eup: the unit of a TPU for transcendental functions, beside its vector ALUs
CROSS_LANE_UNITS = ("xlu",)  # of a TPU: they move the registers of an array across lanes, as a transposition does
SCALE_UP = ("ici", "nvlink", "xgmi", "neuronlink", "xelink", "roce", "ethernet")  # links between chips of one system
LINK_UNITS = (*SCALE_UP, "c2c", "dcn", "pcie")
MEMORY_UNITS = ("hbm", "host", "l3", "l2", "l1", "lds", "vmem", "cmem", "smem", "sbuf", "psum", "tmem", "slc", "sram", "infinity_cache")
_PARTS = ("", "read", "write", "in", "out", "package")  # of a memory's ports, a link's directions, a chip's devices
_SPELLING = re.compile(r"[a-z][a-z0-9_.]*(/[a-z0-9_]+)?")


@total_ordering
class Resource:
    """One kind of service by one unit of hardware; its name is its identity.

    ``unit`` is the piece of hardware and ``kind`` the service it gives: a number format, ``transcendental``, ``hop``, or nothing.
    ``measure`` is what amounts are counted in: FLOP, B or hop. A resource is compute, a link (its bytes cross from one chip to another, or
    to the host's bus or network), a memory, or a unit that rearranges registers: its bytes are neither FLOP nor traffic of a memory.
    Arithmetic is compute that counts as FLOP; transcendentals are counted separately.

    >>> Resource("matrix/bf16").unit, Resource("hbm").measure, Resource("ici/hop").measure, Resource("xlu").is_memory
    ('matrix', 'B', 'hop', False)
    """

    # Attributes that follow from the name are computed once: they are read millions of times per program.
    __slots__ = ("is_arithmetic", "is_compute", "is_link", "is_memory", "kind", "measure", "name", "unit")

    _KNOWN: ClassVar[dict[str, "Resource"]] = {}  # one object per name, so that lookups in costs compare by identity

    def __new__(cls, name: str) -> "Resource":
        known = cls._KNOWN.get(name) if isinstance(name, str) else None
        return known or super().__new__(cls)

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not _SPELLING.fullmatch(name):
            raise UnitError(f"{name!r} is not a resource; write one like 'matrix/bf16', 'hbm' or 'ici/hop'")
        self._KNOWN[name] = self
        self.name = name
        self.unit, _, self.kind = name.partition("/")
        self.is_compute = self.unit in COMPUTE_UNITS
        self.is_link = self.unit.partition(".")[0] in LINK_UNITS
        self.is_memory = not self.is_compute and not self.is_link and self.unit not in CROSS_LANE_UNITS
        self.is_arithmetic = self.is_compute and self.kind != "transcendental" and self.unit != "eup"
        self.measure = "FLOP" if self.is_compute else "hop" if self.kind == "hop" else "B"

    @property
    def per(self) -> str:
        """What its rate is counted in: ``FLOP/s``, ``B/s`` or ``hop/s``."""
        return f"{self.measure}/s"

    def __lt__(self, other: "Resource") -> bool:
        return self.name < other.name

    def __reduce__(self) -> tuple[type["Resource"], tuple[str]]:
        return Resource, (self.name,)

    def __repr__(self) -> str:
        return f"Resource({self.name!r})"

    def __str__(self) -> str:
        return self.name


def matrix(number: str | DType) -> Resource:
    """The matrix unit working in this number format."""
    return named(f"matrix/{dtype(number).rate}")


def vector(number: str | DType) -> Resource:
    """The vector unit working in this number format."""
    return named(f"vector/{dtype(number).rate}")


def check_known(resource: Resource, rated: Iterable[str], option: str) -> None:
    """Raise an error for a misspelt resource: one that is neither among the ``rated`` ones of a machine nor in the vocabulary.

    >>> check_known(Resource("hmb"), ["hbm"], "--set")
    Traceback (most recent call last):
    roofline.errors.UsageError: --set hmb: no such resource; did you mean 'hbm'?
    """
    rated = list(rated)
    unit, _, part = resource.unit.partition(".")
    kinds = {one.rate for one in DTYPES.values()} | {"transcendental", ""} if resource.is_compute else {"hop", ""}
    is_word = unit in (*COMPUTE_UNITS, *CROSS_LANE_UNITS, *LINK_UNITS, *MEMORY_UNITS) and part in _PARTS and resource.kind in kinds
    if resource.name not in rated and not is_word:
        words = [*rated, *MEMORY_UNITS, *LINK_UNITS]
        raise UsageError(f"{option} {resource}: no such resource{did_you_mean(resource.name, words) or '; known: ' + ', '.join(rated)}")


named = cache(Resource)  # a program uses the same few names for all of its operations


def bound_words(bound: str | None) -> str:
    """A bound as words for a sentence.

    >>> bound_words("matrix"), bound_words("hbm"), bound_words("ici"), bound_words("latency")
    ('compute-bound (matrix)', 'memory-bound (hbm)', 'communication-bound (ici)', 'latency-bound')
    """
    if bound is None or bound == "latency":
        return "no known bound" if bound is None else "latency-bound"
    resource = named(bound)
    return f"{'memory' if resource.is_memory else 'communication' if resource.is_link else 'compute'}-bound ({bound})"


def main_bound(times: Iterable[tuple[str | None, float]]) -> str | None:
    """The bound that holds for most of the time, from the bound and the seconds of each part; of equal ones the first by name."""
    total: dict[str, float] = {}
    for bound, seconds in times:
        if bound:
            total[bound] = total.get(bound, 0.0) + seconds
    return max(sorted(total), key=lambda bound: total[bound], default=None)


HBM = Resource("hbm")  # main memory, whatever its technology
PCIE = Resource("pcie")  # the bus to the host, one direction of it
DCN = Resource("dcn")  # the data-centre network between slices, a chip's part of it, one direction
HOST = Resource("host")  # the host's memory, seen from an accelerator
TRANSCENDENTAL = Resource("vector/transcendental")
EUP = Resource("eup")  # where transcendental functions run on a TPU
XLU = Resource("xlu")  # bytes of registers that a TPU's cross-lane units move
UNNAMED_WORK = Resource("compute")  # arithmetic on an unknown unit
