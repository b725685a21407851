"""Operators of serving engines (vLLM's ``_C``, SGLang's ``sgl_kernel``, AMD's ``aiter``): norms, activations, rotary embeddings, casts,
cache writes.

Paged attention has the whole cache pool as an argument and no lengths, and a fused mixture of experts does not have its weights as
arguments: their cost is unknown.
"""

from ..dtypes import dtype
from ..formulas.pointwise_counts import POINTWISE
from .attention import ATTENTION, PAGED
from .call import Call, Priced, Tensor
from .norms import NORM
from .op_table import op
from .products import product, two_matrices
from .traffic import format_name, pointwise_work, traffic

EXPERTS = "a fused mixture of experts: the recording has no weights"


@op("_C::rms_norm", "sgl_kernel::rmsnorm", "sgl_kernel::gemma_rmsnorm", "aiter::rmsnorm")
def rms_norm(call: Call) -> Priced | None:
    """(out, x, weight): x normalised into out."""
    out, x, weight = (call.tensor(place) for place in range(3))
    if out is None or x is None:
        return None
    facts = POINTWISE["rmsnorm"]
    work = pointwise_work(x.elements, facts.flops, 0, x.dtype) + pointwise_work(_rows(x), 0, facts.per_row, x.dtype)
    return Priced(cost=work + traffic((x, weight), (out,)), category=NORM, dtype=format_name(x))


@op("_C::fused_add_rms_norm", "sgl_kernel::fused_add_rmsnorm", "sgl_kernel::gemma_fused_add_rmsnorm")
def add_rms_norm(call: Call) -> Priced | None:
    """(x, residual, weight): the sum goes to residual and its norm to x, both in place."""
    x, residual, weight = (call.tensor(place) for place in range(3))
    if x is None or residual is None:
        return None
    facts = POINTWISE["rmsnorm"]
    work = pointwise_work(x.elements, facts.flops + 1, 0, x.dtype) + pointwise_work(_rows(x), 0, facts.per_row, x.dtype)
    return Priced(cost=work + traffic((x, residual, weight), (x, residual)), category=NORM, dtype=format_name(x))


@op("aiter::add_rmsnorm")
def add_rms_norm_to(call: Call) -> Priced | None:
    """(out, x, residual, sum, weight): the sum of x and residual is written, and its norm to out."""
    out, x, residual, total, weight = (call.tensor(place) for place in range(5))
    if out is None or x is None or residual is None:
        return None
    facts = POINTWISE["rmsnorm"]
    work = pointwise_work(x.elements, facts.flops + 1, 0, x.dtype) + pointwise_work(_rows(x), 0, facts.per_row, x.dtype)
    return Priced(cost=work + traffic((x, residual, weight), (out, total)), category=NORM, dtype=format_name(x))


@op("aiter::_groupnorm_run")
def group_norm(call: Call) -> Priced | None:
    """(x, groups, weight, bias)."""
    x = call.tensor(0)
    if x is None:
        return None
    work = pointwise_work(x.elements, POINTWISE["layernorm"].flops, 0, x.dtype)
    return Priced(cost=work + traffic((x, call.tensor(2), call.tensor(3)), (x,)), category=NORM, dtype=format_name(x))


def _rows(x: Tensor) -> int:
    return x.elements // x.shape[-1] if x.shape and x.shape[-1] else 1


@op("_C::silu_and_mul", "_C::gelu_and_mul", "_C::gelu_tanh_and_mul", "_C::mul_and_silu", "_C::fatrelu_and_mul")
@op("sgl_kernel::silu_and_mul", "sgl_kernel::gelu_and_mul", "sgl_kernel::gelu_tanh_and_mul")
def gated(call: Call) -> Priced | None:
    """(out, x) or (x, out), x twice as wide as out: an activation of one half times the other."""
    first, second = call.tensor(0), call.tensor(1)
    if first is None or second is None:
        return None
    out, x = (first, second) if first.elements <= second.elements else (second, first)
    facts = POINTWISE["swiglu" if "silu" in call.op else "geglu"]
    work = pointwise_work(out.elements, facts.flops, facts.transcendentals, x.dtype)
    return Priced(cost=work + traffic((x,), (out,)), category="elementwise", dtype=format_name(x))


@op("_C::rotary_embedding", "_C::batched_rotary_embedding", "sgl_kernel::rotary_embedding")
def rotary(call: Call) -> Priced | None:
    """(positions, q, k, head size, cos and sin table): q and k in place; a row of the table for each position."""
    positions, q, k = (call.tensor(place) for place in range(3))
    table = call.tensor(4)
    if positions is None or q is None:
        return None
    turned = [one for one in (q, k) if one is not None]
    rows = None
    if table is not None and table.shape:
        rows = Tensor((min(positions.elements, table.shape[0]), *table.shape[1:]), table.dtype)
    work = pointwise_work(sum(one.elements for one in turned), POINTWISE["rope"].flops, 0, q.dtype)
    return Priced(cost=work + traffic((positions, *turned, rows), turned), category="elementwise", dtype=format_name(q))


