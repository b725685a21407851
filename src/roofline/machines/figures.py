"""Figures of a machine file: the compute, memory, link and power tables, parsed into values with their origin."""

from msgspec import Struct

from ..dtypes import dtype
from ..errors import RooflineError
from ..machine import Capacity, Ceiling, Figure, Spread
from ..resource import COMPUTE_UNITS, CROSS_LANE_UNITS, LINK_UNITS, Resource
from .chip_specs import Disagreement, Exemption, KnownError, Link, Memory, Opinion, Power, Spec, Sustained
from .table import Table

FIGURE = ("provenance", "source", "note", "confidence", "others")


class Found(Struct, frozen=True, kw_only=True):
    """The content of one table of figures: a rate, a capacity, the vendor's terms, and published figures known to be wrong."""

    ceiling: Ceiling | None = None
    capacity: Capacity | None = None
    memory: Memory | None = None
    link: Link | None = None
    errors: tuple[KnownError, ...] = ()


def compute(table: Table) -> Found:
    """A ``[[compute]]`` table: the dense rate of one unit in one number format."""
    table.only("resource", "rate", "spread", "sparse", "accumulate", *FIGURE)
    resource = resource_of(table, "resource", "matrix/bf16")
    if resource.is_memory or resource.is_link:
        raise table.error(
            "resource",
            f"{str(resource)!r} is not a compute resource; its unit must be one of {', '.join((*COMPUTE_UNITS, *CROSS_LANE_UNITS))}",
        )
    accumulate = table.text("accumulate")
    others, errors = _others(table, resource)
    ceiling = _ceiling(table, resource, others, f"{accumulate} accumulate" if accumulate else "", sparse=table.quantity("sparse", "FLOP/s"))
    if ceiling is None:
        raise table.error("rate", "missing; write it like rate = '989 TFLOP/s'")
    return Found(ceiling=ceiling, errors=errors)


def memory(table: Table) -> Found:
    """A ``[[memory]]`` table: the capacity and the rate of one memory, either of which may be unknown.

    ``resource`` is the resource of the rate, if that is not the level itself (``vmem.read``).
    """
    table.only(
        *("level", "resource", "name", "type", "per_unit", "rate", "spread", *FIGURE),
        *("capacity", "capacity_provenance", "capacity_source", "capacity_others"),
    )
    level = resource_of(table, "level", "hbm")
    resource = resource_of(table, "resource", "vmem.read") if "resource" in table.data else level
    for key, named in (("level", level), ("resource", resource)):
        if not named.is_memory:
            raise table.error(key, f"{str(named)!r} is not a memory; write compute under [[compute]] and links under [[link]]")
    others, errors = _others(table, resource)
    ceiling = _ceiling(table, resource, others, table.text("per_unit"))
    size = table.quantity("capacity", "B")
    if ceiling is None and size is None:
        raise table.error("", "neither rate nor capacity; give one, like rate = '3.35 TB/s' or capacity = '80 GiB'")
    capacity = None
    if size is not None:
        capacity = Capacity(
            level=level,
            bytes=size,
            provenance=table.provenance("capacity_provenance"),
            citation=table.citation("capacity_source"),
            note=_note(table, table.text("per_unit")),
            others=tuple(_figure(row, "capacity", "B") for row in table.tables("capacity_others")),
        )
    words = Memory(level=level, name=table.text("name"), type=table.text("type"), per_unit=table.text("per_unit"))
    return Found(ceiling=ceiling, capacity=capacity, memory=words, errors=errors)


def link(table: Table) -> Found:
    """A ``[[link]]`` table: the rate of one link in one direction, the vendor's peak, how many, and the whole chip's total."""
    table.only(
        *("resource", "name", "rate", "spread", "peak", "peak_provenance", "peak_source", "count", "topology", *FIGURE),
        *("chip", "chip_both_ways"),
    )
    resource = resource_of(table, "resource", "nvlink")
    if not resource.is_link:
        raise table.error("resource", f"{str(resource)!r} is not a link; its unit must be one of {', '.join(LINK_UNITS)}")
    others, errors = _others(table, resource)
    peak, count = table.quantity("peak", "B/s"), table.whole("count")
    ceiling = _ceiling(table, resource, others, "", peak=peak, count=count or 1, topology=table.text("topology"))
    words = Link(
        resource=resource,
        name=table.text("name"),
        rate=ceiling.rate if ceiling else None,
        peak=peak,
        count=count,
        chip=table.quantity("chip", "B/s"),
        chip_both_ways=table.quantity("chip_both_ways", "B/s"),
        citation=table.citation("peak_source") or table.citation(),
        note=_note(table),
        others=tuple(_link_opinion(row) for row in table.tables("others")),
    )
    return Found(ceiling=ceiling, link=words, errors=errors)


def power(table: Table) -> Power:
    """The ``[power]`` table."""
    table.only("value", "term", *FIGURE)
    watts = table.quantity("value", "W")
    if watts is None:
        raise table.error("value", "missing; write it like value = '700 W'")
    return Power(
        watts=watts,
        term=table.text("term"),
        provenance=table.provenance(),
        citation=table.citation(),
        note=_note(table),
        others=tuple(_figure(row, "value", "W") for row in table.tables("others")),
    )


