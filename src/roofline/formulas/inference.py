"""Attention and the key-value cache: prefill and decode, full and causal, flash and materialised, grouped and latent heads.

Both products run on the matrix unit; scale and softmax run on the vector unit, 4 FLOP and 1 transcendental per score. Causal counts half of
the square of queries and their own keys; earlier keys count in full.
"""

from fractions import Fraction
from typing import Annotated, Literal, TypedDict, Unpack

from ..cost import plain_number, tidy
from ..errors import FormulaError
from ..ledger import Ledger, Row, read, write
from ..operation import Attention
from ..ops.attention import scores_and_values
from .compute_units import VECTOR, arithmetic, matrix_work, number
from .dense import batched_matmul
from .notation import Dim, Format, require_shared
from .parts import part, same_tensors
from .registry import formula

Kernels = Literal["flash", "materialised"]


class AttentionOptions(TypedDict, total=False):
    """The options of attention: the heads and the width of its values, and its number formats."""

    kv_heads: Dim | None
    value_dim: Dim | None
    dtype: Annotated[Format, "bf16"]
    cache: Format
    out: Format
    compute: Format
    vector: Format


def scored(name: str, q_len: Dim, kv_len: Dim, causal: bool) -> tuple[Dim, tuple[str, ...]]:
    """The number of pairs of a query and a key that are not masked, and notes on it.

    All q·kv of them, or with causal q·kv − q²/2; one query alone, as in decode, sees every key.
    """
    if not causal or q_len == 1:
        return q_len * kv_len, ()
    if q_len > kv_len:
        raise FormulaError(f"{name}: causal with q_len {q_len} above kv_len {kv_len}; keys include those of the queries, so raise kv_len")
    return tidy(q_len * kv_len - Fraction(1, 2) * q_len * q_len), ("causal counts half the square",)


@formula(
    "attention", group="inference", example=(32, 32, 2048, 2048, 128), aliases=("sdpa", "scaled_dot_product_attention", "flash_attention")
)
def attention(
    batch: Dim,
    heads: Dim,
    q_len: Dim,
    kv_len: Dim,
    head_dim: Dim,
    *,
    causal: bool = False,
    kernels: Kernels = "flash",
    scores: Format = None,
    **options: Unpack[AttentionOptions],
) -> Ledger:
    """softmax(Q·Kᵀ/√d)·V for every head: 2·b·h·q·kv·(d + d_v) FLOP on the matrix unit, softmax on the vector unit.

    Flash: Q, K, V read once and the result written. Materialised: three kernels, with the b·h·q·kv scores written, read,
    normalised, written and read between them (all of them: a mask is stored too). Keys and values have `kv_heads` heads, which
    groups of query heads share.
    """
    name, dtype, cache = "attention", options["dtype"], options["cache"]
    kv, values = options["kv_heads"] or heads, options["value_dim"] or head_dim
    require_shared(name, "heads", heads, "kv_heads", kv)
    own, stored, result = number(dtype), number(cache, dtype), number(options["out"], dtype)
    pairs, notes = scored(name, q_len, kv_len, causal)
    work = scores_and_values(
        batch * heads * pairs, head_dim, values, arithmetic(options["compute"], own, stored), options["vector"] or VECTOR
    )
    q = read("q", (batch, heads, q_len, head_dim), own)
    k = read("k", (batch, kv, kv_len, head_dim), stored)
    v = read("v", (batch, kv, kv_len, values), stored)
    o = write("out", (batch, heads, q_len, values), result)
    if kernels == "flash":
        notes += ("flash: scores stay on chip; rescaling between blocks is not counted",)
        kernel = Attention(
            batch=plain_number(batch),
            heads=plain_number(heads),
            queries=plain_number(q_len),
            keys=plain_number(kv_len),
            size=plain_number(head_dim),
            kv_heads=plain_number(kv),
            causal=causal,
            dtype=own.name,
        )
        return Ledger(name, work, (q, k, v, o), notes, operation=kernel)
    square, kept = (batch, heads, q_len, kv_len), number(scores, dtype)
    between = (
        write("scores", square, kept),
        read("scores", square, kept),
        write("probabilities", square, kept),
        read("probabilities", square, kept),
    )
    notes += ("materialised: scores are written and read between three kernels, masked ones included",)
    return Ledger(name, work, (q, k, *between, v, o), notes, kernels=3)


