"""Machines: what a chip supplies of each resource, and where every figure comes from.

>>> chip = Machine.of("toy", {"matrix/bf16": "100 FLOP/s", "hbm": "10 B/s"})
>>> chip.ridge("matrix/bf16", "hbm")
10.0
"""

from collections.abc import Mapping
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from .dtypes import passes_of
from .errors import MachineError, UnitError, did_you_mean
from .resource import EUP, HBM, LINK_UNITS, TRANSCENDENTAL, Resource
from .topology import Topology, Torus
from .units import parse, percent, show

PROVENANCES = {  # of a ceiling, and what each means
    "datasheet": "read in the vendor's own document",
    "quoted": "the vendor's figure, read in another project or text that repeats it",
    "derived": "computed, as the note explains",
    "measured": "a benchmark",
    "profile": "reported by the profile's device",
    "user": "given by the user",
    "third party": "not a figure of the vendor",
}
LAUNCH_LATENCY_S = parse("2 µs", "s")
LATENCY = "latency"  # the bound of work that takes less time than its own launch
LATENCY_TIMES = 5

# Resources that execute work whose own resource has no rate, in order of preference. Products in formats of 16 bits and more run on the
# vector unit if the matrix unit lacks the format (`LACKING`); narrower ones have no such path. A product in fp32 runs as tf32 only where
# the program says tf32.
FALLBACKS: dict[str, tuple[str, ...]] = {
    "matrix/tf32": ("matrix/fp32", "vector/fp32"),
    "matrix/fp32": ("vector/fp32",),
    "matrix/fp64": ("vector/fp64",),
    "matrix/bf16": ("vector/bf16", "vector/fp32"),
    "matrix/fp16": ("vector/fp16", "vector/fp32"),
    "vector/bf16": ("vector/fp32",),
    "vector/fp16": ("vector/fp32",),
    "vector/fp8": ("vector/fp32",),
    "vector/fp4": ("vector/fp32",),
    "vector/int8": ("vector/int32", "vector/fp32"),
    "vector/int16": ("vector/int32", "vector/fp32"),
    "vector/int32": ("vector/fp32",),
    "vector/int64": ("vector/int32", "vector/fp32"),
    "vector/int4": ("vector/int32", "vector/fp32"),
    "vector/tf32": ("vector/fp32",),
    "vector/transcendental": ("vector/fp32",),
}
# A matrix unit with a rate in one of the listed formats but not in the key's lacks the key's format. Volta and Turing have fp16 without
# bf16; no unit has bf16 without fp16, so a missing fp16 rate only means that it is not known.
_HALF = ("matrix/bf16", "matrix/fp16")
LACKING: dict[str, tuple[str, ...]] = {
    "matrix/bf16": ("matrix/fp16",),
    "matrix/fp16": (),
    "matrix/tf32": _HALF,
    "matrix/fp32": (*_HALF, "matrix/tf32"),
    "matrix/fp64": _HALF,
}
# A TPU's matrix unit rounds wider formats to bf16: one pass, the default precision of an fp32 product there. Its host's memory is behind
# the bus to the host.
TPU_FALLBACKS: dict[str, str] = {**dict.fromkeys(("matrix/fp32", "matrix/tf32", "matrix/fp16"), "matrix/bf16"), "host": "pcie"}
# A TPU's transcendental functions run on a unit of their own beside the vector ALUs, so their times overlap and do not add up.
TPU_UNITS: dict[str, str] = {TRANSCENDENTAL.name: EUP.name}


class Figure(Struct, frozen=True, rename={"value": "rate"}):
    """A value of a ceiling or a capacity from another source, and why it was not chosen."""

    value: float
    citation: str = ""
    note: str = ""


class Spread(Struct, frozen=True):
    """The spread of a repeated measurement: its 5th, 50th and 95th percentile."""

    p5: float
    p50: float
    p95: float


