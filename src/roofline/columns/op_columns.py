"""Ops in columns, as in tables: amounts by resource, other fields by name."""

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import count
from operator import add
from typing import Any

import msgspec

from ..cost import Amount, Cost
from ..resource import Resource
from ..workload import Op
from .lazy_rows import ABSENT, LazyRows, column, values_at

MANY = 10_000  # from more ops on, columns are used
_NONE: frozenset[Resource] = frozenset()
_USUAL = {
    field.name: field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    for field in msgspec.structs.fields(Op)
    if not field.required
}


class OpColumns(LazyRows[Op]):
    """Ops in columns: some of their fields (others have default values), and amounts by resource in order of name; ``None`` is unknown."""

    def __init__(self, fields: Mapping[str, Sequence[Any]], amounts: Mapping[Resource, Sequence[Amount | None]]) -> None:
        super().__init__(range(len(fields["name"])), self._op, self._field)
        self.fields = fields
        self.amounts = amounts

    def total(self, places: Sequence[int]) -> Cost:
        """The total cost of some of the ops."""
        known, unknown = [], set()
        for resource, amounts in self.amounts.items():
            mine = values_at(amounts, places)
            if parts := [amount for amount in mine if amount]:
                known.append((resource, reduce(add, parts)))
            if None in mine:
                unknown.add(resource)
        return Cost(tuple(known), frozenset(unknown))

    def recounted(self, changed: Mapping[int, Op]) -> "OpColumns":
        """The same ops, some of them with other costs and notes."""
        amounts: dict[Resource, list[Amount | None]] = {resource: list(each) for resource, each in self.amounts.items()}
        notes = list(self.column("notes"))
        for place, op in changed.items():
            for each in amounts.values():
                each[place] = 0
            for resource, amount in op.cost.items():
                if resource not in amounts:
                    amounts[resource] = [0] * len(self)
                amounts[resource][place] = amount
            notes[place] = op.notes
        return OpColumns({**self.fields, "notes": notes}, {resource: amounts[resource] for resource in sorted(amounts)})

    def _op(self, place: int) -> Op:
        each = [(resource, amounts[place]) for resource, amounts in self.amounts.items()]
        unknown = [resource for resource, amount in each if amount is None]
        cost = Cost(tuple([(resource, amount) for resource, amount in each if amount]), frozenset(unknown) if unknown else _NONE)
        return Op(cost=cost, **{name: values[place] for name, values in self.fields.items()})

    def _field(self, name: str, places: Sequence[int]) -> list[Any] | None:
        if name == "launches":
            return [
                kernels or count for kernels, count in zip(*(self._field(one, places) or [] for one in ("kernels", "count")), strict=True)
            ]
        if name == "priced":
            partly = [amounts for amounts in self.amounts.values() if None in amounts]
            return [all(amounts[place] is not None for amounts in partly) for place in places] if partly else [True] * len(places)
        if name in self.fields:
            return list(values_at(self.fields[name], places))
        return [_USUAL[name]] * len(places) if name in _USUAL else None


def shared_costs(ops: Sequence[Op]) -> tuple[list[Cost], list[int]]:
    """The distinct cost objects of ops, and the index of each op's: ops of equal layers of a program share them."""
    costs: list[Cost] = column(ops, "cost")
    ids = list(map(id, costs))
    once = dict(zip(ids, costs, strict=True))
    numbers = dict(zip(once, count(), strict=False))
    return list(once.values()), list(map(numbers.__getitem__, ids))


def multiplies(ops: Sequence[Op]) -> list[bool]:
    """Whether each op has work on a matrix unit."""
    if not isinstance(ops, OpColumns):
        costs, number_of_each = shared_costs(ops)
        multiplying = [any(resource.unit == "matrix" for resource, _ in cost.amounts) for cost in costs]
        return list(map(multiplying.__getitem__, number_of_each))
    matrix = [amounts for resource, amounts in ops.amounts.items() if resource.unit == "matrix"]
    return list(map(any, zip(*matrix, strict=True))) if matrix else [False] * len(ops)


def amounts_of(ops: Sequence[Op], places: Sequence[int]) -> dict[Resource, list[Any]]:
    """The amounts of some ops by resource: ``None`` where one is not wholly known, `ABSENT` where an op does not use it."""
    if isinstance(ops, OpColumns):
        return {resource: _used(values_at(amounts, places)) for resource, amounts in ops.amounts.items()}
    costs, number_of_each = shared_costs(values_at(ops, places))
    found: dict[Resource, list[Any]] = {}
    for number, cost in enumerate(costs):
        for resource, amount in cost.items():
            if resource not in found:
                found[resource] = [ABSENT] * len(costs)
            found[resource][number] = amount
    return {resource: list(map(found[resource].__getitem__, number_of_each)) for resource in sorted(found)}


def known_amounts(ops: Sequence[Op], resource: Resource, places: Sequence[int]) -> list[float]:
    """The known amounts of some ops on a resource."""
    if isinstance(ops, OpColumns):
        return (
            [float(amount or 0) for amount in values_at(ops.amounts[resource], places)] if resource in ops.amounts else [0.0] * len(places)
        )
    return [float(ops[place].cost.known(resource)) for place in places]


def _used(amounts: Sequence[Amount | None]) -> list[Any]:
    """Amounts with `ABSENT` for those that are 0."""
    return [ABSENT if amount == 0 else amount for amount in amounts] if 0 in amounts else list(amounts)
