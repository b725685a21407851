"""The package's TOML, parsed when it is built: the same tables, and never those of a text that has changed."""

import tomllib
from pathlib import Path

import pytest

from roofline.machines import toml

TEXT = 'title = "a"\n[[compute]]\nrate = "1 FLOP/s"\nothers = [{ rate = 2.5 }]\n'


@pytest.fixture
def parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the parsed files that these tests may break."""
    file = tmp_path / "parsed.bin"
    monkeypatch.setattr(toml, "PARSED", file)
    toml._parsed.cache_clear()
    yield file
    toml._parsed.cache_clear()


def refuse(*_: object) -> None:
    raise AssertionError("parsed again")


def test_every_file_and_every_head_is_kept_as_it_parses(parsed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toml.write_parsed(parsed)
    files = sorted(Path(toml.HERE).rglob("*.toml"))
    texts = [text for file in files for whole in [file.read_text(encoding="utf-8")] for text in (whole, toml.head_of(whole))]
    expected = [tomllib.loads(text) for text in texts]
    monkeypatch.setattr(tomllib, "loads", refuse)
    assert [toml.parse(text) for text in texts] == expected
    assert len(files) > 60


def test_a_text_that_has_changed_is_parsed(parsed: Path) -> None:
    toml.write_parsed(parsed)
    text = Path(toml.HERE, "chips", "tpu-v6e.toml").read_text(encoding="utf-8")
    changed = text.replace('rate = "918 TFLOP/s"', 'rate = "919 TFLOP/s"', 1)
    assert len(changed) == len(text)
    assert toml.parse(changed)["compute"][0]["rate"] == "919 TFLOP/s"


@pytest.mark.parametrize("content", [None, b"", b"not marshal", b"\xe3", b"{"])
def test_without_the_parsed_file_or_with_a_damaged_one_texts_are_parsed(parsed: Path, content: bytes | None) -> None:
    if content is not None:
        parsed.write_bytes(content)
    assert toml.parse(TEXT) == {"title": "a", "compute": [{"rate": "1 FLOP/s", "others": [{"rate": 2.5}]}]}


def test_what_one_reader_changes_the_next_does_not_see(parsed: Path) -> None:
    toml.write_parsed(parsed)
    text = Path(toml.HERE, "limits.toml").read_text(encoding="utf-8")
    toml.parse(text).clear()
    assert toml.parse(text)
