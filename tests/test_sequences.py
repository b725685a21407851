"""Findings that share ops, or need one another: in which order their changes are made, and what each needs of a program."""

from pathlib import Path

import pytest

import roofline as rl
from every import every
from roofline.analysis.findings.order import in_sequence
from roofline.render.text import predicted_text, sequence_text
from roofline.report import Finding, Predicted, PredictedOp
from roofline.rules.words.needs import Missing, needs
from savings import assert_savings_fit

DATA = Path(__file__).parent / "data"
CAPTURES = sorted([*(DATA / "h200").glob("*.xplane.pb*"), *(DATA / "recordings").glob("*.xplane.pb.gz")])
DTYPE, FLASH = "dtype bf16", "kernel attention=flash"


def predicted(change: str, before_s: float, time_s: float, after: str = "", **ops: float) -> Predicted:
    changed = tuple(PredictedOp(op=int(name[2:]), time_s=seconds, flops=0, hbm=0) for name, seconds in ops.items())
    return Predicted(change=change, after=after, before_s=before_s, time_s=time_s, low_s=0.9 * time_s, high_s=1.1 * time_s, ops=changed)


def finding(kind: str, saving_s: float, *ops: int, predicted: Predicted | None = None) -> Finding:
    return Finding(kind=kind, message=kind, ops=ops, saving_s=saving_s, saving_per_step_s=saving_s, predicted=predicted)


def test_changes_are_made_one_after_the_other() -> None:
    # bf16 halves ops 0 and 1: 95 to 62 ms; then flash attention takes 26 more; then what op 1 loses has halved as well: 5 of 10 ms.
    wide = finding("wide-format", 0.020, 0, predicted=predicted(DTYPE, 0.095, 0.062, op0=0.02, op1=0.01))
    stored = finding("stored-attention", 0.034, 2, predicted=predicted(FLASH, 0.062, 0.036, DTYPE, op2=0.004))
    copies = finding("layout-copies", 0.010, 1)
    told = in_sequence([stored, wide, copies], [DTYPE, FLASH], 0.095, [0.04, 0.02, 0.03])
    assert [round(one.then_s or 0, 6) for one in told] == [0.036, 0.062, 0.031]
    assert sequence_text(told) == "One after the other: 1. wide-format to 62 ms, 2. stored-attention to 36 ms, 3. layout-copies to 31 ms"


def test_a_change_that_needs_one_which_no_finding_names_brings_both() -> None:
    stored = finding("stored-attention", 0.01, 2, predicted=predicted(FLASH, 0.062, 0.036, DTYPE))
    assert in_sequence([stored], [FLASH], 0.095, [0.0] * 3)[0].then_s == pytest.approx(0.036)


def test_savings_never_sum_to_more_than_the_time() -> None:
    told = in_sequence([finding("idle-sync", 0.06), finding("padding", 0.05), finding("memory", 0.01)], [], 0.1, [])
    assert [one.then_s for one in told] == [pytest.approx(0.04), 0.0, 0.0]


def test_one_finding_is_no_sequence() -> None:
    assert sequence_text(in_sequence([finding("padding", 0.05), finding("unrated", 0)], [], 0.1, [])) == ""


def test_a_change_after_another_says_so() -> None:
    text = predicted_text(finding("stored-attention", 0.01, predicted=predicted(FLASH, 0.062, 0.036, DTYPE)))
    assert text.startswith("after dtype bf16, kernel attention=flash (roofline whatif): 62 ms to 36 ms predicted")


def test_levers_say_what_comes_first() -> None:
    need = needs()["attention kernel"]
    both = Missing((need.first, need.padded), need.change)
    assert both.before(["flash"]) == ("after casting to bf16 and with heads padded to a multiple of 8: flash",)
    assert Missing().before(["flash"]) == ("flash",)


@every("path", CAPTURES)
def test_savings_of_a_capture_fit_into_its_time(path: Path) -> None:
    """Of those of PyTorch's profiler in `test_torch_cases.py`."""
    assert_savings_fit(rl.analyze(path))
