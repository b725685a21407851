"""Links between dimensions of the arrays of a compiled program: if one grows, those linked with it do too.

`partition.dimensions` has the rules of plain operations. Added here are: fusions and loops, whose parameters are their operands; bitcasts,
which view the same memory in another shape; library calls; slices and pads, which remove or add the same number of elements as before.
"""

from collections.abc import Iterable, Iterator
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from ..ir.attributes import ConvolutionDimensions, DotDimensions
from ..ir.module import Computation, HloModule, Instruction
from ..ir.shapes import Shape
from ..lower.products import product_dimensions
from ..partition.dimensions import Dimensions, Rule, reshape_rule, rule_of
from ..partition.propagation import Key, handed_on
from ..price.loops import Loops
from .attention_calls import attention_arrays

_CUT = ("slice", "pad", "dynamic-slice", "reverse", "sort", "topk", "reduce-window", "select-and-scatter")
_MOST_CUT = 0.5  # of a dimension: a slice that removes more of it does not grow with it
_GRADIENTS = {"convBackwardInput": (2, 1, 0), "convBackwardFilter": (0, 2, 1)}  # inputs, kernel and outputs among operands and result
_ALIKE = ("opt-barrier", "domain", "copy", "copy-start", "copy-done", "all-reduce-start", "all-reduce-done", "add-dependency")


_Axis = tuple[Key, Shape, int]  # of an array


class Link(Struct, frozen=True):
    """Arrays whose dimensions share factors: each dimension is a product of some, major to minor; ``sizes`` are those of the factors.

    The elements of ``mixed`` factors are reordered, as by a sort.
    """

    arrays: tuple[tuple[Key, tuple[tuple[int, ...], ...]], ...]
    sizes: tuple[int, ...]
    mixed: tuple[int, ...] = ()


def links_of(module: HloModule, numbers: tuple[int, ...]) -> Iterator[Link]:
    """Every link of some computations of a program."""
    chosen, loops = _sorted_along(module, numbers), Loops(module)
    for number in numbers:
        computation = module.computations[number]
        for index, one in enumerate(computation.instructions):
            yield from _links(module, number, computation, index, one, chosen)
            if one.opcode == "while":
                yield from _walked_together(module, walked_axes(module, loops, number, one))


class WalkedAxis(Struct, frozen=True):
    """A dimension of an array of which each trip of a loop reads or writes one ``part``."""

    whole: Key
    part: Key
    axis: int
    trips: int


def walked_axes(module: HloModule, loops: Loops, number: int, loop: Instruction) -> list[WalkedAxis]:
    """The dimensions that a loop steps along: its trips together read or write all of them, part by part."""
    trips = loops.trip_count(number, loop)
    found: list[WalkedAxis] = []
    for inner in called_by(module, loop, "while") if trips and trips > 1 else ():
        computation = module.computations[inner]
        for index, one in enumerate(computation.instructions):
            if one.opcode not in ("dynamic-slice", "dynamic-update-slice"):
                continue
            whole, part = one.operands[0], index if one.opcode == "dynamic-slice" else one.operands[1]
            sizes = zip(computation[whole].shape.dims, computation[part].shape.dims, strict=True)
            found += [
                WalkedAxis((inner, whole, 0), (inner, part, 0), axis, trips or 0)
                for axis, (size, taken) in enumerate(sizes)
                if taken * (trips or 0) == size and (taken == 1 or taken < _MOST_CUT * size)
            ]
    return found


def called_by(module: HloModule, loop: Instruction, without: str = "") -> set[int]:
    """The body of a loop and all computations it calls, except those called by instructions with the opcode ``without``."""
    found, waiting = set[int](), list(loop.called("body"))
    while waiting:
        number = waiting.pop()
        if number not in found:
            found.add(number)
            waiting += [call.computation for one in module.computations[number] if one.opcode != without for call in one.calls]
    return found


