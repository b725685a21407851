"""Training steps that were published, compiled for their slices: the predicted step beside the published one."""

from pathlib import Path

import pytest

import roofline as rl
from roofline.cli import main
from roofline.render.program_facts import program_facts

DATA = Path(__file__).parent / "data" / "tpu" / "steps"
# The program, its slice, the published step in seconds, and the peak of HBM that the compiler states. README.md there has the sources.
STEPS = (
    ("decoder_32b_v5e_16x16", "v5e:16x16", 12.12, 12_901_421_568),
    ("decoder_16b_v5e_16x16", "v5e:16x16", 10.28, 9_701_551_104),
    ("decoder_32b_v5p_4x4x4", "v5p:4x4x4", 7.30, 94_812_310_176),
    ("decoder_22b_v4_4x4x4", "v4:4x4x4", 26.81, 31_316_185_600),
    ("decoder_64b_v5e_16x16", "v5e:16x16", 13.44, 13_771_655_680),
    ("decoder_64b_v5p_4x4x4", "v5p:4x4x4", 7.37, 97_844_421_792),
)


def test_the_predicted_step_is_within_11_per_cent_and_half_of_them_within_5_of_the_published_one() -> None:
    errors = []
    for name, chip, published_s, peak_bytes in STEPS:
        report = rl.analyze(DATA / f"{name}.hlo.gz", chip)
        assert report.predicted is not None
        assert report.predicted.time_s == pytest.approx(published_s, rel=0.11)
        assert report.predicted.low_s < published_s < report.predicted.high_s
        assert report.predicted.time_s == pytest.approx(sum(op.self_time_s or 0.0 for op in report.ops), abs=1e-6)  # core + waits
        assert report.memory is not None
        assert report.memory.peak_bytes == pytest.approx(peak_bytes, rel=0.01)
        errors.append(abs(report.predicted.time_s / published_s - 1))
    assert sorted(errors)[2] < 0.05  # the third of six


def test_a_budget_limits_what_a_step_waits_for(capsys: pytest.CaptureFixture[str]) -> None:
    program = str(DATA / "decoder_32b_v5p_4x4x4.hlo.gz")
    report = rl.analyze(program, "v5p:4x4x4")
    assert report.predicted is not None
    share = sum(op.exposed_s for op in report.ops) / report.predicted.time_s
    assert main(["check", program, "--chip", "v5p:4x4x4", "--require", f"exposed < {share + 0.01:.2%}"]) == 0
    assert main(["check", program, "--chip", "v5p:4x4x4", "--require", f"exposed < {share - 0.01:.2%}"]) == 3
    assert "broken: exposed" in capsys.readouterr().out


def test_the_memory_of_a_step_is_told_by_what_it_is_for() -> None:
    memory = rl.analyze(DATA / "decoder_32b_v5e_16x16.hlo.gz", "v5e:16x16").memory
    assert memory is not None
    by_owner = {row.owner: row.bytes for row in memory.owners}
    assert by_owner["activations"] == 32 * 4 * 2048 * 8192 * 2  # of each layer its input in bf16, for four sequences
    assert by_owner["optimizer"] == 2 * by_owner["weights"]  # two moments
    assert by_owner["gradients"] == pytest.approx(by_owner["weights"], rel=0.02)  # those of layers; both in float32
    assert sum(by_owner.values()) - by_owner["gaps"] == memory.peak_bytes
    (layers,) = [layer for row in memory.owners for layer in row.layers if layer.layers > 1]
    assert (layers.layers, layers.bytes) == (32, by_owner["activations"])


def test_the_memory_of_a_step_has_a_course() -> None:
    report = rl.analyze(DATA / "decoder_32b_v5e_16x16.hlo.gz", "v5e:16x16")
    assert report.memory is not None
    assert report.predicted is not None
    course = report.memory.over_step
    assert max(moment.bytes for moment in course) == report.memory.peak_bytes
    assert course[0].bytes < 0.7 * report.memory.peak_bytes  # the stacks of gradients come after the forward pass
    assert [moment.begin_s for moment in course] == sorted(moment.begin_s for moment in course)
    assert len(course) == 100
    assert course[-1].begin_s == pytest.approx(0.99 * report.predicted.time_s)
    assert "over step" in dict(program_facts(report))
