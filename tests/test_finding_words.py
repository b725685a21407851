"""Sentences of findings: they fit the ops they speak of, and agree with the figures above them."""

from pathlib import Path

import pytest

from every import every
from roofline import analyze
from roofline.cost import Cost
from roofline.operation import Convolution, Scattered
from roofline.report import Finding, Report
from roofline.workload import UNSEEN, Array, Avoidable, IdleReason
from test_findings import an_op, report_on


def _of(report: Report, kind: str) -> Finding:
    (found,) = [finding for finding in report.findings if finding.kind == kind]
    return found


def test_the_ops_of_a_place_come_after_a_comma() -> None:
    slow = [an_op(f"add.{number}", {"hbm": 10}, 5.0, location=f"model.py:{number}") for number in (7, 8)]
    assert _of(report_on(*slow), "memory").message.startswith("At model.py:7, model.py:8, 2 ops, the longest add.7, are memory-bound")


def test_less_work_can_end_below_the_minimum_of_the_program_as_written() -> None:
    # Two programs move 400 B in 50 s, at least 40 s, and hand half of the bytes on; as one, half of the time is spared.
    array = (Array("bf16[50]", 100),)
    parts = [an_op(f"f{i}", {"hbm": 200}, 25.0, module=f"jit_f{i}", takes=array, gives=array) for i in range(2)]
    report = report_on(*parts)
    found = _of(report, "unfused-chain")
    assert found.after_s == pytest.approx(25)
    assert "the run would take 25 s, below the minimum of the program as written." in found.message
    assert "40 s is its minimum as written" in report.summary
    slow = report_on(*(an_op(one.name, {"hbm": 200}, 80.0, module=one.module, takes=array, gives=array) for one in parts))
    assert "as written" not in _of(slow, "unfused-chain").message + slow.summary  # 80 s are left, more than the 40 s of the minimum


def test_host_code_that_the_profile_does_not_show_is_not_called_the_next_batch() -> None:
    for cause, said in ((UNSEEN, "Do that work ahead of time"), ("", "Prepare the next batch")):
        waited = IdleReason(kind="input", activity="load, called from f", cause=cause, time_s=6.0, gaps=3)
        found = _of(report_on(an_op("dot", {"matrix/bf16": 200}, 2.0), wall_s=8.0, idle=(waited,)), "idle-input")
        assert said in found.message
        assert ("batches" in " ".join(found.levers)) == (cause != UNSEEN)


@every(
    ("fields", "said"),
    [
        ({"category": "optimizer"}, "moments"),
        ({"category": "input fusion", "label": "mlp.py:7  sum bf16[8]"}, "multiply by ones"),
        ({"category": "input fusion", "label": "attn.py:7  reduce bf16[8]"}, "fuse neighbours"),  # can be a matmul with one row
        ({"category": "gather"}, "gather whole rows"),
        ({"category": "gather", "label": "index 100000x64 fp32", "shapes": ((100_000, 64),)}, "wider rows"),
        ({"category": "custom call", "label": "norm  pallas call bf16[8]"}, "tune the kernel"),
        ({"category": "loop fusion"}, "fuse neighbours"),
    ],
)
def test_the_levers_are_those_of_the_ops_with_most_of_the_saving(fields: dict[str, object], said: str) -> None:
    report = report_on(an_op("one", {"hbm": 10}, 20.0, **fields), an_op("other", {"hbm": 10}, 5.0, category="loop fusion"))
    assert said in " ".join(_of(report, "memory").levers)


@every(
    ("number", "groups", "first"),
    [
        ("bf16", 1, "where input channels are few"),
        ("bf16", 96, "a kernel of its own"),
        ("fp32", 96, "with windows of 7x7, channels last: gradients of the weights in bf16"),
    ],
)
def test_slow_convolutions_are_advised_by_their_channels_and_format(number: str, groups: int, first: str) -> None:
    made = Convolution(batch=8, features=96, pairs=49, groups=groups, compute=number)
    slow = an_op("conv", {"hbm": 1}, 20.0, category="convolution", operation=made)  # at 0.5% of the roofline
    assert _of(report_on(slow), "memory").levers[0].startswith(first)


