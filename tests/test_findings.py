"""What a report says first: work that could be avoided, idle time, and the distance to what good kernels reach."""

import pytest
from msgspec.structs import replace

from every import every
from roofline.analysis import assemble
from roofline.cost import NOTHING, Cost
from roofline.machine import Machine
from roofline.operation import Streamed
from roofline.report import Report
from roofline.rules.words import page
from roofline.workload import FETCHES, Array, Avoidable, Coverage, Device, IdleReason, Op, Recording, Saves, Share, Step, Usual, Workload
from toys import label_of, toy


def an_op(name: str, amounts: dict[str, float], time_s: float, **fields: object) -> Op:
    label = label_of(str(fields.pop("label", "")))
    return Op(name=name, cost=Cost.of(amounts), time_s=time_s, self_time_s=time_s, label=label, **fields)  # type: ignore[arg-type]


def report_on(
    *ops: Op,
    wall_s: float | None = None,
    busy_s: float | None = None,
    idle: tuple[IdleReason, ...] = (),
    steps: tuple[Step, ...] = (),
    machine: Machine | None = None,
    format: str = "xspace",
) -> Report:
    busy = sum(op.time_s or 0.0 for op in ops) if busy_s is None else busy_s
    run = busy if wall_s is None else wall_s
    cover = Coverage(wall_s=run, busy_s=busy, attributed_s=busy, priced_s=busy, run_s=run)
    devices = (Device(id=0, name="toy"),)
    recording = Recording(workload=Workload(ops), format=format, coverage=cover, idle=idle, steps=steps, devices=devices)
    return assemble(recording, machine or toy())


def test_work_that_could_be_avoided_saves_its_share_of_the_time() -> None:
    # 100 B at 10 B/s take 10 s at least and 20 s here; a fifth of the bytes would take a fifth of the time.
    fewer = Avoidable(kind="one-hot-product", instead=Cost.of({"hbm": 20}), why="multiplies by one-hot rows", unneeded="dense")
    (finding,) = report_on(an_op("dot", {"hbm": 100}, 20.0, avoidable=(fewer,), location="model.py:7")).findings
    assert finding.kind == "one-hot-product"
    assert finding.saving_s == pytest.approx(16)
    assert finding.after_s == pytest.approx(4)
    assert "model.py:7" in finding.message


def test_kernels_that_a_change_adds_are_subtracted_from_its_saving() -> None:
    # Half of the bytes would take half of 20 s; another kernel moves 18 B in 1.8 s, or 2 s at 90% of the bandwidth.
    narrow = Avoidable(kind="wide-format", instead=Cost.of({"hbm": 50}), besides=Cost.of({"hbm": 18}), why="multiplies fp32 operands")
    (finding,) = report_on(an_op("dot", {"hbm": 100}, 20.0, avoidable=(narrow,))).findings
    assert finding.saving_s == pytest.approx(10 - 2)


def test_an_op_goes_to_the_change_that_spares_the_most_of_all() -> None:
    # Without padding both ops take a quarter; a fused kernel would spare all of one of them, and nothing of the other.
    padded = Avoidable(kind="padding", instead=Cost.of({"hbm": 25}), why="multiplies matrices that were padded")
    stored = Avoidable(kind="stored-attention", instead=NOTHING)
    scores, mlp = an_op("scores", {"hbm": 100}, 10.0, avoidable=(stored, padded)), an_op("mlp", {"hbm": 100}, 10.0, avoidable=(padded,))
    (finding,) = report_on(scores, mlp).findings
    assert (finding.kind, finding.saving_s) == ("padding", pytest.approx(15))
    # What is computed again would not run at all.
    again = Avoidable(kind="recomputation", instead=NOTHING, unneeded="recomputed", extra=True)
    found = report_on(replace(scores, avoidable=(padded, again)), replace(mlp, time_s=20.0, self_time_s=20.0)).findings
    assert [(one.kind, one.saving_s) for one in found] == [("padding", pytest.approx(15)), ("recomputation", pytest.approx(10))]
    # Half of an op is not nearly all of it.
    half = Avoidable(kind="unused-results", instead=Cost.of({"hbm": 50}), why="computes results of which 50% are used")
    scores, mlp = replace(scores, avoidable=(stored, half)), an_op("mlp", {"hbm": 300}, 30.0, avoidable=(replace(half, instead=NOTHING),))
    found = report_on(scores, mlp).findings
    assert [(one.kind, one.saving_s) for one in found] == [("unused-results", pytest.approx(30)), ("stored-attention", pytest.approx(10))]


