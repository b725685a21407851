"""cuDNN convolutions, norms and recurrent layers: exact from window, labels and groups, without padding and workspaces."""

from math import prod

from hypothesis import given
from hypothesis import strategies as st

from call_sites import calls, price, price_at, site_in
from every import every
from program_texts import program_text
from roofline.formulas.convolution import Axis, convolution


def flops(batch: int, ins: int, outs: int, *axes: Axis, groups: int = 1) -> float:
    """The formula's count: 2 · batch · out · in/groups · valid taps."""
    found = convolution(batch, ins, outs, axes, groups=groups).cost.flops
    assert found is not None
    return float(found)


SAME_3 = Axis.same(56, 3)
DOWN_3 = Axis.same(56, 3, stride=2)  # one zero after the last input: cuDNN cannot say that, so the compiler pads
STEM = Axis.same(112, 7, stride=2)


@every(
    ("program", "call", "unit", "expected"),
    [
        ("conv_forward", "cudnn-conv.3", "bf16", flops(8, 64, 128, SAME_3, SAME_3)),
        (
            "conv_forward",
            "cudnn-conv.4",  # padded and transposed to NHWC by the compiler; fp32
            "tf32",
            flops(4, 32, 48, Axis(size=29, kernel=5, stride=2, low=2, high=1), Axis(size=31, kernel=3, stride=3, high=2)),
        ),
        ("conv_grouped", "cudnn-conv.4", "bf16", flops(8, 64, 128, *[Axis.same(28, 3, stride=2)] * 2, groups=4)),
        ("conv_grouped", "cudnn-conv.5", "tf32", flops(4, 32, 32, *[Axis.same(30, 3)] * 2, groups=32)),  # depthwise
        ("conv_grouped", "cudnn-conv.6", "tf32", flops(4, 16, 24, *[Axis.same(30, 3, dilation=2)] * 2)),
        ("conv_gradients", "cudnn-conv-bw-filter.1", "bf16", flops(8, 64, 128, SAME_3, SAME_3)),
        ("conv_gradients", "cudnn-conv-bw-input.1", "bf16", flops(8, 64, 128, SAME_3, SAME_3)),
        ("conv_strided_gradients", "cudnn-conv-bw-filter.1", "tf32", flops(8, 16, 32, *[Axis.same(33, 5, stride=2)] * 2)),
        ("conv_strided_gradients", "cudnn-conv-bw-input.1", "tf32", flops(8, 16, 32, *[Axis.same(33, 5, stride=2)] * 2)),
        ("conv_asymmetric_gradients", "cudnn-conv-bw-filter.2", "bf16", flops(8, 64, 128, DOWN_3, DOWN_3)),
        ("conv_asymmetric_gradients", "cudnn-conv-bw-input.2", "bf16", flops(8, 64, 128, DOWN_3, DOWN_3)),  # a slice is kept
        ("conv_dilated_gradients", "cudnn-conv.2", "tf32", flops(4, 16, 24, *[Axis.same(30, 3, dilation=2)] * 2)),
        ("conv_dilated_gradients", "cudnn-conv.3", "tf32", flops(4, 16, 24, *[Axis.same(30, 3, dilation=2)] * 2)),
        ("conv_grouped_gradients", "cudnn-conv-bw-filter.2", "tf32", flops(8, 32, 64, *[Axis.same(32, 3, stride=2)] * 2, groups=4)),
        ("conv_grouped_gradients", "cudnn-conv.2", "tf32", flops(8, 32, 64, *[Axis.same(32, 3, stride=2)] * 2, groups=4)),
        ("conv_ranks", "cudnn-conv.3", "tf32", flops(4, 8, 16, *[Axis.same(16, 3)] * 3)),
        ("conv_ranks", "cudnn-conv.4", "tf32", flops(4, 8, 16, Axis.same(100, 7, stride=2))),
        ("conv_channels", "cudnn-conv.7", "bf16", flops(8, 3, 64, STEM, STEM)),
        ("conv_channels", "cudnn-conv.8", "tf32", flops(8, 3, 20, *[Axis.same(30, 3)] * 2)),
        ("conv_channels", "cudnn-conv.9", "int8", flops(4, 30, 50, *[Axis.same(14, 3)] * 2)),  # 30 -> 32 and 50 -> 52 channels
        ("conv_int8", "cudnn-conv.3", "int8", flops(8, 64, 128, *[Axis.same(28, 3)] * 2)),
        ("conv_fp8", "cudnn-conv.2", "fp8", flops(8, 64, 128, *[Axis.same(28, 3)] * 2)),
        # Each of 28 x 28 outputs of a transposed convolution meets one tap along each axis; the holes were padded in.
        ("conv_transposed", "cudnn-conv.2", "tf32", 2 * 8 * 64 * 32 * 28 * 28),
    ],
)
def test_captured_convolutions_are_exact_and_on_their_unit(program: str, call: str, unit: str, expected: float) -> None:
    found = calls(program)[call]
    assert (found.cost[f"matrix/{unit}"], found.category) == (expected, "convolution")