@every(("group", "said"), [("fp32 beside sums", "keep scatter-adds"), ("fp32", "Use bf16, in which")])
def test_sums_by_index_are_not_advised_to_be_in_bf16(group: str, said: str) -> None:
    narrow = Avoidable(kind="wide-format", instead=Cost.of({"hbm": 50}), why="multiplies fp32 operands", group=group)
    assert said in _of(report_on(an_op("dot", {"hbm": 100}, 20.0, avoidable=(narrow,))), "wide-format").message


@every(
    ("shapes", "said"),
    [
        (((32, 512, 500), (32, 512, 500), (512, 1, 31)), "causal_conv1d"),
        (((64, 192, 56, 56), (192, 1, 3, 3), (192,)), "channels last and a 16-bit format"),
        (((64, 1, 28, 28), (32, 1, 3, 3)), "where input channels are few"),
    ],
)
def test_slow_depthwise_convolutions_are_not_advised_to_have_more_channels(shapes: tuple[tuple[int, ...], ...], said: str) -> None:
    slow = an_op("conv", {"hbm": 1}, 20.0, category="convolution", shapes=shapes)  # at 0.5% of the roofline
    assert said in _of(report_on(slow), "memory").levers[0]


def test_the_op_that_a_finding_names_is_one_that_its_advice_is_for() -> None:
    # The copy is the longest op, but three sums have 45 of the 64 s that can be saved.
    copy = an_op("copy", {"hbm": 10}, 20.0, category="copy", label="copy bf16[8]")
    sums = [an_op(f"sum.{place}", {"hbm": 10}, 16.0, category="input fusion", label=f"sum bf16[{place}]") for place in range(3)]
    found = _of(report_on(copy, *sums), "memory")
    assert "4 ops, most of the saving in ops like sum bf16[0] (sum.0), are memory-bound" in found.message
    assert "multiply by ones" in found.levers[0]
    assert "2 ops, the longest sum bf16[0] (sum.0)," in _of(report_on(*sums[:2]), "memory").message


def test_a_top_k_with_much_of_the_time_has_a_finding_of_its_own() -> None:
    top = an_op("custom-call.1", {"hbm": 1}, 20.0, category="sort", label="f  gpu TopK fp32[8,8]")
    fused = [an_op(f"fusion.{place}", {"hbm": 10}, 16.0, category="loop fusion") for place in range(3)]
    found = {one.ops: one.levers[0] for one in report_on(top, *fused).findings if one.kind == "memory"}
    assert {ops: "the top k of each part of a row" in lever for ops, lever in found.items()} == {(0,): True, (1, 2, 3): False}


@every(
    ("labels", "title"),
    [
        ({"fmha": "attention"}, "the attention kernels"),
        ({"dot": "matmul", "fmha": "attention"}, "the matmuls and attention kernels"),
        ({"dot": "matmul"}, "the matmuls"),
        ({"dot": "matmul", "conv2d 8x8": "convolution", "fmha": "attention"}, "the matmuls, convolutions and attention kernels"),
        ({"layer  dot 8×8×8": "convolution"}, "the matmuls"),  # as a TPU's profiler has them
    ],
)
def test_work_on_the_matrix_unit_is_called_by_its_name(labels: dict[str, str], title: str) -> None:
    ops = [an_op(label, {"matrix/bf16": 100}, 5.0, category=category, label=label) for label, category in labels.items()]
    assert _of(report_on(*ops), "products").title == title


@every(("category", "tried"), [("pointwise fusion", "max-autotune"), ("elementwise", "intermediates never reach memory")])
def test_what_is_compiled_is_not_told_to_be(category: str, tried: str) -> None:
    slow = an_op("triton_poi_fused_add", {"hbm": 10}, 5.0, category=category)
    assert tried in _of(report_on(slow, format="torch"), "memory").levers[0]