def test_a_stencil_is_compared_with_elementwise_code() -> None:
    # 18 B take 1.8 s of the toy's memory: 2 s at 90% of the bandwidth. Other memory-bound convolutions reach 5%.
    instead = Cost.of({"hbm": 18})
    reason = Avoidable(kind="odd-sizes", instead=instead, why="computes a stencil", group="stencil", saves=Saves.GOOD_STREAM)
    (found,) = report_on(an_op("conv", {"hbm": 18}, 10.0, category="convolution", avoidable=(reason,))).findings
    assert (found.kind, found.saving_s) == ("odd-sizes", pytest.approx(8.0))


@every(("kind", "integers", "saving_s"), [("gpu", 30, None), ("gpu", 10, 4.0), ("cpu", 30, 4.0)])
def test_integer_instructions_keep_a_gpu_from_streaming(kind: str, integers: int, saving_s: float | None) -> None:
    # 18 B take 1.8 s, 2 s at 90% of the bandwidth. On a GPU 30 integer operations take as long as 120 of the 20 FLOP/s: 6 s; 10 take 2 s.
    hashed = an_op("hash", {"hbm": 18, "vector/int32": integers}, 6.0, count=3)
    (found,) = report_on(hashed, machine=replace(toy(), kind=kind)).findings
    assert found.kind == "memory"
    assert found.saving_s == (saving_s and pytest.approx(saving_s, rel=1e-5))  # less three launches


def test_a_callback_that_a_cpu_runs_itself_is_told_as_one() -> None:
    called = an_op("pure_callback.0", {}, 8.0, category="host callback", location="model.py:9")
    first = next(one for one in report_on(called, an_op("dot", {"matrix/bf16": 200}, 2.0)).findings if one.saving_s)
    assert (first.kind, first.saving_s) == ("idle-callback", pytest.approx(8))
    assert first.message.startswith("At model.py:9, the program calls back to the host")


def test_arguments_that_are_donated_and_copied_are_not_told_to_be_donated() -> None:
    copied = Avoidable(kind="missing-donation", instead=NOTHING, unneeded="copied", group="donated")
    (finding,) = report_on(an_op("copy", {"hbm": 100}, 20.0, avoidable=(copied,))).findings
    assert "Donate" not in finding.message
    assert "old value" in finding.message


def test_time_is_the_minimum_of_needed_work_and_losses() -> None:
    again = Avoidable(kind="recomputation", instead=NOTHING, unneeded="recomputed")
    needed, extra = an_op("dot", {"matrix/bf16": 400}, 5.0), an_op("dot.remat", {"matrix/bf16": 400}, 5.0, avoidable=(again,))
    point = next(point for point in report_on(needed, extra).points if point.scope == "total")
    assert (point.at_roof_s, point.lost["unneeded"], point.lost["compute"]) == (4.0, 4.0, 2.0)
    assert sum(point.lost.values()) + (point.at_roof_s or 0) == point.time_s
    assert (point.mfu, point.hfu) == (0.4, 0.8)
    assert point.unneeded == {"recomputed": 400}


def test_small_ops_are_merged_before_any_is_left_out() -> None:
    # A hundred ops of 0.4% of the time each lose half of theirs to memory; none alone would be worth a line.
    small = [an_op(f"fusion.{i}", {"hbm": 2}, 0.4) for i in range(100)]
    (finding,) = [one for one in report_on(*small, an_op("dot", {"matrix/bf16": 7000}, 70.0)).findings if one.kind == "memory"]
    assert len(finding.ops) == 100
    assert finding.saving_s == pytest.approx(100 * (0.4 - 0.2 / 0.9), rel=1e-4)


def test_what_is_as_good_as_it_gets_promises_nothing() -> None:
    (finding,) = report_on(an_op("dot", {"matrix/bf16": 800}, 10.0)).findings
    assert finding.kind == "products"
    assert finding.saving_s is None
    assert "get no faster on this chip" in finding.message


