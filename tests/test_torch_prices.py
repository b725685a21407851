"""Prices of PyTorch's operators: products, convolutions, attention, and everything that only moves data."""

from collections.abc import Iterable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from every import every
from roofline.cost import Cost
from roofline.dtypes import DType, dtype
from roofline.errors import UsageError
from roofline.formulas import matmul
from roofline.formulas.network import Network
from roofline.operation import Product
from roofline.ops.attention import Attention
from roofline.resource import HBM, matrix
from roofline.torch_prices import SCALAR_TYPES, Call, Kernel, Priced, Tensor, forget, has_price, price, register
from roofline.torch_prices import attention as attention_prices
from roofline.torch_prices.call import RECORD_SHAPES
from roofline.torch_prices.packed_batches import PackedBatch
from roofline.torch_prices.registry import known_ops

BF16, FP32, INT64 = dtype("bf16"), dtype("fp32"), dtype("int64")


def t(*shape: int, of: DType = BF16, strides: tuple[int, ...] | None = None) -> Tensor:
    return Tensor(shape, of, strides)


def priced(op: str, *args: object, **more: object) -> Priced:
    return price(Call(op, args=args, **more))  # type: ignore[arg-type]


def cost(op: str, *args: object, **more: object) -> Cost:
    found = priced(op, *args, **more).cost
    assert found is not None
    return found


def launched(*names: str, grid: tuple[int, ...] | None = None) -> tuple[Kernel, ...]:
    return tuple(Kernel(name, grid) for name in names)


def test_a_product_costs_what_the_formula_says() -> None:
    assert cost("aten::mm", t(8, 4), t(4, 2)) == matmul(8, 4, 2).cost


@every(
    ("op", "args", "flops", "moved"),
    [
        # bias of n: n elements read; 2-d residual: m·n; beta 0 reads none
        ("aten::addmm", (t(2), t(8, 4), t(4, 2)), 128, 2 * (32 + 8 + 16 + 2)),
        ("aten::addmm", (t(8, 2), t(8, 4), t(4, 2), 0, 1), 128, 2 * (32 + 8 + 16)),
        ("aten::bmm", (t(3, 8, 4), t(3, 4, 2)), 384, 2 * 3 * (32 + 8 + 16)),
        # a batch that is expanded lies in memory once
        ("aten::bmm", (t(3, 8, 4), t(3, 4, 2, strides=(0, 2, 1))), 384, 2 * (96 + 8 + 48)),
        ("aten::baddbmm", (t(3, 1, 2), t(3, 8, 4), t(3, 4, 2), 1, 1), 384, 2 * (3 * 56 + 6)),
        ("aten::linear", (t(5, 8, 4), t(2, 4), t(2)), 640, 2 * (160 + 8 + 80 + 2)),
        ("aten::matmul", (t(5, 8, 4), t(4, 2)), 640, 2 * (160 + 8 + 80)),
        ("aten::mv", (t(8, 4), t(4)), 64, 2 * (32 + 4 + 8)),
        ("aten::_int_mm", (t(8, 4, of=dtype("int8")), t(4, 2, of=dtype("int8"))), 128, 32 + 8 + 4 * 16),
        # (rows, k) x (groups, k, n): 2·rows·k·n, and the offsets of the groups
        ("aten::_grouped_mm", (t(8, 4), t(3, 4, 2), t(3, of=dtype("int32"))), 128, 2 * (32 + 24 + 16) + 12),
        ("aten::_grouped_mm", (t(8, 6), t(6, 2), t(3, of=dtype("int32"))), 192, 2 * (48 + 12 + 48) + 12),
        # 2:4 sparse weights of 32 x 16 times 16 x 8: half of the multiplications; packed with their indices they are 9/16 of their size
        ("aten::_cslt_sparse_mm", (t(32, 9), t(16, 8)), 32 * 16 * 8, 2 * (32 * 9 + 16 * 8 + 32 * 8)),
        ("aten::_cslt_sparse_mm", (t(288), t(16, 8)), 32 * 16 * 8, 2 * (32 * 9 + 16 * 8 + 32 * 8)),
        ("aten::_sparse_semi_structured_mm", (t(32, 8), t(32, 1), t(16, 8)), 32 * 16 * 8, 2 * (32 * 9 + 16 * 8 + 32 * 8)),
        ("aten::_sparse_semi_structured_linear", (t(8, 16), t(32, 8), t(32, 1), t(32)), 32 * 16 * 8, 2 * (32 * 10 + 16 * 8 + 32 * 8)),
    ],
)
def test_products_of_every_kind(op: str, args: tuple[object, ...], flops: int, moved: int) -> None:
    found = cost(op, *args)
    assert sum(amount for resource, amount in found.amounts if resource.unit == "matrix") == flops
    assert found.bytes() == moved


def test_a_scaled_product_runs_in_fp8_and_writes_the_format_that_it_is_told() -> None:
    fp8, scale = dtype("fp8_e4m3"), t(of=FP32)
    found = cost("aten::_scaled_mm", t(8, 4, of=fp8), t(4, 2, of=fp8), scale, scale, None, None, 15, True)
    assert SCALAR_TYPES[15] is BF16
    assert found["matrix/fp8"] == 128
    assert found.bytes() == 32 + 8 + 2 * 4 + 2 * 16


@every(
    ("kernel", "runs_in"),
    [
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize32x32x64_stage3", "tf32"),
        ("cutlass_80_tensorop_s1688gemm_128x256_16x3_tn_align4", "tf32"),
        ("nvjet_sss_128x256_64x4_1x2_h_bz_coopA_NTT", "tf32"),
        ("ampere_sgemm_128x64_tn", "fp32"),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>", "fp32"),
        ("void gemv2T_kernel_val<int, int, float, float, float, float>", "fp32"),
        ("Cijk_Ailk_Bljk_SB_MT128x128x16_MI16x16x4x1_SN", "fp32"),
    ],
)
def test_the_kernel_says_whether_fp32_runs_as_tf32(kernel: str, runs_in: str) -> None:
    found = priced("aten::mm", t(8, 4, of=FP32), t(4, 2, of=FP32), kernels=launched(kernel))
    assert found.dtype == runs_in
    assert found.cost is not None
    assert found.cost[f"matrix/{runs_in}"] == 128


def test_what_flop_counter_mode_leaves_out_is_not_in_its_count() -> None:
    assert priced("aten::mm", t(8, 4), t(4, 2)).by_convention == {"flop_counter": 128}
    assert not priced("aten::mv", t(8, 4), t(4)).by_convention


def test_a_convolution_leaves_padding_out_and_flop_counter_mode_counts_it() -> None:
    # One axis of 4 with 3 taps and padding 1: 2 + 3 + 3 + 2 = 10 pairs meet an input, of 12.
    found = priced("aten::cudnn_convolution", t(1, 1, 4, 4), t(1, 1, 3, 3), (1, 1), (1, 1), (1, 1), 1, False, False, True)
    assert found.cost is not None
    assert found.cost["matrix/bf16"] == 2 * 10 * 10
    assert found.by_convention["flop_counter"] == 2 * 12 * 12


