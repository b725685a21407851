"""Links between dimensions of the arrays of a compiled program: if one grows, those linked with it do too.

`ir.axes` has those of plain operations. Added here are: fusions and loops, whose parameters are their operands; library calls; slices and
pads, which remove or add the same number of elements as before.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from msgspec import Struct

from ...graph.axes import Dims, IndexMap
from ..ir.attributes import ConvolutionDimensions, DotDimensions
from ..ir.axes import convolution_of, index_map, product_of
from ..ir.module import Computation, HloModule, Instruction
from ..ir.opcodes import IDENTITIES
from ..ir.shapes import Shape
from ..lower.products import product_dimensions
from ..partition.propagation import Key, handed_on
from ..price.loops import Loops
from .attention_calls import attention_arrays

_MOST_CUT = 0.5  # of a dimension: a slice that removes more of it does not grow with it
_GRADIENTS = {"convBackwardInput": (2, 1, 0), "convBackwardFilter": (0, 2, 1)}  # inputs, kernel and outputs among operands and result
_ALIKE = IDENTITIES | {"copy", "copy-start", "copy-done", "all-reduce-start", "all-reduce-done"}


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
        for index, instruction in enumerate(computation.instructions):
            yield from _links(module, number, computation, index, instruction, chosen)
            if instruction.opcode == "while":
                yield from _walked_together(module, walked_axes(module, loops, number, instruction))


class WalkedAxis(Struct, frozen=True):
    """A dimension of an array of which each trip of a loop reads or writes one ``part``."""

    whole: Key
    part: Key
    axis: int
    trips: int


def walked_axes(module: HloModule, loops: Loops, number: int, loop: Instruction) -> list[WalkedAxis]:
    """The dimensions that a loop steps along: its trips together read or write all of them, part by part."""
    trips = loops.trip_count(number, loop)
    axes: list[WalkedAxis] = []
    for inner in called_by(module, loop, "while") if trips and trips > 1 else ():
        computation = module.computations[inner]
        for index, instruction in enumerate(computation.instructions):
            if instruction.opcode not in ("dynamic-slice", "dynamic-update-slice"):
                continue
            whole, part = instruction.operands[0], index if instruction.opcode == "dynamic-slice" else instruction.operands[1]
            sizes = zip(computation[whole].shape.dims, computation[part].shape.dims, strict=True)
            axes += [
                WalkedAxis((inner, whole, 0), (inner, part, 0), axis, trips or 0)
                for axis, (size, taken) in enumerate(sizes)
                if taken * (trips or 0) == size and (taken == 1 or taken < _MOST_CUT * size)
            ]
    return axes


def called_by(module: HloModule, loop: Instruction, without: str = "") -> set[int]:
    """The body of a loop and all computations it calls, except those called by instructions with the opcode ``without``."""
    called, waiting = set[int](), list(loop.called("body"))
    while waiting:
        number = waiting.pop()
        if number not in called:
            called.add(number)
            waiting += [
                call.computation
                for instruction in module.computations[number]
                if instruction.opcode != without
                for call in instruction.calls
            ]
    return called


def _walked_together(module: HloModule, axes: list[WalkedAxis]) -> Iterator[Link]:
    """Links between the dimensions that a loop steps along: each has as many parts as the loop has trips."""
    sizes = [walked.trips for walked in axes[:1]]
    arrays = []
    for walked in axes:
        number, place, _ = walked.whole
        dims: list[tuple[int, ...]] = [() for _ in module.computations[number][place].shape.dims]
        dims[walked.axis] = (0, len(sizes))
        sizes.append(module.computations[number][place].shape.dims[walked.axis] // walked.trips)
        arrays.append((walked.whole, tuple(dims)))
    if arrays:
        yield Link(tuple(arrays), tuple(sizes))


def _sorted_along(module: HloModule, numbers: tuple[int, ...]) -> dict[Key, tuple[int, ...]]:
    """The sorted arrays, and along which dimensions. A slice of them, such as a top-k, does not grow with the array."""
    sorted_along: dict[Key, tuple[int, ...]] = {}
    for number in numbers:
        for index, instruction in enumerate(module.computations[number].instructions):
            if instruction.opcode == "sort":
                sorted_along |= {(number, index, part): instruction.dimensions or () for part in range(len(instruction.shape.leaves))}
    if not sorted_along:
        return sorted_along
    same: dict[Key, list[list[Key]]] = {}
    for number in numbers:
        computation = module.computations[number]
        for index, instruction in enumerate(computation.instructions):
            for keys in _one_value(module, number, computation, index, instruction):
                for key in keys:
                    same.setdefault(key, []).append(keys)
    waiting = list(sorted_along)
    while waiting:
        key = waiting.pop()
        for other in chain(*same.get(key, ())):
            if other not in sorted_along:
                sorted_along[other] = sorted_along[key]
                waiting.append(other)
    return sorted_along


def _links(
    module: HloModule, number: int, computation: Computation, index: int, instruction: Instruction, chosen: dict[Key, tuple[int, ...]]
) -> Iterator[Link]:
    """The links between the operands and the result of an instruction; ``chosen`` are the sorted arrays (see `_sorted_along`)."""
    keys = [
        *((number, operand, 0) for operand in instruction.operands),
        *((number, index, part) for part in range(len(instruction.shape.leaves))),
    ]
    operands = computation.operands(instruction)
    if (mapping := index_map(instruction, operands)) is not None:
        yield from _of_axes(keys, mapping)
        if instruction.opcode != "concatenate":
            yield from _of_parts(instruction, keys, mapping, chosen)
        if instruction.opcode == "slice":
            yield from _one_of_qkv(keys, operands[0].shape, instruction)
    elif (dims := product_dimensions(instruction)) is not None and instruction.opcode in ("custom-call", "ragged-dot"):
        yield from _product(keys, operands, instruction, dims)
    elif instruction.opcode == "custom-call" and instruction.convolution is not None:
        yield from _convolution(keys, operands, instruction, instruction.convolution)
    elif instruction.opcode == "custom-call" and (attention := attention_arrays(number, computation, index, instruction)) is not None:
        yield Link(tuple(attention[0]), attention[1])
    elif instruction.opcode == "custom-call":
        yield from _library(keys, [*(operand.shape for operand in operands), *instruction.shape.leaves], len(operands))
    else:
        for same in _one_value(module, number, computation, index, instruction):
            yield _same(module, *same)


def _of_axes(keys: Sequence[Key], mapping: IndexMap) -> Iterator[Link]:
    """The link between the axes of operands and results that have factors in common."""
    arrays = zip(keys, (*mapping.operands, *mapping.results), strict=True)
    yield Link(tuple((key, tuple(axes)) for key, axes in arrays if axes), tuple(mapping.sizes))


def _of_parts(instruction: Instruction, keys: Sequence[Key], mapping: IndexMap, chosen: dict[Key, tuple[int, ...]]) -> Iterator[Link]:
    """Links axes of operands that are about as long as those of the result that they are parts of; not those of a top-k."""
    count = len(mapping.operands)
    lengths = [mapping.dims(array) for array in (*mapping.operands, *mapping.results)]
    for (operand, axis), part in mapping.parts.items():
        few = chosen.get(keys[operand], ()) if instruction.opcode == "slice" else ()
        for place in range(count, len(keys)):
            sizes = lengths[operand][axis], lengths[place][part.result]
            if min(sizes) == max(sizes) or (axis not in few and min(sizes) >= _MOST_CUT * max(sizes) > 1):
                ends = ((operand, axis), (place, part.result))
                arrays = ((keys[array], tuple((0,) if at == end else () for at in range(len(lengths[array])))) for array, end in ends)
                yield Link(tuple(arrays), sizes[:1], mixed=(0,) if instruction.opcode == "sort" else ())


def _same(module: HloModule, *keys: Key) -> Link:
    """A link between arrays that are one value."""
    computation, index, part = keys[0]
    shape = module.computations[computation][index].shape.leaves[part]
    dims = tuple((place,) for place in range(shape.rank))
    return Link(tuple((key, dims) for key in keys), shape.dims)


def _one_of_qkv(keys: Sequence[Key], before: Shape, instruction: Instruction) -> Iterator[Link]:
    """Links an array of queries, keys and values with the slice of one of them: if the slice grows, so does the array."""
    for axis, (whole, part) in enumerate(zip(before.dims, instruction.shape.dims, strict=True)):
        if part > 1 and whole == 3 * part and instruction.slices[axis].start % part == 0:
            dims = [tuple(factors if place == axis else () for place in range(before.rank)) for factors in ((0, 1), (1,))]
            yield Link(tuple(zip(keys, dims, strict=True)), (3, part))


def _product(keys: Sequence[Key], operands: Sequence[Instruction], instruction: Instruction, dims: DotDimensions) -> Iterator[Link]:
    """A library's product; an array that it adds to the result has the result's dimensions. Or a ragged product and its groups' sizes."""
    result = next(iter(instruction.shape.leaves)).dims
    mapping = product_of(instruction, dims, [operand.shape.dims for operand in operands], result)
    if len(mapping.results[0]) != len(result):
        return
    given, groups = mapping.results[0], instruction.integers("rhs_group_dims")
    lengths = [mapping.operands[1][axis] for axis in groups] or given[:1]
    for operand in operands[2:]:
        sizes = operand.shape.dims
        if instruction.opcode == "ragged-dot":
            mapping.operands.append([*(() for _ in sizes[1:]), *lengths])
        else:
            mapping.operands.append(given if sizes == result else [() for _ in sizes])
    yield from _of_axes(keys[: len(operands) + 1], mapping)