def test_where_little_can_be_won_all_ops_of_the_cause_are_told() -> None:
    # One slow op of 1% of the time would make the products look as if half could be won.
    good, slow = an_op("dot", {"matrix/bf16": 8000}, 100.0), an_op("small dot", {"matrix/bf16": 40}, 1.0)
    (finding,) = report_on(good, slow).findings
    assert finding.saving_s is None
    assert set(finding.ops) == {0, 1}
    assert "at 80% of the roofline" in finding.message


@every(
    ("category", "reach"),
    [("loop fusion", 0.9), ("convolution", 0.05), ("fft", 0.12), ("sort", 0.04), ("optimizer", 0.5), ("pointwise fusion", 0.4)],
)
def test_what_passes_over_its_data_several_times_reaches_less(category: str, reach: float) -> None:
    (finding,) = report_on(an_op("kernel", {"hbm": 10}, 40.0, category=category)).findings
    assert finding.saving_s == pytest.approx(40 - 1 / reach, rel=1e-5)


@every("amounts", [{"hbm": 65}, {"matrix/bf16": 650}])
def test_kernels_near_what_good_ones_reach_promise_nothing(amounts: dict[str, float]) -> None:
    # 65% of the roof: compilers make kernels between that and 90% for much the same work.
    (finding,) = report_on(an_op("kernel", amounts, 10.0)).findings
    assert finding.saving_s is None


def test_scatters_promise_nothing_but_say_what_may_take_their_place() -> None:
    # 5% of the bandwidth, which is what compilers' scatters reach, sorted or not.
    (finding,) = report_on(an_op("scatter", {"hbm": 100}, 200.0, category="input fusion", label="f.py:7  scatter-add bf16[8,8]")).findings
    assert finding.saving_s is None
    assert "replace the scatter" in " ".join(finding.levers)


def test_scatters_are_told_beside_other_ops_that_could_be_faster() -> None:
    scatter = an_op("scatter", {"hbm": 100}, 200.0, category="input fusion", label="f.py:7  scatter-add bf16[8,8]")
    slow = an_op("sum", {"hbm": 100}, 200.0, category="input fusion", label="f.py:8  sum fp32[8]")
    faster, told = report_on(scatter, slow).findings
    assert (faster.ops, told.ops) == ((1,), (0,))
    assert (bool(faster.saving_s), bool(told.saving_s)) == (True, False)
    assert "replace the scatter" in " ".join(told.levers)


@every(("kind", "reach"), [("gathered", 0.25), ("interleaved", 0.12), ("complex", 0.22)])
def test_what_takes_elements_from_elsewhere_or_computes_complex_numbers_reaches_less(kind: str, reach: float) -> None:
    (finding,) = report_on(an_op("fusion", {"hbm": 10}, 20.0, operation=Streamed(kind=kind))).findings
    assert finding.saving_s == pytest.approx(20 - 1 / reach, rel=1e-3)


def test_a_sort_of_few_keys_takes_its_passes() -> None:
    # The toy's launches take 2 µs: 16 passes take 32 µs, whatever there is to sort.
    few, many = (report_on(an_op("sort", {"hbm": 3e-5}, time_s, category="sort")).findings[0] for time_s in (30e-6, 300e-6))
    assert few.saving_s is None
    assert many.saving_s == pytest.approx(300e-6 - 3e-6 / 0.04 - 32e-6)


def test_a_factorisation_whose_steps_wait_for_each_other_promises_nothing() -> None:
    (finding,) = report_on(an_op("cholesky", {"matrix/bf16": 10}, 20.0, category="linear algebra")).findings
    assert finding.saving_s is None
    assert "less often" in finding.levers[0]


def test_a_factorisation_is_no_matmul() -> None:
    (finding,) = report_on(an_op("qr", {"matrix/bf16": 10}, 1e5, category="linear algebra")).findings
    assert finding.kind == "compute"
    assert "batched" in finding.levers[0]


def test_idle_time_comes_with_what_the_host_did() -> None:
    waited = IdleReason(kind="input", activity="time.sleep, called from load_batch", location="data.py:17", time_s=6.0, gaps=3)
    report = report_on(an_op("dot", {"matrix/bf16": 200}, 2.0), wall_s=8.0, idle=(waited,))
    first = report.findings[0]
    assert first.kind == "idle-input"
    assert first.saving_s == pytest.approx(6)
    assert "load_batch (data.py:17)" in first.message
    assert "\nFirst: the input pipeline" in report.summary


