"""Small recordings of devices and hosts, one decision each: what is read of them is what was approved, figures and reasons beside it."""

from pathlib import Path

from every import every
from recordings import FOLDER, recordings, text_of


@every("name", recordings())
def test_a_recording_is_read_as_was_approved(name: str) -> None:
    assert text_of(name) == (FOLDER / f"{name}.txt").read_text(), f"if it is meant: python tests/recordings.py {name}"


def test_every_text_has_its_recording() -> None:
    assert {path.stem for path in Path(FOLDER).glob("*.txt")} == recordings().keys()
