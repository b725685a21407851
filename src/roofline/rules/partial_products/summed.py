"""Products that sum over a dimension which is divided between devices, where adding up results moves more than gathering the weights.

A device then has a part of each sum, and devices add up whole results: twice their bytes, or once if each keeps a part of the result. With
rows divided over these devices instead, they would gather the weights: in training again for the backward pass, and their gradients are
added up, three exchanges where divided products have two. Sums of gradients over devices with other rows of a batch are not among them.
"""

from collections.abc import Iterator
from math import prod

from ...cost import Cost
from ...graph import DeviceAxes, Graph, Operator, Phase
from ...graph.facts.exchanges import Reason, Why, argument_of, exchanges
from ...workload import Avoidable

KIND = "partial-products"
IN_TRAINING = 3 / 2  # exchanges of weights for each exchange of activations
WORTH = 0.75  # of the bytes: of less the estimate is too coarse to tell (a choice)


def partial_products(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that add up results of products, and their cost if they gathered the weights."""
    if graph.devices < 2:
        return
    trains = any(node.phase == Phase.BACKWARD for node in graph.of(Operator.DOT))
    for kernel, why in graph.fact(exchanges).items():
        if why.reason != Reason.SUMMED or _is_gradient(graph, why) or not (moved := _instead_bytes(graph, why, trains=trains)):
            continue
        keeps_part = why.exchange.kind == "reduce-scatter" or any(use.operator == Operator.SLICE for use in graph.users.get(why.array, ()))
        added = graph.arrays[why.array].bytes * (1 if keeps_part else 2)
        share = moved / added
        if share < WORTH:
            cost = graph.kernels[kernel].cost
            amounts = {resource: amount * share if resource.is_link else amount for resource, amount in cost.amounts}
            facts = {"bytes": graph.arrays[why.array].bytes, "moved": moved}
            yield kernel, Avoidable(kind=KIND, instead=Cost.of(amounts), facts=facts)


def _is_gradient(graph: Graph, why: Why) -> bool:
    """Whether what is added up is the gradient of a weight: nothing multiplies it, and each device has other rows of the batch."""
    if why.maker is None or why.maker.phase != Phase.BACKWARD:
        return False
    seen, waiting = set[int](), [why.array]
    while waiting:
        array = waiting.pop()
        seen.add(array)
        users = graph.users.get(array, ())
        if any(user.operator == Operator.DOT for user in users):
            return False
        waiting += {given for user in users for given in user.gives} - seen
    return True


def _instead_bytes(graph: Graph, why: Why, *, trains: bool) -> float:
    """The bytes that move instead: those of the weights, and of the other factor to divide its rows, unless it is an argument too.

    0 where the weights are not known.
    """
    factors = why.maker.takes[:2] if why.maker is not None and why.maker.operator == Operator.DOT else ()
    weights = [array for array in factors if _is_divided(graph, argument_of(graph, array), why.exchange.along or ())]
    if not weights:
        return 0.0
    others = sum(graph.arrays[array].bytes for array in factors if argument_of(graph, array) is None)
    devices = prod(size for _, size in why.exchange.along or ())
    return graph.arrays[weights[-1]].bytes * devices * (IN_TRAINING if trains else 1.0) + others


def _is_divided(graph: Graph, argument: int | None, along: DeviceAxes) -> bool:
    """Whether an argument is divided over these axes of devices."""
    divided = () if argument is None else graph.divided.get(argument, ())
    return {*along} <= {factor for axes in divided for factor in axes}