def test_a_callback_comes_with_the_lines_that_call_back() -> None:
    waited = IdleReason(kind="callback", activity="physics", location="env.py:17", time_s=6.0, gaps=3)
    called = an_op("custom-call", {}, 0.1, category="host callback", location="/a/train.py:42")
    first = report_on(an_op("dot", {"matrix/bf16": 100}, 1.9), called, wall_s=8.0, idle=(waited,)).findings[0]
    assert first.kind == "idle-callback"
    assert "physics (env.py:17), called at train.py:42." in first.message


def test_copies_save_what_the_rest_of_the_time_can_hide() -> None:
    # 4.25 B/s of a link of 5 B/s is a good rate: of 9 s of copies in a run of 10 s, 1 s can hide behind the product.
    link = Machine.of("linked", {"matrix/bf16": 100, "hbm": 10, "pcie": 5})
    copy, dot = an_op("copy-start", {"pcie": 38.25}, 9.0), an_op("dot", {"matrix/bf16": 80}, 1.0)
    (finding,) = [one for one in report_on(copy, dot, machine=link).findings if one.kind == "host-copies"]
    assert finding.saving_s == pytest.approx(1)
    assert "the run would take 9 s, 1 s without the copies" in finding.message
    slow, long = an_op("copy-start", {"pcie": 1}, 1.0), an_op("dot", {"matrix/bf16": 720}, 9.0)
    (finding,) = [one for one in report_on(slow, long, machine=link).findings if one.kind == "host-copies"]
    assert finding.saving_s == pytest.approx(1)
    assert finding.message.endswith("Copy while the device computes: the run would take 9 s.")


@every("streams", [2, 200])
def test_ops_at_the_same_time_share_the_clock(streams: int) -> None:
    # The device was busy for 20 s, and every stream ran an op for all of it; half of the bytes of these ops were not needed.
    fewer = Avoidable(kind="one-hot-product", instead=Cost.of({"hbm": 25}), why="multiplies by one-hot rows", unneeded="dense")
    ops = [an_op(f"dot.{i}", {"hbm": 50}, 20.0, avoidable=(fewer,)) for i in range(streams)]
    (finding,) = report_on(*ops, busy_s=20.0).findings
    assert finding.saving_s == pytest.approx(10)
    assert finding.after_s == pytest.approx(10)
    assert "20 s of 20 s" in finding.message


def test_every_reason_for_idle_time_has_words() -> None:
    for kind in ("input", "sync", "callback", "compile", "dispatch", "transfer", "device"):
        assert "{" in page(f"idle-{kind}").observation or kind == "device"


def test_programs_that_hand_arrays_on_could_be_one() -> None:
    # Four programs read and write 100 B each in every step; one would read 100 B and write 100 B: three quarters are spared.
    array = (Array("bf16[50]", 100),)
    steps = tuple(Step(step=key, time_s=100.0) for key in (0, 1))
    parts = [
        an_op(
            f"f{i}",
            {"hbm": 400},
            50.0,
            count=2,
            module=f"jit_f{i}",
            takes=array,
            gives=array,
            caller="/a/train.py:9",
            by_step=_both_steps(),
        )
        for i in range(4)
    ]
    (finding,) = [one for one in report_on(*parts, steps=steps).findings if one.kind == "unfused-chain"]
    assert finding.saving_s == pytest.approx(200 * 0.75)
    assert "called at train.py:9:" in finding.message


def _both_steps() -> tuple[Share, ...]:
    return tuple(Share(key=key, count=1, time_s=25.0) for key in (0, 1))


def test_one_program_that_gives_what_it_takes_is_no_chain() -> None:
    array = (Array("bf16[50]", 100),)
    steps = tuple(Step(step=key, time_s=25.0) for key in (0, 1))
    update = an_op("update", {"hbm": 400}, 50.0, count=2, takes=array, gives=array, by_step=_both_steps())
    assert "unfused-chain" not in {one.kind for one in report_on(update, steps=steps).findings}


def test_kernels_of_one_program_that_update_arrays_alike_are_no_chain() -> None:
    array = (Array("fp32[50]", 100),)
    steps = tuple(Step(step=key, time_s=100.0) for key in (0, 1))
    updates = [
        an_op(f"sub.{i}", {"hbm": 400}, 50.0, count=2, module="jit_update", takes=array, gives=array, by_step=_both_steps())
        for i in range(4)
    ]
    assert "unfused-chain" not in {one.kind for one in report_on(*updates, steps=steps).findings}