class Ceiling(Struct, frozen=True, kw_only=True):
    """A rate for one resource, dense, and where it comes from.

    ``peak`` is the vendor's figure where the rate is the one that cost models use (links); ``sparse`` is the rate with
    structured sparsity. ``count`` is how many such links the chip has; a link's rate is one link, one direction. ``spread`` is that of a
    measured rate, which is the best of several tries. ``fraction`` is what corrections left of the rate that the source gives.
    """

    resource: Resource
    rate: float
    provenance: str = "user"
    citation: str = ""
    note: str = ""
    peak: float | None = None
    sparse: float | None = None
    count: int = 1
    topology: str = ""
    others: tuple[Figure, ...] = ()
    spread: Spread | None = None
    fraction: float = 1.0

    def __post_init__(self) -> None:
        if not self.rate > 0:
            raise MachineError(
                f"{self.resource}: a rate of {show(self.rate, self.resource.per)} is not positive; leave the resource out instead"
            )
        if self.provenance not in PROVENANCES:
            raise MachineError(f"{self.resource}: unknown provenance {self.provenance!r}; use one of {', '.join(PROVENANCES)}")


class Capacity(Struct, frozen=True, kw_only=True):
    """How many bytes one memory holds, and where that figure comes from."""

    level: Resource
    bytes: float
    provenance: str = "user"
    citation: str = ""
    note: str = ""
    others: tuple[Figure, ...] = ()


class Limit(Struct, frozen=True, kw_only=True):
    """A named lower ceiling: the fraction of a resource's rate that a kind of code can reach."""

    name: str
    resource: Resource
    fraction: float
    citation: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise MachineError(f"limit {self.name!r}: fraction {self.fraction:g} is not in (0, 1]")


