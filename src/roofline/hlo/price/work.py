"""The arithmetic of one instruction, apart from the bytes it moves."""

from collections.abc import Callable, Iterable

from msgspec import Struct, field

from ...cost import NOTHING, Amount, Cost, tidy
from ...operation import MatrixWork
from ...resource import Resource
from .types import Site


class Work(Struct, frozen=True):
    """Arithmetic by unit and number format, with notes; ``products`` are those on a TPU's matrix unit."""

    cost: Cost = NOTHING
    notes: tuple[str, ...] = ()
    products: tuple[MatrixWork, ...] = ()


NO_WORK = Work()

# The arithmetic of one execution of a computation that an instruction applies to elements, by its index in the module.
Inner = Callable[[int], Work]
Rule = Callable[[Site, Inner], Work]


class Sum(Struct):
    """A running sum of costs and notes: faster than adding very many `Cost`s one by one."""

    amounts: dict[Resource, Amount] = field(default_factory=dict)
    unknown: set[Resource] = field(default_factory=set)
    notes: dict[str, None] = field(default_factory=dict)
    products: list[MatrixWork] = field(default_factory=list)

    def add(self, cost: Cost, times: Amount = 1, notes: tuple[str, ...] = (), products: tuple[MatrixWork, ...] = ()) -> None:
        for resource, amount in cost.amounts:
            self.amounts[resource] = self.amounts.get(resource, 0) + (amount if times == 1 else amount * times)
        if cost.unknown and times:
            self.unknown |= cost.unknown
        for note in notes:
            self.notes[note] = None
        self.products += products

    def add_each(self, amounts: Iterable[tuple[Resource, Amount]], times: int) -> None:
        """Adds known amounts, each ``times`` over."""
        for resource, amount in amounts:
            self.amounts[resource] = self.amounts.get(resource, 0) + amount * times

    @property
    def cost(self) -> Cost:
        names = sorted((resource.name, resource) for resource, amount in self.amounts.items() if amount)
        return Cost(tuple([(resource, tidy(self.amounts[resource])) for _, resource in names]), frozenset(self.unknown))

    @property
    def work(self) -> Work:
        return Work(self.cost, tuple(self.notes), tuple(self.products))
