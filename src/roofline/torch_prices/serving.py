"""Operators of serving engines (vLLM's ``_C``, SGLang's ``sgl_kernel``, AMD's ``aiter``): norms, activations, rotary embeddings, casts,
cache writes.

Paged attention has the whole cache pool as an argument and no lengths, and a fused mixture of experts does not have its weights as
arguments: their cost is unknown.
"""

from ..dtypes import dtype
from ..ops.elementwise import POINTWISE
from .attention import ATTENTION, PAGED
from .call import Call, Priced, Tensor, needed
from .op_table import op
from .products import product, two_matrices
from .traffic import streamed

EXPERTS = "a fused mixture of experts: the recording has no weights"


@op("_C::silu_and_mul", "_C::gelu_and_mul", "_C::gelu_tanh_and_mul", "_C::mul_and_silu", "_C::fatrelu_and_mul")
@op("sgl_kernel::silu_and_mul", "sgl_kernel::gelu_and_mul", "sgl_kernel::gelu_tanh_and_mul")
def gated(call: Call) -> Priced | None:
    """(out, x) or (x, out), x twice as wide as out: an activation of one half times the other."""
    first, second = call.need(0), call.need(1)
    out, x = (first, second) if first.elements <= second.elements else (second, first)
    facts = POINTWISE["swiglu" if "silu" in call.op else "geglu"]
    return streamed("elementwise", x, (x,), (out,), flops=facts.flops, transcendentals=facts.transcendentals, elements=out.elements)


@op("_C::rotary_embedding", "_C::batched_rotary_embedding", "sgl_kernel::rotary_embedding")
def rotary(call: Call) -> Priced | None:
    """(positions, q, k, head size, cos and sin table): q and k in place; a row of the table for each position."""
    positions, q, k, table = call.need(0), call.need(1), call.tensor(2), call.tensor(4)
    turned = [one for one in (q, k) if one is not None]
    rows = None
    if table is not None and table.shape:
        rows = Tensor((min(positions.elements, table.shape[0]), *table.shape[1:]), table.dtype)
    return streamed(
        "elementwise", q, (positions, *turned, rows), turned, flops=POINTWISE["rope"].flops, elements=sum(one.elements for one in turned)
    )


@op("sglang::store_cache", "_C_cache_ops::reshape_and_cache", "_C_cache_ops::reshape_and_cache_flash", "_C_cache_ops::concat_and_cache_mla")
def cache_write(call: Call) -> Priced | None:
    """(keys, values, key cache, value cache, slots): the new keys and values written where the slots say, in the cache's format."""
    latent = "mla" in call.op
    k, v = call.need(0), call.need(1)
    cache, slots = call.tensor(2), call.tensor(3 if latent else 4)
    number = cache.dtype if cache else k.dtype
    written = [Tensor((one.elements,), number) for one in (k, v)]
    return streamed("scatter", k, (k, v, slots), written)


@op("_C::static_scaled_fp8_quant", "_C::dynamic_scaled_fp8_quant", "_C::dynamic_per_token_scaled_fp8_quant")
@op("_C::static_scaled_int8_quant", "_C::dynamic_scaled_int8_quant", "sgl_kernel::sgl_per_token_group_quant_fp8")
@op("sgl_kernel::sgl_per_tensor_quant_fp8", "sgl_kernel::sgl_per_token_quant_fp8")
def quantise(call: Call) -> Priced | None:
    """(out, x, scale), or (x, out, scale): x divided by its scale; the narrower of the two is the result."""
    first, second = call.need(0), call.need(1)
    out, x = (first, second) if needed(first.dtype).bits <= needed(second.dtype).bits else (second, first)
    return streamed("cast", x, (x, call.tensor(2)), (out,), flops=1)


@op("_C::cutlass_scaled_mm", "_C::cutlass_scaled_mm_azp")
def scaled_mm(call: Call) -> Priced | None:
    """(out, a, b, scale of a, scale of b, bias)."""
    a, b, sizes, shape = two_matrices(call, 1)
    out = call.tensor(0) or Tensor(shape, dtype("bf16"))
    return product(call, a, b, sizes, out, bias=call.tensor(5), read=(call.tensor(3), call.tensor(4)), counted=False)


@op("sgl_kernel::fp8_scaled_mm", "sgl_kernel::int8_scaled_mm")
def sgl_scaled_mm(call: Call) -> Priced | None:
    """(a, b, scales of a, scales of b, the result's format, bias)."""
    a, b, sizes, shape = two_matrices(call)
    out = Tensor(shape, call.format(4) or dtype("bf16"))
    return product(call, a, b, sizes, out, bias=call.tensor(5), read=(call.tensor(2), call.tensor(3)), counted=False)


@op("_moe_C::topk_softmax", "sgl_kernel::topk_softmax")
def routing(call: Call) -> Priced | None:
    """(weights, indices, …, logits): a softmax of each token's logits and its k largest."""
    tensors = call.all_tensors
    if len(tensors) < 3:
        return None
    logits, written = tensors[-1], tensors[:-1]
    facts = POINTWISE["softmax"]
    return streamed("softmax", logits, (logits,), written, flops=facts.flops, transcendentals=facts.transcendentals)


@op("_moe_C::moe_sum")
def experts_sum(call: Call) -> Priced | None:
    """(x, out): the sum of the results of a token's experts."""
    x, out = call.need(0), call.need(1)
    return streamed("reduction", x, (x,), (out,), flops=1, elements=max(0, x.elements - out.elements))


@op("vllm::unified_attention*", "_vllm_fa2_C::*", "_vllm_fa3_C::*", "vllm::unified_mla*", "_C::paged_attention*", "aiter::paged_attention*")
@op("flash_attn::_flash_attn_varlen*", "flash_attn_3::*", "sgl_kernel::fwd", "sgl_kernel::*attention*", "aiter::fmha*", "aiter::mha*")
@op("flashinfer::*", "_flashmla_C::*", "aiter::mla*", "aten::_flash_attention_forward_no_dropout*", "torch_attn::_varlen_attn*")
def paged(call: Call) -> Priced | None:
    return Priced(cost=None, category=ATTENTION, notes=(PAGED,))


@op("vllm::moe_forward*", "vllm::*fused_experts*", "vllm::*fused_moe*", "aiter::*moe*", "sgl_kernel::*moe*", "_moe_C::moe_wna16*")
def mixture(call: Call) -> Priced | None:
    return Priced(cost=None, category="mixture of experts", notes=(EXPERTS,))
