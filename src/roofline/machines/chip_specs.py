"""Chip specifications: the full content of a machine file. The `Machine`, from which times are computed, is one part of it."""

from msgspec import Struct

from ..machine import Figure, Machine
from ..resource import Resource


class Opinion(Struct, frozen=True):
    """A value as written in the file, its source, and why it was or was not chosen."""

    value: str | int | float
    citation: str = ""
    note: str = ""


class Spec(Struct, frozen=True, kw_only=True):
    """A fact that is not a rate: a clock, a number of cores, a pod's size. Quantities keep the unit in which they were written."""

    name: str
    value: str | int | float
    provenance: str = "user"
    citation: str = ""
    note: str = ""
    others: tuple[Opinion, ...] = ()


class Names(Struct, frozen=True, kw_only=True):
    """The chip's names in one tool (jax, torch, nvidia-smi, other)."""

    tool: str
    names: tuple[str, ...]


class Power(Struct, frozen=True, kw_only=True):
    """Watts of the whole chip, and which of the vendor's terms (TDP, TBP, measured maximum) they are."""

    watts: float
    term: str = ""
    provenance: str = "user"
    citation: str = ""
    note: str = ""
    others: tuple[Figure, ...] = ()


class Memory(Struct, frozen=True, kw_only=True):
    """One memory by its vendor's name, and its level in roofline's vocabulary."""

    level: Resource
    name: str = ""
    type: str = ""
    per_unit: str = ""


class Link(Struct, frozen=True, kw_only=True):
    """One kind of link: B/s of one link and direction (``rate`` of cost models, ``peak`` of the vendor) and of the whole chip.

    ``rate`` is ``None`` for links whose speed is not published; ``others`` may be about a link, a chip or a count.
    """

    resource: Resource
    name: str = ""
    rate: float | None = None
    peak: float | None = None
    count: int | None = None
    chip: float | None = None
    chip_both_ways: float | None = None
    citation: str = ""
    note: str = ""
    others: tuple[Opinion, ...] = ()


class Sustained(Struct, frozen=True, kw_only=True):
    """A measured rate, and its fraction of the vendor's peak; ``limit`` is the name of the lower ceiling derived from it."""

    what: str
    rate: float
    per: str
    resource: Resource | None = None
    fraction: float | None = None
    limit: str = "sustained"
    citation: str = ""
    note: str = ""


class Disagreement(Struct, frozen=True, kw_only=True):
    """A figure on which sources differ, and what was chosen."""

    about: str
    values: tuple[Opinion, ...]
    chosen: str = ""
    note: str = ""


class KnownError(Struct, frozen=True, kw_only=True):
    """A published figure that is wrong for this chip, kept so that the linter recognises it."""

    resource: Resource
    rate: float
    citation: str = ""
    note: str = ""


class Exemption(Struct, frozen=True, kw_only=True):
    """An ``[[exception]]`` of a machine file: a check of the linter that does not hold for one of its figures, and the reason."""

    check: str
    resource: str
    reason: str


class Attribution(Struct, frozen=True, kw_only=True):
    """The origin of a figure according to the file: the provenance, and the citations as written."""

    figure: str
    provenance: str
    citations: tuple[str, ...] = ()


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
    names: tuple[Names, ...] = ()
    names_note: str = ""
    specs: tuple[Spec, ...] = ()
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
        return next((spec.value for spec in self.specs if spec.name == name), None)

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