@formula("attention_decode", group="inference", example=(32, 32, 8192, 128), aliases=("decode", "decode_attention", "paged_attention"))
def attention_decode(
    batch: Dim,
    heads: Dim,
    kv_len: Dim,
    head_dim: Dim,
    *,
    append: bool = True,
    causal: bool = True,
    **options: Unpack[AttentionOptions],
) -> Ledger:
    """Attention of one new token per sequence: a single query reads the whole cache.

    2·b·h·kv·(d + d_v) FLOP over b·kv_heads·kv·(d + d_v) cached elements: heads/kv_heads FLOP/B in bf16, whatever the batch.
    `append` adds the write of the new token's keys and values. Causal changes nothing: the newest token sees every key.
    """
    step = attention(batch, heads, 1, kv_len, head_dim, causal=causal, **options)
    if append:
        kv, cache = options["kv_heads"] or heads, options["cache"]
        new = kv_append(batch, kv, head_dim, value_dim=options["value_dim"], dtype=options["dtype"], cache=cache)
        step = Ledger(step.name, step.work, step.rows + new.rows, step.notes, operation=step.operation)
    return step.named("attention_decode")


@formula("latent_attention", group="inference", example=(32, 128, 1, 8192), aliases=("mla", "multi_head_latent_attention"))
def latent_attention(
    batch: Dim,
    heads: Dim,
    q_len: Dim,
    kv_len: Dim,
    *,
    latent: Dim = 512,
    rope: Dim = 64,
    head_dim: Dim = 128,
    value_dim: Dim | None = None,
    absorb: bool = True,
    causal: bool = False,
    dtype: Format = "bf16",
    weights: Format = None,
    cache: Format = None,
    compute: Format = None,
    vector: Format = None,
) -> Ledger:
    """Attention over a cache of one latent vector and one rotary key per token, shared by all heads (MLA).

    Absorbed (decode): queries are multiplied into the latent space, attention reads the cache itself, 2·b·h·q·kv·(2·latent + rope)
    FLOP over b·kv·(latent + rope) elements, and outputs are multiplied back. Expanded (prefill): keys and values of every head are
    made from the latents, 2·b·kv·latent·h·(d + d_v) FLOP, written, and read by ordinary attention with d + rope wide keys. The
    defaults are DeepSeek-V2's.
    """
    name = "latent_attention"
    values = head_dim if value_dim is None else value_dim
    own, stored = number(dtype), number(cache, dtype)
    if not absorb:
        return _expanded(name, batch, heads, q_len, kv_len, latent, rope, head_dim, values, causal, dtype, weights, cache, compute, vector)
    pairs, notes = scored(name, q_len, kv_len, causal)
    unit = arithmetic(compute, own, stored)
    rows: tuple[Row, ...] = (
        read("q", (batch, heads, q_len, latent + rope), own),
        read("cache", (batch, kv_len, latent + rope), stored),
        write("out", (batch, heads, q_len, latent), own),
    )
    core = Ledger("attention", scores_and_values(batch * heads * pairs, latent + rope, latent, unit, vector or VECTOR), rows, notes)
    tokens = batch * q_len
    into = batched_matmul(heads, tokens, head_dim, latent, dtype=dtype, weights=weights, compute=compute)
    back = batched_matmul(heads, tokens, latent, values, dtype=dtype, weights=weights, compute=compute)
    whole = part("absorb", into) + part("attention", core) + part("expand", back)
    # A query is its absorbed part and its rotary part.
    whole = same_tensors(whole, {"absorb.out": "attention.q", "expand.activations": "attention.out"})
    return whole.named(name, "absorbed: the cache is read once for all heads, as keys and as values")


