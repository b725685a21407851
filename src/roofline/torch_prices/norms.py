"""Normalisation and softmax, forward and backward: operands and results once, including the saved statistics, in fp32.

A kernel's second read of its input, as in batch norm for channels_last, is not counted: it is inefficiency, not work.
"""

from math import prod

from msgspec import Struct

from ..dtypes import DType
from ..errors import FormulaError
from ..ops.elementwise import FUNCTIONS, on_sums, summed
from .call import FP32, Call, Priced, Tensor
from .op_table import op
from .traffic import result, streamed, traffic

NORM, SOFTMAX = "normalisation", "softmax"


class Norm(Struct, frozen=True, kw_only=True):
    """The positions of a norm's tensors in its schema."""

    x: int = 0
    weight: int
    bias: int | None = None
    mask: int | None = None
    gradient: int | None = None
    saved: tuple[int, ...] = ()


_LAYER, _BATCH, _GROUP, _RMS = "layer", "batch", "group", "rms"
FORWARD: dict[str, tuple[str, Norm]] = {
    "native_layer_norm": (_LAYER, Norm(weight=2, bias=3)),
    "layer_norm": (_LAYER, Norm(weight=2, bias=3)),
    "_fused_rms_norm": (_RMS, Norm(weight=2)),
    "rms_norm": (_RMS, Norm(weight=2)),
    "native_group_norm": (_GROUP, Norm(weight=1, bias=2)),
    **dict.fromkeys(
        ("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update"),
        (_BATCH, Norm(weight=1, bias=2)),
    ),
    **dict.fromkeys(("_batch_norm_no_update", "_native_batch_norm_legit_no_training"), (_BATCH, Norm(weight=1, bias=2))),
}
FUNCTION = {_LAYER: "layernorm", _GROUP: "layernorm", _RMS: "rmsnorm", _BATCH: "batch_norm"}
BACKWARD: dict[str, tuple[str, Norm]] = {
    "native_layer_norm_backward": (_LAYER, Norm(x=1, gradient=0, weight=5, bias=6, mask=7, saved=(3, 4))),
    "_fused_rms_norm_backward": (_RMS, Norm(x=1, gradient=0, weight=4, mask=5, saved=(3,))),
    "native_group_norm_backward": (_GROUP, Norm(x=1, gradient=0, weight=4, mask=9, saved=(2, 3))),
    "native_batch_norm_backward": (_BATCH, Norm(x=1, gradient=0, weight=2, mask=9, saved=(5, 6))),
    "batch_norm_backward": (_BATCH, Norm(x=1, gradient=0, weight=2, mask=9, saved=(5, 6))),
    "cudnn_batch_norm_backward": (_BATCH, Norm(x=0, gradient=1, weight=2, saved=(5, 6))),
    "miopen_batch_norm_backward": (_BATCH, Norm(x=0, gradient=1, weight=2, saved=(5, 6))),
}


def _rows(call: Call, kind: str, x: Tensor) -> int:
    """The number of rows of an input, each of which is normalised."""
    if kind == _BATCH:
        return x.shape[1] if len(x.shape) > 1 else 1
    if kind == _GROUP:
        first = 3 if call.op.endswith("norm") else 5  # N, C, HxW, group
        return int((call.number(first) or 1) * (call.number(first + 3) or 1))
    normal = call.ints(2 if call.op.endswith("backward") else 1)
    if not normal or prod(normal) == 0:
        raise FormulaError(f"{call.op}: the recording does not say over which axes")
    return x.elements // prod(normal)


def _channels(call: Call, kind: str, x: Tensor, rows: int) -> int:
    """The number of scales and shifts of a norm."""
    if kind == _GROUP:
        return x.shape[1] if len(x.shape) > 1 else 1
    return rows if kind == _BATCH else x.elements // rows if rows else 0


