"""Writing a measured machine as a machine file, for this computer or to share."""

import json
from collections.abc import Iterable
from pathlib import Path

from ..errors import OutputError
from ..files.output_files import write_file
from ..machine import Capacity, Ceiling, Figure
from ..units import show
from .chip_specs import Card, Spec, Sustained, Sweep
from .reading import SCHEMA

DIGITS = 6


def machine_toml(card: Card) -> str:
    """The machine file of a card: its rates with their spread, capacities, sustained rates and the conditions of the measurement."""
    machine = card.machine
    capacities = {each.level.name: each for each in machine.capacities}
    lines = [f"schema = {_text(SCHEMA)}", f"name = {_text(machine.name)}", f"title = {_text(machine.title)}"]
    lines += [f"extends = {_text(card.extends)}"] if card.extends else []
    lines += [f"{key} = {_text(text)}" for key in ("vendor", "kind", "arch") if (text := getattr(machine, key))]
    lines += [f"cores = {machine.cores}"] if not card.extends else []
    lines += [f"launch_latency = {_text(show(machine.launch_latency_s, 's', DIGITS))}"]
    if machine.launch_floor_s is not None:
        lines += [f"launch_floor = {_text(show(machine.launch_floor_s, 's', DIGITS))}"]
    lines += [f"notes = [{', '.join(map(_text, machine.notes))}]"] if machine.notes else []
    if machine.conditions:
        lines += ["", "[conditions]", *(f"{_text(name)} = {_text(value)}" for name, value in machine.conditions)]
    if card.specs:
        lines += ["", "[specs]", *(f"{_text(each.name)} = {{ {_spec(each)} }}" for each in card.specs)]
    if card.sweep:
        lines += ["", "[sweep]"]
        for pattern in dict.fromkeys(each.pattern for each in card.sweep):
            points = (each for each in card.sweep if each.pattern == pattern)
            lines += [f"{_text(pattern)} = [", *(f"    {_text(_point(each))}," for each in points), "]"]
    for ceiling in machine.ceilings:
        resource = ceiling.resource
        kind, key = ("memory", "level") if resource.is_memory else ("link", "resource") if resource.is_link else ("compute", "resource")
        lines += ["", f"[[{kind}]]", f"{key} = {_text(resource.name)}", *_rate(ceiling)]
        if kind == "memory" and (capacity := capacities.pop(resource.name, None)):
            lines += _capacity(capacity)
    for name, capacity in capacities.items():
        lines += ["", "[[memory]]", f"level = {_text(name)}", *_capacity(capacity)]
    for each in card.sustained:
        lines += ["", "[[sustained]]", *_sustained(each)]
    return "\n".join(lines) + "\n"


def _rate(ceiling: Ceiling) -> Iterable[str]:
    per = ceiling.resource.per
    yield f"rate = {_quantity(ceiling.rate, per)}"
    if spread := ceiling.spread:
        percentiles = ", ".join(f"{name} = {_quantity(getattr(spread, name), per)}" for name in ("p5", "p50", "p95"))
        yield f"spread = {{ {percentiles} }}"
    yield f"provenance = {_text(ceiling.provenance)}"
    yield from _citation_and_note(ceiling.citation, ceiling.note)
    if ceiling.others:
        yield "others = ["
        yield from (f"    {{ {_other(other, per)} }}," for other in ceiling.others)
        yield "]"


def _spec(each: Spec) -> str:
    value = _text(each.value) if isinstance(each.value, str) else str(each.value)
    return ", ".join((f"value = {value}", f"provenance = {_text(each.provenance)}", *_citation_and_note(each.citation, each.note)))


def _point(each: Sweep) -> str:
    return f"{each.bytes:.0f} B at {show(each.rate, 'B/s', DIGITS)}"


def _other(other: Figure, per: str) -> str:
    return ", ".join((f"rate = {_quantity(other.value, per)}", *_citation_and_note(other.citation, other.note)))


def _capacity(capacity: Capacity) -> Iterable[str]:
    yield f"capacity = {_text(f'{capacity.bytes:.0f} B')}"
    yield f"capacity_provenance = {_text(capacity.provenance)}"
    if capacity.citation:
        yield f"capacity_source = [{_text(capacity.citation)}]"


def _sustained(each: Sustained) -> Iterable[str]:
    yield f"what = {_text(each.what)}"
    if each.resource:
        yield f"resource = {_text(each.resource.name)}"
    yield f"rate = {_quantity(each.rate, each.per)}"
    if each.fraction is not None:
        yield f"fraction = {each.fraction:.{DIGITS}g}"
    yield f"limit = {_text(each.limit)}"
    yield from _citation_and_note(each.citation, each.note)


def _citation_and_note(citation: str, note: str) -> Iterable[str]:
    if citation:
        yield f"source = [{_text(citation)}]"
    if note:
        yield f"note = {_text(note)}"


def _quantity(value: float, unit: str) -> str:
    return _text(show(value, unit, DIGITS))


def _text(words: str) -> str:
    """A TOML string, escaped like JSON plus DEL, which only TOML requires to be escaped."""
    return json.dumps(words, ensure_ascii=False).replace("\x7f", "\\u007f")


def write_machine_file(card: Card, path: Path) -> None:
    """Write a machine file atomically."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{path}: cannot write: {error.strerror}") from None
    write_file(path, machine_toml(card).encode())