def _walked_together(module: HloModule, axes: list[WalkedAxis]) -> Iterator[Link]:
    """Links between the dimensions that a loop steps along: each has as many parts as the loop has trips."""
    sizes = [one.trips for one in axes[:1]]
    arrays = []
    for one in axes:
        number, place, _ = one.whole
        dims: list[tuple[int, ...]] = [() for _ in module.computations[number][place].shape.dims]
        dims[one.axis] = (0, len(sizes))
        sizes.append(module.computations[number][place].shape.dims[one.axis] // one.trips)
        arrays.append((one.whole, tuple(dims)))
    if arrays:
        yield Link(tuple(arrays), tuple(sizes))


def _sorted_along(module: HloModule, numbers: tuple[int, ...]) -> dict[Key, tuple[int, ...]]:
    """The sorted arrays, and along which dimensions. A slice of them, such as a top-k, does not grow with the array."""
    found: dict[Key, tuple[int, ...]] = {}
    for number in numbers:
        for index, one in enumerate(module.computations[number].instructions):
            if one.opcode == "sort":
                found |= {(number, index, part): one.dimensions or () for part in range(len(one.shape.leaves))}
    if not found:
        return found
    same: dict[Key, list[list[Key]]] = {}
    for number in numbers:
        computation = module.computations[number]
        for index, one in enumerate(computation.instructions):
            for keys in _one_value(module, number, computation, index, one):
                for key in keys:
                    same.setdefault(key, []).append(keys)
    waiting = list(found)
    while waiting:
        key = waiting.pop()
        for other in (each for keys in same.get(key, ()) for each in keys):
            if other not in found:
                found[other] = found[key]
                waiting.append(other)
    return found


def _links(
    module: HloModule, number: int, computation: Computation, index: int, one: Instruction, chosen: dict[Key, tuple[int, ...]]
) -> Iterator[Link]:
    """The links between the operands and the result of an instruction; ``chosen`` are the sorted arrays (see `_sorted_along`)."""
    if one.opcode == "bitcast":
        yield from _of_rule(number, index, one, _bitcast(computation, one))
    elif one.opcode in _CUT:
        yield from _cut(number, computation, index, one, chosen)
    elif one.opcode == "concatenate":
        yield from _concatenated(number, computation, index, one)
    elif one.opcode == "dynamic-update-slice":
        yield _same(module, (number, one.operands[0], 0), (number, index, 0))
        yield from _by_place([(number, one.operands[1], 0), (number, index, 0)], [computation[one.operands[1]].shape, one.shape])
    elif (dims := product_dimensions(one)) is not None and one.opcode in ("custom-call", "ragged-dot"):
        yield from _product(number, computation, index, one, dims)
    elif one.opcode == "custom-call" and one.convolution is not None:
        yield from _convolution(number, computation, index, one, one.convolution)
    elif one.opcode == "custom-call" and (found := attention_arrays(number, computation, index, one)) is not None:
        yield Link(tuple(found[0]), found[1])
    elif one.opcode == "custom-call":
        yield from _library(number, computation, index, one)
    elif (rule := rule_of(computation, one)) is not None:
        yield from _of_rule(number, index, one, rule)
        if one.opcode == "convolution" and one.convolution is not None:
            shape = computation[one.operands[0]].shape
            yield from _alike(_positions(one.convolution, (number, one.operands[0], 0), shape, (number, index, 0), one.shape))
    else:
        for keys in _one_value(module, number, computation, index, one):
            yield _same(module, *keys)


def _of_rule(number: int, index: int, one: Instruction, rule: Rule | None) -> Iterator[Link]:
    if rule is None:
        return
    arrays = [((number, operand, 0), dims) for operand, dims in zip(one.operands, rule.operands, strict=True)]
    arrays += [((number, index, part), dims) for part, dims in enumerate(rule.results)]
    yield Link(tuple((key, tuple(dims)) for key, dims in arrays if dims), tuple(rule.sizes))


def _same(module: HloModule, *keys: Key) -> Link:
    """A link between arrays that are one value."""
    computation, index, part = keys[0]
    shape = module.computations[computation][index].shape.leaves[part]
    dims = tuple((place,) for place in range(shape.rank))
    return Link(tuple((key, dims) for key in keys), shape.dims)


def _bitcast(computation: Computation, one: Instruction) -> Rule | None:
    """The same memory in another shape: the rule of a reshape, with dimensions in memory order."""
    before, after = computation[one.operands[0]].shape, one.shape
    if not before.is_array or not after.is_array or prod(before.dims) != prod(after.dims):
        return None
    orders = [shape.major_to_minor for shape in (before, after)]
    seen = [Shape(shape.dtype, tuple(shape.dims[axis] for axis in order)) for shape, order in zip((before, after), orders, strict=True)]
    rule = reshape_rule(*seen)
    rule.operands = [_back(rule.operands[0], orders[0])]
    rule.results = [_back(rule.results[0], orders[1])]
    return rule


def _back(dims: Dimensions, order: tuple[int, ...]) -> Dimensions:
    found: Dimensions = [()] * len(order)
    for place, axis in enumerate(order):
        found[axis] = dims[place]
    return found


def _cut(number: int, computation: Computation, index: int, one: Instruction, chosen: dict[Key, tuple[int, ...]]) -> Iterator[Link]:
    """Links each dimension with the same one of the result, also if a part is removed or added, but not for a top-k."""
    count = len(one.shape.leaves) if one.opcode == "sort" else 1
    for operand in one.operands[:count]:
        before = computation[operand].shape
        for part, after in enumerate(one.shape.leaves):
            if before.rank == after.rank:
                few = (before.rank - 1,) if one.opcode == "topk" else chosen.get((number, operand, 0), ()) if one.opcode == "slice" else ()
                links = _by_place([(number, operand, 0), (number, index, part)], [before, after], share=_MOST_CUT, few=few)
                yield from (replace(link, mixed=one.dimensions or ()) for link in links) if one.opcode == "sort" else links
                if one.opcode == "slice":
                    yield from _one_of_qkv(number, operand, index, before, one)


def _one_of_qkv(number: int, operand: int, index: int, before: Shape, one: Instruction) -> Iterator[Link]:
    """Links an array of queries, keys and values with the slice of one of them: if the slice grows, so does the array."""
    for axis, (whole, part) in enumerate(zip(before.dims, one.shape.dims, strict=True)):
        if part > 1 and whole == 3 * part and one.slices[axis].start % part == 0:
            dims = [tuple(factors if place == axis else () for place in range(before.rank)) for factors in ((0, 1), (1,))]
            yield Link((((number, operand, 0), dims[0]), ((number, index, 0), dims[1])), (3, part))


def _by_place(keys: list[Key], shapes: list[Shape], share: float = 1.0, few: tuple[int, ...] = ()) -> Iterator[Link]:
    """Links dimensions of the same number if their sizes are equal or, except for those in ``few``, about equal. A factor has its size in
    the first array.
    """
    arrays: list[list[tuple[int, ...]]] = [[] for _ in keys]
    sizes: list[int] = []
    for place in range(min(shape.rank for shape in shapes)):
        here = [shape.dims[place] for shape in shapes]
        alike = min(here) == max(here) or (place not in few and share < 1 and min(here) >= share * max(here) > 1)
        for dims in arrays:
            dims.append((len(sizes),) if alike else ())
        if alike:
            sizes.append(here[0])
    yield Link(tuple((key, tuple(dims)) for key, dims in zip(keys, arrays, strict=True)), tuple(sizes))


def _concatenated(number: int, computation: Computation, index: int, one: Instruction) -> Iterator[Link]:
    """Links all dimensions but the one that arrays are concatenated along."""
    (axis,) = one.dimensions or (0,)
    dims = tuple((place,) if place != axis else () for place in range(one.shape.rank))
    arrays = tuple(((number, operand, 0), dims) for operand in one.operands if computation[operand].shape.rank == one.shape.rank)
    yield Link((*arrays, ((number, index, 0), dims)), one.shape.dims)


def _product(number: int, computation: Computation, index: int, one: Instruction, dims: DotDimensions) -> Iterator[Link]:
    """A library's product; an array that it adds to the result has the result's dimensions.

    Or a ragged product: each group of rows is multiplied by its own matrix, or each group of the contracted dimension gives one matrix.
    """
    left, right = (computation[operand].shape for operand in one.operands[:2])
    made = next(iter(one.shape.leaves))
    sizes: list[int] = []

    def new(size: int) -> tuple[int, ...]:
        sizes.append(size)
        return (len(sizes) - 1,)

    ours, theirs = [new(size) for size in left.dims], [new(size) for size in right.dims]
    for mine, other in zip((*dims.lhs_batch, *dims.lhs_contracting), (*dims.rhs_batch, *dims.rhs_contracting), strict=True):
        theirs[other] = ours[mine]
    groups = [theirs[place] for place in one.integers("rhs_group_dims")]
    free = [ours[place] for place in range(left.rank) if place not in (*dims.lhs_batch, *dims.lhs_contracting)]
    free += [each for place, each in enumerate(theirs) if place not in (*dims.rhs_batch, *dims.rhs_contracting) and each not in groups]
    result = [*(ours[place] for place in dims.lhs_batch), *free]
    if one.opcode == "ragged-dot" and set(one.integers("lhs_ragged_dims")) & set(dims.lhs_contracting):
        groups = [new(made.dims[0])]
        result = [*groups, *result]
    if len(result) != made.rank:
        return
    arrays = [((number, one.operands[0], 0), ours), ((number, one.operands[1], 0), theirs), ((number, index, 0), result)]
    if one.opcode == "ragged-dot":
        lengths = computation[one.operands[2]].shape
        arrays.append(((number, one.operands[2], 0), [*[() for _ in lengths.dims[1:]], *(groups or [()])]))
    else:
        arrays += [((number, operand, 0), result) for operand in one.operands[2:] if computation[operand].shape.dims == made.dims]
    yield Link(tuple((key, tuple(each)) for key, each in arrays), tuple(sizes))


def convolution_arrays(one: Instruction) -> tuple[int, int, int]:
    """Which arrays of a library's convolution are its inputs, kernel and outputs: 0 and 1 are its operands, 2 is its result."""
    return next((places for word, places in _GRADIENTS.items() if word in one.custom_call_target), (0, 1, 2))


def _convolution(number: int, computation: Computation, index: int, one: Instruction, dims: ConvolutionDimensions) -> Iterator[Link]:
    """A library's convolution or a gradient of one; an array that it adds to the result has the result's dimensions."""
    made = next(iter(one.shape.leaves))
    given = [(number, one.operands[0], 0), (number, one.operands[1], 0), (number, index, 0)]
    shapes = [computation[one.operands[0]].shape, computation[one.operands[1]].shape, made]
    (inputs, source), (kernel, taps), (outputs, result) = ((given[place], shapes[place]) for place in convolution_arrays(one))
    alike = [((inputs, source, dims.input_batch), (outputs, result, dims.output_batch))]
    if one.feature_group_count == 1:
        alike.append(((inputs, source, dims.input_feature), (kernel, taps, dims.kernel_input_feature)))
        alike.append(((outputs, result, dims.output_feature), (kernel, taps, dims.kernel_output_feature)))
    yield from _alike((*alike, *_positions(dims, inputs, source, outputs, result)))
    for operand in one.operands[2:]:
        shape = computation[operand].shape
        if shape.is_array and shape.dims == made.dims:
            yield Link(tuple(((number, each, 0), tuple((place,) for place in range(made.rank))) for each in (operand, index)), made.dims)


def _positions(dims: ConvolutionDimensions, inputs: Key, source: Shape, outputs: Key, result: Shape) -> Iterator[tuple[_Axis, _Axis]]:
    """The pairs of spatial dimensions of a convolution whose sizes are about equal in its inputs and outputs."""
    for before, after in zip(dims.input_spatial, dims.output_spatial, strict=True):
        if min(sizes := (source.dims[before], result.dims[after])) >= _MOST_CUT * max(sizes) > 1:
            yield (inputs, source, before), (outputs, result, after)


def _alike(pairs: Iterable[tuple[_Axis, _Axis]]) -> Iterator[Link]:
    """A link for each pair of dimensions."""
    for pair in pairs:
        arrays = ((key, tuple((0,) if place == axis else () for place in range(shape.rank))) for key, shape, axis in pair)
        _, shape, axis = pair[0]
        yield Link(tuple(arrays), (shape.dims[axis],))


def _library(number: int, computation: Computation, index: int, one: Instruction) -> Iterator[Link]:
    """Another library's call: its arrays of one rank are assumed to have their dimensions in the same order."""
    made = [(part, leaf) for part, leaf in enumerate(one.shape.leaves) if leaf.is_array]
    for operand in one.operands:
        shape = computation[operand].shape
        for part, leaf in made:
            if shape.is_array and leaf.rank == shape.rank > 1:
                yield from _by_place([(number, operand, 0), (number, index, part)], [shape, leaf])


def _one_value(module: HloModule, number: int, computation: Computation, index: int, one: Instruction) -> Iterator[list[Key]]:
    """Groups of arrays that are one value: parts of tuples, the state of loops, operands and results of called computations."""
    yield from handed_on(module, number, computation, index, one)
    leaves = len(one.shape.leaves)
    if one.opcode in ("fusion", "call", "async-start", "conditional"):
        for call in one.calls:
            body = module.computations[call.computation]
            operands = one.operands[1:] if one.opcode == "conditional" else one.operands
            for operand, parameter in zip(operands, body.parameters, strict=False):
                for part in range(len(computation[operand].shape.leaves)):
                    yield [(number, operand, part), (call.computation, parameter, part)]
            first = _leaves(computation, operands) if one.opcode == "async-start" else 0  # its tuple has the operands first
            for part in range(min(leaves - first, len(body.root_instruction.shape.leaves))):
                yield [(number, index, first + part), (call.computation, body.root, part)]
    elif one.opcode == "async-done" and (start := computation[one.operands[0]]).opcode == "async-start":
        first = _leaves(computation, start.operands)
        for part in range(leaves):
            yield [(number, one.operands[0], first + part), (number, index, part)]
    elif one.opcode in _ALIKE and one.operands and computation[one.operands[0]].shape == one.shape:
        for part in range(leaves):
            yield [(number, one.operands[0], part), (number, index, part)]


def _leaves(computation: Computation, indices: Iterable[int]) -> int:
    """The number of arrays in some values."""
    return sum(len(computation[index].shape.leaves) for index in indices)
