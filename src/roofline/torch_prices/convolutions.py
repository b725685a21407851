"""Convolutions and their gradients, without multiplications by padding; a strided one reads only the inputs that it needs.

2 · N · out · (in/groups) · taps FLOP, where taps are the pairs of an output and a tap whose input exists. The gradients of the input and
of the weights do the same multiplications, each in a kernel of its own. PyTorch's FlopCounterMode counts padding too.
"""

from math import prod

from msgspec import Struct

from ..cost import NOTHING, Cost, plain_number
from ..errors import FormulaError
from ..formulas import convolution
from ..formulas.convolution import Direction
from ..operation import Convolution as BySize
from ..operation import Operation
from ..ops.convolution import Axis
from ..ops.elementwise import on_sums, summed
from ..resource import HBM
from ..workload import COUNTED
from .call import Call, Priced, Tensor
from .op_table import op
from .product_formats import product_format
from .traffic import traffic

CONVOLUTION = "convolution"
NO_PADDING = f"{COUNTED}without multiplications by padding"


class Places(Struct, frozen=True, kw_only=True):
    """The positions of a convolution's arguments in the schema of one operator; ``None`` for an argument that it does not have."""

    bias: int | None = None
    stride: int | None = None
    padding: int | None = None
    dilation: int | None = None
    groups: int | None = None
    transposed: int | None = None
    output_padding: int | None = None
    allow_tf32: int | None = None
    always_transposed: bool = False


_MIOPEN = Places(bias=2, padding=3, stride=4, dilation=5, groups=6)
_PLAIN = Places(bias=2, stride=3, padding=4, dilation=5, groups=6)
_SLOW = Places(bias=3, stride=4, padding=5, dilation=6)
_TRANSPOSE = Places(bias=2, stride=3, padding=4, output_padding=5, groups=6, dilation=7, always_transposed=True)
_GENERAL = Places(bias=2, stride=3, padding=4, dilation=5, transposed=6, output_padding=7, groups=8)
_DEPRECATED = Places(bias=2, stride=3, padding=4, dilation=5, transposed=6, output_padding=7, groups=8, allow_tf32=12)
FORWARD: dict[str, Places] = {
    "convolution": _GENERAL,
    "convolution_overrideable": _GENERAL,
    "_convolution": _DEPRECATED,
    "cudnn_convolution": Places(padding=2, stride=3, dilation=4, groups=5, allow_tf32=8),
    "cudnn_convolution_transpose": Places(
        padding=2, output_padding=3, stride=4, dilation=5, groups=6, allow_tf32=9, always_transposed=True
    ),
    "cudnn_convolution_relu": _PLAIN,
    "cudnn_convolution_add_relu": Places(bias=4, stride=5, padding=6, dilation=7, groups=8),
    **dict.fromkeys(("miopen_convolution", "miopen_depthwise_convolution", "mkldnn_convolution"), _MIOPEN),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "miopen_convolution_relu"), _PLAIN),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _TRANSPOSE),
    **dict.fromkeys(("_slow_conv2d_forward", "slow_conv3d_forward", "thnn_conv2d"), _SLOW),
    **dict.fromkeys(("_conv_depthwise2d", "conv_depthwise3d", "slow_conv_dilated2d", "slow_conv_dilated3d"), _SLOW),
}


class Convolution(Struct, frozen=True, kw_only=True):
    """A convolution; a transposed one is described as the input gradient of the convolution in the other direction."""

    batch: int
    in_channels: int
    out_channels: int
    groups: int
    axes: tuple[Axis, ...]

    def operation(self, products: int, cost: Cost, compute: str) -> Operation | None:
        """The operation with its sizes; ``products`` is 1, or the number of gradients."""
        if not products:
            return None
        features = self.in_channels // self.groups * self.out_channels * products
        taps = prod(axis.taps for axis in self.axes)
        return BySize(batch=self.batch, features=features, pairs=taps, bytes=plain_number(cost.known(HBM)), compute=compute)

    def cost(self, direction: Direction, activations: str, weights: str, result: str, compute: str) -> Cost:
        """Its work and bytes in one direction."""
        return convolution(
            self.batch,
            self.in_channels,
            self.out_channels,
            self.axes,
            groups=self.groups,
            direction=direction,
            activations=activations,
            weights=weights,
            out=result,
            compute=compute,
        ).cost


def _numbers(call: Call, place: int | None, axes: int, default: int) -> tuple[int, ...]:
    """One number per axis: as given, one for all, or the default."""
    found = call.ints(place) if place is not None else None
    if not found:
        return (default,) * axes
    if len(found) not in (1, axes):
        raise FormulaError(f"{call.op}: {found} for {axes} axes")
    return found if len(found) == axes else found * axes


