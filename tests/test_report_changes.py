"""What changed between versions of a program: the comment for a reviewer, limits, noise of several runs, trends."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.cli import main
from roofline.comparison import compare
from roofline.comparison.runs import difference, trend
from roofline.comparison.values import ReportChanges
from roofline.render.change_comment import change_comment, change_sentence
from roofline.report import Device, DeviceShare, InputInfo, Point, Report, Step, StepShare
from test_comparison import op, report

DOT = "dot 8×8×8 bf16"


def version(step: float = 1.0, matmul: float = 0.5, **details: object) -> Report:
    """A step of a product and a copy; the rest is idle time."""
    return report(
        op(0, "dot.1", matmul, 0.25, scope="attn", label="attn  dot 8×8×8 bf16", work={"matrix/bf16": 10}, bytes={"hbm": 100}, **details),
        op(1, "copy.2", 0.25, 0.125, scope="mlp", label="mlp  copy bf16[8]", bytes={"hbm": 50}),
        points=(Point(scope="average", time_s=step, lost={"idle": step - matmul - 0.25}), Point(scope="total", time_s=10 * step)),
    )


def changes(before: list[Report], after: list[Report], files: tuple[str, str] = ("before", "after")) -> ReportChanges:
    return compare(before, after, files).changes


def test_the_comment_says_what_got_slower_and_why() -> None:
    before = version()
    after = report(
        op(
            4,
            "dot.7",
            0.75,
            0.3,
            scope="attn",
            label="attn  dot 8×8×8 bf16",
            work={"matrix/bf16": 10},
            bytes={"hbm": 150},
            kernels=2,
            count=1,
        ),
        op(5, "sort.1", 0.125, 0.1, scope="mlp", label="mlp  sort bf16[8]"),
        points=(Point(scope="average", time_s=1.5, lost={"idle": 0.625}), Point(scope="total", time_s=15.0)),
    )
    text = change_comment(changes([before], [after], ("a.json", "b.json")))
    assert text.startswith("**Step time 1 s → 1.5 s: 50% slower.**")
    slower = text[text.index("### Slower") : text.index("### New ops")]
    assert (
        "`attn: dot 8×8×8 bf16` +250 ms (500 ms → 750 ms): more bytes (+50%), more launches (1 → 2), lower efficiency (50% → 40%)" in slower
    )
    assert "idle time +375 ms (250 ms → 625 ms)" in slower
    assert "### New ops\n\n- `mlp: sort bf16[8]` 125 ms, 1 launch" in text
    assert "### Ops gone\n\n- `mlp: copy bf16[8]` 250 ms, 1 launch" in text
    assert "### Faster" not in text


def test_ops_are_matched_by_what_they_are_and_not_by_their_numbers() -> None:
    # A compiler numbered the two fusions the other way round.
    names = [("fusion.1", "fusion.2"), ("fusion.2", "fusion.1")]
    labels, times = ("attn  add bf16[8]", "mlp  mul bf16[8]"), (3.0, 1.0)
    sides = [
        report(*(op(place, name, time, label=label) for place, (name, label, time) in enumerate(zip(of, labels, times, strict=True))))
        for of in names
    ]
    found = changes(sides[:1], sides[1:])
    assert all(one.seconds.change == 0 and one.matched == "both" for one in found.ops)
    assert change_sentence(found) == "Time of all ops 4 s → 4 s: the same."


def test_a_time_from_twice_as_long_is_told_as_a_factor() -> None:
    found = changes([report(op(0, "a", 1.0))], [report(op(0, "a", 3.0))])
    assert change_sentence(found) == "Time of all ops 1 s → 3 s: 3 times as long."


def test_a_change_within_the_noise_of_the_runs_is_none() -> None:
    noisy = [[version(step) for step in runs] for runs in ((1.0, 1.2, 0.8), (1.05, 1.25, 0.85))]
    found = changes(*noisy)
    assert found.headline is not None
    assert found.headline.is_noise
    assert "5% slower, within the noise of 3 and 3 runs" in change_sentence(found)
    steady = changes([version(one) for one in (1.0, 1.01, 0.99)], [version(one) for one in (1.05, 1.06, 1.04)])
    assert "5% slower, beyond the noise of 3 and 3 runs (+2.7% to +7.3%)." in change_sentence(steady)


def test_the_interval_is_that_of_welchs_test() -> None:
    # Two sides of variance 1 and 3 runs: the error is sqrt(2/3), with 4 degrees of freedom t = 2.78.
    low, high = difference([1, 2, 3], [4, 5, 6]) or (0, 0)
    assert (low, high) == (pytest.approx(3 - 2.78 * (2 / 3) ** 0.5), pytest.approx(3 + 2.78 * (2 / 3) ** 0.5))
    assert difference([1.0], [1.0, 2.0]) is None


@given(st.lists(st.floats(0, 100), min_size=2, max_size=6), st.lists(st.floats(0, 100), min_size=2, max_size=6))
def test_intervals_hold_the_difference_and_turn_round_with_the_sides(before: list[float], after: list[float]) -> None:
    low, high = difference(before, after) or (0, 0)
    assert low <= sum(after) / len(after) - sum(before) / len(before) + 1e-9
    assert difference(after, before) == (pytest.approx(-high, abs=1e-9), pytest.approx(-low, abs=1e-9))


def test_a_trend_has_a_value_for_each_version_and_the_range_of_its_runs() -> None:
    found = trend([[version(1.0), version(1.2)], [version(2.0)], [version(1.5)]], ["a", "b", "c"])
    assert found.headline == "step"
    assert [(one.mean, one.low, one.high) for one in found.values["step"] if one] == [(1.1, 1.0, 1.2), (2.0, 2.0, 2.0), (1.5, 1.5, 1.5)]


def tables(folder: Path, **times: float) -> list[str]:
    """Tables of one matmul that takes so many µs."""
    for name, time in times.items():
        (folder / f"{name}.csv").write_text(f"name,flops,hbm,time\nmatmul,2e9,{1000 * (2 if time > 12 else 1)},{time} us\n")
    return [str(folder / f"{name}.csv") for name in times]


@pytest.mark.parametrize(
    ("times", "limits", "status", "said"),
    [
        ((10, 10.4), "time +5%, hbm +2%", 0, "time +5% (run): found 10.4 µs, allowed at most 10.5 µs"),
        ((10, 13), "time +5%, hbm +2%", 3, "hbm +2%: found 2 kB, allowed at most 1.02 kB"),
        ((10, 9), "time -20%", 0, "time -20% (run): found 9 µs, allowed at least 8 µs"),
        ((10, 9), "peak memory +1%", 2, "not known"),
        ((10, 9), "no above-roof", 0, "no above-roof: none found"),
        ((10, 9), "tme +5%", 2, "at 'tme' (character 1): no such quantity; did you mean 'time'?"),
        ((10, 9), "time +5", 2, "no comparison"),
    ],
)
def test_limits_decide_the_exit_status(
    times: tuple[float, float], limits: str, status: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = tables(tmp_path, a=times[0], b=times[1])
    assert main(["compare", *files, "--chip", "h100", "--require", limits]) == status
    printed = capsys.readouterr()
    assert said in printed.out + printed.err


def test_two_programs_are_limited_by_their_minimum_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "HloModule m, is_scheduled=true\nENTRY main {{\n  x = f32[{size}] parameter(0)\n  ROOT y = f32[{size}] sine(x)\n}}\n"
    for name, size in (("a.hlo", 1024), ("b.hlo", 4096)):
        (tmp_path / name).write_text(text.format(size=size))
    assert main(["compare", str(tmp_path / "a.hlo"), str(tmp_path / "b.hlo"), "--chip", "h100", "--require", "time +5%"]) == 3
    assert "time +5% (minimum time): found" in capsys.readouterr().out


def test_several_runs_a_side_are_grouped_and_noise_breaks_no_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = tables(tmp_path, a1=10, a2=12, a3=8, b1=11, b2=9, b3=11.5, b4=11.5)
    words = ["compare", *files, "--chip", "h100", "--require", "time +5%"]
    assert main([*words, "--runs", "3,4", "-o", str(tmp_path / "comment.md"), "--json", str(tmp_path / "found.json")]) == 0
    assert "within the noise of 3 and 4 runs" in capsys.readouterr().out
    assert "within the noise of 3 and 4 runs" in (tmp_path / "comment.md").read_text()
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["schema"], found["changes"]["runs"], found["checks"][0]["holds"]) == ("roofline.comparison/1", [3, 4], True)
    assert main([*words, "--runs", "2"]) == 2
    assert "7 files are not 2, 2, 2, 2 runs of 4 versions" in capsys.readouterr().err
    assert main(["compare", files[0]]) == 2
    assert "is the only input; give two runs or more" in capsys.readouterr().err


def test_more_than_two_versions_are_a_trend_with_a_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = tables(tmp_path, first=10, second=8, third=11.5)
    outputs = [tmp_path / "trend.svg", tmp_path / "trend.md"]
    for output in outputs:
        assert main(["compare", *files, "--chip", "h100", "--require", "time +5%", "-o", str(output)]) == 3
    printed = capsys.readouterr().out
    assert "Run time over 3 versions: 10 µs → 11.5 µs (+15%)." in printed
    assert "time +5% (run): found 11.5 µs, allowed at most 10.5 µs" in printed
    assert "run of 3 versions: +15.0% in total" in outputs[0].read_text()
    assert "second.csv | 8 µs |" in outputs[1].read_text()
    assert main(["compare", *files, "--chip", "h100", "-o", str(tmp_path / "trend.html")]) == 2
    assert "a page compares two reports" in capsys.readouterr().err


def test_idle_time_stands_where_its_size_puts_it_and_small_changes_are_counted() -> None:
    found = changes([version(step=1.0)], [version(step=20.0, matmul=0.501)])  # 18.999 s more idle time, 1 ms more in the product
    text = change_comment(found)
    slower = text[text.index("### Slower") :].split("###")[1]
    assert slower.splitlines()[2:4] == ["- idle time +19 s (250 ms → 19.25 s)", "- 1 op by less than 0.1% of the time each"]


def test_an_op_in_another_number_format_is_the_same_op() -> None:
    sides = [
        report(
            op(0, "dot.1", time, scope="attn", label=f"attn  dot 8×8×8 {format}", bytes={"hbm": size}),
            op(1, "add.1", 1.0, label=f"add {format}[8]"),
            op(2, f"copy.{time:g}", 1.0, label=f"copy {format}[8]{'' if format == 'bf16' else ' twice'}"),  # another op altogether
        )
        for format, time, size in (("bf16", 1.0, 100), ("fp32", 4.0, 200))
    ]
    found = {one.op: one for one in changes(sides[:1], sides[1:]).ops}
    assert found["attn: dot 8×8×8 fp32"].reasons[:2] == ("number format bf16 → fp32", "more bytes (+100%)")
    assert {name: one.matched for name, one in found.items()} == {
        "attn: dot 8×8×8 fp32": "both",
        "add fp32[8]": "both",
        "copy bf16[8]": "gone",
        "copy fp32[8] twice": "new",
    }


def test_ops_of_which_two_formats_are_gone_are_not_guessed() -> None:
    before = report(op(0, "a", 1.0, label="add bf16[8]"), op(1, "b", 1.0, label="add fp16[8]"))
    after = report(op(0, "c", 1.0, label="add fp32[8]"))
    assert sorted(one.matched for one in changes([before], [after]).ops) == ["gone", "gone", "new"]


def test_versions_of_one_folder_are_told_apart_below_the_axis() -> None:
    from roofline.render.plot.trend import trend_chart

    names = [f"/a/long/folder/of/runs/of/one/program/version_{number}.xplane.pb.gz" for number in (1, 2, 3)]
    ax = trend_chart(trend([[version()], [version(2.0)], [version(3.0)]], names))
    assert [text.get_text() for text in ax.get_xticklabels()] == ["version_1", "version_2", "version_3"]


def test_an_op_whose_shape_changed_is_the_same_op_in_rows_and_in_kinds() -> None:
    def version(batch: int, scope: str, **details: object) -> Report:
        label = f"{scope}  dot {batch}×8×8 bf16"
        return report(op(0, "dot.1", 1.0 * batch, scope=scope, label=label, work={"matrix/bf16": 10 * batch}, **details))

    found = compare(version(1, "attn"), version(2, "attn"))
    (row,), (kind,) = found.deltas, found.changes.ops
    assert (row.matched, row.change_s) == ("module and name", 1.0)
    assert (kind.matched, kind.seconds.change, kind.reasons[:2]) == ("both", 1.0, ("before: attn: dot 1×8×8 bf16", "more work (+100%)"))
    # With another scope and another shape the name alone, which compilers give again to other ops, says nothing.
    assert [delta.matched for delta in compare(version(1, "attn"), version(2, "mlp")).deltas] == ["new", "vanished"]
    assert [kind.matched for kind in changes([version(1, "attn")], [version(2, "mlp")]).ops] == ["new", "gone"]


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["", "f", "g"]), st.floats(0.001, 1000)), min_size=2, max_size=16))
def test_the_changes_by_kind_sum_to_those_op_by_op(ops: list[tuple[str, str, float]]) -> None:
    half = len(ops) // 2
    sides = [
        report(*(op(place, name, time, scope=scope, label=f"{scope}  {name}") for place, (name, scope, time) in enumerate(some)))
        for some in (ops[:half], ops[half:])
    ]
    found = compare(sides[0], sides[1])
    assert sum(kind.seconds.change for kind in found.changes.ops) == pytest.approx(found.change_s, abs=1e-6)


def test_both_views_of_a_comparison_are_per_step_on_one_device() -> None:
    def run(time_s: float) -> Report:
        # Two steps on each of two devices.
        return report(
            op(0, "a", 4 * time_s, count=4),
            input=InputInfo(format="xspace", devices=tuple(Device(id=number, name="chip") for number in (0, 1))),
            steps=tuple(Step(step=number, time_s=time_s) for number in (0, 1)),
            by_step=tuple(StepShare(op=0, step=number, count=2, time_s=2 * time_s) for number in (0, 1)),
            by_device=tuple(DeviceShare(op=0, device=number, count=2, time_s=2 * time_s) for number in (0, 1)),
        )

    found = compare(run(1.0), run(3.0))
    (row,), (kind,) = found.deltas, found.changes.ops
    assert (found.per, found.before.time_s, found.after.time_s) == ("step", 1.0, 3.0)
    assert (row.change_s, kind.seconds.change, kind.launches.after) == (2.0, 2.0, 1)