def _expanded(
    name: str,
    batch: Dim,
    heads: Dim,
    q_len: Dim,
    kv_len: Dim,
    latent: Dim,
    rope: Dim,
    head_dim: Dim,
    values: Dim,
    causal: bool,
    dtype: Format,
    weights: Format,
    cache: Format,
    compute: Format,
    vector: Format,
) -> Ledger:
    """Latent attention that first computes the keys and values of every head from the latents."""
    own, stored, kernel = number(dtype), number(cache, dtype), number(weights, dtype)
    made = heads * (head_dim + values)
    unit = arithmetic(compute, stored, kernel)
    up = Ledger(
        "expand",
        matrix_work(2 * batch * kv_len * latent * made, unit),
        (
            read("cache", (batch, kv_len, latent), stored),
            read("weights", (latent, made), kernel),
            write("k", (batch, heads, kv_len, head_dim), own),
            write("v", (batch, heads, kv_len, values), own),
        ),
    )
    pairs, notes = scored(name, q_len, kv_len, causal)
    rows = (
        read("q", (batch, heads, q_len, head_dim + rope), own),
        read("k", (batch, heads, kv_len, head_dim), own),
        read("rotary key", (batch, kv_len, rope), stored),
        read("v", (batch, heads, kv_len, values), own),
        write("out", (batch, heads, q_len, values), own),
    )
    core_unit = arithmetic(compute, own, stored)
    core = Ledger("attention", scores_and_values(batch * heads * pairs, head_dim + rope, values, core_unit, vector or VECTOR), rows, notes)
    whole = same_tensors(part("expand", up) + part("attention", core), {"attention.k": "expand.k", "attention.v": "expand.v"})
    return whole.named(name, "expanded: keys and values of every head are written and read")


@formula("kv_append", group="inference", example=(32, 8, 128), aliases=("kv_write", "reshape_and_cache"))
def kv_append(
    batch: Dim,
    kv_heads: Dim,
    head_dim: Dim,
    *,
    tokens: Dim = 1,
    layers: Dim = 1,
    value_dim: Dim | None = None,
    dtype: Format = "bf16",
    cache: Format = None,
) -> Ledger:
    """New keys and values written to the cache: only the new tokens' elements are counted.

    bytes = layers·b·kv_heads·tokens·(d + d_v) elements read as made and written as cached.
    """
    values = head_dim if value_dim is None else value_dim
    own, stored = number(dtype), number(cache, dtype)
    keys, vals = (layers, batch, kv_heads, tokens, head_dim), (layers, batch, kv_heads, tokens, values)
    rows = (read("new k", keys, own), read("new v", vals, own), write("cached k", keys, stored), write("cached v", vals, stored))
    return Ledger("kv_append", rows=rows)


@formula("kv_cache", group="inference", example=(32, 8, 8192, 128), aliases=("kv_read", "kv_cache_size"))
def kv_cache(
    batch: Dim,
    kv_heads: Dim,
    kv_len: Dim,
    head_dim: Dim,
    *,
    layers: Dim = 1,
    value_dim: Dim | None = None,
    dtype: Format = "bf16",
    cache: Format = None,
) -> Ledger:
    """The whole cache read once, as every decoded token does; its footprint is its size.

    bytes = layers·b·kv_heads·kv·(d + d_v) elements in the cache's format.
    """
    values = head_dim if value_dim is None else value_dim
    stored = number(cache, dtype)
    rows = (
        read("cached k", (layers, batch, kv_heads, kv_len, head_dim), stored),
        read("cached v", (layers, batch, kv_heads, kv_len, values), stored),
    )
    return Ledger("kv_cache", rows=rows)
