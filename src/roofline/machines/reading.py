"""From a machine file to a `Card`; a file that extends another replaces its figures one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from ..errors import UnitError
from ..machine import Capacity, Ceiling, Figure, Limit, Machine
from ..topology import Torus
from ..units import parse
from .chip_specs import Attribution, Card, KnownError, Sweep
from .limits import limits_for
from .machine_file import Link, MachineFile, Rated, Stated, cited, quantity
from .toml_files import WrongValue, each_row, in_file

_T = TypeVar("_T")
_UNKNOWN = Card(machine=Machine(name="", ceilings=()))  # what a file that extends no chip starts from


def build(file: MachineFile, where: str, base: Card = _UNKNOWN) -> Card:
    """The card that a file describes, on top of the card of the chip it extends; ``where`` is the file's name."""
    with in_file(where):
        return _card(file, where, base)


def _card(file: MachineFile, where: str, base: Card) -> Card:
    machine = _machine(file, where, base.machine)
    own = {row.rated_resource.name for _, rows in file.rated for row in rows if row.rate is not None}
    each_row("sustained", file.sustained, lambda row: row.per_second)
    card = Card(
        machine=machine,
        where=where,
        extends=base.machine.name,
        family=file.family,
        usual=file.usual,
        names=file.names,
        specs={**base.specs, **file.specs},
        power=file.power or base.power,
        memories=_laid_over(base.memories, (row for row in file.memory if row.name or row.type), lambda memory: memory.level.name),
        links=_laid_over(base.links, file.link, lambda link: link.resource.name),
        sustained=(*(each for each in base.sustained if str(each.resource) not in own), *file.sustained),
        disagreements=file.disagreement,
        known_errors=(*base.known_errors, *_known_errors(file)),
        exemptions=(*(each for each in base.exemptions if each.resource not in own), *file.exception),
        attributions=tuple(_attributions(file)),
        sweep=tuple(_sweep(file)),
    )
    clock = card.spec("clock")
    clock_hz = parse(clock, "Hz") if isinstance(clock, str) and machine.kind == "tpu" else base.machine.clock_hz
    limits = (*limits_for(machine), *_sustained_limits(card), *(row.limit for row in file.limit))
    _check_names(limits)
    return replace(card, machine=replace(machine, limits=limits, clock_hz=clock_hz))


def _machine(file: MachineFile, where: str, old: Machine) -> Machine:
    """The machine that a file describes, where it differs from the ``old`` one that it extends."""
    name = Path(where).stem if file.name is None else file.name
    if "/" in name or not name:
        raise WrongValue("name", f"{name!r} is not a valid name; leave out the slash")
    given = {key: value for key in _SAME if (value := getattr(file, key))}
    launches = {"launch_latency_s": file.launch_latency, "launch_floor_s": file.launch_floor}
    times = {key: quantity(written, "s", key.removesuffix("_s")) for key, written in launches.items() if written is not None}
    capacities, ceilings = _capacities(file, old), _ceilings(file, old)
    return replace(
        old,
        **given,
        **times,
        name=name,
        title=file.title or old.title or name,
        ceilings=ceilings,
        capacities=capacities,
        limits=(),
        matrix_unit=_matrix_unit(file, old, ceilings),
        torus=Torus(file.torus.largest, file.torus.ring) if file.torus else old.torus,
        power_w=file.power.watts if file.power else old.power_w,
        aliases=tuple(dict.fromkeys((*file.aliases, *(name for names in file.names.by_tool.values() for name in names)))),
        notes=(*old.notes, *file.notes, *((f"extends {old.name}",) if old.name else ())),
        conditions=tuple(file.conditions.items()),
    )


_SAME = ("vendor", "kind", "arch", "year", "devices", "cores", "scope", "matrix_side")  # keys of a file and fields of a machine


def _ceilings(file: MachineFile, old: Machine) -> tuple[Ceiling, ...]:
    """The old rates with the file's own over them."""
    ceilings = {ceiling.resource.name: ceiling for ceiling in old.ceilings}
    own: dict[str, None] = {}
    for key, rows in file.rated:
        for row, ceiling in each_row(key, rows, lambda row: (row, row.ceiling())):
            if ceiling is None:
                continue
            resource = ceiling.resource.name
            if resource in own:
                raise WrongValue("", f"{resource} is rated twice; keep one and put the other under its others")
            own[resource] = None
            ceilings[resource] = _over(ceilings[resource], ceiling, row) if resource in ceilings else ceiling
    if not ceilings:
        raise WrongValue("", "no rates; give at least one [[compute]], [[memory]] or [[link]] with a rate")
    return tuple(ceilings.values())


