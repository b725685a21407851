"""Solving: the size at which an operation becomes compute-bound as one of its dimensions grows.

The crossing of a formula is the size x at which the time on its compute unit equals the time on a memory level or link:

    sum over the unit's resources of cost(x)[r] / rate[r]  =  the same sum over the level's

It is exact: formulas are evaluated with whole numbers and fractions, and rates are the rational numbers their floats are. An infinite
dimension is `INFINITE`, so large that the error is below `TIE`; times closer than that count as equal.

>>> from roofline.ledger import read, write
>>> def product(m, k, n):
...     rows = (read("A", (m, k), "bf16"), read("B", (k, n), "bf16"), write("C", (m, n), "bf16"))
...     return Ledger("product", Cost.of({"matrix/bf16": 2 * m * k * n}), rows)
>>> chip = Machine.of("v5e", {"matrix/bf16": "197 TFLOP/s", "hbm": "820 GB/s"})
>>> found = cross(product, "m", chip, k="inf", n="inf")
>>> round(found.real, 2), found.integer, found.regime
(240.24, 241, 'compute above')
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from itertools import pairwise
from math import inf, isinf
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from .cost import Cost
from .errors import FormulaError, UsageError, did_you_mean
from .ledger import Ledger
from .machine import Machine
from .resource import HBM, Resource, bound_words
from .units import plain, show

Formula = Callable[..., Ledger | Cost]

SCHEMA = "roofline.crossing/1"
INFINITE = 2**200  # value of an infinite fixed dimension
TIE = Fraction(1, 2**100)  # times closer than this, relatively, are equal
DOUBLINGS = 64  # of the free dimension that are searched; limits are taken at the last
ULP = Fraction(1, 2**60)  # a relative width well below that of a float's last digit
UNBOUNDED = 2**90  # an intensity beyond this comes from an infinite dimension
NEIGHBOURS = 2048  # whole numbers tried around one that the formula refuses, as for tiles that must divide


class ExpectedCrossing(Struct, frozen=True, kw_only=True):
    """The first size that is compute-bound in expected time, ``None`` where none is, and the calibration it comes from."""

    first: int | None
    evidence: str


class Crossing(Struct, frozen=True, kw_only=True):
    """Where compute time and memory (or link) time meet, or the fact that they do not.

    ``real`` is the crossing itself (``None`` for formulas of whole numbers only); ``integer`` the nearest whole number on its compute side,
    where the compute unit takes at least as long: the first one for ``compute above``, the last for ``compute below``. ``intensity`` and
    ``ridge``, in FLOP/B, are those of the compared unit's work at the crossing, where they are equal; without one, in the limit of a very
    large dimension. ``compute`` and ``level`` are the resources compared, as the formula names them; ``compute_unit`` and ``level_unit``
    the hardware they run on: a matrix product on a chip without a matrix unit says ``vector``. ``others`` are further crossings of a
    formula that crosses more than once. ``unrated`` are the resources on either side that are left out because the machine has no rate for
    them; it is an error if a whole side has none.
    """

    free: tuple[str, ...]
    regime: str
    real: float | None
    integer: int | None
    intensity: float
    ridge: float
    compute_unit: str
    level_unit: str
    compute: tuple[Resource, ...]
    level: tuple[Resource, ...]
    others: tuple[float, ...] = ()
    unrated: tuple[Resource, ...] = ()
    expected: ExpectedCrossing | None = None

    @property
    def crosses(self) -> bool:
        return self.integer is not None

    @property
    def words(self) -> str:
        """The result as one sentence."""
        name = " = ".join(self.free)
        if self.integer is None:
            bound = bound_words(self.compute_unit if self.regime == "always compute" else self.level_unit)
            return f"{bound} for every {name}: intensity tends to {show(self.intensity, 'FLOP/B')}, ridge {show(self.ridge, 'FLOP/B')}"
        sign = "≥" if self.regime == "compute above" else "≤"
        exactly = f" (crossover {plain(self.real, 6)})" if self.real is not None else ""
        return f"{bound_words(self.compute_unit)} for {name} {sign} {self.integer:,}{exactly}, else {bound_words(self.level_unit)}"


class CrossingReport(Struct, frozen=True, kw_only=True):
    """A crossing as JSON, with the names of the formula and the machine; an infinite intensity or ridge is ``None``."""

    schema: str = SCHEMA
    formula: str
    machine: str
    free: tuple[str, ...]
    regime: str
    real: float | None
    integer: int | None
    intensity: float | None
    ridge: float | None
    compute: tuple[str, ...]
    level: tuple[str, ...]
    others: tuple[float, ...]
    notes: tuple[str, ...]
    expected: ExpectedCrossing | None = None


def crossing_report(found: Crossing, formula: str, machine: Machine) -> CrossingReport:
    """The crossing of a formula on a machine as JSON."""
    return CrossingReport(
        formula=formula,
        machine=machine.name,
        free=found.free,
        regime=found.regime,
        real=found.real,
        integer=found.integer,
        intensity=None if isinf(found.intensity) else found.intensity,
        ridge=None if isinf(found.ridge) else found.ridge,
        compute=tuple(resource.name for resource in found.compute),
        level=tuple(resource.name for resource in found.level),
        others=found.others,
        notes=machine.notes,
        expected=found.expected,
    )


class _Side(Struct, frozen=True):
    """One of the two compared units at one size, in exact numbers: its seconds, its FLOP or bytes, and the resources that run on it."""

    unit: str
    seconds: Fraction = Fraction()
    amount: Fraction = Fraction()
    resources: tuple[Resource, ...] = ()


class _Sides(Struct, frozen=True):
    """Both sides at one size."""

    compute: _Side
    level: _Side
    unrated: tuple[Resource, ...]
    used: tuple[Resource, ...]

    @property
    def on_compute(self) -> bool:
        """Whether the compute unit takes at least as long as the level; a tie counts as compute-bound, as in a placement."""
        longer = max(self.compute.seconds, self.level.seconds)
        return self.compute.seconds - self.level.seconds >= -TIE * longer

    @property
    def intensity(self) -> float:
        ratio = self.compute.amount / self.level.amount if self.level.amount else UNBOUNDED
        return float(ratio) if ratio < UNBOUNDED else inf

    @property
    def ridge(self) -> float:
        """The compute unit's FLOP/s for this mix of work over the level's B/s for this traffic."""
        if not self.compute.seconds or not self.level.amount:
            return inf
        return float(self.compute.amount / self.compute.seconds * self.level.seconds / self.level.amount)


SidesAtSize = Callable[[int | Fraction], _Sides]


def cross(
    formula: Formula,
    free: str | Iterable[str],
    machine: Machine,
    *,
    compute: Resource | str | None = None,
    level: Resource | str = HBM,
    **fixed: Any,
) -> Crossing:
    """Find where a formula changes from memory-bound (or link-bound) to compute-bound as its ``free`` dimension grows from 1.

    Several free names grow together: ``("m", "k", "n")`` is a square product. Fixed dimensions may be ``inf``. ``compute`` is a
    resource or a unit; by default, the compute unit that the formula keeps busiest. ``level`` is a memory or a link. A
    formula whose own arguments are called ``compute`` or ``level`` takes them through `functools.partial`.
    """
    names = (free,) if isinstance(free, str) else tuple(free)
    given = {name: _size(value) for name, value in fixed.items()}
    _check_names(formula, names, given)

    def at(x: int | Fraction) -> _Sides:
        size = int(x) if x.denominator == 1 else x
        priced = formula(**dict.fromkeys(names, size), **given)
        cost = priced.cost if isinstance(priced, Ledger) else priced
        if not isinstance(cost, Cost):
            raise UsageError(f"{_name(formula)} returns {type(cost).__name__}; a formula returns a Ledger or a Cost")
        return _sides(cost, machine, compute, str(level))

    samples = _scan(at)
    _check_sides([sides for _, sides in samples], compute, str(level))
    crossings = [
        (_crossing_between(at, low, high, after.on_compute), after.on_compute)
        for (low, before), (high, after) in pairwise(samples)
        if before.on_compute != after.on_compute
    ]
    if not crossings:
        (_, before), (_, last) = samples[-2:]
        return _crossing(names, last, "always compute" if last.on_compute else "always memory", _limit(before.intensity, last.intensity))
    (integer, real), rising = crossings[0]
    there = at(integer if real is None else real)
    return replace(
        _crossing(names, there, "compute above" if rising else "compute below", there.intensity),
        real=None if real is None else float(real),
        integer=integer,
        others=tuple(float(whole if exact is None else exact) for (whole, exact), _ in crossings[1:]),
    )


def _crossing(free: tuple[str, ...], sides: _Sides, regime: str, intensity: float) -> Crossing:
    return Crossing(
        free=free,
        regime=regime,
        real=None,
        integer=None,
        intensity=intensity,
        ridge=sides.ridge,
        compute_unit=sides.compute.unit,
        level_unit=sides.level.unit,
        compute=sides.compute.resources,
        level=sides.level.resources,
        unrated=sides.unrated,
    )


def _size(value: object) -> object:
    """A fixed argument as it is passed to the formula: infinity, as a number or as a word, becomes a very large whole number."""
    if isinstance(value, str) and value.strip().lower() in ("inf", "infinity", "∞"):
        return INFINITE
    return INFINITE if value == inf else value


def _name(formula: Formula) -> str:
    return str(getattr(getattr(formula, "func", formula), "__name__", "the formula"))


def _check_names(formula: Formula, free: tuple[str, ...], fixed: Mapping[str, object]) -> None:
    """Reject unknown names and missing dimensions."""
    if not free:
        raise UsageError(f"{_name(formula)}: no free dimension; name the one to vary")
    if both := [name for name in free if name in fixed]:
        raise UsageError(f"{_name(formula)}: {both[0]} is both free and fixed; leave one out")
    parameters = inspect.signature(formula).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for name in (*free, *fixed):
        if name not in parameters:
            raise UsageError(
                f"{_name(formula)} has no argument {name!r}{did_you_mean(name, parameters) or '; it has ' + ', '.join(parameters)}"
            )
    if missing := [name for name, one in parameters.items() if one.default is one.empty and name not in (*free, *fixed)]:
        raise UsageError(f"{_name(formula)}: missing {', '.join(missing)}; give each a size, or inf")


def _check_sides(samples: list[_Sides], compute: Resource | str | None, level: str) -> None:
    """Raise an error if one of the two sides has no work at any size."""
    used = ", ".join(map(str, samples[-1].used)) or "nothing"
    if not any(sides.compute.resources for sides in samples):
        raise UsageError(f"the formula has no work on {compute or 'any compute unit'}; it uses {used}")
    if not any(sides.level.resources for sides in samples):
        raise UsageError(f"the formula has no {level} traffic; it uses {used}")


def _scan(at: SidesAtSize) -> list[tuple[int, _Sides]]:
    """The sides at the first size that the formula accepts, and at its doublings."""
    first, refused = 1, FormulaError("the formula accepts no size")
    while first <= NEIGHBOURS:
        try:
            at(first)
            break
        except FormulaError as error:
            first, refused = first + 1, error
    else:
        raise refused
    samples = []
    for power in range(DOUBLINGS + 1):
        with suppress(FormulaError):
            samples.append((first << power, at(first << power)))
    return samples if len(samples) > 1 else samples * 2


def _crossing_between(at: SidesAtSize, low: int, high: int, rising: bool) -> tuple[int, Fraction | None]:
    """The whole number on the compute side of the crossing between two sizes, and the crossing itself where fractions make sense.

    Whole numbers are searched first, and the exact crossing between two neighbours: tile counts make a formula jump, and both answers must
    be at the same jump.
    """
    while middle := _whole_between(at, low, high):
        if middle[1].on_compute == rising:
            high = middle[0]
        else:
            low = middle[0]
    below, above = Fraction(low), Fraction(high)
    try:
        while above - below > ULP * below:
            half = (below + above) / 2
            if at(half).on_compute == rising:
                above = half
            else:
                below = half
    except (FormulaError, TypeError, ValueError):
        return (high if rising else low), None
    return (high, above) if rising else (low, below)


def _whole_between(at: SidesAtSize, low: int, high: int) -> tuple[int, _Sides] | None:
    """The whole number nearest the middle of an open interval that the formula accepts; ``None`` when there is none."""
    middle = (low + high) // 2
    for step in range(min(NEIGHBOURS, high - low)):
        for size in (middle - step, middle + step):
            if low < size < high:
                with suppress(FormulaError):
                    return size, at(size)
    return None


def _sides(cost: Cost, machine: Machine, compute: Resource | str | None, level: str) -> _Sides:
    """Both sides of one cost, by the model of `placement` in exact numbers: sums on a unit, then the longest of the requested units."""
    if cost.unknown:
        raise UsageError(f"cannot solve: the amount of {', '.join(map(str, sorted(cost.unknown)))} is unknown")
    wanted = None if compute is None else str(compute)
    work = [r for r in cost if r.is_compute and wanted in (None, r.name, r.unit)]
    traffic = [r for r in cost if not r.is_compute and (level in (r.name, r.unit) or r.unit.startswith(f"{level}."))]
    unrated = [r for side in (work, traffic) if any(map(machine.resolve, side)) for r in side if machine.resolve(r) is None]
    return _Sides(
        compute=_longest(cost, [r for r in work if r not in unrated], machine, wanted or "compute"),
        level=_longest(cost, [r for r in traffic if r not in unrated], machine, level),
        unrated=tuple(unrated),
        used=tuple(cost),
    )


def _longest(cost: Cost, resources: Sequence[Resource], machine: Machine, asked: str) -> _Side:
    """The unit of these resources that takes the longest; without resources, the unit ``asked`` with a time of 0."""
    units: dict[str, _Side] = {}
    # Transcendentals are not FLOP, but where a unit does nothing else they are its work.
    bare = not any(resource.is_arithmetic for resource in resources)
    for resource in resources:
        rate, amount = Fraction(machine.rate(resource)), Fraction(cost.known(resource))
        ceiling = machine.resolve(resource)
        unit = ceiling.resource.unit if ceiling else resource.unit
        side = units.get(unit, _Side(unit))
        counted = amount if resource.is_arithmetic or resource.measure == "B" or (bare and resource.is_compute) else 0
        units[unit] = _Side(unit, side.seconds + amount / rate, side.amount + counted, (*side.resources, resource))
    return max(units.values(), key=lambda side: side.seconds, default=_Side(asked))


def _limit(before: float, last: float) -> float:
    """The limit of an intensity from its values at two large sizes, the second twice the first: 0 or infinite while it still changes."""
    if isinf(last) or last > 1.5 * before:
        return inf
    return 0.0 if last < 0.75 * before else last
