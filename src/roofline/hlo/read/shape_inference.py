"""Shape inference by XLA's rules, for instructions whose text does not give the shape: from operands and attributes."""

from collections.abc import Callable

from ..ir.attributes import ConvolutionDimensions, PadRange, SliceRange, Window
from ..ir.malformed import Malformed, excerpt
from ..ir.shapes import Shape, tuple_of

Attribute = Callable[[str], object | None]
Called = dict[str, Shape]  # the result of a called computation, by its role

# The result has the shape of the first operand.
_NAMES = """
    abs acos acosh add add-dependency and asin asinh atan2 atanh batch-norm-inference cbrt ceil cholesky collective-broadcast
    collective-permute copy cosine cosh count-leading-zeros divide domain dynamic-update-slice erf exponential exponential-minus-one
    floor log log-plus-one logistic maximum minimum mulhi multiply negate not opt-barrier or popcnt power ragged-all-to-all
    reduce-precision remainder reverse round-nearest-afz round-nearest-even rsqrt select-and-scatter set-dimension-size shift-left
    shift-right-arithmetic shift-right-logical sign sine sinh sqrt subtract tan tanh while xor all-reduce-done
"""
_LIKE_FIRST = frozenset(_NAMES.split())
_SCALARS = {"after-all": "token", "send-done": "token", "get-dimension-size": "s32", "partition-id": "u32", "replica-id": "u32"}
_RESULTS = {"call": "to_apply", "fusion": "calls", "conditional": "branch_computations"}  # the called computation that gives the result
_PARTS = {"c64": "f32", "c128": "f64"}  # complex numbers -> their real and imaginary parts
_COMPLEX = {part: number for number, part in _PARTS.items()}
_UNFIT = (AssertionError, AttributeError, IndexError, KeyError, StopIteration, TypeError, ValueError)  # attributes or operands do not fit


def infer_shape(opcode: str, operands: tuple[Shape, ...], attribute: Attribute, called: Called) -> Shape:
    """The shape of an instruction; raises `Malformed` if it cannot be inferred."""
    try:
        found = _infer(opcode, operands, attribute, called)
    except _UNFIT:
        found = None
    if found is None:
        raise Malformed(f"the shape of {excerpt(opcode)} cannot be inferred from its operands; write it before the opcode")
    return found


def _infer(opcode: str, operands: tuple[Shape, ...], attribute: Attribute, called: Called) -> Shape | None:
    if opcode in _SCALARS:
        return Shape(_SCALARS[opcode])
    if opcode in _RESULTS:
        return called[_RESULTS[opcode]]
    if opcode == "map":
        return _array(called["to_apply"].dtype, operands[0].dims)
    if opcode == "reduce":
        return _reduce(operands, attribute, called["to_apply"])
    if opcode in _RULES:
        return _RULES[opcode](operands, attribute)
    return _of_operands(opcode, operands)