def test_a_strided_convolution_reads_only_what_it_needs() -> None:
    # 1 x 1 at stride 2: a quarter of 64 inputs, 16 outputs, one weight.
    assert cost("aten::convolution", t(1, 1, 8, 8), t(1, 1, 1, 1), None, (2, 2), (0, 0), (1, 1), False, (0, 0), 1).bytes() == 2 * 33


@every(("mask", "products"), [((True, True, False), 2), ((False, True, False), 1), ((True, False, True), 1)])
def test_a_convolutions_gradients_follow_the_mask(mask: tuple[bool, ...], products: int) -> None:
    forward = cost("aten::convolution", t(2, 4, 8, 8), t(6, 4, 3, 3), None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1)
    args = (t(2, 6, 8, 8), t(2, 4, 8, 8), t(6, 4, 3, 3), (0,), (1, 1), (1, 1), (1, 1), False, (0, 0), 1, mask)
    assert cost("aten::convolution_backward", *args)["matrix/bf16"] == products * forward["matrix/bf16"]  # type: ignore[operator]


def test_a_transposed_convolution_multiplies_as_its_gradient_does() -> None:
    # Every input meets every tap: 2·N·in·out·taps·positions.
    found = cost("aten::convolution", t(1, 3, 5, 5), t(3, 2, 2, 2), None, (2, 2), (0, 0), (1, 1), True, (0, 0), 1)
    assert found["matrix/bf16"] == 2 * 3 * 2 * 4 * 25
    assert found.bytes() == 2 * (75 + 24 + 2 * 100)


# Where the table of every variant has its causal flag; q, k and v first, or after the gradient.
CAUSAL = {
    "aten::scaled_dot_product_attention": (0, 5),
    "aten::_scaled_dot_product_flash_attention": (0, 4),
    "aten::_scaled_dot_product_flash_attention_backward": (1, 11),
    "aten::_scaled_dot_product_efficient_attention": (0, 6),
    "aten::_scaled_dot_product_efficient_attention_backward": (1, 11),
    "aten::_scaled_dot_product_cudnn_attention": (0, 6),
    "aten::_scaled_dot_product_cudnn_attention_backward": (1, 14),
    "aten::_flash_attention_forward": (0, 8),
    "aten::_flash_attention_backward": (1, 11),
    "aten::_efficient_attention_forward": (0, 9),
    "aten::_efficient_attention_backward": (1, 14),
    "aten::_cudnn_attention_forward": (0, 10),
    "aten::_cudnn_attention_backward": (1, 14),
}


def attention(op: str, causal: bool, heads: int = 4, kv_heads: int = 4) -> Priced:
    first, place = CAUSAL[op]
    swapped = op in ("aten::_flash_attention_forward", "aten::_flash_attention_backward") or "aten::_efficient_attention_" in op
    q, k = ((t(2, 64, h, 8) if swapped else t(2, h, 64, 8)) for h in (heads, kv_heads))
    args: list[object] = [*((q,) if first else ()), q, k, k]
    args += [None] * (place - len(args)) + [int(causal) if "_efficient_attention_" in op and "scaled" not in op else causal]
    return priced(op, *args)


@every("op", CAUSAL)
@every("kv_heads", [4, 1])
def test_attention_counts_half_the_square_when_causal(op: str, kv_heads: int) -> None:
    full, half = attention(op, False, kv_heads=kv_heads), attention(op, True, kv_heads=kv_heads)
    assert full.cost is not None
    assert half.cost is not None
    pairs = 2 * 4 * 64 * 64  # heads of q count
    products = 5 if "backward" in op else 2
    assert full.cost["matrix/bf16"] == 2 * pairs * 8 * products
    assert half.cost["matrix/bf16"] == pairs * 8 * products
    assert full.by_convention == half.by_convention == {"flop_counter": 2 * pairs * 8 * products}
    if "backward" in op:
        assert half.needed is not None
        assert half.needed["matrix/bf16"] == pairs * 8 * 4
    grown = 2 * 2 * 3 * 64 * 8 * 2  # three more heads of k and v, of two batches, in two bytes
    more = attention(op, True).cost
    assert more is not None
    if kv_heads == 1:
        assert more.bytes() - half.cost.bytes() == grown * (2 if "backward" in op else 1)  # type: ignore[operator]


def packed_attention(
    op: str, queries: int, keys: int, sequences: int, longest: tuple[int, int], *, causal: bool = True, more: tuple[object, ...] = ()
) -> Priced:
    """Attention of a packed batch, 4 heads of 8: the arguments up to the mask, then ``more``."""
    variant = attention_prices.FORWARD.get(op) or attention_prices.BACKWARD[op]
    first = 0 if op in attention_prices.FORWARD else 1
    swapped = (1,) if "_efficient_" in op else ()  # tokens, heads and width after a batch of 1
    q, k = t(*swapped, queries, 4, 8), t(*swapped, keys, 4, 8)
    args: list[object] = [*((q,) * first), q, k, k]
    assert variant.lengths is not None
    args += [None] * (variant.lengths - len(args)) + [t(sequences + 1, of=INT64)] * 2 + list(longest)
    args += [None] * (variant.causal - len(args)) + [2 * causal if variant.mask_types else causal]
    return priced(op, *args, *more)


PACKED = (
    *("aten::_flash_attention_forward", "aten::_flash_attention_backward", "aten::_efficient_attention_forward"),
    *("aten::_efficient_attention_backward", "aten::_cudnn_attention_forward", "aten::_cudnn_attention_backward"),
    *("flash_attn::_flash_attn_varlen_forward", "flash_attn::_flash_attn_varlen_backward"),
)


@every("op", PACKED)
@every("causal", [True, False])
def test_a_packed_batch_of_unknown_lengths_costs_the_least_that_it_can(op: str, causal: bool) -> None:
    found = packed_attention(op, 10, 10, 3, (6, 6), causal=causal)
    assert found.cost is not None
    # 10 tokens in 3 sequences: 3, 3 and 4 have the fewest pairs, 6 and 4 the most that the longest of 6 allows.
    least, most = 9 + 9 + 16, 36 + 16
    assert found.cost["matrix/bf16"] == 2 * 4 * least * 8 * (5 if "backward" in op else 2) / (1 + causal)
    assert found.cost.bytes() == (2 * 10 * 4 * 8) * (8 if "backward" in op else 4) + 4 * 10 * 4
    (note,) = [one for one in found.notes if "lengths are in a tensor" in one]
    assert note.endswith(f"counted as 3 equal ones, the least, with at most {most / least:.1f} times as many FLOP")
    assert not found.by_convention  # which has the lengths themselves