class Machine(Struct, frozen=True, kw_only=True, dict=True):  # dict: for its cached property
    """A chip, or one framework device of it: ceilings by resource, capacities, limits inside the roof, names.

    ``devices`` says how many framework devices the chip is (2 for TPU v7x); ``scope`` says which of the two this describes. ``matrix_unit``
    is false for a chip that has none: its products run on the vector unit. ``None`` is unknown: a CPU is then assumed to have none, and on
    any other chip a product without a matrix rate has no bound. ``matrix_side`` is the rows and columns of a TPU's matrix unit, which sizes
    that are not multiples fill in part; ``clock_hz`` its clock, in whose cycles the compiler estimates. ``launch_floor_s`` is how long the
    smallest op takes, where that was measured: predictions start from it. ``conditions`` are those of a measurement: its date, threads,
    libraries, by name. ``assumed`` is whether neither the user nor the input named it. ``torus`` says which slices there are of a TPU,
    ``topology`` is the slice that this chip is part of: rates and capacities stay those of one chip or device.
    """

    name: str
    ceilings: tuple[Ceiling, ...]
    capacities: tuple[Capacity, ...] = ()
    limits: tuple[Limit, ...] = ()
    title: str = ""
    vendor: str = ""
    kind: str = ""
    arch: str = ""
    year: int | None = None
    devices: int = 1
    cores: int = 1
    scope: str = "chip"
    matrix_unit: bool | None = None
    matrix_side: int | None = None
    clock_hz: float | None = None
    torus: Torus | None = None
    topology: Topology | None = None
    power_w: float | None = None
    launch_latency_s: float = LAUNCH_LATENCY_S
    launch_floor_s: float | None = None
    aliases: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    conditions: tuple[tuple[str, str], ...] = ()
    assumed: bool = False

    def __post_init__(self) -> None:
        seen = [ceiling.resource for ceiling in self.ceilings]
        if twice := {str(resource) for resource in seen if seen.count(resource) > 1}:
            raise MachineError(f"machine {self.name!r} rates {', '.join(sorted(twice))} twice; keep one and put the other under others")
        if self.devices < 1 or self.cores < 1:
            raise MachineError(f"machine {self.name!r}: devices and cores must be 1 or more")

    @classmethod
    def of(cls, name: str, rates: Mapping[str, str | float], **details: object) -> "Machine":
        """A machine from rates alone, each with its unit or in base units."""
        return cls(name=name, ceilings=tuple(_ceiling(key, rate) for key, rate in rates.items()), **details)  # type: ignore[arg-type]

    def ceiling(self, resource: Resource | str) -> Ceiling | None:
        """The ceiling of exactly this resource, if the machine has one."""
        wanted = str(resource)
        return next((ceiling for ceiling in self.ceilings if ceiling.resource.name == wanted), None)

    def resolve(self, resource: Resource | str) -> Ceiling | None:
        """The ceiling that work on this resource runs under: its own, or the first rated one of its declared fallbacks."""
        asked = resource.name if isinstance(resource, Resource) else resource
        if asked not in self._resolved:
            rounded = (TPU_FALLBACKS.get(asked, asked),) if self.kind == "tpu" else ()
            others = FALLBACKS.get(asked, ()) if self._lacks(asked) else _matrix_only(FALLBACKS.get(asked, ()))
            chain = (asked, *rounded, *others)
            found = next((found for name in chain if (found := self.ceiling(name))), None)
            if found and self.kind == "tpu" and found.resource.name in TPU_UNITS:
                found = replace(found, resource=Resource(TPU_UNITS[found.resource.name]))
            self._resolved[asked] = found or self._directed(asked) or self._repeated(asked)
        return self._resolved[asked]

    def _lacks(self, product: str) -> bool:
        """Whether work runs on the vector unit: it is not a product, or the machine's matrix unit lacks the product's format."""
        if not product.startswith("matrix/"):
            return True
        if self.rates_matrix:
            return any(self.ceiling(name) for name in LACKING.get(product, ()))
        return not self.matrix_unit if self.matrix_unit is not None else self.kind == "cpu"

    @cached_property
    def _resolved(self) -> dict[str, Ceiling | None]:
        return {}

    def _directed(self, asked: str) -> Ceiling | None:
        """The ceiling of one direction of a link: ``pcie.in`` has the rate of ``pcie``, which is one direction's, and a unit of its own."""
        link, dot, _ = asked.partition(".")
        found = self.ceiling(link) if dot and link in LINK_UNITS else None
        return replace(found, resource=Resource(asked)) if found else None

    def _repeated(self, asked: str) -> Ceiling | None:
        """The ceiling of products in several passes: ``matrix/bf16x3`` runs at a third of ``matrix/bf16``."""
        unit, _, kind = asked.partition("/")
        base, passes = passes_of(kind)
        if unit != "matrix" or passes == 1:
            return None
        if found := self.ceiling(f"{unit}/{base}"):
            return replace(found, rate=found.rate / passes)
        return self.ceiling("vector/fp32") if self._lacks(f"{unit}/{base}") else None

    def rate(self, resource: Resource | str) -> float:
        """The rate that work on this resource runs at; an error when nothing is rated for it."""
        found = self.resolve(resource)
        if found is None:
            rated = [ceiling.resource.name for ceiling in self.ceilings]
            raise MachineError(
                f"{self.name} has no known rate for {resource}{did_you_mean(str(resource), rated) or '; known: ' + ', '.join(rated)}"
            )
        return found.rate

    def ridge(self, compute: Resource | str, level: Resource | str = HBM) -> float:
        """The intensity in FLOP/B where the compute roof meets the roof of a memory level or link."""
        return self.rate(compute) / self.rate(level)

    def attainable(self, intensity: float, compute: Resource | str, level: Resource | str = HBM) -> float:
        """P = min(peak, bandwidth x intensity): the best FLOP/s at this intensity."""
        return min(self.rate(compute), self.rate(level) * intensity)

    def launch_binds(self, floor_s: float, time_s: float) -> bool:
        """Whether latency is the bound: a floor below one launch, and a time below five of them."""
        return floor_s < self.launch_latency_s and time_s < LATENCY_TIMES * self.launch_latency_s

    def capacity(self, level: Resource | str = HBM) -> float | None:
        """Bytes one memory holds, if known."""
        return next((capacity.bytes for capacity in self.capacities if capacity.level.name == str(level)), None)

    @property
    def compute(self) -> tuple[Ceiling, ...]:
        return tuple(ceiling for ceiling in self.ceilings if ceiling.resource.is_compute)

    @property
    def rates_matrix(self) -> bool:
        """Whether the matrix unit has a rate in any format."""
        return any(ceiling.resource.unit == "matrix" for ceiling in self.ceilings)

    @property
    def memories(self) -> tuple[Ceiling, ...]:
        return tuple(ceiling for ceiling in self.ceilings if ceiling.resource.is_memory)

    @property
    def links(self) -> tuple[Ceiling, ...]:
        return tuple(ceiling for ceiling in self.ceilings if ceiling.resource.is_link and ceiling.resource.measure == "B")

    @property
    def best_matrix(self) -> Ceiling | None:
        """The compute ceiling a chart draws by default: bf16, else fp16, else the fastest."""
        for name in ("matrix/bf16", "matrix/fp16"):
            if found := self.ceiling(name):
                return found
        return max(self.compute, key=lambda ceiling: ceiling.rate, default=None)

    def override(self, rates: Mapping[str, str | float], provenance: str = "user", citation: str = "") -> "Machine":
        """The same machine with some rates replaced or added; each replaced figure is kept among the others.

        >>> Machine.of("toy", {"hbm": 10}).override({"hbm": "7 B/s"}).rate("hbm")
        7.0
        """
        ceilings = {ceiling.resource.name: ceiling for ceiling in self.ceilings}
        for key, rate in rates.items():
            new = _ceiling(key, rate, provenance, citation)
            if old := ceilings.get(key):
                kept = Figure(old.rate, old.citation, f"{old.provenance}, overridden")
                new = replace(old, rate=new.rate, provenance=provenance, citation=citation, others=(kept, *old.others), spread=None)
            ceilings[key] = new
        return replace(self, ceilings=tuple(ceilings.values()))

    def with_other_figure(self, name: str, figure: Figure) -> "Machine":
        """The same machine with another source's figure added to the ``others`` of one of its rates."""
        ceilings = tuple(replace(c, others=(*c.others, figure)) if c.resource.name == name else c for c in self.ceilings)
        return replace(self, ceilings=ceilings)

    def scaled(self, fractions: Mapping[str, float], why: str) -> "Machine":
        """The same machine with rates times a fraction, by resource or by unit; the full rate is kept among the others."""
        ceilings = []
        for ceiling in self.ceilings:
            fraction = fractions.get(ceiling.resource.name, fractions.get(ceiling.resource.unit))
            if fraction is None:
                ceilings.append(ceiling)
                continue
            if not 0 < fraction <= 1:
                raise MachineError(f"{why}: fraction {fraction:g} for {ceiling.resource} is not in (0, 1]")
            kept = Figure(ceiling.rate, ceiling.citation, f"full rate, {ceiling.provenance}; {why}")
            note, others = f"{ceiling.note}; {why}" if ceiling.note else why, (kept, *ceiling.others)
            lowered = replace(
                ceiling, rate=ceiling.rate * fraction, fraction=ceiling.fraction * fraction, provenance="derived", spread=None
            )
            ceilings.append(replace(lowered, others=others, note=note))
        return replace(self, ceilings=tuple(ceilings))

    def per_device(self) -> "Machine":
        """One framework device of the chip: an equal share of everything but the link's own rate."""
        if self.scope == "device":
            return self
        share = self.devices
        note = f"one of the {share} framework devices of {self.name}: chip figures divided by {share}" if share > 1 else ""
        return replace(
            self,
            name=f"{self.name}/device",
            scope="device",
            ceilings=tuple(_share(ceiling, share) for ceiling in self.ceilings),
            capacities=tuple(_capacity_share(capacity, share) for capacity in self.capacities),
            power_w=self.power_w / share if self.power_w else None,
            notes=(*self.notes, note) if note else self.notes,
        )

    @property
    def chip_name(self) -> str:
        """The name of the chip, whether this is a device of it or part of a slice."""
        return self.name.removesuffix("/device").removesuffix(f":{self.topology}")

    def in_slice(self, topology: Topology) -> "Machine":
        """The same chip or device as part of a slice."""
        many = f"{topology.chips:,} chip{'s' if topology.chips > 1 else ''}"
        if topology.devices_per_chip > 1:
            many += f", {topology.devices:,} devices"
        note = f"a slice of {many}, axes {' x '.join(map(str, topology.axes))}: the rates and capacities are those of one {self.scope}"
        return replace(
            self,
            name=f"{self.name}:{topology}",
            title=f"{self.title or self.name} of a {topology} slice ({many})",
            topology=topology,
            aliases=(),
            notes=(*self.notes, note),
        )

    def sliced(self, name: str, title: str, compute: float, memory: float) -> "Machine":
        """A slice of the chip: a share of its cores, which also bounds the caches and links, and a share of its main memory."""
        why = f"{percent(compute)} of the cores and {percent(memory)} of the memory of {self.name}"
        shares = {c.resource.unit: memory if c.resource == HBM else compute for c in self.ceilings if not c.resource.is_link}
        part = self.scaled(shares, why)
        return replace(
            part,
            name=name,
            title=title,
            scope="device",
            ceilings=tuple(replace(c, provenance="derived", sparse=None) if c.resource.unit in shares else c for c in part.ceilings),
            capacities=tuple(replace(h, bytes=h.bytes * (memory if h.level == HBM else compute), others=()) for h in self.capacities),
            power_w=None,
            aliases=(),
            notes=(*self.notes, f"a slice: {why}"),
        )

    def limited(self, name: str) -> "Machine":
        """The machine under one of its named lower roofs."""
        chosen = [limit for limit in self.limits if limit.name == name]
        if not chosen:
            names = sorted({limit.name for limit in self.limits})
            raise MachineError(
                f"{self.name} has no limit named {name!r}{did_you_mean(name, names) or '; known: ' + (', '.join(names) or 'none')}"
            )
        return self.scaled({limit.resource.name: limit.fraction for limit in chosen}, name)


