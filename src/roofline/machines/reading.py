"""Reading a machine file into a `Card`; a file that extends another replaces its figures one by one."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from ..errors import MachineError, UnitError
from ..machine import Capacity, Ceiling, Figure, Limit, Machine
from ..topology import Torus
from ..units import parse, show
from . import figures
from .chip_specs import Attribution, Card, Names, Spec, Sweep
from .figures import Found
from .limits import limits_for
from .table import Table

SCHEMA = "roofline.machine/1"
MOST_BYTES = int(parse("1 MB", "B"))  # a hundred times the longest of the catalogue
KINDS = ("gpu", "tpu", "accelerator", "soc", "cpu")
TOOLS = ("jax", "torch", "nvidia-smi", "other")
_KEYS = (
    *("schema", "extends", "name", "title", "vendor", "kind", "arch", "year", "family", "usual", "devices", "cores", "scope"),
    *("matrix_unit", "matrix_side"),
    *("aliases", "names", "notes", "launch_latency", "launch_floor", "specs", "compute", "memory", "link", "power", "sustained", "limit"),
    *("disagreement", "exception", "conditions", "sweep", "torus"),
)


_T = TypeVar("_T")
_UNKNOWN = Card(machine=Machine(name="", ceilings=()))  # what a file that extends no chip starts from


def parse_file(path: str | Path, *, regular: bool = False) -> Table:
    """A file's TOML as a table. With ``regular``, for a file named by another file, it must be a plain file, not a device or a pipe."""
    try:
        if regular and os.path.exists(path) and not os.path.isfile(path):
            raise MachineError(f"{path}: not a plain file; a machine file extends a chip's name or another machine file")
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise MachineError(f"{path}: larger than {show(MOST_BYTES, 'B')}; a machine file is a page of TOML")
        return Table(Path(path).name, "", tomllib.loads(data.decode("utf-8")))
    except FileNotFoundError:
        raise MachineError(f"{path}: no such file; give a machine file's path or a chip's name") from None
    except OSError as error:
        raise MachineError(f"{path}: cannot read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise MachineError(f"{path}: not UTF-8 text; a machine file is TOML") from None
    except ValueError as error:
        raise MachineError(f"{path}: not TOML: {error}") from None
    except RecursionError:
        raise MachineError(f"{path}: TOML nested too deeply for a machine file") from None


def build(table: Table, base: Card = _UNKNOWN) -> Card:
    """The card that a file describes, on top of the card of the chip it extends."""
    table.only(*_KEYS)
    if (schema := table.text("schema", SCHEMA)) != SCHEMA:
        raise table.error("schema", f"{schema!r} is not supported; this version reads {SCHEMA!r}")
    found = [
        reader(each)
        for key, reader in (("compute", figures.compute), ("memory", figures.memory), ("link", figures.link))
        for each in table.tables(key)
    ]
    sustained = tuple(figures.sustained(each) for each in table.tables("sustained"))
    power = table.table("power")
    names, names_table = _names(table), table.table("names")
    changed = {str(each.ceiling.resource) for each in found if each.ceiling}
    card = Card(
        machine=_machine(table, found, names, base.machine),
        where=table.file,
        extends=base.machine.name,
        family=table.text("family"),
        usual=table.flag("usual"),
        names=names,
        names_note=names_table.text("note") if names_table else "",
        specs=_laid_over(base.specs, _specs(table), lambda each: each.name),
        power=figures.power(power) if power else base.power,
        memories=_laid_over(
            base.memories,
            (each.memory for each in found if each.memory and (each.memory.name or each.memory.type)),
            lambda each: each.level.name,
        ),
        links=_laid_over(base.links, (each.link for each in found if each.link), lambda each: each.resource.name),
        sustained=(*(each for each in base.sustained if str(each.resource) not in changed), *sustained),
        disagreements=tuple(figures.disagreement(each) for each in table.tables("disagreement")),
        known_errors=(*base.known_errors, *(error for each in found for error in each.errors)),
        exemptions=(
            *(each for each in base.exemptions if each.resource not in changed),
            *(figures.exemption(each) for each in table.tables("exception")),
        ),
        attributions=tuple(_attributions(table)),
        sweep=tuple(_sweep(table)),
    )
    clock = card.spec("clock")
    clock_hz = parse(clock, "Hz") if isinstance(clock, str) and card.machine.kind == "tpu" else base.machine.clock_hz
    return replace(card, machine=replace(card.machine, limits=_limits(table, card), clock_hz=clock_hz))


def _machine(table: Table, found: list[Found], names: tuple[Names, ...], old: Machine) -> Machine:
    """The machine that a file describes, where it differs from the ``old`` one that it extends."""
    ceilings = {each.resource.name: each for each in old.ceilings}
    capacities = {each.level.name: each for each in old.capacities}
    own = [each.ceiling for each in found if each.ceiling]
    if twice := sorted({c.resource.name for c in own if sum(other.resource == c.resource for other in own) > 1}):
        raise table.error("", f"{', '.join(twice)} is rated twice; keep one and put the other under its others")
    for each in found:
        if each.ceiling:
            name = each.ceiling.resource.name
            ceilings[name] = _over(ceilings.get(name), each)
        if each.capacity:
            capacities[each.capacity.level.name] = _capacity_over(capacities.get(each.capacity.level.name), each.capacity)
    if not ceilings:
        raise table.error("", "no rates; give at least one [[compute]], [[memory]] or [[link]] with a rate")
    name = table.text("name", Path(table.file).stem)
    if "/" in name or not name:
        raise table.error("name", f"{name!r} is not a valid name; leave out the slash")
    power = table.table("power")
    notes = (*old.notes, *table.texts("notes"), *((f"extends {old.name}",) if old.name else ()))
    latency, floor = (table.quantity(key, "s") for key in ("launch_latency", "launch_floor"))
    return Machine(
        name=name,
        ceilings=tuple(ceilings.values()),
        capacities=tuple(capacities.values()),
        title=table.text("title", old.title or name),
        vendor=table.text("vendor", old.vendor),
        kind=table.choice("kind", KINDS, old.kind),
        arch=table.text("arch", old.arch),
        year=table.whole("year") or old.year,
        devices=table.whole("devices") or old.devices,
        cores=table.whole("cores") or old.cores,
        scope=table.choice("scope", ("chip", "device"), old.scope),
        matrix_unit=_matrix_unit(table, old, ceilings),
        matrix_side=table.whole("matrix_side") or old.matrix_side,
        torus=_torus(table) or old.torus,
        topology=old.topology,
        power_w=figures.power(power).watts if power else old.power_w,
        launch_latency_s=old.launch_latency_s if latency is None else latency,
        launch_floor_s=old.launch_floor_s if floor is None else floor,
        aliases=tuple(dict.fromkeys((*table.texts("aliases"), *(name for each in names for name in each.names)))),
        notes=notes,
        conditions=_conditions(table),
    )


def _conditions(table: Table) -> tuple[tuple[str, str], ...]:
    """The conditions of a measurement; they are not inherited."""
    inner = table.table("conditions")
    return tuple((name, inner.text(name)) for name in inner.data) if inner else ()


def _sweep(table: Table) -> Iterator[Sweep]:
    """The points of a measured sweep: for each pattern its working sets, each with its rate (``"16 MiB at 7.1 TB/s"``)."""
    inner = table.table("sweep")
    for pattern in inner.data if inner else ():
        for words in inner.texts(pattern):  # type: ignore[union-attr]
            size, _, rate = words.partition(" at ")
            try:
                yield Sweep(pattern=pattern, bytes=parse(size, "B"), rate=parse(rate, "B/s"))
            except UnitError as error:
                raise inner.error(pattern, f"{error}; write a point like '16 MiB at 7.1 TB/s'") from None  # type: ignore[union-attr]


def _torus(table: Table) -> Torus | None:
    inner = table.table("torus")
    if inner is None:
        return None
    inner.only("largest", "ring", "provenance", "source", "note")
    inner.provenance()
    inner.citations()
    largest, ring = inner.data.get("largest"), inner.whole("ring")
    if not isinstance(largest, list) or not largest or not all(isinstance(side, int) and side > 0 for side in largest):
        raise inner.error("largest", f"{largest!r} are not the sides of a slice; write them like largest = [16, 16]")
    if ring is None:
        raise inner.error("ring", "missing; write the chips of which an axis has a multiple if it is a ring, like ring = 4")
    return Torus(tuple(largest), ring)


def _matrix_unit(table: Table, old: Machine, ceilings: Mapping[str, Ceiling]) -> bool | None:
    has = table.flag("matrix_unit") if "matrix_unit" in table.data else old.matrix_unit
    rated = [name for name in ceilings if name.startswith("matrix/")]
    if rated and "matrix_unit" in table.data and not has:
        raise table.error("matrix_unit", f"false, but {rated[0]} has a rate; leave one of them out")
    return True if rated else has


def _names(table: Table) -> tuple[Names, ...]:
    inner = table.table("names")
    if inner is None:
        return ()
    inner.only(*TOOLS, "source", "note")
    return tuple(Names(tool=tool, names=inner.texts(tool)) for tool in TOOLS if tool in inner.data)


def _specs(table: Table) -> tuple[Spec, ...]:
    inner = table.table("specs")
    if inner is None:
        return ()
    return tuple(figures.spec(name, each) for name in inner.data if (each := inner.table(name)))


def _attributions(table: Table) -> Iterator[Attribution]:
    """The origins of the file's own figures, without inherited ones."""
    figures_of = [(each.text("resource"), each) for key in ("compute", "link") for each in table.tables(key)]
    figures_of += [(each.text("level"), each) for each in table.tables("memory")]
    if specs := table.table("specs"):
        figures_of += [(name, each) for name in specs.data if (each := specs.table(name))]
    if power := table.table("power"):
        figures_of.append(("power", power))
    for name, each in figures_of:
        for part in ("", "capacity", "peak"):
            key = f"{part}_provenance".lstrip("_")
            if key in each.data:
                cited = each.citations(f"{part}_source".lstrip("_"))
                yield Attribution(figure=f"{name} {part}".strip(), provenance=each.provenance(key), citations=cited)


def _over(old: Ceiling | None, new: Found) -> Ceiling:
    """A new rate that replaces an inherited one, which is kept in ``others``; keys that a link leaves out are inherited."""
    assert new.ceiling is not None
    if old is None:
        return new.ceiling
    kept = Figure(old.rate, old.citation, f"{old.provenance}, overridden")
    merged = replace(new.ceiling, others=(*new.ceiling.others, kept, *old.others))
    if new.link is None:
        return merged
    return replace(
        merged,
        count=new.link.count or old.count,
        peak=old.peak if merged.peak is None else merged.peak,
        topology=merged.topology or old.topology,
    )


def _capacity_over(old: Capacity | None, new: Capacity) -> Capacity:
    if old is None:
        return new
    return replace(new, others=(*new.others, Figure(old.bytes, old.citation, f"{old.provenance}, overridden"), *old.others))


def _laid_over(old: Iterable[_T], new: Iterable[_T], key: Callable[[_T], str]) -> tuple[_T, ...]:
    merged: Mapping[str, _T] = {**{key(each): each for each in old}, **{key(each): each for each in new}}
    return tuple(merged.values())


def _limits(table: Table, card: Card) -> tuple[Limit, ...]:
    """Family limits, sustained fractions, and the file's own ``[[limit]]`` tables."""
    limits = [*limits_for(card.machine), *_sustained_limits(card)]
    for each in table.tables("limit"):
        each.only("name", "resource", "fraction", "source", "note")
        fraction = each.fraction("fraction")
        if fraction is None:
            raise each.error("fraction", "missing; write it like fraction = 0.5")
        resource = figures.resource_of(each, "resource", "vector/fp32")
        limits.append(
            Limit(name=each.need("name", "no FMA"), resource=resource, fraction=fraction, citation=each.citation(), note=each.text("note"))
        )
    seen = [(limit.name, limit.resource.name) for limit in limits]
    for name, resource_name in seen:
        if seen.count((name, resource_name)) > 1:
            raise table.error("", f"two limits named {name!r} on {resource_name}; rename one (limit = '…')")
    return tuple(limits)


def _sustained_limits(card: Card) -> list[Limit]:
    """Sustained fractions as lower ceilings. A link's fraction is of the vendor's peak; if the link's rate is even lower, there is none."""
    limits = []
    for each in card.sustained:
        ceiling = card.machine.ceiling(each.resource) if each.resource else None
        if ceiling is None or each.fraction is None:
            continue
        fraction = each.fraction * (ceiling.peak or ceiling.rate) / ceiling.rate
        if fraction < 1:
            limits.append(Limit(name=each.limit, resource=ceiling.resource, fraction=fraction, citation=each.citation, note=each.what))
    return limits
