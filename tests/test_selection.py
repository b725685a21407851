"""Filtering and summing the ops of a report."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from every import every
from roofline.analysis import analyze
from roofline.errors import UsageError
from roofline.grouping import KEYS, group, group_parts, parts_table
from roofline.grouping.op_filter import check_values, filtered
from roofline.report import CounterInfo, Device, DeviceShare, InputInfo, MachineInfo, OpInfo, Report, Step, StepShare
from roofline.selection import narrow, stem


def op(id: int, name: str, time_s: float | None = 1.0, floor_s: float | None = 0.5, **details: object) -> OpInfo:
    return OpInfo(id=id, rank=id + 1, name=name, time_s=time_s, floor_s=floor_s, **{"bound": "hbm", **details})  # type: ignore[arg-type]


OPS = (
    op(
        0,
        "dot.1",
        4.0,
        label="matmul 8×8×8",
        does="matmul",
        category="dot",
        bound="matrix",
        dtype="bf16",
        unit="matrix",
        module="jit_step",
        scope="layer0/attn/qk",
    ),
    op(1, "fusion.2", 2.0, category="loop fusion", bound="hbm", dtype="fp32", unit="vector", module="jit_step", scope="layer0/mlp"),
    op(2, "fusion.3", 1.0, category="loop fusion", bound="hbm", dtype="bf16", unit="vector", module="jit_init", scope="layer1/mlp"),
    op(3, "custom-call", None, None, category="custom call", bound=None),
)


def test_each_condition_keeps_the_ops_it_names_in_their_order() -> None:
    cases = {
        "": [0, 1, 2, 3],
        'category="loop fusion"': [1, 2],
        'category="Loop Fusion"': [1, 2],
        "category:fusion": [1, 2],
        'category=dot or category="custom call"': [0, 3],
        "bound=hbm": [1, 2],
        "dtype=bf16": [0, 2],
        "unit=vector": [1, 2],
        "program=jit_init": [2],
        r"name:/^fusion\.\d/": [1, 2],
        "op:matmul": [0],  # its label
        "time>=2s": [0, 1],
        "time>=0s": [0, 1, 2],  # what was never timed has no time to be large enough
        "bound=hbm dtype=bf16": [2],
        "category=fuson": [],
    }
    assert {text: [one.id for one in filtered(OPS, text)] for text in cases} == cases


def test_a_value_that_no_op_has_is_refused_where_it_is_required() -> None:
    known = {"bound": ("ici",), "category": (), "program": ()}
    for text in (
        "bound=ICI",
        "bound:hmb",
        "bound!=hmb",
        "-category=copy",
        "not (category=copy or category=x)",
        "name=x",
        "category=/co.y/",
        "bound=none",
    ):
        check_values(text, OPS, known)
    wrong = {
        "bound=hmb": "filter, character 1: bound=hmb: no op has it; did you mean 'hbm'?",
        "dot bound=hbm,hmb": "filter, character 5: bound=hmb: no op has it; did you mean 'hbm'?",
        '-dot (category="Loop fusoin")': "category=Loop fusoin: no op has it; did you mean 'loop fusion'?",
        "not (a b) module=zzz": "module=zzz: no op has it; there is: jit_step, jit_init",
    }
    for text, says in wrong.items():
        with pytest.raises(UsageError) as error:
            check_values(text, OPS, known)
        assert says in str(error.value)


def test_groups_sum_time_floor_and_work_longest_first() -> None:
    ops = (
        op(0, "a", 4.0, 1.0, category="x", count=2, work={"matrix/bf16": 10.0}, bytes={"hbm": 3.0}, serial_s=2.0),
        op(1, "b", 1.0, 1.0, category="y"),
        op(2, "c", 6.0, 4.0, category="x", count=3, work={"matrix/bf16": 5.0, "vector/fp32": 1.0}, bytes={"hbm": 1.0}),
    )
    first, second = group(ops, "category")
    assert (first.key, first.ops, first.count, first.time_s, first.floor_s, first.serial_s) == ("x", (0, 2), 5, 10.0, 5.0, 2.0)
    assert (first.work, first.flops, first.bytes) == ({"matrix/bf16": 15.0, "vector/fp32": 1.0}, 16.0, {"hbm": 4.0})
    # 5 s of floors in 10 s: not the mean of 0.25 and 0.67.
    assert first.efficiency == 0.5
    assert second.key == "y"


def test_unknown_amounts_leave_a_mark_and_are_not_zero() -> None:
    ops = (op(0, "a", work={"vector/fp32": 2.0}), op(1, "a", work={"vector/fp32": None}, bytes={"hbm": None}))
    (found,) = group(ops, "name")
    assert found.work == {"vector/fp32": 2.0}
    assert found.unknown == ("hbm", "vector/fp32")


def test_unpriced_time_lowers_a_groups_efficiency_and_is_told() -> None:
    (found,) = group((op(0, "a", 1.0, 1.0), op(1, "a", 3.0, None)), "name")
    assert (found.efficiency, found.priced_s, found.time_s) == (0.25, 1.0, 4.0)


def test_untimed_ops_have_floors_but_no_efficiency() -> None:
    (found,) = group((op(0, "a", None, 2.0), op(1, "a", None, 1.0)), "name")
    assert (found.time_s, found.self_time_s, found.floor_s, found.efficiency) == (None, None, 3.0, None)


def test_the_bound_of_a_group_is_what_binds_longest() -> None:
    ops = (op(0, "a", 1.0, bound="hbm"), op(1, "a", 3.0, bound="matrix"), op(2, "a", 1.0, bound="hbm"))
    assert group(ops, "name")[0].bound == "matrix"


def test_names_are_grouped_without_their_numbering() -> None:
    assert [(one.key, one.ops) for one in group(OPS, "name")] == [("dot", (0,)), ("fusion", (1, 2)), ("custom-call", (3,))]


@every(
    ("name", "expected"),
    [
        ("fusion", "fusion"),
        ("fusion.12", "fusion"),
        ("loop_add_fusion_3", "loop_add_fusion"),
        ("dot.1.remat2.clone", "dot"),
        ("conv2d", "conv2d"),
        ("gemm_128x64", "gemm_128x64"),
        (".1", ".1"),
    ],
)
def test_a_stem_drops_only_what_tells_copies_apart(name: str, expected: str) -> None:
    assert stem(name) == expected


def test_scopes_are_grouped_to_a_depth() -> None:
    assert [one.key for one in group(OPS, "scope", depth=1)] == ["layer0", "layer1", ""]
    assert [one.key for one in group(OPS, "scope")] == ["layer0/attn/qk", "layer0/mlp", "layer1/mlp", ""]


@every(
    ("by", "depth", "words"),
    [
        ("catgory", None, "cannot group by 'catgory'; did you mean 'category'?"),
        ("zzz", None, "choose category, scope, location"),
        ("scope", 0, "scopes alone have levels, 1 or more"),
        ("dtype", 2, "dtype, 2 levels: scopes alone have levels, 1 or more"),
    ],
)
def test_a_grouping_that_makes_no_sense_is_refused(by: str, depth: int | None, words: str) -> None:
    with pytest.raises(UsageError) as error:
        group(OPS, by, depth=depth)
    assert words in str(error.value)


ROWS = st.lists(
    st.builds(
        op,
        st.just(0),
        st.sampled_from(["dot.1", "dot.2", "add"]),
        st.one_of(st.none(), st.floats(0.001, 100)),
        st.one_of(st.none(), st.floats(0.001, 100)),
        category=st.sampled_from(["", "x", "y"]),
        dtype=st.sampled_from([None, "bf16", "fp32"]),
    ),
    max_size=10,
).map(lambda ops: tuple(replace(one, id=id) for id, one in enumerate(ops)))


@given(ROWS, st.sampled_from(sorted(KEYS)))
def test_groups_partition_the_ops_and_keep_their_sums(rows: tuple[OpInfo, ...], by: str) -> None:
    found = group(rows, by)
    assert sorted(id for one in found for id in one.ops) == [one.id for one in rows]
    assert sum(one.time_s or 0 for one in found) == pytest.approx(sum(one.time_s or 0 for one in rows))
    assert sum(one.floor_s or 0 for one in found) == pytest.approx(sum(one.floor_s or 0 for one in rows))


@given(ROWS, st.sampled_from(["x", "y"]), st.integers(0, 100))
def test_filters_commute(rows: tuple[OpInfo, ...], category: str, least: int) -> None:
    both = filtered(rows, f"category={category} time>={least}s")
    assert both == filtered(filtered(rows, f"category={category}"), f"time>={least}s")
    assert both == filtered(filtered(rows, f"time>={least}s"), f"category={category}")


def shared() -> Report:
    """A product that ran 3 times in step 0 on device 0 and once in step 1 on device 1, and a copy that ran on device 1 alone."""
    dot = op(
        0,
        "dot",
        8.0,
        4.0,
        count=4,
        kernels=8,
        self_time_s=6.0,
        serial_s=5.0,
        work={"matrix/bf16": 400},
        bytes={"hbm": 40, "l2": None},
        known={"l2": 60},
        times={"matrix": 4.0, "hbm": 1.0},
        counters=CounterInfo(work={"matrix/bf16": 404}, flops=404, bytes={"hbm": 44}, time_s=10.0),
    )
    copy = op(1, "copy", 1.0, 0.5, bytes={"hbm": 5})
    return Report(
        input=InputInfo(format="xspace", devices=(Device(id=0, name="chip", host="alpha"), Device(id=1, name="chip", host="beta"))),
        machine=MachineInfo(name="toy", ceilings=()),
        ops=(dot, copy),
        steps=(Step(step=0, name="warm"), Step(step=1, name="train", number=7), Step(step=2, name="train", number=7)),
        by_step=(StepShare(op=0, step=0, count=3, time_s=7.0), StepShare(op=0, step=1, count=1, time_s=1.0)),
        by_device=(
            DeviceShare(op=0, device=0, count=3, time_s=7.0),
            DeviceShare(op=0, device=1, count=1, time_s=1.0),
            DeviceShare(op=1, device=1, count=1, time_s=1.0),
        ),
    )


def test_a_step_has_its_share_of_each_op() -> None:
    (dot,) = narrow(shared(), step=[0])
    # Three of four executions: three quarters of the work, bytes and floor; the time is the step's own.
    assert (dot.count, dot.kernels, dot.time_s, dot.floor_s, dot.flops, dot.bytes) == (3, 6, 7.0, 3.0, 300, {"hbm": 30, "l2": None})
    assert dot.known == {"l2": 45}
    assert dot.self_time_s == 6.0 * 7 / 8
    assert (dot.efficiency, dot.rate, dot.bandwidth) == (3 / 7, 300 / 7, {"hbm": 30 / 7})
    assert dot.utilization == {"matrix": 3 / 7, "hbm": 0.75 / 7}
    assert dot.counters is not None
    assert (dot.counters.flops, dot.counters.bytes, dot.counters.time_s) == (303, {"hbm": 33}, 7.5)
    assert dot.notes == ("counted: 3 of 4 executions",)


def test_steps_are_named_by_number_or_by_name() -> None:
    assert narrow(shared(), step=["1"]) == narrow(shared(), step=["train"]) == narrow(shared(), step=[1])
    assert [one.time_s for one in narrow(shared(), step=[0, 1])] == [8.0]


def test_devices_and_hosts_have_their_shares_and_what_ran_nowhere_there_is_gone() -> None:
    assert [one.name for one in narrow(shared(), device=[0])] == ["dot"]
    assert {one.name: one.time_s for one in narrow(shared(), host="Beta")} == {"dot": 1.0, "copy": 1.0}
    assert narrow(shared(), device=[0, 1]) == shared().ops  # all of it is the op itself
    assert narrow(shared()) == shared().ops


@every(
    ("filters", "words"),
    [
        ({"step": ["9"]}, "no step '9'; the steps are 0 to 1, named 'warm', 'train'"),
        ({"device": [5]}, "no device 5; the devices are 0, 1"),
        ({"host": "gamma"}, "no host named 'gamma'; the hosts are alpha, beta"),
        ({"step": [0], "device": [0]}, "by step and by device, but not by both"),
    ],
)
def test_a_part_that_is_not_there_is_refused(filters: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError) as error:
        narrow(shared(), **filters)  # type: ignore[arg-type]
    assert words in str(error.value)


def test_an_input_without_steps_or_devices_says_so() -> None:
    bare = replace(shared(), by_step=(), by_device=())
    with pytest.raises(UsageError, match="no steps"):
        narrow(bare, step=[0])
    with pytest.raises(UsageError, match="does not record devices"):
        narrow(bare, device=[0])


@every(
    ("by", "expected"),
    [
        ("step", [("0 warm", 7.0), ("1 (train 7)", 1.0)]),
        ("device", [("0 (alpha)", 7.0), ("1 (beta)", 2.0)]),
        ("host", [("alpha", 7.0), ("beta", 2.0)]),
    ],
)
def test_parts_are_summed_by_where_and_when_they_ran(by: str, expected: list[tuple[str, float]]) -> None:
    report = shared()
    assert [(one.key, one.time_s) for one in group_parts(report, report.ops, by)] == expected


def test_parts_are_only_of_the_ops_that_were_asked_for() -> None:
    report = shared()
    assert [(one.key, one.time_s) for one in group_parts(report, report.ops[1:], "device")] == [("1 (beta)", 1.0)]


@every(
    ("by", "times", "shares", "devices"),
    [
        # All ops take 9 s, of which steps took 7 and 1: means over two devices, and shares of all 9 s (of self times: 6 of 8 for dot).
        ("step", [3.5, 0.5], [5.25 / 7, 0.75 / 7], 2),
        ("device", [7.0, 2.0], [5.25 / 7, 1.75 / 7], 1),
        ("host", [7.0, 2.0], [5.25 / 7, 1.75 / 7], 1),
    ],
)
def test_parts_have_their_share_of_all_op_time(by: str, times: list[float], shares: list[float], devices: int) -> None:
    report = shared()
    table = parts_table(report, report.ops, by)
    assert ([one.time_s for one in table.groups], table.shares, table.devices) == (times, shares, devices)
    assert table.whole == "op time"


def test_parts_of_a_selection_have_their_share_of_it() -> None:
    report = shared()
    table = parts_table(report, report.ops[:1], "device", device=[1])
    assert (table.shares, table.whole) == ([0.75 / 1.75], "selected op time")  # dot took 0.75 s of its own there, copy 1


def test_a_host_of_more_devices_has_means_over_its_own() -> None:
    report = shared()
    three = replace(report, input=replace(report.input, devices=(*report.input.devices, Device(id=2, name="chip", host="beta"))))
    more = replace(three, by_device=(*three.by_device, DeviceShare(op=1, device=2, count=1, time_s=1.0)))
    table = parts_table(more, more.ops, "host")
    assert ([one.time_s for one in table.groups], table.devices) == ([7.0, 1.5], None)


@given(st.lists(st.tuples(st.integers(1, 9), st.floats(0.001, 9)), min_size=1, max_size=5), st.integers(1, 10**6))
def test_the_parts_of_an_op_are_the_op(shares: list[tuple[int, float]], each: int) -> None:
    count, time_s = sum(n for n, _ in shares), sum(seconds for _, seconds in shares)
    whole = op(0, "x", time_s, 2.0, count=count, work={"matrix/bf16": each * count}, self_time_s=time_s / 2)
    rows = tuple(DeviceShare(op=0, device=place, count=n, time_s=seconds) for place, (n, seconds) in enumerate(shares))
    report = replace(shared(), ops=(whole,), by_device=rows, input=InputInfo(format="x"))
    parts = [narrow(report, device=[place])[0] for place in range(len(rows))]
    assert sum(part.count for part in parts) == count
    assert sum(part.flops or 0 for part in parts) == each * count  # exactly
    assert sum(part.floor_s or 0 for part in parts) == pytest.approx(2.0)
    assert sum(part.self_time_s or 0 for part in parts) == pytest.approx(time_s / 2)


def test_of_an_op_that_loses_nothing_a_part_loses_nothing_either() -> None:
    # Ops that overlap share the time, so that this one's 0.1 s are less than its minimum of 0.5 s; 0.1 * (1.1 / 3) / 1.1 is not 0.1 / 3.
    whole = op(0, "x", 1.1, 0.5, count=3, self_time_s=0.1)
    rows = tuple(DeviceShare(op=0, device=place, count=1, time_s=1.1 / 3) for place in range(3))
    report = replace(shared(), ops=(whole,), by_device=rows, input=InputInfo(format="x"))
    assert [narrow(report, device=[place])[0].lost_s for place in range(3)] == [0.0] * 3


def test_shares_by_step_device_and_host_are_at_most_all_of_a_stated_whole() -> None:
    data = Path(__file__).parent / "data"
    for name in ("h200/jax_train.xplane.pb.gz", "h200/jax_scan.xplane.pb.gz", "cpu/jax_four.xplane.pb.gz"):
        report = analyze(data / name)
        for by in ("step", "device", "host"):
            table = parts_table(report, report.ops, by)
            known = [share for share in table.shares if share is not None]
            assert all(0 <= share <= 1 + 1e-9 for share in known), (name, by)
            assert table.whole == "op time"