def convolution_arrays(instruction: Instruction) -> tuple[int, int, int]:
    """Which arrays of a library's convolution are its inputs, kernel and outputs: 0 and 1 are its operands, 2 is its result."""
    return next((places for word, places in _GRADIENTS.items() if word in instruction.custom_call_target), (0, 1, 2))


def _convolution(
    keys: Sequence[Key], operands: Sequence[Instruction], instruction: Instruction, dims: ConvolutionDimensions
) -> Iterator[Link]:
    """A library's convolution or a gradient of one; an array that it adds to the result has the result's dimensions."""
    result = next(iter(instruction.shape.leaves)).dims
    arrays = [(keys[0], operands[0].shape.dims), (keys[1], operands[1].shape.dims), (keys[len(operands)], result)]
    places, sizes = zip(*(arrays[place] for place in convolution_arrays(instruction)), strict=True)
    mapping = convolution_of(instruction, dims, *sizes)
    yield from _of_axes(places, mapping)
    yield from _of_parts(instruction, places, mapping, {})
    for key, operand in zip(keys[2:], operands[2:], strict=False):
        if operand.shape.dims == result:
            yield _by_place([key, keys[len(operands)]], [result, result])


def _library(keys: Sequence[Key], shapes: Sequence[Shape], count: int) -> Iterator[Link]:
    """Another library's call: its arrays of one rank are assumed to have their dimensions in the same order."""
    for operand, before in [*zip(keys, shapes, strict=True)][:count]:
        for result, after in [*zip(keys, shapes, strict=True)][count:]:
            if before.is_array and after.is_array and before.rank == after.rank > 1:
                yield _by_place([operand, result], [before.dims, after.dims])


