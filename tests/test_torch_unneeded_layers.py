"""Layers of PyTorch programs that could be written with less work: attention, lookups, caches, checkpoints, experts, convolutions."""

from pathlib import Path

import pytest

from torch_writer import BACKWARD, Kernels, TorchTrace, findings_on, report_on, steps_of

HEADS, LONG, DEPTH = 64, 1024, 64
SCORES = (4, 16, LONG, LONG)


@pytest.mark.parametrize(("product", "names"), [("aten::bmm", True), ("aten::mm", False)])
def test_a_softmax_between_batched_products_is_attention_that_stores_its_scores(tmp_path: Path, product: str, names: bool) -> None:
    def attention(kernels: Kernels) -> None:
        query, key = (HEADS, LONG, DEPTH), (HEADS, DEPTH, LONG)
        kernels.op(product, [query, key] if names else [(HEADS * LONG, DEPTH), (DEPTH, LONG)])
        kernels.op("aten::mul", [SCORES], values=["0.125"])
        kernels.op("aten::_softmax", [SCORES], values=["-1", "False"])
        kernels.op(product, [(HEADS, LONG, LONG), query] if names else [(HEADS * LONG, LONG), (LONG, DEPTH)])

    mine = findings_on(steps_of(attention), tmp_path, "stored-attention")
    assert bool(mine) == names
    if names:
        assert "stores attention scores in memory" in mine[0].message
        # All but the FLOP of the products and of the softmax, which take 9 and 15 µs each at least.
        assert mine[0].saving_per_step_s == pytest.approx(340e-6, rel=0.05)
        assert len(mine[0].ops) == 4


def test_attention_that_was_compiled_without_a_fused_kernel_stores_its_scores_too(tmp_path: Path) -> None:
    def attention(kernels: Kernels) -> None:  # compiled products have their result as the last argument
        kernels.op("aten::bmm", [(HEADS, LONG, DEPTH), (HEADS, DEPTH, LONG), (HEADS, LONG, LONG)])
        kernels.op("triton_per_fused__softmax_add_mul_3", [SCORES, SCORES])
        kernels.op("aten::bmm", [(HEADS, LONG, LONG), (HEADS, LONG, DEPTH), (HEADS, LONG, DEPTH)])

    (found,) = findings_on(steps_of(attention), tmp_path, "stored-attention")
    assert len(found.ops) == 3


def test_a_softmax_of_logits_is_no_attention(tmp_path: Path) -> None:
    def loss(kernels: Kernels) -> None:
        kernels.op("aten::mm", [(8192, 1024), (1024, 32000)])
        kernels.op("aten::_softmax", [(8, 1024, 32000)], values=["-1", "False"])
        kernels.op("aten::mm", [(8192, 32000), (32000, 1024)])

    assert not findings_on(steps_of(loss), tmp_path, "stored-attention")


@pytest.mark.parametrize("mask", [(LONG, LONG), (4, 1, LONG, LONG)])
def test_the_half_of_causal_scores_is_masked(tmp_path: Path, mask: tuple[int, ...]) -> None:
    strides = [(16 * LONG * LONG, LONG * LONG, LONG, 1), (0, LONG * LONG, LONG, 1)[-len(mask) :]]  # expanded over the batch

    def attention(kernels: Kernels) -> None:
        kernels.op("aten::triu", [(LONG, LONG)], values=["1"])
        kernels.op("aten::bmm", [(HEADS, LONG, DEPTH), (HEADS, DEPTH, LONG)])
        kernels.op("aten::add", [SCORES, mask], strides=strides)
        kernels.op("aten::_softmax", [SCORES], values=["-1", "False"])
        kernels.op("aten::bmm", [(HEADS, LONG, LONG), (HEADS, LONG, DEPTH)])

    products = [op for op in report_on(steps_of(attention), tmp_path).ops if op.name == "aten::bmm"]
    assert [op.unneeded["masked"] for op in products] == [3 * HEADS * LONG * LONG * DEPTH] * 2  # half of 2·b·m·n·k


TOKENS, WORDS, WIDTH = 4096, 32000, 1024


