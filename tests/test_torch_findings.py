"""Findings about PyTorch programs beside those that `test_torch_cases.py` has as data: relations between them, their words, and CPUs."""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from roofline.analysis import analyze
from roofline.analysis.what_if import what_if
from roofline.machine import Machine
from roofline.report import Finding, Report
from roofline.rules.words import kinds, page, words_of
from torch_writer import Kernels, TorchTrace, report_on
from torch_writer import steps_of as kernels_of

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
    worked_s = 300e-6 * 9 / 15
    # Of five launches, for which the device waits, one is left with a fifth of the wait.
    host_s = 300e-6 + 5 * (finding(report, "idle-dispatch").saving_per_step_s or 0)
    assert found.saving_per_step_s == pytest.approx(host_s - ((host_s / 5) ** 3 + (300e-6 - worked_s) ** 3) ** (1 / 3), rel=0.01)


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
    host_s = 37e-6 + (launches.saving_per_step_s or 0) * 5 / 2
    assert casts.saving_per_step_s == pytest.approx(host_s - ((host_s * 2 / 5) ** 3 + 7e-6**3) ** (1 / 3), rel=0.01)
    assert report.findings.index(casts) < report.findings.index(launches)


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


@pytest.mark.parametrize("mask", [(1024, 1024), (4, 1, 1024, 1024)])
def test_the_half_of_causal_scores_is_masked(tmp_path: Path, mask: tuple[int, ...]) -> None:
    heads, long, depth = 64, 1024, 64
    scores = (4, 16, long, long)
    strides = [(16 * long * long, long * long, long, 1), (0, long * long, long, 1)[-len(mask) :]]  # expanded over the batch

    def attention(kernels: Kernels) -> None:
        kernels.op("aten::triu", [(long, long)], values=["1"])
        kernels.op("aten::bmm", [(heads, long, depth), (heads, depth, long)])
        kernels.op("aten::add", [scores, mask], strides=strides)
        kernels.op("aten::_softmax", [scores], values=["-1", "False"])
        kernels.op("aten::bmm", [(heads, long, long), (heads, long, depth)])

    products = [op for op in report_on(kernels_of(attention), tmp_path).ops if op.name == "aten::bmm"]
    assert [op.unneeded["masked"] for op in products] == [3 * heads * long * long * depth] * 2  # half of 2·b·m·n·k
