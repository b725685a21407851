"""Formulas: the cost of an operation from its shapes, as a ledger of its arithmetic and of every tensor it moves.

>>> from roofline.formulas import lookup, matmul
>>> matmul(2048, 2048, 2048).cost.flops
17179869184
>>> lookup("gemm").usage
'matmul M K N'
"""

from ..ops.convolution import Axis
from ..ops.elementwise import POINTWISE, PerElement
from .collective import all_gather, all_reduce, all_to_all, permute, reduce_scatter
from .convolution import conv1d, conv2d, conv3d, convolution
from .dense import batched_matmul, dot, matmul, per_example_weights, tiled_matmul
from .inference import attention, attention_decode, kv_append, kv_cache, latent_attention
from .moe import expected_experts, moe, moe_combine, moe_dispatch, moe_experts, moe_router
from .movement import concatenate, copy, embedding, gather, scatter, transpose
from .normalisation import cross_entropy, layernorm, reduction, rmsnorm, softmax
from .notation import Dim
from .pointwise import (
    add,
    bias,
    cast,
    div,
    dropout,
    elementwise,
    erf,
    exp,
    fma,
    geglu,
    gelu,
    gelu_erf,
    leaky_relu,
    log,
    maximum,
    mul,
    relu,
    rope,
    rsqrt,
    scale,
    sigmoid,
    silu,
    softplus,
    sqrt,
    square,
    sub,
    swiglu,
    tanh,
)
from .registry import FORMULAS, GROUPS, Formula, Parameter, all_formulas, formula, lookup
from .sharded import sharded_matmul
from .training import backward, count_parameters, optimizer_update, training, training_step
from .transformer import ffn, transformer_block

__all__ = [
    "FORMULAS",
    "GROUPS",
    "POINTWISE",
    "Axis",
    "Dim",
    "Formula",
    "Parameter",
    "PerElement",
    "add",
    "all_formulas",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "attention",
    "attention_decode",
    "backward",
    "batched_matmul",
    "bias",
    "cast",
    "concatenate",
    "conv1d",
    "conv2d",
    "conv3d",
    "convolution",
    "copy",
    "count_parameters",
    "cross_entropy",
    "div",
    "dot",
    "dropout",
    "elementwise",
    "embedding",
    "erf",
    "exp",
    "expected_experts",
    "ffn",
    "fma",
    "formula",
    "gather",
    "geglu",
    "gelu",
    "gelu_erf",
    "kv_append",
    "kv_cache",
    "latent_attention",
    "layernorm",
    "leaky_relu",
    "log",
    "lookup",
    "matmul",
    "maximum",
    "moe",
    "moe_combine",
    "moe_dispatch",
    "moe_experts",
    "moe_router",
    "mul",
    "optimizer_update",
    "per_example_weights",
    "permute",
    "reduce_scatter",
    "reduction",
    "relu",
    "rmsnorm",
    "rope",
    "rsqrt",
    "scale",
    "scatter",
    "sharded_matmul",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "sqrt",
    "square",
    "sub",
    "swiglu",
    "tanh",
    "tiled_matmul",
    "training",
    "training_step",
    "transformer_block",
    "transpose",
]
