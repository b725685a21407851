"""Throughput: tokens, samples or requests a second, from how many a step handles."""

from pathlib import Path

import msgspec
import pytest

import roofline as rl
from every import every
from roofline.analysis.throughput import with_throughput
from roofline.cli import main
from roofline.report import Device

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="module")
def report() -> rl.Report:
    return rl.analyze("sample:train")


def test_the_average_and_each_step_have_it(report: rl.Report) -> None:
    found = with_throughput(report, {"tokens": 8192})
    average = next(point for point in found.points if point.scope == "average")
    assert average.time_s is not None
    told = average.throughput["tokens"]
    assert told.per_s == told.per_device_s == pytest.approx(8192 / average.time_s)
    assert told.per_chip_hour == pytest.approx(told.per_s * 3600)
    assert all(point.throughput for point in found.points if point.scope == "step")
    assert found.total is not None
    assert found.total.throughput == {}  # the run has more than steps
    assert f"{291:,},000 tokens/s, 1.05 billion per chip-hour." in found.summary


def test_on_several_devices_and_chips_of_two_it_is_shared(report: rl.Report) -> None:
    devices = tuple(Device(id=n, name="") for n in range(4))
    pair = msgspec.structs.replace(report.machine, devices_per_chip=2)
    many = msgspec.structs.replace(report, input=msgspec.structs.replace(report.input, devices=devices), machine=pair)
    told = next(point for point in with_throughput(many, {"samples": 8}).points if point.scope == "average").throughput["samples"]
    assert (told.per_device_s, told.per_chip_hour) == (pytest.approx(told.per_s / 4), pytest.approx(told.per_s / 2 * 3600))
    assert "samples/s, 70.9 per device" in with_throughput(many, {"samples": 8}).summary


def test_a_program_that_did_not_run_has_an_upper_bound() -> None:
    found = rl.analyze(DATA / "hlo" / "attention.hlo.gz", per_step={"requests": 2})
    assert found.total is not None
    assert found.total.throughput["requests"].per_s > 0
    assert "At most " in found.summary


def test_a_run_without_steps_says_so_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ops.csv").write_text("name,time,hbm\ncopy,1 ms,1 GB\n")
    assert main(["analyze", str(tmp_path / "ops.csv"), "--chip", "h100", "--per-step", "tokens=8"]) == 2
    err = capsys.readouterr().err
    assert "throughput per step needs steps" in err
    assert err.count("\n") == 1


@every("word", ["tokens", "tokens=", "=8", "tokens=many", "tokens=0", "tokens=-1", "tokens=inf", "tokens=8 GB", "a b=3"])
def test_wrong_values_are_one_line(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", "sample:train", f"--per-step={word}"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert f"--per-step {word}: " in err


def test_the_command_takes_prefixes_and_several_words(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    assert main(["analyze", "sample:train", "--per-step", "tokens=8Ki", "--per-step", "samples=8", "--json", str(file)]) == 0
    written = rl.analyze(file)
    average = next(point for point in written.points if point.scope == "average")
    assert average.time_s is not None
    assert average.throughput["tokens"].per_s == pytest.approx(8192 / average.time_s)
    assert average.throughput["samples"].per_s == pytest.approx(8 / average.time_s)
    assert "tokens/s" in written.summary
    assert "samples/s" in written.summary


def test_compare_has_both_sides(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "sample:train", "sample:train", "--per-step", "tokens=8k"]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("tokens/s"))
    assert row.split() == ["tokens/s", "283,755", "283,755", "same"]  # 8000 in 28.1933 ms
