"""Fused attention by cuDNN and Transformer Engine: the pairs that meet, two products forward and five backward."""

import gzip
from fractions import Fraction
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from call_sites import calls, price
from every import every
from roofline.dtypes import dtype
from roofline.hlo.price.calls import price_call
from roofline.hlo.price.types import Site
from roofline.hlo.read import parse
from roofline.ops.attention import Attention

SQUARE = 1024 * 1024
HEADS = 2 * 8  # two sequences of eight heads


def test_causal_attention_and_a_pallas_kernel_of_one_program_are_exact() -> None:
    path = Path(__file__).parent / "data" / "hlo" / "h200_custom.hlo.gz"
    module = parse(gzip.decompress(path.read_bytes()).decode(), path.name)
    entry = module.entry_computation
    found = [price_call(Site(module, entry, one)) for one in entry if one.opcode == "custom-call"]
    # 4·B·H·S²·d/2 with B 4, H 16, S 4096, d 128; the Pallas kernel multiplies and adds once over 2²⁶ elements.
    assert [one.cost.known("matrix/bf16") for one in found if one] == [274_877_906_944, 0]
    assert [one.cost.known("vector/bf16") for one in found if one] == [0, 2 * 2**26]
    assert [one.cost["hbm"] for one in found if one] == [4 * 2 * 4 * 4096 * 16 * 128, 6 * 2**26]


