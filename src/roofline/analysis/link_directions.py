"""Directions of a link, which work independently: copies over the host's bus, and permutes round the rings of a slice."""

from ..cost import Amount, Cost
from ..resource import Resource, named
from ..workload import Op

RING_WAYS = ("up", "down")


def directed(op: Op) -> Cost:
    """The cost of an op, with the bytes that cross a link counted on the direction that they go."""
    if not op.towards:
        return op.cost
    amounts = sorted((_on_way(resource, op.towards), amount) for resource, amount in op.cost.amounts)
    return Cost(tuple(amounts), frozenset(_on_way(resource, op.towards) for resource in op.cost.unknown))


def _on_way(resource: Resource, way: str) -> Resource:
    """One direction of a link; any other resource as it is."""
    return named(resource.name.replace(resource.unit, f"{resource.unit}.{way}", 1)) if resource.is_link else resource


def busier_way(cost: Cost) -> Cost:
    """A cost with one amount for the links of a slice: what uses both directions of their rings, and what permutes send the busier way."""
    sent: dict[str, dict[str, dict[Resource, Amount]]] = {}  # by link and direction
    amounts: dict[Resource, Amount] = {}
    for resource, amount in cost.amounts:
        link, _, way = resource.unit.partition(".")
        if way in RING_WAYS:
            sent.setdefault(link, {}).setdefault(way, {})[_both_ways(resource)] = amount
        else:
            amounts[resource] = amount
    if not sent:
        return cost
    for link, ways in sent.items():
        for resource, amount in max(ways.values(), key=lambda own: own.get(named(link), 0)).items():
            amounts[resource] = amounts.get(resource, 0) + amount
    return Cost(tuple(sorted(amounts.items())), frozenset(map(_both_ways, cost.unknown)))


def _both_ways(resource: Resource) -> Resource:
    """The link of a direction; any other resource as it is."""
    link, _, way = resource.unit.partition(".")
    return named(resource.name.replace(resource.unit, link, 1)) if way in RING_WAYS else resource
