"""The collectives of a program that a compiler divided between devices: why each is there, over which axes of the mesh, and what of it is
exposed.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from ...graph import DeviceAxes, Graph, Node, Operator
from ...graph.facts.exchanges import Reason, Why, exchanges
from ...report import CollectiveInfo, OpInfo
from ...resource import named
from ...units import number_of
from ...workload import ProgramGraph, source_line

# What is said of each reason, with what makes the array, what uses it, the axes, and the name of an argument.
WHY: Mapping[Reason, str] = {
    Reason.ARGUMENT: "{array} is divided over {axes}; {use} needs all of it",
    Reason.TABLE: "{array} is divided over {axes} and rows of it are looked up; every device gets the whole table",
    Reason.ROWS: "{array} is divided over {axes}: each device looks up the rows that it has, and they are added up",
    Reason.VALUE: "the result of {maker} is divided over {axes}; {use} needs all of it",
    Reason.SUMMED: "{maker} sums over a dimension that is divided over {axes}",
    Reason.GRADIENT: "each device along {axes} has the gradient of its own part of the batch, by {maker}",
    Reason.REDUCED: "{maker} reduces elements that are divided over {axes}",
    Reason.WRITTEN: "the program itself exchanges parts over {axes}, between {maker} and {use}",
    Reason.RESHARDED: "{maker} and {use} divide the array over {axes} in different ways",
    Reason.WINDOWED: "{use} is computed in parts, while an operand goes round {axes}",
    Reason.NEIGHBOURS: "{use} needs a part of what the next device along {axes} has",
    Reason.UNKNOWN: "an exchange over {axes}",
}
PADDED = "; as an all-reduce of arrays padded with zeros, twice the bytes of a gather"
_WORDS = {Operator.DOT: "the matmul", Operator.REDUCE: "the sum", Operator.GATHER: "the lookup", Operator.RESULT: "the result"}


def collectives(graphs: Sequence[ProgramGraph], mesh: Mapping[str, int], ops: Sequence[OpInfo]) -> tuple[CollectiveInfo, ...]:
    """The collectives of programs on a mesh, those with the longest exposed time first."""
    by_id = {op.id: op for op in ops}
    found = [info for program in graphs for info in _of_program(program.graph, program.ops, by_id, mesh)]
    return tuple(sorted(found, key=lambda one: (-(one.exposed_s or 0.0), -(one.time_s or 0.0), one.op)))


def _of_program(
    graph: Graph, numbers: Sequence[Sequence[int]], ops: Mapping[int, OpInfo], mesh: Mapping[str, int]
) -> Iterator[CollectiveInfo]:
    for kernel, why in graph.fact(exchanges).items():
        for number in numbers[kernel] if kernel < len(numbers) else ():
            if number in ops and any(named(unit).is_link for unit in ops[number].times):
                yield _info(graph, why, ops[number], mesh)


def _info(graph: Graph, why: Why, op: OpInfo, mesh: Mapping[str, int]) -> CollectiveInfo:
    from ...hlo.price.collectives import COLLECTIVES  # takes 30 ms to import, and traces do not need it

    axes = named_axes(why.exchange.along, mesh)
    return CollectiveInfo(
        op=op.id,
        kind=op.category if op.category in COLLECTIVES else why.exchange.kind,
        axes=axes,
        devices=prod(size for _, size in why.exchange.along or ()),
        count=op.count,
        bytes=sum(graph.arrays[array].bytes for array in why.every),
        time_s=op.time_s,
        exposed_s=None if op.time_s is None else op.exposed_s,
        reason=why.reason.value,
        array=graph.names.get(why.argument, "") if why.argument is not None else "",
        why=_sentence(graph, why, axes),
        location=op.location,
    )


def _sentence(graph: Graph, why: Why, axes: Sequence[str]) -> str:
    array = graph.names.get(why.argument, "an argument") if why.argument is not None else "an array"
    sentence = WHY[why.reason].format(
        array=array, axes=" and ".join(axes) or "the devices", maker=_operator(why.maker), use=_operator(why.use)
    )
    several = f"; {len(why.every):,} arrays at once, of which this is the largest" if len(why.every) > 1 else ""
    return sentence + several + (PADDED if why.padded else "")


def _operator(node: Node | None) -> str:
    """An operator by what it is and its source line."""
    if node is None:
        return "its use"
    line = source_line(node.location)
    return f"{_WORDS.get(node.operator, 'the operation')}{f' at {line}' if line else ''}"


def named_axes(along: DeviceAxes | None, mesh: Mapping[str, int]) -> tuple[str, ...]:
    """The axes of a mesh that devices differ along, by name; without a mesh their number and how far apart they are.

    >>> mesh = {"fsdp": 4, "tensor": 4}
    >>> named_axes(((8, 2), (4, 2)), mesh), named_axes(((4, 2),), mesh), named_axes(((8, 2), (4, 2)), {})
    (('fsdp',), ('a part of fsdp',), ('4 devices, 4 apart',))
    """
    if not along:
        return ()
    sizes, total = list(mesh.items()), prod(size for _, size in along)
    names: list[str] = []
    covered = 1
    for place, (name, size) in enumerate(sizes):
        stride = prod(other for _, other in sizes[place + 1 :])
        inside = prod(factor for step, factor in along if stride <= step < stride * size)
        if inside > 1:
            names.append(name if inside == size else f"a part of {name}")
            covered *= inside
    if covered == total:
        return tuple(names)
    step = min(stride for stride, _ in along)
    return (f"{number_of(total, 'device')}{f', {step} apart' if step > 1 else ''}",)