@every(
    ("program", "call", "unit", "expected"),
    [
        ("attention_forward", "dot_product_attention_fwd.8", "bf16", 4 * HEADS * SQUARE * 128 // 2),  # causal
        ("attention_forward", "dot_product_attention_fwd.12", "bf16", 4 * HEADS * 1024 * 512 * 64),  # grouped, 512 keys
        ("attention_causal_gradient", "dot_product_attention_bwd.8", "bf16", 10 * HEADS * SQUARE * 128 // 2),  # five products
        ("attention_grouped_gradient", "dot_product_attention_bwd.8", "bf16", 10 * HEADS * 1024 * 512 * 64),
        ("attention_bias", "dot_product_attention_fwd.13", "bf16", 4 * HEADS * SQUARE * 128),
        ("attention_bias", "dot_product_attention_bwd.9", "bf16", 10 * HEADS * SQUARE * 128),
        ("attention_dropout", "dot_product_attention_fwd.5", "bf16", 4 * HEADS * SQUARE * 128 // 2),
        ("attention_dropout", "dot_product_attention_bwd.8", "bf16", 10 * HEADS * SQUARE * 128 // 2),
        ("attention_fp8", "dot_product_attention_fp8_fwd.7", "fp8", 4 * HEADS * SQUARE * 128 // 2),
        ("attention_fp8", "dot_product_attention_fp8_bwd.12", "fp8", 10 * HEADS * SQUARE * 128 // 2),
        ("attention_windows", "dot_product_attention_fwd.16", "bf16", 4 * HEADS * SQUARE * 128 // 2),  # padded and causal
        ("attention_windows", "dot_product_attention_fwd.20", "bf16", 4 * HEADS * SQUARE * 128),  # padded
        # 256 keys up to its own for each query: a band of 256 less the corner where there are fewer.
        ("attention_windows", "dot_product_attention_fwd.12", "bf16", 4 * HEADS * (256 * 1024 - 256 * 256 // 2) * 128),
        ("attention_decode", "dot_product_attention_fwd.4", "bf16", 4 * HEADS * 1 * 4096 * 64),
        ("attention_paged", "dot_product_attention_fwd.4", "bf16", 4 * HEADS * 1 * (32 * 32) * 64),  # 32 pages of 32 keys
    ],
)
def test_captured_attention_is_exact(program: str, call: str, unit: str, expected: int) -> None:
    found = calls(program)[call]
    assert (found.cost[f"matrix/{unit}"], found.category) == (expected, "attention")


def test_attention_reads_q_k_v_and_writes_the_output_and_what_backward_needs() -> None:
    found = calls("attention_causal_gradient")
    one = 2 * 2 * 1024 * 8 * 128  # bytes of q, and of k, v and the output
    stats = 4 * 2 * 8 * 1024
    assert found["dot_product_attention_fwd.5"].cost["hbm"] == 4 * one + stats
    # q, k, v, output and its gradient in, with the row sums; three gradients out; 8 MB of workspace are not counted.
    assert found["dot_product_attention_bwd.8"].cost["hbm"] == 8 * one + stats


def test_softmax_runs_on_the_vector_unit() -> None:
    found = calls("attention_forward")["dot_product_attention_fwd.12"]
    pairs = HEADS * 1024 * 512
    # Scale, minus the largest, sum, divide: 4 FLOP; an exp.
    assert (found.cost["vector/fp32"], found.cost["vector/transcendental"]) == (4 * pairs, pairs)


def test_notes_say_what_was_assumed() -> None:
    assert calls("attention_forward")["dot_product_attention_fwd.8"].notes == ("counted: half the square (causal)",)
    assert any("assuming full sequences" in note for note in calls("attention_windows")["dot_product_attention_fwd.20"].notes)


def test_a_mask_nobody_knows_leaves_the_arithmetic_unknown() -> None:
    def config(**fields: str) -> str:
        parts = {"intermediate_tensor_shape": '{"dimensions":["1","2","4","4"]}', "mask_type": '"CAUSAL"', **fields}
        return '{"cudnn_fmha_backend_config":{' + ",".join(f'"{name}":{value}' for name, value in parts.items()) + "}}"

    shapes = ("(bf16[1,2,4,8], u8[0])", "bf16[1,4,2,8]; bf16[1,4,2,8]; bf16[1,4,2,8]", "__cudnn$fmhaSoftmax")
    assert price(*shapes, config()).cost["matrix/bf16"] == 4 * 2 * 8 * 8
    for wrong in (config(mask_type='"STRIPES"'), config(intermediate_tensor_shape="{}"), "{}", config(sliding_window_length='"x"')):
        found = price(*shapes, wrong)
        assert (found.cost.flops, found.cost["hbm"]) == (None, 4 * 2 * 64)


def engine(target: str, **fields: int) -> str:
    values = {
        "attn_heads": 8,
        "input_batch": 2,
        "q_max_seqlen": 1024,
        "kv_max_seqlen": 1024,
        "qk_head_dim": 128,
        "v_head_dim": 64,
        "mask_type": 2,
        "window_size_left": -1,
        "bias_type": 0,
        **fields,
    }
    return "{" + ", ".join(f"{name} = {value} : i64" for name, value in values.items()) + ", dropout_probability = 0.000000e+00 : f64}"


@every(
    ("fields", "pairs"),
    [
        ({}, SQUARE // 2),
        ({"mask_type": 0}, SQUARE),
        ({"mask_type": 4, "q_max_seqlen": 256}, 256 * 1024 - 256 * 256 // 2),  # aligned with the last key
        ({"mask_type": 2, "q_max_seqlen": 256}, 256 * 256 // 2),  # aligned with the first key
        ({"window_size_left": 127}, 128 * 1024 - 128 * 128 // 2),
    ],
)
def test_transformer_engine_says_all_sizes_in_its_configuration(fields: dict[str, int], pairs: int) -> None:
    forward = price("(bf16[2], f32[2], u8[9])", "bf16[2]; bf16[2]; bf16[2]", "te_fused_attn_forward_ffi", engine("", **fields))
    assert forward.cost["matrix/bf16"] == 2 * HEADS * pairs * (128 + 64)
    backward = price("(bf16[2], f32[2], u8[9])", "bf16[2]; bf16[2]; bf16[2]", "te_fused_attn_backward_ffi", engine("", **fields))
    assert backward.cost["matrix/bf16"] == 2 * HEADS * pairs * (3 * 128 + 2 * 64)


sizes = st.integers(2, 40)


@given(t=sizes, s=sizes, window=st.integers(0, 50), bottom_right=st.booleans())
def test_the_area_of_the_mask_is_the_number_of_pairs_but_for_the_diagonals(t: int, s: int, window: int, bottom_right: bool) -> None:
    one = Attention(
        batch=1, heads=1, queries=t, keys=s, key_width=1, value_width=1, number=dtype("bf16"), causal=True, bottom_right=bottom_right,
        window=window,
    )  # fmt: skip
    before = s - t if bottom_right else 0
    seen = sum(key <= query + before and (not window or key > query + before - window) for query in range(t) for key in range(s))
    # Cells on the two edges of the band are counted half or not at all: at most one a query and edge.
    assert abs(Fraction(one.scored) - seen) <= t
    assert 0 <= one.scored <= t * s


@given(t=sizes, window=st.integers(1, 50))
def test_a_square_mask_is_half_and_a_window_as_long_as_the_square_is_none(t: int, window: int) -> None:
    one = Attention(batch=1, heads=1, queries=t, keys=t, key_width=1, value_width=1, number=dtype("bf16"), causal=True, window=window)
    w = min(window, t)
    assert one.scored == Fraction(2 * w * t - w * w, 2)
