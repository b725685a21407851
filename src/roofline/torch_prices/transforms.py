"""Fourier transforms and distances between rows."""

from math import prod

from ..dtypes import dtype
from ..errors import FormulaError
from ..ops.elementwise import summed
from ..ops.fourier import flops
from .call import Call, Priced, Tensor, needed
from .op_table import op
from .traffic import result, streamed


@op("aten::_fft_c2c", "aten::_fft_r2c", "aten::_fft_c2r")
def fft(call: Call) -> Priced | None:
    """5·n·log₂ n FLOP for n complex points, the usual estimate; half of that if one side is real."""
    x, axes = call.need(0), needed(call.ints(1))
    if not all(-len(x.shape) <= axis < len(x.shape) for axis in axes):
        raise FormulaError(f"{call.op}: axes {axes} do not fit {x.shape}")
    points = prod(x.shape[axis] for axis in axes)
    if call.op == "aten::_fft_c2r":
        points = points // max(1, x.shape[axes[-1]]) * int(call.number(3) or x.shape[axes[-1]]) if axes else points
    times = x.elements // max(1, prod(x.shape[axis] for axis in axes))
    work = flops(times, points, real=call.op != "aten::_fft_c2c")
    return streamed("fft", x, (x,), (_transformed(call, x, axes),), flops=1, elements=work)


def transformed(call: Call) -> Tensor | None:
    """The result of a transform; ``None`` if the recording does not tell its axes."""
    x, axes = call.tensor(0), call.ints(1)
    return _transformed(call, x, axes) if x and axes and all(-len(x.shape) <= axis < len(x.shape) for axis in axes) else None


def _transformed(call: Call, x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """The result: of real numbers about half of the last axis in complex ones, or the other way round."""
    sizes, number, last = list(x.shape), x.dtype, axes[-1] if axes else 0
    wide = number is not None and number.rate == "fp64"
    if axes and call.op == "aten::_fft_r2c":
        number = dtype("complex128" if wide else "complex64")
        sizes[last] = sizes[last] // 2 + 1 if call.flag(3, True) else sizes[last]
    elif axes and call.op == "aten::_fft_c2r":
        number, sizes[last] = dtype("fp64" if wide else "fp32"), int(call.number(3) or sizes[last])
    return result(call, tuple(sizes), number)


@op("aten::_cdist_forward")
def distances(call: Call) -> Priced | None:
    """The distance of every row of one tensor to every row of another: a difference, a power and a sum per element, and a root."""
    a, b = call.need(0), call.need(1)
    if len(a.shape) < 2 or len(b.shape) < 2:
        return None
    pairs = prod(a.shape[:-1]) * b.shape[-2]
    out = result(call, (pairs,), a.dtype)
    work = summed(pairs * a.shape[-1], a.dtype, 3) + summed(pairs, a.dtype, 0, 1)
    return streamed("reduction", a, (a, b), (out,), work)


@op("aten::_cdist_backward")
def distances_backward(call: Call) -> Priced | None:
    """(gradient, a, b, p, distances): the gradient of a."""
    dy, a, b, found = call.need(0), call.need(1), call.need(2), call.tensor(4)
    if not a.shape:
        return None
    return streamed("reduction", a, (dy, a, b, found), (Tensor(a.shape, a.dtype),), flops=4, elements=dy.elements * a.shape[-1])
