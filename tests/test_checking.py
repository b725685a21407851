"""Budgets: conditions on a report, baselines, and messages that name the cause."""

from pathlib import Path

import pytest
from msgspec.structs import replace

import roofline as rl
from every import every
from roofline.analysis.budgets import check_change, read_conditions
from roofline.checking import Check
from roofline.checking.baselines import baseline_of
from roofline.checking.conditions import parse_conditions
from roofline.checking.finding_causes import BYTES, DISTANCE, KERNELS, MEMORY
from roofline.errors import UsageError
from roofline.grouping.op_filter import filtered
from roofline.peak_memory import PeakMemory
from roofline.render.budgets import broken_text, check_text, without_repeated_causes
from roofline.render.export import to_json
from roofline.report import Finding, OpInfo, Point, Report
from roofline.rules.words import kinds
from roofline.sources.baseline_json import read_baseline, write_baseline
from test_comparison import op, report


def program(**details: object) -> Report:
    """Two ops of 3 and 1 FLOP, 20 and 10 B, with minimum times of 2 and 1 s."""
    return report(
        op(
            0,
            "dot.1",
            None,
            2.0,
            work={"matrix/bf16": 3},
            bytes={"hbm": 20},
            scope="layer0/attn",
            label="layer0/attn  dot 2×2 bf16",
            category="matmul",
        ),
        op(
            1,
            "fusion.7",
            None,
            1.0,
            work={"matrix/bf16": 1},
            bytes={"hbm": 10},
            scope="layer0/mlp",
            label="layer0/mlp  add 2",
            category="loop fusion",
        ),
        **details,
    )


def run() -> Report:
    point = Point(scope="total", time_s=10.0, mfu=0.5, lost={"idle": 1.0})
    return report(op(0, "a", 6.0, 3.0, excess_s=0.2, bound="hbm"), op(1, "b", 3.0, 3.0, excess_s=0.0, bound="matrix"), points=(point,))


@every(
    ("condition", "holds"),
    [
        ("flops == 4 FLOP", True),
        ("hbm of layer*/attn <= 20 B", True),
        ("hbm of layer*/attn < 20 B", False),
        ("hbm of layer*/attn > 60%", True),  # 20 of 30 B
        ("hbm of (category:fusion or attn) = 30 B", True),
        ("launches <= 1", False),
        ("fusions = 1", True),
        ("minimum time <= 3 s and ops = 2", True),
        ("peak memory < 70 GB", True),
        ("no finding dense-experts", True),
        ("no wide-format", False),
        ("no findings", False),
        ("intensity < 0.2 FLOP/B", True),  # 4 FLOP over 30 B
    ],
)
def test_conditions_on_a_program(condition: str, holds: bool) -> None:
    found = program(
        memory=PeakMemory(peak_bytes=10**9 * 60, method="x"), findings=(Finding(kind="wide-format", message="widens", ops=(0,)),)
    )
    assert rl.check(found, condition).holds is holds


@every(
    ("condition", "holds"),
    [
        ("mfu > 45%", True),
        ("step < 9 s", False),
        ("excess < 5%", True),
        ("excess < 1%", False),
        ("idle <= 10%", True),
        ("time of bound=hbm < 50%", False),
    ],
)
def test_conditions_on_a_run(condition: str, holds: bool) -> None:
    assert rl.check(run(), condition).holds is holds


def test_what_was_not_measured_cannot_be_told() -> None:
    (found,) = rl.check(program(), "step < 30 ms").checks
    assert (found.holds, found.measured) == (None, True)
    assert "no measured times" in check_text(found)
    assert rl.check(program(), "hbm of nowhere* < 3 B").holds is None


def test_a_baseline_keeps_amounts_by_what_ops_are(tmp_path: object) -> None:
    path = f"{tmp_path}/baseline.json"
    conditions = parse_conditions("hbm of layer*/attn <= 1.1x baseline")
    write_baseline(path, rl.baseline(program(), conditions))
    kept = read_baseline(path)
    assert kept.quantities["hbm of layer*/attn"] == 20
    assert [row.op for row in kept.ops] == ["layer0/attn: dot 2×2 bf16", "layer0/mlp: add 2"]
    assert "dot.1" not in Path(path).read_text()
    assert rl.check(
        program(), ["hbm of layer*/attn <= 1.1x baseline", "flops == baseline", "minimum time <= baseline"], baseline=path
    ).holds


