"""Sharding rules: which dimensions of an operation's operands and results are split together, summed, or cannot be split.

Each dimension is a product of factors, major to minor. A product C[b,m,n] = A[b,m,k] B[b,k,n] has the factors b, m, n and k: an axis that
splits a factor splits every array that has it. ``summed`` factors are not in the result: if one is split, each device has a partial sum.
``whole`` factors cannot be split in this model.
"""

from collections.abc import Callable, Iterable
from math import prod

from msgspec import Struct, field

from ..ir.module import Computation, Instruction
from ..ir.shapes import Shape
from ..price.elementwise import ELEMENTWISE

Dimensions = list[tuple[int, ...]]  # of one array: the factors of each dimension


class Rule(Struct):
    """The factors of an operation: their sizes, and the factors of each dimension of each operand and result."""

    sizes: list[int] = field(default_factory=list)
    operands: list[Dimensions] = field(default_factory=list)
    results: list[Dimensions] = field(default_factory=list)
    summed: set[int] = field(default_factory=set)
    whole: set[int] = field(default_factory=set)

    def new(self, size: int, *, whole: bool = False) -> int:
        self.sizes.append(size)
        if whole:
            self.whole.add(len(self.sizes) - 1)
        return len(self.sizes) - 1

    def split(self, shape: Shape) -> Dimensions:
        """The dimensions of an array, each a new factor."""
        return [(self.new(size),) for size in shape.dims]

    def unsplit(self, shape: Shape) -> Dimensions:
        """The dimensions of an array, each a new factor that cannot be split."""
        return [(self.new(size, whole=True),) for size in shape.dims]


Reader = Callable[[Instruction, list[Shape], list[Shape]], Rule]


def rule_of(computation: Computation, instruction: Instruction) -> Rule | None:
    """The sharding rule of an instruction; ``None`` for an opcode without one. The arrays of a tuple are separate results."""
    reader = _READERS.get(instruction.opcode)
    if reader is None:
        return None
    operands = [operand.shape for operand in computation.operands(instruction)]
    if any(shape.is_tuple for shape in operands):
        return None
    try:
        return reader(instruction, operands, list(instruction.shape.leaves))
    except (IndexError, ValueError, StopIteration):
        return None  # attributes contradict the shapes: pricing the instruction reports it


def _elementwise(one: Instruction, operands: list[Shape], results: list[Shape]) -> Rule:
    """Arrays of one shape; scalar operands are replicated."""
    rule = Rule()
    dims = rule.split(results[0])
    rule.results = [dims for _ in results]
    rule.operands = [dims if shape.dims == results[0].dims else rule.unsplit(shape) for shape in operands]
    return rule


def _without_operands(one: Instruction, operands: list[Shape], results: list[Shape]) -> Rule:
    """Values without array operands."""
    rule = Rule()
    rule.operands = [rule.unsplit(shape) for shape in operands]
    rule.results = [rule.split(shape) for shape in results]
    return rule


def _broadcast(one: Instruction, operands: list[Shape], results: list[Shape]) -> Rule:
    rule = Rule()
    result = rule.split(results[0])
    rule.results = [result]
    rule.operands = [
        [
            result[place] if results[0].dims[place] == size else (rule.new(size, whole=True),)
            for place, size in zip(one.dimensions, operands[0].dims, strict=True)
        ]
    ]
    return rule


def _transpose(one: Instruction, operands: list[Shape], results: list[Shape]) -> Rule:
    rule = Rule()
    dims = rule.split(operands[0])
    rule.operands, rule.results = [dims], [[dims[place] for place in one.dimensions]]
    return rule


def reshape_rule(source: Shape, result: Shape) -> Rule:
    """The rule of a reshape: runs of dimensions with equally many elements on both sides, factored as far as the sizes divide."""
    before: Dimensions = [()] * source.rank
    after: Dimensions = [()] * result.rank
    rule = Rule(operands=[before], results=[after])
    left, right = list(source.dims), list(result.dims)
    i = j = 0
    while i < len(left) and j < len(right):
        if left[i] == 1 or right[j] == 1:
            i, j = i + (left[i] == 1), j + (right[j] == 1)
            continue
        small, large = sorted((left[i], right[j]))
        common = small if small and large % small == 0 else 0
        factor = rule.new(common or max(small, 1), whole=not common)
        before[i], after[j] = (*before[i], factor), (*after[j], factor)
        if not common:
            break
        left[i], right[j] = left[i] // common, right[j] // common
    for dims, sizes in ((before, source.dims), (after, result.dims)):
        for place, size in enumerate(sizes):
            if prod(rule.sizes[factor] for factor in dims[place]) != size:
                dims[place] = (*dims[place], rule.new(size, whole=True))
    return rule


