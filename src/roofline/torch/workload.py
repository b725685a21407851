"""Recorded calls as ops of a workload: equal calls are one op with a count."""

from collections.abc import Sequence

from msgspec.structs import replace

from ..cost import Cost
from ..formulas.network import Network
from ..operation import Label
from ..resource import HBM, UNNAMED_WORK
from ..rule_failures import RuleFailures
from ..torch_prices import Call, Priced, price
from ..torch_prices.traffic import traffic
from ..workload import Op, ProgramGraph
from .lower import graph_of
from .recorder import Kept, Seen

UNPRICED = "no price for this operator: register one with roofline.register_op"
WHERE = "this function"


def priced(call: Call) -> tuple[Cost, Priced]:
    """The cost of a call; a PyTorch operator without a price reads its operands and writes its results, and its work is unknown."""
    priced = price(call)
    if priced.cost is not None:
        return priced.cost, priced
    if call.op.startswith("aten::") and not priced.notes:
        return traffic(call.all_tensors, call.outputs or ()) + Cost.of({UNNAMED_WORK: None}), replace(priced, notes=(UNPRICED,))
    return Cost.of({HBM: None}), replace(priced, notes=priced.notes or (UNPRICED,))


def ops_of(calls: Sequence[Seen], kept: Kept, network: Network | None, failures: RuleFailures) -> tuple[list[Op], tuple[ProgramGraph, ...]]:
    """The ops of a program as it was called, in order of their first call, and its graph. ``kept`` is what is live when it ends."""
    rows: dict[tuple[object, ...], Op] = {}
    places: dict[tuple[object, ...], int] = {}  # of each row
    prices = [price(replace(seen.call, network=network)) for seen in calls]
    numbers: list[int] = []  # of the op of each call
    for seen in calls:
        call = replace(seen.call, network=network)
        key = (call.op, call.overload, call.args, call.outputs, seen.scope, seen.location, seen.phase, seen.again, seen.repeated)
        if key in rows:
            rows[key] = replace(rows[key], count=rows[key].count + 1)
        else:
            rows[key] = op_of(seen, call)
        numbers.append(places.setdefault(key, len(places)))
    graph = failures.attempt("graphs", graph_of, calls, prices, kept)
    owners = tuple([(number,) for number in numbers])
    return [repeated(op) for op in rows.values()], () if graph is None else (ProgramGraph(WHERE, graph, owners),)


def repeated(op: Op) -> Op:
    """An op whose cost is the total of its executions, from one with the cost of one execution."""
    conventions = {name: flops * op.count for name, flops in op.conventions.items()}
    return replace(op, cost=op.cost * op.count, kernels=op.count, conventions=conventions)


def op_of(seen: Seen, call: Call) -> Op:
    """One call as an op."""
    cost, price_of = priced(call)
    if seen.repeated and cost.known(HBM):
        cost = Cost.of({**dict(cost.items()), HBM: cost[HBM] and max(0, cost.known(HBM) - seen.repeated)})
    return Op(
        name=call.op.removeprefix("aten::"),
        cost=cost,
        label=label(seen.scope, call, price_of.dtype),
        category=price_of.category or "unknown",
        scope=seen.scope,
        location=seen.location,
        phase=seen.phase,
        work_provenance="shape",
        bytes_provenance="shape",
        avoidable=price_of.recomputed,
        conventions=dict(price_of.by_convention),
        notes=price_of.notes,
        shapes=tuple([tensor.shape for tensor in call.all_tensors if tensor.shape][:3]),
    )


def label(scope: str, call: Call, number: str) -> Label:
    """The label of a call: scope, operator, shapes and number format.

    >>> from roofline.torch_prices import Tensor
    >>> str(label("layers/0/mlp", Call("aten::mm", args=(Tensor((8, 4)), Tensor((4, 2)))), "bf16"))
    'layers/0/mlp  mm 8x4, 4x2 bf16'
    """
    name = call.op.rpartition("::")[2]
    shapes = ", ".join("x".join(map(str, tensor.shape)) or "scalar" for tensor in call.all_tensors[:3])
    return Label(scope, name, shapes, number)
