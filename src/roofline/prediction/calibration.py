"""Calibrations: how long the ops of a chip really take, as a few fitted numbers for each family of ops, with their errors.

A calibration is data: `machines/calibrations/` has a file for each chip that public measurements support.
"""

from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

REGIMES = ("latency", "memory", "compute")
LATENCY_REGIME_S = 3e-6  # of minimum time: below that an op is of the regime "latency"
WIDE = (0.6, 2.2)  # measured over predicted, where nothing was measured
BORROWED = 1.6  # how much wider, in logarithms, the interval of another chip's calibration is

Interval = tuple[float, float]


class Family(Struct, frozen=True, kw_only=True):
    """The fitted numbers of one family of ops, and where they come from.

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

    def within(self, regime: str) -> Interval:
        return self.interval.get(regime) or self.interval.get("any") or WIDE


class Calibration(Struct, frozen=True, kw_only=True):
    """What ops take on one chip.

    ``cores`` are its SMs and ``clock_hz`` their clock. ``floor_s`` is the time that its smallest ops take, where that was measured for this
    machine: it takes the place of every family's own. ``of_kernels`` is whether durations of kernels are wanted, as profiles have them,
    without what a timer adds from outside (``timer`` among a family's values). ``borrowed`` is the chip that the numbers were fitted on,
    if another. ``other_card`` is whether they were fitted on other cards of a chip of which this one was measured.
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
        """The family of ops of a kind, in a number format: one made for both before one for any."""
        mine = [one for one in self.families if one.family == name]
        for one in mine:
            if (not one.kinds or kind in one.kinds) and (not one.formats or number in one.formats):
                return one
        return None

    def with_floor(self, floor_s: float | None) -> "Calibration":
        """The same with a measured floor."""
        return self if floor_s is None else replace(self, floor_s=floor_s)

    def for_kernels(self) -> "Calibration":
        """The same for durations of kernels."""
        return replace(self, of_kernels=True)


NO_CALIBRATION = Calibration(name="")
