"""Transformer Engine's fused attention; the cost of its other kernels is unknown."""

from ....ops.attention import FULL_LENGTHS, Attention
from ...read.backend_config import backend_config
from ..types import Price, Site
from .registry import call
from .settings import integer, real
from .traffic import Misfit, operand, priced

# NVTE_Mask_Type of transformer_engine/fused_attn.h
_CAUSAL, _BOTTOM_RIGHT, _PADDING = (2, 3, 4, 5), (4, 5), (1, 3, 5)
_MASKS = 6


@call("te_fused_attn_forward_ffi", "te_fused_attn_backward_ffi")
def attention(site: Site) -> Price:
    """Forward 2 · pairs · (d + d_v), backward 2 · pairs · (3d + 2d_v) FLOP, all sizes from the configuration."""
    config = backend_config(site.instruction)
    mask = integer(config, "mask_type")
    left = integer(config, "window_size_left", -1)
    sizes = {
        name: integer(config, name) for name in ("input_batch", "attn_heads", "q_max_seqlen", "kv_max_seqlen", "qk_head_dim", "v_head_dim")
    }
    if not 0 <= mask < _MASKS or min(sizes.values()) < 1:
        raise Misfit("attention without sizes, or with an unknown mask")
    fused = Attention(
        batch=sizes["input_batch"],
        heads=sizes["attn_heads"],
        queries=sizes["q_max_seqlen"],
        keys=sizes["kv_max_seqlen"],
        key_width=sizes["qk_head_dim"],
        value_width=sizes["v_head_dim"],
        number=operand(site, 0).number,
        causal=mask in _CAUSAL,
        bottom_right=mask in _BOTTOM_RIGHT,
        window=left + 1 if left >= 0 else 0,
        bias=integer(config, "bias_type") != 0,
        dropout=real(config, "dropout_probability") > 0,
    )
    backward = "backward" in site.instruction.custom_call_target
    work = fused.backward() if backward else fused.forward()
    lengths = FULL_LENGTHS if mask in _PADDING else ""
    return priced(site, work, "attention", *fused.notes, lengths)
