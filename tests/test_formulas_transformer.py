"""Feed-forward layers, transformer blocks and mixtures of experts."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from every import every
from roofline.errors import FormulaError
from roofline.formulas import (
    add,
    all_to_all,
    attention,
    count_parameters,
    expected_experts,
    ffn,
    gelu,
    matmul,
    moe,
    moe_combine,
    moe_dispatch,
    moe_experts,
    moe_router,
    rmsnorm,
    rope,
    softmax,
    swiglu,
    transformer_block,
)

small = st.integers(1, 500)


@given(small, small, small)
def test_a_feed_forward_layer_is_the_sum_of_its_kernels(tokens: int, width: int, hidden: int) -> None:
    parts = matmul(tokens, width, hidden).cost + gelu(tokens * hidden).cost + matmul(tokens, hidden, width).cost
    assert ffn(tokens, width, hidden).cost == parts
    assert ffn(tokens, width, hidden).kernels == 3


@given(small, small, small)
def test_a_gate_is_one_more_up_projection(tokens: int, width: int, hidden: int) -> None:
    parts = matmul(tokens, width, 2 * hidden).cost + swiglu(tokens * hidden).cost + matmul(tokens, hidden, width).cost
    assert ffn(tokens, width, hidden, gated=True).cost == parts


@every(("gated", "spared"), [(False, 2), (True, 4)])
def test_fusing_the_activation_spares_its_traffic(gated: bool, spared: int) -> None:
    # Plain: one hidden tensor neither written nor read. Gated: two of them.
    apart, fused = ffn(100, 64, 256, gated=gated), ffn(100, 64, 256, gated=gated, fused=True)
    assert fused.work == apart.work
    assert apart.cost.bytes() - fused.cost.bytes() == spared * 2 * 100 * 256  # type: ignore[operator]
    assert fused.kernels == 2


def test_a_block_is_the_sum_of_its_kernels() -> None:
    tokens, width, heads, kv, hidden = 2 * 128, 512, 8, 2, 1024
    block = transformer_block(2, 128, width, heads, hidden, kv_heads=kv)
    parts = (
        2 * rmsnorm(tokens, width).cost
        + matmul(tokens, width, (heads + 2 * kv) * 64).cost
        + rope(tokens * (heads + kv) * 64).cost
        + attention(2, heads, 128, 128, 64, kv_heads=kv, causal=True).cost
        + matmul(tokens, heads * 64, width).cost
        + ffn(tokens, width, hidden, gated=True).cost
        + 2 * add(tokens * width).cost
    )
    assert block.cost == parts
    assert block.kernels == 11


def test_a_block_of_llama_3_8b_has_its_parameters() -> None:
    # 4096·(32 + 2·8)·128 + 4096² + 3·4096·14336 + 2·4096: 218.1 million a layer.
    block = transformer_block(1, 1, 4096, 32, 14336, kv_heads=8, kv_len=2048)
    assert count_parameters(block) == 218_112_000
    assert count_parameters(32 * block) == 32 * 218_112_000


def test_a_decoding_block_reads_its_weights_and_its_cache() -> None:
    block = transformer_block(1, 1, 4096, 32, 14336, kv_heads=8, kv_len=2**24)
    weights, cache = 2 * 218_112_000, 2 * 2 * 8 * 2**24 * 128
    assert float(block.cost.known("hbm")) == pytest.approx(weights + cache, rel=1e-3)


@given(small, small, small)
def test_one_expert_for_all_is_a_feed_forward_layer(tokens: int, width: int, hidden: int) -> None:
    assert moe_experts(tokens, width, hidden, 1, top_k=1).cost == ffn(tokens, width, hidden, gated=True).cost


def test_experts_read_the_weights_they_touch() -> None:
    few, many = moe_experts(4, 64, 32, 16, top_k=2), moe_experts(400, 64, 32, 16, top_k=2)
    assert [row.shape for row in few.rows if row.tensor == "up.weights"] == [(8, 64, 64)]
    assert [row.shape for row in many.rows if row.tensor == "up.weights"] == [(16, 64, 64)]
    told = moe_experts(400, 64, 32, 16, top_k=2, touched=5)
    assert [row.shape for row in told.rows if row.tensor == "down.weights"] == [(5, 32, 64)]
    assert told.work == many.work


def test_the_expected_number_of_experts_is_said() -> None:
    # 16·(1 − (1 − 2/16)⁴) = 6.621.
    assert expected_experts(16, 2, 4) == pytest.approx(16 * (1 - (7 / 8) ** 4))
    assert expected_experts(16, 16, 1) == 16
    assert any("would touch 6.621" in note for note in moe_experts(4, 64, 32, 16).notes)


def test_a_mixture_is_the_sum_of_its_parts() -> None:
    parts = (
        moe_router(100, 64, 16).cost
        + moe_dispatch(100, 64, over=4).cost
        + moe_experts(100, 64, 32, 16, over=4).cost
        + moe_combine(100, 64, over=4).cost
    )
    assert moe(100, 64, 32, 16, over=4).cost == parts
    assert moe(100, 64, 32, 16, over=4, shared=2).cost == parts + ffn(100, 64, 64, gated=True).cost


def test_experts_on_other_chips_are_reached_by_two_all_to_alls() -> None:
    exchange = all_to_all(100 * 2 * 64, over=4).cost
    assert moe(100, 64, 32, 16, over=4).cost["ici"] == 2 * exchange.known("ici")
    assert moe(100, 64, 32, 16, over=4).cost["ici/hop"] == 2 * exchange.known("ici/hop")
    assert moe(100, 64, 32, 16).cost["ici"] == 0
    # A chip holds a quarter of the experts, and as many rows come to it as leave it.
    assert moe_experts(100, 64, 32, 16, over=4).work == moe_experts(100, 64, 32, 16).work
    assert moe_experts(100, 64, 32, 18, over=4).rows[1].shape[0] == Fraction(9, 2)


def test_a_router_is_a_product_and_a_softmax() -> None:
    router = moe_router(100, 64, 16)
    assert router.work == matmul(100, 64, 16).work + softmax(100, 16).work


def test_combining_multiplies_and_adds() -> None:
    # Two multiplies and one add an element.
    assert moe_combine(100, 64).cost.flops == 3 * 6400


def test_impossible_routings_are_refused() -> None:
    with pytest.raises(FormulaError, match="moe_router: top_k is 9, but there are 8 experts"):
        moe(100, 64, 32, 8, top_k=9)
    with pytest.raises(FormulaError, match="moe_experts: touched is 9, but a chip has 8 experts"):
        moe_experts(100, 64, 32, 8, touched=9)


def test_an_intermediate_is_in_memory_once() -> None:
    # Input, both weights, hidden before and after the activation, result; in elements of 2 bytes.
    assert ffn(64, 32, 128).footprint() == 2 * (64 * 32 + 32 * 128 + 64 * 128 + 64 * 128 + 128 * 32 + 64 * 32)
    # A gate: the first product writes two hidden tensors, which the activation makes one of.
    assert ffn(64, 32, 128, gated=True).footprint() == 2 * (64 * 32 + 32 * 256 + 64 * 256 + 64 * 128 + 128 * 32 + 64 * 32)
    assert ffn(64, 32, 128, gated=True, fused=True).footprint() == 2 * (64 * 32 + 32 * 256 + 64 * 128 + 128 * 32 + 64 * 32)


def test_a_block_holds_the_result_of_each_part_once_and_a_cache_besides() -> None:
    tokens, width, wide = 32, 64, 16
    weights = 2 * width + width * 8 * wide + 4 * wide * width + 3 * width * 128  # norms, qkv, projection, feed-forward
    made = 7 * tokens * width + tokens * (8 + 6 + 4) * wide + tokens * 3 * 128  # x, norms, products, sums; qkv, rope, attention; hidden
    assert transformer_block(2, 16, width, 4, 128, kv_heads=2).footprint() == 2 * (weights + made)
    with_cache = transformer_block(2, 16, width, 4, 128, kv_heads=2, kv_len=100)
    assert with_cache.footprint() == 2 * (weights + made) + 2 * 2 * 2 * 2 * 100 * wide


def test_experts_elsewhere_send_and_receive() -> None:
    here, apart = (moe(64, 32, 128, 8, over=chips).footprint() for chips in (1, 2))
    # Half the experts' weights, and two tensors of tokens·k·width more: what arrived for the experts, and what came back.
    assert apart == here - 2 * 4 * 3 * 32 * 128 + 2 * 2 * 64 * 2 * 32
    assert moe_router(64, 32, 8).footprint() == 2 * (64 * 32 + 32 * 8 + 2 * 64 * 8) + 64 * 2 * (4 + 4)
