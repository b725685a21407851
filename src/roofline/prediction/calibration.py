"""Calibrations: fitted parameters of op times on a chip, a few per family of ops, with their errors.

A calibration is data: `machines/calibrations/` has a file for each chip that public measurements support.
"""

from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

REGIMES = ("latency", "memory", "compute")
LATENCY_REGIME_S = 3e-6  # ops with a shorter minimum time are in the regime "latency"
LAUNCHED_FLOOR_S = (
    3.5e-6  # from this floor on, ops were timed as single launches with a cold L2, not in graphs (the least on an H200: 3.9 us)
)
WIDE = (0.6, 2.2)  # interval of measured over predicted time without measurements
BORROWED = 1.6  # factor on the interval's width, in logarithms, for another chip's calibration

Interval = tuple[float, float]


class Family(Struct, frozen=True, kw_only=True):
    """The fitted parameters of one family of ops, and their source.

    ``formats`` are the number formats it is for, any if empty; ``kinds`` the kinds of op, or the library (``cudnn``), likewise.
    ``interval`` has the 5% and 95% quantile of measured over predicted time by regime; ``error`` the mean error of held-out rows.
    """

    family: str
    values: Mapping[str, float]
    formats: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    source: str = ""
    timed: str = ""
    rows: int = 0
    error: Mapping[str, float] = field(default_factory=dict)
    interval: Mapping[str, Interval] = field(default_factory=dict)

    @property
    def smallest_s(self) -> float | None:
        """The time of the smallest op of any kind, timed in the same way: single launches between events; ``None`` in graphs."""
        return self.values.get("smallest")

    def within(self, regime: str) -> Interval:
        return self.interval.get(regime) or self.interval.get("any") or WIDE


class Calibration(Struct, frozen=True, kw_only=True):
    """The fitted op times of one chip.

    ``cores`` are its SMs and ``clock_hz`` their clock. ``floor_s`` is the time
    of its smallest ops, where that was measured for this machine: it replaces every family's own. ``of_kernels`` is whether to predict
    kernel durations, as in profiles, without the overhead of a timer around the call (``timer`` among a family's values). ``borrowed`` is
    the chip on which the parameters were fitted, if another. ``other_card`` is whether they were fitted on other cards than the one that
    was measured.
    """

    name: str
    families: tuple[Family, ...] = ()
    cores: int = 0
    clock_hz: float = 0.0
    floor_s: float | None = None
    of_kernels: bool = False
    borrowed: str = ""
    other_card: bool = False

    def family(self, name: str, kind: str = "", number: str = "") -> Family | None:
        """The family for a kind of op and a number format: the most specific one, timed like the measured floor where there are two."""
        fits = [
            one
            for one in self.families
            if one.family == name and (not one.kinds or kind in one.kinds) and (not one.formats or number in one.formats)
        ]
        if not fits:
            return None
        is_launched = self.floor_s is not None and self.floor_s >= LAUNCHED_FLOOR_S and not self.of_kernels
        same = [one for one in fits if (one.kinds, one.formats) == (fits[0].kinds, fits[0].formats)]
        return next((one for one in same if is_launched is (one.smallest_s is not None)), fits[0])

    def with_floor(self, floor_s: float | None) -> "Calibration":
        """The same with a measured floor."""
        return self if floor_s is None else replace(self, floor_s=floor_s)

    def for_kernels(self) -> "Calibration":
        """The same for durations of kernels."""
        return replace(self, of_kernels=True)
