"""What each opcode of XLA does to the axes of its arrays: its attributes, as `graph.axes` describes operators."""

from collections.abc import Callable, Sequence
from math import prod

from ...graph import axes as to
from ...graph.axes import Convolved, Dims, IndexMap, Rows
from .attributes import ConvolutionDimensions, DotDimensions
from .module import Instruction
from .opcodes import ELEMENTWISE
from .shapes import Shape

# The axes of an instruction with these operands, and with results of these dimensions; without results where they follow from the rest.
Reader = Callable[[Instruction, Sequence[Dims], Sequence[Dims]], IndexMap]
UNFIT = (IndexError, KeyError, StopIteration, ValueError)  # attributes or operands do not fit


def index_map(instruction: Instruction, operands: Sequence[Instruction]) -> IndexMap | None:
    """The axes of an instruction, whose arrays in a tuple are separate results; ``None`` if it has none or they contradict its shapes."""
    if instruction.opcode == "bitcast":
        return _viewed(operands[0].shape, instruction.shape)
    reader = READERS.get(instruction.opcode)
    if reader is None or any(operand.shape.is_tuple for operand in operands):
        return None
    results = [leaf.dims for leaf in instruction.shape.leaves]
    try:
        axes = reader(instruction, dims := [operand.shape.dims for operand in operands], results)
    except UNFIT:
        return None
    axes.operands += [axes.unsplit(size) for size in dims[len(axes.operands) :]]  # sizes and places that are computed at run time
    return axes if [*map(axes.dims, axes.results)] == results else None


def _viewed(source: Shape, result: Shape) -> IndexMap | None:
    """The same memory in another shape; between numbers of other sizes no axes are known."""
    if not source.is_array or not result.is_array or prod(source.dims) != prod(result.dims):
        return None
    return to.reshaped(source.dims, result.dims, (source.major_to_minor, result.major_to_minor))


def _elementwise(instruction: Instruction, operands: Sequence[Dims], results: Sequence[Dims]) -> IndexMap:
    return to.elementwise(operands, results[0] if results else max(operands, key=len), max(1, len(results)))


def _reduced(instruction: Instruction, operands: Sequence[Dims], results: Sequence[Dims]) -> IndexMap:
    return to.reduced(operands, instruction.dimensions)


def product_of(instruction: Instruction, numbers: DotDimensions, operands: Sequence[Dims], result: Dims = ()) -> IndexMap:
    """The axes of a dot, a ragged one, or a library's product of these dimension numbers; further operands have none."""
    groups, by_group = instruction.integers("rhs_group_dims"), None
    if set(instruction.integers("lhs_ragged_dims")) & {*numbers.lhs_contracting}:
        by_group = result[0]
    batch = [*zip(numbers.lhs_batch, numbers.rhs_batch, strict=True)]
    contracted = [*zip(numbers.lhs_contracting, numbers.rhs_contracting, strict=True)]
    return to.product(operands[0], operands[1], batch, contracted, groups, by_group=by_group)


def convolution_of(instruction: Instruction, numbers: ConvolutionDimensions, inputs: Dims, kernel: Dims, output: Dims) -> IndexMap:
    """The axes of a convolution or of a library's, whose result may be its input or its kernel."""
    labels = Convolved(
        batch=(numbers.input_batch, numbers.output_batch),
        contracted=(numbers.input_feature, numbers.kernel_input_feature),
        features=(numbers.kernel_output_feature, numbers.output_feature),
        positions=[*zip(numbers.input_spatial, numbers.output_spatial, strict=True)],
    )
    is_grouped, is_batched = instruction.feature_group_count > 1, instruction.batch_group_count > 1
    return to.convolution(inputs, kernel, output, labels, is_grouped=is_grouped, is_batched=is_batched)


def _convolution(instruction: Instruction, operands: Sequence[Dims], results: Sequence[Dims]) -> IndexMap:
    numbers, (inputs, kernel) = instruction.convolution, operands[:2]
    if numbers is None:
        raise ValueError
    output = [0] * len(inputs)
    output[numbers.output_batch] = inputs[numbers.input_batch] // instruction.batch_group_count
    output[numbers.output_feature] = kernel[numbers.kernel_output_feature]
    for side, axis, place in zip(instruction.window, numbers.input_spatial, numbers.output_spatial, strict=True):
        output[place] = side.positions(inputs[axis])
    return convolution_of(instruction, numbers, inputs, kernel, results[0] if results else tuple(output))


