"""cuBLAS and oneDNN: products exact, on the right unit, without padding and workspaces; epilogues on the vector unit."""

from hypothesis import given
from hypothesis import strategies as st

from call_sites import calls, price, price_at, site_in
from every import every
from program_texts import program_text

DIMS = '"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"],"lhs_batch_dimensions":[]}'


def gemm(**fields: str) -> str:
    """A configuration of a plain product, with these fields besides."""
    return '{"gemm_backend_config":{' + ",".join([DIMS, *(f'"{name}":{value}' for name, value in fields.items())]) + "}}"


MNK = 2 * 512 * 256 * 768


@every(
    ("program", "call", "unit", "flops"),
    [
        ("gemm_formats", "custom-call.5", "matrix/bf16", MNK),
        ("gemm_formats", "custom-call.6", "matrix/tf32", MNK),  # fp32 at default precision
        ("gemm_formats", "custom-call.7", "matrix/fp16", MNK),
        ("gemm_formats", "custom-call.8", "matrix/fp64", MNK),
        ("gemm_formats", "custom-call.9", "matrix/tf32", 8 * 64 * 32 * 96),  # complex: 4 multiplies and 4 adds
        ("gemm_precisions", "custom-call.3", "matrix/fp32", MNK),  # the highest precision
        ("gemm_precisions", "custom-call.4", "matrix/tf32", 2 * 128 * 256 * 64),  # high is tf32 too, as XLA has it
        ("gemm_precisions", "custom-call.5", "matrix/tf32", 2 * 512 * 256 * 640),  # ALG_DOT_TF32_TF32_F32
        ("gemm_algorithms", "custom-call.5", "matrix/fp32", 2 * 128 * 128 * 768),  # ALG_DOT_F32_F32_F32
        ("gemm_plain", "custom-call.9", "matrix/fp32", MNK),
        ("gemm_plain", "custom-call.7", "matrix/int8", MNK),
        ("gemm_int8", "custom-call.1", "matrix/int8", MNK),
        ("gemm_fp8", "cublas-gemm.1", "matrix/fp8", MNK),
        ("gemm_fp8_scaled", "cublas-gemm.6", "matrix/fp8", 2 * 512 * 256 * 640),  # e5m2 times e4m3
        ("gemm_batched", "custom-call.2", "matrix/bf16", 2 * 8 * 128 * 512 * 256),
        ("gemm_batched", "custom-call.3", "matrix/bf16", 2 * 4 * 8 * 64 * 96 * 32),  # bqhd,bkhd->bhqk
        ("gemm_epilogues", "cublas-lt-matmul.8", "matrix/bf16", MNK),
    ],
)
def test_captured_products_are_exact_and_on_their_unit(program: str, call: str, unit: str, flops: int) -> None:
    found = calls(program)[call]
    assert (found.cost[unit], found.category) == (flops, "matmul")
    assert [str(resource) for resource in found.cost if resource.unit == "matrix"] == [unit]


def test_workspaces_are_no_traffic_and_each_operand_is_read_once() -> None:
    # 512·768 + 768·256 + 512·256 elements of 2 bytes; 33 MB of workspace are not counted.
    assert calls("gemm_formats")["custom-call.5"].cost["hbm"] == 2 * (512 * 768 + 768 * 256 + 512 * 256)


@every(("call", "unit"), [("custom-call.3", "bf16"), ("custom-call.4", "int8"), ("cublas-gemm.1", "fp8")])
def test_zeros_that_the_compiler_padded_with_are_not_counted(call: str, unit: str) -> None:
    # 333 x 777 x 555 was padded to 336 x 784 x 560 (780 x 556 for int8): the program's own product counts.
    found = calls("gemm_odd")[call]
    assert found.cost[f"matrix/{unit}"] == 2 * 333 * 777 * 555
    assert "counted: without multiplications by the compiler's zero padding" in found.notes


def test_a_decode_step_of_four_rows_padded_to_eight_counts_four() -> None:
    found = calls("decode_loop")
    flops = {name: one.cost["matrix/bf16"] for name, one in found.items()}
    # Four rows through qkv, the projection and the head.
    assert flops == {"custom-call.3": 2 * 4 * 512 * 1536, "cublas-lt-matmul.2": 2 * 4 * 512 * 512, "custom-call.4": 2 * 4 * 512 * 32000}


def test_a_pad_that_the_author_wrote_is_data() -> None:
    text = program_text("calls_cublas/a_pad_that_the_author_wrote_is_data.hlo").replace("CONFIG", gemm())
    authors, compilers = (price_at(site_in(text.replace("NAME", name))) for name in ("jit(_pad)/pad", "dot_general/padding"))
    assert authors.cost["matrix/bf16"] == 2 * 8 * 8 * 8
    assert compilers.cost["matrix/bf16"] == 2 * 6 * 8 * 8


