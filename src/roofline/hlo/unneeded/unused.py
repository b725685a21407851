"""Results of which a part is used: demand carried back from the program's results to every kernel before them."""

from collections.abc import Iterator

from ...workload import Avoidable
from ..ir.module import Computation, Instruction
from ..ir.shapes import Shape
from ..price.bodies import Bodies, Path
from ..price.demand import SELECTIVE, needs
from ..price.index_sets import NOTHING, WHOLE, Region, count, joined
from .kernels import Kernels

KIND, CLASS = "unused-results", "unused"
_MOST_USED = 0.75  # of a result: above that nothing is reported
_WHOLE_OPERANDS = ("custom-call", "while", "conditional", "call", "all-reduce", "all-gather", "reduce-scatter", "all-to-all")
_IN_PARTS = ("get-tuple-element", "tuple", "fusion")
_ORDERING = frozenset(("sort", "topk", "custom-call"))  # all of what they order has to be looked at, however little is kept
_Demand = dict[Path, Region]


def unused_results(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The kernels of a program's entry of whose results a part is never used."""
    if not kernels.are_in_entry:
        return
    bodies, computation = kernels.pricer.bodies, kernels.computation
    for index, wanted in _demands(bodies, kernels.number).items():
        cost = kernels.costs.get(index)
        if cost is None or not cost.amounts or _is_whole(computation[index].shape, wanted) or _orders(bodies, computation[index]):
            continue
        used = _used(computation[index].shape, wanted)
        if used < _MOST_USED:
            why = f"computes results of which {used:.0%} are used"
            yield index, Avoidable(kind=KIND, instead=cost * used, why=why, unneeded=CLASS, factor=1 / used if used else None)


def _is_whole(shape: Shape, wanted: _Demand) -> bool:
    """Whether all of a result is needed, as nearly all are."""
    if wanted.get((), NOTHING).whole:
        return True
    return shape.is_tuple and all(wanted.get((place,), NOTHING).whole for place in range(len(shape.parts)))


def _orders(bodies: Bodies, instruction: Instruction) -> bool:
    """Whether a kernel sorts, searches for a position (an argmax reduces pairs), or is a call of which nothing is known."""
    if instruction.opcode == "custom-call":
        return not instruction.custom_call_target.startswith("__cublas$")
    bodies_of = [bodies.module.computations[call.computation] for call in instruction.calls]
    parts = [instruction, *(one for body in bodies_of for one in body)]
    return any(one.opcode in _ORDERING or (one.opcode == "reduce" and one.shape.is_tuple) for one in parts)


def _used(shape: Shape, wanted: _Demand) -> float:
    """The share of a result's elements that is needed; a library call's workspace does not count."""
    shape = shape.parts[0] if shape.is_tuple and shape.parts and shape.parts[-1].dtype in ("s8", "u8") else shape
    total = used = 0
    for place, leaf in enumerate(shape.parts) if shape.is_tuple else ((None, shape),):
        if not leaf.is_array:
            return 1.0
        region = joined(wanted.get((), NOTHING), wanted.get((place,), NOTHING) if place is not None else wanted.get((0,), NOTHING))
        total += leaf.elements
        used += count(region, leaf.dims)
    return used / total if total else 1.0


def _demands(bodies: Bodies, number: int) -> dict[int, _Demand]:
    """What is needed of each instruction's result, users before producers."""
    computation = bodies.module.computations[number]
    demands: dict[int, _Demand] = {computation.root: {(): WHOLE}}
    for index in reversed(bodies.order(number)):
        wanted = demands.get(index)
        if not wanted:
            continue
        instruction = computation.instructions[index]
        if instruction.opcode not in _IN_PARTS and instruction.opcode not in SELECTIVE and wanted.get((), WHOLE).whole:
            for operand in instruction.operands:
                demands.setdefault(operand, {})[()] = WHOLE
            continue
        for operand, path, region in _needed(bodies, computation, index, wanted):
            held = demands.setdefault(operand, {})
            held[path] = joined(held.get(path, NOTHING), region)
    return demands


def _needed(bodies: Bodies, computation: Computation, index: int, wanted: _Demand) -> Iterator[tuple[int, Path, Region]]:
    """The operands of an instruction and the parts of them that it needs."""
    instruction = computation[index]
    if instruction.opcode == "get-tuple-element":
        yield instruction.operands[0], (instruction.integer("index") or 0,), wanted.get((), WHOLE)
    elif instruction.opcode == "tuple":
        for place, operand in enumerate(instruction.operands):
            region = joined(wanted.get((), NOTHING), wanted.get((place,), NOTHING))
            if region:
                yield operand, (), region
    elif instruction.opcode == "fusion" and instruction.calls:
        walked = bodies.walk(instruction.calls[0].computation, wanted)
        for operand, parts in zip(instruction.operands, walked.parameters, strict=False):
            for path, region in parts.items():
                yield operand, path, region
    else:
        operands = computation.operands(instruction)
        region = WHOLE if instruction.opcode in _WHOLE_OPERANDS else wanted.get((), WHOLE)
        for operand, part in zip(instruction.operands, needs(instruction, operands, region), strict=True):
            if part:
                yield operand, (), part
