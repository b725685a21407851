"""cuDNN's fused attention: forward and backward, with bias, dropout, fp8, sliding windows and paged keys.

Which pairs of queries and keys are computed is in the configuration: ``intermediate_tensor_shape`` is [batch, heads, queries, keys],
``mask_type`` the mask. Operands are q, k, v and then those of the variant; backward, the fifth is the gradient of the output.
"""

from ....ops.attention import FULL_LENGTHS, Attention
from ...ir.shapes import Shape
from ...read.backend_config import backend_config
from ..types import Price, Site
from .registry import call
from .settings import Config, flag, integer, integers, real, section, word
from .traffic import Misfit, operand, output, priced

_FORWARD = tuple(
    f"__cudnn$fmha{kind}" for kind in ("Softmax", "SoftmaxDropout", "ScaleBiasSoftmax", "ScaleBiasSoftmaxDropout", "SoftmaxF8")
)
_BACKWARD = tuple(
    f"__cudnn$fmha{kind}"
    for kind in (
        "SoftmaxBackward",
        "SoftmaxDropoutBackward",
        "ScaleBiasSoftmaxBackward",
        "ScaleBiasSoftmaxDropoutBackward",
        "SoftmaxBackwardF8",
    )
)
_CAUSAL = ("CAUSAL", "PADDING_CAUSAL")
_MASKS = ("NO_MASK", "PADDING", "CAUSAL", "PADDING_CAUSAL", "ALIBI")


@call(*_FORWARD)
def forward(site: Site) -> Price:
    """softmax(q·kᵀ)·v: 2 · pairs · (d + d_v) FLOP."""
    attention = _attention(site, output(site))
    return priced(site, attention.forward(), "attention", *attention.notes, *_lengths(site))


@call(*_BACKWARD)
def backward(site: Site) -> Price:
    """The gradients of q, k and v: five products, 2 · pairs · (3d + 2d_v) FLOP."""
    attention = _attention(site, operand(site, 4))
    return priced(site, attention.backward(), "attention", *attention.notes, *_lengths(site))


def attention_of(site: Site) -> Attention | None:
    """The attention that a cuDNN call computes; ``None`` for any other call."""
    target = site.instruction.custom_call_target
    if target in _FORWARD:
        return _attention(site, output(site))
    return _attention(site, operand(site, 4)) if target in _BACKWARD else None


def _config(site: Site) -> Config:
    return section(backend_config(site.instruction), "cudnn_fmha_backend_config")


def _attention(site: Site, result: Shape) -> Attention:
    config, target = _config(site), site.instruction.custom_call_target
    square = integers(section(config, "intermediate_tensor_shape"), "dimensions")
    if len(square) != 4 or min(square) < 1:
        raise Misfit("attention without the shape of its scores")
    batch, heads, queries, keys = square
    if flag(config, "is_paged_attention"):
        keys *= _pages(site)  # the shape of the scores has the keys of one page
    rows = batch * heads * queries
    query = operand(site, 0)
    if query.elements % rows or result.elements % rows:
        raise Misfit(f"{query} does not hold {rows:,} queries")
    mask = word(config, "mask_type", "NO_MASK")
    if mask not in _MASKS:
        raise Misfit(f"unknown mask {mask!r}")
    return Attention(
        batch=batch,
        heads=heads,
        queries=queries,
        keys=keys,
        key_width=query.elements // rows,
        value_width=result.elements // rows,
        number=query.number,
        causal=mask in _CAUSAL or flag(config, "is_causal_mask"),
        window=max(0, integer(config, "sliding_window_length")),
        bias="Bias" in target or mask == "ALIBI",
        dropout=real(config, "dropout_rate") > 0,
    )


def _pages(site: Site) -> int:
    """Pages of keys that a sequence has: the third dimension of the page tables, the last two operands."""
    table = operand(site, len(site.operands) - 2)
    if table.rank != 4:
        raise Misfit(f"{table} is not a page table")
    return table.dims[2]


def _lengths(site: Site) -> tuple[str, ...]:
    """The note on sequence lengths that are known only at run time."""
    config = _config(site)
    padded = "PADDING" in word(config, "mask_type") or integer(config, "max_seg_per_batch", 1) > 1 or flag(config, "is_paged_attention")
    return (FULL_LENGTHS,) if padded else ()
