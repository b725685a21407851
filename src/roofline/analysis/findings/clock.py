"""The time that findings refer to, per step where there are steps, else of the run; and the savings of changes."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from ...quantities import NOTABLE
from ...report import Point
from ...units import rounded, show
from ...workload import Step, averaged
from ..op_times import OpTimes, values_at

# Share of the time below which a loss is inherent: small kernels between large ones, layouts that the compiler changes for a product (a
# choice: healthy programs lose that much to them).
INHERENT = 0.05


class Clock(Struct, frozen=True, kw_only=True):
    """The time that findings refer to.

    ``whole_s`` is the run in device-seconds, or the minimum time of a program that did not run; ``each_s`` is one step on one device, or
    the run on one, and there are ``parts`` of them. ``steps`` are the keys of the averaged steps, to which findings refer. ``busy_s`` is
    the device-seconds of all parts in which anything ran. ``shares`` is the share of each op's time in those steps, by id. ``least_s`` is
    the minimum time of one part.
    """

    whole_s: float
    each_s: float
    parts: float = 1
    per: str = ""
    steps: frozenset[int | None] = frozenset()
    measured: bool = True
    busy_s: float | None = None
    shares: Mapping[int, float] = {}
    least_s: float = 0.0

    @property
    def notable_s(self) -> float:
        """The smallest saving that is shown, in seconds."""
        return self.of_parts(NOTABLE)

    def of_parts(self, share: float) -> float:
        """A share of the time of all parts."""
        return share * self.each_s * self.parts

    def share(self, id: int) -> float:
        """The share of an op's time that findings refer to."""
        return self.shares.get(id, 1.0)

    def exposed(self, op_times: OpTimes, ids: Sequence[int]) -> float:
        """The share of these ops' self times that is visible on the wall clock: concurrent ops (streams, asynchronous copies) overlap."""
        if self.busy_s is None:
            return 1.0
        spent = self.spent(op_times, ids)
        return min(self.busy_s / spent, 1.0) if spent else 1.0

    def spent(self, op_times: OpTimes, ids: Sequence[int]) -> float:
        """The seconds of some ops that findings refer to."""
        spent = values_at(op_times.spent_s, ids)
        return sum([seconds * self.share(id) for id, seconds in zip(ids, spent, strict=True)] if self.shares else spent)

    def of(self, seconds: float) -> str:
        """Seconds as words, with the time that they are part of: per step, on one device."""
        return f"{show(rounded(seconds / self.parts, 3), 's')} of {show(rounded(self.each_s, 3), 's')}{self.per}"

    def is_below_minimum(self, seconds: float) -> bool:
        """Whether the time without these seconds is below the minimum of the program as written: a change can remove work."""
        return self._without_s(seconds) < self.least_s

    def then(self, seconds: float) -> str:
        """How long it takes without these seconds."""
        return self.then_takes(self._without_s(seconds))

    def then_takes(self, seconds: float) -> str:
        """A time of the step, else of the run, after a change."""
        return f"the {self._what} would take {show(rounded(seconds, 3), 's')}"

    def without(self, seconds: float) -> str:
        return show(rounded(self._without_s(seconds), 3), "s")

    @property
    def _what(self) -> str:
        return "step" if self.per else "run" if self.measured else "program"

    def _without_s(self, seconds: float) -> float:
        return max(self.each_s - seconds / self.parts, 0.0)


def clock_of(points: Sequence[Point], recorded: Iterable[Step]) -> Clock:
    """The clock of a program: its average step where it has steps, else its run. Warm-up steps do not count."""
    keys = frozenset(step.step for step in averaged(recorded))
    whole = [point for point in points if point.infeed_outfeed]
    total = next(point for point in whole if point.scope == "total")
    if not total.time_s:
        least = total.floors_s or total.floor_s or 0.0
        return Clock(whole_s=least, each_s=least, measured=False)
    seconds = total.device_seconds or total.time_s
    steps = [point for point in whole if point.scope == "step" and point.step in keys]
    average = next((point for point in whole if point.scope == "average"), None)
    if average is None or not average.time_s or not steps:
        return Clock(
            whole_s=seconds, each_s=total.time_s, parts=seconds / total.time_s, busy_s=_busy([total]), least_s=total.at_roof_s or 0.0
        )
    parts = sum((point.device_seconds or 0.0) / point.time_s for point in steps if point.time_s)
    least_s = average.at_roof_s or 0.0
    return Clock(whole_s=seconds, each_s=average.time_s, parts=parts, per=" per step", steps=keys, busy_s=_busy(steps), least_s=least_s)


def _busy(points: Iterable[Point]) -> float | None:
    """The device-seconds in which anything ran; ``None`` where it is not known for all points."""
    total = 0.0
    for point in points:
        if point.busy_s is None:
            return None
        total += point.busy_s * ((point.device_seconds or 0.0) / point.time_s if point.time_s and point.device_seconds else 1.0)
    return total