def _reduce(one: Instruction, operands: list[Shape], results: list[Shape]) -> Rule:
    rule = Rule()
    count = len(results)
    dims = rule.split(operands[0])
    kept = [factors for place, factors in enumerate(dims) if place not in one.dimensions]
    rule.summed = {factor for place in one.dimensions for factor in dims[place]}
    rule.operands = [dims] * count + [[] for _ in operands[count:]]
    rule.results = [kept] * count
    return rule


def _dot(one: Instruction, operands: list[Shape], results: list[Shape]) -> Rule:
    rule, numbers = Rule(), one.dot
    left, right = rule.split(operands[0]), rule.split(operands[1])
    for mine, theirs in zip((*numbers.lhs_batch, *numbers.lhs_contracting), (*numbers.rhs_batch, *numbers.rhs_contracting), strict=True):
        right[theirs] = left[mine]
    rule.summed = {factor for place in numbers.lhs_contracting for factor in left[place]}
    free = [dims for place, dims in enumerate(left) if place not in numbers.lhs_batch and place not in numbers.lhs_contracting]
    free += [dims for place, dims in enumerate(right) if place not in numbers.rhs_batch and place not in numbers.rhs_contracting]
    rule.operands = [left, right, *(rule.unsplit(shape) for shape in operands[2:])]
    rule.results = [[*(left[place] for place in numbers.lhs_batch), *free]]
    return rule


def _convolution(one: Instruction, operands: list[Shape], results: list[Shape]) -> Rule:
    """Batches and features as in a product; spatial dimensions and grouped features cannot be split."""
    rule, numbers = Rule(), one.convolution
    left, right, result = (rule.unsplit(shape) for shape in (*operands[:2], results[0]))
    rule.operands, rule.results = [left, right], [result]
    if numbers is None or one.batch_group_count > 1:
        return rule
    left[numbers.input_batch] = result[numbers.output_batch] = (rule.new(operands[0].dims[numbers.input_batch]),)
    if one.feature_group_count == 1:
        right[numbers.kernel_output_feature] = result[numbers.output_feature] = (rule.new(results[0].dims[numbers.output_feature]),)
        contracted = rule.new(operands[0].dims[numbers.input_feature])
        left[numbers.input_feature] = right[numbers.kernel_input_feature] = (contracted,)
        rule.summed = {contracted}
    return rule


def _windowed(one: Instruction, operands: list[Shape], results: list[Shape]) -> Rule:
    """Dimensions that an operation leaves unchanged are split together; those it slices, pads, sorts or slides over cannot be split."""
    touched = _changed_dimensions(one, operands[0], results[0])
    rule = Rule()
    dims: Dimensions = [(rule.new(size, whole=place in touched),) for place, size in enumerate(operands[0].dims)]
    result: Dimensions = [(rule.new(size, whole=True),) if place in touched else dims[place] for place, size in enumerate(results[0].dims)]

    def alike(shape: Shape) -> Dimensions:
        if shape.rank != len(dims):
            return rule.unsplit(shape)
        return [dims[place] if place not in touched else (rule.new(size, whole=True),) for place, size in enumerate(shape.dims)]

    rule.operands = [dims, *map(alike, operands[1:])]
    rule.results = [result for _ in results]
    return rule


def _changed_dimensions(one: Instruction, operand: Shape, result: Shape) -> set[int]:
    """The dimensions of an array that an operation does not leave unchanged."""
    changed = {place for place, (before, after) in enumerate(zip(operand.dims, result.dims, strict=True)) if before != after}
    if one.opcode == "pad":
        return changed | {place for place, edge in enumerate(one.padding) if edge.low or edge.high or edge.interior}
    if one.opcode in ("reduce-window", "select-and-scatter"):
        return changed | {place for place, window in enumerate(one.window) if window.size != 1}
    if one.opcode == "slice":
        return changed | {place for place, each in enumerate(one.slices) if each.stride != 1}
    if one.opcode == "fft":
        return set(range(operand.rank - max(1, len(one.integers("fft_length"))), operand.rank))
    if one.opcode in ("cholesky", "triangular-solve"):
        return {operand.rank - 2, operand.rank - 1}
    if one.opcode == "topk":
        return {operand.rank - 1}
    return changed | set(one.dimensions)  # concatenate, reverse, sort