def test_a_launch_does_not_get_shorter_with_less_work() -> None:
    fewer = Avoidable(kind="layout-copies", instead=NOTHING, unneeded="layout")
    tiny = an_op("copy", {"hbm": 1e-6}, 5e-6, avoidable=(fewer,))
    assert {one.kind for one in report_on(tiny).findings} == {"latency"}


@every(
    ("sent_s", "fetched_s", "change"),
    [
        (50.0, 0.0, "Copy the next batch while this one is computed"),
        (0.0, 50.0, "Fetch only what the host needs, while the device runs the next step"),
        (30.0, 20.0, "Keep the data on the device, or copy it while the device computes"),
        (1.0, 49.0, "Fetch only what the host needs, while the device runs the next step"),
    ],
)
def test_what_to_do_about_copies_depends_on_their_direction(sent_s: float, fetched_s: float, change: str) -> None:
    ways = (("copies to the device", "", sent_s), ("copies from the device", FETCHES, fetched_s))
    idle = tuple(IdleReason(kind="transfer", activity=activity, cause=cause, time_s=s, gaps=1) for activity, cause, s in ways if s)
    (found,) = [one for one in report_on(an_op("dot", {"hbm": 500}, 50.0), wall_s=100.0, busy_s=50.0, idle=idle).findings if one.saving_s]
    assert found.kind == "idle-transfer"
    assert f"{change}: the run would take 50 s." in found.message


def test_doubts_promise_nothing_and_count_with_their_time() -> None:
    softmax = an_op("softmax", {"hbm": 20}, 6.0)  # 20 B at 10 B/s: at most 4 s to save
    for amount, time_s, first in ((10, 0.5, False), (100, 5.0, True)):
        found = report_on(an_op("gather", {"hbm": amount}, time_s), softmax).findings
        (doubt,) = (one for one in found if one.kind == "above-roof")
        assert doubt.saving_s is None
        assert (found[0] is doubt) == first


def test_a_doubt_outside_of_the_steps_comes_after_what_steps_save() -> None:
    steps = tuple(Step(step=key, time_s=6.0) for key in (0, 1))
    softmax = an_op("softmax", {"hbm": 40}, 12.0, count=2, by_step=(Share(key=0, count=1, time_s=6.0), Share(key=1, count=1, time_s=6.0)))
    found = report_on(an_op("gather", {"hbm": 1000}, 50.0), softmax, steps=steps).findings
    assert [bool(one.saving_s) for one in found] == [True, False]
    assert found[1].kind == "above-roof"


def test_the_sentence_says_how_long_how_far_why_and_what_next() -> None:
    steps = tuple(Step(step=key, time_s=10.0, device_seconds=10.0, busy_s=10.0) for key in (0, 1))
    share = tuple(Share(key=key, count=1, time_s=10.0) for key in (0, 1))
    report = report_on(an_op("copy", {"hbm": 100}, 20.0, count=2, by_step=share), steps=steps)
    assert report.summary == "10 s per step on one toy; 5 s is its minimum.\nFirst: the memory-bound kernels (10 s to 5.56 s)."


def test_the_sentence_says_that_a_time_is_shorter_than_the_minimum() -> None:
    # 100 B at 10 B/s take 10 s at least, and 1 s here.
    assert report_on(an_op("copy", {"hbm": 100}, 1.0)).summary.startswith("1 s on one toy, faster than its minimum allows (10 s): check")


def test_the_sentence_names_no_minimum_for_ops_of_unknown_cost() -> None:
    unknown = an_op("call", {"hbm": None}, 20.0)
    assert report_on(unknown).summary.startswith("20 s on one toy; its minimum is not known.")
    # 100 B at the toy's 10 B/s take at least 10 s.
    both = report_on(unknown, an_op("copy", {"hbm": 100}, 20.0))
    assert both.summary.startswith("40 s on one toy; 10 s is the minimum of the ops that have one.\n")


