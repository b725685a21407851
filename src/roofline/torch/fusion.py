"""A model of what torch.compile fuses: chains of elementwise operators, casts, copies, gathers, norms, softmax and reductions.

Operators become one kernel if one produces an operand of the other, they iterate over the same elements (or over the rows that a
reduction of the group makes of them), the results of none are read at many positions, their reductions have the same rows, and no
operator outside has to run between them, up to as many as one kernel replaces (`graph.fusion`). The kernel reads once every tensor that
its operators need and do not make, and writes the tensors that are needed outside. A scatter adds up what the kernel computes for it, into
what another one wrote. Products, convolutions, attention and sorts are kernels of their own. The foreach operators of an optimizer become
one kernel.
"""

from collections.abc import Sequence
from functools import partial
from os.path import commonpath

from msgspec import Struct
from msgspec.structs import replace

from ..cost import Cost
from ..formulas.network import Network
from ..graph.fusion import grouped
from ..resource import HBM
from ..rule_failures import RuleFailures
from ..torch_prices import price
from ..torch_prices.operators import POINTWISE, REDUCING
from ..workload import Op, ProgramGraph
from .lower import Fused, graph_of
from .recorder import Kept, Seen
from .workload import WHERE, op_of, repeated

OPTIMIZER, SCATTER = "optimizer", "scatter"
MOST_READS = 4  # of each element, above which Inductor stores it (torch._inductor.config.realize_reads_threshold)
FUSIBLE = POINTWISE | REDUCING | {OPTIMIZER}


class Node(Struct, kw_only=True):
    """One call: its op, how many elements it iterates over, how many rows it reduces them to, and the nodes that use its results."""

    seen: Seen
    op: Op
    elements: int
    rows: int | None
    users: list[int]


def fused(calls: Sequence[Seen], kept: Kept, network: Network | None, failures: RuleFailures) -> tuple[list[Op], tuple[ProgramGraph, ...]]:
    """The ops of a program after fusion, and its graph. ``kept`` is what is live when the program ends."""
    nodes = [_node(seen, network) for seen in calls]
    makers = _connect(nodes)
    stored = _stored(nodes, makers)
    groups = grouped({index: set(of.values()) for index, of in enumerate(makers)}, partial(_may_join, nodes, makers, stored))
    last_writer = {number: index for index, node in enumerate(nodes) for number, _ in node.seen.writes}
    rows: dict[tuple[object, ...], Op] = {}
    places: dict[tuple[object, ...], int] = {}  # of each row
    kernels, costs, owners = [0] * len(nodes), list[Cost](), list[tuple[int, ...]]()
    for number, group in enumerate(sorted(groups, key=lambda members: members[0])):
        op = _kernel(nodes, makers, group, kept, last_writer)
        key = (op.name, op.cost, op.label, op.location, op.phase)
        rows[key] = replace(rows[key], count=rows[key].count + 1) if key in rows else op
        for member in group:
            kernels[member] = number
        costs.append(op.cost)
        owners.append((places.setdefault(key, len(places)),))
    prices = [price(replace(seen.call, network=network)) for seen in calls]
    graph = failures.attempt("graphs", graph_of, calls, prices, kept, Fused(kernels, costs))
    graphs = () if graph is None else (ProgramGraph(WHERE, graph, tuple(owners)),)
    return [repeated(op) for op in rows.values()], graphs


def _node(seen: Seen, network: Network | None) -> Node:
    op = op_of(seen, replace(seen.call, network=network))
    sizes = [tensor.elements for tensor in (*seen.call.all_tensors, *(seen.call.outputs or ()))]
    outs = [tensor.elements for tensor in seen.call.outputs or ()]
    elements, rows = max(sizes, default=0), None
    if op.category in POINTWISE:
        elements = max(outs, default=elements)
    elif op.category in REDUCING:
        rows = min(outs, default=1)
    return Node(seen=seen, op=op, elements=elements, rows=rows, users=[])


def _connect(nodes: Sequence[Node]) -> list[dict[int, int]]:
    """For each node, the node that wrote each memory it reads, by number; also fills in the users of each node."""
    writer: dict[int, int] = {}
    makers: list[dict[int, int]] = []
    for index, node in enumerate(nodes):
        writers = {number: writer[number] for number, _ in node.seen.reads if number in writer}
        makers.append(writers)
        for maker in set(writers.values()):
            nodes[maker].users.append(index)
        for number, _ in node.seen.writes:
            writer[number] = index
    return makers