def spec(name: str, table: Table) -> Spec:
    """One entry of the ``[specs]`` table."""
    table.only("value", *FIGURE)
    return Spec(
        name=name,
        value=table.plain("value"),
        provenance=table.provenance(),
        citation=table.citation(),
        note=_note(table),
        others=tuple(_opinion(row, row.plain("value")) for row in table.tables("others")),
    )


def sustained(table: Table) -> Sustained:
    """A ``[[sustained]]`` table: a measured rate and how it was measured."""
    table.only("what", "resource", "rate", "fraction", "limit", "source", "note")
    resource = resource_of(table, "resource", "matrix/bf16") if "resource" in table.data else None
    per = resource.per if resource else "B/s"
    rate = table.quantity("rate", per)
    if rate is None:
        raise table.error("rate", "missing; write it like rate = '790 TFLOP/s'")
    return Sustained(
        what=table.need("what", "bf16 matmul"),
        rate=rate,
        per=per,
        resource=resource,
        fraction=table.fraction("fraction"),
        limit=table.text("limit", "sustained"),
        citation=table.citation(),
        note=table.text("note"),
    )


def disagreement(table: Table) -> Disagreement:
    """A ``[[disagreement]]`` table."""
    table.only("about", "values", "chosen", "note")
    values = tuple(_opinion(row, row.plain("value")) for row in table.tables("values"))
    return Disagreement(about=table.need("about", "hbm"), values=values, chosen=table.text("chosen"), note=table.text("note"))


def exemption(table: Table) -> Exemption:
    """An ``[[exception]]`` table: a check that does not hold here, and why."""
    table.only("check", "resource", "reason")
    return Exemption(
        check=table.need("check", "ratio"), resource=table.text("resource"), reason=table.need("reason", "stated in the datasheet")
    )


def resource_of(table: Table, key: str, example: str) -> Resource:
    """A resource by name, its number format in our spelling."""
    try:
        named = Resource(table.need(key, example))
        if named.unit in ("matrix", "vector") and named.kind != "transcendental":
            return Resource(f"{named.unit}/{dtype(named.kind).rate}")
    except RooflineError as error:
        raise error if table.file in str(error) else table.wrap(error, key) from None
    return named


def _ceiling(
    table: Table,
    resource: Resource,
    others: tuple[Figure, ...],
    extra: str,
    *,
    sparse: float | None = None,
    peak: float | None = None,
    count: int = 1,
    topology: str = "",
) -> Ceiling | None:
    rate = table.quantity("rate", resource.per)
    if rate is None:
        return None
    citation = table.citation()
    if peak is not None and (of_peak := table.citation("peak_source")):
        citation = f"{citation}; peak: {of_peak}"
    try:
        return Ceiling(
            resource=resource,
            rate=rate,
            provenance=table.provenance(),
            citation=citation,
            note=_note(table, extra),
            peak=peak,
            sparse=sparse,
            count=count,
            topology=topology,
            others=others,
            spread=_spread(table, resource.per),
        )
    except RooflineError as error:
        raise table.wrap(error, "rate") from None


def _spread(table: Table, per: str) -> Spread | None:
    """The percentiles of a measured rate."""
    inner = table.table("spread")
    if inner is None:
        return None
    inner.only("p5", "p50", "p95")
    percentiles = [inner.quantity(key, per) for key in ("p5", "p50", "p95")]
    if any(each is None for each in percentiles):
        raise table.error("spread", f"incomplete; write it like spread = {{ p5 = '9 {per}', p50 = '10 {per}', p95 = '11 {per}' }}")
    return Spread(*(each for each in percentiles if each is not None))


def _note(table: Table, *extra: str) -> str:
    """The note, and what qualifies the figure: accumulation, per-unit sizes, low confidence."""
    confidence = table.text("confidence")
    return "; ".join(part for part in (table.text("note"), *extra, f"confidence {confidence}" if confidence else "") if part)


def _others(table: Table, resource: Resource) -> tuple[tuple[Figure, ...], tuple[KnownError, ...]]:
    """Other published rates, and those of them that are known to be wrong."""
    rows = [row for row in table.tables("others") if "rate" in row.data]
    figures = tuple(_figure(row, "rate", resource.per) for row in rows)
    errors = tuple(
        KnownError(resource=resource, rate=figure.value, citation=figure.citation, note=row.text("note"))
        for row, figure in zip(rows, figures, strict=True)
        if row.flag("wrong")
    )
    return figures, errors


def _figure(row: Table, key: str, dimension: str) -> Figure:
    row.only(key, "source", "note", "wrong")
    value = row.quantity(key, dimension)
    if value is None:
        raise row.error(key, "missing; every other figure needs a value")
    note = row.text("note")
    return Figure(value, row.citation(), f"wrong: {note}" if row.flag("wrong") else note)


def _opinion(row: Table, value: str | int | float) -> Opinion:
    row.only("value", "source", "note")
    return Opinion(value, row.citation(), row.text("note"))


def _link_opinion(row: Table) -> Opinion:
    row.only("rate", "chip", "chip_both_ways", "count", "source", "note", "wrong")
    for key, words in (("rate", ""), ("chip", " per chip"), ("chip_both_ways", " per chip, both ways")):
        if row.quantity(key, "B/s") is not None:
            return Opinion(row.text(key) + words, row.citation(), row.text("note"))
    return Opinion(f"{row.whole('count')} links", row.citation(), row.text("note"))
