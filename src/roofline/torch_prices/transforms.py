"""Fourier transforms and distances between rows."""

from fractions import Fraction
from math import log2, prod

from ..errors import FormulaError
from .call import Call, Priced, Tensor, needed
from .op_table import op
from .traffic import format_name, pointwise_work, result, streamed, traffic


@op("aten::_fft_c2c", "aten::_fft_r2c", "aten::_fft_c2r")
def fft(call: Call) -> Priced | None:
    """5·n·log₂ n FLOP for n complex points, the usual estimate; half of that if one side is real."""
    x, axes = call.need(0), needed(call.ints(1))
    if not all(-len(x.shape) <= axis < len(x.shape) for axis in axes):
        raise FormulaError(f"{call.op}: axes {axes} do not fit {x.shape}")
    points = prod(x.shape[axis] for axis in axes)
    if call.op == "aten::_fft_c2r":
        points = points // max(1, x.shape[axes[-1]]) * int(call.number(3) or x.shape[axes[-1]]) if axes else points
    real = 1 if call.op == "aten::_fft_c2c" else 2
    times = x.elements // max(1, prod(x.shape[axis] for axis in axes))
    flops = Fraction(5 * times * points, real) * Fraction(log2(points) if points > 1 else 0)
    out = result(call, x.shape, x.dtype)
    return streamed("fft", x, (x,), (out,), flops=1, elements=round(flops))


@op("aten::_cdist_forward")
def distances(call: Call) -> Priced | None:
    """The distance of every row of one tensor to every row of another: a difference, a power and a sum per element, and a root."""
    a, b = call.need(0), call.need(1)
    if len(a.shape) < 2 or len(b.shape) < 2:
        return None
    pairs = prod(a.shape[:-1]) * b.shape[-2]
    out = result(call, (pairs,), a.dtype)
    work = pointwise_work(pairs * a.shape[-1], 3, 0, a.dtype) + pointwise_work(pairs, 0, 1, a.dtype)
    return Priced(cost=work + traffic((a, b), (out,)), category="reduction", dtype=format_name(a))


@op("aten::_cdist_backward")
def distances_backward(call: Call) -> Priced | None:
    """(gradient, a, b, p, distances): the gradient of a."""
    dy, a, b, found = call.need(0), call.need(1), call.need(2), call.tensor(4)
    if not a.shape:
        return None
    return streamed("reduction", a, (dy, a, b, found), (Tensor(a.shape, a.dtype),), flops=4, elements=dy.elements * a.shape[-1])