def test_growth_since_the_baseline_names_the_op() -> None:
    more = program()
    grown = report(*more.ops, op(2, "copy.9", None, 1.0, bytes={"hbm": 15}, label="layer0/mlp  copy 4", scope="layer0/mlp"))
    (found,) = rl.check(grown, "hbm <= 1.1x baseline", baseline=rl.baseline(program())).broken
    assert (found.found, found.allowed, found.baseline) == (45, pytest.approx(33), 30)
    assert [part.label for part in found.ops] == ["layer0/mlp: copy 4"]
    assert check_text(found).startswith(
        "hbm <= 1.1x baseline: found 45 B, allowed at most 33 B (baseline 30 B); ops: layer0/mlp: copy 4 (new, +15 B)"
    )


def test_a_baseline_that_is_missing_is_an_error() -> None:
    with pytest.raises(UsageError, match="needs a baseline"):
        rl.check(program(), "flops == baseline")


@every(
    ("text", "said"),
    [
        ("stp < 3 ms", "at 'stp' (character 1): no such quantity; did you mean 'step'?"),
        ("step < 3 mss", "at '3 mss' (character 8)"),
        ("step", "no comparison"),
        ("hbm of bogus>3 < 3 GB", "at 'bogus>3' (character 8): unknown field"),
        ("hbm of (attn or bogus:x) < 3 GB", "at 'bogus:x' (character 17): unknown field"),  # the word, not the whole filter
        ("flops of lop:x < 3 GFLOP", "at 'lop:x' (character 10)"),  # not the 'lop' of 'flops'
        ("hbm of step:3 < 3 GB", "at 'step:3' (character 8): step is a field of the page only"),
        ("hbm of (attn < 3 GB", "at '(attn' (character 8): the parenthesis is not closed"),
        ('hbm of "attn < 3 GB', "at '\"attn' (character 8): the quote is not closed"),
        ("hbm of < 3 GB", "at 'of' (character 5): nothing after it"),
        ("expected step on < 3 ms", "at 'on' (character 15): nothing after it"),
        ("expected step on h10 < 3 ms", "at 'h10': no machine named 'h10'; did you mean 'h100-sxm'?"),
        ("step < 3 ms and", "at 'and' (character 13): nothing after it"),
        ("and step < 3 ms", "at 'and' (character 1): nothing before it"),
        ("step < 3 ms and and run < 3 ms", "at 'and' (character 17): nothing before it"),
        ("step < 3 ms or mfu > 3%", "at 'or' (character 13): conditions are joined by 'and'"),
        ("step < 3 ms < 4 ms", "at '<' (character 13): one comparison is enough"),
        ("hbm of a < 3 GB or mfu > 3%", "at '<' (character 10): one comparison is enough"),
        ("hbm of a and b < 3 GB", "goes into parentheses"),
        ("flops == basline", "at 'basline' (character 10): 'basline' is not an amount; did you mean 'baseline'?"),
        ("step < inf s", "at 'inf s' (character 8): not a finite amount"),
        ("mfu > 45", "at '45' (character 7): mfu is a ratio, 1 is 100%; write '45%' or '4,500%'"),  # else it would never hold
        ("excess < 5", "at '5' (character 10): write '5%' of the step, or a time like '5 ms'"),  # else it would always hold
        ("no finding dense-expert", "did you mean 'dense-experts' or 'dense-gradient'?"),
        ("hbm < 3 ms", "is in s, not in B"),
        ("step < 5%", "step is a total, which has no percentage"),
        ("step on h100 < 5 ms", "expected step on h100"),
    ],
)
def test_errors_point_at_the_word(text: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        rl.check(run(), text)
    assert said in str(error.value)


def test_another_chip_is_analysed_for() -> None:
    from roofline.machines import load

    ops = rl.price([rl.formulas.matmul(4096, 4096, 4096)], load("v5e"))
    slow, fast = (rl.check(ops, f"expected step on {chip} < 1 s").checks[0].found for chip in ("a100", "h100"))
    assert slow is not None
    assert fast is not None
    assert slow > fast > 0


def test_the_filter_is_that_of_the_page() -> None:
    ops = run().ops
    for text, names in {
        "bound=hbm": "a",
        "-a": "b",
        "time>50%": "a",
        "efficiency>=0.5": "ab",
        "/^A$/i or b": "ab",
        "category=none": "ab",
    }.items():
        assert "".join(one.name for one in filtered(ops, text)) == names


@every("file", ["sample:train", "gone.xplane.pb"])
def test_ops_keep_their_labels_on_another_chip(file: str) -> None:
    # With the file it is predicted anew, without it from the report's own ops.
    found = rl.analyze("sample:train")
    kept = replace(found, input=replace(found.input, files=(file,)))
    (one,) = rl.check(kept, "expected step on h100 < 1 ms").broken
    assert one.ops[0].label in ("jax_programs.py:38  dot 32000×8192×2048 bf16", "jax_programs.py:38  dot 8192×2048×32000 bf16")


def test_a_cause_is_told_once() -> None:
    def broken(*causes: str) -> Check:
        return Check(condition="launches <= 3", holds=False, found=4, allowed=3, operator="<=", causes=causes)

    found = [one.causes for one in without_repeated_causes([broken("cast"), broken("cast"), broken(), broken("cast", "less fusion")])]
    assert found == [("cast",), ("as above",), (), ("less fusion",)]


@every("text", ["step < 3 s, and run < 3 s", "step < 3 s; and run < 3 s", "step < 3 s and run < 3 s;", "step < 3 s,\nrun < 3 s"])
def test_conditions_are_joined_as_people_write_them(text: str) -> None:
    assert [one.text for one in parse_conditions(text)] == ["step < 3 s", "run < 3 s"]


@every(
    ("condition", "causes"),
    [
        ("flops < 1 FLOP", ["padding"]),  # a wide format does not add FLOP, and waiting adds neither FLOP nor bytes
        ("hbm < 1 B", ["wide-format", "padding"]),
        ("minimum time < 1 s", ["wide-format", "padding"]),
        ("launches < 1", ["idle-dispatch"]),
        ("step < 1 s", ["idle-dispatch", "wide-format", "padding"]),
        ("mfu > 90%", ["idle-dispatch", "wide-format", "padding"]),
        ("time of a < 1 s", ["wide-format", "padding"]),  # the time of ops has no waiting in it
        ("idle < 1%", ["idle-dispatch"]),
        ("hbm of b < 1 B", []),  # of other ops
    ],
)
def test_only_findings_about_the_quantity_are_its_cause(condition: str, causes: list[str]) -> None:
    about = {"idle-dispatch": (), "wide-format": (0,), "padding": (0,), "memory": (0, 1)}
    findings = tuple(Finding(kind=kind, message=kind, ops=ops) for kind, ops in about.items())
    ops = tuple(op(id, name, 4.0, 2.0, work={"matrix/bf16": 5}, bytes={"hbm": 20}) for id, name in enumerate("ab"))
    found = report(*ops, points=(Point(scope="total", time_s=10.0, mfu=0.5, lost={"idle": 2.0}),), findings=findings)
    (one,) = rl.check(found, condition).checks
    assert [cause.partition(":")[0] for cause in one.causes] == causes


def test_every_kind_of_cause_is_a_kind_of_finding() -> None:
    assert {*DISTANCE, *BYTES, *KERNELS, *MEMORY} <= set(kinds())


def test_the_cause_of_too_long_a_step_is_what_would_save_most_wherever_it_is() -> None:
    far = Finding(kind="products", message="matmuls at 24%", saving_s=4.0, ops=(1,))
    waits = Finding(kind="idle-sync", message="the host waits", saving_s=0.3)  # less than a tenth of the largest saving
    slow = replace(run(), findings=(far, waits))
    assert [one.causes for one in rl.check(slow, "mfu > 90% and time < 1 s").checks] == [("products: matmuls at 24%",)] * 2
    (idle,) = rl.check(slow, "idle < 1%").checks
    assert idle.causes == ("idle-sync: the host waits",)
    (since,) = rl.check(slow, "mfu > 90%", baseline=rl.baseline(run())).checks  # a distance to the roofline is no change
    assert since.causes == ("idle-sync: the host waits",)


def test_ops_with_one_label_are_one_entry() -> None:
    ops = [op(id, f"fusion.{id}", None, 1.0, bytes={"hbm": 10}, label="layers  add bf16[8]") for id in range(3)]
    other = op(3, "dot", None, 1.0, bytes={"hbm": 20}, label="dot 8×8×8 bf16")
    widens = Finding(kind="wide-format", message="widens", ops=(2,))  # of the third of them, which is not shown by itself
    found = rl.check(report(*ops, other, findings=(widens,)), "hbm < 1 B and launches < 1")
    by_bytes, by_launches = (check_text(one) for one in found.checks)
    assert "ops: layers  add bf16[8] (30 B in 3 ops), dot 8×8×8 bf16 (20 B); why: wide-format" in by_bytes
    assert "ops: layers  add bf16[8] (3), dot 8×8×8 bf16 (1)" in by_launches
    assert "layers  add bf16[8] (3 ops)  30 B" in broken_text(found.checks)


def test_memory_of_pytorch_is_not_said_to_lack_donation() -> None:
    memory = PeakMemory(peak_bytes=10, arguments=6, outputs=4, method="x")
    said = {}
    for format in ("jax", "torch"):
        found = program(memory=memory)
        (one,) = rl.check(replace(found, input=replace(found.input, format=format)), "peak memory < 1 B").checks
        said[format] = one.causes
    assert said == {"jax": ("arguments 6 B, outputs 4 B; no argument is donated",), "torch": ("arguments 6 B, outputs 4 B",)}


def test_what_fell_since_the_baseline_is_named_too() -> None:
    smaller = report(program().ops[0])  # without the addition of 1 FLOP
    (one,) = rl.check(smaller, "flops == baseline", baseline=rl.baseline(program())).checks
    said = "flops == baseline: found 3 FLOP, allowed exactly 4 FLOP (baseline 4 FLOP); ops: layer0/mlp: add 2 (gone, −1 FLOP)"
    assert check_text(one) == said
    assert "layer0/mlp: add 2    1 FLOP  gone  −1 FLOP" in broken_text([one])
    assert one.ops[0].id is None


def test_ops_outside_of_a_filter_are_not_called_gone() -> None:
    conditions = parse_conditions("flops of attn > 2x baseline")
    (one,) = rl.check(program(), conditions, baseline=rl.baseline(program(), conditions)).checks
    assert [part.label for part in one.ops] == ["layer0/attn  dot 2×2 bf16"]


def test_figures_that_look_the_same_are_told_apart() -> None:
    many = report(op(0, "dot", None, 1.0, work={"matrix/bf16": 3_229_089}))
    (one,) = rl.check(many, "flops == 3229088 FLOP").checks
    assert check_text(one).startswith("flops == 3229088 FLOP: found 3,229,089 FLOP, allowed exactly 3,229,088 FLOP; ops: dot")


def step_of(time_s: float, *ops: OpInfo, **details: object) -> Report:
    return report(*ops, points=(Point(scope="average", time_s=time_s, lost={"idle": 0.0}), Point(scope="total", time_s=time_s)), **details)


def test_a_step_that_waits_longer_names_the_waiting_and_no_op() -> None:
    conditions = parse_conditions("step <= 1.05x baseline")
    dot, copy = op(0, "dot", 1.0, label="dot 8×8×8 bf16"), op(1, "copy", 0.1, label="copy bf16[8]")
    kept = baseline_of(step_of(1.1, dot), conditions)
    waits = Finding(kind="idle-sync", message="The device is idle 2 s.")
    (one,) = rl.check(step_of(3.5, dot, copy, findings=(waits,)), conditions, baseline=kept).checks
    assert one.causes == ("idle time: 2.4 s of the step, 100 ms in the baseline", "idle-sync: The device is idle 2 s")
    assert one.ops == ()  # the new copy of 0.1 s is not why
    (slow,) = rl.check(step_of(3.5, replace(dot, time_s=3.4)), conditions, baseline=kept).checks
    assert [part.label for part in slow.ops] == ["dot 8×8×8 bf16"]
    assert not any("idle" in cause for cause in slow.causes)


def test_a_product_in_more_kernels_does_not_run_more_often() -> None:
    before = report(op(0, "mm", 1.0, label="mm 8x8, 8x8 bf16", work={"matrix/bf16": 1024}, count=4, kernels=4))
    split = report(
        op(0, "mm", 3.0, label="mm 8x8, 8x8 fp32", work={"matrix/bf16": 1024}, count=4, kernels=8)
    )  # a product, and the sum of its parts
    more = report(op(0, "mm", 3.0, label="mm 8x8, 8x8 bf16", work={"matrix/bf16": 2048}, count=8, kernels=16))
    said = {}
    for name, later in (("split", split), ("more", more)):
        (one,) = rl.check(later, "launches <= baseline", baseline=rl.baseline(before)).checks
        said[name] = [cause for cause in one.causes if cause.startswith("more matrix work")]
    assert said == {"split": [], "more": ["more matrix work: mm 8x8, 8x8 bf16 runs 8 times, 4 in the baseline"]}


def test_an_earlier_report_is_a_baseline_and_limits_are_those_of_a_comparison(tmp_path: Path) -> None:
    (point,) = run().points
    earlier = run()
    slower = tuple(replace(op, time_s=1.1 * op.time_s) for op in earlier.ops if op.time_s)
    later = replace(earlier, ops=slower, points=(replace(point, time_s=11.0),))  # a tenth more
    file = tmp_path / "before.json"
    file.write_bytes(to_json(earlier))
    for limit, holds in (("time +5%", False), ("time +11%", True), ("mfu -1%", True), ("launches +0%", True), ("hbm > baseline", False)):
        (compared,) = check_change([earlier], [later], read_conditions(limit, "run")).checks  # without steps
        for baseline in (earlier, file, str(file)):
            (found,) = rl.check(later, limit, baseline=baseline).checks
            assert (found.holds, found.found, found.allowed) == (holds, compared.found, compared.allowed), limit
