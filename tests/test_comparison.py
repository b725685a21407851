"""Two reports side by side."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from roofline.comparison import compare
from roofline.comparison.values import Comparison
from roofline.peak_memory import PeakMemory
from roofline.render.comparison import changes_text
from roofline.render.tables import PLAIN
from roofline.report import CeilingInfo, Device, DeviceShare, InputInfo, MachineInfo, OpInfo, Point, Report, Step, StepShare
from roofline.workload import Coverage
from toys import parts_of_label

TOY = MachineInfo(name="toy", ceilings=(CeilingInfo(resource="hbm", rate=10, per="B/s", provenance="user"),))


def op(id: int, name: str, time_s: float | None, floor_s: float | None = 1.0, **details: object) -> OpInfo:
    label = parts_of_label(str(details.pop("label", "")))
    return OpInfo(id=id, rank=id + 1, name=name, time_s=time_s, floor_s=floor_s, **{"bound": "hbm", **label, **details})  # type: ignore[arg-type]


def report(*ops: OpInfo, machine: MachineInfo = TOY, **details: object) -> Report:
    return Report(**{"input": InputInfo(format="table"), "machine": machine, "ops": ops, **details})  # type: ignore[arg-type]


def changes(found: Comparison) -> list[tuple[str, str, float | None]]:
    return [(delta.name, delta.matched, delta.change_s) for delta in found.deltas]


def test_the_largest_change_comes_first_with_its_share() -> None:
    # 6 s become 3: matmul lost 4 s, copy gained 1.
    found = compare(report(op(0, "matmul", 5.0), op(1, "copy", 1.0)), report(op(0, "copy", 2.0), op(1, "matmul", 1.0)))
    assert changes(found) == [("matmul", "module and name", -4.0), ("copy", "module and name", 1.0)]
    assert found.change_s == -3.0
    assert [delta.share for delta in found.deltas] == pytest.approx([4 / 3, -1 / 3])
    assert found.speedup == 2.0


def test_an_ops_efficiency_and_bound_stand_on_both_sides() -> None:
    (delta,) = compare(report(op(0, "a", 4.0, bound="hbm")), report(op(7, "a", 2.0, bound="matrix"))).deltas
    assert (delta.before.efficiency, delta.after.efficiency) == (0.25, 0.5)
    assert (delta.before.bound, delta.after.bound) == ("hbm", "matrix")
    assert (delta.before.ops, delta.after.ops) == ((0,), (7,))


def test_an_op_whose_shape_changed_has_both_shapes() -> None:
    before, after = op(0, "mm", 4.0, label="layer0  mm 8x8, 8x8 bf16"), op(0, "mm", 1.0, label="layer0  mm 8x8, 8x2 bf16")
    (delta,) = compare(report(before), report(after)).deltas
    assert (delta.matched, delta.label) == ("module and name", "layer0  mm 8x8, 8x2 bf16 (before: mm 8x8, 8x8 bf16)")
    (same,) = compare(report(before), report(replace(before, time_s=1.0, **parts_of_label("layer1  mm 8x8, 8x8 bf16")))).deltas
    assert same.label == "layer1  mm 8x8, 8x8 bf16"


def test_totals_sum_times_and_floors() -> None:
    found = compare(report(op(0, "a", 4.0, 1.0), op(1, "b", 4.0, 3.0)), report(op(0, "a", 2.0, 1.0)))
    assert (found.before.time_s, found.before.floor_s, found.before.efficiency) == (8.0, 4.0, 0.5)
    assert (found.after.time_s, found.after.floor_s, found.after.efficiency) == (2.0, 1.0, 0.5)


def test_the_programs_wall_time_stands_beside_the_ops() -> None:
    points = (Point(scope="total", time_s=9.0),)
    assert compare(report(op(0, "a", 4.0), points=points), report(op(0, "a", 4.0))).before.wall_s == 9.0


def test_names_match_when_modules_were_renamed() -> None:
    found = compare(report(op(0, "a", 1.0, module="jit_f")), report(op(0, "a", 3.0, module="jit_g")))
    assert changes(found) == [("a", "name", 2.0)]


def test_the_same_module_is_preferred_to_the_same_name() -> None:
    before = report(op(0, "a", 1.0, module="f"), op(1, "a", 10.0, module="g"))
    after = report(op(0, "a", 10.0, module="g"), op(1, "a", 1.0, module="f"))
    assert [delta.change_s for delta in compare(before, after).deltas] == [0.0, 0.0]


def test_several_ops_of_one_name_are_paired_by_rank() -> None:
    before = report(op(0, "a", 5.0), op(1, "a", 3.0))
    after = report(op(1, "a", 2.0), op(0, "a", 4.0))
    assert [delta.change_s for delta in compare(before, after).deltas] == [-1.0, -1.0]


def test_renumbered_fusions_are_compared_as_their_category() -> None:
    before = report(op(0, "fusion.1", 2.0, category="loop fusion"), op(1, "fusion.2", 3.0, category="loop fusion"))
    after = report(op(0, "fusion.9", 4.0, category="loop fusion"))
    (delta,) = compare(before, after).deltas
    assert (delta.name, delta.matched, delta.change_s) == ("loop fusion", "category", -1.0)
    assert (delta.before.names, delta.after.names) == (("fusion.1", "fusion.2"), ("fusion.9",))
    # Two floors of 1 s over 5 s, then one over 4.
    assert (delta.before.efficiency, delta.after.efficiency) == (0.4, 0.25)


def test_ops_without_a_partner_are_new_or_have_vanished() -> None:
    found = compare(report(op(0, "old", 2.0, category="copy")), report(op(0, "new", 3.0, category="sort")))
    assert changes(found) == [("new", "new", 3.0), ("old", "vanished", -2.0)]
    (new,) = (delta for delta in found.deltas if delta.matched == "new")
    assert (new.before.time_s, new.before.ops) == (0.0, ())


def test_self_times_are_compared_where_ops_nest() -> None:
    # A loop of 10 s around a body of 9 s has 1 s of its own: the change of the body is counted once.
    before = report(op(0, "while", 10.0, self_time_s=1.0), op(1, "body", 9.0, self_time_s=9.0))
    after = report(op(0, "while", 6.0, self_time_s=1.0), op(1, "body", 5.0, self_time_s=5.0))
    found = compare(before, after)
    assert found.change_s == -4.0
    assert (found.before.time_s, found.after.time_s) == (10.0, 6.0)


def test_ops_timed_on_one_side_only_are_left_out_and_said_so() -> None:
    found = compare(report(op(0, "a", None), op(1, "b", 2.0)), report(op(0, "a", 3.0), op(1, "b", 1.0)))
    assert found.change_s == -1.0
    assert found.notes == ("1 of 2 rows have no measured time on both sides and are not in the total change",)


def test_another_machine_is_noted_roof_by_roof() -> None:
    other = MachineInfo(
        name="toy2",
        ceilings=(
            CeilingInfo(resource="hbm", rate=20, per="B/s", provenance="user"),
            CeilingInfo(resource="matrix/bf16", rate=100, per="FLOP/s", provenance="user"),
        ),
    )
    assert compare(report(), report(machine=other)).notes == (
        "the machine changed from toy to toy2",
        "hbm: 10 B/s before, 20 B/s after",
        "matrix/bf16: unknown before, 100 FLOP/s after",
    )
    assert compare(report(machine=other), report()).notes[-1] == "matrix/bf16: 100 FLOP/s before, unknown after"


OPS = st.builds(
    op,
    st.just(0),
    st.sampled_from("abcd"),
    st.floats(0.001, 1000),
    st.floats(0.001, 1000),
    module=st.sampled_from(["", "f", "g"]),
    category=st.sampled_from(["", "copy", "dot"]),
)
REPORTS = st.lists(OPS, max_size=8).map(lambda ops: report(*(replace(one, id=id, rank=id + 1) for id, one in enumerate(ops))))


@given(REPORTS)
def test_a_report_compared_with_itself_is_all_zeros(one: Report) -> None:
    found = compare(one, one)
    assert all(delta.change_s == 0 for delta in found.deltas)
    assert all(delta.matched == "module and name" for delta in found.deltas)
    assert found.before == found.after


@given(REPORTS, REPORTS)
def test_the_changes_sum_to_the_whole_change(before: Report, after: Report) -> None:
    found = compare(before, after)
    expected = sum(one.time_s or 0 for one in after.ops) - sum(one.time_s or 0 for one in before.ops)
    assert sum(delta.change_s or 0 for delta in found.deltas) == pytest.approx(expected, abs=1e-6)
    assert (found.change_s or 0) == pytest.approx(expected, abs=1e-6)


@given(REPORTS, REPORTS)
def test_every_op_is_in_exactly_one_row_on_its_side(before: Report, after: Report) -> None:
    found = compare(before, after)
    assert sorted(id for delta in found.deltas for id in delta.before.ops) == [one.id for one in before.ops]
    assert sorted(id for delta in found.deltas for id in delta.after.ops) == [one.id for one in after.ops]


def counted(id: int, name: str, floor_s: float, flops: float, hbm: float, **details: object) -> OpInfo:
    return op(id, name, None, floor_s, work={"matrix/bf16": flops}, bytes={"hbm": hbm}, **details)


def figures(found: Comparison) -> dict[str, tuple[float, float]]:
    return {one.quantity: (one.before, one.after) for one in found.figures}


def test_programs_without_times_are_compared_by_minimum_time_work_bytes_launches_and_memory() -> None:
    before = report(
        counted(0, "a", 5.0, 100, 50, kernels=2), counted(1, "b", 1.0, 10, 5), memory=PeakMemory(peak_bytes=900, method="liveness")
    )
    after = report(counted(0, "a", 3.0, 100, 30, kernels=1), memory=PeakMemory(peak_bytes=600, method="liveness"))
    found = compare(before, after)
    assert (found.basis, found.change_s, found.floor_change_s, found.speedup) == ("minimum time", None, -3.0, None)
    assert [(delta.name, delta.floor_change_s, delta.share) for delta in found.deltas] == [
        ("a", -2.0, pytest.approx(2 / 3)),
        ("b", -1.0, pytest.approx(1 / 3)),
    ]
    assert figures(found) == {
        "minimum time": (6.0, 3.0),
        "work": (110, 100),
        "hbm bytes": (55, 30),
        "launches": (3, 1),
        "peak memory": (900, 600),
        "ops": (2, 1),
    }
    text = changes_text(found, PLAIN)
    assert "2x as fast at the roofline" in text
    assert "50 B → 30 B" in text
    assert "eff. before" not in text
    assert re.search(r"peak memory +900 B +600 B +−300 B \(−33%\)", changes_text(found, PLAIN))


def test_what_is_not_known_is_said_and_the_known_part_is_summed() -> None:
    half = op(0, "a", None, 1.0, work={"matrix/bf16": 40, "compute": None}, known={"hbm": 7}, bytes={"hbm": None})
    found = compare(report(half), report(half))
    assert (figures(found)["work"], figures(found)["hbm bytes"]) == ((40, 40), (7, 7))
    assert "1 ops before have FLOP or bytes that are not known" in found.notes


def test_the_speedup_is_of_steps_then_of_the_wall_clock_then_of_ops() -> None:
    def run(step_s: float | None, run_s: float, time_s: float) -> Report:
        points = (Point(scope="total", time_s=run_s), *([Point(scope="average", time_s=step_s)] if step_s else []))
        # Four devices: the coverage is in device-seconds.
        return report(op(0, "a", time_s), points=points, coverage=Coverage(wall_s=4 * run_s, run_s=run_s))

    steps, walls = compare(run(2.0, 9.0, 8.0), run(1.0, 3.0, 2.0)), compare(run(None, 9.0, 8.0), run(1.0, 3.0, 2.0))
    assert (steps.speedup, steps.speedup_of) == (2.0, "step")
    assert (walls.speedup, walls.speedup_of) == (3.0, "run")
    assert (walls.before.wall_s, walls.after.wall_s) == (9.0, 3.0)
    assert figures(steps)["step time"] == (2.0, 1.0)
    assert "2x as fast per step: 2 s → 1 s\n" in changes_text(steps, PLAIN)


def test_the_changes_of_equal_ops_are_one_row_of_the_table() -> None:
    def layers(time_s: float) -> Report:
        ops = [op(number, f"dot.{number}", time_s, 1.0) for number in range(3)]
        return report(
            *(
                replace(one, scope=f"layer{number}/mlp", **parts_of_label(f"layer{number}/mlp  dot 8×8×8"))
                for number, one in enumerate(ops)
            ),
            op(3, "other", 1.0, 0.5),
        )

    found = compare(layers(2.0), layers(4.0))
    # Three layers of 2 s before and 4 s after at a minimum of 1 s each.
    assert re.search(r"layer\*/mlp  dot 8×8×8  ×3 +\S.* 6 s +12 s +\+6 s +100% +50% → 25%", changes_text(found, PLAIN))
    assert len(found.deltas) == 4
    assert changes_text(found, PLAIN).endswith("\n1 op unchanged")  # other
    assert changes_text(compare(layers(2.0), layers(2.0)), PLAIN).endswith("\n\nAll 4 ops are the same.")


def test_what_was_recorded_outside_of_steps_is_not_compared() -> None:
    def run(outside_s: float) -> Report:
        shares = tuple(StepShare(op=0, step=key, count=1, time_s=1.0) for key in range(2))
        return report(
            op(0, "matmul", 2.0 + outside_s), steps=tuple(Step(step=key, name="s", time_s=1.0) for key in range(2)), by_step=shares
        )

    found = compare(run(0.5), run(0.0))
    assert (found.per, found.before.time_s, found.after.time_s, found.notes) == ("step", 1.0, 1.0, ())


def test_runs_with_different_numbers_of_steps_are_compared_per_step() -> None:
    def run(count: int, time_s: float) -> Report:
        # Each step executes the op once, in time_s and with 100 FLOP and 10 B.
        shares = tuple(StepShare(op=0, step=key, count=1, time_s=time_s) for key in range(count))
        return report(
            replace(counted(0, "a", 1.0 * count, 100 * count, 10 * count, count=count), time_s=time_s * count),
            steps=tuple(Step(step=key, time_s=time_s) for key in range(count)),
            by_step=shares,
            points=(Point(scope="average", time_s=time_s),),
        )

    found = compare(run(2, 4.0), run(5, 2.0))
    (delta,) = found.deltas
    assert (delta.before.time_s, delta.after.time_s, delta.change_s, delta.after.launches) == (4.0, 2.0, -2.0, 1)
    assert figures(found)["work"] == (100, 100)
    assert (found.per, found.notes) == ("step", ("2 steps before, 5 after: times and amounts of ops are per step and device",))
    assert re.search(r"op +matched by +before/step +after/step +change/step", changes_text(found, PLAIN))
    assert "work/step" in changes_text(found, PLAIN)
    same = compare(run(2, 4.0), run(2, 2.0))
    assert (same.per, same.deltas[0].before.time_s, same.notes) == ("step", 4.0, ())


def test_a_profile_is_compared_with_a_program_by_its_average_step_on_one_device() -> None:
    devices = tuple(Device(id=number, name="chip") for number in (0, 1))
    # 2 devices x (3 steps, the last of which nothing follows, and 2 executions before the first).
    ran = counted(0, "a", 16.0, 800, 80, count=8, module="m")
    steps = tuple(Step(step=number, time_s=1.0, followed=number < 2) for number in (0, 1, 2))
    shares = tuple(StepShare(op=0, step=number, count=2, time_s=2.0) for number in (0, 1, 2))
    profile = Report(
        input=InputInfo(format="xspace", devices=devices),
        machine=TOY,
        ops=(replace(ran, time_s=8.0), replace(counted(1, "once", 1.0, 5, 5), time_s=1.0)),
        steps=steps,
        by_step=shares,
        by_device=tuple(DeviceShare(op=0, device=number, count=4, time_s=4.0) for number in (0, 1)),
    )
    program = replace(report(counted(0, "a", 2.0, 100, 10, module="m")), input=InputInfo(format="hlo"))
    found = compare(profile, program)
    assert figures(found) == {"minimum time": (2.0, 2.0), "work": (100, 100), "hbm bytes": (10, 10), "launches": (1, 1), "ops": (1, 1)}
    assert [(delta.name, delta.floor_change_s) for delta in found.deltas] == [("a", 0.0)]
    assert found.basis == "minimum time"
    assert any("per step" in note for note in found.notes)