def described(call: Call, x: Tensor, w: Tensor, places: Places) -> tuple[Convolution, bool, tuple[int, ...]]:
    """The convolution of a call, whether it is transposed, and the shape of its result."""
    rank = len(w.shape)
    axes = rank - 2
    sizes = x.shape[-axes:] if axes > 0 else ()
    if axes < 1 or len(x.shape) not in (rank, rank - 1) or 0 in w.shape:
        raise FormulaError(f"{call.op}: an input of shape {x.shape} and weights of shape {w.shape} do not fit")
    batch = x.shape[0] if len(x.shape) == rank else 1
    strides, dilations = _numbers(call, places.stride, axes, 1), _numbers(call, places.dilation, axes, 1)
    word = call.arg(places.padding) if places.padding is not None else None
    paddings = _numbers(call, places.padding, axes, 0) if not isinstance(word, str) else (0,) * axes
    groups = int(call.number(places.groups, 1) or 1) if places.groups is not None else x.shape[-axes - 1] // w.shape[1]
    if min((groups, *strides, *dilations), default=1) < 1 or min(paddings, default=0) < 0:
        raise FormulaError(f"{call.op}: a stride, dilation or number of groups below 1, or padding below 0")
    transposed = places.always_transposed or (places.transposed is not None and call.flag(places.transposed))
    channels = x.shape[-axes - 1]
    if transposed:
        extra = _numbers(call, places.output_padding, axes, 0)
        outs = tuple(
            (size - 1) * stride - 2 * pad + dilation * (kernel - 1) + 1 + more
            for size, stride, pad, dilation, kernel, more in zip(sizes, strides, paddings, dilations, w.shape[2:], extra, strict=True)
        )
        moved = _axes(outs, w.shape[2:], strides, paddings, dilations)
        found = Convolution(batch=batch, in_channels=w.shape[1] * groups, out_channels=channels, groups=groups, axes=moved)
        return found, True, (batch, w.shape[1] * groups, *outs)
    if isinstance(word, str) and word == "same":
        moved = tuple(map(Axis.same, sizes, w.shape[2:], strides, dilations))
    else:
        moved = _axes(sizes, w.shape[2:], strides, paddings, dilations)
    found = Convolution(batch=batch, in_channels=w.shape[1] * groups, out_channels=w.shape[0], groups=groups, axes=moved)
    return found, False, (batch, w.shape[0], *(axis.out for axis in moved))


def _axes(
    sizes: tuple[int, ...], kernels: tuple[int, ...], strides: tuple[int, ...], paddings: tuple[int, ...], dilations: tuple[int, ...]
) -> tuple[Axis, ...]:
    return tuple(
        Axis(size=size, kernel=kernel, stride=stride, low=pad, high=pad, dilation=dilation)
        for size, kernel, stride, pad, dilation in zip(sizes, kernels, strides, paddings, dilations, strict=True)
    )


def convolved(call: Call) -> Tensor | None:
    """The result of a convolution, without its data; ``None`` if the recording does not tell its sizes."""
    x, w = call.tensor(0), call.tensor(1)
    try:
        return Tensor(described(call, x, w, FORWARD[call.op.removeprefix("aten::")])[2], x.dtype) if x and w else None
    except FormulaError:
        return None


@op(*(f"aten::{name}" for name in FORWARD))
def forward(call: Call) -> Priced | None:
    x, w = call.need(0), call.need(1)
    places = FORWARD[call.op.removeprefix("aten::")]
    found, transposed, shape = described(call, x, w, places)
    tf32 = call.flag(places.allow_tf32, True) if places.allow_tf32 is not None else False
    number, notes = product_format(call, x, w, allow_tf32=tf32)
    own = (x.dtype or number).name
    weights = (w.dtype or number).name
    cost = found.cost("input-gradient" if transposed else "forward", own, weights, own, number.name)
    bias = call.tensor(places.bias) if places.bias is not None else None
    if bias is not None:
        cost += on_sums("bias", prod(shape), number) + traffic((bias,))
    if "add_relu" in call.op:
        cost += on_sums("add", prod(shape), number) + traffic((call.tensor(2),))
    counted = 2 * shape[0] * prod(w.shape) * prod(x.shape[2 - len(w.shape) :] if transposed else shape[2:])
    return Priced(
        cost=cost,
        category=CONVOLUTION,
        dtype=number.rate,
        by_convention={"flop_counter": counted},
        notes=(*notes, NO_PADDING),
        operation=found.operation(1, cost, number.rate),
    )


@op("aten::convolution_backward", "aten::convolution_backward_overrideable")
def backward(call: Call) -> Priced | None:
    """One product for each gradient in the output mask; the bias's gradient is a sum."""
    dy, x, w = call.need(0), call.need(1), call.need(2)
    shifted = "overrideable" in call.op  # its schema has no bias_sizes
    first = 3 if shifted else 4
    places = Places(stride=first, padding=first + 1, dilation=first + 2, transposed=first + 3, output_padding=first + 4, groups=first + 5)
    mask = call.arg(first + 6)
    wants_x, wants_w, wants_bias = mask if isinstance(mask, tuple) and len(mask) == 3 else (True, True, False)
    found, transposed, _ = described(call, x, w, places)
    number, notes = product_format(call, dy, w)
    own, weights = (x.dtype or number).name, (w.dtype or number).name
    cost, counted = NOTHING, 0
    spatial = len(w.shape) - 2
    if wants_x:
        cost += found.cost("forward" if transposed else "input-gradient", own, weights, own, number.name)
        counted += 2 * found.batch * prod(w.shape) * prod((x if transposed else dy).shape[-spatial:])
    if wants_w:
        cost += found.cost("weight-gradient", own, weights, own, number.name)
        outer = (x if transposed else dy).shape[-spatial:]
        counted += 2 * found.batch * found.in_channels * found.out_channels * prod(w.shape[2:]) * prod(outer)
    if wants_bias:
        channels = dy.shape[-spatial - 1]
        cost += summed(max(0, dy.elements - channels), number, 1) + traffic((dy,), (Tensor((channels,), dy.dtype),))
    return Priced(
        cost=cost,
        category=CONVOLUTION,
        dtype=number.rate,
        by_convention={"flop_counter": counted},
        notes=(*notes, NO_PADDING),
        operation=found.operation(wants_x + wants_w, cost, number.rate),
    )
