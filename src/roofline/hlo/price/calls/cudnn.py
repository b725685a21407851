"""cuDNN (and MIOpen, under the same names): forward and backward convolutions with fused epilogues, layer norms, recurrent layers.

A convolution's FLOP do not include multiplications by padding, whether the window's or zeros that the compiler added to the operands. The
backward calls have the window and the labels of the forward one, and do the same multiplications.
"""

import re
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from ....cost import NOTHING, Cost
from ....dtypes import dtype
from ....ops.convolution import multiply_adds, pairs
from ....ops.elementwise import FUNCTIONS, PerElement, added, on_sums, summed
from ....ops.product import real_flops
from ....ops.recurrent import LSTM, multiplied
from ....ops.recurrent import work as recurrent_work
from ....workload import COUNTED
from ...ir.attributes import ConvolutionDimensions, WindowDimension
from ...ir.shapes import Shape
from ...read.backend_config import backend_config
from ..contractions import unit_of
from ..types import Price, Site
from .cublas import PADDED
from .padding import Extent, Extents, extents, used_extents, whole
from .registry import call
from .settings import Config, real, section, word
from .traffic import Misfit, operand, output, priced, results

TF32 = "fp32 at default precision runs as tf32"
# The functions that cuDNN fuses: by the mode of an activation, and by the name of a node of a serialized graph.
_ACTIVATIONS = {
    "kNone": "identity",
    "kRelu": "relu",
    "kRelu6": "relu6",
    "kReluX": "relu6",
    "kBandPass": "clamp",
    "kLeakyRelu": "leaky_relu",
    "kSigmoid": "sigmoid",
    "kTanh": "tanh",
    "kElu": "elu",
}
_NODES = {"conv": "identity", "amax": "maximum", "invscale": "scale", "leakyrelu": "leaky_relu"}
_NODES |= {name: name for name in ("add", "bias", "scale", "relu", "relu6")}
_NODE = re.compile(r":\[\w+\](\w+)\(")


class _Convolution(Struct, frozen=True):
    """The three arrays of a convolution, whichever of them the call computes, and the extents of each without padding."""

    source: Shape
    kernel: Shape
    result: Shape
    in_source: Extents
    in_kernel: Extents
    in_result: Extents

    @property
    def is_cut(self) -> bool:
        parts = ((self.source, self.in_source), (self.kernel, self.in_kernel), (self.result, self.in_result))
        return any(extent.size < size for shape, extents in parts for extent, size in zip(extents, shape.dims, strict=True))


FORWARD = ("__cudnn$convForward", "__cudnn$convBiasActivationForward", "__cudnn$convForwardGraph")
BACKWARD_INPUT, BACKWARD_FILTER = "__cudnn$convBackwardInput", "__cudnn$convBackwardFilter"


@call(*FORWARD)
def forward(site: Site) -> Price:
    """Outputs from inputs and a kernel; then scales, a bias, a side input and an activation per output."""
    return _convolution(site)


@call(BACKWARD_INPUT)
def backward_input(site: Site) -> Price:
    """The gradient of the inputs, from that of the outputs and the kernel; the program may use only a slice of it."""
    return _convolution(site)


@call(BACKWARD_FILTER)
def backward_filter(site: Site) -> Price:
    """The gradient of the kernel, from the inputs and the gradient of the outputs."""
    return _convolution(site)


def _arrays(site: Site) -> _Convolution:
    first, second, result = operand(site, 0), operand(site, 1), output(site)
    if site.instruction.custom_call_target == BACKWARD_INPUT:
        return _Convolution(result, second, first, used_extents(site), extents(site, 1), extents(site, 0))
    if site.instruction.custom_call_target == BACKWARD_FILTER:
        return _Convolution(first, result, second, extents(site, 0), whole(result), extents(site, 1))
    return _Convolution(first, second, result, extents(site, 0), extents(site, 1), whole(result))