def test_in_a_compiled_program_nothing_is_told_to_be_compiled() -> None:
    slow = an_op("aten::sum", {"hbm": 10}, 50.0, category="reduction")
    compiled = an_op("triton_poi_fused_add", {"hbm": 10}, 1.1, category="pointwise fusion")
    copied = an_op("aten::copy_", {"hbm": 10}, 50.0, category="copy")
    for ops, told in ((copied,), True), ((copied, compiled), False), ((slow, copied, compiled), False):
        assert ("torch.compile, so that" in " ".join(_of(report_on(*ops, format="torch"), "memory").levers)) == told


def test_a_program_in_fp64_is_not_told_that_matmuls_accumulate_in_fp32_anyway(tmp_path: Path) -> None:
    path = tmp_path / "solve.hlo"
    path.write_text("""HloModule solve
ENTRY %main (x: f64[4096,4096], w: f64[4096,4096]) -> f64[4096,4096] {
  %x = f64[4096,4096]{1,0} parameter(0)
  %w = f64[4096,4096]{1,0} parameter(1)
  %dot = f64[4096,4096]{1,0} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %sine = f64[4096,4096]{1,0} sine(%dot)
}
""")
    found = _of(analyze(str(path), "h200"), "wide-format")
    assert "the program computes in fp64: " in found.message
    assert "Compute in fp32, if its precision is enough (matmuls then run in tf32)" in found.message
    assert not any("astype(float32)" in lever for lever in found.levers)
    assert not any("stray" in lever for lever in found.levers)  # it was given fp64


@every(("number", "said"), [("bf16", True), ("fp32", False)])
def test_a_scatter_of_16_bit_numbers_is_told_to_add_wider_ones(number: str, said: bool) -> None:
    sums = Scattered(rows=8, columns=8, number=number)
    found = _of(report_on(an_op("op", {"hbm": 10}, 20.0, category="scatter", label="f  scatter-add", operation=sums)), "memory")
    assert ("fp32" in found.levers[0]) == said


@every(("label", "saves"), [("select and scatter bf16[8,8]", False), ("add bf16[8,8]", True)])
def test_the_gradient_of_a_pool_reaches_a_tenth_of_the_bandwidth(label: str, saves: bool) -> None:
    # 20% of the roofline. On an H200 other forms of pools with windows that overlap took longer.
    found = _of(report_on(an_op("op", {"hbm": 100}, 50.0, category="input fusion", label=f"f  {label}")), "memory")
    assert bool(found.saving_s) == saves


@every(("rows", "columns", "said"), [(64, 8, True), (65, 8, False), (2048, 1, False)])
def test_a_scatter_of_many_rows_to_few_is_told_to_be_a_matmul(rows: int, columns: int, said: bool) -> None:
    # 65,536 B are 64 times the 1,024 B of bf16[64,8].
    sums = Scattered(rows=rows, columns=columns, number="bf16")
    found = _of(report_on(an_op("op", {"hbm": 65_536}, 2e5, category="scatter", label="f  scatter-add", operation=sums)), "memory")
    assert ("one_hot" in found.levers[0]) == said


def test_all_scatters_are_one_finding() -> None:
    # 10% of the roofline, which is usual of scatters, and 50%: both are told with the same advice.
    scatters = [an_op(name, {"hbm": 100}, time_s, category="scatter") for name, time_s in (("slow", 100.0), ("fast", 20.0))]
    told = [one.ops for one in report_on(*scatters, an_op("add", {"hbm": 100}, 12.0, category="loop fusion")).findings]
    assert [len(ops) for ops in told if {0, 1} & {*ops}] == [2]


def test_a_sort_that_takes_much_of_the_time_is_told_by_itself() -> None:
    # 12% of the roofline is more than sorts reach: nothing to gain, but to sort less.
    ops = [an_op("sort", {"hbm": 100}, 83.0, category="sort"), an_op("add", {"hbm": 500}, 60.0, category="loop fusion")]
    (found,) = [one for one in report_on(*ops).findings if 0 in one.ops]
    assert (found.ops, found.saving_s) == ((0,), None)
    assert "a sample of the elements" in found.levers[0]