def test_a_convolution_reads_and_writes_each_array_once_and_no_workspace() -> None:
    found = calls("conv_gradients")["cudnn-conv-bw-filter.1"]
    # x and the gradient of the output in, the gradient of the kernel out, in bf16; 3.8 MB of workspace are not counted.
    assert found.cost["hbm"] == 2 * (8 * 56 * 56 * 64 + 8 * 56 * 56 * 128 + 3 * 3 * 64 * 128)


OUT = 8 * 28 * 28 * 128


@every(
    ("call", "each"),
    [
        ("cudnn-conv-bias-activation.9", 1),  # a bias; a comparison is not FLOP
        ("cudnn-conv-bias-activation.11", 2),  # a bias of zeros and a side input
    ],
)
def test_fused_biases_and_side_inputs_run_on_the_vector_unit(call: str, each: int) -> None:
    assert calls("conv_bias_relu")[call].cost["vector/fp32"] == each * OUT


def test_a_convolution_graph_counts_its_pointwise_nodes() -> None:
    # Two scales behind the convolution.
    assert calls("conv_fp8")["cudnn-conv.2"].cost["vector/fp32"] == 2 * OUT


WINDOW = "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_o01i->b01f"


@every(
    ("fields", "each", "roots"),
    [
        ('"activation_mode":"kRelu"', 1, 0),
        ('"activation_mode":"kSigmoid"', 3, 1),
        ('"activation_mode":"kTanh"', 1, 1),
        ('"activation_mode":"kElu"', 3, 1),
        ('"activation_mode":"kLeakyRelu"', 2, 0),
        ('"activation_mode":"kNone","conv_result_scale":2', 2, 0),
        ('"activation_mode":"kNone","side_input_scale":0.5', 3, 0),
    ],
)
def test_activations_and_scales(fields: str, each: int, roots: int) -> None:
    config = '{"cudnn_conv_backend_config":{' + fields + "}}"
    operands = "f16[1,4,4,8]; f16[16,3,3,8]; f16[16]"
    found = price("(f16[1,4,4,16], u8[0])", operands, "__cudnn$convBiasActivationForward", config, WINDOW)
    made = 4 * 4 * 16
    assert (found.cost["vector/fp32"], found.cost["vector/transcendental"]) == (each * made, roots * made)


def test_the_highest_precision_runs_in_fp32() -> None:
    attributes = WINDOW + ", operand_precision={highest,highest}"
    found = price("(f32[1,4,4,16], u8[0])", "f32[1,4,4,8]; f32[16,3,3,8]", "__cudnn$convForward", "", attributes)
    assert found.cost["matrix/fp32"] == flops(1, 8, 16, Axis.same(4, 3), Axis.same(4, 3))


def test_a_configuration_nobody_knows_leaves_the_arithmetic_unknown() -> None:
    for attributes, config in [
        ("window={size=3x3 pad=1_1x1_1}", ""),
        ("window={size=3 pad=1_1}, dim_labels=b01f_o01i->b01f", ""),
        (WINDOW, '{"cudnn_conv_backend_config":{"activation_mode":"kSurprise"}}'),
        (WINDOW, '{"cudnn_conv_backend_config":{"serialized_graph":"1:[f32]conv();2:[f32]fourier(1);"}}'),
    ]:
        found = price("(f32[1,4,4,16], u8[0])", "f32[1,4,4,8]; f32[16,3,3,8]", "__cudnn$convForward", config, attributes)
        assert (found.cost.flops, found.cost["hbm"]) == (None, 4 * (4 * 4 * 8 + 16 * 9 * 8 + 4 * 4 * 16))