def convolution_sizes(site: Site) -> tuple[int, int, int]:
    """Sizes of a convolution call: images, input channels of a group times output channels, and pairs of an output and a tap."""
    arrays, labels = _arrays(site), site.instruction.convolution
    if labels is None:
        raise Misfit("a convolution without dim_labels")
    _check(site, labels, arrays)
    return _batch(labels, arrays), _features(site, labels, arrays), _taps(site, labels, arrays)


def _convolution(site: Site) -> Price:
    arrays = _arrays(site)
    elements = prod(extent.size for extent in arrays.in_result)
    resource = unit_of(site, operand(site, 0).number, operand(site, 1).number)
    work = Cost.of({resource: real_flops(multiply_adds(*convolution_sizes(site)), operand(site, 0).number)}) + _epilogue(site, elements)
    notes = (TF32 if resource.kind == "tf32" else "", PADDED if arrays.is_cut else f"{COUNTED}without multiplications by padding")
    return priced(site, work, "convolution", *notes)


def _check(site: Site, labels: ConvolutionDimensions, arrays: _Convolution) -> None:
    named = (
        (arrays.source, (labels.input_batch, labels.input_feature, *labels.input_spatial)),
        (arrays.kernel, (labels.kernel_input_feature, labels.kernel_output_feature, *labels.kernel_spatial)),
        (arrays.result, (labels.output_batch, labels.output_feature, *labels.output_spatial)),
    )
    for shape, axes in named:
        if any(not 0 <= axis < shape.rank for axis in axes):
            raise Misfit(f"the dimension labels do not fit {shape}")
    if not len(labels.input_spatial) == len(labels.kernel_spatial) == len(labels.output_spatial) == len(_window(site, labels, arrays)):
        raise Misfit("window and dimension labels have different numbers of spatial dimensions")


def _window(site: Site, labels: ConvolutionDimensions, arrays: _Convolution) -> tuple[WindowDimension, ...]:
    return site.instruction.window or tuple(WindowDimension(arrays.kernel.dims[axis]) for axis in labels.kernel_spatial)


def _taps(site: Site, labels: ConvolutionDimensions, arrays: _Convolution) -> int:
    """Pairs of an output and a tap that read an input that is not padding, over all spatial dimensions."""
    places = zip(_window(site, labels, arrays), labels.input_spatial, labels.kernel_spatial, labels.output_spatial, strict=True)
    return prod(
        pairs(
            _real_window(side, arrays.in_source[place], arrays.in_kernel[tap], arrays.result.dims[out]),
            arrays.in_source[place].size,
            arrays.result.dims[out],
        )
        for side, place, tap, out in places
    )


def _real_window(side: WindowDimension, source: Extent, kernel: Extent, out: int) -> WindowDimension:
    """The window over inputs and taps without the compiler's padding, which becomes padding and holes of the window."""
    dilation = side.window_dilation * kernel.step
    low = side.low + side.base_dilation * source.low - side.window_dilation * kernel.low
    reached = (out - 1) * side.stride + (kernel.size - 1) * dilation + 1
    return replace(
        side,
        size=kernel.size,
        low=low,
        high=reached - low - (source.size - 1) * side.base_dilation * source.step - 1,
        base_dilation=side.base_dilation * source.step,
        window_dilation=dilation,
    )


def _batch(labels: ConvolutionDimensions, arrays: _Convolution) -> int:
    return min(arrays.in_source[labels.input_batch].size, arrays.in_result[labels.output_batch].size)


def _features(site: Site, labels: ConvolutionDimensions, arrays: _Convolution) -> int:
    """Input features of a group times output features: the elements of the kernel per tap, also in vectorised layouts."""
    spatial = prod(arrays.kernel.dims[axis] for axis in labels.kernel_spatial)
    each_tap = arrays.kernel.elements // spatial if spatial else 0
    ins, outs = labels.kernel_input_feature, labels.kernel_output_feature
    full = arrays.kernel.dims[ins] * arrays.kernel.dims[outs]
    if not full:
        return 0
    real_ins = arrays.in_kernel[ins].size
    real_outs = min(arrays.in_kernel[outs].size, arrays.in_result[labels.output_feature].size)
    if site.instruction.feature_group_count == 1:
        real_ins = min(real_ins, arrays.in_source[labels.input_feature].size)
    return each_tap // full * real_ins * real_outs


