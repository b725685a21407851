"""What a prediction is made of, and the figures that every family of ops needs."""

from collections.abc import Mapping

from msgspec import Struct

from .calibration import Calibration, Family


class Hardware(Struct, frozen=True):
    """A chip as predictions see it: its rates, cores and clock."""

    flops: float
    bandwidth: float
    cores: int
    clock_hz: float


class Estimate(Struct, frozen=True):
    """The time of one execution in seconds, and its terms, each as if it were alone: they overlap."""

    seconds: float
    terms: Mapping[str, float]


def floor_of(family: Family, calibration: Calibration, empty_s: float = 0.0) -> float:
    """The constant term of a family: its own, or what makes the smallest op take the measured floor.

    ``empty_s`` is what the other terms of the smallest op add up to.
    """
    if calibration.floor_s is None:
        return family.values["floor"] - (family.values.get("timer", 0.0) if calibration.of_kernels else 0.0)
    return max(calibration.floor_s - empty_s, 0.0)


def sustained_share(family: Family, calibration: Calibration, unit: str) -> float:
    """The share of a peak rate that ops of a family sustain: kernels in profiles, or calls that tables time again and again."""
    own = family.values.get(f"{unit}_in_profiles") if calibration.of_kernels else None
    return family.values[unit] if own is None else own


def joined(power: float, *seconds: float) -> float:
    """Times that overlap in part: the sum with power 1, the longest with a large one."""
    longest = max(seconds)
    if not longest:
        return 0.0
    total: float = sum((each / longest) ** power for each in seconds) ** (1.0 / power)
    return longest * total