@op("sglang::store_cache", "_C_cache_ops::reshape_and_cache", "_C_cache_ops::reshape_and_cache_flash", "_C_cache_ops::concat_and_cache_mla")
def cache_write(call: Call) -> Priced | None:
    """(keys, values, key cache, value cache, slots): the new keys and values written where the slots say, in the cache's format."""
    latent = "mla" in call.op
    k, v = call.tensor(0), call.tensor(1)
    cache, slots = call.tensor(2), call.tensor(3 if latent else 4)
    if k is None or v is None:
        return None
    number = cache.dtype if cache else k.dtype
    written = [Tensor((one.elements,), number) for one in (k, v)]
    return Priced(cost=traffic((k, v, slots), written), category="scatter", dtype=format_name(k))


@op("_C::static_scaled_fp8_quant", "_C::dynamic_scaled_fp8_quant", "_C::dynamic_per_token_scaled_fp8_quant")
@op("_C::static_scaled_int8_quant", "_C::dynamic_scaled_int8_quant", "sgl_kernel::sgl_per_token_group_quant_fp8")
@op("sgl_kernel::sgl_per_tensor_quant_fp8", "sgl_kernel::sgl_per_token_quant_fp8")
def quantise(call: Call) -> Priced | None:
    """(out, x, scale), or (x, out, scale): x divided by its scale; the narrower of the two is the result."""
    first, second, scale = (call.tensor(place) for place in range(3))
    if first is None or second is None or first.dtype is None or second.dtype is None:
        return None
    out, x = (first, second) if first.dtype.bits <= second.dtype.bits else (second, first)
    work = pointwise_work(x.elements, 1, 0, x.dtype)
    return Priced(cost=work + traffic((x, scale), (out,)), category="cast", dtype=format_name(x))


@op("_C::cutlass_scaled_mm", "_C::cutlass_scaled_mm_azp")
def scaled_mm(call: Call) -> Priced | None:
    """(out, a, b, scale of a, scale of b, bias)."""
    a, b = two_matrices(call, call.tensor(1), call.tensor(2))
    out = call.tensor(0) or Tensor((a.shape[0], b.shape[1]), dtype("bf16"))
    read = (call.tensor(3), call.tensor(4), call.tensor(5))
    return product(call, a, b, (1, a.shape[0], a.shape[1], b.shape[1]), out, read=read, added=read[2] is not None, counted=False)


@op("sgl_kernel::fp8_scaled_mm", "sgl_kernel::int8_scaled_mm")
def sgl_scaled_mm(call: Call) -> Priced | None:
    """(a, b, scales of a, scales of b, the result's format, bias)."""
    a, b = two_matrices(call, call.tensor(0), call.tensor(1))
    out = Tensor((a.shape[0], b.shape[1]), call.format(4) or dtype("bf16"))
    read = (call.tensor(2), call.tensor(3), call.tensor(5))
    return product(call, a, b, (1, a.shape[0], a.shape[1], b.shape[1]), out, read=read, added=read[2] is not None, counted=False)


@op("_moe_C::topk_softmax", "sgl_kernel::topk_softmax")
def routing(call: Call) -> Priced | None:
    """(weights, indices, …, logits): a softmax of each token's logits and its k largest."""
    tensors = call.all_tensors
    if len(tensors) < 3:
        return None
    logits, written = tensors[-1], tensors[:-1]
    facts = POINTWISE["softmax"]
    work = pointwise_work(logits.elements, facts.flops, facts.transcendentals, logits.dtype)
    return Priced(cost=work + traffic((logits,), written), category="softmax", dtype=format_name(logits))


@op("_moe_C::moe_sum")
def experts_sum(call: Call) -> Priced | None:
    """(x, out): the sum of the results of a token's experts."""
    x, out = call.tensor(0), call.tensor(1)
    if x is None or out is None:
        return None
    work = pointwise_work(max(0, x.elements - out.elements), 1, 0, x.dtype)
    return Priced(cost=work + traffic((x,), (out,)), category="reduction", dtype=format_name(x))


@op("vllm::unified_attention*", "_vllm_fa2_C::*", "_vllm_fa3_C::*", "vllm::unified_mla*", "_C::paged_attention*", "aiter::paged_attention*")
@op("flash_attn::_flash_attn_varlen*", "flash_attn_3::*", "sgl_kernel::fwd", "sgl_kernel::*attention*", "aiter::fmha*", "aiter::mha*")
@op("flashinfer::*", "_flashmla_C::*", "aiter::mla*", "aten::_flash_attention_forward_no_dropout*", "torch_attn::_varlen_attn*")
def paged(call: Call) -> Priced | None:
    return Priced(cost=None, category=ATTENTION, notes=(PAGED,))


@op("vllm::moe_forward*", "vllm::*fused_experts*", "vllm::*fused_moe*", "aiter::*moe*", "sgl_kernel::*moe*", "_moe_C::moe_wna16*")
def mixture(call: Call) -> Priced | None:
    return Priced(cost=None, category="mixture of experts", notes=(EXPERTS,))