@pytest.mark.parametrize(
    ("maker", "tensors", "names"),
    [
        ("aten::scatter_", [(TOKENS, WORDS), (TOKENS, 1)], True),
        ("aten::eq", [(TOKENS, 1), (WORDS,)], True),
        ("aten::eq", [(TOKENS, WORDS), (TOKENS, WORDS)], False),
        ("aten::relu", [(TOKENS, WORDS)], False),
    ],
)
def test_a_product_by_rows_with_one_element_each_is_a_lookup(
    tmp_path: Path, maker: str, tensors: list[tuple[int, ...]], names: bool
) -> None:
    def embedding(kernels: Kernels) -> None:
        kernels.op(maker, tensors, values=["1"])
        kernels.op("aten::copy_", [(TOKENS, WORDS), (TOKENS, WORDS)], values=["False"])
        kernels.op("aten::mm", [(TOKENS, WORDS), (WORDS, WIDTH)], sequence_number=7)
        kernels.trace.op("autograd::engine::evaluate_function: MmBackward0", kernels.at, 20, thread=BACKWARD, sequence_number=7)
        kernels.op("aten::mm", [(WORDS, TOKENS), (TOKENS, WIDTH)], thread=BACKWARD)

    mine = findings_on(steps_of(embedding), tmp_path, "one-hot-product")
    assert bool(mine) == names
    if names:
        assert "a gather would do" in mine[0].message or "a scatter-add would do" in mine[0].message
        assert mine[0].saving_per_step_s == pytest.approx(400e-6, rel=0.15)


@pytest.mark.parametrize(("added", "names"), [(1, True), (2048, False)])
def test_a_cache_that_is_copied_to_append_to_it(tmp_path: Path, added: int, names: bool) -> None:
    def decode(kernels: Kernels) -> None:
        sizes = [[16, 16, 4096, 128], [16, 16, added, 128]]
        args = {"Input Dims": [sizes, []], "Input type": ["TensorList", "Scalar"], "Concrete Inputs": ["", "2"]}
        strides = [[[8388608, 524288, 128, 1], [2048, 128, 128, 1]], []]
        kernels.trace.add("cpu_op", "aten::cat", kernels.at, 5, 100, 1, {"External id": 1, **args, "Input Strides": strides})
        kernels.trace.run("cat", launched=kernels.at + 1, start=kernels.ran, dur=200)

    mine = findings_on(steps_of(decode), tmp_path, "missing-donation")
    assert bool(mine) == names
    if names:
        assert "append 1/4096 of it" in mine[0].message
        assert mine[0].saving_per_step_s == pytest.approx(200e-6, rel=0.01)


@pytest.mark.parametrize("how", ["frame", "sequence", "neither"])
def test_a_forward_pass_in_a_backward_pass_is_a_recomputation(tmp_path: Path, how: str) -> None:
    """A checkpoint runs it from Python, or in a function of its own; without calls of Python, gradients are recorded of it."""
    sizes = [(8192, 4096), (4096, 4096)]

    def layer(kernels: Kernels) -> None:
        if how == "frame":
            kernels.trace.frame("model.py(22): forward", kernels.at - 0.9, 9)
            kernels.trace.frame("torch/utils/checkpoint.py(300): checkpoint", kernels.at - 0.5, 8)
        kernels.op("aten::mm", sizes, sequence_number=3)
        at = kernels.at
        kernels.trace.op("autograd::engine::evaluate_function: MmBackward0", at - 1, 40, thread=BACKWARD, sequence_number=3)
        if how == "frame":
            kernels.trace.frame("torch/utils/checkpoint.py(1154): unpack_hook", at - 0.5, 8, thread=BACKWARD)
        kernels.op("aten::mm", sizes, thread=BACKWARD, **({"sequence_number": 1} if how == "sequence" else {}))
        kernels.op("aten::mm", [(4096, 8192), (8192, 4096)], thread=BACKWARD)

    mine = findings_on(steps_of(layer), tmp_path, "recomputation")
    assert bool(mine) == (how != "neither")
    if mine:
        assert len(mine[0].ops) == 1
        assert mine[0].saving_per_step_s == pytest.approx(100e-6, rel=0.01)
        assert ("requested by the checkpoint in model.py:22" in mine[0].message) == (how == "frame")