@op(*(f"aten::{name}" for name in FORWARD))
def forward(call: Call) -> Priced | None:
    kind, places = FORWARD[call.op.removeprefix("aten::")]
    x = call.need(places.x)
    rows = _rows(call, kind, x)
    function = FUNCTION[kind]
    statistics: list[Tensor | None] = [] if call.op in ("aten::layer_norm", "aten::rms_norm") else [Tensor((rows,), FP32)]
    if kind == _BATCH:
        evaluates = call.arg(5) is False or "no_" in call.op
        function = "batch_norm_inference" if evaluates else function
        running = [call.tensor(3), call.tensor(4)]
        statistics = [] if evaluates else [*statistics, *statistics, *running]
        read = [call.tensor(places.weight), call.tensor(2), *running]
    else:
        statistics = statistics if kind == _RMS else statistics * 2
        read = [call.tensor(places.weight), call.tensor(places.bias) if places.bias is not None else None]
    written = (result(call, x.shape, x.dtype), *statistics)
    return streamed(NORM, x, (x, *read), written, on_sums(function, x.elements, x.dtype, rows))


@op(*(f"aten::{name}" for name in BACKWARD))
def backward(call: Call) -> Priced | None:
    """Reads the gradient, the input, the saved statistics and the scale; writes the gradients in the output mask."""
    kind, places = BACKWARD[call.op.removeprefix("aten::")]
    x, dy, weight = call.need(places.x), call.need(places.gradient or 0), call.tensor(places.weight)
    rows = _rows(call, kind, x)
    mask = call.arg(places.mask) if places.mask is not None else None
    wanted = mask if isinstance(mask, tuple) else (True, *(weight is not None for _ in range(1 if kind == _RMS else 2)))
    parameters = Tensor((_channels(call, kind, x, rows),), weight.dtype if weight else x.dtype)
    gradients = (Tensor(x.shape, x.dtype), parameters, parameters)
    written = [one for one, is_wanted in zip(gradients, wanted, strict=False) if is_wanted]
    saved = [call.tensor(place) for place in places.saved]
    return streamed(NORM, x, (dy, x, weight, *saved), written, flops=FUNCTIONS[f"{FUNCTION[kind]}_gradient"].flops)


def _softmax_rows(call: Call, x: Tensor, place: int) -> int:
    axis = call.number(place, -1)
    if not x.shape:
        return 1
    if axis is None or not -len(x.shape) <= axis < len(x.shape):
        raise FormulaError(f"{call.op}: axis {axis} does not fit {x.shape}")
    size = x.shape[int(axis)]
    return x.elements // size if size else 0


@op("aten::_softmax", "aten::_log_softmax", "aten::softmax", "aten::log_softmax", "aten::_safe_softmax", "aten::_masked_softmax")
def softmax(call: Call) -> Priced | None:
    """3 FLOP and an exp per element; log-softmax also has a logarithm per row. Argument 2 is half_to_float, in the wrappers a dtype."""
    x = call.need(0)
    masked = "masked" in call.op
    rows = _softmax_rows(call, x, 2 if masked else 1)
    number: DType | None = x.dtype
    if not masked and call.arg(2) is True:
        number = FP32
    elif not call.op.startswith("aten::_") or "safe" in call.op:
        number = call.format(2) or x.dtype
    work = on_sums("softmax", x.elements, x.dtype)
    if "log" in call.op:
        work += summed(rows, x.dtype, 0, 1)
    mask = call.tensor(1) if masked else None
    return Priced(cost=work + traffic((x, mask), (result(call, x.shape, number),)), category=SOFTMAX, dtype=number.name if number else "")


@op("aten::_softmax_backward_data", "aten::_log_softmax_backward_data", "aten::_masked_softmax_backward")
def softmax_backward(call: Call) -> Priced | None:
    """Reads the gradient and the result: y·(dy − Σ dy·y), or dy − exp(y)·Σ dy. Argument 3 is the gradient's format."""
    dy, y = call.need(0), call.need(1)
    logarithm = "log" in call.op
    masked = "masked" in call.op
    number = y.dtype if masked else call.format(3) or y.dtype
    work = summed(y.elements, y.dtype, 3 if logarithm else 4, int(logarithm))
    mask = call.tensor(2) if masked else None
    return Priced(
        cost=work + traffic((dy, y, mask), (result(call, y.shape, number),)), category=SOFTMAX, dtype=number.name if number else ""
    )
