"""The terms of a prediction, and the figures that every family of ops needs."""

from collections.abc import Mapping

from msgspec import Struct

from .calibration import Calibration, Family


class Hardware(Struct, frozen=True):
    """The figures of a chip that predictions use: its rates, cores and clock."""

    flops: float
    bandwidth: float
    cores: int
    clock_hz: float


class Estimate(Struct, frozen=True):
    """The time of one execution in seconds, and its terms, each alone; they overlap."""

    seconds: float
    terms: Mapping[str, float]


def floor_of(family: Family, calibration: Calibration, empty_s: float = 0.0) -> float:
    """The constant term of a family: its own, or the one with which its smallest op takes the measured floor.

    ``empty_s`` is the sum of the other terms of the smallest op. Where it is known how long the smallest op of any kind took when the
    family was timed, its own may take longer than the measured floor, by as much as then.
    """
    if calibration.floor_s is None:
        return family.values["floor"] - (family.values.get("timer", 0.0) if calibration.of_kernels else 0.0)
    least = calibration.floor_s
    if family.smallest_s is not None:
        own = family.values["floor"] + empty_s
        least = max(own - max(family.smallest_s - calibration.floor_s, 0.0), least)
    return max(least - empty_s, 0.0)


def sustained_share(family: Family, calibration: Calibration, unit: str) -> float:
    """The share of a peak rate that ops of a family sustain: as kernels in profiles, or as repeatedly timed calls."""
    own = family.values.get(f"{unit}_in_profiles") if calibration.of_kernels else None
    return family.values[unit] if own is None else own


def joined(power: float, *seconds: float) -> float:
    """Times that overlap in part: with power 1 their sum, with a large power the longest."""
    longest = max(seconds)
    if not longest:
        return 0.0
    total: float = sum((each / longest) ** power for each in seconds) ** (1.0 / power)
    return longest * total