def _window(instruction: Instruction, operands: Sequence[Dims], results: Sequence[Dims]) -> IndexMap:
    sizes = tuple(side.positions(size) for side, size in zip(instruction.window, operands[0], strict=True))
    along = [axis for axis, side in enumerate(instruction.window) if side.size != 1]
    return to.mixed(operands, results[0] if results else sizes, along, max(1, len(operands) // 2))


def _selected(instruction: Instruction, operands: Sequence[Dims], results: Sequence[Dims]) -> IndexMap:
    return to.mixed(operands, operands[0], [axis for axis, side in enumerate(instruction.window) if side.size != 1])


def _mixed_last(operands: Sequence[Dims], result: Dims, count: int) -> IndexMap:
    """Elements depend on all along the last axes."""
    return to.mixed(operands, result, range(len(result) - count, len(result)))


def _transformed(instruction: Instruction, operands: Sequence[Dims], results: Sequence[Dims]) -> IndexMap:
    lengths, (source,) = instruction.integers("fft_length"), operands
    if results:
        return _mixed_last(operands, results[0], max(1, len(lengths)))
    last = {"RFFT": lengths[-1] // 2 + 1, "IRFFT": lengths[-1]}.get(instruction.word("fft_type"), source[-1])
    return _mixed_last(operands, (*source[:-1], last), len(lengths))


def _dynamic_slice(instruction: Instruction, operands: Sequence[Dims], results: Sequence[Dims]) -> IndexMap:
    taken = results[0] if results else instruction.integers("dynamic_slice_sizes")
    cut = [axis for axis, (size, part) in enumerate(zip(operands[0], taken, strict=True)) if size != part]
    return to.mixed(operands, taken, cut)


def _topk(instruction: Instruction, operands: Sequence[Dims], results: Sequence[Dims]) -> IndexMap:
    return to.aligned(operands, results[0], {}, changed=(len(results[0]) - 1,), count=len(results))


def _gathered(instruction: Instruction, operands: Sequence[Dims], results: Sequence[Dims]) -> IndexMap:
    batching = zip(instruction.integers("operand_batching_dims"), instruction.integers("start_indices_batching_dims"), strict=True)
    rows = Rows(
        vector=instruction.integer("index_vector_dim", len(operands[1])) or 0,
        batching=[*batching],
        windows=instruction.integers("offset_dims"),
        dropped=instruction.integers("collapsed_slice_dims"),
    )
    return to.gathered(operands[0], operands[1], instruction.integers("slice_sizes"), rows)


def _scattered(instruction: Instruction, operands: Sequence[Dims], results: Sequence[Dims]) -> IndexMap:
    count = len(operands) // 2
    batching = zip(instruction.integers("input_batching_dims"), instruction.integers("scatter_indices_batching_dims"), strict=True)
    rows = Rows(
        vector=instruction.integer("index_vector_dim", len(operands[count])) or 0,
        batching=[*batching],
        windows=instruction.integers("update_window_dims"),
        dropped=instruction.integers("inserted_window_dims"),
    )
    return to.scattered(operands[:count], operands[count], operands[count + 1], rows)


_SAME = "copy map reduce-precision rng all-reduce collective-permute collective-broadcast"
READERS: dict[str, Reader] = {
    **dict.fromkeys((*ELEMENTWISE, *_SAME.split()), _elementwise),
    **dict.fromkeys(
        ("constant", "iota", "rng-bit-generator", "partition-id", "replica-id"),
        lambda instruction, operands, results: to.generated(operands, results),
    ),
    "broadcast": lambda instruction, operands, results: to.broadcast(operands[0], results[0], instruction.dimensions),
    "cholesky": lambda instruction, operands, results: _mixed_last(operands, operands[0], 2),
    "concatenate": lambda instruction, operands, results: to.concatenated(operands, instruction.dimensions[0]),
    "convolution": _convolution,
    "dot": lambda instruction, operands, results: product_of(instruction, instruction.dot, operands),
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": lambda instruction, operands, results: to.updated(operands),
    "fft": _transformed,
    "gather": _gathered,
    "pad": lambda instruction, operands, results: to.padded(
        operands[0], [(pad.low, pad.high, pad.interior) for pad in instruction.padding]
    ),
    "reduce": _reduced,
    "reduce-window": _window,
    "reshape": lambda instruction, operands, results: to.reshaped(operands[0], results[0]),
    "reverse": lambda instruction, operands, results: to.backwards(operands[0], instruction.dimensions),
    "scatter": _scattered,
    "select-and-scatter": _selected,
    "slice": lambda instruction, operands, results: to.sliced(
        operands[0], [range(cut.start, cut.limit, cut.stride) for cut in instruction.slices]
    ),
    "sort": lambda instruction, operands, results: to.mixed(operands, operands[0], instruction.dimensions, len(operands)),
    "topk": _topk,
    "transpose": lambda instruction, operands, results: to.transposed(operands[0], instruction.dimensions),
    "triangular-solve": lambda instruction, operands, results: _mixed_last(operands, operands[1], 2),
}
