"""Calibrations as data: one TOML file per chip, or for chips of one architecture that were fitted together, in `calibrations/`.

A chip without a calibration uses that of its architecture, with wider intervals, if there is one.
"""

import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from msgspec.structs import replace

from ..errors import MachineError, UnitError
from ..machine import Machine
from ..prediction.calibration import REGIMES, Calibration, Family, Interval
from ..units import parse
from .catalogue import card as look_up
from .local import MEASURED
from .reading import parse_file
from .table import Table

FOLDER = Path(__file__).with_name("calibrations")
SCHEMA = "roofline.calibration/1"
_LARGEST = sys.float_info.max
_NEEDED = {
    "products": ("floor", "compute", "memory", "feed", "split", "p"),
    "grouped": ("floor", "compute", "memory", "feed", "split", "p"),
    "prefill": ("floor", "compute", "exponentials", "block", "memory"),
    "decode": ("floor", "block", "memory", "feed", "split", "p"),
    "pointwise": ("floor", "memory"),
    "row-wise": ("floor", "memory", "rows", "start", "column", "p"),
    "collectives": ("floor", "hop", "link", "hump", "middle"),
    "compiled": ("floor", "window", "compute", "memory", "beside", "core"),
}
TPU = "TPU"  # the architecture of chips whose core runs one op at a time: their families have fewer values
_NEEDED_ON_TPU = {
    "products": ("floor", "compute", "memory", "exposed"),
    "pointwise": ("floor", "memory"),
    "collectives": ("floor", "link"),
}
_QUANTIZATION = ("quantize", "quantize_row", "quantize_element")
_SECONDS = ("floor", "exposed", "split", "tile", "ramp", "block", "start", "column", "hop", "hump", *_QUANTIZATION, "timer")
_SHARES = ("compute", "compute_in_profiles", "memory", "memory_in_profiles", "append", "link", "beside", "core")
_BYTES = ("window",)
_OTHER = ("feed", "p", "exponentials", "packs", "rows", "middle", "in_switch", "functions", "elements")


def calibration_for(machine: Machine, floor_s: float | None = None) -> Calibration:
    """The calibration of a machine: its chip's, else its architecture's, else ``None``; with the given or the machine's launch floor."""
    name = machine.chip_name
    chip = name.removesuffix(MEASURED)
    found = _own(chip) or _borrowed(machine, name) or Calibration(name=name)
    if chip != name and not found.borrowed:
        paper = look_up(chip).machine
        found = _of_measured_rates(found, machine, paper.per_device() if machine.scope == "device" else paper)
    return found.with_floor(machine.launch_floor_s if floor_s is None else floor_s)


def _of_measured_rates(found: Calibration, machine: Machine, chip: Machine) -> Calibration:
    """A calibration whose fractions of the datasheet's rates are converted to fractions of the measured rates.

    A library that sustains 0.78 of 989 TFLOP/s sustains 0.91 of a card's measured 850: the absolute rates fitted on other cards stay,
    because a measurement of products and copies says nothing about other kernels, but no op is predicted above a measured rate.
    """

    def ratio(resource: str) -> float:
        paper, measured = chip.resolve(resource), machine.resolve(resource)
        return paper.rate / measured.rate if paper and measured else 1.0

    families = []
    for one in found.families:
        scale = {"compute": ratio(f"matrix/{one.formats[0] if one.formats else 'bf16'}"), "memory": ratio("hbm"), "append": ratio("hbm")}
        values = {key: value * scale.get(key, 1.0) for key, value in one.values.items()}
        families.append(replace(one, values=values))
    return replace(found, families=tuple(families), other_card=True)


@cache
def _own(name: str) -> Calibration | None:
    """What was fitted for a chip, alone or together with others: a file for each."""
    mine = []
    for file in sorted(FOLDER.glob("*.toml")):
        if name not in file.read_text("utf-8"):  # most chips have none, and parsing takes longer than a text search
            continue
        table = parse_file(file)
        if name in table.texts("chips"):
            mine.append(_for_chip(calibration(table), name))
    if not mine:
        return None
    return replace(mine[0], families=tuple(family for each in mine for family in each.families))


