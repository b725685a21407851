"""Machine files as typed values: one struct per table, with the keys that may stand in it."""

import re
from typing import Annotated, ClassVar, Literal

from msgspec import Meta, Struct

from ..errors import RooflineError, UnitError
from ..machine import Capacity, Ceiling, Figure, Limit, Spread
from ..resource import COMPUTE_UNITS, CROSS_LANE_UNITS, LINK_UNITS, Resource
from ..units import parse
from .citations import resolve
from .toml_files import Texts, WrongValue, within

SCHEMA: Literal["roofline.machine/1"] = "roofline.machine/1"
DIGITS = 6  # of a measured quantity
Provenance = Literal["datasheet", "quoted", "derived", "measured", "profile", "user", "third party"]
Kind = Literal["gpu", "tpu", "accelerator", "soc", "cpu"]
Count = Annotated[int, Meta(ge=1, description="a count; write a whole number of 1 or more, without quotes")]
Fraction = Annotated[float, Meta(gt=0, le=1, description="a fraction in (0, 1]; write it like 0.8, without quotes")]
Sources = Annotated[Texts | str, Meta(description="a list of strings; write it like source = ['…']")]
Plain = Annotated[str | int | float, Meta(description="text or a number", examples=["1.98 GHz"])]
_QUANTITY = "a quantity; write it with its unit, like '3.35 TB/s' or '80 GiB'"
Quantity = Annotated[str | int | float, Meta(description=_QUANTITY, examples=["80 GiB"])]
Rate = Annotated[Quantity, Meta(examples=["989 TFLOP/s"])]


def quantity(written: str | float, dimension: str, place: str) -> float:
    """A quantity in base units. A number without a unit is an error, because its prefix would be unclear."""
    try:
        if not isinstance(written, str):
            parse(f"{written} {dimension}", dimension)  # a negative or invalid number is reported first
        number = parse(written, dimension)
        if not isinstance(written, str) or re.fullmatch(r"[\s\d.,_eE+-]*", written):
            raise UnitError(f"{written!r} has no unit; write it like '{written} {dimension}'")
    except UnitError as error:
        raise WrongValue(place, str(error)) from None
    return number


def citation_of(source: Texts | str) -> str:
    """Sources as readable text."""
    return "; ".join(map(resolve, cited(source)))


def cited(source: Texts | str) -> Texts:
    """The sources as written, of which one may stand without a list."""
    return (source,) if isinstance(source, str) else source


