"""Writing a measured machine as a machine file, for this computer or to share."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from ..errors import OutputError
from ..files.output_files import write_file
from ..machine import Capacity, Ceiling
from ..units import show
from .chip_specs import Card
from .machine_file import DIGITS, SCHEMA


def machine_toml(card: Card) -> str:
    """The machine file of a card: its rates with their spread, capacities, sustained rates and the conditions of the measurement."""
    machine = card.machine
    sweep: dict[str, list[str]] = {}
    for point in card.sweep:
        sweep.setdefault(point.pattern, []).append(f"{point.bytes:.0f} B at {_quantity(point.rate, 'B/s')}")
    sizes = {each.level.name: _capacity(each) for each in machine.capacities}
    memories = [{"level": c.resource.name, **_rate(c), **sizes.pop(c.resource.name, {})} for c in machine.memories]
    tables = {
        "schema": SCHEMA,
        "name": machine.name,
        "title": machine.title,
        "extends": card.extends,
        **{key: getattr(machine, key) for key in ("vendor", "kind", "arch")},
        "cores": None if card.extends else machine.cores,
        "launch_latency": _quantity(machine.launch_latency_s, "s"),
        "launch_floor": None if machine.launch_floor_s is None else _quantity(machine.launch_floor_s, "s"),
        "notes": machine.notes,
        "conditions": dict(machine.conditions),
        "specs": card.specs,
        "sweep": sweep,
        "compute": [
            {"resource": c.resource.name, **_rate(c)} for c in machine.ceilings if not (c.resource.is_memory or c.resource.is_link)
        ],
        "memory": [*memories, *({"level": level, **size} for level, size in sizes.items())],
        "link": [{"resource": c.resource.name, **_rate(c)} for c in machine.ceilings if c.resource.is_link],
        "sustained": card.sustained,
    }
    return "\n".join(_toml(to_builtins(tables, enc_hook=str))).lstrip() + "\n"


def _rate(ceiling: Ceiling) -> dict[str, Any]:
    per, spread = ceiling.resource.per, ceiling.spread
    others = [{"rate": _quantity(each.value, per), "source": each.citation, "note": each.note} for each in ceiling.others]
    return {
        "rate": _quantity(ceiling.rate, per),
        "spread": {key: _quantity(getattr(spread, key), per) for key in ("p5", "p50", "p95")} if spread else {},
        "provenance": ceiling.provenance,
        "source": ceiling.citation,
        "note": ceiling.note,
        "others": others,
    }


def _capacity(capacity: Capacity) -> dict[str, str]:
    size = f"{capacity.bytes:.0f} B"
    return {"capacity": size, "capacity_provenance": capacity.provenance, "capacity_source": capacity.citation}


def _quantity(value: float, unit: str) -> str:
    return show(value, unit, DIGITS)


def _toml(tables: Mapping[str, Any], heading: str = "") -> Iterator[str]:
    """The lines of a file, or of one of its tables; what is empty is left out."""
    if heading:
        yield from ("", heading)
    given = {key: value for key, value in tables.items() if value not in (None, "", (), [], {})}
    inner = {key: value for key, value in given.items() if not heading and _is_table(value)}
    yield from (f"{_key(key)} = {_value(value)}" for key, value in given.items() if key not in inner)
    for key, value in inner.items():
        for table in [value] if isinstance(value, dict) else value:
            yield from _toml(table, f"[{key}]" if isinstance(value, dict) else f"[[{key}]]")


def _is_table(value: object) -> bool:
    return isinstance(value, dict) or (isinstance(value, (list, tuple)) and isinstance(value[0], dict))


def _key(key: str) -> str:
    return key if key.replace("_", "").isalnum() and key.isascii() else _value(key)


def _value(value: object) -> str:
    """A value of TOML, in one line unless it is a list of several: a string is escaped like JSON, plus DEL, which only TOML escapes."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{_key(key)} = {_value(inner)}' for key, inner in value.items() if inner != '')} }}"
    if isinstance(value, (list, tuple)):
        inner = [_value(each) for each in value]
        return f"[{inner[0]}]" if len(inner) == 1 else "\n".join(["[", *(f"    {each}," for each in inner), "]"])
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def write_machine_file(card: Card, path: Path) -> None:
    """Write a machine file atomically."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{path}: cannot write: {error.strerror}") from None
    write_file(path, machine_toml(card).encode())
