"""Findings about PyTorch programs: what compiling would fuse, wide formats, casts of weights, and advice in PyTorch's words."""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from roofline.analysis import analyze
from roofline.analysis.what_if import what_if
from roofline.machine import Machine
from roofline.report import Finding, Report
from roofline.rules.words import kinds, page, words_of
from torch_writer import BACKWARD, MAIN, NODE, TorchTrace

IDLE_AND_KERNELS = [
    kind for kind in kinds() if page(kind).chapter in ("Idle time", "Distance to the roofline", "Kernels by their counters")
]
WIDE = (8192, 8192)  # 128 MB in bf16: 28 µs to read
LISTS = {
    "aten::_foreach_lerp_": "TernaryOpScalarFunctor<float, 2, 2, 0>",
    "aten::_foreach_mul_": "BinaryOpScalarFunctor<float, 1, 1, 0>",
    "aten::_foreach_addcmul_": "PointwiseOpScalarFunctor<float, 3, 3, 0>",
    "aten::_foreach_sqrt": "UnaryOpFunctor<float, 2, 1, 1>",
    "aten::_foreach_addcdiv_": "PointwiseOpScalarListFunctor<float, 3, 3, 0>",
}
TOOK = (60, 40, 80, 40, 80)  # µs: as many lists as each reads and writes


def steps_of(write: object, tmp_path: Path, steps: int = 3) -> Report:
    """A report on steps of 1 ms, each written by a function of the trace and the time at which it starts."""
    trace = TorchTrace()
    for step in range(steps):
        trace.annotation(f"ProfilerStep#{step}", 1000 * step, 900)
        write(trace, 1000 * step)  # type: ignore[operator]
    return analyze(trace.write(tmp_path / "trace.json"))


def finding(report: Report, kind: str, words: str = "") -> Finding:
    return next(one for one in report.findings if one.kind == kind and words in one.message)


def test_a_chain_of_elementwise_operators_would_fuse(tmp_path: Path) -> None:
    def chain(trace: TorchTrace, at: float) -> None:
        for place, name in enumerate(("aten::mul", "aten::add", "aten::relu")):
            trace.op(name, at + 10 * place, 5, [WIDE], values=["2"])
            trace.run("elementwise", launched=at + 10 * place + 1, start=at + 300 * place, dur=100)

    report = steps_of(chain, tmp_path)
    found = finding(report, "unfused-chain")
    # Of three reads and three writes one of each is left: two thirds of the bytes are spared, of 300 µs a step.
    assert found.saving_s == pytest.approx(3 * 200e-6, rel=0.01)
    assert "torch.compile" in found.levers[0]


def test_operands_that_are_broadcast_begin_a_chain_as_large_as_their_result(tmp_path: Path) -> None:
    pairs = (4096, 512, 32)

    def distances(trace: TorchTrace, at: float) -> None:
        steps = (("aten::sub", [(4096, 1, 32), (1, 512, 32)]), ("aten::pow", [pairs]), ("aten::sum", [pairs]))
        for place, (name, tensors) in enumerate(steps):
            trace.op(name, at + 10 * place, 5, tensors, values=[] if place == 0 else ["2"])
            trace.run("kernel", launched=at + 10 * place + 1, start=at + 100 * place, dur=100)

    # Nothing of the pairs is left: sub reads points and centres, sum writes less than all pairs.
    assert finding(steps_of(distances, tmp_path), "unfused-chain").saving_per_step_s == pytest.approx(300e-6, rel=0.05)


@pytest.mark.parametrize(("scale", "saved"), [("float", 200), ("double", 400)])
def test_what_a_number_for_all_of_it_is_computed_from_is_read_again(tmp_path: Path, scale: str, saved: int) -> None:
    def quantize(trace: TorchTrace, at: float) -> None:
        trace.op("aten::relu", at, 5, [WIDE], dtype="float")
        trace.op("aten::max", at + 10, 5, [WIDE], dtype="float")
        trace.op("aten::div", at + 20, 5, [WIDE, ()], types=["float", scale])  # by the largest, or by a number of Python's
        for place in range(3):
            trace.run("kernel", launched=at + 10 * place + 1, start=at + 200 * place, dur=200)

    # max takes what relu made from there. The division reads it from memory, where relu wrote it, if it needs the largest first; else
    # neither moves it: half of relu, all of max, and half of the division.
    assert finding(steps_of(quantize, tmp_path), "unfused-chain").saving_per_step_s == pytest.approx(saved * 1e-6, rel=0.01)


def test_a_product_between_them_breaks_a_chain(tmp_path: Path) -> None:
    def broken(trace: TorchTrace, at: float) -> None:
        for place, name in enumerate(("aten::relu", "aten::mm", "aten::relu")):
            trace.op(name, at + 10 * place, 5, [WIDE] * (2 if name == "aten::mm" else 1))
            trace.run("kernel", launched=at + 10 * place + 1, start=at + 300 * place, dur=290)

    assert not [one for one in steps_of(broken, tmp_path).findings if one.kind == "unfused-chain"]


def test_an_optimizer_of_many_operators_would_be_one_kernel(tmp_path: Path) -> None:
    elements = 100 * 65_536

    def update(trace: TorchTrace, at: float) -> None:
        trace.op("torch::autograd::AccumulateGrad", at + 1, 1, [(elements,)], dtype="float")
        trace.annotation("Optimizer.step#AdamW.step", at + 5, 100)
        for place, (name, functor) in enumerate(LISTS.items()):
            trace.op(name, at + 10 * (place + 1), 5, values=[""])
            kernel = f"multi_tensor_apply_kernel<TensorListMetadata<1>, {functor}>"
            trace.run(kernel, launched=at + 10 * (place + 1) + 1, start=at + 100 * place + 50, dur=TOOK[place], grid=(100, 1, 1))

    report = steps_of(update, tmp_path)
    assert sum(op.bytes["hbm"] or 0 for op in report.ops) == 3 * 4 * elements * (3 + 2 + 4 + 2 + 4)
    found = finding(report, "unfused-chain", "fused=True")
    # A fused Adam reads and writes 7 lists of the 15. Without ids, the second operator is taken to change what the first one did: one less.
    assert found.saving_s == pytest.approx(3 * 300e-6 * 9 / 15, rel=0.01)