def test_the_sentence_on_a_program_without_times_says_that_some_costs_are_not_known() -> None:
    loop, copy = (Op(name=name, cost=Cost.of({"hbm": amount})) for name, amount in (("loop", None), ("copy", 100)))
    known, partly = (assemble(Recording(workload=Workload(ops), format="hlo"), toy()).summary for ops in ((copy,), (copy, loop)))
    assert known.startswith("Minimum time 10 s on one toy.")
    assert partly.startswith("Minimum time at least 10 s on one toy; the cost of some ops is not known.")


def test_a_product_keeps_a_launch_of_its_own_and_small_kernels_can_join_it() -> None:
    # The toy's launches take 2 µs. Of a product of 5 µs 2 stay, of a sum of 5 µs nothing has to.
    product, sum_ = an_op("dot", {"matrix/bf16": 1e-6}, 5e-6), an_op("add", {"hbm": 1e-9}, 5e-6)
    (finding,) = report_on(product, sum_).findings
    assert (finding.kind, finding.saving_s) == ("latency", pytest.approx(8e-6, rel=1e-3))


def test_fused_attention_is_measured_by_what_attention_kernels_reach() -> None:
    work = {"matrix/bf16": 560}  # 5.6 of 10 s
    product, attention = (report_on(an_op("op", work, 10.0, category=category)).findings[0] for category in ("matmul", "attention"))
    assert product.saving_s == pytest.approx(10 - 5.6 / 0.8)
    assert attention.saving_s is None


def test_the_profiler_slows_the_launch_of_a_step_of_one_program() -> None:
    # Of 100 µs idle before each launch about 60 are the profiler's, but no more than half; of 1 ms 60 µs.
    # Only with thousands of arrays does a launch take milliseconds.
    for idle_s, saving, change in (
        (100e-6, 50e-6, "several steps"),
        (1e-3, 940e-6, "several steps"),
        (10e-3, 9.94e-3, "a few large arrays"),
    ):
        steps = tuple(Step(step=key, time_s=1e-3 + idle_s) for key in (0, 1))
        shares = tuple(Share(key=key, count=1, time_s=1e-3) for key in (0, 1))
        waited = IdleReason(
            kind="dispatch", activity="train", time_s=2 * idle_s, gaps=2, by_step=tuple(replace(one, time_s=idle_s) for one in shares)
        )
        update = an_op("f", {"hbm": 1e-2}, 2e-3, count=2, module="jit_f", by_step=shares)
        report = report_on(update, wall_s=2e-3 + 2 * idle_s, busy_s=2e-3, steps=steps, idle=(waited,))
        (finding,) = [one for one in report.findings if one.kind == "idle-dispatch"]
        assert finding.saving_per_step_s == pytest.approx(saving)
        assert "profiler overhead" in finding.message
        assert change in finding.message


@every(("programs", "said"), [(1, "the single program of a step"), (3, "launching small programs")])
def test_a_step_of_one_program_is_not_told_to_compile_its_programs_as_one(programs: int, said: str) -> None:
    steps = tuple(Step(step=key, time_s=10.0) for key in (0, 1))
    shares = tuple(Share(key=key, count=1, time_s=5.0) for key in (0, 1))
    waited = IdleReason(kind="dispatch", activity="train", time_s=10.0, gaps=2, by_step=shares)
    parts = [an_op(f"f{i}", {"hbm": 50}, 10.0 / programs, count=2, module=f"jit_f{i}", by_step=shares) for i in range(programs)]
    (finding,) = [one for one in report_on(*parts, wall_s=20.0, idle=(waited,), steps=steps).findings if one.kind == "idle-dispatch"]
    assert said in finding.message


@every(("count", "kinds"), [(2, {"duplicated-work"}), (1, set())])
def test_products_that_two_programs_of_a_step_share(count: int, kinds: set[str]) -> None:
    steps = tuple(Step(step=key, time_s=30.0) for key in (0, 1))

    def part(module: str, seconds: float, runs: int) -> Op:
        shares = tuple(Share(key=key, count=1, time_s=seconds / runs) for key in range(runs))
        return an_op(
            "dot",
            {"matrix/bf16": 80 * seconds},
            seconds,
            count=runs,
            module=module,
            by_step=shares,
            value="same",
            caller=f"/a/{module}.py:7",
        )

    own = an_op("grad", {"matrix/bf16": 1600}, 20.0, count=2, module="jit_train", by_step=_both_steps())
    report = report_on(part("jit_train", 20.0, 2), part("jit_check", 20.0, count), own, steps=steps)
    found = [one for one in report.findings if one.saving_s]
    assert {one.kind for one in found} == kinds
    if kinds:
        assert found[0].saving_s == pytest.approx(20)
        assert "computes the same as train (called at jit_train.py:7)" in found[0].message
        assert "called at jit_check.py:7" in found[0].message