@given(st.lists(st.integers(2, 50), min_size=1, max_size=8), st.integers(0, 30))  # of a single token the pair on the border counts whole
def test_no_lengths_need_less_than_equal_ones_nor_more_than_the_longest(lengths: list[int], window: int) -> None:
    batch = PackedBatch(sequences=len(lengths), queries=sum(lengths), keys=sum(lengths), longest_queries=max(lengths))

    def pairs(groups: Iterable[tuple[int, int, int]]) -> float:
        one = partial(Attention, heads=1, key_width=8, value_width=8, number=dtype("bf16"), causal=True, window=window)
        return float(sum(one(batch=count, queries=queries, keys=keys).pairs for count, queries, keys in groups))

    truth = pairs((1, length, length) for length in lengths)
    assert pairs(batch.equal()) <= truth + 1e-9
    assert truth <= pairs(batch.unequal()) + 1e-9


@every(
    ("queries", "keys", "longest", "causal", "pairs"),
    [
        (12, 12, (4, 4), True, 3 * 16 / 2),  # three times four tokens: the longest has a third of them
        (12, 30, (4, 10), False, 3 * 4 * 10),
        (3, 20, (1, 9), True, 20),  # one token each, which sees all keys
        (12, 20, (4, 9), False, 4 * 20),  # four queries for each key, however they are spread
        (10, 15, (6, 5), False, 10 * 5),
    ],
)
def test_a_packed_batch_whose_work_is_known_is_exact(queries: int, keys: int, longest: tuple[int, int], causal: bool, pairs: float) -> None:
    found = packed_attention("aten::_flash_attention_forward", queries, keys, 3, longest, causal=causal)
    assert found.cost is not None
    assert found.cost["matrix/bf16"] == 2 * 4 * pairs * (8 + 8)
    assert not [note for note in found.notes if "tensor" in note]


@every(("queries", "keys", "longest", "causal"), [(10, 20, (6, 9), False), (12, 20, (4, 9), True), (3, 20, (2, 9), True)])
def test_a_packed_batch_that_may_have_any_pairs_is_unknown(queries: int, keys: int, longest: tuple[int, int], causal: bool) -> None:
    found = packed_attention("aten::_flash_attention_forward", queries, keys, 3, longest, causal=causal)
    assert found.cost is None
    assert "lengths" in found.notes[0]


def test_pages_of_a_cache_are_no_keys() -> None:
    pages: tuple[object, ...] = (-1, -1, 0.0, None, False, t(3, 7, of=INT64))
    found = packed_attention("flash_attn::_flash_attn_varlen_forward", 10, 10, 3, (6, 6), more=pages)
    assert found.cost is None
    assert "cache pool" in found.notes[0]


def test_the_quantized_overload_is_told_by_its_number_of_arguments() -> None:
    q = t(2, 4, 64, 8)
    causal = priced("aten::_scaled_dot_product_flash_attention", q, q, q, t(1), t(1), t(1), 0.0, True, False, None)
    plain = priced("aten::_scaled_dot_product_flash_attention", q, q, q, 0.0, True, False, None)
    assert causal.cost is not None
    assert plain.cost is not None
    assert causal.cost["matrix/bf16"] == plain.cost["matrix/bf16"]


@every(
    ("op", "args", "moved"),
    [
        ("aten::add", (t(4, 8), t(8), 1), 2 * (32 + 8 + 32)),
        ("aten::add_", (t(4, 8), t(4, 8), 1), 2 * 3 * 32),
        ("aten::mul", (t(4, 8), t(4, 8), t(4, 8)), 2 * 3 * 32),  # mul.out: the third is the result
        ("aten::mul", (t(4, 8), t(of=FP32)), 2 * 64 + 4),  # a 0-dim float does not promote
        ("aten::mul", (t(4, 8), t(4, 8, of=FP32)), 2 * 32 + 8 * 32),
        ("aten::eq", (t(4, 8), t(4, 8)), 2 * 64 + 32),
        ("aten::div", (t(4, 8, of=INT64), 2), 8 * 32 + 4 * 32),
        ("aten::add", (t(4, 8, strides=(0, 1)), t(4, 8), 1), 2 * (8 + 64)),
        ("aten::fill_", (t(4, 8), 0), 2 * 32),
        ("aten::_transform_bias_rescale_qkv", (t(2, 4, 6), t(6), 2), 2 * (48 + 6 + 48)),
        ("aten::where", (t(4, 8, of=dtype("bool")), t(4, 8), t()), 32 + 2 * 65),
        ("aten::native_dropout", (t(4, 8), 0.1, True), 2 * 64 + 32),
        ("aten::copy_", (t(4, 8, of=FP32), t(4, 8)), 6 * 32),
        ("aten::_to_copy", (t(4, 8), 6), 6 * 32),
        ("aten::cat", ((t(4, 8), t(2, 8)), 0), 2 * 2 * 48),
        ("aten::constant_pad_nd", (t(4, 8), (1, 1), 0), 2 * (32 + 40)),
        ("aten::native_layer_norm", (t(4, 8), (8,), t(8), t(8), 1e-5), 2 * (64 + 16) + 4 * 8),
        ("aten::_fused_rms_norm", (t(4, 8), (8,), t(8), 1e-5), 2 * (64 + 8) + 4 * 4),
        ("aten::_softmax", (t(4, 8), -1, False), 2 * 64),
        ("aten::_softmax", (t(4, 8), -1, True), 6 * 32),
        ("aten::_log_softmax_backward_data", (t(4, 8, of=FP32), t(4, 8, of=FP32), 1, 15), 10 * 32),
        ("aten::sum", (t(4, 8), (0,), True, None), 2 * (32 + 8)),
        ("aten::sum", (t(4, 8), None), 2 * 33),
        ("aten::max", (t(4, 8), 1, False), 2 * 32 + 10 * 4),
        ("aten::argmax", (t(4, 8), 1, False), 2 * 32 + 8 * 4),
        ("aten::topk", (t(4, 8), 2, -1), 2 * 32 + 10 * 8),
        ("aten::embedding", (t(100, 8), t(6, of=INT64)), 2 * 2 * 48 + 48),
        ("aten::embedding", (t(2, 8), t(6, of=INT64)), 2 * (16 + 48) + 48),  # no more than the table
        ("aten::embedding_dense_backward", (t(6, 8), t(6, of=INT64), 100, -1, False), 2 * (48 + 800) + 48),
        ("aten::nll_loss_forward", (t(4, 8, of=FP32), t(4, of=INT64), None, 1, -100), 4 * 4 + 32 + 4),
        ("aten::index_add_", (t(100, 8), 0, t(6, of=INT64), t(6, 8)), 2 * 3 * 48 + 48),
        ("aten::max_pool2d_with_indices", (t(1, 1, 8, 8), (2, 2), (2, 2)), 2 * (64 + 16) + 8 * 16),
        ("aten::reflection_pad1d", (t(4, 8), (1, 1)), 2 * (32 + 40)),
        ("aten::reflection_pad1d_backward", (t(4, 10), t(4, 8), (1, 1)), 2 * (40 + 32)),
        # windows of 2 x 2 of a 4 x 4 image: 9 places
        ("aten::im2col", (t(1, 1, 4, 4), (2, 2), (1, 1), (0, 0), (1, 1)), 2 * (16 + 36)),
        ("aten::col2im", (t(1, 4, 9), (4, 4), (2, 2), (1, 1), (0, 0), (1, 1)), 2 * (36 + 16)),
        ("aten::grid_sampler_2d", (t(1, 2, 4, 4), t(1, 3, 3, 2), 0, 0, False), 2 * (32 + 18 + 18)),
        ("aten::_cdist_forward", (t(4, 8), t(3, 8), 2.0, None), 2 * (32 + 24 + 12)),
        ("aten::_embedding_bag", (t(100, 8), t(6, of=INT64), t(2, of=INT64)), 2 * (48 + 16) + 8 * 8),
        ("_C::rms_norm", (t(4, 8), t(4, 8), t(8), 1e-6), 2 * (64 + 8)),
        ("_C::fused_add_rms_norm", (t(4, 8), t(4, 8), t(8), 1e-6), 2 * (128 + 8)),
        ("_C::silu_and_mul", (t(4, 8), t(4, 16)), 2 * 96),
        ("_C::rotary_embedding", (t(4, of=INT64), t(4, 16), t(4, 8), 8, t(1000, 8), True), 32 + 2 * (2 * 96 + 32)),
    ],
)
def test_bytes_of_what_only_moves_data(op: str, args: tuple[object, ...], moved: int) -> None:
    assert cost(op, *args).bytes() == moved