def _epilogue(site: Site, elements: int) -> Cost:
    """The work of a fused convolution on each output after the convolution itself."""
    config = section(backend_config(site.instruction), "cudnn_conv_backend_config")
    number = output(site).number
    if graph := word(config, "serialized_graph"):
        return summed(elements, number, sum(_node(name) for name in _NODE.findall(graph)))
    side = real(config, "side_input_scale")
    facts = _activation(config)
    flops = facts.flops + (real(config, "conv_result_scale", 1.0) not in (0, 1))
    if site.instruction.custom_call_target == "__cudnn$convBiasActivationForward":
        flops += 1 + added(side)
    return summed(elements, number, flops, facts.transcendentals)


def _activation(config: Config) -> PerElement:
    name = word(config, "activation_mode", "kNone")
    if name not in _ACTIVATIONS:
        raise Misfit(f"unknown activation {name!r}")
    return FUNCTIONS[_ACTIVATIONS[name]]


def _node(name: str) -> int:
    if name not in _NODES:
        raise Misfit(f"a convolution fused with unknown {name!r}")
    return FUNCTIONS[_NODES[name]].flops


@call("__cudnn$convReorderFilter", "__cudnn$convReorderFilterAndBias")
def reorder(site: Site) -> Price:
    """A kernel copied to another layout."""
    return priced(site, NOTHING, "data movement")


@call("__cudnn$norm")
def norm(site: Site) -> Price:
    """A layer norm: FLOP per element by the formula, and a root per row; backward 13 FLOP per element."""
    x, scale = operand(site, 0), operand(site, 1)
    kind = word(section(backend_config(site.instruction), "cudnn_norm_backend_config"), "kind", "LAYER_FWD_INFER")
    rows = x.elements // scale.elements if scale.elements else 0
    work = on_sums("layernorm_gradient" if kind == "LAYER_BWD" else "layernorm", x.elements, x.number, rows)
    return priced(site, work, "normalisation")


@call("cudnn_rnn_ffi", "cudnn_rnn_bwd_ffi", "hip_rnn_ffi", "hip_rnn_bwd_ffi", "cudnn_rnn", "cudnn_rnn_bwd")
def recurrent(site: Site) -> Price:
    """An LSTM: 2 · batch · steps · 4h · (inputs + h) FLOP per layer and direction, gates on the vector unit; backward twice that.

    Operands are x[batch, steps, inputs], h and c[layers · directions, batch, h]. A step of a gate is 10 FLOP and 5 transcendentals per
    element: three sigmoids, two tanh, and c = f·c + i·g, h = o·tanh(c).
    """
    backward = "bwd" in site.instruction.custom_call_target
    shift = 3 if backward else 0  # the gradients of the outputs come first
    x, state = operand(site, shift), operand(site, shift + 1)
    if x.rank != 3 or state.rank != 3:
        raise Misfit(f"{x} and {state} are not a sequence and a state")
    batch, steps, inputs = x.dims
    stacked, _, hidden = state.dims
    result = operand(site, 0) if backward else output(site)
    directions = result.dims[-1] // hidden if hidden else 0
    if directions not in (1, 2) or stacked % directions:
        raise Misfit(f"{result} and {state} have different numbers of directions")
    layers = stacked // directions
    passes = 2 if backward else 1
    weights = multiplied(LSTM, inputs, hidden, layers, directions)
    compute = dtype("tf32") if x.number.rate == "fp32" else x.number
    work = recurrent_work(LSTM, batch * steps, weights, hidden * stacked, compute, x.number, passes, passes)
    made_all = results(site)
    # The fourth result of a forward call is its workspace.
    written = made_all if backward else made_all[:3] + made_all[4:]
    note = TF32 if compute.name == "tf32" else ""
    return priced(site, work, "recurrent", "assuming full sequences", note, written=written)