@pytest.mark.parametrize(
    ("outer", "is_told"),
    [
        ("aten::reshape", True),
        ("aten::group_norm", False),
        ("NativeGroupNormBackward0", False),
        ("aten::convolution_backward", True),
        ("compiled", False),
    ],
)
def test_copies_for_a_layout_that_the_program_does_not_choose(tmp_path: Path, outer: str, is_told: bool) -> None:
    """A norm takes one layout only; for a convolution that was compiled, the compiler chose the layouts."""
    shape, turned = (32, 256, 64, 64), (1048576, 1, 16384, 256)

    def layer(kernels: Kernels) -> None:
        kernels.op("aten::mm", [(8192, 4096), (4096, 4096)])
        for _ in range(4):
            if outer == "compiled":
                kernels.trace.annotation("## Call CompiledFxGraph abc ##", kernels.at - 2, 9)
            kernels.trace.op("aten::convolution_backward" if outer == "compiled" else outer, kernels.at - 1, 8, [shape])
            kernels.op("aten::copy_", [shape, shape], strides=[(1048576, 4096, 64, 1), turned])

    assert bool(findings_on(steps_of(layer), tmp_path, "layout-copies")) == is_told


@pytest.mark.parametrize("norm", ["aten::group_norm", "aten::instance_norm", "aten::layer_norm"])
def test_copies_from_channels_last_for_norms_and_back(tmp_path: Path, norm: str) -> None:
    shape, first, last = (32, 256, 64, 64), (1048576, 4096, 64, 1), (1048576, 1, 16384, 256)

    def layer(kernels: Kernels) -> None:
        for outer, strides in ((norm, [first, last]), ("aten::_convolution", [last, first])):
            kernels.trace.op(outer, kernels.at - 1, 8, [shape])
            kernels.op("aten::copy_", [shape, shape], strides=strides)

    (found,) = findings_on(steps_of(layer), tmp_path, "layout-copies")
    assert found.saving_per_step_s == pytest.approx(200e-6, rel=0.01)
    is_told = norm != "aten::layer_norm"
    assert ("for group or instance norms, and back for convolutions" in found.message) == is_told
    assert (found.levers[0] == "torch.compile(model)") == is_told


@pytest.mark.parametrize(
    ("source", "operands", "is_told"),
    [
        ("signed char", [(16, 4096), (4096, 4096)], True),
        ("c10::Float8_e4m3fn", [(16, 4096), (4096, 4096)], True),
        ("float", [(16, 4096), (4096, 4096)], False),  # no quantized weights
        ("unsigned char", [(4096, 4096), (4096, 16)], False),  # data, such as images: the first operand
    ],
)
def test_weights_that_are_dequantized_for_every_product(
    tmp_path: Path, source: str, operands: list[tuple[int, ...]], is_told: bool
) -> None:
    weights = (4096, 4096)

    def layer(kernels: Kernels) -> None:
        kernels.op("aten::copy_", [weights, weights], types=["c10::BFloat16", source])
        kernels.op("aten::mul", [weights, (4096, 1)])
        kernels.op("aten::mm", operands)

    mine = [one for one in findings_on(steps_of(layer), tmp_path, "wide-format") if "dequantizes weights" in one.message]
    assert bool(mine) == is_told
    if mine:
        # Both passes, and half of the product, which then reads one byte for each of 4096 × 4096 weights instead of two.
        assert mine[0].saving_per_step_s == pytest.approx(250e-6, rel=0.01)
        assert len(mine[0].ops) == 3


@pytest.mark.parametrize(
    ("shape", "saved_s"),
    [
        ((2, 8, 16, 1024, 128), 250e-6),  # keys and values in one tensor: attention reads half the bytes
        ((8, 16, 1024, 128), 225e-6),  # keys alone: three quarters of them
        ((8, 16, 4096, 128), 0),  # something else
    ],
)
def test_a_cache_that_is_dequantized_before_attention_reads_it(tmp_path: Path, shape: tuple[int, ...], saved_s: float) -> None:
    query, keys = (8, 16, 1, 128), (8, 16, 1024, 128)

    def layer(kernels: Kernels) -> None:
        kernels.op("aten::copy_", [shape, shape], types=["c10::BFloat16", "signed char"])
        kernels.op("aten::mul", [shape, (16, 1, 1)])
        kernels.op("aten::_cudnn_attention_forward", [query, keys, keys])

    mine = [one for one in findings_on(steps_of(layer), tmp_path, "wide-format") if "dequantizes the whole KV cache" in one.message]
    assert bool(mine) == bool(saved_s)
    if mine:
        assert mine[0].saving_per_step_s == pytest.approx(saved_s, rel=0.01)
        assert "bf16" in mine[0].levers[0]