def test_a_fourier_transform_does_five_n_log_n() -> None:
    complex_numbers = t(3, 8, of=dtype("complex64"))
    assert cost("aten::_fft_c2c", complex_numbers, (1,), 0, True)["vector/fp32"] == 3 * 5 * 8 * 3
    assert cost("aten::_fft_r2c", t(3, 8, of=FP32), (1,), 0, True)["vector/fp32"] == 3 * 5 * 8 * 3 / 2


def test_a_trace_has_the_zeros_of_a_scatter_in_another_call() -> None:
    args = (t(6, 8), t(6, of=INT64), 100, -1, False)
    traced = cost("aten::embedding_dense_backward", *args, kernels=launched("compute_grad_weight"))
    assert traced.bytes() == 2 * (48 + 48) + 48


def test_the_width_of_a_list_is_read_off_the_kernel() -> None:
    parts = (Tensor((4, 8)), Tensor((2, 8)))
    kernels = launched("void CatArrayBatchedCopy_vectorized<at::native::OpaqueType<4u>, unsigned int, 2, 128, 1, 16, 4>")
    assert cost("aten::cat", parts, 0, kernels=kernels).bytes() == 4 * 2 * 48
    unknown = priced("aten::cat", parts, 0)
    assert not unknown.is_priced
    assert "ExecutionTraceObserver" in priced("aten::cat", None, 0).missing


def test_copies_cross_the_bus_that_they_name() -> None:
    def copies(name: str) -> Cost:
        return cost("aten::copy_", t(4, 8), t(4, 8), kernels=(Kernel(name, None, 64, "memcpy"),))

    assert copies("Memcpy HtoD (Pageable -> Device)") == Cost.of({"pcie": 64, "hbm": 64})
    assert copies("Memcpy DtoD (Device -> Device)") == Cost.of({"hbm": 128})
    assert cost("Memset (Device)", kernels=(Kernel("Memset (Device)", None, 32, "memset"),)) == Cost.of({"hbm": 32})


def test_copies_of_pageable_memory_are_told_apart() -> None:
    def category(name: str) -> str:
        return price(Call("aten::copy_", args=(t(4, 8), t(4, 8)), kernels=(Kernel(name, None, 64, "memcpy"),))).category

    assert category("Memcpy DtoH (Device -> Pageable)") == "pageable transfer"
    assert category("Memcpy HtoD (Pinned -> Device)") == "host transfer"
    assert category("Memcpy DtoD (Device -> Device)") == "copy"


LIST = "multi_tensor_apply_kernel<TensorListMetadata<2>, BinaryOpListAlphaFunctor<float, 2, 2, 0>, std::plus<float>, float, float>"
SCALAR = "multi_tensor_apply_kernel<TensorListMetadata<1>, BinaryOpScalarFunctor<c10::BFloat16, 1, 1, 0>, std::plus<float>, float>"


def test_accumulated_gradients_are_the_list_when_the_grids_agree() -> None:
    sizes = (65_536, 65_537, 10)  # 1 + 2 + 1 chunks
    kernels = (*launched(LIST, grid=(3, 1, 1)), *launched(LIST, grid=(1, 1, 1)))
    found = priced("aten::_foreach_add_", None, None, 1, kernels=kernels, extra={"accumulated": sizes})
    assert found.cost is not None
    assert found.cost.bytes() == 3 * 4 * sum(sizes)
    assert not found.missing
    other = priced("aten::_foreach_add_", None, None, 1, kernels=kernels, extra={"accumulated": (5,)})
    assert other.cost is not None
    assert other.cost.bytes() == 3 * 4 * 4 * 65_536
    assert "upper bound" in other.notes[0]


def test_copies_of_lists_are_no_optimizers() -> None:
    call = Call("aten::_foreach_copy_", args=((t(4, 8), t(8)), (t(4, 8), t(8))))
    assert (price(call).category, price(call).cost) == ("copy", Cost.of({HBM: 2 * 2 * 40}))


def test_step_counters_are_one_element_each() -> None:
    found = cost("aten::_foreach_add_", None, 1, kernels=launched(SCALAR, grid=(3, 1, 1)), extra={"accumulated": (70_000, 8, 8)})
    assert found.bytes() == 2 * 2 * 3


@every("passes", [2, 16])
def test_gradients_that_several_backward_passes_add_to_count_once(passes: int) -> None:
    sizes = (70_000, 8, 8)
    counters = launched(SCALAR, grid=(3, 1, 1))
    assert cost("aten::_foreach_add_", None, 1, kernels=counters, extra={"accumulated": sizes * passes}).bytes() == 2 * 2 * 3
    updates = launched(SCALAR, grid=(4, 1, 1))  # two blocks for the first
    assert cost("aten::_foreach_neg_", None, kernels=updates, extra={"accumulated": sizes * passes}).bytes() == 2 * 2 * sum(sizes)


def test_step_counters_are_one_element_each_where_some_gradients_are_added_to_twice() -> None:
    twice = (70_000, 70_000, 8, 8)
    found = cost("aten::_foreach_add_", None, 1, kernels=launched(SCALAR, grid=(3, 1, 1)), extra={"accumulated": twice})
    assert found.bytes() == 2 * 2 * 3