def _stored(nodes: Sequence[Node], makers: Sequence[dict[int, int]]) -> set[int]:
    """The nodes whose results are read at so many positions, as by a stencil, that they are stored, not computed again at each."""
    windows: dict[tuple[int, int], dict[object, int]] = {}
    for node, writers in zip(nodes, makers, strict=True):
        for tensor, (number, offset) in zip(node.seen.call.all_tensors, node.seen.operands, strict=True):
            if number in writers:
                windows.setdefault((writers[number], number), {})[offset, tensor.shape, tensor.strides] = tensor.bytes or 0
    return {
        maker for (maker, number), sizes in windows.items() if sum(sizes.values()) > MOST_READS * dict(nodes[maker].seen.writes)[number]
    }


def _may_join(
    nodes: Sequence[Node], makers: Sequence[dict[int, int]], stored: set[int], first: Sequence[int], second: Sequence[int]
) -> bool:
    taken = {maker for index in second for maker in makers[index].values()}
    if any(nodes[index].op.category == SCATTER for index in (*first, *second)):
        return len(second) == 1 and _are_scattered(nodes, makers, first, second[0])
    return stored.isdisjoint(taken.intersection(first)) and _are_alike(nodes, first, second)


def _are_scattered(nodes: Sequence[Node], makers: Sequence[dict[int, int]], first: Sequence[int], scatter: int) -> bool:
    """Whether a group computes, element by element, what a scatter adds to something else."""
    target = nodes[scatter].seen.operands[0][0] if nodes[scatter].seen.operands else None
    if target is None or makers[scatter].get(target) in first:
        return False
    return all(nodes[index].op.category in POINTWISE and nodes[index].elements == nodes[scatter].elements for index in first)


def _are_alike(nodes: Sequence[Node], first: Sequence[int], second: Sequence[int]) -> bool:
    """Whether two groups iterate over the same elements and rows; a pointwise producer of fewer elements is computed where it is used."""
    ours, other = [nodes[index] for index in first], [nodes[index] for index in second]
    categories = {node.op.category for node in (*ours, *other)}
    if not categories <= FUSIBLE or (OPTIMIZER in categories and len(categories) > 1):
        return False
    rows = {node.rows for node in (*ours, *other) if node.rows is not None}
    if len({rows_of for rows_of in rows if rows_of > 1}) > 1:
        return False
    elements, others = max(node.elements for node in ours), max(node.elements for node in other)
    if elements == others or others in {node.rows for node in ours if node.rows}:
        return True
    return elements < others and all(node.rows is None for node in ours)


def _kernel(nodes: Sequence[Node], makers: Sequence[dict[int, int]], group: list[int], kept: Kept, last_writer: dict[int, int]) -> Op:
    """One kernel: the work of its members, and their bytes without those that stay on chip or would be read twice."""
    first = nodes[group[0]].op
    if len(group) == 1:
        return first
    inside = set(group)
    avoided = 0
    read: set[tuple[int, int]] = set()
    for index in group:
        node = nodes[index]
        for number, size in node.seen.reads:
            maker = makers[index].get(number, -1)
            if maker in inside or (number, maker) in read:
                avoided += size
            read.add((number, maker))
        for number, size in node.seen.writes:
            used_outside = any(user not in inside and makers[user].get(number) == index for user in node.users)
            if not used_outside and not (number in kept and last_writer[number] == index):
                avoided += size
    costs = Cost.total(nodes[index].op.cost for index in group)
    moved = max(0, costs.known(HBM) - avoided)
    cost = Cost.of({**{resource: amount for resource, amount in costs.items() if resource != HBM}, HBM: costs[HBM] and moved})
    names = list(dict.fromkeys(nodes[index].op.name for index in group))
    reduces = any(nodes[index].rows is not None for index in group)
    largest = max(group, key=lambda index: nodes[index].elements)
    scope = _common([nodes[index].op.scope for index in group])
    return replace(
        first,
        name=f"fused {' '.join(names)}",
        cost=cost,
        label=replace(nodes[largest].op.label, where=scope, does=f"{', '.join(names)}:"),
        category="reduction fusion" if reduces else "pointwise fusion",
        scope=scope,
        avoidable=(),
        notes=tuple(dict.fromkeys(note for index in group for note in nodes[index].op.notes)),
    )


def _common(scopes: Sequence[str]) -> str:
    """The scope that all of these are in.

    >>> _common(["layers/0/norm", "layers/0/mlp"]), _common(["", "layers/0"])
    ('layers/0', '')
    """
    return "" if not all(scopes) else commonpath(scopes)
