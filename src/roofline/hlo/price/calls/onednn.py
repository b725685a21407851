"""oneDNN on CPUs: products and convolutions with their fused epilogues, softmax, layer norm."""

from math import prod

from ....cost import NOTHING, Cost
from ....ops.convolution import multiply_adds, pairs
from ....ops.elementwise import on_sums
from ....ops.product import real_flops
from ...ir.attributes import WindowDimension
from ...ir.shapes import Shape
from ...read.backend_config import backend_config
from ..types import Price, Site
from .products import unit
from .registry import call
from .settings import Config, flag, integer, integers, section, words
from .traffic import Misfit, operand, output, priced

# The pointwise operation of each fused one; SUM and BINARY_ADD add an array, LINEAR is a·x + b.
_FUSED = {"BIAS": "bias", "RELU": "relu", "RELU6": "relu", "TANH": "tanh", "GELU_ERF": "gelu_erf", "GELU_TANH": "gelu"}
_FUSED |= {"BINARY_ADD": "add", "SUM": "add", "SIGMOID": "sigmoid", "SWISH": "silu", "ELU": "elu", "LINEAR": "linear"}
_FUSED |= {"UNDEFINED": "identity"}


def _fused(site: Site, config: Config) -> Cost:
    result = output(site)
    work = NOTHING
    for name in words(section(config, "fusions"), "ops"):
        if name not in _FUSED:
            raise Misfit(f"unknown fused operation {name!r}")
        work += on_sums(_FUSED[name], result.elements, result.number)
    return work


@call("__onednn$matmul")
def matmul(site: Site) -> Price:
    """2 · elements of the result · k FLOP; k is the last dimension of A, or the one before when A is transposed."""
    config = section(backend_config(site.instruction), "onednn_matmul_config")
    left, right = operand(site, 0), operand(site, 1)
    if left.rank < 1 or (flag(config, "transpose_a") and left.rank < 2):
        raise Misfit(f"{left} is not a matrix")
    depth = left.dims[-2] if flag(config, "transpose_a") else left.dims[-1]
    resource, note = unit(left.number, right.number, {}, site.platform)
    work = Cost.of({resource: real_flops(output(site).elements * depth, left.number)}) + _fused(site, config)
    return priced(site, work, "matmul", note)


@call("__onednn$matmul_reorder")
def reorder(site: Site) -> Price:
    """Weights copied to the library's layout."""
    return priced(site, NOTHING, "data movement")


@call("__onednn$convolution")
def convolution(site: Site) -> Price:
    """2 · batch · in/groups · out · valid taps FLOP, everything from the configuration."""
    config = section(backend_config(site.instruction), "onednn_conv_config")
    source, kernel, result = operand(site, 0), operand(site, 1), output(site)
    data, taps, written = (section(config, name, part) for name, part in (("input", "data"), ("kernel", "filter"), ("output", "data")))
    # Older compilers count dimensions, strides, padding and dilation from 1, so that none of them is 0.
    start = int(max((*integers(data, "spatial_dims"), integer(data, "batch_dim"), integer(data, "feature_dim"))) == source.rank)
    ins, sizes, outs = (_spatial(*side, start) for side in ((source, data), (kernel, taps), (result, written)))
    window = section(config, "window")
    strides, lows, highs, dilations = (tuple(number - start for number in integers(window, name)) for name in _WINDOW)
    if not len(ins) == len(sizes) == len(outs) == len(strides) == len(lows) == len(highs) == len(dilations):
        raise Misfit("window and dimensions of different lengths")
    sides = [WindowDimension(*numbers) for numbers in zip(sizes, strides, lows, highs, (1,) * len(sizes), dilations, strict=True)]
    for side, size, out in zip(sides, ins, outs, strict=True):
        if side.stride < 1 or (size + side.low + side.high - (side.size - 1) * side.window_dilation - 1) // side.stride + 1 != out:
            raise Misfit(f"a window of {side.size} over {size} inputs does not make {out} outputs")
    batch = source.dims[_axis(source, integer(data, "batch_dim") - start)]
    features = kernel.elements // max(1, prod(sizes))
    macs = multiply_adds(batch, features, prod(pairs(side, size, out) for side, size, out in zip(sides, ins, outs, strict=True)))
    resource, note = unit(source.number, kernel.number, {}, site.platform)
    return priced(site, Cost.of({resource: real_flops(macs, kernel.number)}) + _fused(site, config), "convolution", note)


_WINDOW = ("strides", "pad_left", "pad_right", "window_dilations")


def _axis(shape: Shape, number: int) -> int:
    if not 0 <= number < shape.rank:
        raise Misfit(f"{shape} has no dimension {number}")
    return number


def _spatial(shape: Shape, layout: Config, start: int) -> list[int]:
    return [shape.dims[_axis(shape, number - start)] for number in integers(layout, "spatial_dims")]


@call("__onednn$softmax")
def softmax(site: Site) -> Price:
    """exp(x − max)/sum: 3 FLOP and a transcendental per element."""
    result = output(site)
    return priced(site, on_sums("softmax", result.elements, result.number), "normalisation")


@call("__onednn$layernorm")
def layernorm(site: Site) -> Price:
    """FLOP per element by the formula, and a root per row."""
    x, scale = operand(site, 0), operand(site, 1)
    rows = x.elements // scale.elements if scale.elements else 0
    work = on_sums("layernorm", x.elements, x.number, rows)
    return priced(site, work, "normalisation")