def test_what_an_optimizer_has_of_each_tensor_is_one_element_each() -> None:
    # A list of one block a tensor is not that of the gradients, of which the first takes two.
    launch = launched(SCALAR, grid=(3, 1, 1))
    assert cost("aten::_foreach_pow", 0.9, None, kernels=launch, extra={"accumulated": (70_000, 8, 8)}).bytes() == 2 * 2 * 3
    assert cost("aten::_foreach_neg_", None, kernels=launch, extra={"accumulated": (60_000, 8, 8)}).bytes() == 2 * 2 * 60_016


def test_a_number_to_the_power_of_each_tensor_reads_the_list_behind_it() -> None:
    steps = tuple(Tensor((), FP32) for _ in range(28))
    assert cost("aten::_foreach_pow", 0.9, steps, kernels=launched(SCALAR, grid=(28, 1, 1))).bytes() == 2 * 4 * 28


def test_fused_adam_reads_four_lists_and_writes_three_and_one_more_with_amsgrad() -> None:
    name = "multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float, {}, ADAM_MODE::ADAMW, false>>"
    for lists, moved in ((4, 7), (5, 9)):
        kernels = launched(name.format(lists), grid=(1, 1, 1))
        found = cost("aten::_fused_adamw_", *(None,) * 6, kernels=kernels, extra={"accumulated": (100,)})
        assert (found.bytes(), found["vector/fp32"]) == (4 * 100 * moved, 1300)


def test_a_fused_optimizer_of_the_cpu_updates_at_most_the_gradients_of_the_step() -> None:
    found = priced("aten::_fused_adamw_", *(None,) * 6, kernels=launched("aten::_fused_adamw_"), extra={"accumulated": (100, 28)})
    assert found.cost is not None
    assert found.cost.bytes() == 7 * 4 * 128  # four lists are read, three written
    assert found.notes == ("upper bound: all gradients that the step accumulates",)
    assert priced("aten::_fused_adamw_", *(None,) * 6, kernels=launched("aten::_fused_adamw_")).cost is None


@every(
    ("name", "held", "sent"),
    [
        ("allreduce", 800, 2 * 7 * 1600 / 8),
        ("_allgather_base", 100, 7 * 200),
        ("_reduce_scatter_base", 800, 7 * 1600 / 8),
        ("all_to_allv", 800, 7 * 1600 / 8),
        ("broadcast", 800, 1600),
        ("send", 800, 1600),
    ],
)
def test_collectives_send_what_their_formula_says(name: str, held: int, sent: float) -> None:
    extra = {"Collective name": name, "In msg nelems": held, "Out msg nelems": held, "dtype": "BFloat16", "Group size": 8}
    found = cost("record_param_comms", extra=extra, network=Network("nvlink", "switch"))
    assert found.bytes("nvlink") == sent


def test_a_group_is_as_large_as_its_tensors_say_else_the_whole_run() -> None:
    extra, switch = {"World size": 16}, Network("nvlink", "switch")
    gathered = cost("c10d::_allgather_base_", t(800), t(100), extra=extra, network=switch)
    assert gathered.bytes("nvlink") == 7 * 200
    scattered = cost("c10d::_reduce_scatter_base_", t(100), t(800), extra=extra, network=switch)
    assert scattered.bytes("nvlink") == 7 * 200
    assert cost("c10d::allreduce_", (t(800),), extra=extra, network=switch).bytes("nvlink") == 2 * 15 * 1600 / 16


def test_a_group_of_several_nodes_is_noted() -> None:
    switch = Network("nvlink", "switch", reach=8)
    for chips, noted in ((8, False), (16, True)):
        found = priced("c10d::allreduce_", (t(800),), extra={"World size": chips}, network=switch)
        assert any("nvlink connects 8 of its 16 chips" in note for note in found.notes) == noted


def test_a_collective_without_a_group_is_unknown() -> None:
    assert priced("c10d::allreduce_", (t(8),)).cost is None


def test_a_triton_kernel_takes_each_tensor_once_a_position_or_what_inductor_recorded() -> None:
    # A table of 1,000 x 8 in a kernel of 32 positions: 32 elements of it.
    args = (t(1000, 8), t(4, of=INT64), t(4, 8), 32)
    found = priced("triton_poi_fused_embedding_0", *args)
    assert found.cost is not None
    assert found.cost.bytes() == 2 * 32 + 8 * 4 + 2 * 32
    assert found.interval == (160, 160 + 64)
    recorded = priced("triton_poi_fused_embedding_0", *args, extra={"kernel_num_gb": 2e-7})
    assert recorded.cost is not None
    assert recorded.cost.bytes() == 200
    assert recorded.interval is None


def test_a_triton_kernel_without_numels_has_the_positions_of_its_blocks() -> None:
    args = (t(1000, 8), t(4, of=INT64), t(4, 8))
    extra = {"kernel_kwargs": "XBLOCK=16,num_warps=1"}
    one = launched("triton_poi_fused_embedding_0", grid=(2, 1, 1))
    assert cost("triton_poi_fused_embedding_0", *args, extra=extra, kernels=one).bytes() == 2 * 32 + 8 * 4 + 2 * 32
    # A reduction reads more than one element a position of its grid, and without blocks nothing is known: all of the table.
    whole = 2 * 8000 + 8 * 4 + 2 * 32
    assert cost("triton_red_fused_embedding_0", *args, extra=extra, kernels=one).bytes() == whole
    assert cost("triton_poi_fused_embedding_0", *args, kernels=one).bytes() == whole


def test_a_template_is_a_product() -> None:
    assert cost("triton_tem_fused_mm_0", t(8, 4), t(4, 2), t(8, 2)) == matmul(8, 4, 2).cost


# Inductor's kernels of FlexAttention by their arguments: q, k, v, logsumexp and maximum, blocks, result; backward with their gradients.
FLEX = {"triton_tem_fused_flex_attention_0": (2, 4, 1), "triton_tem_fused_flex_attention_backward_1": (7, 8, 5)}