@pytest.mark.parametrize(("is_product", "is_told"), [(False, True), (True, False)])
def test_a_cache_that_is_shifted_to_append_to_it(tmp_path: Path, is_product: bool, is_told: bool) -> None:
    """What the program made itself, as the images of a layer, has no old positions."""
    cache, position = (64, 8, 512, 64), (64, 8, 1, 64)

    def token(kernels: Kernels) -> None:
        for _ in range(2):
            if is_product:
                kernels.op("aten::bmm", [(512, 512, 64), (512, 64, 64)])
            kernels.op("aten::roll", [cache], values=["[-1]", "[2]"])
            kernels.op(
                "aten::copy_", [position, position], dtype="c10::BFloat16", strides=[(8 * 512 * 64, 512 * 64, 64, 1), (512, 64, 64, 1)]
            )
        kernels.op("aten::_cudnn_attention_forward", [position, cache, cache])

    mine = findings_on(steps_of(token), tmp_path, "missing-donation")
    assert bool(mine) == is_told
    if mine:
        assert "copies a tensor in full to append 1/512 of it" in mine[0].message
        assert mine[0].saving_per_step_s == pytest.approx(200e-6, rel=0.01)
        predicted = mine[0].predicted
        assert predicted is not None
        assert 0.97 * (predicted.before_s - 200e-6) < predicted.low_s < predicted.time_s, "the rest of the step stays, within its variation"