def _by_place(keys: Sequence[Key], lengths: Sequence[Dims]) -> Link:
    """Links dimensions of the same number whose sizes are equal."""
    dims = tuple((place,) if len({*sizes}) == 1 else () for place, sizes in enumerate(zip(*lengths, strict=True)))
    return Link(tuple((key, dims) for key in keys), lengths[0])


def _one_value(module: HloModule, number: int, computation: Computation, index: int, instruction: Instruction) -> Iterator[list[Key]]:
    """Groups of arrays that are one value: parts of tuples, the state of loops, operands and results of called computations."""
    yield from handed_on(module, number, computation, index, instruction)
    leaves = len(instruction.shape.leaves)
    if instruction.opcode in ("fusion", "call", "async-start", "conditional"):
        for call in instruction.calls:
            body = module.computations[call.computation]
            operands = instruction.operands[1:] if instruction.opcode == "conditional" else instruction.operands
            for operand, parameter in zip(operands, body.parameters, strict=False):
                for part in range(len(computation[operand].shape.leaves)):
                    yield [(number, operand, part), (call.computation, parameter, part)]
            first = _leaves(computation, operands) if instruction.opcode == "async-start" else 0  # its tuple has the operands first
            for part in range(min(leaves - first, len(body.root_instruction.shape.leaves))):
                yield [(number, index, first + part), (call.computation, body.root, part)]
    elif instruction.opcode == "async-done" and (start := computation[instruction.operands[0]]).opcode == "async-start":
        first = _leaves(computation, start.operands)
        for part in range(leaves):
            yield [(number, instruction.operands[0], first + part), (number, index, part)]
    elif instruction.opcode in _ALIKE and instruction.operands and computation[instruction.operands[0]].shape == instruction.shape:
        for part in range(leaves):
            yield [(number, instruction.operands[0], part), (number, index, part)]


def _leaves(computation: Computation, indices: Iterable[int]) -> int:
    """The number of arrays in some values."""
    return sum(len(computation[index].shape.leaves) for index in indices)