def flex_attention(op: str, blocks: int) -> Priced:
    _, integers, others = FLEX[op]
    q, kv, sums, count = t(2, 4, 64, 8), t(2, 2, 32, 8), t(2, 4, 64, of=FP32), t(1, 1, blocks, of=INT64)
    after = (q, kv, kv, kv, q) if others == 5 else (q,)
    return priced(op, q, kv, kv, sums, sums, *after[1:], *(count, t(1, 1, blocks, blocks, of=INT64)) * (integers // 2), after[0])


@every("op", FLEX)
def test_flex_attention_without_a_mask_computes_all_pairs(op: str) -> None:
    found = flex_attention(op, 1)
    assert found.cost is not None
    products = FLEX[op][0]
    assert found.cost["matrix/bf16"] == 2 * (2 * 4 * 64 * 32) * 8 * products  # heads of q count
    assert "lower bound: the operations of a score_mod are not recorded" in found.notes
    if products == 7:  # the model needs four: the gradients of q, k, v and of the probabilities
        assert found.needed is not None
        assert found.needed["matrix/bf16"] == 2 * (2 * 4 * 64 * 32) * 8 * 4
    queries, keys = 2 * 2 * 4 * 64 * 8, 2 * 2 * 2 * 32 * 8  # bytes
    moved = queries + 2 * keys + (2 * queries + 3 * keys if products == 7 else queries)
    assert found.cost.bytes() == moved + 2 * 4 * 2 * 4 * 64


@every(("columns", "is_known"), [(3 * 32, True), (2 * 32, True), (32 + 2 * 24, False)])
def test_flex_attention_may_take_the_projection_of_which_q_k_and_v_are_parts(columns: int, is_known: bool) -> None:
    # 4 heads of 8 for q, and as many or two for k and v, of 2 x 64 tokens; 3 heads for k and v cannot be shared by 4.
    sums, block, nothing = t(2, 4, 64, of=FP32), t(1, 1, 1, of=INT64), t(0, of=FP32)
    given = t(2 * 64, columns), sums, sums, block, block, nothing, t(2, 4, 64, 8)
    found = priced("triton_tem_fused_flex_attention_permute_select_view_4", *given)
    assert bool(found.cost) == is_known
    if found.cost is not None:
        assert found.cost["matrix/bf16"] == 2 * 2 * (2 * 4 * 64 * 64) * 8
        assert found.cost.bytes() == 2 * 2 * 64 * columns + 2 * 2 * 4 * 64 * 8 + 2 * 4 * 2 * 4 * 64


@every("op", FLEX)
def test_only_the_program_knows_the_mask_of_flex_attention(op: str) -> None:
    found = flex_attention(op, 4)
    assert found.cost is None
    (note,) = found.notes
    assert "whose blocks recordings do not hold" in note
    assert note.endswith(" without a mask")
    assert priced(op, t(8, 4), t(8, 4), t(8, 4), extra={"kernel_flop": 0}).cost is None


def test_a_template_may_add_to_its_product_and_take_weights_transposed() -> None:
    # x (8 x 4) times weights (2 x 4), which are stored transposed: 2·8·4·2 FLOP. First comes what is added: a bias, or a residual.
    for added in (t(2), t(8, 2)):
        found = cost("triton_tem_fused_addmm_t_0", added, t(8, 4), t(2, 4), t(8, 2))
        assert found.known(matrix("bf16")) == 2 * 8 * 4 * 2
        assert found.bytes() == 2 * (added.elements + 32 + 8 + 16)
    # Rows over two axes; a batch of products; and tensors that are no product.
    assert cost("triton_tem_fused_mm_0", t(2, 4, 4), t(4, 2), t(8, 2)).known(matrix("bf16")) == 2 * 8 * 4 * 2
    assert cost("triton_tem_fused_bmm_0", t(3, 8, 4), t(3, 4, 2), t(3, 8, 2)).known(matrix("bf16")) == 3 * 2 * 8 * 4 * 2
    assert priced("triton_tem_fused_bmm_0", t(3, 8, 4), t(5, 4, 2), t(3, 8, 2)).cost is None
    assert priced("triton_tem_fused_convolution_0", t(1, 3, 8, 8), t(4, 3, 3, 3), t(1, 4, 8, 8)).cost is None


def test_a_triton_kernel_of_one_tensor_updates_it_unless_it_makes_it() -> None:
    updated = priced("triton_poi_fused_gelu_0", t(8, 4), 32)
    assert updated.cost is not None
    assert (updated.cost.bytes(), updated.interval) == (2 * 2 * 32, None)
    for name in ("triton_poi_fused_zeros_0", "triton_poi_fused_embedding_dense_backward_9"):  # the zeros that a gradient is added to
        made = priced(name, t(8, 4), 32)
        assert made.cost is not None
        assert (made.cost.bytes(), made.interval, made.category) == (2 * 32, (2 * 32, 2 * 2 * 32), "pointwise fusion")


def test_a_python_number_does_not_widen_a_scalar() -> None:
    fp32, fp64 = dtype("fp32"), dtype("fp64")
    assert priced("aten::div", t(of=fp32), t(of=fp64)).dtype == "fp32"
    assert priced("aten::div", t(of=fp64), t(of=fp64)).dtype == "fp64"
    assert priced("aten::div", t(8, of=fp64), t(of=fp32)).dtype == "fp64"


@pytest.mark.parametrize("op", ["vllm::unified_attention_with_output", "vllm::moe_forward", "_vllm_fa3_C::fwd"])
def test_what_a_recording_cannot_tell_is_unknown(op: str) -> None:
    found = priced(op, t(8, 4), t(10**6, 16), t(10**6, 16))
    assert found.cost is None
    assert found.notes


def test_without_shapes_the_flag_that_records_them_is_named() -> None:
    found = priced("aten::mul")
    assert found.cost is None
    assert found.missing == "record_shapes=True"


def test_a_user_prices_an_op_in_three_lines() -> None:
    def doubled(call: Call) -> Cost:
        return Cost.of({"hbm": 2 * (call.all_tensors[0].bytes or 0)})

    register("mylib::double", doubled)
    try:
        assert cost("mylib::double", t(4, 8)).bytes() == 128
        with pytest.raises(UsageError, match="already has a function"):
            register("mylib::double", doubled)
    finally:
        forget("mylib::double")
    assert not has_price("mylib::double")
    assert priced("mylib::double", t(4, 8)).cost is None


sizes = st.integers(0, 5)
tensors = st.builds(
    lambda shape, number: Tensor(tuple(shape), number), st.lists(sizes, max_size=5), st.sampled_from([BF16, FP32, INT64, None])
)
arguments = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 30),
    st.floats(-1, 1),
    st.sampled_from(["", "tanh", "same"]),
    tensors,
    st.lists(tensors, max_size=3).map(tuple),
    st.lists(st.integers(-2, 4), max_size=4).map(tuple),
    st.lists(st.booleans(), max_size=3).map(tuple),
)
names = st.sampled_from([name.replace("*", "x") for name in known_ops()])
kernels = st.lists(
    st.sampled_from([Kernel(LIST, (3, 1, 1)), Kernel("index_elementwise_kernel<128, 4", (2, 1, 1)), Kernel("k")]), max_size=2
)


@given(op=names, args=st.lists(arguments, max_size=9), launches=kernels, extra=st.sampled_from([{}, {"Group size": 8}]))
def test_any_call_has_a_price_or_none_and_never_fails(op: str, args: list[object], launches: list[Kernel], extra: dict[str, int]) -> None:
    found = price(Call(op, args=tuple(args), kernels=tuple(launches), extra=extra))
    assert found.cost is None or (found.cost.bytes() or 0) >= 0


