"""Samples that come with the package: each is there, is read, and is what its name says."""

from pathlib import Path

import pytest

import roofline as rl
from roofline.errors import SourceError
from roofline.sources.samples import SAMPLES, sample


@pytest.mark.parametrize(("name", "form", "ops"), [("train", "xspace", 231), ("counters", "table", 44)])
def test_every_sample_is_read_by_its_name(name: str, form: str, ops: int) -> None:
    recording = rl.read(f"sample:{name}")
    assert (recording.format, len(recording.workload)) == (form, ops)
    assert set(SAMPLES) == {"train", "counters"}


def test_the_tests_hold_no_second_copy() -> None:
    assert (Path(__file__).parent / "data" / "h200" / "jax_train.xplane.pb.gz").samefile(sample("train"))


def test_a_wrong_name_is_answered_with_the_right_one() -> None:
    with pytest.raises(SourceError, match="no sample named 'trian'; did you mean 'train'"):
        rl.read("sample:trian")
    with pytest.raises(SourceError, match="there are train, counters"):
        rl.read("sample:")