class Cited(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What every table may say: its sources and a note."""

    source: Sources = ()
    note: str = ""

    units: ClassVar[dict[str, str]] = {}  # of the quantities whose unit does not depend on a resource

    def __post_init__(self) -> None:
        for key, unit in self.units.items():
            self.number(key, unit)

    @property
    def citation(self) -> str:
        return citation_of(self.source)

    def number(self, key: str, dimension: str) -> float | None:
        """The quantity under a key in base units, if it is given."""
        written = getattr(self, key)
        return None if written is None else quantity(written, dimension, key)

    def figure(self, key: str, dimension: str, wrong: bool = False) -> Figure:
        """Another source's value."""
        return Figure(quantity(getattr(self, key), dimension, key), self.citation, f"wrong: {self.note}" if wrong else self.note)


class Opinion(Cited, frozen=True, kw_only=True):
    """A value as another source has it, as written."""

    value: Plain


class OtherRate(Cited, frozen=True, kw_only=True):
    """Another published rate; ``wrong`` is one known to be an error, kept so that the linter recognises it."""

    rate: Quantity | None = None
    wrong: bool = False


class OtherLink(OtherRate, frozen=True, kw_only=True):
    """Another source's figure of a link: of one link, of the chip, or how many."""

    chip: Quantity | None = None
    chip_both_ways: Quantity | None = None
    count: Count | None = None

    units: ClassVar[dict[str, str]] = {"chip": "B/s", "chip_both_ways": "B/s"}


class OtherPower(Cited, frozen=True, kw_only=True):
    value: Quantity
    wrong: bool = False

    units: ClassVar[dict[str, str]] = {"value": "W"}


class OtherCapacity(Cited, frozen=True, kw_only=True):
    capacity: Quantity

    units: ClassVar[dict[str, str]] = {"capacity": "B"}


class Percentiles(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The percentiles of a measured rate."""

    p5: Rate
    p50: Rate
    p95: Rate


class Stated(Cited, frozen=True, kw_only=True):
    """A figure with its origin; a low ``confidence`` is added to its note."""

    provenance: Provenance = "user"
    confidence: str = ""

    def words(self, *extra: str) -> str:
        """The note, and what qualifies the figure: accumulation, per-unit sizes, low confidence."""
        confidence = f"confidence {self.confidence}" if self.confidence else ""
        return "; ".join(part for part in (self.note, *extra, confidence) if part)


class Spec(Stated, frozen=True, kw_only=True):
    """A fact that is not a rate: a clock, a number of cores, a pod's size. Quantities keep the unit in which they were written."""

    value: Plain
    others: tuple[Opinion, ...] = ()


class Power(Stated, frozen=True, kw_only=True):
    """Watts of the whole chip, and which of the vendor's terms (TDP, TBP, measured maximum) they are."""

    value: Annotated[Quantity, Meta(examples=["700 W"])]
    term: str = ""
    others: tuple[OtherPower, ...] = ()

    units: ClassVar[dict[str, str]] = {"value": "W"}

    @property
    def watts(self) -> float:
        return parse(self.value, "W")


class Rated(Stated, frozen=True, kw_only=True):
    """A table with a rate of a ``resource``."""

    resource: Resource | None = None
    rate: Quantity | None = None
    spread: Percentiles | None = None
    others: tuple[OtherRate, ...] = ()

    @property
    def rated_resource(self) -> Resource:
        """The resource of the rate; an error for one of another kind."""
        raise NotImplementedError

    def other_figures(self) -> list[tuple[OtherRate, Figure]]:
        """Other published rates of the same resource."""
        figures = []
        for index, other in enumerate(self.others):
            if other.rate is not None:
                with within(f"others[{index}]"):
                    figures.append((other, other.figure("rate", self.rated_resource.per, other.wrong)))
        return figures

    def ceiling(self) -> Ceiling | None:
        """The ceiling of the rate, if there is one."""
        return self._rated()

    def _rated(self, *extra: str, citation: str = "", **details: object) -> Ceiling | None:
        resource = self.rated_resource
        others = tuple(figure for _, figure in self.other_figures())
        rate = self.number("rate", resource.per)
        if rate is None:
            return None
        spread = None
        if self.spread:
            spread = Spread(*(quantity(getattr(self.spread, key), resource.per, f"spread.{key}") for key in ("p5", "p50", "p95")))
        try:
            return Ceiling(
                resource=resource,
                rate=rate,
                provenance=self.provenance,
                citation=citation or self.citation,
                note=self.words(*extra),
                others=others,
                spread=spread,
                **details,  # type: ignore[arg-type]
            )
        except RooflineError as error:
            raise WrongValue("rate", str(error)) from None


class Compute(Rated, frozen=True, kw_only=True):
    """A ``[[compute]]`` table: the dense rate of one unit in one number format."""

    resource: Annotated[Resource, Meta(examples=["matrix/bf16"])]
    rate: Rate
    sparse: Quantity | None = None
    accumulate: str = ""

    @property
    def rated_resource(self) -> Resource:
        if self.resource.is_memory or self.resource.is_link:
            units = ", ".join((*COMPUTE_UNITS, *CROSS_LANE_UNITS))
            raise WrongValue("resource", f"{str(self.resource)!r} is not a compute resource; its unit must be one of {units}")
        return self.resource

    def ceiling(self) -> Ceiling | None:
        return self._rated(f"{self.accumulate} accumulate" if self.accumulate else "", sparse=self.number("sparse", "FLOP/s"))


class Memory(Rated, frozen=True, kw_only=True):
    """A ``[[memory]]`` table: the capacity and the rate of one memory, either of which may be unknown.

    ``name`` is the vendor's; ``resource`` is the resource of the rate, if that is not the level itself (``vmem.read``).
    """

    level: Annotated[Resource, Meta(examples=["hbm"])]
    name: str = ""
    type: str = ""
    per_unit: str = ""
    capacity: Quantity | None = None
    capacity_provenance: Provenance | None = None
    capacity_source: Sources = ()
    capacity_others: tuple[OtherCapacity, ...] = ()

    @property
    def rated_resource(self) -> Resource:
        resource = self.resource or self.level
        for key, named in (("level", self.level), ("resource", resource)):
            if not named.is_memory:
                raise WrongValue(key, f"{str(named)!r} is not a memory; write compute under [[compute]] and links under [[link]]")
        return resource

    def ceiling(self) -> Ceiling | None:
        found = self._rated(self.per_unit)
        if found is None and self.capacity is None:
            raise WrongValue("", "neither rate nor capacity; give one, like rate = '3.35 TB/s' or capacity = '80 GiB'")
        return found

    def held(self) -> Capacity | None:
        """The capacity, if it is known."""
        size = self.number("capacity", "B")
        if size is None:
            return None
        return Capacity(
            level=self.level,
            bytes=size,
            provenance=self.capacity_provenance or "user",
            citation=citation_of(self.capacity_source),
            note=self.words(self.per_unit),
            others=tuple(other.figure("capacity", "B") for other in self.capacity_others),
        )


class Link(Rated, frozen=True, kw_only=True):
    """A ``[[link]]`` table: the rate of one link in one direction, the vendor's peak, how many, and the whole chip's total."""

    resource: Annotated[Resource, Meta(examples=["nvlink"])]
    name: str = ""
    peak: Quantity | None = None
    peak_provenance: Provenance | None = None
    peak_source: Sources = ()
    count: Count | None = None
    topology: str = ""
    chip: Quantity | None = None
    chip_both_ways: Quantity | None = None
    others: tuple[OtherLink, ...] = ()

    units: ClassVar[dict[str, str]] = {"peak": "B/s", "chip": "B/s", "chip_both_ways": "B/s"}

    @property
    def rated_resource(self) -> Resource:
        if not self.resource.is_link:
            raise WrongValue("resource", f"{str(self.resource)!r} is not a link; its unit must be one of {', '.join(LINK_UNITS)}")
        return self.resource

    def ceiling(self) -> Ceiling | None:
        peak = self.number("peak", "B/s")
        citation = f"{self.citation}; peak: {citation_of(self.peak_source)}" if peak is not None and self.peak_source else ""
        return self._rated(citation=citation, peak=peak, count=self.count or 1, topology=self.topology)


class Sustained(Cited, frozen=True, kw_only=True):
    """A ``[[sustained]]`` table: a measured rate, how it was measured, and its fraction of the vendor's peak.

    ``limit`` is the name of the lower ceiling derived from it.
    """

    what: Annotated[str, Meta(min_length=1, examples=["bf16 matmul"])]
    rate: Rate
    resource: Resource | None = None
    fraction: Fraction | None = None
    limit: str = "sustained"

    @property
    def per(self) -> str:
        return self.resource.per if self.resource else "B/s"

    @property
    def per_second(self) -> float:
        """The rate in base units."""
        return quantity(self.rate, self.per, "rate")


class LimitTable(Cited, frozen=True, kw_only=True):
    """A ``[[limit]]`` table: a lower ceiling of a kind of code."""

    name: Annotated[str, Meta(min_length=1, examples=["no FMA"])]
    resource: Annotated[Resource, Meta(examples=["vector/fp32"])]
    fraction: Annotated[Fraction, Meta(examples=[0.5])]

    @property
    def limit(self) -> Limit:
        return Limit(name=self.name, resource=self.resource, fraction=self.fraction, citation=self.citation, note=self.note)


class Disagreement(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A ``[[disagreement]]`` table: a figure on which sources differ, and what was chosen."""

    about: Annotated[str, Meta(min_length=1, examples=["hbm"])]
    values: tuple[Opinion, ...] = ()
    chosen: str = ""
    note: str = ""


class Exemption(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An ``[[exception]]`` table: a check of the linter that does not hold for one of the file's figures, and the reason."""

    check: Annotated[str, Meta(min_length=1, examples=["ratio"])]
    reason: Annotated[str, Meta(min_length=1, examples=["stated in the datasheet"])]
    resource: str = ""


class Names(Cited, frozen=True, kw_only=True, rename={"nvidia_smi": "nvidia-smi"}):
    """The chip's names in tools."""

    jax: Texts = ()
    torch: Texts = ()
    nvidia_smi: Texts = ()
    other: Texts = ()

    @property
    def by_tool(self) -> dict[str, Texts]:
        named = {"jax": self.jax, "torch": self.torch, "nvidia-smi": self.nvidia_smi, "other": self.other}
        return {tool: names for tool, names in named.items() if names}


class TorusTable(Cited, frozen=True, kw_only=True):
    """The ``[torus]`` table: the largest slice there is, and the chips of which an axis has a multiple if it is a ring."""

    largest: Annotated[tuple[Count, ...], Meta(min_length=1, description="the sides of a slice; write them like largest = [16, 16]")]
    ring: Annotated[Count, Meta(examples=[4])]
    provenance: Provenance = "user"


class MachineFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A machine file. ``extends`` is the chip or the file that it changes: all else is then what differs from it."""

    schema: Annotated[Literal["roofline.machine/1"], Meta(description=f"supported; this version reads {SCHEMA!r}")] = SCHEMA
    extends: str = ""
    name: str | None = None
    title: str = ""
    vendor: str = ""
    kind: Kind | None = None
    arch: str = ""
    year: Count | None = None
    family: str = ""
    usual: bool = False
    devices: Count | None = None
    cores: Count | None = None
    scope: Literal["chip", "device"] | None = None
    matrix_unit: bool | None = None
    matrix_side: Count | None = None
    aliases: Texts = ()
    names: Names = Names()
    notes: Texts = ()
    launch_latency: Quantity | None = None
    launch_floor: Quantity | None = None
    specs: dict[str, Spec] = {}
    compute: tuple[Compute, ...] = ()
    memory: tuple[Memory, ...] = ()
    link: tuple[Link, ...] = ()
    power: Power | None = None
    sustained: tuple[Sustained, ...] = ()
    limit: tuple[LimitTable, ...] = ()
    disagreement: tuple[Disagreement, ...] = ()
    exception: tuple[Exemption, ...] = ()
    conditions: dict[str, str] = {}
    sweep: dict[str, Texts] = {}
    torus: TorusTable | None = None

    @property
    def rated(self) -> tuple[tuple[str, tuple[Rated, ...]], ...]:
        """The tables with rates, by key."""
        return ("compute", self.compute), ("memory", self.memory), ("link", self.link)