def lstm(op: str, *middle: object, directions: int = 1, mode: int = 2, weights: object = None, **more: object) -> Cost:
    """Two layers of width 4 on 5 steps of 3 sequences with 6 inputs each."""
    x, state = t(5, 3, 6), t(2 * directions, 3, 4)
    return cost(
        op, x, weights, 4, None, state, state if mode == 2 else None, *middle, mode, 4, 0, 2, False, 0.0, True, directions == 2, **more
    )


def test_a_recurrent_network_multiplies_inputs_and_states_in_every_step() -> None:
    found = lstm("aten::_cudnn_rnn")
    multiplied = 4 * 4 * (6 + 4) + 4 * 4 * (4 + 4)
    assert found.known(matrix("bf16")) == 2 * 15 * multiplied
    gates = 15 * 4 * 2
    # x, both states twice, the weights, y, and four gates and a state for backward
    assert found.known(HBM) == 2 * (90 + 2 * 2 * 24 + multiplied + 60 + 5 * gates)
    assert lstm("aten::_cudnn_rnn", mode=3).known(matrix("bf16")) == 2 * 15 * multiplied * 3 // 4
    both = lstm("aten::_cudnn_rnn", directions=2)
    assert both.known(matrix("bf16")) == 2 * 15 * 2 * (4 * 4 * (6 + 4) + 4 * 4 * (8 + 4))
    # weights by their sizes where the trace has them, which it has without a format
    listed = lstm("aten::_cudnn_rnn", weights=(Tensor((16, 6)), Tensor((16, 4)), Tensor((16, 4)), Tensor((16, 4)), Tensor((64,))))
    assert listed.known(HBM) - found.known(HBM) == 2 * 64


def test_the_gradients_of_a_recurrent_network_are_two_such_passes() -> None:
    y = t(5, 3, 4)
    back = lstm("aten::_cudnn_rnn_backward", y, y, None, None)
    assert back.known(matrix("bf16")) == 2 * lstm("aten::_cudnn_rnn").known(matrix("bf16"))
    x, state, mask = t(5, 3, 6), t(2, 3, 4), (True, False, False, False)
    frozen = cost(
        *(
            "aten::_cudnn_rnn_backward",
            x,
            None,
            4,
            None,
            state,
            state,
            y,
            y,
            None,
            None,
            2,
            4,
            0,
            2,
            False,
            0.0,
            True,
            False,
            (),
            None,
            None,
        ),
        mask,
    )
    assert 2 * frozen.known(matrix("bf16")) == back.known(matrix("bf16"))


@every(
    ("op", "args", "moved"),
    [
        # gates of input and state, the state; the next state and cell, the gates kept
        ("aten::_thnn_fused_lstm_cell", (t(3, 16), t(3, 16), t(3, 4)), 2 * (48 + 48 + 12 + 12 + 12 + 48)),
        ("aten::_thnn_fused_gru_cell", (t(3, 12), t(3, 12), t(3, 4)), 2 * (36 + 36 + 12 + 12 + 60)),
        ("aten::_thnn_fused_lstm_cell_backward_impl", (t(3, 4), None, t(3, 4), t(3, 4), t(3, 16)), 2 * (12 + 12 + 12 + 48 + 48 + 12)),
        ("aten::_thnn_fused_gru_cell_backward", (t(3, 4), t(3, 20)), 2 * (12 + 60 + 36 + 36 + 12)),
        # 6 indices in 2 bags of 8 elements: as many rows written as indices, or as the table has
        ("aten::_embedding_bag_dense_backward", (t(2, 8), t(6, of=INT64), t(6, of=INT64), None, None, 9, False, 0), 2 * (16 + 72) + 96),
        (
            "aten::_embedding_bag_per_sample_weights_backward",
            (t(2, 8), t(4, 8), t(6, of=INT64), None, t(6, of=INT64)),
            2 * (16 + 32 + 6) + 96,
        ),
        ("aten::embedding_renorm_", (t(9, 8), t(3, of=INT64), 1.0, 2.0), 2 * 2 * 24 + 24),
        ("aten::batch_norm_stats", (t(2, 3, 4), 1e-5), 2 * 24 + 2 * 4 * 3),
        ("aten::batch_norm_backward_elemt", (t(2, 3, 4), t(2, 3, 4)), 2 * 72),
        ("aten::_weight_norm_interface", (t(8, 4), t(8, 1)), 2 * (40 + 40)),
        # the gradient, weights, lengths and norms are read, the gradients of weights and of lengths written
        ("aten::_weight_norm_interface_backward", (t(8, 4), t(8, 4), t(8, 1), t(8, 1, of=FP32), 0), 2 * (72 + 40) + 32),
        ("aten::_ctc_loss", (t(10, 2, 5), t(2, 3, of=INT64)), 2 * (100 + 10 * 2 * 7) + 48),
        ("aten::_upsample_nearest_exact1d", (t(2, 3, 4), (8,)), 2 * (24 + 48)),
        ("aten::max_unpool2d", (t(1, 2, 2), t(1, 2, 2, of=INT64), (4, 4)), 2 * (4 + 16) + 32),
        ("aten::unique_consecutive", (t(5),), 10),
        ("aten::equal", (t(5), t(5)), 20 + 1),  # one boolean is written
        ("aten::isin", (t(5), t(3)), 16 + 5),
        ("aten::searchsorted", (t(100), t(5)), 210 + 40),  # a 64-bit position for each value; the boundaries come first
        ("aten::bucketize", (t(5), t(100)), 210 + 40),
        ("aten::multinomial", (t(4, 50), 3), 400 + 8 * 12),
        ("aten::histc", (t(50), 10), 100 + 20),
        ("aten::nonzero_static", (t(4, 5), 3), 40 + 8 * 3 * 2),
        ("aten::index_reduce_", (t(4, 8), 0, t(2, of=INT64), t(2, 8)), 2 * 48 + 16),
        ("aten::_jagged_to_padded_dense_forward", (t(6, 8), (t(3, of=INT64),), (5,)), 2 * (48 + 80) + 24),
        ("aten::native_channel_shuffle", (t(2, 4, 3, 3), 2), 2 * 144),
        ("aten::_stack", ((t(4), t(4)), 0), 2 * 16),
    ],
)
def test_operators_that_few_models_have(op: str, args: tuple[object, ...], moved: int) -> None:
    assert cost(op, *args).known(HBM) == moved


def test_a_traced_gradient_of_bags_writes_only_the_rows_that_were_in_them() -> None:
    args = (t(2, 8), t(6, of=INT64), t(6, of=INT64), None, None, 9, False, 0)
    traced = cost("aten::_embedding_bag_dense_backward", *args, kernels=launched("compute_grad_weight"))
    assert traced.known(HBM) == 2 * (16 + 48) + 96