def _borrowed(machine: Machine, name: str) -> Calibration | None:
    """The calibration of a chip of the same architecture and vendor; ``None`` for unknown hardware."""
    if machine.kind != "gpu" or not machine.arch:
        return None
    for file in sorted(FOLDER.glob("*.toml")):
        table = parse_file(file)
        if table.text("architecture") == machine.arch.partition(" ")[0]:
            found = _for_chip(calibration(table), name)
            return replace(found, borrowed=table.texts("chips")[0]) if found.cores and found.clock_hz else None
    return None


def _for_chip(found: Calibration, name: str) -> Calibration:
    """A calibration with a chip's own cores and clock."""
    try:
        card = look_up(name)
    except MachineError:
        return replace(found, name=name)
    clock = card.spec("clock")
    try:
        clock_hz = parse(clock, "Hz") if isinstance(clock, str) else 0.0
    except UnitError:
        clock_hz = 0.0
    return replace(found, name=name, cores=card.cores or found.cores, clock_hz=clock_hz or found.clock_hz)


def calibration(table: Table) -> Calibration:
    """A calibration from its table; an invalid value is an error that names the key."""
    table.only("schema", "chips", "architecture", "cores", "clock", "family")
    if (schema := table.text("schema", SCHEMA)) != SCHEMA:
        raise table.error("schema", f"{schema!r} is not supported; this version reads {SCHEMA!r}")
    chips = table.texts("chips")
    if not chips:
        raise table.error("chips", "missing; name the chips that it is for")
    needed = _NEEDED_ON_TPU if table.text("architecture") == TPU else _NEEDED
    return Calibration(
        name=chips[0],
        families=tuple(_family(each, needed) for each in table.tables("family")),
        cores=table.whole("cores") or 0,
        clock_hz=table.quantity("clock", "Hz") or 0.0,
    )


def _family(table: Table, needed: Mapping[str, tuple[str, ...]]) -> Family:
    table.only("family", "formats", "kinds", "source", "timed", "rows", "values", "error", "interval")
    name = table.choice("family", tuple(needed), "")
    if name not in needed:
        raise table.error("family", f"missing; one of {', '.join(needed)}")
    return Family(
        family=name,
        values=_values(table, name, needed[name]),
        formats=table.texts("formats"),
        kinds=table.texts("kinds"),
        source=table.need("source", "vLLM 0.24.0 on H100"),
        timed=table.text("timed"),
        rows=table.whole("rows") or 0,
        error={key: _number(inner, key) for key in inner.data} if (inner := table.table("error")) else {},
        interval={key: _interval(inner, key) for key in inner.data} if (inner := table.table("interval")) else {},
    )


def _values(table: Table, family: str, needed: tuple[str, ...]) -> dict[str, float]:
    inner = table.table("values")
    if inner is None:
        raise table.error("values", f"missing; a family of {family} needs {', '.join(needed)}")
    inner.only(*_SECONDS, *_SHARES, *_BYTES, *_OTHER)
    if missing := [key for key in needed if key not in inner.data]:
        raise inner.error(missing[0], f"missing; {family} need {', '.join(needed)}")
    found: dict[str, float] = {}
    for key in inner.data:
        if key in _SECONDS:
            found[key] = inner.quantity(key, "s") or 0.0
        elif key in _BYTES:
            found[key] = inner.quantity(key, "B") or 0.0
        elif key in _SHARES:
            found[key] = inner.fraction(key) or 0.0
        else:
            found[key] = _number(inner, key)
    return found


def _number(table: Table, key: str) -> float:
    value = table.data[key]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= _LARGEST:
        raise table.error(key, f"{value!r} is not a positive number")
    return float(value)


def _interval(table: Table, key: str) -> Interval:
    value = table.data[key]
    if key not in (*REGIMES, "any"):
        raise table.error(key, f"unknown regime; one of {', '.join((*REGIMES, 'any'))}")
    good = isinstance(value, list) and len(value) == 2 and all(isinstance(one, (int, float)) for one in value)
    if not good or not 0 < value[0] <= 1 <= value[1] <= _LARGEST:  # type: ignore[index]
        raise table.error(key, f"{value!r} is not an interval around 1; write it like [0.85, 1.2], measured over predicted")
    return float(value[0]), float(value[1])  # type: ignore[index]