def _over(old: Ceiling, new: Ceiling, row: Rated) -> Ceiling:
    """A new rate that replaces an inherited one, which is kept in ``others``; keys that a link leaves out are inherited."""
    kept = Figure(old.rate, old.citation, f"{old.provenance}, overridden")
    new = replace(new, others=(*new.others, kept, *old.others))
    if not isinstance(row, Link):
        return new
    return replace(new, count=row.count or old.count, peak=new.peak or old.peak, topology=new.topology or old.topology)


def _capacities(file: MachineFile, old: Machine) -> tuple[Capacity, ...]:
    """The old capacities with the file's own over them."""
    capacities = {capacity.level.name: capacity for capacity in old.capacities}
    for new in filter(None, each_row("memory", file.memory, lambda row: row.held())):
        before = capacities.get(new.level.name)
        kept = (Figure(before.bytes, before.citation, f"{before.provenance}, overridden"), *before.others) if before else ()
        capacities[new.level.name] = replace(new, others=(*new.others, *kept))
    return tuple(capacities.values())


def _matrix_unit(file: MachineFile, old: Machine, ceilings: Iterable[Ceiling]) -> bool | None:
    rated = next((ceiling.resource.name for ceiling in ceilings if ceiling.resource.unit == "matrix"), None)
    if rated and file.matrix_unit is False:
        raise WrongValue("matrix_unit", f"false, but {rated} has a rate; leave one of them out")
    if rated:
        return True
    return old.matrix_unit if file.matrix_unit is None else file.matrix_unit


def _known_errors(file: MachineFile) -> Iterator[KnownError]:
    """The published rates that are known to be wrong."""
    for _, rows in file.rated:
        for row in rows:
            for other, figure in row.other_figures():
                if other.wrong:
                    yield KnownError(resource=row.rated_resource, rate=figure.value, citation=figure.citation, note=other.note)


def _attributions(file: MachineFile) -> Iterator[Attribution]:
    """The origins of the file's own figures, without inherited ones."""
    named: list[tuple[str, Stated]] = [(row.rated_resource.name, row) for row in (*file.compute, *file.link)]
    named += [(row.level.name, row) for row in file.memory]
    named += file.specs.items()
    named += [("power", file.power)] if file.power else []
    for name, row in named:
        for part in ("", "capacity_", "peak_"):
            provenance = getattr(row, f"{part}provenance", None)
            if provenance not in (None, "user"):
                citations = cited(getattr(row, f"{part}source"))
                yield Attribution(figure=f"{name} {part.rstrip('_')}".strip(), provenance=provenance, citations=citations)


def _sweep(file: MachineFile) -> Iterator[Sweep]:
    """The points of a measured sweep: for each pattern its working sets, each with its rate (``"16 MiB at 7.1 TB/s"``)."""
    for pattern, points in file.sweep.items():
        for point in points:
            size, _, rate = point.partition(" at ")
            try:
                yield Sweep(pattern=pattern, bytes=parse(size, "B"), rate=parse(rate, "B/s"))
            except UnitError as error:
                raise WrongValue(f"sweep.{pattern}", f"{error}; write a point like '16 MiB at 7.1 TB/s'") from None


def _laid_over(old: Iterable[_T], new: Iterable[_T], key: Callable[[_T], str]) -> tuple[_T, ...]:
    return tuple({key(value): value for value in (*old, *new)}.values())


def _check_names(limits: Iterable[Limit]) -> None:
    names = [(limit.name, limit.resource.name) for limit in limits]
    for name, resource in names:
        if names.count((name, resource)) > 1:
            raise WrongValue("", f"two limits named {name!r} on {resource}; rename one (limit = '…')")


def _sustained_limits(card: Card) -> Iterator[Limit]:
    """Sustained fractions as lower ceilings. A link's fraction is of the vendor's peak; if the link's rate is even lower, there is none."""
    for each in card.sustained:
        ceiling = card.machine.ceiling(each.resource) if each.resource else None
        if ceiling is None or each.fraction is None:
            continue
        fraction = each.fraction * (ceiling.peak or ceiling.rate) / ceiling.rate
        if fraction < 1:
            yield Limit(name=each.limit, resource=ceiling.resource, fraction=fraction, citation=each.citation, note=each.what)