def test_a_matrix_times_a_vector_is_a_product_of_one_column() -> None:
    product = price(Call("aten::mv", args=(Tensor((64, 32), FP32, (1, 64)), Tensor((32,), FP32, (1,))))).operation
    assert isinstance(product, Product)
    assert (product.m, product.k, product.n, product.turned) == (64, 32, 1, 1)


def test_factorisations_count_as_lapack_does_on_the_matrix_unit() -> None:
    a, b = t(2, 6, 6, of=FP32), t(2, 6, 3, of=FP32)
    # Cholesky: n³/3 + n²/2 + n/6; one triangle of 21 read, the matrix and a status word written.
    factor = cost("aten::linalg_cholesky_ex", a)
    assert factor["matrix/fp32"] == 2 * (72 + 18 + 1)
    assert factor["hbm"] == 2 * (21 + 36 + 1) * 4
    # LU: 2n³/3 − n²/2 + 5n/6; the inverse is the solution for the identity, by two triangles: 2n² − n for each of its columns.
    assert cost("aten::linalg_inv_ex", a).flops == 2 * ((144 - 18 + 5) + 6 * (72 - 6))
    # LU and two triangles, of which the lower has no divisions; solution, factor, pivots and a status word are written.
    solved = cost("aten::_linalg_solve_ex", a, b)
    assert solved["matrix/fp32"] == cost("aten::linalg_lu_factor_ex", a)["matrix/fp32"] + 2 * 3 * (2 * 36 - 6)
    assert solved["hbm"] == 2 * (36 + 18) * 4 + 2 * (18 + 36 + 6 + 1) * 4
    # A triangular solve reads a triangle: n² for each of three columns.
    triangular = cost("aten::linalg_solve_triangular", a, b, True)
    assert (triangular["matrix/fp32"], triangular["hbm"]) == (2 * 3 * 36, 2 * (21 + 18 + 18) * 4)
    # The older operator also returns a copy of the matrix.
    assert cost("aten::triangular_solve", b, a)["hbm"] == 2 * (21 + 18 + 18 + 36) * 4


@every(
    ("name", "category"),
    [
        ("triton_poi_fused_index_put_index_select_7", "scatter"),
        ("triton_poi_fused_embedding_dense_backward_3", "scatter"),
        ("triton_red_fused_scatter_add_1", "scatter"),
        ("triton_poi_fused_add_relu_2", "pointwise fusion"),
        ("triton_red_fused_sum_4", "reduction fusion"),
    ],
)
def test_inductors_kernels_that_scatter_are_told_by_their_names(name: str, category: str) -> None:
    assert priced(name, t(400000), t(50000, 256)).category == category


def test_a_layer_of_onednn_multiplies_as_its_weights_say() -> None:
    # 32 steps of 16 rows, 64 inputs, a state of 128 and the four gates of an LSTM; backward once for the inputs and once for the weights.
    x, state, output = Tensor((32, 16, 64), FP32), Tensor((16, 128), FP32), Tensor((32, 16, 128), FP32)
    weights = (Tensor((512, 64), FP32), Tensor((512, 128), FP32), Tensor((512,), FP32), Tensor((512,), FP32))
    flags = (False, (), 2, 128, 2, True, False, True)
    products = 2 * 32 * 16 * 512 * (64 + 128)
    held = 4 * (512 * 64 + 512 * 128 + 2 * 512)
    for trains, kept in ((False, 0), (True, 32 * 16 * 128 * 5 * 4)):
        found = price(Call("aten::mkldnn_rnn_layer", args=(x, *weights, state, state, *flags, trains)))
        assert found.cost is not None
        assert found.cost["matrix/fp32"] == products
        assert found.cost["hbm"] == held + 4 * (32 * 16 * 64 + 32 * 16 * 128 + 4 * 16 * 128) + kept
    workspace = Tensor((1000,), dtype("uint8"))
    given = (x, *weights, state, state, output, state, state, output, None, None, False, 2, 128, 2, True, True, False, (), True, workspace)
    found = price(Call("aten::mkldnn_rnn_layer_backward", args=given))
    assert found.cost is not None
    assert found.cost["matrix/fp32"] == 2 * products
    assert found.cost["hbm"] == 2 * held + 4 * (2 * 32 * 16 * 64 + 2 * 32 * 16 * 128 + 4 * 16 * 128) + 1000
    misfit = priced("aten::mkldnn_rnn_layer", x, t(256, 64, of=FP32), t(256, 128, of=FP32), None, None, state, state)
    assert "no known cell has weights of 256 rows for a state of 128" in misfit.notes[0]


@every(
    ("op", "args", "written"),
    [
        ("aten::zeros", ((4, 128), 6, 0, None, False), 4 * 4 * 128),
        ("aten::randint", (0, 1000, (4, 128), 4, None, None, False), 8 * 4 * 128),
        ("aten::full", ((4, 128), 1.5, 15, None, None, False), 2 * 4 * 128),
        ("aten::rand", ((4, 128), None, 6, None, None, False), None),  # a generator comes before the format
        ("aten::arange", (128, None, None, None, False), None),
    ],
)
def test_tensors_made_from_numbers_have_the_sizes_that_are_recorded(op: str, args: tuple[object, ...], written: int | None) -> None:
    found = price(Call(op, args=args))
    assert (found.cost["hbm"] if found.cost else None) == written
    assert not found.missing, "the shapes were recorded"


def test_only_calls_without_arguments_lack_shapes() -> None:
    assert price(Call("aten::relu")).missing == price(Call("aten::zeros")).missing == RECORD_SHAPES


def test_a_nested_tensor_whose_sizes_are_not_recorded_is_named_as_the_reason() -> None:
    found = price(Call("aten::native_layer_norm", args=(None, (256,), t(256), t(256), 1e-5)))  # the input has neither sizes nor a format
    assert not found.is_priced
    assert "nested tensors" in found.notes[0]


def test_sparse_tensors_have_no_price() -> None:
    dense, sparse = Tensor((1000, 64), FP32), Tensor((1000, 64), FP32, None, True)
    assert price(Call("aten::add_", args=(dense, dense, 1))).is_priced
    found = price(Call("aten::add_", args=(dense, sparse, 1)))
    assert not found.is_priced
    assert found.notes == ("a sparse tensor: recordings do not tell how many elements it holds",)


def test_parts_without_a_number_format_say_why_their_bytes_are_unknown() -> None:
    found = priced("aten::cat", (Tensor((4, 32)), Tensor((4, 64))), 1)
    assert not found.is_priced
    assert found.notes == ("traces do not have the number formats of lists of tensors",)
    assert not priced("aten::cat", (t(4, 32), t(4, 64)), 1).notes


def test_a_note_on_a_misfit_does_not_repeat_the_operator() -> None:
    assert priced("aten::mm", t(8, 4), None).notes == ("the recording lacks an operand's shape",)
