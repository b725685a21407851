"""Attention and the key-value cache."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from every import every
from roofline.errors import FormulaError
from roofline.formulas import attention, attention_decode, batched_matmul, kv_append, kv_cache, latent_attention
from roofline.ledger import Ledger

small = st.integers(1, 64)


def matrix(ledger: Ledger) -> object:
    return ledger.cost["matrix/bf16"]


@given(small, small, small, small, small)
def test_attention_is_two_batched_products(batch: int, heads: int, q: int, kv: int, dim: int) -> None:
    scores, values = batched_matmul(batch * heads, q, dim, kv), batched_matmul(batch * heads, q, kv, dim)
    assert matrix(attention(batch, heads, q, kv, dim)) == (scores.work + values.work)["matrix/bf16"]


@given(small, small, small, small, small)
def test_one_group_a_head_is_multi_head_attention(batch: int, heads: int, q: int, kv: int, dim: int) -> None:
    assert attention(batch, heads, q, kv, dim, kv_heads=heads).cost == attention(batch, heads, q, kv, dim).cost


@given(small, small, st.integers(1, 300), small)
def test_flash_moves_less_than_materialised(batch: int, heads: int, length: int, dim: int) -> None:
    flash, stored = (attention(batch, heads, length, length, dim, kernels=how) for how in ("flash", "materialised"))  # type: ignore[arg-type]
    assert flash.work == stored.work
    # The scores are written, read, normalised, written and read: four times b·h·n² elements.
    assert stored.cost.bytes() == flash.cost.bytes() + 4 * 2 * batch * heads * length**2  # type: ignore[operator]
    assert (flash.kernels, stored.kernels) == (1, 3)


def test_softmax_runs_on_the_vector_unit() -> None:
    # A scale, a subtraction, an addition and a division a score, and one exp.
    cost = attention(2, 4, 8, 16, 32).cost
    pairs = 2 * 4 * 8 * 16
    assert (cost["vector/fp32"], cost["vector/transcendental"]) == (4 * pairs, pairs)


def test_causal_counts_half_the_square() -> None:
    full, half = attention(1, 8, 1000, 1000, 128), attention(1, 8, 1000, 1000, 128, causal=True)
    assert half.work == full.work * Fraction(1, 2)
    assert half.cost.bytes() == full.cost.bytes()
    assert "causal counts half the square" in half.notes


def test_keys_before_the_queries_are_seen_in_full() -> None:
    # 100 queries at the end of 1000 keys: 900 in full, and half of their own 100 x 100.
    pairs = 100 * 900 + 100 * 100 // 2
    assert matrix(attention(1, 1, 100, 1000, 64, causal=True)) == 4 * 64 * pairs


def test_causal_changes_nothing_for_one_query() -> None:
    assert attention(4, 8, 1, 1000, 64, causal=True).cost == attention(4, 8, 1, 1000, 64).cost
    assert attention_decode(4, 8, 1000, 64, causal=True).cost == attention_decode(4, 8, 1000, 64, causal=False).cost


def test_more_queries_than_keys_cannot_be_causal() -> None:
    with pytest.raises(FormulaError, match="causal with q_len 8 above kv_len 4; keys include those of the queries"):
        attention(1, 1, 8, 4, 64, causal=True)


@every(("kv_heads", "intensity"), [(32, 1), (8, 4), (1, 32)])
def test_decode_has_one_flop_a_byte_for_each_head_of_a_group(kv_heads: int, intensity: int) -> None:
    # 4·h·kv·d FLOP over 4·kv_heads·kv·d bytes, for any batch.
    for batch in (1, 64):
        cost = attention_decode(batch, 32, 2**40, 128, kv_heads=kv_heads).cost
        assert float(cost.known("matrix/bf16") / cost.known("hbm")) == pytest.approx(intensity)


def test_decode_reads_the_cache_and_writes_one_token() -> None:
    step = attention_decode(4, 32, 1000, 128, kv_heads=8, cache="fp8")
    without = attention_decode(4, 32, 1000, 128, kv_heads=8, cache="fp8", append=False)
    assert without.cost == attention(4, 32, 1, 1000, 128, kv_heads=8, cache="fp8").cost
    assert step.cost == without.cost + kv_append(4, 8, 128, cache="fp8").cost
    assert without.cost.bytes() == kv_cache(4, 8, 1000, 128, cache="fp8").footprint() + 2 * 2 * 4 * 32 * 128


def test_a_quantized_cache_computes_in_the_wider_format() -> None:
    assert attention(1, 1, 1, 8, 8, cache="fp8").work["matrix/bf16"] == 4 * 8 * 8
    assert attention(1, 1, 1, 8, 8, cache="fp8", dtype="fp8").work["matrix/fp8"] == 4 * 8 * 8
    assert attention(1, 1, 1, 8, 8, vector="bf16").work["vector/bf16"] == 4 * 8


def test_values_may_be_narrower_than_keys() -> None:
    ledger = attention(1, 2, 10, 20, 192, value_dim=128)
    assert matrix(ledger) == 2 * 2 * 10 * 20 * (192 + 128)
    assert [row.shape for row in ledger.rows] == [(1, 2, 10, 192), (1, 2, 20, 192), (1, 2, 20, 128), (1, 2, 10, 128)]


def test_the_cache_of_a_70b_model() -> None:
    # 80 layers x 8 heads x 128 x 2 (keys and values) x 2 B = 327,680 B a token.
    assert kv_cache(1, 8, 1, 128, layers=80).footprint() == 327_680
    assert kv_append(1, 8, 128, layers=80, tokens=10).cost.bytes() == 2 * 3_276_800


def test_a_latent_cache_is_read_once_for_all_heads() -> None:
    ledger = latent_attention(1, 128, 1, 4096)
    cache = [row for row in ledger.rows if row.tensor == "attention.cache"]
    assert [row.bytes for row in cache] == [2 * 4096 * (512 + 64)]
    # Scores over 576, values over 512, and the two absorbed products of 128 x 512 a head.
    assert matrix(ledger) == 2 * 128 * 4096 * (576 + 512) + 2 * 128 * 2 * 128 * 512


def test_absorbing_pays_for_few_queries_and_expanding_for_many() -> None:
    decode, prefill = (latent_attention(1, 128, 1, 8192, absorb=absorb) for absorb in (True, False))
    assert decode.cost.flops < prefill.cost.flops  # type: ignore[operator]
    assert decode.cost.bytes() < prefill.cost.bytes()  # type: ignore[operator]
    decode, prefill = (latent_attention(1, 128, 8192, 8192, absorb=absorb, causal=True) for absorb in (True, False))
    assert decode.cost.flops > prefill.cost.flops  # type: ignore[operator]


def test_expanded_latent_attention_is_a_product_and_ordinary_attention() -> None:
    ledger = latent_attention(2, 16, 64, 64, absorb=False, causal=True)
    ordinary = attention(2, 16, 64, 64, 128 + 64, value_dim=128, causal=True)
    up = 2 * 2 * 64 * 512 * 16 * (128 + 128)
    assert matrix(ledger) == up + ordinary.cost.known("matrix/bf16")
    assert ledger.cost["vector/fp32"] == ordinary.cost["vector/fp32"]
