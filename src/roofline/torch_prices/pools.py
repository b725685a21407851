"""Pooling and resampling: the input is read, the result written; backward reads the gradient and writes that of the input."""

from math import prod

from msgspec.structs import replace

from ..errors import FormulaError
from ..ops.convolution import Axis
from ..ops.elementwise import summed
from .call import INT64, Call, Priced, Tensor, needed
from .op_table import op
from .traffic import result, streamed

POOLING = "pooling"


def _numbers(call: Call, place: int, axes: int, default: tuple[int, ...]) -> tuple[int, ...]:
    found = call.ints(place) or default
    if len(found) not in (1, axes) or min(found) < 0:
        raise FormulaError(f"{call.op}: {found} for {axes} axes")
    return found if len(found) == axes else found * axes


def _windows(call: Call, x: Tensor, axes: int, dilation: int | None, ceil: int) -> list[Axis]:
    """The windows of a pooling along each spatial axis."""
    kernel = _numbers(call, 1, axes, ())
    stride = _numbers(call, 2, axes, kernel)
    padding = _numbers(call, 3, axes, (0,))
    spread = _numbers(call, dilation, axes, (1,)) if dilation is not None else (1,) * axes
    if 0 in stride:
        raise FormulaError(f"{call.op}: a stride of 0")
    found = []
    for size, taps, step, pad, far in zip(x.shape[-axes:], kernel, stride, padding, spread, strict=True):
        axis = Axis(size=size, kernel=taps, stride=step, low=pad, high=pad, dilation=far)
        # Rounded up, one more window reaches beyond the padding, unless it would start in the padding.
        reached = axis.out * step + (taps - 1) * far + 1
        if call.flag(ceil) and reached - step < size + 2 * pad and axis.out * step < size + pad:
            axis = replace(axis, high=reached - size - pad)
        found.append(axis)
    return found


@op("aten::max_pool2d_with_indices", "aten::max_pool3d_with_indices", "aten::avg_pool2d", "aten::avg_pool3d", "aten::avg_pool1d")
def pool(call: Call) -> Priced | None:
    """A maximum compares, which is no FLOP, and also writes 64-bit indices; an average adds its inputs, without padding, and divides."""
    x = call.need(0)
    axes = next(axes for axes in (1, 2, 3) if f"pool{axes}d" in call.op)
    if len(x.shape) <= axes:
        return None
    is_max = "max" in call.op
    if call.ints(1) is None:
        return None
    windows = _windows(call, x, axes, 4 if is_max else None, 5 if is_max else 4)
    out = result(call, (*x.shape[:-axes], *(axis.out for axis in windows)), x.dtype)
    indices = Tensor(out.shape, INT64) if is_max else None
    taps = 0 if is_max else prod(x.shape[:-axes]) * prod(axis.taps for axis in windows)
    return streamed(POOLING, x, (x,), (out, indices), flops=1, elements=taps)


@op(
    "aten::_adaptive_avg_pool2d",
    "aten::_adaptive_avg_pool3d",
    "aten::adaptive_max_pool2d",
    "aten::adaptive_max_pool3d",
    "aten::adaptive_avg_pool2d",
)
@op("aten::upsample_nearest1d", "aten::upsample_nearest2d", "aten::upsample_nearest3d", "aten::upsample_bilinear2d")
@op("aten::upsample_bicubic2d", "aten::upsample_linear1d", "aten::upsample_trilinear3d", "aten::_upsample_nearest_exact2d")
@op("aten::_upsample_bicubic2d_aa", "aten::_upsample_bilinear2d_aa", "aten::_upsample_lanczos2d_aa")
@op("aten::_upsample_nearest_exact1d", "aten::_upsample_nearest_exact3d", "aten::adaptive_avg_pool3d")
def resized(call: Call) -> Priced | None:
    """A result with the spatial sizes of argument 1."""
    x, sizes = call.need(0), call.ints(1)
    if sizes is None and not call.outputs:
        return None
    out = result(call, (*x.shape[: -len(sizes)], *sizes) if sizes else x.shape, x.dtype)
    indices = Tensor(out.shape, INT64) if "max" in call.op else None
    return streamed(POOLING, x, (x,), (out, indices), flops=1, elements=max(x.elements, out.elements))


# FLOP of a bilinear sample: the positions and weights of its four corners, and their sum.
SAMPLE = 16


@op("aten::grid_sampler_2d", "aten::grid_sampler_3d", "aten::cudnn_grid_sampler")
def grid_sample(call: Call) -> Priced | None:
    """Samples of an input at the positions of a grid, one per element of the result's plane."""
    x, grid = call.need(0), call.need(1)
    if len(x.shape) < 3 or len(grid.shape) != len(x.shape):
        return None
    out = result(call, (*x.shape[:2], *grid.shape[1:-1]), x.dtype)
    return streamed(POOLING, x, (x, grid), (out,), flops=SAMPLE, elements=out.elements)


@op("aten::grid_sampler_2d_backward", "aten::grid_sampler_3d_backward", "aten::cudnn_grid_sampler_backward")
def grid_sample_backward(call: Call) -> Priced | None:
    """The gradients of the input and of the grid. cuDNN's operator has the gradient of the result last."""
    tensors = call.all_tensors
    if len(tensors) < 3:
        return None
    dy, x, grid = (tensors[2], *tensors[:2]) if "cudnn" in call.op else tensors[:3]
    work = summed(dy.elements, dy.dtype, 2 * SAMPLE)
    return streamed(POOLING, x, (dy, x, grid), (x, grid), work)


@op("aten::fractional_max_pool2d", "aten::fractional_max_pool3d", "aten::max_unpool2d", "aten::max_unpool3d")
def placed(call: Call) -> Priced | None:
    """Fractional max pooling to the sizes of argument 2, with indices; or max unpooling by indices into those sizes."""
    x, sizes = call.need(0), needed(call.ints(2))
    if len(x.shape) <= len(sizes):
        return None
    out = result(call, (*x.shape[: -len(sizes)], *sizes), x.dtype)
    back = "unpool" in call.op
    indices = Tensor(x.shape if back else out.shape, INT64)
    return streamed(POOLING, x, (x, indices if back else call.tensor(3)), (out, None if back else indices))