def _of_operands(opcode: str, operands: tuple[Shape, ...]) -> Shape | None:
    """The shape that follows from the operands' shapes alone; ``None`` for an unknown opcode."""
    if opcode == "tuple":
        return tuple_of(operands)
    first = operands[0]
    if opcode in ("all-reduce", "scatter", "sort"):
        results = operands[: len(operands) // 2] if opcode == "scatter" else operands
        return results[0] if len(results) == 1 else tuple_of(results)
    if opcode in ("imag", "real") or (opcode == "abs" and first.dtype in _PARTS):
        return _array(_PARTS.get(first.dtype, first.dtype), first.dims)
    if opcode in ("compare", "is-finite"):
        return _array("pred", first.dims)
    if opcode == "complex":
        return _array(_COMPLEX[first.dtype], first.dims)
    if opcode in ("batch-norm-training", "batch-norm-grad"):
        return tuple_of((first, operands[1], operands[1]))
    if opcode == "copy-start":
        return tuple_of((first, first, Shape("u32")))
    if opcode == "copy-done":
        return first.parts[0]
    if opcode == "recv-done":
        return tuple_of((first.parts[0], Shape("token")))
    if opcode in ("all-gather-done", "collective-permute-done", "async-done"):
        return first.parts[1]
    if opcode in ("clamp", "select", "triangular-solve"):
        return operands[1]
    return first if opcode in _LIKE_FIRST else None


def _array(dtype: str, dims: tuple[int, ...] | list[int]) -> Shape:
    if any(size < 0 for size in dims):
        raise ValueError
    return Shape(dtype, tuple(dims))


def _ints(attribute: Attribute, name: str) -> tuple[int, ...]:
    value = attribute(name)
    return value if isinstance(value, tuple) else (value,) if isinstance(value, int) else ()


def _dot(operands: tuple[Shape, ...], attribute: Attribute) -> Shape:
    left, right = operands[:2]
    batch = _ints(attribute, "lhs_batch_dims")
    sides = (
        (left, (*batch, *_ints(attribute, "lhs_contracting_dims"))),
        (right, (*_ints(attribute, "rhs_batch_dims"), *_ints(attribute, "rhs_contracting_dims"))),
    )
    free = [size for side, gone in sides for axis, size in enumerate(side.dims) if axis not in gone]
    return _array(left.dtype, [*(left.dims[axis] for axis in batch), *free])


def _convolution(operands: tuple[Shape, ...], attribute: Attribute) -> Shape:
    left, right = operands
    labels, window = attribute("dim_labels"), attribute("window") or ()
    assert isinstance(labels, ConvolutionDimensions)
    assert isinstance(window, tuple)
    groups = attribute("batch_group_count")
    dims = [0] * left.rank
    dims[labels.output_batch] = left.dims[labels.input_batch] // (groups if isinstance(groups, int) else 1)
    dims[labels.output_feature] = right.dims[labels.kernel_output_feature]
    sizes = _windowed(tuple(left.dims[axis] for axis in labels.input_spatial), window)
    for axis, size in zip(labels.output_spatial, sizes, strict=True):
        dims[axis] = size
    return _array(left.dtype, dims)


def _windowed(sizes: tuple[int, ...], window: Window) -> list[int]:
    """The number of positions of a window along each dimension."""
    found = []
    for size, along in zip(sizes, window, strict=True):
        base = (size - 1) * along.base_dilation + 1 if size else 0
        padded = base + along.low + along.high
        reach = (along.size - 1) * along.window_dilation + 1
        found.append((padded - reach) // along.stride + 1 if padded >= reach else 0)
    return found


def _reduce(operands: tuple[Shape, ...], attribute: Attribute, called: Shape) -> Shape:
    gone = _ints(attribute, "dimensions")
    half = operands[: len(operands) // 2]
    kept = [size for axis, size in enumerate(half[0].dims) if axis not in gone]
    results = called.parts or (called,)
    shapes = [_array(result.dtype, kept) for result, _ in zip(results, half, strict=True)]
    return shapes[0] if len(shapes) == 1 else tuple_of(tuple(shapes))


def _reduce_window(operands: tuple[Shape, ...], attribute: Attribute) -> Shape:
    window = attribute("window") or ()
    assert isinstance(window, tuple)
    half = operands[: len(operands) // 2]
    shapes = [_array(shape.dtype, _windowed(shape.dims, window)) for shape in half]
    return shapes[0] if len(shapes) == 1 else tuple_of(tuple(shapes))


def _concatenate(operands: tuple[Shape, ...], attribute: Attribute) -> Shape:
    (axis,) = _ints(attribute, "dimensions")
    dims = list(operands[0].dims)
    dims[axis] = sum(shape.dims[axis] for shape in operands)
    return _array(operands[0].dtype, dims)


def _pad(operands: tuple[Shape, ...], attribute: Attribute) -> Shape:
    ranges = attribute("padding")
    assert isinstance(ranges, tuple)
    dims = []
    for size, pad in zip(operands[0].dims, ranges, strict=True):
        assert isinstance(pad, PadRange)
        dims.append(size + pad.low + pad.high + max(size - 1, 0) * pad.interior)
    return _array(operands[0].dtype, dims)


def _slice(operands: tuple[Shape, ...], attribute: Attribute) -> Shape:
    ranges = attribute("slice")
    assert isinstance(ranges, tuple)
    dims = []
    for taken in ranges:
        assert isinstance(taken, SliceRange)
        dims.append(-(-(taken.limit - taken.start) // taken.stride))
    return _array(operands[0].dtype, dims)


def _gather(operands: tuple[Shape, ...], attribute: Attribute) -> Shape:
    source, indices = operands
    offset = _ints(attribute, "offset_dims")
    (vector,) = _ints(attribute, "index_vector_dim")
    gone = (*_ints(attribute, "collapsed_slice_dims"), *_ints(attribute, "operand_batching_dims"))
    windows = iter([size for axis, size in enumerate(_ints(attribute, "slice_sizes")) if axis not in gone])
    batches = [size for axis, size in enumerate(indices.dims) if axis != vector]
    rest = iter(batches)
    return _array(source.dtype, [next(windows) if axis in offset else next(rest) for axis in range(len(batches) + len(offset))])


def _fft(operands: tuple[Shape, ...], attribute: Attribute) -> Shape:
    source, lengths, kind = operands[0], _ints(attribute, "fft_length"), attribute("fft_type")
    if kind == "RFFT":
        return _array(_COMPLEX[source.dtype], [*source.dims[:-1], lengths[-1] // 2 + 1])
    if kind == "IRFFT":
        return _array(_PARTS[source.dtype], [*source.dims[:-1], lengths[-1]])
    return source


def _transpose(operands: tuple[Shape, ...], attribute: Attribute) -> Shape:
    return _array(operands[0].dtype, [operands[0].dims[axis] for axis in _ints(attribute, "dimensions")])


_RULES: dict[str, Callable[[tuple[Shape, ...], Attribute], Shape]] = {
    "concatenate": _concatenate,
    "convolution": _convolution,
    "dot": _dot,
    "dynamic-slice": lambda operands, attribute: _array(operands[0].dtype, _ints(attribute, "dynamic_slice_sizes")),
    "fft": _fft,
    "gather": _gather,
    "get-tuple-element": lambda operands, attribute: operands[0].parts[_ints(attribute, "index")[0]],
    "pad": _pad,
    "reduce-window": _reduce_window,
    "slice": _slice,
    "transpose": _transpose,
}