def test_a_pad_of_anything_but_zeros_is_data() -> None:
    text = program_text("calls_cublas/a_pad_of_anything_but_zeros_is_data.hlo").replace("CONFIG", gemm())
    found = price_at(site_in(text))
    assert found.cost["matrix/bf16"] == 2 * 8 * 8 * 8


def test_a_transpose_written_as_a_bitcast_carries_the_padding_along() -> None:
    # A square matrix, padded below, seen in the other order: its contracted dimension is the padded one.
    text = program_text("calls_cublas/a_transpose_written_as_a_bitcast_carries_the_padding_along.hlo").replace("CONFIG", gemm())
    found = price_at(site_in(text))
    assert found.cost["matrix/bf16"] == 2 * 8 * 6 * 8


OUT = 512 * 256


@every(
    ("fields", "flops", "roots"),
    [
        ({}, 0, 0),
        ({"beta": "1"}, 1, 0),  # plus C
        ({"beta": "0.5"}, 2, 0),  # times β, plus C
        ({"alpha_real": "2"}, 1, 0),
        ({"epilogue": '"BIAS"'}, 1, 0),
        ({"epilogue": '"RELU"'}, 0, 0),  # a comparison is not FLOP
        ({"epilogue": '"BIAS_RELU"'}, 1, 0),
        ({"epilogue": '"GELU"'}, 8, 1),  # the tanh form
        ({"epilogue": '"BIAS_GELU"'}, 9, 1),
        ({"epilogue": '"BIAS_GELU_AUX"'}, 9, 1),
        ({"epilogue": '"SILU"'}, 3, 1),
        ({"epilogue": '"BIAS"', "beta": "1"}, 2, 0),
    ],
)
def test_epilogues_run_on_the_vector_unit(fields: dict[str, str], flops: int, roots: int) -> None:
    found = price("(bf16[512,256], s8[64])", "bf16[512,768]; bf16[768,256]", "__cublas$lt$matmul", gemm(**fields))
    assert (found.cost["vector/fp32"], found.cost["vector/transcendental"]) == (flops * OUT, roots * OUT)


def test_matrix_c_a_bias_and_auxiliary_results_are_traffic() -> None:
    found = price(
        "(bf16[512,256], bf16[512,256], s8[1024])",
        "bf16[512,768]; bf16[768,256]; bf16[512,256]; bf16[256]",
        "__cublas$lt$matmul",
        gemm(beta="1", epilogue='"BIAS_GELU_AUX"'),
    )
    assert found.cost["hbm"] == 2 * (512 * 768 + 768 * 256 + 512 * 256 + 256 + 2 * 512 * 256)


def test_older_configurations_stand_alone() -> None:
    found = price("bf16[512,256]", "bf16[512,768]; bf16[768,256]", "__cublas$gemm", "{" + DIMS + ',"alpha_real":1,"beta":0}')
    assert found.cost["matrix/bf16"] == MNK


def grouped(lhs: str, rhs: str, contracting: tuple[int, int], batch: str, ragged: int, group: str) -> str:
    dims = (
        f'"dot_dimension_numbers":{{"lhs_contracting_dimensions":["{contracting[0]}"],"rhs_contracting_dimensions":["{contracting[1]}"],'
        f'"lhs_batch_dimensions":[{batch}],"rhs_batch_dimensions":[{batch}]}}'
    )
    return (
        '{"grouped_gemm_backend_config":{"gemm_backend_config":{' + dims + '},"ragged_dot_dimension_numbers":{' + dims
        + f',"lhs_ragged_dimensions":["{ragged}"],"rhs_group_dimensions":[{group}]}}}}}}'
    )  # fmt: skip


def test_a_grouped_product_counts_each_row_once() -> None:
    # 64 rows of 9, shared among 4 groups of 9 x 8 weights.
    config = grouped("", "", (1, 1), "", 0, '"0"')
    found = price("(f16[64,8], s8[64])", "f16[64,9]; f16[4,9,8]; s32[4]", "__cublas$lt$groupedMatmul", config)
    assert found.cost["matrix/fp16"] == 2 * 64 * 9 * 8


def test_a_product_grouped_along_its_contraction_counts_each_element_once() -> None:
    # The gradient of the weights: 9 x 64 times 64 x 8, the 64 shared among 4 groups, each with a 9 x 8 result.
    config = grouped("", "", (1, 0), "", 1, "")
    found = price("(f16[4,9,8], s8[64])", "f16[9,64]; f16[64,8]; s32[4]", "__cublas$lt$groupedMatmul", config)
    assert found.cost["matrix/fp16"] == 2 * 9 * 64 * 8


