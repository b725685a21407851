"""Results of which only a part is used, found by following the needed elements from the program's results back to every kernel."""

from collections.abc import Iterator, Set
from weakref import WeakKeyDictionary

from ...cost import NOTHING as FREE
from ...workload import Avoidable
from ..ir.module import Computation, Instruction
from ..ir.scopes import direction
from ..ir.shapes import Shape
from ..price.bodies import Bodies, Path
from ..price.demand import SELECTIVE, needs
from ..price.index_sets import NOTHING, WHOLE, Region, count, joined
from .kernels import Kernels, Product
from .values import Value, Values

KIND, CLASS = "unused-results", "unused"
MOST_USED = 0.75  # of a result: above that nothing is reported
_ONE_ARRAY = 3  # operands of a scatter to one array: the array, the indices, the updates
_WHOLE_OPERANDS = ("custom-call", "while", "conditional", "call", "all-reduce", "all-gather", "reduce-scatter", "all-to-all")
_IN_PARTS = ("get-tuple-element", "tuple", "fusion")
_UNDIVIDED = frozenset(("sort", "topk", "fft", "custom-call"))  # need their whole operand, however little of the result is used
_INDICES = frozenset(("s32", "s64", "u32", "u64"))
_Demand = dict[Path, Region]


def unused_results(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The kernels of a program's entry with results of which a part is never used."""
    for index, used in _shares_used(kernels):
        instead, factor = kernels.costs[index] * used, 1 / used if used else None
        yield index, Avoidable(kind=KIND, instead=instead, facts={"share": used}, unneeded=CLASS, factor=factor)


def unused_gradients(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The products with gradients of partly used results, which are zero for the unused part, and the kernels that write those zeros."""
    if "scatter" not in kernels.module.opcodes:
        return
    scattered = [(index, made) for index, found in kernels.products.items() for made in _scattered(kernels.values, found)]
    if not scattered:
        return
    products = {
        Value(kernels.computation, index).shape.elements: used for index, used in _shares_used(kernels) if index in kernels.products
    }
    filled: dict[int, None] = {}
    for index, made in scattered:
        used = products.get(made.shape.elements)
        if used is None:
            continue
        instead, factor = kernels.costs[index] * used, 1 / used if used else None
        yield index, Avoidable(kind=KIND, instead=instead, cause="gradients", facts={"share": used}, unneeded=CLASS, factor=factor)
        filled.update(dict.fromkeys(fillers(kernels, made)))
    for index in filled:
        yield index, Avoidable(kind=KIND, instead=FREE, cause="zeros", unneeded=CLASS)


def _shares_used(kernels: Kernels) -> Iterator[tuple[int, float]]:
    """The kernels of a program's entry that compute more than is used, each with the used share."""
    if not kernels.are_in_entry:
        return
    bodies, computation = kernels.pricer.bodies, kernels.computation
    for index, wanted in demands_on(bodies, kernels.number).items():
        cost = kernels.costs.get(index)
        if cost is None or not cost.amounts or _is_whole(computation[index].shape, wanted) or _is_undivided(bodies, computation[index]):
            continue
        found = kernels.products.get(index)
        if found is not None and not _leaves_lines_out(found, computation[index].shape, wanted.get((), NOTHING)):
            continue
        if kernels.platform == "tpu" and computation[index].opcode == "copy":  # the compiler's: it changes a layout, or fills VMEM
            continue
        passed = {alias.output[0] for alias in computation[index].operand_aliases if len(alias.output) == 1}
        used = max(share_used(computation[index].shape, wanted, passed), _share_computed(bodies, computation, index, wanted))
        if used < MOST_USED:
            yield index, used


def _share_computed(bodies: Bodies, computation: Computation, index: int, wanted: _Demand) -> float:
    """The share of its FLOP, or of its operands if that is less, that a fusion with several results needs for the used ones; 0 for others.

    A result that is used in part may be another form of one that is used whole: the logits of a loss over words, in fp32 for those of the
    targets and in bf16 for the sum over all words.
    """
    instruction = computation[index]
    if instruction.opcode != "fusion" or not instruction.calls or not instruction.shape.is_tuple:
        return 0.0
    all_results: _Demand = {(): WHOLE}
    needed, every = (bodies.walk(instruction.calls[0].computation, region) for region in (wanted, all_results))
    read, read_for_all = (
        sum(
            count(parts.get((), NOTHING), operand.shape.dims)
            for operand, parts in zip(computation.operands(instruction), body.parameters, strict=False)
            if operand.shape.is_array
        )
        for body in (needed, every)
    )
    flops, all_flops = needed.work.cost.flops, every.work.cost.flops
    return min(float(flops / all_flops) if flops is not None and all_flops else 1.0, read / read_for_all if read_for_all else 1.0)


def _leaves_lines_out(found: Product, shape: Shape, wanted: Region) -> bool:
    """Whether the unused part of a product may be whole rows or columns of it. Single elements at any place need every row and column: the
    products of all pairs of features, of which a model takes one triangle.
    """
    if not wanted.loose or found.made.shape.dims != shape.dims:
        return True
    axes, dims = range(len(shape.dims)), found.dims
    first_column = len(axes) - (len(found.right.shape.dims) - len(dims.rhs_batch) - len(dims.rhs_contracting))
    rows, columns = axes[len(dims.lhs_batch) : first_column], axes[first_column:]
    return wanted.lines.issuperset(rows) or wanted.lines.issuperset(columns)


def _scattered(values: Values, found: Product) -> Iterator[Value]:
    """The operands of a product that are gradients scattered into zeros."""
    for side in (found.left, found.right):
        made = values.origin(side)
        if made.opcode != "scatter" or len(made.instruction.operands) != _ONE_ARRAY or direction(made.instruction.op_name) != "backward":
            continue
        if values.operand(made, 2).shape.elements <= MOST_USED * made.shape.elements:
            yield made


def fillers(kernels: Kernels, scatter: Value) -> Iterator[int]:
    """The kernels that scatter gradients, and that make the zeros around them."""
    for one in (scatter, kernels.values.origin(kernels.values.operand(scatter, 0))):
        place = kernels.holding(one)
        if place in kernels.costs and one.opcode in ("scatter", "broadcast"):
            yield place


def _is_whole(shape: Shape, wanted: _Demand) -> bool:
    """Whether all of a result is needed, as is usual."""
    if wanted.get((), NOTHING).whole:
        return True
    return shape.is_tuple and all(wanted.get((place,), NOTHING).whole for place in range(len(shape.parts)))


def _is_undivided(bodies: Bodies, instruction: Instruction) -> bool:
    """Whether a kernel sorts, transforms, is an argmax (a reduction of pairs), or is an unknown call: these need their whole operand."""
    if instruction.opcode == "custom-call":
        return not instruction.custom_call_target.startswith("__cublas$")
    bodies_of = [bodies.module.computations[call.computation] for call in instruction.calls]
    parts = [instruction, *(one for body in bodies_of for one in body)]
    return any(one.opcode in _UNDIVIDED or (one.opcode == "reduce" and one.shape.is_tuple) for one in parts)


def share_used(shape: Shape, wanted: _Demand, passed: Set[int] = frozenset()) -> float:
    """The share of a result's elements that is needed; a library call's workspace does not count, and no ``passed`` parts of a tuple, which
    are operands in place.
    """
    shape = shape.parts[0] if shape.is_tuple and shape.parts and shape.parts[-1].dtype in ("s8", "u8") else shape
    total = used = 0
    for place, leaf in enumerate(shape.parts) if shape.is_tuple else ((None, shape),):
        if place in passed:
            continue
        if not leaf.is_array:
            return 1.0
        region = joined(wanted.get((), NOTHING), wanted.get((place,), NOTHING) if place is not None else wanted.get((0,), NOTHING))
        total += leaf.elements
        used += count(region, leaf.dims)
    return used / total if total else 1.0


def demands_on(bodies: Bodies, number: int) -> dict[int, _Demand]:
    """The needed elements of each instruction's result, users before producers; cached for an entry."""
    if number != bodies.module.entry:
        return _demands(bodies, number)
    if bodies not in _KNOWN:
        _KNOWN[bodies] = _demands(bodies, number)
    return _KNOWN[bodies]


_KNOWN: WeakKeyDictionary[Bodies, dict[int, _Demand]] = WeakKeyDictionary()  # of entries: every loop of a program needs its entry's


def _demands(bodies: Bodies, number: int) -> dict[int, _Demand]:
    computation = bodies.module.computations[number]
    demands: dict[int, _Demand] = {computation.root: {(): WHOLE}}
    seen: set[tuple[int, Path, Region, frozenset[int]]] = set()
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
            if region.whole:
                held[path] = WHOLE
                continue
            same = operand, path, region, _places(computation, index)
            if same not in seen:
                held[path] = joined(held.get(path, NOTHING), region)
                seen.add(same)
    return demands


def _places(computation: Computation, index: int) -> frozenset[int]:
    """The integer operands of an instruction: two slices of equal size at the same indices need the same elements."""
    instruction = computation[index]
    found = frozenset(place for place in instruction.operands if computation[place].shape.dtype in _INDICES)
    return found or frozenset((~index,))


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
