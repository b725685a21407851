"""Calibrations as data: one TOML file per chip, or for chips of one architecture that were fitted together, in `calibrations/`.

A chip without a calibration uses that of its architecture, with wider intervals, if there is one.
"""

import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from ..errors import MachineError, UnitError, did_you_mean
from ..machine import Machine
from ..prediction.calibration import REGIMES, Calibration, Family, Interval
from ..units import parse
from .catalogue import card as look_up
from .local import MEASURED
from .machine_file import Count, Quantity, quantity
from .toml_files import Texts, WrongValue, each_row, in_file, read_toml

FOLDER = Path(__file__).with_name("calibrations")
SCHEMA: Literal["roofline.calibration/1"] = "roofline.calibration/1"
_LARGEST = sys.float_info.max
_NEEDED = {
    "products": ("floor", "compute", "memory", "feed", "split", "p"),
    "grouped": ("floor", "compute", "memory", "feed", "split", "p"),
    "prefill": ("floor", "compute", "exponentials", "block", "memory"),
    "decode": ("floor", "block", "memory", "feed", "split", "p"),
    "pointwise": ("floor", "memory"),
    "row-wise": ("floor", "memory", "rows", "start", "column", "p"),
    "collectives": ("floor", "hop", "link", "hump", "middle"),
}
TPU = "TPU"  # the architecture of chips whose core runs one op at a time: their families have fewer values
_NEEDED_ON_TPU = {
    "products": ("floor", "compute", "memory", "exposed"),
    "pointwise": ("floor", "memory"),
    "collectives": ("floor", "link"),
    "compiled": ("floor", "window", "compute", "memory", "beside", "core", "scalar"),
}
_QUANTIZATION = ("quantize", "quantize_row", "quantize_element")
_SECONDS = (
    "floor",
    "scalar",
    "exposed",
    "split",
    "tile",
    "ramp",
    "block",
    "start",
    "column",
    "hop",
    "hump",
    *_QUANTIZATION,
    "timer",
    "smallest",
)
_SHARES = ("compute", "compute_in_profiles", "memory", "memory_in_profiles", "append", "link", "beside", "core")
_BYTES = ("window",)
_INTERVAL = "an interval around 1; write it like [0.85, 1.2], measured over predicted"
Positive = Annotated[float, Meta(gt=0, le=_LARGEST, description="a positive number")]
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
    for path in sorted(FOLDER.glob("*.toml")):
        if name not in path.read_text("utf-8"):  # most chips have none, and parsing takes longer than a text search
            continue
        file = read_toml(path, CalibrationFile)
        if name in file.chips:
            mine.append(_for_chip(_calibration(file, path.name), name))
    if not mine:
        return None
    return replace(mine[0], families=tuple(family for each in mine for family in each.families))


def _borrowed(machine: Machine, name: str) -> Calibration | None:
    """The calibration of a chip of the same architecture and vendor; ``None`` for unknown hardware."""
    if machine.kind != "gpu" or not machine.arch:
        return None
    for path in sorted(FOLDER.glob("*.toml")):
        file = read_toml(path, CalibrationFile)
        if file.architecture == machine.arch.partition(" ")[0]:
            found = _for_chip(_calibration(file, path.name), name)
            return replace(found, borrowed=file.chips[0]) if found.cores and found.clock_hz else None
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


class _Family(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A ``[[family]]`` table: what was fitted for one kind of op."""

    family: Annotated[str, Meta(min_length=1, examples=["products"])]
    source: Annotated[str, Meta(min_length=1, examples=["vLLM 0.24.0 on H100"])]
    values: Annotated[dict[str, Quantity], Meta(examples=["{ floor = '2 µs' }"])]
    formats: Texts = ()
    kinds: Texts = ()
    timed: str = ""
    rows: Count = 0
    error: dict[str, Positive] = {}
    interval: dict[str, Annotated[Interval, Meta(description=_INTERVAL)]] = {}

    def value(self, needed: Mapping[str, tuple[str, ...]]) -> Family:
        if self.family not in needed:
            raise WrongValue("family", f"{self.family!r} is not one of {', '.join(needed)}")
        if missing := [key for key in needed[self.family] if key not in self.values]:
            raise WrongValue(f"values.{missing[0]}", f"missing; {self.family} need {', '.join(needed[self.family])}")
        for key, (low, high) in self.interval.items():
            if key not in (*REGIMES, "any"):
                raise WrongValue(f"interval.{key}", f"unknown regime; one of {', '.join((*REGIMES, 'any'))}")
            if not 0 < low <= 1 <= high <= _LARGEST:
                raise WrongValue(f"interval.{key}", f"[{low}, {high}] is not {_INTERVAL}")
        return Family(
            family=self.family,
            values={key: _number(key, written) for key, written in self.values.items()},
            formats=self.formats,
            kinds=self.kinds,
            source=self.source,
            timed=self.timed,
            rows=self.rows,
            error=self.error,
            interval=self.interval,
        )


class CalibrationFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A calibration file, as written."""

    chips: Annotated[Texts, Meta(min_length=1, examples=[["h100-sxm"]])]
    schema: Annotated[Literal["roofline.calibration/1"], Meta(description=f"supported; this version reads {SCHEMA!r}")] = SCHEMA
    architecture: str = ""
    cores: Count = 0
    clock: Quantity | None = None
    family: tuple[_Family, ...] = ()


def read_calibration(path: Path) -> Calibration:
    """The calibration of a file; an invalid value is an error that names the key."""
    return _calibration(read_toml(path, CalibrationFile), path.name)


def _calibration(file: CalibrationFile, where: str) -> Calibration:
    needed = _NEEDED_ON_TPU if file.architecture == TPU else _NEEDED
    with in_file(where):
        families = each_row("family", file.family, lambda row: row.value(needed))
        clock_hz = quantity(file.clock, "Hz", "clock") if file.clock is not None else 0.0
    return Calibration(name=file.chips[0], families=tuple(families), cores=file.cores, clock_hz=clock_hz)


def _number(key: str, written: str | float) -> float:
    """A value of a family in base units."""
    place = f"values.{key}"
    if key in (*_SECONDS, *_BYTES):
        return quantity(written, "s" if key in _SECONDS else "B", place)
    most = 1.0 if key in _SHARES else _LARGEST
    if key not in (*_SHARES, *_OTHER):
        raise WrongValue(place, f"unknown key{did_you_mean(key, (*_SECONDS, *_SHARES, *_BYTES, *_OTHER))}")
    if isinstance(written, str) or not 0 < written <= most:
        raise WrongValue(place, f"{written!r} is not {'a fraction in (0, 1]' if key in _SHARES else 'a positive number'}")
    return float(written)