def _matrix_only(chain: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in chain if name.startswith("matrix/"))


def _ceiling(name: str, rate: str | float, provenance: str = "user", citation: str = "") -> Ceiling:
    resource = Resource(name)
    try:
        return Ceiling(resource=resource, rate=parse(rate, resource.per), provenance=provenance, citation=citation)
    except UnitError as error:
        raise UnitError(f"{name}: {error}") from None


def _share(ceiling: Ceiling, share: int) -> Ceiling:
    """A device's part of a ceiling. The rate of one link stays; a chip's links are shared out where they divide."""
    if ceiling.resource.unit.endswith(".package"):  # these join the devices of one chip: each has them all
        return ceiling
    if ceiling.resource.is_link and ceiling.resource.unit != "pcie":
        return replace(ceiling, count=max(1, ceiling.count // share))
    others = tuple(replace(other, value=other.value / share) for other in ceiling.others)
    sparse = ceiling.sparse / share if ceiling.sparse else None
    return replace(ceiling, rate=ceiling.rate / share, sparse=sparse, others=others, spread=None)


def _capacity_share(capacity: Capacity, share: int) -> Capacity:
    others = tuple(replace(other, value=other.value / share) for other in capacity.others)
    return replace(capacity, bytes=capacity.bytes / share, others=others)