def _two_steps(time_s: float) -> tuple[Step, ...]:
    return tuple(Step(step=key, time_s=time_s, device_seconds=time_s, busy_s=time_s) for key in (0, 1))


def _in_both(name: str, amounts: dict[str, float], time_s: float, outside_s: float = 0.0, **fields: object) -> Op:
    """An op that takes so long in each of two steps, and outside of them."""
    shares = tuple(Share(key=key, count=1, time_s=time_s) for key in (0, 1))
    return an_op(name, amounts, 2 * time_s + outside_s, count=3 if outside_s else 2, by_step=shares, **fields)


def test_a_finding_tells_the_time_in_steps() -> None:
    # 24 s in each of two steps and once more before them; 10 s at least each time, and memory-bound ops reach 90% of the bandwidth.
    (finding,) = report_on(_in_both("copy", {"hbm": 300}, 24.0, outside_s=24.0), steps=_two_steps(24.0)).findings
    assert "24 s of 24 s per step" in finding.message
    assert "the step would take 11.1 s" in finding.message
    assert finding.saving_per_step_s == pytest.approx(24 - 10 / 0.9)
    assert finding.saving_s == pytest.approx(3 * (24 - 10 / 0.9))


def test_a_run_without_a_whole_step_is_told_as_a_whole() -> None:
    cut = tuple(replace(step, complete=False) for step in _two_steps(14.0))
    report = report_on(_in_both("copy", {"hbm": 200}, 14.0), steps=cut)
    (finding,) = report.findings
    assert not any(point.scope == "average" for point in report.points)
    assert "28 s of 28 s. " in finding.message
    assert finding.saving_per_step_s is None


def test_what_runs_only_outside_of_steps_is_no_finding() -> None:
    before = an_op("initialise", {"hbm": 100}, 90.0)
    report = report_on(_in_both("copy", {"hbm": 200}, 14.0), before, steps=_two_steps(14.0))
    assert [finding.ops for finding in report.findings if finding.kind == "memory"] == [(0,)]


def test_findings_speak_of_the_steady_steps() -> None:
    # The copy took 50 s in the step that compiled and 14 s in the steady one, where 10 s is the least; the tuning ran in the first only.
    shares = (Share(key=0, count=1, time_s=50.0), Share(key=1, count=1, time_s=14.0))
    copy = an_op("copy", {"hbm": 200}, 64.0, count=2, by_step=shares)
    tuning = an_op("tuning", {"hbm": 100}, 90.0, by_step=(Share(key=0, count=1, time_s=90.0),))
    steps = (
        Step(step=0, time_s=140.0, device_seconds=140.0, busy_s=140.0, compiled=True, steady=False),
        Step(step=1, time_s=14.0, device_seconds=14.0, busy_s=14.0),
    )
    (finding,) = [one for one in report_on(copy, tuning, steps=steps).findings if one.kind == "memory"]
    assert finding.ops == (0,)
    assert "14 s of 14 s per step" in finding.message


@every(("large_s", "saved"), [(20e-6, True), (200e-6, False)])
def test_a_few_small_kernels_between_large_ones_promise_nothing(large_s: float, saved: bool) -> None:
    large, small = an_op("dot", {"matrix/bf16": 95 * large_s}, large_s), an_op("add", {"hbm": 1e-9}, 5e-6)
    (finding,) = [one for one in report_on(large, small).findings if one.kind == "latency"]
    assert bool(finding.saving_s) == saved
    assert finding.message.endswith("only fewer, larger kernels help.") != saved


@every("looped_s", [4e-6, 6e-6])
def test_small_kernels_get_advice_on_loops_only_where_a_loop_runs_most_of_them(looped_s: float) -> None:
    looped, plain = an_op("mul", {"hbm": 1e-9}, looped_s, in_loop=True), an_op("add", {"hbm": 1e-9}, 5e-6)
    (finding,) = report_on(looped, plain).findings
    assert finding.levers == (page("latency").cases["loop"] if looped_s > 5e-6 else page("latency").levers)
    assert any("lax.scan" in lever for lever in finding.levers) == (looped_s > 5e-6)


