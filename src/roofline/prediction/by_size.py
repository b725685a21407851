"""Expected time of a formula by size, and the size from which it is compute-bound.

>>> from roofline.formulas import matmul
>>> from roofline.machines import load
>>> from roofline.machines.calibrations import calibration_for
>>> chip = load("h200")
>>> square = Sizes(matmul, ("m", "k", "n"), chip, calibration_for(chip))
>>> small, large = square.at(256), square.at(8192)
>>> small.prediction.time_s > 4 * small.minimum_s, large.prediction.time_s < 1.5 * large.minimum_s
(True, True)
>>> square.first_compute_bound()
694
"""

from collections.abc import Callable, Iterable
from contextlib import suppress

from msgspec import Struct

from ..errors import FormulaError, UsageError
from ..ledger import Ledger
from ..machine import Machine
from ..placement import place_op
from . import Expected, predict
from .calibration import Calibration

DOUBLINGS = 40  # doublings of the free size that are searched
COMPUTING = (
    "math",
    "feed",
    "exponentials",
    "functions",
    "integers",
    "matrix",
    "vector",
    "transcendental",
)  # compute terms, including loads from L2


class SizeTime(Struct, frozen=True):
    """A formula at one size: its minimum time, and the expected one."""

    size: int
    minimum_s: float
    prediction: Expected

    @property
    def is_compute_bound(self) -> bool:
        """Whether the largest term of the expected time is compute, not memory, launch or links."""
        terms = self.prediction.terms
        return max(terms, key=lambda name: terms[name], default="") in COMPUTING


class Sizes:
    """A formula whose ``free`` dimensions vary together, on a machine."""

    def __init__(self, formula: Callable[..., Ledger], free: Iterable[str], machine: Machine, calibration: Calibration) -> None:
        self.formula, self.free, self.machine, self.calibration = formula, tuple(free), machine, calibration

    def at(self, size: int) -> SizeTime:
        """The times at one size."""
        ledger = self.formula(**dict.fromkeys(self.free, size))
        found = predict(ledger.operation, ledger.cost, self.machine, self.calibration)
        if found is None:
            raise UsageError(
                f"{ledger.name} has no expected time on {self.machine.name}: part of its cost is unknown, or has no rate there"
            )
        return SizeTime(size, place_op(ledger.cost, self.machine).floor_s, found)

    def curve(self, sizes: Iterable[int]) -> list[SizeTime]:
        """The times at each size that the formula accepts."""
        found = []
        for size in sizes:
            with suppress(FormulaError):
                found.append(self.at(size))
        return found

    def first_compute_bound(self) -> int | None:
        """The first size that is compute-bound in expected time; ``None`` where none is."""
        curve = self.curve(1 << power for power in range(DOUBLINGS))
        above = next((spot.size for spot in curve if spot.is_compute_bound), None)
        if above is None:
            return None
        below = max((spot.size for spot in curve if spot.size < above), default=0)
        while above - below > 1:
            middle = (above + below) // 2
            tried = self.curve([middle])
            if not tried:
                break
            above, below = (middle, below) if tried[0].is_compute_bound else (above, middle)
        return above
