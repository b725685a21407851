"""Savings of findings: device-seconds, and what the clock of the run would show."""

from pathlib import Path

import pytest

from roofline.analysis import analyze
from roofline.render.text import findings_text
from toys import toy

# One op, 100 B at 10 B/s each time: 10 s at least in each of two steps on each of two devices, where it takes 20 s. Memory-bound ops
# reach 90% of the bandwidth, so that 20 − 10/0.9 s can be won each time.
EACH = 20 - 10 / 0.9
ROWS = "".join(f"copy,{step},{device},20,100,0\n" for step in (1, 2) for device in (0, 1))
TWO_DEVICES = f"name,step,device,time,hbm,matrix/bf16\n{ROWS}"


def test_a_saving_is_given_in_device_seconds_per_device_and_per_step(tmp_path: Path) -> None:
    (tmp_path / "ops.csv").write_text(TWO_DEVICES)
    finding = analyze(tmp_path / "ops.csv", toy()).findings[0]
    assert finding.saving_s == pytest.approx(4 * EACH)
    assert finding.saving_per_device_s == pytest.approx(2 * EACH)  # in each of two steps
    assert finding.saving_per_step_s == pytest.approx(EACH)
    assert findings_text((finding,)).splitlines()[1].startswith(" 1. saves about 8.9 s per step: ")


def test_time_outside_of_steps_is_not_saved_in_them(tmp_path: Path) -> None:
    (tmp_path / "ops.csv").write_text(TWO_DEVICES + "copy,,0,20,100,0\ncopy,,1,20,100,0\n")
    finding = analyze(tmp_path / "ops.csv", toy()).findings[0]
    assert (finding.saving_per_device_s, finding.saving_per_step_s) == (pytest.approx(3 * EACH), pytest.approx(EACH))


def test_on_one_device_without_steps_there_is_one_figure(tmp_path: Path) -> None:
    (tmp_path / "ops.csv").write_text("name,time,hbm,matrix/bf16\ncopy,20,100,0\n")
    finding = analyze(tmp_path / "ops.csv", toy()).findings[0]
    assert (finding.saving_s, finding.saving_per_device_s, finding.saving_per_step_s) == (pytest.approx(EACH), pytest.approx(EACH), None)
    assert findings_text((finding,)).splitlines()[1].startswith(" 1. saves about 8.9 s: ")
