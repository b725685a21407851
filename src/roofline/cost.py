"""Cost: how much of each resource a piece of work needs. Costs add and scale: a loop is a product, a program a sum.

    >>> forward = Cost.of({"matrix/bf16": 50, "hbm": 10})
    >>> (forward + 2 * forward)["matrix/bf16"]
    150

An absent resource is a known 0. ``None`` is unknown: a sum adds the known parts, carries the mark, and never turns unknown
into 0.

    >>> both = forward + Cost.of({"vector/fp32": None})
    >>> both["vector/fp32"] is None, both["hbm"], both.is_known
    (True, 10, False)
"""

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import TypeVar

from msgspec import Struct

from .errors import FormulaError
from .resource import HBM, Resource, named

Amount = int | float | Fraction
N = TypeVar("N", int, float)


class Cost(Struct, frozen=True):
    """Amounts (FLOP, bytes, hops) by resource, in order of name, and the resources whose amount is not wholly known."""

    amounts: tuple[tuple[Resource, Amount], ...] = ()
    unknown: frozenset[Resource] = frozenset()

    @classmethod
    def of(cls, amounts: Mapping[str, Amount | None] | Mapping[Resource, Amount | None]) -> "Cost":
        """A cost from any mapping; ``None`` marks an unknown amount."""
        known: dict[Resource, Amount] = {}
        unknown = set()
        for key, amount in amounts.items():
            resource = key if isinstance(key, Resource) else named(key)
            if amount is None:
                unknown.add(resource)
            elif not amount >= 0:  # a NaN too
                raise FormulaError(f"amount of {amount} {resource.measure} on {resource}; amounts are 0 or more")
            elif amount:
                known[resource] = known.get(resource, 0) + amount
        return cls(tuple(sorted(known.items(), key=_name)), frozenset(unknown))

    @classmethod
    def total(cls, costs: "Iterable[Cost]") -> "Cost":
        """The sum of many costs, without an intermediate `Cost` for each addition."""
        amounts: dict[Resource, Amount] = {}
        unknown: set[Resource] = set()
        for cost in costs:
            unknown |= cost.unknown
            for resource, amount in cost.amounts:
                amounts[resource] = amounts.get(resource, 0) + amount
        return cls(tuple(sorted(amounts.items(), key=_name)), frozenset(unknown))

    def __getitem__(self, resource: Resource | str) -> Amount | None:
        """The amount of one resource: 0 when absent, ``None`` when unknown."""
        wanted = resource if isinstance(resource, Resource) else named(resource)
        return None if wanted in self.unknown else self.known(wanted)

    def known(self, resource: Resource | str) -> Amount:
        """The known part of the amount of one resource."""
        wanted = resource if isinstance(resource, Resource) else named(resource)
        for used, amount in self.amounts:
            if used.name == wanted.name:
                return amount
        return 0

    def __iter__(self) -> Iterator[Resource]:
        """Every resource it uses or may use, in order of name."""
        known = [resource for resource, _ in self.amounts]
        return iter(sorted({*known, *self.unknown}) if self.unknown else known)

    def items(self) -> Iterable[tuple[Resource, Amount | None]]:
        """Every resource it uses or may use with its amount, in order of name."""
        return [(resource, self[resource]) for resource in self] if self.unknown else self.amounts

    def __add__(self, other: "Cost") -> "Cost":
        if not isinstance(other, Cost):
            return NotImplemented
        total = dict(self.amounts)
        for resource, amount in other.amounts:
            total[resource] = total.get(resource, 0) + amount
        return Cost(tuple(sorted(total.items(), key=_name)), self.unknown | other.unknown)

    def __radd__(self, other: object) -> "Cost":
        """Let ``sum(costs)`` start from 0."""
        return self if other == 0 else NotImplemented

    def __mul__(self, times: Amount) -> "Cost":
        if not isinstance(times, Amount):
            return NotImplemented
        if not times >= 0:
            raise FormulaError(f"cannot repeat work {times} times; give 0 or more")
        if not times:
            return Cost()
        return Cost(tuple((resource, amount * times) for resource, amount in self.amounts), self.unknown)

    __rmul__ = __mul__

    @property
    def is_known(self) -> bool:
        """Whether no resource it uses is unknown."""
        return not self.unknown

    @property
    def flops(self) -> Amount | None:
        """All FLOP, without transcendentals; ``None`` if any of them are unknown."""
        if self.unknown and any(resource.is_arithmetic for resource in self.unknown):
            return None
        return sum([amount for resource, amount in self.amounts if resource.is_arithmetic])

    def bytes(self, level: Resource | str = HBM) -> Amount | None:
        """Bytes over one memory level or link: all its traffic, so ``vmem`` sums ``vmem.read`` and ``vmem.write``."""
        unit = level.name if isinstance(level, Resource) else level
        if self.unknown and any(moves(resource, unit) for resource in self.unknown):
            return None
        return sum([amount for resource, amount in self.amounts if moves(resource, unit)])

    def intensity(self, level: Resource | str = HBM) -> float | None:
        """FLOP per byte over one memory level or link; ``None`` when it is unknown or no bytes cross it."""
        flops, moved = self.flops, self.bytes(level)
        if flops is None or not moved:
            return None
        return float(flops / moved)


def moves(resource: Resource, unit: str) -> bool:
    """Whether a resource counts bytes of this unit or of one of its ports (``vmem.read`` for ``vmem``)."""
    return (resource.unit == unit or resource.unit.startswith(f"{unit}.")) and resource.measure == "B"


def _name(entry: tuple[Resource, Amount]) -> str:
    """Sort key of amounts: the resource's name."""
    return entry[0].name


def sum_or_unknown(amounts: Iterable[N | None]) -> N | None:
    """A sum, unknown where one of the amounts is.

    >>> sum_or_unknown([1, 2]), sum_or_unknown([1.5, None])
    (3, None)
    """
    every = list(amounts)
    known = [amount for amount in every if amount is not None]
    return sum(known) if len(known) == len(every) else None


def sum_of_known(amounts: Iterable[float | None]) -> float | None:
    """The sum of the known amounts; ``None`` if none is known."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None


def less_traffic(cost: Cost, saved_bytes: Amount) -> Cost:
    """The known amounts of a cost, with fewer bytes through the main memory.

    >>> less_traffic(Cost.of({"matrix/bf16": 50, "hbm": 10}), 4)["hbm"]
    6
    """
    amounts = dict(cost.amounts)
    amounts[HBM] = max(amounts.get(HBM, 0) - saved_bytes, 0)
    return Cost.of(amounts)


def part_of(amount: Amount, count: float, of: float) -> Amount:
    """``amount`` x ``count`` / ``of``, exactly: a whole number where it is one.

    >>> part_of(6, 1, 3), part_of(1, 2, 3)
    (2, Fraction(2, 3))
    """
    if isinstance(amount, int) and isinstance(count, int) and isinstance(of, int):
        whole, rest = divmod(amount * count, of)
        if not rest:
            return whole
    return amount * (Fraction(count) / Fraction(of))


def tidy(amount: Amount) -> Amount:
    """The same number, as an int when it is a whole fraction.

    >>> tidy(Fraction(6, 2)), tidy(Fraction(1, 2)), tidy(2.0)
    (3, Fraction(1, 2), 2.0)
    """
    if isinstance(amount, (int, float)):
        return amount
    return amount.numerator if amount.denominator == 1 else amount


def plain_number(amount: Amount) -> int | float:
    """The same number, as an int or a float."""
    whole = tidy(amount)
    return float(whole) if isinstance(whole, Fraction) else whole


NOTHING = Cost()
