"""A program after changes: what grows with a dimension, what other formats and kernels cost, and the times that come of it."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from every import every
from program_texts import program_text
from roofline import analyze
from roofline.analysis.changes import change
from roofline.analysis.changes.changed_steps import host_wait_s
from roofline.analysis.changes.changed_times import OTHER_UNIT, Changed, anchored, applied, bounds
from roofline.analysis.changes.fuse import compulsory_bytes, instruction_limited_s
from roofline.analysis.changes.state import State
from roofline.analysis.what_if import _summary, what_if
from roofline.cli import main
from roofline.cost import Cost
from roofline.dtypes import dtype
from roofline.errors import UsageError
from roofline.graph import Array as GraphArray
from roofline.graph import Graph, Node, Operator
from roofline.hlo.read import parse
from roofline.hlo.scaling.batch_of_one import Data
from roofline.hlo.scaling.growth import Program
from roofline.hlo.scaling.inputs import inputs_of
from roofline.hlo.scaling.named_dimensions import dimension_named, dimensions_of, walking
from roofline.hlo.scaling.scaled import scaled
from roofline.machine import Machine
from roofline.machines import load
from roofline.machines.calibrations import calibration_for
from roofline.operation import Label, Product
from roofline.plan.chips import chips_of
from roofline.plan.times import training_calibration
from roofline.prediction import predict
from roofline.report import Expected, Point, Report
from roofline.units import show
from roofline.workload import Array, Device, IdleReason, Op, ProgramGraph, Recording, Share, Step, Workload
from torch_writer import TorchTrace

PAIRS = Path(__file__).parent / "data" / "h200" / "pairs"
TRAIN, MLP, ATTENTION, EXPERTS = (str(PAIRS / f"{name}.xplane.pb.gz") for name in ("train_b4", "mlp_bf16", "attn_plain", "moe_8"))

CPU = str(PAIRS.parents[1] / "cpu" / "jax_one.xplane.pb.gz")

LAYER = program_text("what_if/layer.hlo")


def shapes_after(name: str, times: int) -> dict[str, tuple[int, ...]]:
    program = Program(parse(LAYER.encode(), "layer"))
    dimension = dimension_named(program, name)
    assert dimension is not None
    return {one.name: one.shape.dims for one in scaled(program, dimension.marks, times).entry_computation}


def average_ms(report: Report) -> float:
    point = next(point for point in report.points if point.scope == "average" and point.infeed_outfeed)
    assert point.time_s is not None
    return point.time_s * 1e3


def test_a_dimension_is_followed_through_joined_dimensions_and_weights_stay() -> None:
    batch = shapes_after("batch", 3)
    assert batch == {"tok": (12, 8), "table": (100, 16), "bias": (16,), "w": (16, 64), "x": (12, 8, 16), "y": (96, 16), "z": (96, 64)}
    assert shapes_after("sequence", 2)["x"] == (4, 16, 16)
    assert shapes_after("w[1]", 2)["z"] == (32, 128)
    assert shapes_after("bias[0]", 2)["w"] == (32, 64)


def test_weights_are_told_from_data() -> None:
    program = Program(parse(LAYER.encode(), "layer"))
    assert {one.name for one in inputs_of(program) if one.is_weight} == {"table", "bias", "w"}
    assert {one.name: one.size for one in dimensions_of(program)} == {"vocabulary": 100, "hidden": 16, "batch": 4, "sequence": 8}


LOOP = program_text("what_if/loop.hlo")


UPDATED = program_text("what_if/updated.hlo")


def test_of_two_arguments_without_names_the_weight_is_the_one_that_is_updated() -> None:
    # Two kernels take either: a matmul and the update, or two matmuls.
    program = Program(parse(UPDATED.encode(), "step"))
    assert {one.name: one.is_weight for one in inputs_of(program)} == {"a": True, "b": False}
    batch = dimension_named(program, "batch")
    assert batch is not None
    assert [(one.name, axis, batch.size) for one, axis in batch.inputs] == [("b", 0, 32)]


def test_what_a_loop_walks_along_is_a_weight_and_its_state_is_followed() -> None:
    program = Program(parse(LOOP.encode(), "loop"))
    assert {one.name: one.is_weight for one in inputs_of(program)} == {"w": True, "x": False}
    dimension = dimension_named(program, "batch")
    assert dimension is not None
    body = scaled(program, dimension.marks, 3).computation("body")
    assert body is not None
    assert {one.name: one.shape.dims for one in body if one.name in ("x", "y", "mine")} == {
        "x": (12, 16),
        "y": (12, 16),
        "mine": (1, 16, 16),
    }


def prediction(seconds: float, floor: float = 0.0, family: str = "products") -> Expected:
    low, high = 0.9 * seconds, 1.2 * seconds
    return Expected(time_s=seconds, low_s=low, high_s=high, terms={"floor": floor}, evidence="", family=family)


def test_an_anchor_counts_less_the_farther_the_change_goes() -> None:
    near, far = (anchored(2.0, prediction(1.0), prediction(4.0), doublings)[0] for doublings in (1, 3))
    assert 4.0 < far < near < 8.0
    assert anchored(2.0, prediction(1.0, family="pointwise"), prediction(4.0), 3)[0] == 8.0
    assert anchored(None, prediction(1.0), prediction(4.0), 1)[0] == 4.0
    assert anchored(2.0, prediction(1.0, floor=0.5), prediction(4.0), 1)[0] == pytest.approx(5.0)  # small: seconds, not shares
    # Four times the rows of a product that reads its weight are expected to take no longer: they take what was measured.
    assert anchored(2.0, prediction(1.0), prediction(1.0), 2)[0] == 2.0


def test_a_streaming_kernel_that_is_slow_for_more_than_its_launch_is_slow_at_all_of_its_work() -> None:
    small, large = prediction(4.0, floor=2.0, family="pointwise"), prediction(18.0, floor=2.0, family="pointwise")
    assert anchored(5.0, small, large, 3)[0] == 19.0  # one second more, as a launch may take
    assert anchored(8.0, small, large, 3)[0] == 2.0 + 16 * (8 - 2) / (4 - 2)
    assert anchored(34.0, large, small, 3)[0] == 2.0 + 2 * (34 - 2) / (18 - 2)
    assert anchored(8.0, small, large, 3, unknown=True)[0] == 22.0  # a chip that is idle in part has room for more


def test_more_matrices_of_the_same_sizes_are_as_slow_as_before() -> None:
    assert anchored(2.0, prediction(1.0), prediction(4.0), 2, same_matrices=True)[0] == 8.0


def test_no_changed_op_is_predicted_below_its_minimum() -> None:
    faster = replace(prediction(4.0), floor_s=3.5)  # measured in half its expected time, so that the anchor would have it take 2
    assert anchored(0.5, prediction(1.0, family="pointwise"), faster, 1) == (3.5, 3.5, 3.5)
    report = what_if(TRAIN, "scale batch=x4")
    changed = [op for op in report.ops if op.expected and op.time_s != op.before_s]
    assert changed
    assert all(op.expected.low_s >= (op.floor_s or 0.0) * (1 - 1e-9) for op in changed if op.expected)


def test_the_time_of_an_op_that_hardly_changes_is_known() -> None:
    _, low, high = anchored(1.1, prediction(1.0), prediction(1.0), 1)
    assert 0.95 * 1.1 < low < 1.1 < high < 1.06 * 1.1
    _, low, high = anchored(1.1, prediction(1.0), prediction(2.0), 1)
    assert high / low == pytest.approx(1.2 / 0.9)


def test_in_another_number_format_a_products_own_difference_counts_less() -> None:
    usual, fast = prediction(2.0), prediction(1.0)
    assert anchored(4.0, usual, fast, 1)[0] == pytest.approx(2**0.85)
    assert anchored(4.0, usual, fast, 1, OTHER_UNIT)[0] == pytest.approx(2 ** (0.4 * 0.85))
    machine = load("h200")
    calibration = calibration_for(machine).for_kernels()
    tf32 = Product(m=8192, k=8192, n=8192, left="fp32", right="fp32", out="fp32", compute="tf32")
    cost = Cost.of({"matrix/tf32": tf32.flops, "hbm": tf32.bytes})
    times = []
    for slower in (1.0, 1.5):
        expected = predict(tf32, cost, machine, calibration)
        assert expected is not None
        op = Op(name="y", cost=cost, operation=tf32, time_s=slower * expected.time_s)
        state = State(Recording(format="xspace", workload=Workload((op,))), {}, machine, calibration)
        change(state, ["dtype", "bf16"])
        times.append(state.changed()[0].time_s)
    assert times[1] / times[0] == pytest.approx(1.5 ** (0.4 * 0.85), rel=0.03)


def test_a_small_product_of_uneven_sizes_is_slower_at_all_of_its_work() -> None:
    # Scores of 196 tokens, whose rows are no multiple of 16 bytes: 7.8 µs for 4 images on an H200, 72.7 µs for 64.
    machine = load("h200")
    times = []
    for tokens in (196, 192):
        scores = Product(m=tokens, k=tokens, n=64, batch=64)
        cost = Cost.of({"matrix/bf16": scores.flops, "hbm": scores.bytes})
        op = Op(name="y", cost=cost, operation=scores, time_s=7.8e-6)
        state = State(Recording(format="xspace", workload=Workload((op,))), {}, machine, calibration_for(machine).for_kernels())
        state.put(0, cost * 16, replace(scores, batch=1024), 4.0)
        times.append(state.changed()[0].time_s)
    assert 55e-6 < times[0] < 75e-6
    assert times[1] < 45e-6


def test_an_excess_may_go_away_with_the_shape() -> None:
    usual, slow = prediction(1.0), prediction(4.0)
    assert anchored(1.1, usual, slow, 1)[1] > 3.6
    assert anchored(5.0, usual, slow, 1)[1] == 4.0  # five times its time: what another shape takes of it nobody knows


def test_errors_add_up_within_a_family_and_not_between_families() -> None:
    same = bounds([("a", 1.0, 0.9, 1.1), ("a", 1.0, 0.9, 1.1)])
    other = bounds([("a", 1.0, 0.9, 1.1), ("b", 1.0, 0.9, 1.1)])
    assert same == pytest.approx((0.2, 0.2))
    assert other == pytest.approx((0.02**0.5, 0.02**0.5))


@every(
    ("path", "words", "measured_ms"),
    [  # average steps of profiles after the change
        (TRAIN, "scale batch=x4", 58.64),
        (MLP, "dtype fp8", 10.13),
        (ATTENTION, "kernel attention=flash", 0.678),
    ],
)
def test_steps_come_true(path: str, words: str, measured_ms: float) -> None:
    report = what_if(path, words)
    assert average_ms(report) == pytest.approx(measured_ms, rel=0.1)
    point = next(point for point in report.points if point.scope == "average" and point.infeed_outfeed)
    assert point.expected is not None
    assert point.expected.low_s * 1e3 <= measured_ms <= point.expected.high_s * 1e3
    assert point.before_s is not None
    assert report.changes == tuple(words.split())


def test_ops_that_do_not_change_keep_their_times() -> None:
    report = what_if(ATTENTION, "kernel attention=flash")
    kept = next(op for op in report.ops if op.name.startswith("gemm_fusion_dot"))
    assert kept.time_s == kept.before_s
    assert all(op.floor_s is None or op.time_s >= op.floor_s * 0.999 for op in report.ops if op.expected and op.time_s != op.before_s)


def test_changes_combine_and_go_the_right_way() -> None:
    plain = average_ms(what_if(MLP, "no-idle"))
    assert average_ms(what_if(MLP, "scale batch=x2 dtype fp8")) > average_ms(what_if(MLP, "dtype fp8"))
    assert average_ms(what_if(MLP, "chip b200")) < plain
    assert average_ms(what_if(MLP, "set hbm=x2")) < plain
    assert average_ms(what_if(EXPERTS, "grouped")) < average_ms(what_if(EXPERTS, "no-idle"))
    assert average_ms(what_if(EXPERTS, "scale experts=x8")) > 6 * average_ms(what_if(EXPERTS, "no-idle"))
    assert average_ms(what_if(TRAIN, "remat on")) > average_ms(what_if(TRAIN, "no-idle"))


def test_a_finding_promises_what_the_command_predicts_with_the_ops_that_change() -> None:
    report = analyze(ATTENTION)
    found = next(finding.predicted for finding in report.findings if finding.predicted)
    after = what_if(ATTENTION, found.change)
    (expected,) = [point.expected for point in after.points if point.scope == "average" and point.infeed_outfeed]
    assert expected is not None
    assert (found.time_s, found.low_s, found.high_s) == pytest.approx((expected.time_s, expected.low_s, expected.high_s), rel=0.01)
    assert {one.op for one in found.ops} == {op.id for op in after.ops if op.time_s != op.before_s and op.id < len(report.ops)}


def test_a_dimension_can_become_smaller() -> None:
    half, whole = (average_ms(what_if(MLP, words)) for words in ("scale batch=x1/2", "no-idle"))
    assert 0.45 * whole < half < 0.6 * whole
    assert average_ms(what_if(MLP, "scale batch=x0.5")) == half


def test_a_size_that_is_no_whole_number_is_refused() -> None:
    with pytest.raises(UsageError, match="leaves no whole number"):
        what_if(MLP, "scale batch=x1/3")


@every(("waits", "expected_s"), [((1e-3, 1e-3, 1e-3), 4e-3), ((1e-3, 0.0, 0.0), 3e-3), ((1e-3, 1e-3, 0.0, 0.0), 3e-3)])
def test_only_where_most_later_steps_wait_for_dispatch_the_host_decides_how_short_a_step_can_be(waits, expected_s: float) -> None:
    count = len(waits)
    parts = tuple(Share(key=key, count=1, time_s=1.5e-3) for key in range(count))
    ops = tuple(Op(name=name, cost=Cost.of({"hbm": 1}), time_s=1.5e-3 * count, count=count, by_step=parts) for name in "ab")
    steps = tuple(Step(step=key, time_s=4e-3, busy_s=3e-3) for key in range(count))
    shares = tuple(Share(key=key, count=1, time_s=seconds) for key, seconds in enumerate(waits) if seconds)
    idle = (IdleReason(kind="dispatch", activity="f", time_s=sum(waits), gaps=3, by_step=shares),)
    recording = Recording(format="xspace", workload=Workload(ops), steps=steps, idle=idle)
    then = 0.5e-3 * count
    after = applied(recording, {0: Changed(time_s=then, low_s=then, high_s=then, cost=Cost.of({"hbm": 1}))})
    assert after.steps[0].time_s == pytest.approx(expected_s)


def test_a_cpu_waits_no_longer_for_its_host_if_its_ops_take_less_time() -> None:
    # 3 ms of work and 1 ms of waiting for the next call in each step: of ops ten times as fast, 0.3 ms and the same waiting are left.
    shares = tuple(Share(key=key, count=1, time_s=3e-3) for key in range(3))
    waits = tuple(Share(key=key, count=1, time_s=1e-3) for key in range(3))
    recording = Recording(
        format="xspace",
        workload=Workload((Op(name="a", cost=Cost.of({"hbm": 1}), time_s=9e-3, count=3, by_step=shares),)),
        steps=tuple(Step(step=key, time_s=4e-3, busy_s=3e-3) for key in range(3)),
        idle=(IdleReason(kind="dispatch", activity="f", time_s=3e-3, gaps=3, by_step=waits),),
        devices=(Device(id=0, name="CPU"),),
    )
    after = applied(recording, {0: Changed(time_s=9e-4, low_s=9e-4, high_s=9e-4, cost=Cost.of({"hbm": 1}))})
    assert [step.time_s for step in after.steps] == pytest.approx([1.3e-3] * 3)


def test_a_larger_batch_on_a_cpu_has_that_much_more_work_in_the_same_format() -> None:
    before, after = analyze(CPU), what_if(CPU, "scale batch=x4")
    matrix = [next(point.work for point in report.points if point.scope == "average")["matrix/fp32"] for report in (before, after)]
    # A loop of three with two matmuls each, and one more, of 256×256×512; the loop itself adds nothing to what it runs.
    assert matrix == [7 * 2 * 256 * 256 * 512, 7 * 2 * 1024 * 256 * 512]


def test_a_graph_changes_nothing_on_a_cpu() -> None:
    report = what_if(CPU, "graph")
    assert average_ms(report) == next(point.before_s for point in report.points if point.scope == "average") * 1e3
    assert any("no launches" in note for note in report.input.notes)


def test_a_host_that_launches_less_takes_less_time() -> None:
    ops = tuple(
        Op(name=name, cost=Cost.of({"hbm": 1}), time_s=1e-3, count=1, by_step=(Share(key=0, count=1, time_s=1e-3),)) for name in "abcd"
    )
    idle = (IdleReason(kind="dispatch", activity="f", time_s=4e-3, gaps=4, by_step=(Share(key=0, count=4, time_s=4e-3),)),)
    recording = Recording(format="xspace", workload=Workload(ops), steps=(Step(step=0, time_s=8e-3, busy_s=4e-3),), idle=idle)
    gone = {index: Changed(time_s=0.0, low_s=0.0, high_s=0.0) for index in (0, 1)}
    assert applied(recording, gone).steps[0].time_s == pytest.approx(4e-3)


def test_a_change_that_does_not_apply_says_so() -> None:
    report = what_if(MLP, "donate")
    assert average_ms(report) == pytest.approx(next(p.before_s for p in report.points if p.scope == "average") * 1e3)
    assert any("donate" in note for note in report.input.notes)


@every(
    ("words", "said"),
    [
        ("scale batch", "factor must be a number"),
        ("chip h2000", "no machine named 'h2000'; did you mean"),
        ("scale bach=x2", "did you mean 'batch'"),
        ("dtype fp9", "no number format"),
        ("kernel softmax=fast", "attention=flash"),
        ("faster", "no change named"),
        ("dtype fp8 batch=x2", "no change named 'batch=x2'"),
        ("scale", "a word is missing"),
    ],
)
def test_words_that_mean_nothing_are_refused(words: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        what_if(MLP, words)


def test_a_change_may_be_quoted_as_a_whole() -> None:
    apart, whole = what_if(MLP, ["dtype", "fp8", "set", "hbm=9 TB/s"]), what_if(MLP, ["dtype fp8", "set", "hbm=9 TB/s"])
    assert [op.time_s for op in apart.ops] == [op.time_s for op in whole.ops]


def test_a_machine_that_differs_in_memory_leaves_products_that_compute_as_they_are() -> None:
    report = what_if(MLP, "set hbm=x2")
    products = [op for op in report.ops if op.category == "matmul" and op.bound == "matrix"]
    assert products
    assert all(op.time_s == pytest.approx(op.before_s, rel=0.02) for op in products)
    point = next(point for point in report.points if point.scope == "average")
    assert point.expected is not None
    assert point.expected.high_s < 1.15 * (point.time_s or 0.0)


def test_the_best_changes_together_are_as_fast_as_the_best_of_them_alone() -> None:
    """Experts in grouped matmuls have too little work each to gain from fp8, whose operands have to be transposed."""
    best, grouped, fp8 = (average_ms(what_if(EXPERTS, words)) for words in ("best", "grouped", "dtype fp8"))
    assert best <= min(grouped, fp8)
    assert average_ms(what_if(EXPERTS, "grouped dtype fp8")) > best


def test_the_best_changes_have_one_number_format() -> None:
    report = what_if(MLP, "best")
    assert report.changes.count("dtype") <= 1


def test_notes_give_the_effect_of_each_change_alone_and_do_not_repeat_the_summary() -> None:
    report = what_if(EXPERTS, "best")
    assert (report.changes, report.summary[:9]) == (("grouped",), "grouped: ")
    assert [note.split(":")[1] for note in report.input.notes if note.startswith("alone: ")] == [" dtype fp8"]


def test_formats_that_products_have_already_change_nothing() -> None:
    report = what_if(TRAIN, "dtype bf16")
    assert all(op.time_s == op.before_s for op in report.ops)
    assert report.summary.endswith("unchanged.")
    assert any("no matmul changes" in note for note in report.input.notes)


def test_products_of_a_layer_are_computed_again_though_they_have_one_name() -> None:
    one = Product(m=64, k=64, n=64)
    cost = Cost.of({"matrix/bf16": one.flops, "hbm": one.bytes})
    ops = (
        *(Op(name="aten::mm", label=Label(does=label), cost=cost, operation=one, time_s=1e-5, count=8, phase="forward") for label in "ab"),
        Op(name="aten::mm", label=Label(does="head"), cost=cost, operation=one, time_s=1e-5, count=2, phase="forward"),
        Op(name="aten::mm", label=Label(does="gradient"), cost=cost, operation=one, time_s=1e-5, count=2, phase="backward"),
    )
    machine = load("h200")
    recording = Recording(format="torch", workload=Workload(ops), steps=(Step(step=0, time_s=1e-3), Step(step=1, time_s=1e-3)))
    state = State(recording, {}, machine, calibration_for(machine).for_kernels())
    change(state, ["remat", "on"])
    assert [one.runs_with.label.does for one in state.added] == ["a", "b"]  # four layers in a row each; the head runs once a step


def test_the_command_shows_the_step_and_writes_the_same_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "after.json"
    assert main(["whatif", MLP, "dtype", "fp8"]) == 0
    assert "per step predicted" in capsys.readouterr().out
    assert main(["whatif", MLP, "dtype", "fp8", "--json", str(out)]) == 0
    report = json.loads(out.read_text())
    assert report["schema"] == "roofline.report/1"
    assert all("before_s" in step for step in report["steps"])


def test_a_program_without_a_profile_has_expected_times(tmp_path: Path) -> None:
    file = tmp_path / "step.hlo"
    file.write_text(LAYER)
    report = what_if(file, "scale batch=x1000", "h200")
    total = report.total
    assert total is not None
    assert total.time_s > total.before_s > 0


def test_ops_without_an_expected_time_are_named(tmp_path: Path) -> None:
    path = tmp_path / "layer.hlo"
    path.write_text(LAYER)
    memory_alone = Machine.of("memory", {"hbm": "1 TB/s"})  # which says nothing of matmuls
    notes = what_if(str(path), "scale batch=x4", memory_alone).input.notes
    assert "y and z: no time is known on memory, so all times here leave them out" in notes


@pytest.mark.parametrize(
    ("words", "peak"),
    [
        ("set hbm=x2", 20_928),  # tok 128, table 6,400, bias 64, w 4,096; z of 32 x 64 numbers, made of y of 32 x 16
        ("scale batch=x2", 31_296),  # tok 256, and 64 rows of z and y
        ("shard batch=2", 15_744),  # tok 64, and 16 rows of z and y
        ("scale batch=x2 scale vocabulary=x2", 37_696),  # and a table of 12,800
        ("scale batch=x2 vocabulary=x2", 37_696),  # the same
        ("dtype bf16", None),  # a smaller program, of which nothing says how much it holds at once
        ("scale batch=x2 dtype bf16", None),
    ],
)
def test_the_peak_memory_is_that_of_the_program_in_its_new_sizes(words: str, peak: int | None, tmp_path: Path) -> None:
    file = tmp_path / "step.hlo"
    file.write_text(LAYER, encoding="utf-8")
    after = what_if(file, words, "h200")
    assert (after.memory and after.memory.peak_bytes) == peak


def test_a_size_that_does_not_fit_into_memory_is_told(tmp_path: Path) -> None:
    file = tmp_path / "step.hlo"
    file.write_text(LAYER, encoding="utf-8")
    # The table is 6,400 B, so that 2²⁵ times as many rows take 215 GB.
    after = what_if(file, "scale vocabulary=x1048576 scale vocabulary=x32", machine="h200")
    assert any(note.startswith("step needs 214.7 GB of memory and h200-sxm has ") for note in after.input.notes)


def test_a_whole_program_in_bf16_moves_half_the_bytes(tmp_path: Path) -> None:
    file = tmp_path / "step.hlo"
    file.write_text(LAYER.replace("[4,8", "[4000,800").replace("[32,", "[3200000,"))
    report = what_if(file, "dtype bf16", "h200")
    by_name = {op.name: op for op in report.ops}
    assert by_name["y"].time_s < 0.6 * by_name["y"].before_s
    assert by_name["z"].time_s < 0.7 * by_name["z"].before_s
    assert len(report.ops) == 3


def test_sizes_change_before_number_formats_in_any_order(tmp_path: Path) -> None:
    """A larger program is worked out of the compiled one, which is in the old format."""
    file = tmp_path / "step.hlo"
    file.write_text(LAYER.replace("[4,8", "[4000,800").replace("[32,", "[3200000,"))
    first, last = (
        {op.name: op.time_s for op in what_if(file, words, "h200").ops}
        for words in ("scale batch=x2 dtype bf16", "dtype bf16 scale batch=x2")
    )
    assert first == last
    assert first != {op.name: op.time_s for op in what_if(file, "scale batch=x2", "h200").ops}


def test_ops_in_fp32_move_half_the_bytes_in_bf16_too() -> None:
    one = Product(m=64, k=64, n=64, left="fp32", right="fp32", out="fp32", compute="fp32")
    product = Op(name="mm", cost=Cost.of({"matrix/fp32": one.flops, "hbm": one.bytes}), time_s=1e-5, operation=one)
    added = Op(name="add", cost=Cost.of({"vector/fp32": 10, "hbm": 1000}), time_s=1e-5)
    counted = Op(name="count", cost=Cost.of({"hbm": 1000}), time_s=1e-5)
    attention = Op(name="attention", cost=Cost.of({"matrix/fp32": 10, "hbm": 1000}), time_s=1e-5)
    graph = Graph()
    for kernel, formats in enumerate((["fp32"], ["fp32"], ["int32"], ["fp32", "bf16", "bf16"])):  # as many bytes in fp32 as in bf16
        taken = tuple([graph.array(GraphArray((64,), dtype(number))) for number in formats])
        graph.append(Node(Operator.OTHER, taken, (), kernel=kernel))
    machine = load("h200")
    workload = Workload((product, added, counted, attention))
    recording = Recording(format="torch", workload=workload, graphs=(ProgramGraph("step", graph, ((0,), (1,), (2,), (3,))),))
    state = State(recording, {}, machine, calibration_for(machine).for_kernels())
    change(state, ["dtype", "bf16"])
    assert [float(op.cost.known("hbm")) for op in state.ops[1:]] == [500, 1000, 750]
    assert float(state.ops[3].cost.known("matrix/bf16")) == 10


def test_a_batch_over_devices_adds_up_its_gradients() -> None:
    report = what_if(TRAIN, "shard batch=4")
    before = next(point.before_s for point in report.points if point.scope == "average") * 1e3
    assert before / 4 < average_ms(report) < before
    added = [op for op in report.ops if op.category == "all-reduce"]
    assert len(added) == 17  # four products of each of four layers, and the table of words
    # A scatter and a gather of each, of which plans of the same chips hide the calibrated share, and no more than the work beside them
    shown, h200 = 1 - training_calibration().values["overlap.data"], chips_of("h200", 4)
    links = h200.machine.ceiling("nvlink").count
    for op in added:
        moved = op.amounts["nvlink"] / shown / op.count * links * 4 / (2 * 3)  # of an all-reduce, 2·3/4 of the bytes cross
        assert op.expected.time_s == pytest.approx(shown * 2 * h200.gather(moved, 1, 4) * op.count, rel=2e-3)
    with pytest.raises(UsageError, match="cannot be spread"):
        what_if(TRAIN, "shard batch=8")


def test_a_batch_over_devices_may_leave_each_a_part_of_the_optimizer(tmp_path: Path) -> None:
    # Momentum of 1,048,576 numbers beside the weights: a quarter of its 4 MiB each, in the same scatter and gather
    file = tmp_path / "step.hlo"
    file.write_text(program_text("what_if/momentum.hlo"))
    report = what_if(file, "shard batch=4", "h100")
    assert report.memory
    (note,) = [note for note in report.input.notes if "optimizer" in note]
    peaks = report.memory.peak_bytes, report.memory.peak_bytes - 3 * 2**20
    assert note == (
        f"shard batch=4: every device keeps the optimizer's whole state, {show(peaks[0], 'B')} at the peak; with a part on each, as plans "
        f"count it, {show(peaks[1], 'B')}"
    )


JOINED = program_text("what_if/joined.hlo")


IMAGES = program_text("what_if/images.hlo")


def test_what_a_trained_weight_multiplies_is_data() -> None:
    program = Program(parse(IMAGES.encode(), "step"))
    assert {one.name for one in inputs_of(program) if one.is_weight} == {"w", "u"}
    batch = dimension_named(program, "batch")
    assert batch is not None
    assert {(one.name, axis) for one, axis in batch.inputs} == {("img", 0), ("label", 0)}


def test_weights_that_are_joined_and_the_state_kept_with_them_are_no_data() -> None:
    program = Program(parse(JOINED.encode(), "step"))
    assert {one.name for one in inputs_of(program) if one.is_weight} == {"gate", "up", "m"}
    found = {one.name: one.size for one in dimensions_of(program)}
    assert found == {"hidden": 16, "batch": 4}  # the 64 of what is updated and returned is no sequence


WIDTHS = program_text("what_if/widths.hlo")


def test_the_hidden_width_is_what_one_weight_makes_and_another_takes() -> None:
    program = Program(parse(WIDTHS.encode(), "block"))
    dimension = dimension_named(program, "hidden")
    assert dimension is not None
    after = {one.name: one.shape.dims for one in scaled(program, dimension.marks, 2).entry_computation}
    assert [after[name] for name in ("qkv", "o", "up", "down")] == [(16, 96), (32, 32), (32, 128), (128, 10)]
    assert after["all"] == (32, 96)
    assert after["v"] == (32, 32)
    assert after["x"] == (4, 8, 16)  # nothing makes it


ONE_TOKEN = program_text("what_if/one_token.hlo")


def test_of_one_token_the_table_is_no_data_nor_is_what_lies_beside_weights() -> None:
    program = Program(parse(ONE_TOKEN.encode(), "decode"))
    assert {one.name for one in inputs_of(program) if not one.is_weight} == {"cache", "tok"}
    batch = dimension_named(program, "batch")
    assert batch is not None
    assert batch.is_dropped
    assert {one.name for one, _ in batch.inputs} == {"cache", "tok"}


ROW_TIMES_WEIGHTS = program_text("what_if/row_times_weights.hlo")


def test_one_row_times_weights_becomes_a_product_that_reads_them_once() -> None:
    module = parse(ROW_TIMES_WEIGHTS.encode(), "decode")
    found = Data(module, {0}).row_products()
    entry = module.entry_computation
    assert {entry[index].name: (one.product.k, one.product.n, one.product.m) for index, one in found.items()} == {
        "multiplied": (4096, 2048, 1),  # keys and values beside each other
        "gate": (4096, 1024, 1),
    }
    assert {entry[place].name for one in found.values() for place in one.sums} == {"values", "keys"}


PAIRED = program_text("what_if/paired.hlo")


def test_keys_and_values_in_one_array_are_no_batch_of_two() -> None:
    batch = dimension_named(Program(parse(PAIRED.encode(), "step")), "batch")
    assert batch is not None
    assert [(one.name, axis) for one, axis in batch.inputs] == [("kv", 2), ("x", 0)]


CONVOLUTIONS = program_text("what_if/convolutions.hlo")


def test_a_batch_of_images_grows_and_kernels_of_convolutions_stay() -> None:
    program = Program(parse(CONVOLUTIONS.encode(), "net"))  # as many images as features: only the labels tell them apart
    assert {one.name for one in inputs_of(program) if one.is_weight} == {"a", "b"}
    dimension = dimension_named(program, "batch")
    assert dimension is not None
    after = {one.name: one.shape.dims for one in scaled(program, dimension.marks, 4).entry_computation}
    assert [after[name] for name in ("x", "y", "g", "a", "b", "w")] == [(32, 14, 14, 8)] * 3 + [(8, 3, 3, 8)] * 3


def test_a_stack_that_a_loop_walks_along_is_of_layers() -> None:
    program = Program(parse(LOOP.encode(), "loop"))
    assert {one.name: one.size for one in dimensions_of(program)} == {"layers": 8, "hidden": 16, "batch": 4}
    dimension = dimension_named(program, "layers")
    assert dimension is not None
    assert {program.module.computations[number].name for number in walking(program, dimension)} == {"body"}


def test_more_layers_run_the_body_of_their_loop_more_often(tmp_path: Path) -> None:
    (tmp_path / "loop.hlo").write_text(LOOP, encoding="utf-8")
    report = what_if(tmp_path / "loop.hlo", "scale layers=x4", machine="h200")
    product = next(op for op in report.ops if op.category == "matmul")
    assert product.count == 32
    assert product.time_s == pytest.approx(4 * (product.before_s or 0.0))


def test_narrow_weights_are_widened_on_the_way_which_takes_longer_than_reading_them() -> None:
    machine = load("h200")
    calibration = calibration_for(machine).for_kernels()

    def seconds(right: str, rows: int = 4) -> float:
        product = Product(m=rows, k=4096, n=16384, right=right)
        found = predict(product, Cost.of({"hbm": product.bytes, "matrix/bf16": product.flops}), machine, calibration)
        assert found is not None
        return found.time_s

    assert 0.7 < seconds("int8") / seconds("bf16") < 1
    assert seconds("int8") / 67.1e6 == pytest.approx(23e-6 / 50.3e6, rel=0.2)  # as measured for 3072 x 16384
    assert seconds("bf16", 8192) < seconds("int8", 8192) < 1.2 * seconds("bf16", 8192)


def part(name: str, arrays: int, seconds: float, functions: int = 0, category: str = "loop fusion") -> Op:
    array = Array(shape="bf16[1024,1024]", bytes=2 << 20)
    cost = Cost.of({"hbm": arrays * array.bytes, "vector/transcendental": functions})
    return Op(name=name, cost=cost, time_s=seconds, category=category, takes=(array,) * (arrays - 1), gives=(array,))


def test_a_fused_chain_reads_what_its_parts_share_once() -> None:
    chain = [part("scale", 2, 1e-6), part("gate", 3, 1e-6), part("add", 3, 1e-6), part("norm", 2, 1e-6, 0, "custom fusion")]
    assert compulsory_bytes(chain) == 3 * (2 << 20)  # two from outside, one result
    assert compulsory_bytes([part("scale", 2, 1e-6), part("norm", 2, 1e-6)]) == 2 * (2 << 20)


def test_only_parts_that_their_functions_hold_back_slow_a_fused_chain_down() -> None:
    plain = part("scale", 2, 1.00e-6)
    assert instruction_limited_s([plain, part("silu", 2, 1.01e-6, 1 << 20)]) == 0
    assert instruction_limited_s([plain, part("gelu", 2, 1.30e-6, 1 << 20)]) == pytest.approx(1.30e-6)


def test_a_part_that_is_far_slower_than_the_others_keeps_its_time_in_a_fused_chain() -> None:
    """Without special functions too, as one that reads in reversed order; not where its launch alone makes it slow."""
    plain = [part(name, 2, 20e-6) for name in ("scale", "shift", "clip")]
    assert instruction_limited_s([*plain, part("mixed", 2, 32e-6)]) == pytest.approx(32e-6)
    assert instruction_limited_s([*plain, part("broadcast", 2, 26e-6)]) == 0
    quick = [part(name, 2, 1e-6) for name in ("scale", "shift", "clip")]
    assert instruction_limited_s([*quick, part("small", 2, 3e-6)]) == 0


def test_a_slow_first_step_says_little_about_the_host() -> None:
    times, busy = (4e-3, 2e-3, 2e-3), 1e-3
    shares = tuple(Share(key=key, count=1, time_s=seconds - busy) for key, seconds in enumerate(times))
    idle = (IdleReason(kind="dispatch", activity="f", time_s=5e-3, gaps=3, by_step=shares),)
    work = tuple(Share(key=key, count=1, time_s=busy) for key in range(3))
    op = Op(name="a", cost=Cost.of({"hbm": 1}), time_s=3e-3, count=3, by_step=work)
    steps = tuple(Step(step=key, time_s=seconds, busy_s=busy) for key, seconds in enumerate(times))
    recording = Recording(format="xspace", workload=Workload((op,)), steps=steps, idle=idle)
    assert host_wait_s(recording) == pytest.approx(5e-3 / 3)
    slower, longer = (Changed(time_s=seconds, low_s=seconds, high_s=seconds, cost=Cost.of({"hbm": 1})) for seconds in (4.5e-3, 5.7e-3))
    assert [step.time_s for step in applied(recording, {0: longer}).steps] == pytest.approx([2e-3, 2e-3, 2e-3])
    # 1.5 ms of work a step still waits for the host: more work does not make a step shorter.
    assert [step.time_s for step in applied(recording, {0: slower}).steps] == pytest.approx(times)
    assert [step.time_s for step in applied(recording, {}).steps] == pytest.approx(times)


def test_in_one_graph_only_the_first_step_waits_for_its_dispatch() -> None:
    work = tuple(Share(key=key, count=1, time_s=1e-3) for key in range(3))
    op = Op(name="a", cost=Cost.of({"hbm": 1}), time_s=3e-3, count=3, by_step=work)
    waits = tuple(Share(key=key, count=1, time_s=5e-4) for key in range(3))
    idle = tuple(IdleReason(kind=kind, activity="f", time_s=1.5e-3, gaps=3, by_step=waits) for kind in ("dispatch", "latency", "input"))
    steps = tuple(Step(step=key, time_s=2.5e-3, busy_s=1e-3) for key in range(3))
    recording = Recording(format="xspace", workload=Workload((op,)), steps=steps, idle=idle)
    after = applied(recording, {}, one_graph=True)
    assert [step.time_s for step in after.steps] == pytest.approx([2e-3, 1.5e-3, 1.5e-3])
    assert {one.kind: one.time_s for one in after.idle} == {"dispatch": 5e-4, "input": 1.5e-3}
    assert [step.time_s for step in applied(recording, {}, no_idle=True).steps] == pytest.approx([1e-3] * 3)


def test_one_graph_of_many_small_programs_is_dispatched_once_and_its_kernels_are_set_one_by_one() -> None:
    # 24 programs of 2 kernels a step, each dispatched for 50 µs, of 200 µs of work: as one graph measured at 290 to 390 µs.
    work = tuple(Share(key=key, count=48, time_s=2e-4) for key in range(3))
    waits = tuple(Share(key=key, count=24, time_s=1.2e-3) for key in range(3))
    steps = tuple(Step(step=key, time_s=1.4e-3, busy_s=2e-4) for key in range(3))
    idle = (IdleReason(kind="dispatch", activity="f", time_s=3.6e-3, gaps=72, by_step=waits),)

    def after(module: str) -> list[float | None]:
        op = Op(name="a", cost=Cost.of({"hbm": 1}), time_s=6e-4, count=144, module=module, by_step=work)
        recording = Recording(format="xspace", workload=Workload((op,)), steps=steps, idle=idle)
        return [step.time_s for step in applied(recording, {}, one_graph=True).steps]

    assert after("jit_f") == pytest.approx([2.66e-4] * 3)
    assert after("") == pytest.approx([2.5e-4, 2e-4, 2e-4])  # a graph that is launched as it was recorded


def test_without_scopes_of_layers_the_whole_forward_pass_is_computed_again() -> None:
    ops = tuple(Op(name=name, cost=Cost.of({"hbm": 1e6}), time_s=1e-5, phase=name[:-1]) for name in ("forward1", "forward2", "backward1"))
    machine = load("h200")
    state = State(Recording(format="xspace", workload=Workload(ops)), {}, machine, calibration_for(machine).for_kernels())
    change(state, ["remat", "on"])
    assert [one.runs_with.name for one in state.added] == ["forward1", "forward2"]
    assert any("no layers" in note for note in state.notes)


@every(("after_s", "said"), [(0.9e-3, ", within the uncertainty of the prediction"), (0.5e-3, "")])
def test_a_change_within_its_bounds_is_said_to_be_no_certain_one(after_s: float, said: str) -> None:
    expected = Expected(time_s=after_s, low_s=0.8 * after_s, high_s=1.3 * after_s)
    point = Point(scope="average", time_s=after_s, before_s=1e-3, infeed_outfeed=True, expected=expected)
    summary = _summary(replace(analyze(ATTENTION), points=(point,), changes=("scale", "batch=x1/2")), is_measured=True)
    assert summary.endswith(f"{said}.")
    assert ("within the uncertainty" in summary) == bool(said)


def test_the_bounds_of_a_measured_kernel_that_streams_are_narrow() -> None:
    """Nobody knows the access pattern of a kernel that was not measured; of one that was, only its size changes."""
    wide = replace(prediction(4.0, family=""), low_s=1.0, high_s=9.0)
    _, low, high = anchored(1.0, prediction(1.0, family=""), wide, 2)
    assert (low, high) == (0.75 * 4.0, 1.4 * 4.0)
    assert anchored(None, prediction(1.0, family=""), wide, 2) == (4.0, 1.0, 9.0)
    assert anchored(1.0, prediction(1.0), wide, 2)[2] == 9.0  # a matmul before


ASYNC = program_text("what_if/async.hlo")


@every("start", ["fusion-start(%xs, %i), kind=kLoop, calls=%cut", "async-start(%xs, %i), calls=%wrapped"])
def test_a_dimension_is_followed_through_asynchronous_kernels(start: str) -> None:
    text = ASYNC.replace("fusion-start(%xs, %i), kind=kLoop, calls=%cut", start)
    written = text.replace("fusion-done", "async-done") if "async" in start else text
    program = Program(parse(written.encode(), "async"))
    dimension = dimension_named(program, "xs[1]")
    assert dimension is not None
    after = {one.name: one.shape.dims for one in scaled(program, dimension.marks, 8).entry_computation}
    assert (after["done"], after["x"], after["y"]) == ((1, 32, 64), (32, 64), (32, 128))


def test_the_table_shows_what_a_step_runs_and_not_what_ran_before_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = TorchTrace(base=1000)
    for at in (-700, *trace.steps(3, 1000)):  # the first product was launched before the steps
        trace.product(at + 1, 30, launched=at + 2, ran=at + 20, took=600, tensors=[(4096, 4096), (4096, 4096)])
    assert main(["whatif", str(trace.write(tmp_path / "trace.json")), "dtype", "fp8"]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("mm 4096x4096"))
    assert row.split()[4:6] == ["600", "µs"]