@every("linear_s", [4e-6, 6e-6])
def test_loops_that_compute_linear_recurrences_are_told_of_associative_scans_first(linear_s: float) -> None:
    reason = Avoidable(kind="latency", instead=Cost.of({"hbm": 1e-9}), group="linear")
    linear, other = (an_op(name, {"hbm": 1e-9}, s, in_loop=True) for name, s in (("mul", linear_s), ("add", 5e-6)))
    (finding,) = report_on(replace(linear, avoidable=(reason,)), other).findings
    assert finding.levers == (page("latency").cases["linear loop"] if linear_s > 5e-6 else page("latency").cases["loop"])
    assert finding.levers[0].startswith("lax.associative_scan") == (linear_s > 5e-6)


@every("saves", [Saves.ONE_KERNEL, Saves.SHARED_LOOP])
def test_small_matmuls_that_one_could_do_together_save_what_that_one_does_not_take(saves: Saves) -> None:
    def matmuls(flops: float, time_s: float) -> list[Op]:
        reason = Avoidable(kind="low-batch", instead=Cost.of({"matrix/bf16": flops}), saves=saves, why="runs 8 matmuls")
        return [an_op(f"dot.{n}", {"matrix/bf16": flops}, time_s, avoidable=(reason,), category="matmul") for n in range(8)]

    finding = report_on(*matmuls(85e-6, 5e-6)).findings[0]
    # 85 µFLOP take 0.85 µs at the toy's 100 FLOP/s, and 1 µs at the 85% that good products reach.
    assert (finding.kind, finding.saving_s) == ("low-batch", pytest.approx(8 * 4e-6, rel=0.1))
    assert "low-batch" not in {one.kind for one in report_on(*matmuls(85.0, 1.5)).findings}


def test_small_matmuls_of_few_rows_outside_of_loops_are_latency_bound() -> None:
    reason = Avoidable(kind="low-batch", instead=Cost.of({"matrix/bf16": 85e-6}), why="reads weights for a row", saves=Saves.SHARED_READS)
    (finding,) = report_on(*[an_op(f"dot.{n}", {"matrix/bf16": 85e-6}, 5e-6, avoidable=(reason,)) for n in range(8)]).findings
    assert finding.kind == "latency"


@every("kernels", [100, 101])
def test_small_kernels_get_advice_on_loops_only_where_an_iteration_has_few_of_them(kernels: int) -> None:
    (finding,) = report_on(*[an_op(f"mul.{place}", {"hbm": 1e-9}, 5e-6, in_loop=True) for place in range(kernels)]).findings
    assert finding.levers == (page("latency").cases["loop"] if kernels <= 100 else page("latency").levers)


@every(("large_s", "location", "told"), [(10.0, "", True), (100.0, "", False), (100.0, "train.py:7", True)])
def test_the_compilers_own_changes_of_layout_are_told_where_they_cost_much(large_s: float, location: str, told: bool) -> None:
    fewer = Avoidable(kind="layout-copies", instead=NOTHING, unneeded="layout", usual=Usual.UNLESS_ASKED)
    turned = an_op("transpose", {"hbm": 20}, 2.0, avoidable=(fewer,), location=location)
    found = report_on(turned, an_op("dot", {"matrix/bf16": 90 * large_s}, large_s)).findings
    assert ("layout-copies" in {one.kind for one in found}) == told


def test_findings_come_by_what_a_step_saves() -> None:
    # The copy saves more in a step, the product more in the run, as most of its time is before the steps.
    copy, product = _in_both("copy", {"hbm": 200}, 24.0), _in_both("dot", {"matrix/bf16": 300}, 2.0, outside_s=200.0)
    assert [one.kind for one in report_on(copy, product, steps=_two_steps(26.0)).findings if one.saving_s] == ["memory", "products"]


def test_a_place_that_few_of_the_ops_have_is_not_told() -> None:
    elsewhere, update = an_op("copy", {"hbm": 100}, 20.0), an_op("update", {"hbm": 10}, 2.0, scope="AdamW.step")
    (finding,) = report_on(elsewhere, update).findings
    assert len(finding.ops) == 2
    assert "AdamW" not in finding.message