def test_a_gradient_that_more_than_slices_use_counts_in_full() -> None:
    text = program_text("calls_cudnn/a_gradient_that_more_than_slices_use_counts_in_full.hlo")
    sliced = price_at(site_in(text.replace("ROOTS", "(f32[1,4,8]) tuple(part)")))
    used = price_at(site_in(text.replace("ROOTS", "(f32[1,4,8], f32[1,5,8]) tuple(part, dx)")))
    # Two outputs of three taps; the fifth input, which the second output's last tap meets, is cut off.
    assert sliced.cost["matrix/tf32"] == 2 * 4 * 8 * 5
    assert used.cost["matrix/tf32"] == 2 * 4 * 8 * 6


axes = st.builds(
    Axis,
    size=st.integers(1, 30),
    kernel=st.integers(1, 7),
    stride=st.integers(1, 4),
    low=st.integers(0, 6),
    high=st.integers(0, 6),
    dilation=st.integers(1, 3),
)


@given(axes=st.lists(axes.filter(lambda axis: axis.out > 0), min_size=1, max_size=3), padded=st.booleans(), groups=st.integers(1, 3))
def test_padding_in_the_window_or_in_the_operand_gives_the_formulas_count(axes: list[Axis], padded: bool, groups: int) -> None:
    digits = "".join(str(number) for number in range(len(axes)))
    pads = "x".join(f"{axis.low}_{axis.high}" for axis in axes)
    window = "size=" + "x".join(str(axis.kernel) for axis in axes) + " stride=" + "x".join(str(axis.stride) for axis in axes)
    window += " rhs_dilate=" + "x".join(str(axis.dilation) for axis in axes) + ("" if padded else f" pad={pads}")
    ins, outs = 2 * groups, 3 * groups
    spatial = ",".join(str(axis.size) for axis in axes)
    larger = ",".join(str(axis.size + axis.low + axis.high) for axis in axes)
    made = ",".join(str(axis.out) for axis in axes)
    taps = ",".join(str(axis.kernel) for axis in axes)
    text = f"""HloModule drawn
ENTRY main {{
  x = f16[2,{spatial},{ins}] parameter(0)
  w = f16[{outs},{taps},2] parameter(1)
  zero = f16[] constant(0)
  wide = f16[2,{larger},{ins}] pad(x, zero), padding=0_0x{pads}x0_0
  ROOT call = (f16[2,{made},{outs}], u8[8]) custom-call({"wide" if padded else "x"}, w), window={{{window}}}, \
dim_labels=b{digits}f_o{digits}i->b{digits}f, feature_group_count={groups}, custom_call_target="__cudnn$convForward"
}}
"""
    found = price_at(site_in(text))
    assert found.cost["matrix/fp16"] == 2 * 2 * 2 * outs * prod(axis.taps for axis in axes)


def test_a_layer_norm_counts_as_the_formula_does() -> None:
    found = calls("layer_norm")["custom-call"]
    # 10 FLOP an element and a root a row; x, scale, shift in and the result out.
    assert (found.cost["vector/fp32"], found.cost["vector/transcendental"]) == (10 * 64 * 1024, 64)
    assert found.cost["hbm"] == 4 * (2 * 64 * 1024 + 2 * 1024)
    backward = price(
        "(f32[2,4,1,1], f32[1,4,1,1], f32[1,4,1,1], u8[64])",
        "f32[2,4,1,1]; f32[1,4,1,1]; f32[2,4,1,1]; f32[2,1,1,1]; f32[2,1,1,1]",
        "__cudnn$norm",
        '{"cudnn_norm_backend_config":{"epsilon":0.001,"kind":"LAYER_BWD"}}',
    )
    assert backward.cost["vector/fp32"] == 13 * 8


def test_an_lstm_multiplies_inputs_and_states_by_four_gates() -> None:
    found = calls("recurrent")["rnn_fwd.6"]
    # 16 sequences of 32 steps; 64 inputs and 128 states make 4 x 128 gates.
    assert found.cost["matrix/tf32"] == 2 * 16 * 32 * 4 * 128 * (64 + 128)
    backward = price(
        "(f32[16,32,64], f32[1,16,128], f32[1,16,128], f32[99328])",
        "f32[16,32,128]; f32[1,16,128]; f32[1,16,128]; f32[16,32,64]; f32[1,16,128]; f32[1,16,128]; f32[99328]",
        "cudnn_rnn_bwd_ffi",
    )
    assert backward.cost["matrix/tf32"] == 2 * found.cost.known("matrix/tf32")