def test_block_scaled_products_run_in_their_narrow_format() -> None:
    operands = "f8e4m3fn[4,16,256]; f8e4m3fn[4,32,256]; f8e8m0fnu[4,16,8]; f8e8m0fnu[4,32,8]"
    found = price("(f32[4,16,32], u8[64])", operands, "__cudnn$blockScaledDot")
    assert found.cost["matrix/fp8"] == 2 * 4 * 16 * 32 * 256
    narrow = price("f32[16,32]", "f4e2m1fn[16,256]; f4e2m1fn[32,256]; f8e4m3fn[16,16]; f8e4m3fn[32,16]", "__op$block_scaled_dot")
    assert narrow.cost["matrix/fp4"] == 2 * 16 * 32 * 256


def test_a_triangular_solve_is_n_squared_for_each_column() -> None:
    # Four systems of order 128 with 64 right-hand sides.
    assert calls("triangular_solve")["triangular-solve"].cost["matrix/fp32"] == 4 * 128**2 * 64


def test_a_configuration_that_does_not_fit_leaves_the_arithmetic_unknown_and_the_bytes_known() -> None:
    for config in ("{}", gemm(epilogue='"FOURIER"'), gemm(beta='"much"'), gemm().replace('"0"', '"7"'), gemm().replace('["1"]', '"1"')):
        found = price("(bf16[512,256], s8[64])", "bf16[512,700]; bf16[768,256]", "__cublas$lt$matmul", config)
        assert found.cost.flops is None
        assert found.cost["hbm"] == 2 * (512 * 700 + 768 * 256 + 512 * 256)


sizes = st.integers(1, 2**12)


@given(batch=sizes, m=sizes, n=sizes, k=sizes, transposed=st.booleans())
def test_flops_are_2bmnk_whatever_the_order_of_the_dimensions(batch: int, m: int, n: int, k: int, transposed: bool) -> None:
    left, contracted = (f"bf16[{batch},{k},{m}]", 1) if transposed else (f"bf16[{batch},{m},{k}]", 2)
    batched = '"lhs_batch_dimensions":["0"],"rhs_batch_dimensions":["0"]'
    dims = f'{{"lhs_contracting_dimensions":["{contracted}"],"rhs_contracting_dimensions":["2"],{batched}}}'
    config = f'{{"gemm_backend_config":{{"dot_dimension_numbers":{dims}}}}}'
    found = price(f"(bf16[{batch},{m},{n}], s8[64])", f"{left}; bf16[{batch},{n},{k}]", "__cublas$lt$matmul", config)
    assert found.cost["matrix/bf16"] == 2 * batch * m * n * k


def test_a_product_by_onednn_counts_what_is_fused_behind_it() -> None:
    config = '{"onednn_matmul_config":{"transpose_b":true,"fusions":{"ops":["BIAS","GELU_TANH"]}}}'
    found = price("bf16[64,32]", "bf16[64,96]; bf16[32,96]; bf16[32]", "__onednn$matmul", config, platform="cpu")
    assert (found.cost["matrix/bf16"], found.cost["vector/fp32"]) == (2 * 64 * 32 * 96, 9 * 64 * 32)
    plain = price("f32[64,32]", "f32[64,96]; f32[96,32]", "__onednn$matmul", platform="cpu")
    assert plain.cost["matrix/fp32"] == 2 * 64 * 32 * 96  # no tf32 on a CPU


@every("start", [0, 1])
def test_a_convolution_by_onednn_leaves_padding_out_whichever_number_counting_starts_from(start: int) -> None:
    def numbers(*values: int) -> str:
        return "[" + ",".join(f'"{value + start}"' for value in values) + "]"

    data = f'{{"data":{{"batch_dim":"{start}","feature_dim":"{3 + start}","spatial_dims":{numbers(1, 2)}}}}}'
    taps = f'{{"filter":{{"input_feature_dim":"{2 + start}","output_feature_dim":"{3 + start}","spatial_dims":{numbers(0, 1)}}}}}'
    window = f'{{"strides":{numbers(1, 1)},"pad_left":{numbers(1, 1)},"pad_right":{numbers(1, 1)},"window_dilations":{numbers(1, 1)}}}'
    config = f'{{"onednn_conv_config":{{"dims":"4","input":{data},"kernel":{taps},"output":{data},"window":{window}}}}}'
    found = price("f32[2,5,5,8]", "f32[2,5,5,4]; f32[3,3,4,8]", "__onednn$convolution", config, platform="cpu")
    # Along each axis 5 outputs of 3 taps, two of which fall off: 13 pairs.
    assert found.cost["matrix/fp32"] == 2 * 2 * 4 * 8 * 13 * 13
