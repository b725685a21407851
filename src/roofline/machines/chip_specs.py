"""Chip specifications: everything that is known about a chip. The `Machine`, from which times are computed, is one part of it."""

from msgspec import Struct

from ..machine import Machine
from ..resource import Resource
from .machine_file import Disagreement, Exemption, Link, Memory, Names, Power, Spec, Sustained
from .toml_files import Texts


class KnownError(Struct, frozen=True, kw_only=True):
    """A published figure that is wrong for this chip, kept so that the linter recognises it."""

    resource: Resource
    rate: float
    citation: str = ""
    note: str = ""


class Attribution(Struct, frozen=True, kw_only=True):
    """The origin of a figure according to the file: the provenance, and the citations as written."""

    figure: str
    provenance: str
    citations: Texts = ()


class Sweep(Struct, frozen=True, kw_only=True):
    """A point of a measured sweep over working sets: the pattern (``read``, ``write``, ``copy``, ``per_core``), its bytes, and its B/s."""

    pattern: str
    bytes: float
    rate: float


class Card(Struct, frozen=True, kw_only=True):
    """A machine, and everything known about it beyond its ceilings."""

    machine: Machine
    where: str = ""
    extends: str = ""
    family: str = ""
    usual: bool = False
    names: Names = Names()
    specs: dict[str, Spec] = {}
    power: Power | None = None
    memories: tuple[Memory, ...] = ()
    links: tuple[Link, ...] = ()
    sustained: tuple[Sustained, ...] = ()
    disagreements: tuple[Disagreement, ...] = ()
    known_errors: tuple[KnownError, ...] = ()
    exemptions: tuple[Exemption, ...] = ()
    attributions: tuple[Attribution, ...] = ()
    sweep: tuple[Sweep, ...] = ()

    def spec(self, name: str) -> str | int | float | None:
        """The value of one entry of its specs, as written."""
        return self.specs[name].value if name in self.specs else None

    @property
    def cores(self) -> int | None:
        """How many SMs or CUs the chip has; on a Radeon workgroup processors, two CUs each, which is what HIP counts."""
        found = self.spec("sms") or self.spec("workgroup_processors") or self.spec("compute_units")
        return int(found) if found else None

    @property
    def technology(self) -> str:
        """The main memory's technology without its generation's details: ``HBM3e``, ``GDDR6``, ``LPDDR``; empty when unknown."""
        main = next((memory for memory in self.memories if memory.level.name == "hbm"), None)
        if main is None:
            return ""
        for text in (main.type, main.name):
            word = text.partition(",")[0].partition(" ")[0].partition("-")[0]
            if word.upper().startswith(("HBM", "GDDR", "LPDDR", "DDR")):
                return word
        return ""