@pytest.mark.parametrize(
    ("operand", "stride", "is_told"),
    [
        ((65536, 576), "[1, 1]", True),
        ((65536, 64, 9), "[1, 1]", False),  # each position has weights of its own, as in local attention
        ((7056, 576), "[3, 3]", False),  # patches that do not overlap
    ],
)
def test_patches_that_are_stored_for_a_matmul(tmp_path: Path, operand: tuple[int, ...], stride: str, is_told: bool) -> None:
    # 16 images of 64 x 64 with 64 channels, in 9 times as many elements as patches of 3 x 3.
    image, patches = (16, 64, 64, 64), (16, 576, operand[0] // 16)

    def layer(kernels: Kernels) -> None:
        kernels.op("aten::im2col", [image], values=["[3, 3]", "[1, 1]", "[1, 1]" if is_told or len(operand) > 2 else "[0, 0]", stride])
        kernels.op("aten::copy_", [(16, patches[2], 576)] * 2, strides=[(576 * patches[2], 576, 1), (576 * patches[2], 1, patches[2])])
        if len(operand) == 2:
            kernels.op("aten::mm", [operand, (576, 64)])
        else:
            kernels.op("aten::bmm", [operand, (65536, 9, 1)])

    mine = [one for one in findings_on(steps_of(layer), tmp_path, "repeated-operand") if "patches for a matmul" in one.message]
    assert bool(mine) == is_told
    if mine:
        # The matmul moves 75.5 + 8.4 MB in 17.5 µs at least; without patches its 4.8 GFLOP bound it, at 4.9 µs.
        assert mine[0].saving_per_step_s == pytest.approx((200 + 100 * (1 - 4.9 / 17.5)) * 1e-6, rel=0.01)
        assert "F.conv2d" in mine[0].levers[0]


@pytest.mark.parametrize(("nodes", "is_told"), [(5_000, True), (80_000, False)])
def test_rows_that_are_gathered_joined_with_others_and_then_multiplied(tmp_path: Path, nodes: int, is_told: bool) -> None:
    # Rows of 256 + 64: the gradient of the weights reads 100,000 rows of 128 + 320 elements in bf16, or of 128 + 64 without the gathered
    # ones; that of the rows writes as many.
    edges, joined, weights = (100_000, 256), (100_000, 320), (320, 128)

    def layer(kernels: Kernels) -> None:
        kernels.op("aten::index", [(nodes, 256)])
        kernels.joined([edges, (100_000, 64)])
        kernels.op("aten::mm", [joined, weights], sequence_number=7)
        kernels.node("MmBackward0", 2, sequence_number=7, fwd_thread_id=1)
        kernels.op("aten::mm", [joined[::-1], (100_000, 128)], thread=BACKWARD)
        kernels.op("aten::mm", [(100_000, 128), weights[::-1]], thread=BACKWARD)

    mine = findings_on(steps_of(layer), tmp_path, "repeated-operand")
    assert bool(mine) == is_told
    if mine:
        assert "multiplies rows that are repeated" in mine[0].message
        assert mine[0].saving_per_step_s == pytest.approx(2 * (256 / 448) * 100e-6, rel=0.02)


@pytest.mark.parametrize(("between", "is_told"), [([], True), (["aten::mul"], True), (["aten::mm"], False)])
def test_rows_that_are_gathered_and_then_added_up(tmp_path: Path, between: list[str], is_told: bool) -> None:
    # A gather reads rows (5.1 MB) and an index of 8 bytes for each element (204.8 MB), and writes a row for each edge (102.4 MB), which the
    # sum reads, with an index for each row (0.8 MB), to add them to 5,000 others (10.2 MB).
    edges, sums = (100_000, 256), (5_000, 256)

    def layer(kernels: Kernels) -> None:
        kernels.op("aten::gather", [sums, (), edges], types=["float", "Scalar", "long int"])
        for name in between:
            kernels.op(name, [edges, (256, 256) if name == "aten::mm" else edges], dtype="float")
        kernels.op("aten::index_add_", [sums, (), (100_000,), edges], types=["float", "Scalar", "long int", "float"])

    mine = [
        finding for finding in findings_on(steps_of(layer), tmp_path, "unfused-chain") if "stores a row for each index" in finding.message
    ]
    assert bool(mine) == is_told
    if mine:
        shares = 102.4 / (5.1 + 204.8 + 102.4) + 102.4 / (102.4 + 0.8 + 10.2) + (2 / 3 if between else 0)
        assert mine[0].saving_per_step_s == pytest.approx(shares * 100e-6, rel=0.01)
        assert "torch.compile" in mine[0].levers[0]


@pytest.mark.parametrize(("nodes", "is_told"), [(5_000, True), (80_000, False)])
def test_rows_that_are_gathered_and_then_multiplied(tmp_path: Path, nodes: int, is_told: bool) -> None:
    # 100,000 edges of 5,000 nodes: each row is multiplied 20 times, forward and in both gradients of 100 µs each. That of the weights
    # reads the other gradients all the same, which are half of its bytes, to sum those of each row.
    edges, weights = (100_000, 256), (256, 256)

    def layer(kernels: Kernels) -> None:
        kernels.op("aten::index", [(nodes, 256)])
        kernels.op("aten::mm", [edges, weights], sequence_number=7)
        kernels.op("aten::index_add_", [(nodes, 256), edges])
        kernels.node("MmBackward0", 2, sequence_number=7, fwd_thread_id=1)
        kernels.op("aten::mm", [(256, 100_000), edges], thread=BACKWARD)
        kernels.op("aten::mm", [edges, weights], thread=BACKWARD)

    mine = [one for one in findings_on(steps_of(layer), tmp_path, "repeated-operand") if "rows that are repeated" in one.message]
    assert bool(mine) == is_told
    if mine:
        assert mine[0].saving_per_step_s == pytest.approx((2 + 1 / 2) * 95e-6, rel=0.01)
        assert mine[0].levers[0] == "linear(x)[edges] instead of linear(x[edges])"


def test_conversions_inside_of_convolutions_are_layout_copies(tmp_path: Path) -> None:
    trace = TorchTrace()
    for at in trace.steps(3, 1000):
        trace.op("aten::cudnn_convolution", at + 2, 20, [(32, 64, 56, 56), (64, 64, 3, 3)], values=["[1, 1]", "[1, 1]", "[1, 1]", "1"])
        trace.run("cudnn::nchwToNhwcKernel<__nv_bfloat16>", launched=at + 3, start=at + 30, dur=100)
        trace.run("sm90_xmma_fprop_implicit_gemm_bf16bf16", launched=at + 5, start=at + 130, dur=700)
        trace.run("cudnn::nhwcToNchwKernel<__nv_bfloat16>", launched=at + 7, start=at + 830, dur=100)
    (found,) = findings_on(trace, tmp_path, "layout-copies")
    assert found.saving_per_step_s == pytest.approx(200e-6, rel=0.02)
    assert "channels" in found.message


@pytest.mark.parametrize(
    ("name", "image", "kernel", "told"),
    [
        ("aten::cudnn_convolution", (32, 64, 56, 56), (64, 64, 3, 3), "torch.channels_last)"),
        ("aten::cudnn_convolution", (4, 64, 32, 32, 32), (64, 64, 3, 3, 3), "torch.channels_last_3d)"),
        ("aten::cudnn_convolution", (32, 64, 1, 4096), (64, 64, 1, 7), ""),  # convolutions of sequences take as long either way
        ("aten::convolution_backward", (32, 64, 4096), (64, 64, 7), ""),
    ],
)
def test_the_memory_format_depends_on_the_axes(
    tmp_path: Path, name: str, image: tuple[int, ...], kernel: tuple[int, ...], told: str
) -> None:
    trace, ones = TorchTrace(), str([1] * (len(kernel) - 2))
    operands = [image, image, kernel] if name == "aten::convolution_backward" else [image, kernel]
    rest = ["", ones, ones, ones, "False", str([0] * (len(kernel) - 2)), "1", "[True, True, False]"]
    for at in trace.steps(3, 1000):
        trace.op(name, at + 2, 20, operands, values=rest if len(operands) > 2 else [ones, ones, ones, "1"])
        trace.run("cudnn::nchwToNhwcKernel<__nv_bfloat16>", launched=at + 3, start=at + 30, dur=100)
        trace.run("sm90_xmma_fprop_implicit_gemm_bf16bf16", launched=at + 5, start=at + 130, dur=700)
    found = findings_on(trace, tmp_path, "layout-copies")
    assert bool(found) == bool(told)
    assert all(told in one.levers[0] for one in found)


@pytest.mark.parametrize(
    ("image", "strides", "named"),
    [
        ((32, 64, 56, 56), (64 * 56 * 56, 56 * 56, 56, 1), True),
        ((32, 64, 56, 56), (64 * 56 * 56, 1, 64 * 56, 64), False),
    ],
)
def test_batch_norms_between_convolutions_that_convert_would_be_faster_with_channels_last(
    tmp_path: Path, image: tuple[int, ...], strides: tuple[int, ...], named: bool
) -> None:
    trace, images = TorchTrace(), (32, 64, 56, 56)
    for at in trace.steps(3, 1000):
        trace.op("aten::cudnn_convolution", at + 2, 20, [images, (64, 64, 3, 3)], values=["[1, 1]", "[1, 1]", "[1, 1]", "1"])
        trace.run("cudnn::nchwToNhwcKernel<__nv_bfloat16>", launched=at + 3, start=at + 30, dur=100)
        trace.run("sm90_xmma_fprop_implicit_gemm_bf16bf16", launched=at + 5, start=at + 130, dur=400)
        trace.op("aten::native_batch_norm", at + 30, 20, [image, (image[1],)], strides=[strides, (1,)])
        trace.run("batch_norm_collect_statistics_kernel", launched=at + 31, start=at + 530, dur=300)
    (one,) = findings_on(trace, tmp_path, "layout-copies")
    # Of 500 µs a fifth is conversion. A norm that reaches half of its roof reads images of 12.8 MB twice and writes them in 8.0 / 0.5 µs.
    assert one.saving_per_step_s == pytest.approx((100 + 300 - 8.0 / 0.5 if named else 100) * 1e-6, rel=0.02)


@pytest.mark.parametrize(
    ("window", "strides", "dtype", "is_told"),
    [
        ((7, 7), (192 * 56 * 56, 56 * 56, 56, 1), "c10::BFloat16", True),
        ((7, 7), (192 * 56 * 56, 1, 192 * 56, 192), "c10::BFloat16", False),  # channels last
        ((7, 7), (192 * 56 * 56, 56 * 56, 56, 1), "float", False),
        ((1, 31), (192 * 56 * 56, 56 * 56, 56, 1), "c10::BFloat16", False),  # along one axis
    ],
)
def test_depthwise_convolutions_are_faster_with_channels_last(
    tmp_path: Path, window: tuple[int, int], strides: tuple[int, ...], dtype: str, is_told: bool
) -> None:
    def convolve(kernels: Kernels) -> None:
        shapes = [(5, 192, 56, 56), (192, 1, *window)]
        args = {
            "Input Dims": [*map(list, shapes), [], [192], [], [], []],
            "Input Strides": [list(strides), [1, 1, 1, 1], [], [1], [], [], []],
        }
        types = [dtype, dtype, "ScalarList", dtype, *["ScalarList"] * 3]
        values = ["", "", str(list(window)), "", "[1, 1]", "[3, 3]", "[1, 1]"]
        for _ in range(10):
            said = {**args, "Input type": types, "Concrete Inputs": values}
            kernels.trace.add("cpu_op", "aten::_conv_depthwise2d", kernels.at, 5, 100, 1, said)
            kernels.run("conv_depthwise2d_forward_kernel")

    found = findings_on(steps_of(convolve), tmp_path, "layout-copies")
    assert bool(found) == is_told
    if found:
        # A good kernel of this category reaches 5% of its roof: 50 of 100 µs. On an H200 such convolutions take a quarter of the time.
        assert found[0].saving_per_step_s == pytest.approx(500e-6, rel=0.01)
        assert "memory_format=torch.channels_last" in found[0].levers[0]


@pytest.mark.parametrize(
    ("name", "image", "is_told"),
    [
        ("aten::native_batch_norm", (32, 64, 56, 56), True),
        ("aten::native_batch_norm", (1, 2048, 56, 56), False),  # an instance norm, with the channels of all images
        ("aten::native_group_norm", (32, 64, 56, 56), False),
    ],
)
def test_norms_that_need_channels_first_make_channels_last_no_faster(
    tmp_path: Path, name: str, image: tuple[int, ...], is_told: bool
) -> None:
    trace = TorchTrace()
    for at in trace.steps(3, 1000):
        trace.op("aten::cudnn_convolution", at + 2, 20, [(32, 64, 56, 56), (64, 64, 3, 3)], values=["[1, 1]", "[1, 1]", "[1, 1]", "1"])
        trace.run("cudnn::nchwToNhwcKernel<__nv_bfloat16>", launched=at + 3, start=at + 30, dur=100)
        trace.run("sm90_xmma_fprop_implicit_gemm_bf16bf16", launched=at + 5, start=at + 130, dur=400)
        trace.op(name, at + 30, 20, [image, (image[1],)])
        trace.run("norm_kernel", launched=at + 31, start=at + 530, dur=300)
    assert bool(findings_on(trace, tmp_path, "layout-copies")) == is_told


@pytest.mark.parametrize(
    ("mask", "is_told"),
    [
        ([("aten::triu", [(LONG, LONG)], "c10::BFloat16")], True),
        ([("aten::ge", [(LONG, 1), (LONG,)], "long int")], True),  # positions of queries and keys
        ([("aten::ge", [(LONG, 1), (LONG,)], "float")], False),
        ([("aten::tril", [(LONG // 2, LONG // 2)], "c10::BFloat16")], False),  # of something else
        ([("aten::add", [(LONG, LONG), (LONG, LONG)], "c10::BFloat16")], False),
    ],
)
def test_a_causal_mask_as_a_tensor_computes_what_it_removes(
    tmp_path: Path, mask: list[tuple[str, list[tuple[int, ...]], str]], is_told: bool
) -> None:
    heads, square = (8, 16, LONG, 128), (8, 16, LONG, LONG)
    strides = [(16 * LONG * 128, LONG * 128, 128, 1)] * 3 + [(0, 0, LONG, 1)]  # the mask is expanded

    def attend(kernels: Kernels) -> None:
        for name, tensors, dtype in mask:
            kernels.op(name, tensors, dtype=dtype)
        kernels.op("aten::_scaled_dot_product_efficient_attention", [*[heads] * 3, square], strides=strides, values=["True"])

    found = findings_on(steps_of(attend), tmp_path, "masked-attention")
    assert bool(found) == is_told
    if found:
        # The kernel of 100 µs does half of its products for nothing, and the mask takes 100 µs to build.
        assert found[0].saving_per_step_s == pytest.approx(150e-6, rel=0.1)
        assert "is_causal=True" in found[0].levers[0]


@pytest.mark.parametrize("in_layers", [True, False])
def test_a_bias_of_positions_is_better_computed_in_the_kernel(tmp_path: Path, in_layers: bool) -> None:
    """ALiBi: distances of positions times the slope of each head, and a triangle of minus infinity; the MLP is as wide as keys are long."""
    heads, bias, hidden = (8, 16, LONG, 128), (16, LONG, LONG), (8, LONG, LONG)
    strides = [(16 * LONG * 128, LONG * 128, 128, 1)] * 3 + [(0, LONG * LONG, LONG, 1)]

    def build(kernels: Kernels) -> None:
        kernels.op("aten::sub", [(1, LONG), (LONG, 1)], dtype="long int")
        kernels.op("aten::copy_", [(LONG, LONG), (LONG, LONG)], types=["float", "long int"])
        kernels.op("aten::mul", [(16, 1, 1), (LONG, LONG)], dtype="float")
        kernels.op("aten::triu", [(LONG, LONG)], dtype="float")
        kernels.op("aten::add", [bias, (LONG, LONG)], dtype="float")
        kernels.op("aten::copy_", [bias, bias], types=["c10::BFloat16", "float"])

    def layers(kernels: Kernels) -> None:
        for layer in range(2):
            kernels.op("aten::gelu", [hidden])
            kernels.op("aten::mm", [(8 * LONG, LONG), (LONG, 2048)])
            if in_layers or not layer:
                build(kernels)
            kernels.op("aten::_scaled_dot_product_efficient_attention", [*[heads] * 3, (8, *bias)], strides=strides, values=["True"])

    (found,) = findings_on(steps_of(layers), tmp_path, "masked-attention")
    # Six operators of 100 µs build the bias, in each layer or once, and half of the products of attention are not needed.
    assert found.saving_per_step_s == pytest.approx((600 * (2 if in_layers else 1) + 100) * 1e-6, rel=0.05)
    assert "FlexAttention" in found.levers[0]


@pytest.mark.parametrize(("dtype", "is_told"), [("float", True), ("c10::BFloat16", False)])
def test_attention_in_fp32_takes_the_time_of_a_flash_kernel_in_bf16(tmp_path: Path, dtype: str, is_told: bool) -> None:
    heads = (8, 16, LONG, 128)
    sums = [heads[:-1], (1,), (1,)]  # the logarithms of sums of the softmax, and the state of random numbers

    def step(kernels: Kernels) -> None:
        kernels.op("aten::_scaled_dot_product_efficient_attention", [*[heads] * 3], dtype=dtype, values=["", "True", "0.", "False"])
        name = "aten::_scaled_dot_product_efficient_attention_backward"
        types = [*[dtype] * 4, "", dtype, "float", "long int", "long int"]
        kernels.op(name, [*[heads] * 4, (), heads, *sums], types=types, values=["0.", "", "False"], thread=BACKWARD)

    found = findings_on(steps_of(step), tmp_path, "wide-format")
    assert bool(found) == is_told
    if found:
        assert "computes attention in fp32, which flash kernels do not take: 200 µs" in found[0].message
        # Both kernels of 100 µs at the rate of bf16, which is 989 / 66.9 times that of fp32.
        assert found[0].saving_per_step_s == pytest.approx(200e-6 * (1 - 66.9 / 989), rel=0.02)


@pytest.mark.parametrize(
    ("queries", "mask", "is_told"),
    [
        (LONG, (LONG, 0, 0, 1), True),  # a row of keys for each sequence
        (LONG, (0, 0, 0, 1), True),  # for all sequences
        (LONG, (LONG * LONG, 0, LONG, 1), False),  # another row for each query
        (LONG, (16 * LONG, LONG, 0, 1), False),  # a bias of each head
        (1, (LONG, 0, 0, 1), False),  # one query: the mask says how much of a cache is filled
    ],
)
def test_a_mask_of_keys_keeps_attention_from_the_flash_kernel(tmp_path: Path, queries: int, mask: tuple[int, ...], is_told: bool) -> None:
    asked, keys, scores = (2, 16, queries, 128), (2, 16, LONG, 128), (2, 16, queries, LONG)
    strides = [(16 * one * 128, one * 128, 128, 1) for one in (queries, LONG, LONG)]

    def attend(kernels: Kernels) -> None:
        kernels.op("aten::_scaled_dot_product_cudnn_attention", [asked, keys, keys, scores], strides=[*strides, mask], values=["True"])

    found = findings_on(steps_of(attend), tmp_path, "masked-attention")
    assert bool(found) == is_told
    if found:
        assert "gives attention a mask that is the same for all queries" in found[0].message
        assert "attn_mask=None" in found[0].levers[0]
        # 4·2·16·LONG²·128 FLOP at 55% of 989 TFLOP/s, which good attention reaches; the kernel takes 100 µs.
        assert found[0].saving_per_step_s == pytest.approx(100e-6 - 4 * 2 * 16 * LONG**2 * 128 / (0.55 * 989e12), rel=0.05)
