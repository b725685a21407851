"""Schedules played on engines by hand: copies beside the core, waits, loops, links; and of compiled programs, core + waits = step."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import roofline as rl
from roofline.analysis.played.times import links_of, replayed
from roofline.cost import NOTHING
from roofline.operation import Compiled
from roofline.report import Report
from roofline.schedule import Loop, Schedule, Turn, executions
from roofline.timeline import CORE, DMA, HOST, Load, Played, Stretch, play
from roofline.topology import Torus
from roofline.workload import Op, Recording, Workload

DATA = Path(__file__).parent / "data" / "tpu"
PROGRAMS = sorted(path.stem for path in DATA.glob("*.json"))


def runs(op: int) -> Turn:
    return Turn(op)


def starts(op: int) -> Turn:
    return Turn(op, "starts")


def awaits(op: int) -> Turn:
    return Turn(op, "awaits")


def played(turns: tuple[Turn | Loop, ...], *loads: Load) -> Played:
    return play(Schedule("toy", turns), loads)


def copy(seconds: float, latency_s: float = 0.0) -> Load:
    return Load(seconds=seconds, memory_s=seconds - latency_s, latency_s=latency_s, engines=(DMA,))


def test_a_copy_is_hidden_under_an_op_that_leaves_the_memory_to_it() -> None:
    # 4 s of copy under 10 s of core that uses the memory for 6: it is done when the core is, and the core does not wait.
    found = played((starts(0), runs(1), awaits(0)), copy(4), Load(seconds=10, memory_s=6))
    assert (found.time_s, found.core_s, found.waited_s) == (10, {1: 10}, {})
    assert found.busy_s == {CORE: 10, DMA: 4}


def test_the_core_waits_for_what_is_left_of_a_copy() -> None:
    # 8 s of memory leave 2 of 10 s for the copy of 5: 3 are left.
    found = played((starts(0), runs(1), awaits(0)), copy(5), Load(seconds=10, memory_s=8))
    assert found.waited_s == {0: 3}
    assert found.time_s == 10 + 3
    assert found.in_flight_s == {0: 13, 1: 10}
    assert found.stretches == (Stretch(1, 0.0, 10), Stretch(0, 10, 3, is_wait=True))


def test_an_op_leaves_a_tenth_of_the_bandwidth() -> None:
    assert played((starts(0), runs(1), awaits(0)), copy(5), Load(seconds=10, memory_s=10)).waited_s == {0: 4}  # 5 - 10/10


def test_copies_follow_one_another_and_each_has_its_latency() -> None:
    # Two copies of 2 s and 1 s of latency each, nothing beside them: the second starts to move when the first has, and ends 4 s later.
    found = played((starts(0), starts(1), awaits(1)), copy(3, 1), copy(3, 1))
    assert found.time_s == pytest.approx(4)
    alone = played((starts(0), awaits(0)), copy(3, 1))
    assert alone.time_s == pytest.approx(3)


def test_links_carry_one_collective_at_a_time_and_two_directions_at_once() -> None:
    up, down = Load(seconds=3, engines=("links up",)), Load(seconds=3, engines=("links down",))
    both = Load(seconds=3, engines=("links up", "links down"))
    assert played((starts(0), starts(1), awaits(0), awaits(1)), up, down).time_s == 3
    assert played((starts(0), starts(1), awaits(0), awaits(1)), up, both).time_s == 6
    # A collective without a start occupies the core, and waits for the links.
    assert played((starts(0), runs(1)), up, Load(seconds=2, engines=(CORE, "links up"))).time_s == 3 + 2


def collective(beside: bool = True, towards: str = "", axes: tuple[int, ...] = ()) -> Op:
    return Op(name="exchange", cost=NOTHING, towards=towards, compiled=Compiled(beside=beside, axes=axes))


def test_a_collective_occupies_the_links_of_its_axes_alone() -> None:
    torus = Torus(largest=(16, 16), ring=16)
    square, line = torus.slice((4, 4)), torus.slice((4, 1))
    assert links_of(collective(axes=(1,)), square) == ("links y up", "links y down")
    assert links_of(collective(axes=(1,), towards="down"), square) == ("links y down",)
    assert links_of(collective(), square) == ("links x up", "links x down", "links y up", "links y down")  # its axes are not known
    assert links_of(collective(axes=(0,)), line) == links_of(collective(), None) == ("links up", "links down")
    # Two at once on two axes take the longer; on the same axis they follow one another.
    for axes, time_s in (((0, 1), 3), ((0, 0), 5)):
        two = [
            Load(seconds=seconds, engines=links_of(collective(axes=(axis,)), square)) for seconds, axis in zip((3, 2), axes, strict=True)
        ]
        assert played((starts(0), starts(1), awaits(0), awaits(1)), *two).time_s == time_s


def test_the_axes_of_a_training_step_are_busy_as_their_groups_say() -> None:
    # fsdp 16 spans x and y of a 4x4x4 slice, tensor 4 spans z, and has most of the collectives.
    report = rl.analyze(DATA / "steps" / "decoder_32b_v5p_4x4x4.hlo.gz", "v5p:4x4x4")
    assert report.predicted is not None
    shares = {engine.name: engine.share for engine in report.predicted.engines}
    assert shares["links x up"] == pytest.approx(shares["links y up"], abs=0.001)
    assert shares["links x up"] < 0.05 < 0.1 < shares["links z up"]


def test_the_host_link_is_an_engine_of_its_own() -> None:
    host = Load(seconds=4, engines=(HOST,))
    found = played((starts(0), starts(1), runs(2), awaits(0), awaits(1)), host, copy(4), Load(seconds=1))
    assert (found.time_s, found.waited_s) == (4, {0: 3})


def test_a_loop_is_played_once_and_taken_as_often_as_it_trips() -> None:
    body = (starts(0), runs(1), awaits(0))
    once = played(body, copy(5), Load(seconds=3))
    loop = played((Loop(7, (Loop(3, body),)),), copy(5), Load(seconds=3))
    assert once.waited_s == {0: 2}
    assert loop.time_s == 21 * once.time_s
    assert (loop.core_s, loop.waited_s) == ({1: 63}, {0: 42})


def test_a_copy_goes_on_beside_a_loop() -> None:
    # 4 trips of 3 s leave 12 s for the copy of 10; of 1 s they leave 4.
    for seconds, waited_s in ((3, {}), (1, {0: 6})):
        assert played((starts(0), Loop(4, (runs(1),)), awaits(0)), copy(10), Load(seconds=seconds)).waited_s == waited_s


OPS = 4
TURNS = st.recursive(
    st.builds(Turn, st.integers(0, OPS - 1), st.sampled_from(("runs", "starts", "awaits"))),
    lambda inner: st.builds(Loop, st.integers(1, 5), st.lists(inner, min_size=1, max_size=4).map(tuple)),
    max_leaves=20,
)
ENGINES = st.sampled_from(((CORE,), (DMA,), (HOST,), ("links up",), (CORE, "links up", "links down")))


@st.composite
def loads(draw: st.DrawFn) -> Load:
    seconds, part = draw(st.floats(0, 100)), draw(st.floats(0, 1))
    return Load(seconds=seconds, memory_s=seconds * part, latency_s=seconds * (1 - part), engines=draw(ENGINES))


@given(st.lists(TURNS, max_size=12).map(tuple), st.tuples(*[loads()] * OPS))
def test_the_time_is_the_core_and_its_waits_and_no_engine_is_busy_longer_than_all_work(turns, loads) -> None:  # type: ignore[no-untyped-def]
    found = played(turns, *loads)
    assert found.time_s == pytest.approx(sum(found.core_s.values()) + sum(found.waited_s.values()))
    ran = sum(times * loads[turn.op].seconds for turn, times in executions(turns) if turn.act == "runs")
    assert sum(found.core_s.values()) == pytest.approx(ran)
    started = sum(times * loads[turn.op].seconds for turn, times in executions(turns) if turn.act == "starts")
    assert found.time_s <= ran + started + 1e-6 * (1 + ran + started)
    slower = played(
        turns,
        *[Load(seconds=2 * load.seconds, memory_s=2 * load.memory_s, latency_s=2 * load.latency_s, engines=load.engines) for load in loads],
    )
    assert slower.time_s == pytest.approx(2 * found.time_s)


def report(name: str, chip: str = "") -> Report:
    return rl.analyze(DATA / f"{name}.hlo.gz", chip or f"{name.split('_')[-2]}:{name.split('_')[-1]}")


def test_of_every_compiled_program_core_and_waits_are_the_step() -> None:
    for name in PROGRAMS:
        found = report(name)
        assert found.predicted is not None
        total = found.total
        assert total is not None
        assert total.time_s == found.predicted.time_s == pytest.approx(sum(op.self_time_s or 0.0 for op in found.ops), rel=1e-9)
        assert found.predicted.low_s <= found.predicted.time_s <= found.predicted.high_s
        assert all(0 < engine.share <= 1 for engine in found.predicted.engines)
        (lane,) = found.timeline
        assert sum(lane.at_roof_s) + sum(map(sum, lane.causes.values())) == pytest.approx(total.time_s, rel=1e-3)


def test_a_loop_of_eight_layers_hides_one_of_its_two_gathers() -> None:
    # The gather without a start is exposed, its twin runs under the product: 8 times 8 MB, of which 3/8 cross the busiest link.
    found = report("hidden_gathers_v5e_2x2")
    gathers = [op for op in found.ops if op.category == "all-gather"]
    hidden = next(op for op in gathers if op.compiled is not None and op.compiled.beside)
    exposed = next(op for op in gathers if op is not hidden)
    assert exposed.self_time_s == pytest.approx(8 * (5.4e-6 + 3 / 8 * 2 * 4096 * 1024 / rl.chip("v5e").rate("ici") / 0.964), rel=0.03)
    assert (hidden.self_time_s or 0.0) < 0.01 * (exposed.self_time_s or 0.0)
    assert (hidden.time_s or 0.0) >= (exposed.time_s or 0.0)


def test_a_program_is_not_played_on_a_chip_of_another_kind() -> None:
    assert report("layer_v5e_2x2", "h100").predicted is None


def test_a_schedule_is_played_again_with_the_times_of_changed_ops() -> None:
    # 10 s of core hide a copy of 5; in 2 s of core 3 are exposed, and a kernel that a change adds comes on top.
    beside, alone = (
        Op(name=name, cost=NOTHING, compiled=Compiled(beside=is_beside)) for name, is_beside in (("copy", True), ("product", False))
    )
    schedule, loads = Schedule("toy", (starts(0), runs(1), awaits(0))), [copy(5), Load(seconds=10)]
    before = Recording(workload=Workload((replace(beside, time_s=10.0), replace(alone, time_s=10.0))), format="hlo", schedules=(schedule,))
    added = replace(alone, name="cast", time_s=0.5, self_time_s=0.5)
    after = replayed(before, replace(before, workload=Workload((before.workload.ops[0], replace(alone, time_s=2.0), added))), loads)
    assert [op.self_time_s for op in after.workload] == [3, 2, 0.5]
    assert after.steps[0].time_s == 5.5


def test_what_if_sums_to_the_step_too() -> None:
    for change in ("chip v6e", "dtype int8-weights"):
        report = rl.what_if(DATA / "hidden_gathers_v5e_2x2.hlo.gz", change, "v5e:2x2")
        assert report.main_point is not None
        assert report.main_point.time_s == pytest.approx(sum(op.self_time_s or 0.0 for op in report.ops), abs=1e-6)
