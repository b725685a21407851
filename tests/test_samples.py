"""Samples that come with the package: each is there, is read, and is what its name says."""

from pathlib import Path

import pytest

import roofline as rl
from every import every
from roofline.cli import main
from roofline.errors import SourceError
from roofline.sources.samples import SAMPLES, sample


@every(("name", "form", "ops"), [("train", "xspace", 231), ("counters", "table", 44)])
def test_every_sample_is_read_by_its_name(name: str, form: str, ops: int) -> None:
    recording = rl.read(f"sample:{name}")
    assert (recording.format, len(recording.workload)) == (form, ops)
    assert set(SAMPLES) == {"train", "counters"}


@pytest.mark.parametrize("words", [["compare", "sample:train"], ["analyze", "--read", "cache=kept"]])
def test_commands_take_a_sample_where_they_take_a_path(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*words, "sample:train"]) == 0


def test_a_cluster_is_not_asked_to_read_a_sample(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", "sample:train", "--read", "cluster=tcp://127.0.0.1:1"]) == 2
    assert "sample:train: not a profile; a cluster reads profiles only" in capsys.readouterr().err


def test_the_tests_hold_no_second_copy() -> None:
    assert (Path(__file__).parent / "data" / "h200" / "jax_train.xplane.pb.gz").samefile(sample("train"))


def test_a_wrong_name_is_answered_with_the_right_one() -> None:
    with pytest.raises(SourceError, match="no sample named 'trian'; did you mean 'train'"):
        rl.read("sample:trian")
    with pytest.raises(SourceError, match="known: train, counters"):
        rl.read("sample:")