def test_fp32_products_beside_tf32_ones_are_no_setting(tmp_path: Path) -> None:
    def products(trace: TorchTrace, at: float) -> None:
        for place, kernel in enumerate(("sm80_xmma_gemm_f32f32_tf32f32_f32_tn", "sm80_xmma_gemm_f32f32_f32f32_f32_tn_ffma")):
            trace.op("aten::bmm", at + 10 * place, 5, [(16, 1024, 1024)] * 2, dtype="float")
            trace.run(kernel, launched=at + 10 * place + 1, start=at + 400 * place, dur=400)

    assert not [one for one in steps_of(products, tmp_path).findings if one.kind == "wide-format"]


@pytest.mark.parametrize(
    ("product", "saved_s"), [("", 300e-6), ("ampere_sgemm_128x128_nn", 300e-6), ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn", None)]
)
def test_convolutions_in_tf32_which_no_program_asked_for_could_be_bf16(tmp_path: Path, product: str, saved_s: float | None) -> None:
    # 2·32·128·128·128·128·9 FLOP take 312 µs at the tf32 peak and 156 µs at that of bf16; the 600 µs of this kernel are taken to halve too.
    image, weight = (32, 128, 128, 128), (128, 128, 3, 3)

    def products(trace: TorchTrace, at: float) -> None:
        values = ["[1, 1]", "[1, 1]", "[1, 1]", "1", "False", "False", "True"]
        trace.op("aten::cudnn_convolution", at + 1, 5, [image, weight], dtype="float", values=values)
        trace.run("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw", launched=at + 2, start=at + 10, dur=600)
        if product:
            trace.op("aten::mm", at + 30, 5, [(2048, 2048), (2048, 2048)], dtype="float")
            trace.run(product, launched=at + 32, start=at + 650, dur=300)

    found = [one for one in steps_of(products, tmp_path).findings if one.kind == "wide-format" and "(in tf32)" in one.message]
    assert [one.saving_per_step_s for one in found] == ([] if saved_s is None else [pytest.approx(saved_s, rel=0.05)])


@pytest.mark.parametrize(("kernel", "is_wide"), [("ampere_sgemm_128x128_nn", True), ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn", False)])
def test_fp32_products_without_tf32_are_in_a_wide_format(tmp_path: Path, kernel: str, is_wide: bool) -> None:
    def product(trace: TorchTrace, at: float) -> None:
        trace.op("aten::mm", at + 1, 5, [(2048, 2048), (2048, 2048)], dtype="float")
        trace.run(kernel, launched=at + 2, start=at + 10, dur=600)

    found = [one for one in steps_of(product, tmp_path).findings if one.kind == "wide-format"]
    assert bool(found) == is_wide
    assert not found or "set_float32_matmul_precision" in found[0].levers[0]


def test_weights_that_autocast_casts_in_every_step_are_named(tmp_path: Path) -> None:
    weight, rows = (8192, 4096), (512, 4096)

    def layer(trace: TorchTrace, at: float) -> None:
        args = {"Input Dims": [list(weight)] * 2, "Input type": ["c10::BFloat16", "float"], "Input Strides": [[4096, 1]] * 2}
        trace.add("cpu_op", "aten::copy_", at + 1, 5, 100, 1, {"External id": 1, **args, "Concrete Inputs": ["", ""]})
        trace.run("copy", launched=at + 2, start=at + 10, dur=100)
        trace.op("aten::mm", at + 10, 5, [rows, weight[::-1]], strides=[(4096, 1), (1, 4096)])
        trace.run("gemm", launched=at + 11, start=at + 200, dur=100)

    found = finding(steps_of(layer, tmp_path), "wide-format", "autocast")
    assert found.saving_s == pytest.approx(3 * 100e-6, rel=0.01)


def test_weights_that_an_optimizer_updates_have_to_be_cast_again(tmp_path: Path) -> None:
    weight, rows = (8192, 4096), (512, 4096)
    narrow, wide = "c10::BFloat16", "float"

    def layer(trace: TorchTrace, at: float) -> None:
        trace.op(f"{NODE}ToCopyBackward0", at + 19, 10, thread=BACKWARD)
        for place, (shape, types) in enumerate(((weight, [narrow, wide]), (rows, [narrow, wide]), (weight, [wide, narrow]))):
            thread = BACKWARD if place == 2 else MAIN  # the gradient
            args = {"Input Dims": [list(shape)] * 2, "Input type": types, "Input Strides": [[4096, 1]] * 2}
            trace.add("cpu_op", "aten::copy_", at + 10 * place, 5, 100, thread, {"External id": 1, **args, "Concrete Inputs": ["", ""]})
            trace.run("copy", launched=at + 10 * place + 1, start=at + 100 * place, dur=100, thread=thread)
            if place == 1:
                trace.op("aten::mm", at + 10 * place + 6, 3, [rows, weight[::-1]], strides=[(4096, 1), (1, 4096)])
                trace.run("gemm", launched=at + 10 * place + 7, start=at + 300, dur=100)

    (found,) = [one for one in steps_of(layer, tmp_path).findings if one.kind == "wide-format"]
    assert "inputs of matmuls and norms" in found.message
    assert len(found.ops) == 1, "the cast of the rows alone, not of the weight and its gradient"
    assert found.saving_per_step_s == pytest.approx(100e-6, rel=0.01)


def test_casts_under_autocast_take_their_share_of_the_launches(tmp_path: Path) -> None:
    """A small layer in a program that launches too slowly: of five launches, the casts of weight, bias and operand go with autocast."""
    weight, rows = (512, 256), (64, 256)

    def layer(trace: TorchTrace, at: float) -> None:
        for place, shape in enumerate((rows, weight, (512,))):
            strides = [[shape[-1], 1][-len(shape) :]] * 2
            args = {"Input Dims": [list(shape)] * 2, "Input type": ["c10::BFloat16", "float"], "Input Strides": strides}
            trace.add("cpu_op", "aten::copy_", at + 150 * place, 5, 100, 1, {"External id": 1, **args, "Concrete Inputs": ["", ""]})
            trace.run("copy", launched=at + 150 * place + 1, start=at + 150 * place + 5, dur=10)
        trace.op("aten::addmm", at + 450, 5, [(512,), rows, weight[::-1]], strides=[(1,), (256, 1), (1, 256)])
        trace.run("gemm", launched=at + 451, start=at + 455, dur=5)
        trace.op("aten::gelu", at + 600, 5, [(64, 512)])
        trace.run("gelu", launched=at + 601, start=at + 605, dur=2)

    report = steps_of(layer, tmp_path, steps=4)
    casts, launches = finding(report, "wide-format", "autocast"), finding(report, "idle-dispatch")
    assert "Their launches, for which the device waits, take another" in casts.message
    assert len(casts.ops) == 3
    assert casts.saving_per_step_s == pytest.approx((launches.saving_per_step_s or 0) * 3 / 2 + 30e-6, rel=0.01)
    assert report.findings.index(casts) < report.findings.index(launches)


@pytest.mark.parametrize("weights", [True, False])
def test_casts_to_fp32_before_norms_are_autocasts_where_weights_are_cast(tmp_path: Path, weights: bool) -> None:
    weight, rows = (8192, 4096), (4096, 4096)

    def layer(trace: TorchTrace, at: float) -> None:
        formats = ["c10::BFloat16", "float"]
        casts = ((rows, formats[::-1], "aten::native_batch_norm"), (weight if weights else (16, 4096), formats, "aten::mm"))
        for place, (shape, types, name) in enumerate(casts):
            args = {"Input Dims": [list(shape)] * 2, "Input type": types, "Input Strides": [[4096, 1]] * 2}
            trace.add("cpu_op", "aten::copy_", at + 100 * place, 5, 100, 1, {"External id": 1, **args, "Concrete Inputs": ["", ""]})
            trace.run("copy", launched=at + 100 * place + 1, start=at + 400 * place + 10, dur=100)
            if name == "aten::mm":
                trace.op(name, at + 100 * place + 10, 5, [rows, weight[::-1]], strides=[(4096, 1), (1, 4096)])
            else:
                trace.op(name, at + 100 * place + 10, 5, [rows, (4096,)], dtype="float")
            trace.run("kernel", launched=at + 100 * place + 11, start=at + 400 * place + 110, dur=290)

    found = [one for one in steps_of(layer, tmp_path).findings if one.kind == "wide-format"]
    assert len(found) == weights
    assert not found or found[0].saving_per_step_s == pytest.approx(225e-6, rel=0.05), "with half of the launches"


def test_compiled_programs_are_not_told_to_compile() -> None:
    eager, compiled, replayed = (
        words_of("idle-dispatch", "", ("pytorch", *launched)).change for launched in ((), ("compiled",), ("replayed",))
    )
    assert "compiling the model" in eager
    assert "compiling" not in compiled + replayed
    assert "Replay the compiled code as a graph" in compiled


def test_advice_about_pytorch_speaks_of_pytorch() -> None:
    words = re.compile(r"\bjax|jnp\.|\blax\.|\bjit|Pallas|astype|preferred_element_type")
    for kind in IDLE_AND_KERNELS:
        for terms in ("pytorch",), ("pytorch", "host"):
            assert [lever for lever in words_of(kind, "", terms).levers if words.search(lever)] == [], kind
    assert any(words.search(lever) for kind in IDLE_AND_KERNELS for lever in page(kind).levers)


def test_small_operators_and_views_do_not_part_a_chain(tmp_path: Path) -> None:
    def chain(trace: TorchTrace, at: float) -> None:
        sizes = (("aten::mul", [WIDE]), ("aten::add", [(8, 128)]), ("aten::relu", [(8, 1024, 8192)]))
        for place, (name, tensors) in enumerate(sizes):
            trace.op(name, at + 10 * place, 5, tensors, values=["2"])
            trace.run("elementwise", launched=at + 10 * place + 1, start=at + 300 * place, dur=100 if place != 1 else 5)

    # Of two reads and two writes of the large tensor one of each is left.
    assert finding(steps_of(chain, tmp_path), "unfused-chain").saving_s == pytest.approx(3 * 100e-6, rel=0.01)


def test_halves_of_a_tensor_and_what_joins_them_are_one_chain(tmp_path: Path) -> None:
    """As a rotary embedding is written: a cast, four products of halves, a difference and a sum, a join and a cast back."""
    whole, half = (64, 2048, 128), (64, 2048, 64)

    def rotate(trace: TorchTrace, at: float) -> None:
        steps = [("aten::mul", [half, (2048, 64)])] * 4 + [("aten::sub", [half, half]), ("aten::add", [half, half])]
        for place, (name, tensors) in enumerate(steps):
            trace.op(name, at + 10 * place, 5, tensors, dtype="float")
            trace.run("elementwise", launched=at + 10 * place + 1, start=at + 100 * place, dur=50)
        joined = {"Input Dims": [[list(half)] * 2, []], "Input type": ["TensorList", "Scalar"]}
        trace.add("cpu_op", "aten::cat", at + 60, 5, 100, 1, {"External id": 1, **joined, "Concrete Inputs": ["", "-1"]})
        trace.run("CatArrayBatchedCopy<OpaqueType<4u>, unsigned int, 3, 2>", launched=at + 61, start=at + 600, dur=100)
        args = {"Input Dims": [list(whole)] * 2, "Input type": ["c10::BFloat16", "float"], "Input Strides": [[2048 * 128, 128, 1]] * 2}
        trace.add("cpu_op", "aten::copy_", at + 70, 5, 100, 1, {"External id": 1, **args, "Concrete Inputs": ["", ""]})
        trace.run("cast", launched=at + 71, start=at + 700, dur=75)

    found = finding(steps_of(rotate, tmp_path), "unfused-chain")
    # Left are a read of the first half (25 µs of 50) and the write of the result (25 µs of 75).
    assert found.saving_per_step_s == pytest.approx((475 - 50) * 1e-6, rel=0.05)


@pytest.mark.parametrize(("name", "spared"), [("aten::silu", 200), ("aten::add", 100)])
def test_a_compiled_backward_pass_computes_again_but_a_residual_is_kept(tmp_path: Path, name: str, spared: int) -> None:
    def forward(trace: TorchTrace, at: float) -> None:
        trace.op(name, at + 1, 5, [WIDE], sequence_number=1)
        trace.run("elementwise", launched=at + 2, start=at + 20, dur=200)
        trace.op("aten::relu", at + 10, 5, [WIDE], sequence_number=2)
        trace.run("elementwise", launched=at + 11, start=at + 220, dur=200)
        trace.op("autograd::engine::evaluate_function: ReluBackward0", at + 20, 8, thread=2, sequence_number=2)
        trace.op("aten::mm", at + 21, 5, [WIDE, WIDE], thread=2)
        trace.run("gemm", launched=at + 22, start=at + 420, dur=300, thread=2)

    assert finding(steps_of(forward, tmp_path), "unfused-chain").saving_per_step_s == pytest.approx(spared * 1e-6, rel=0.01)


@pytest.mark.parametrize(("trains", "spared"), [("True", 100 + 100 * 2 / 3 / 2), ("False", 150)])
def test_a_batch_norm_that_trains_reads_its_input_twice_fused_or_not(tmp_path: Path, trains: str, spared: float) -> None:
    def layer(trace: TorchTrace, at: float) -> None:
        image = (64, 256, 56, 56)
        trace.op("aten::native_batch_norm", at + 1, 5, [image, (256,), (256,), (256,), (256,)], values=[trains, "0.1", "1e-5"])
        trace.run("norm", launched=at + 2, start=at + 20, dur=100)
        trace.op("aten::relu", at + 10, 5, [image])
        trace.run("elementwise", launched=at + 11, start=at + 220, dur=100)
        trace.op("torch::autograd::AccumulateGrad", at + 16, 1, [(256,)])  # it trains

    # relu reads nothing then and writes for both; the norm writes nothing, and reads once more where it trains.
    assert finding(steps_of(layer, tmp_path), "unfused-chain").saving_per_step_s == pytest.approx((spared - 50) * 1e-6, rel=0.02)


@pytest.mark.parametrize(
    ("image", "tensors", "trains", "backward", "told"),
    [
        ((64, 256, 56, 56), 5, "True", False, True),
        ((64, 256, 56, 56), 5, "False", False, False),
        ((64, 256, 56, 56), 5, "True", True, False),
        ((64, 256, 56, 56), 3, "True", False, False),  # without stored statistics
        ((1, 64 * 256, 56, 56), 5, "True", False, False),  # an instance norm
    ],
)
def test_batch_norms_in_training_mode_where_nothing_is_trained(
    tmp_path: Path, image: tuple[int, ...], tensors: int, trains: str, backward: bool, told: bool
) -> None:
    def evaluate(trace: TorchTrace, at: float) -> None:
        shapes = [image, *[image[1:2]] * (tensors - 1)]
        trace.op("aten::native_batch_norm", at + 1, 5, [*shapes, *[()] * (5 - tensors)], values=[trains, "0.1", "1e-5"], sequence_number=1)
        trace.run("norm", launched=at + 2, start=at + 20, dur=600)
        if backward:
            trace.op("autograd::engine::evaluate_function: NativeBatchNormBackward0", at + 20, 8, thread=2, sequence_number=1)
            trace.op("aten::mm", at + 21, 5, [WIDE, WIDE], thread=2)
            trace.run("gemm", launched=at + 22, start=at + 640, dur=200, thread=2)

    found = [one for one in steps_of(evaluate, tmp_path).findings if one.kind == "unused-results"]
    assert bool(found) == told
    for one in found:
        assert one.title == "the batch norms in training mode, in a program that trains nothing"
        assert "model.eval()" in one.levers[0]
        # 51.4 million values, each read and written in 2 bytes, at half of 4.8 TB/s.
        assert one.saving_per_step_s == pytest.approx(600e-6 - 4 * 64 * 256 * 56**2 / 2.4e12, rel=0.02)


@pytest.mark.parametrize(("name", "spared"), [("aten::roll", 100), ("aten::flip", 100), ("aten::sort", 0)])
def test_what_only_rearranges_elements_fuses_with_what_computes_them(tmp_path: Path, name: str, spared: int) -> None:
    def shift(trace: TorchTrace, at: float) -> None:
        trace.op("aten::relu", at + 1, 5, [WIDE])
        trace.run("elementwise", launched=at + 2, start=at + 20, dur=100)
        trace.op(name, at + 10, 5, [WIDE], values=["[3]", "[0]"])
        trace.run("roll_cuda_kernel", launched=at + 11, start=at + 220, dur=100)
        trace.op("aten::mm", at + 21, 5, [WIDE, WIDE])
        trace.run("gemm", launched=at + 22, start=at + 420, dur=300)

    # relu writes nothing then, and the other reads nothing: half of each.
    found = [one for one in steps_of(shift, tmp_path).findings if one.kind == "unfused-chain"]
    assert sum(one.saving_per_step_s or 0 for one in found) == pytest.approx(spared * 1e-6, rel=0.02)


def test_the_optimizer_has_words_of_its_own(tmp_path: Path) -> None:
    def update(trace: TorchTrace, at: float) -> None:
        trace.op("torch::autograd::AccumulateGrad", at + 1, 1, [(6_553_600,)], dtype="float")
        trace.annotation("Optimizer.step#AdamW.step", at + 5, 100)
        for place, (name, functor) in enumerate(LISTS.items()):
            trace.op(name, at + 10 * (place + 1), 5, values=[""])
            kernel = f"multi_tensor_apply_kernel<TensorListMetadata<1>, {functor}>"
            trace.run(kernel, launched=at + 10 * (place + 1) + 1, start=at + 100 * place + 50, dur=TOOK[place], grid=(100, 1, 1))

    found = finding(steps_of(update, tmp_path), "unfused-chain")
    assert found.title.startswith("the optimizer")
    assert "with fused=True" in found.message


@pytest.mark.parametrize(
    ("names", "in_optimizer", "title"),
    [
        (("aten::mul_", "aten::sqrt", "aten::add_"), True, "the optimizer"),
        (("aten::mul_", "aten::sqrt", "aten::add_"), False, "the elementwise"),
        (("aten::add_", "aten::add_", "aten::add_"), True, ""),  # SGD of three weights
        (("aten::add_", "aten::add_", "aten::add_"), False, "the elementwise"),
    ],
)
def test_elementwise_operators_of_an_optimizer_are_told_as_such(
    tmp_path: Path, names: tuple[str, ...], in_optimizer: bool, title: str
) -> None:
    def update(trace: TorchTrace, at: float) -> None:
        if in_optimizer:
            trace.annotation("Optimizer.step#AdamW.step", at + 1, 60)
        for place, name in enumerate(names):
            trace.op(name, at + 10 * place + 5, 5, [WIDE, ()], dtype="float")
            trace.run("elementwise", launched=at + 10 * place + 6, start=at + 250 * place + 50, dur=250)

    found = [one for one in steps_of(update, tmp_path).findings if one.kind == "unfused-chain"]
    assert bool(found) == bool(title)
    assert all(one.title.startswith(title) for one in found)


def test_a_foreach_optimizer_that_falls_back_to_single_tensors_is_one_finding(tmp_path: Path) -> None:
    elements = 100 * 65_536

    def update(trace: TorchTrace, at: float) -> None:
        trace.op("torch::autograd::AccumulateGrad", at + 1, 1, [(elements,)], dtype="float")
        trace.annotation("Optimizer.step#AdamW.step", at + 5, 100)
        for place, (name, functor) in enumerate(LISTS.items()):
            trace.op(name, at + 10 * (place + 1), 5, values=[""])
            kernel = f"multi_tensor_apply_kernel<TensorListMetadata<1>, {functor}>"
            trace.run(kernel, launched=at + 10 * (place + 1) + 1, start=at + 100 * place + 50, dur=TOOK[place], grid=(100, 1, 1))
        trace.op("aten::div_", at + 70, 5, [(elements,), ()], dtype="float")
        trace.run("elementwise", launched=at + 71, start=at + 600, dur=40)

    found = finding(steps_of(update, tmp_path), "unfused-chain", "fused=True")
    # As above, and the last operator reads what the one before it wrote.
    assert found.saving_s == pytest.approx(3 * 340e-6 * 10 / 17, rel=0.01)


@pytest.mark.parametrize(("layers_us", "apart"), [(100, True), (2, False)])
def test_the_loss_is_told_apart_from_other_chains(tmp_path: Path, layers_us: float, apart: bool) -> None:
    """An expert fuses the loss first, which takes no compiled model; a part that is too small for a line is told with the rest."""

    def step(trace: TorchTrace, at: float) -> None:
        ran = [("aten::mul", layers_us), ("aten::add", layers_us), ("aten::mm", 100), ("aten::copy_", 100), ("aten::_log_softmax", 100)]
        for place, (name, took) in enumerate(ran):
            trace.op(name, at + 10 * place, 5, [WIDE] * (2 if name in ("aten::mm", "aten::copy_") else 1), values=["1"])
            trace.run("kernel", launched=at + 10 * place + 1, start=at + 60 + 110 * place, dur=took)

    chains = [one for one in steps_of(step, tmp_path).findings if one.kind == "unfused-chain"]
    loss = next(one for one in chains if "loss" in one.title)
    assert "computes its loss with operators that each read and write the logits in memory" in loss.message
    assert any("cross-entropy" in lever for lever in loss.levers)
    assert len(chains) == (2 if apart else 1)


@pytest.mark.parametrize(("loss_us", "titles"), [(100, 2), (3, 1)])
def test_a_small_loss_is_told_with_the_other_chains(tmp_path: Path, loss_us: float, titles: int) -> None:
    def step(trace: TorchTrace, at: float) -> None:
        ran = [("aten::mul", 200), ("aten::add", 200), ("aten::mm", 100), ("aten::log_softmax", loss_us), ("aten::sum", loss_us)]
        for place, (name, took) in enumerate(ran):
            trace.op(name, at + 10 * place, 5, [WIDE] * (2 if name == "aten::mm" else 1), values=["1"])
            trace.run("kernel", launched=at + 10 * place + 1, start=at + 60 + 150 * place, dur=min(took, 140))

    chains = [one for one in steps_of(step, tmp_path).findings if one.kind == "unfused-chain"]
    assert len(chains) == titles
    assert sum(len(one.ops) for one in chains) == 4, "none of them is lost"


def test_the_gradient_of_attention_takes_what_such_kernels_take(tmp_path: Path) -> None:
    """cuDNN's reaches a quarter of the peak at these sizes: nothing is to be won there."""

    def gradient(trace: TorchTrace, at: float) -> None:
        heads = (16, 16, 1024, 64)
        args = {
            "Input Dims": [list(heads)] * 5 + [[]] * 10,
            "Input type": ["c10::BFloat16"] * 5 + [""] * 10,
            "Concrete Inputs": [""] * 13 + ["0.", "True"],
        }
        trace.add("cpu_op", "aten::_cudnn_attention_backward", at + 1, 5, 100, 1, {"External id": 1, **args})
        trace.run("cudnn_backward", launched=at + 2, start=at + 10, dur=360)

    products = [one for one in steps_of(gradient, tmp_path).findings if one.kind in ("products", "excess")]
    assert products
    assert all(one.saving_s is None for one in products)


@pytest.mark.parametrize(
    ("rows", "words", "is_odd"),
    [
        (1024, 30522, True),
        (1024, 30720, False),
        (16, 30522, True),  # a few rows, as in decoding
        (17, 30720, False),  # the number of rows does not decide on the kernel there
        (1, 30522, False),  # a product with a vector loads element by element
    ],
)
def test_sizes_that_fill_no_load_are_named(tmp_path: Path, rows: int, words: int, is_odd: bool) -> None:
    def projection(trace: TorchTrace, at: float) -> None:
        trace.op("aten::mm", at + 1, 5, [(rows, 768), (768, words)], dtype="float")
        trace.run("sm80_xmma_gemm_f32f32_tf32f32_f32_tn", launched=at + 2, start=at + 10, dur=500)

    found = [one for one in steps_of(projection, tmp_path).findings if one.kind == "odd-sizes"]
    assert bool(found) == is_odd
    assert not found or "30522" in found[0].message


@pytest.mark.parametrize(("size", "is_tiny"), [(4, True), (32, False)])
def test_batches_of_tiny_products_are_better_computed_by_element(tmp_path: Path, size: int, is_tiny: bool) -> None:
    # Three tensors of 100,000 x 4 x 4 fp32 are 19.2 MB, 4 µs at 4.8 TB/s, or 4.4 at 90% of it; cuBLAS took 2% of that rate.
    def transform(trace: TorchTrace, at: float) -> None:
        trace.op("aten::bmm", at + 1, 5, [(100_000, size, size), (100_000, size, size)], dtype="float")
        trace.run("gemmSN_NN_kernel<float>", launched=at + 2, start=at + 10, dur=200)

    found = [one for one in steps_of(transform, tmp_path).findings if one.kind == "odd-sizes"]
    assert bool(found) == is_tiny
    if found:
        assert found[0].saving_per_step_s == pytest.approx((200 - 4 / 0.9) * 1e-6, rel=0.01)
        assert "torch.compile" in found[0].levers[0]


@pytest.mark.parametrize(("turned", "kinds"), [(True, {"products"}), (False, {"excess"})])
def test_tf32_products_of_operands_across_their_depth_take_longer_than_others(tmp_path: Path, turned: bool, kinds: set[str]) -> None:
    # A gradient of weights: 2·3072·4096·1024 FLOP take 52 µs at the tf32 peak of 495 TFLOP/s, and 136 µs in cuBLAS where both operands lie
    # across their depth, which Hopper's matrix unit does not load.
    strides = [(1, 3072), (1024, 1)] if turned else [(4096, 1), (1, 4096)]

    def gradient(trace: TorchTrace, at: float) -> None:
        trace.op("aten::mm", at + 1, 5, [(3072, 4096), (4096, 1024)], dtype="float", strides=strides)
        trace.run("sm80_xmma_gemm_f32f32_tf32f32_f32_nt", launched=at + 2, start=at + 10, dur=136)

    assert {one.kind for one in steps_of(gradient, tmp_path).findings if one.kind in ("products", "excess")} == kinds


@pytest.mark.parametrize("backward", [False, True])
def test_small_copies_of_a_backward_pass_alone_are_not_asked_for(tmp_path: Path, backward: bool) -> None:
    packed = (16, 1024, 3, 16, 64)

    def layer(trace: TorchTrace, at: float) -> None:
        trace.frame("model.py(9): forward", at, 60)
        trace.op("aten::mm", at + 1, 5, [(16384, 1024), (1024, 3072)], sequence_number=1)
        trace.run("gemm", launched=at + 2, start=at + 10, dur=900)
        thread = 2 if backward else 1
        if backward:
            trace.op("autograd::engine::evaluate_function: MmBackward0", at + 20, 30, thread=2, sequence_number=1)
        strides = [(3145728, 3072, 1024, 64, 1), (1048576, 64, 16777216, 65536, 1)]
        trace.op("aten::copy_", at + 30, 5, [packed, packed], strides=strides, thread=thread)
        trace.run("copy", launched=at + 31, start=at + 910, dur=30, thread=thread)

    found = [one for one in steps_of(layer, tmp_path).findings if one.kind == "layout-copies"]
    assert bool(found) == (not backward)


@pytest.mark.parametrize(("name", "is_told"), [("aten::_embedding_bag_dense_backward", False), ("aten::add", True)])
def test_small_kernels_of_an_op_that_wait_for_each_other_do_not_join(tmp_path: Path, name: str, is_told: bool) -> None:
    """The gradient of a bag sorts its indices first: ten kernels, whatever the program does."""

    def step(trace: TorchTrace, at: float) -> None:
        trace.op("aten::mm", at + 1, 5, [(4096, 4096), (4096, 4096)])
        trace.run("gemm", launched=at + 2, start=at + 10, dur=200)
        tensors, values = [(4, 8), (6, 1), (6, 1), (1, 1), (1, 1)], ["9", "False", "0"]
        trace.op(name, at + 20, 40, *((tensors,) if "bag" in name else ([(4, 8)] * 2,)), values=values if "bag" in name else ())
        for place in range(10):
            trace.run("small", launched=at + 21 + place, start=at + 210 + 6 * place, dur=6)

    found = [one for one in steps_of(step, tmp_path).findings if one.kind == "latency" and one.saving_s]
    assert bool(found) == is_told


def test_odd_sizes_do_not_slow_a_cpu(tmp_path: Path) -> None:
    trace = TorchTrace()
    for begin in trace.steps(3, 1000):
        trace.op("aten::mm", begin, 900, [(255, 129), (129, 513)], dtype="float")
    cpu = replace(Machine.of("cpu", {"vector/fp32": 320e9, "hbm": 32e9}), kind="cpu")
    kinds = {one.kind for one in analyze(trace.write(tmp_path / "t.json"), cpu).findings}
    assert "products" in kinds
    assert "odd-sizes" not in kinds


def test_a_graph_changes_nothing_on_the_cpu(tmp_path: Path) -> None:
    trace = TorchTrace()
    for begin in trace.steps(3, 1000):
        trace.op("aten::mm", begin, 400, [(256, 256), (256, 256)], dtype="float")
        trace.op("aten::mm", begin + 500, 400, [(256, 256), (256, 256)], dtype="float")
    report = what_if(trace.write(tmp_path / "t.json"), "graph", "xeon-8480plus")
    average = next(point for point in report.points if point.scope == "average")
    assert average.time_s == average.before_s
    assert any("no launches" in note for note in report.input.notes)


def test_ops_whose_results_depend_on_data_do_not_fuse(tmp_path: Path) -> None:
    def sampling(trace: TorchTrace, at: float) -> None:
        for place, (name, values) in enumerate(
            (("aten::mul", []), ("aten::_softmax", ["-1", "False"]), ("aten::multinomial", ["4", "False"]))
        ):
            trace.op(name, at + 100 * place, 5, [WIDE], values=values)
            trace.run("kernel", launched=at + 100 * place + 1, start=at + 10 + 100 * place, dur=95)

    report = steps_of(sampling, tmp_path)
    (chain,) = [one for one in report.findings if one.kind == "unfused-chain"]
    assert {report.ops[number].name for number in chain.ops} == {"aten::mul", "aten::_softmax"}
    assert {op.name: op.category for op in report.ops}["aten::multinomial"] == "selection"


def test_ops_on_the_cpu_wait_for_no_launches(tmp_path: Path) -> None:
    trace = TorchTrace()
    for begin in trace.steps(3, 2000):
        for at in range(begin, begin + 1600, 200):
            trace.op("aten::copy_", at, 100, [(512, 512), (512, 512)], strides=[(512, 1), (1, 512)])
    report = analyze(trace.write(tmp_path / "t.json"), "xeon-8480plus")
    assert {"layout-copies", "idle-dispatch"} <= {one.kind for one in report.findings}
    assert not any("Their launches" in one.message for one in report.findings)


def test_products_of_templates_are_told_to_try_the_library(tmp_path: Path) -> None:
    def product(trace: TorchTrace, at: float) -> None:
        trace.annotation("## Call CompiledFxGraph abc ##", at + 1, 20)
        trace.op("triton_tem_fused_mm_0", at + 2, 8, [(4096, 4096), (4096, 4096), (4096, 4096)])
        trace.run("triton_tem_fused_mm_0", launched=at + 3, start=at + 10, dur=500)

    # 2·4096³ FLOP take 139 µs at the peak.
    assert "cuBLAS" in finding(steps_of(product, tmp_path), "products").levers[0]


@pytest.mark.parametrize(
    ("name", "sizes", "calls", "said"),
    [
        ("aten::_thnn_fused_lstm_cell", [(64, 2048), (64, 2048), (64, 512)], 10, "nn.LSTM"),
        ("aten::_thnn_fused_lstm_cell", [(64, 2048), (64, 2048), (64, 512)], 4, "reduce-overhead"),
        ("aten::cudnn_convolution", [(1, 3, 32, 32), (8, 3, 3, 3)], 10, "torch.stack(samples)"),
        ("aten::cudnn_convolution", [(1, 3, 32, 32), (8, 3, 3, 3)], 4, "reduce-overhead"),
        ("aten::cudnn_convolution", [(2, 3, 32, 32), (8, 3, 3, 3)], 10, "reduce-overhead"),
        ("aten::addmm", [(64,), (1, 64), (64, 64)], 40, "torch.stack(samples)"),
        ("aten::addmm", [(64,), (1, 64), (64, 64)], 20, "reduce-overhead"),  # equal layers
        ("aten::mul", [(64, 64), (64, 64)], 120, "one call for a tensor of all of them"),
        ("aten::mul", [(64, 64), (64, 64)], 60, "reduce-overhead"),
        ("aten::mul", [], 120, "reduce-overhead"),  # shapes were not recorded, so that calls of all sizes are one op
    ],
)
def test_loops_around_cells_and_samples_are_told_to_call_once(
    tmp_path: Path, name: str, sizes: list[tuple[int, ...]], calls: int, said: str
) -> None:
    trace = TorchTrace()
    for begin in trace.steps(4, 150 * calls + 400):
        trace.frame("train.py(5): main", begin, 150 * calls + 399)
        end = begin + 10 + 150 * calls
        for at in range(begin + 10, end, 150):
            trace.op(name, at, 100, sizes, sequence_number=1)
            trace.run("kernel", launched=at + 90, start=at + 95, dur=5)
        trace.op(f"{NODE}Backward0", end + 50, 100, thread=BACKWARD, sequence_number=1)
        trace.op("aten::mul", end + 60, 80, [(8,), (8,)], thread=BACKWARD)
        trace.run("kernel", launched=end + 130, start=end + 135, dur=5, thread=BACKWARD)
    found = finding(analyze(trace.write(tmp_path / "t.json"), "h200"), "idle-dispatch")
    assert said in found.levers[0]


@pytest.mark.parametrize(("name", "is_told"), [("aten::addcmul_", True), ("aten::_foreach_addcmul_", False)])
def test_an_optimizer_that_updates_one_parameter_at_a_time(tmp_path: Path, name: str, is_told: bool) -> None:
    trace = TorchTrace()
    for begin in trace.steps(4, 2000):
        trace.frame("train.py(5): main", begin, 1999)
        trace.annotation("Optimizer.step#AdamW.step", begin + 1000, 990)
        for at in range(begin + 10, begin + 1900, 150):
            trace.op("aten::relu" if at < begin + 1000 else name, at, 100, [(8,), (8,)], values=["1"])
            trace.run("kernel", launched=at + 90, start=at + 95, dur=5)
    found = finding(analyze(trace.write(tmp_path / "t.json"), "h200"), "idle-dispatch")
    assert ("an optimizer with fused=True" in found.levers[0]) == is_told
    assert not is_told or "46% of the kernels update one parameter each" in found.levers[0]  # 6 of 13


def test_a_factorisation_of_many_small_kernels_is_told_beside_kernels_that_can_be_fused(tmp_path: Path) -> None:
    def step(trace: TorchTrace, at: float) -> None:
        trace.op("aten::linalg_lu_factor_ex", at + 1, 300, [(64, 256, 256)], dtype="float")
        for place in range(100):
            trace.run("getrf_panel", launched=at + 2 + 2 * place, start=at + 10 + 6 * place, dur=5)
        for place in range(20):
            trace.op("aten::relu", at + 400 + 4 * place, 3, [(64, 64)], dtype="float")
            trace.run("relu", launched=at + 401 + 4 * place, start=at + 620 + 6 * place, dur=5)

    fused, alone = [one for one in steps_of(step, tmp_path).findings if one.kind == "latency"]
    assert "relu" in fused.message
    assert fused.saving_per_step_s is not None
    assert "linalg_lu_factor_ex" in alone.message
    assert (alone.saving_per_step_s, "factorise less often" in alone.levers[0]) == (None, True)


def test_a_program_that_replays_graphs_is_not_told_to(tmp_path: Path) -> None:
    trace = TorchTrace()
    for begin in trace.steps(4, 1000):
        trace.frame("train.py(5): main", begin, 999)
        for at in range(begin + 100, begin + 1000, 300):
            graph = trace.launch(at, "cudaGraphLaunch", 20)
            for place in range(10):
                trace.ran("kernel", at + 30 + 10 * place, 9, graph)
            trace.op("aten::add", at + 200, 80, [(8,), (8,)], values=["1"])
            trace.run("add", launched=at + 210, start=at + 215, dur=2)
    found = finding(analyze(trace.write(tmp_path / "t.json"), "h200"), "idle-dispatch")
    assert "between graph replays" in found.message
    assert not any("reduce-overhead" in lever for lever in found.levers)


@pytest.mark.parametrize(
    ("length", "said"),
    [
        (16384, ""),
        (16383, "16383, which has the prime factor 127"),
        (2 * 8009, "16018, which has the prime factor 8009"),
        (16381, "16381, which is a prime"),
    ],
)
def test_transforms_of_lengths_with_a_large_prime_factor(tmp_path: Path, length: int, said: str) -> None:
    def back(trace: TorchTrace, at: float) -> None:
        half = (8, 256, length // 2 + 1)
        trace.op("aten::_fft_c2r", at + 2, 8, [half], dtype="c10::complex<float>", values=["[2]", "0", str(length)])
        trace.run("vector_fft", launched=at + 3, start=at + 10, dur=900)

    found = [one for one in steps_of(back, tmp_path).findings if one.kind == "odd-sizes"]
    assert bool(found) == bool(said)
    if found:
        assert f"transforms tensors of length {said}" in found[0].message
        # 8 bytes for each of 8·256·8009 complex numbers, and 4 for as many twice of real ones, at 30% of 4.8 TB/s.
        assert found[0].saving_per_step_s == pytest.approx(900e-6 - 16 * 8 * 256 * 8009 / (0.3 * 4.8e12), rel=0.05)


def test_flex_attention_is_not_told_to_try_a_library_of_matmuls(tmp_path: Path) -> None:
    heads, block = (4, 16, 4096, 64), (1, 1, 1)

    def attention(trace: TorchTrace, at: float) -> None:
        types = [*["c10::BFloat16"] * 3, "float", "float", "int", "int", "c10::BFloat16"]
        trace.op(
            "triton_tem_fused_flex_attention_0", at + 2, 8, [heads, heads, heads, heads[:3], heads[:3], block, block, heads], types=types
        )
        trace.run("triton_tem_fused_flex_attention_0", launched=at + 3, start=at + 10, dur=900)

    # 4·64·4·16·4096² FLOP take 278 µs at the peak.
    found = finding(steps_of(attention, tmp_path), "products")
    assert "scaled_dot_product_attention" in found.levers[0]
    assert found.message.endswith("It may save less: the operations of a score_mod are not recorded.")


def test_convolutions_of_few_channels_are_told_to_take_more(tmp_path: Path) -> None:
    def patches(trace: TorchTrace, at: float) -> None:
        trace.op("aten::cudnn_convolution", at + 2, 8, [(64, 3, 224, 224), (1024, 3, 16, 16)], values=["[0, 0]", "[16, 16]", "[1, 1]", "1"])
        trace.run("conv", launched=at + 3, start=at + 10, dur=700)

    assert "input channels are few" in finding(steps_of(patches, tmp_path), "products").levers[0]
