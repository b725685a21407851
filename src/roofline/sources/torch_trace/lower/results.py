"""The results of operators, which traces do not tell."""

from collections.abc import Sequence

from ....dtypes import dtype
from ....graph import SOFTMAXES, Axes, Operator, Padding, Rows, Sizes
from ....torch_prices import Call, Tensor
from ....torch_prices.call import INT64
from ....torch_prices.convolutions import convolved
from ....torch_prices.copies import windows_result
from ....torch_prices.operators import OF_TABLE, TABLE_GRADIENTS, Meaning
from ....torch_prices.transforms import transformed
from ..pricing import PricedOp

SIZE_KEEPING = frozenset(("elementwise", "cast", "copy", "normalisation", "softmax"))
REARRANGED = frozenset(f"aten::{name}" for name in ("roll", "flip", "rot90", "tril", "triu", "pixel_shuffle", "pixel_unshuffle"))
_FP32 = dtype("fp32")
_LIKE_FIRST = (
    Operator.COPY,
    Operator.CAST,
    Operator.FILL,
    Operator.SCATTER,
    Operator.ATTENTION,
    Operator.NORM,
    Operator.TRIANGLE,
    Operator.SCAN,
    Operator.SCATTER_ADD,
)


def result_of(priced: PricedOp, means: Meaning, tensors: Sequence[Tensor]) -> Tensor | None:
    """The result of an op, ``None`` if the trace does not tell it; gathered rows of unknown number have the shape (0, width)."""
    if not tensors:
        return None
    first = tensors[0]
    if isinstance(means.params, Sizes):
        left, right = (tensors[index] for index in means.takes[:2])
        return Tensor((*left.shape[:-1], *right.shape[1:][-1:]), left.dtype)
    if means.operator == Operator.FOURIER:
        return transformed(Call(priced.name, args=priced.args))
    if means.operator == Operator.CONVOLUTION:
        return convolved(Call(priced.name, args=priced.args))
    if means.operator == Operator.CAST and means.takes == (0,):
        return Tensor(first.shape, Call(priced.name, args=priced.args).format(1))
    if means == OF_TABLE:
        rows = priced.args[TABLE_GRADIENTS[priced.name]] if len(priced.args) > TABLE_GRADIENTS[priced.name] else None
        return Tensor((rows, first.shape[-1]), first.dtype) if isinstance(rows, int) and rows > 0 else None
    if means.operator == Operator.REDUCE:
        return _reduced(first, means, priced.args)
    if means.operator in _LIKE_FIRST:
        return Tensor(first.shape, first.dtype, first.strides if priced.name == "aten::copy_" else None)
    if means.operator in (Operator.INVERSE, Operator.SOLVE):
        return tensors[min(1, len(tensors) - 1)]  # as large as the columns, or as the matrix
    if means.operator in (Operator.EQUAL, Operator.DIFFERENT, Operator.COMPARE):
        return Tensor(_broadcast(tensors))  # of booleans, which some recordings call bytes
    if means.operator in SOFTMAXES:
        return _softmax(tensors, priced.args)
    if means.operator == Operator.SORT or (means.operator == Operator.SELECT and means.takes[-1] == 0):  # which some write in place
        return Tensor(first.shape, first.dtype)
    if means.operator == Operator.RANDOM:
        count = next((arg for arg in priced.args[1:] if isinstance(arg, int)), 0)
        return Tensor((*first.shape[:-1], count), INT64)
    if means.operator == Operator.GATHER and isinstance(means.params, Rows):
        return Tensor(tensors[-1].shape, first.dtype)
    if means.operator == Operator.GATHER:
        rows = tensors[1].elements if len(tensors) > 1 and len(first.shape) == 2 else 0  # of more axes a mask may choose
        return Tensor((rows, first.shape[-1]), first.dtype) if means.params == 0 and len(first.shape) > 1 else None
    if isinstance(means.params, Padding):
        sides = zip(first.shape, means.params.low, means.params.high, strict=True)
        return Tensor(tuple(size + low + high for size, low, high in sides), first.dtype)
    if means.operator == Operator.PAD:
        sizes = priced.args[1] if len(priced.args) > 1 else None
        return Tensor(sizes, first.dtype) if isinstance(sizes, tuple) and all(isinstance(size, int) for size in sizes) else None
    if means.is_stack and isinstance(means.params, int):
        return Tensor((*first.shape[: means.params], len(tensors), *first.shape[means.params :]), first.dtype)
    if means.operator == Operator.CONCATENATE:
        return _joined(tensors, means.params)
    if means.operator in (Operator.PATCHES, Operator.FOLD):
        return windows_result(Call(priced.name, args=priced.args))
    return _as_large(priced)


def _reduced(source: Tensor, means: Meaning, args: Sequence[object]) -> Tensor:
    """The result of a reduction, with the axes that it keeps."""
    axes = means.params.axes if isinstance(means.params, Axes) else ()
    is_kept = any(arg is True for arg in args[2:])
    shape = tuple(1 if axis in axes else size for axis, size in enumerate(source.shape) if is_kept or axis not in axes)
    return Tensor(shape, source.dtype)


def _softmax(tensors: Sequence[Tensor], args: Sequence[object]) -> Tensor:
    """The result of a softmax: of a compiled one, whose arguments are all pointers, the last of its largest tensors; it may widen."""
    largest = max(reversed(tensors), key=lambda tensor: tensor.elements)
    is_widened = len(args) > 2 and args[2] is True
    return Tensor(largest.shape, _FP32 if is_widened else largest.dtype)


def _joined(tensors: Sequence[Tensor], axis: object) -> Tensor | None:
    """The result of a concatenation, of which empty parts may have any shape."""
    rank = max(len(tensor.shape) for tensor in tensors)
    parts = [tensor for tensor in tensors if len(tensor.shape) == rank]
    if not isinstance(axis, int) or not -rank <= axis < rank:
        return None
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    return Tensor(tuple(shape), parts[0].dtype)


def _as_large(priced: PricedOp) -> Tensor | None:
    """The result of an op, as large as its operands broadcast together; ``None`` for an op whose result is smaller."""
    if priced.priced.category not in SIZE_KEEPING and priced.name not in REARRANGED:
        return None
    tensors = [arg for arg in priced.args if isinstance(arg, Tensor)]
    largest = max(tensors, key=lambda tensor: tensor.elements, default=None)
    if largest is None:
        return None
    named = [tensor.dtype for tensor in tensors if tensor.dtype is not None and tensor.dtype.name == priced.priced.dtype]
    return Tensor(_broadcast(tensors) or largest.shape, named[0] if named else largest.dtype)


def _broadcast(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    """The shape of tensors broadcast together; empty if they cannot be."""
    rank = max(len(tensor.shape) for tensor in tensors)
    padded = [(1,) * (rank - len(tensor.shape)) + tensor.shape for tensor in tensors]
    sizes = [set(axis) - {1} for axis in zip(*padded, strict=True)]
    return tuple(next(iter(size), 1) for size in sizes) if all(len(size) < 2 for size in sizes) else ()