def _dynamic_update(one: Instruction, operands: list[Shape], results: list[Shape]) -> Rule:
    rule = Rule()
    target, update = operands[:2]
    dims: Dimensions = [(rule.new(size, whole=size != part),) for size, part in zip(target.dims, update.dims, strict=True)]
    taken = [
        mine if size == part else (rule.new(part, whole=True),) for mine, size, part in zip(dims, target.dims, update.dims, strict=True)
    ]
    rule.operands = [dims, taken, *(rule.unsplit(shape) for shape in operands[2:])]
    rule.results = [dims]
    return rule


def _gather(one: Instruction, operands: list[Shape], results: list[Shape]) -> Rule:
    """Rows of a table: dimensions taken whole are split together, as are indices and rows; a table split by rows gives partial sums."""
    rule = Rule()
    table, indices = operands[:2]
    sizes = one.integers("slice_sizes")
    offset, collapsed = one.integers("offset_dims"), one.integers("collapsed_slice_dims")
    batching, start_batching = one.integers("operand_batching_dims"), one.integers("start_indices_batching_dims")
    dims, numbers, of_rows = _indexed(rule, one, table, indices, zip(batching, start_batching, strict=True))
    rows = iter(of_rows)
    windows = iter(place for place in range(table.rank) if place not in collapsed and place not in batching)
    result: Dimensions = []
    for place, size in enumerate(results[0].dims):
        if place in offset:
            axis = next(windows)
            result.append(dims[axis] if sizes[axis] == table.dims[axis] else (rule.new(size, whole=True),))
        else:
            result.append(next(rows))
    for axis in range(table.rank):
        if axis in collapsed and table.dims[axis] != 1:
            rule.summed |= set(dims[axis])
        elif axis not in batching and sizes[axis] != table.dims[axis]:
            rule.whole |= set(dims[axis])
    rule.operands, rule.results = [dims, numbers], [result]
    return rule


def _indexed(
    rule: Rule, one: Instruction, table: Shape, indices: Shape, batching: Iterable[tuple[int, int]]
) -> tuple[Dimensions, Dimensions, Dimensions]:
    """The dimensions of a table and of its indices, which share those of ``batching``; then the index dimensions that enumerate rows."""
    vector = one.integer("index_vector_dim", indices.rank) or 0
    dims, numbers = rule.split(table), rule.split(indices)
    if vector < indices.rank:
        numbers[vector] = (rule.new(indices.dims[vector], whole=True),)
    for mine, theirs in batching:
        dims[mine] = numbers[theirs]
    return dims, numbers, [factors for place, factors in enumerate(numbers) if place != vector]


def _scatter(one: Instruction, operands: list[Shape], results: list[Shape]) -> Rule:
    """Rows added into a table: rows split over devices give partial sums; the table can only be split within rows."""
    rule = Rule()
    count = len(results)
    table, indices, update = operands[0], operands[count], operands[count + 1]
    windows, inserted = one.integers("update_window_dims"), one.integers("inserted_window_dims")
    batching, index_batching = one.integers("input_batching_dims"), one.integers("scatter_indices_batching_dims")
    dims, numbers, of_rows = _indexed(rule, one, table, indices, zip(batching, index_batching, strict=True))
    rows = iter(of_rows)
    kept = iter(place for place in range(table.rank) if place not in inserted and place not in batching)
    updates: Dimensions = []
    for place, size in enumerate(update.dims):
        if place in windows:
            axis = next(kept)
            updates.append(dims[axis] if size == table.dims[axis] else (rule.new(size, whole=True),))
            if size != table.dims[axis]:
                rule.whole |= set(dims[axis])
        else:
            updates.append(next(rows))
    for axis in inserted:
        rule.whole |= set(dims[axis])
    shared = {factor for axis in batching for factor in dims[axis]}
    rule.summed = {factor for factors in of_rows for factor in factors} - shared
    rule.operands = [dims] * count + [numbers] + [updates] * count
    rule.results = [dims] * count
    return rule


_READERS: dict[str, Reader] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **dict.fromkeys(("copy", "map", "reduce-precision", "rng", "all-reduce", "collective-permute", "collective-broadcast"), _elementwise),
    **dict.fromkeys(("constant", "iota", "rng-bit-generator", "partition-id", "replica-id"), _without_operands),
    "broadcast": _broadcast,
    "transpose": _transpose,
    "reshape": lambda one, operands, results: reshape_rule(operands[0], results[0]),
    "reduce": _reduce,
    "dot": _dot,
    "convolution": _convolution,
    **dict.fromkeys(
        (
            *("cholesky", "concatenate", "dynamic-slice", "fft", "pad", "reduce-window", "reverse", "select-and-scatter", "slice"),
            *("sort", "topk", "triangular-solve"),
        ),
        _windowed,
    ),
    "dynamic-update-slice": _dynamic_update,
    "gather": _gather,
    "scatter": _scatter,
}
