"""The package's TOML, parsed when it is built: the same tables, and never those of a text that has changed."""

import importlib
import marshal
import shutil
import tomllib
from pathlib import Path

import pytest

from roofline.machines import toml

chips = importlib.import_module("roofline.machines.catalogue")  # the package has a function of that name

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


@pytest.mark.parametrize("content", [None, b"", b"not marshal", b"\xe3", b"{", marshal.dumps({})])
def test_without_the_parsed_file_or_with_a_damaged_one_texts_are_parsed(parsed: Path, content: bytes | None) -> None:
    if content is not None:
        parsed.write_bytes(content)
    assert toml.parse(TEXT) == {"title": "a", "compute": [{"rate": "1 FLOP/s", "others": [{"rate": 2.5}]}]}


def test_what_one_reader_changes_the_next_does_not_see(parsed: Path) -> None:
    toml.write_parsed(parsed)
    text = Path(toml.HERE, "limits.toml").read_text(encoding="utf-8")
    toml.parse(text).clear()
    assert toml.parse(text)


def test_a_name_is_found_without_reading_every_chip(parsed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toml.write_parsed(parsed, chips.named())
    toml._parsed.cache_clear()  # the names came from the texts
    monkeypatch.setattr(chips, "_index", refuse)
    assert chips._find("NVIDIA H200") == ("h200-sxm", False)
    assert chips._find("TPU v5 lite") == ("tpu-v5e", False)
    assert chips._find("h100") == ("h100-sxm", True)  # a family, of which this is the usual member


def test_a_name_that_moved_since_the_package_was_built_is_looked_up_again(
    parsed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toml.write_parsed(parsed, chips.named())
    toml._parsed.cache_clear()  # the names came from the texts
    folder = tmp_path / "chips"
    shutil.copytree(chips.CHIPS, folder)
    old, new = folder / "h200-sxm.toml", folder / "renamed.toml"
    monkeypatch.setattr(chips, "CHIPS", str(folder))
    chips._index.cache_clear()
    try:
        shutil.move(old, new)
        assert chips._find("NVIDIA H200") == ("renamed", False)
        chips._index.cache_clear()
        old.write_text(new.read_text(encoding="utf-8").replace("NVIDIA H200", "NVIDIA H2OO"), encoding="utf-8")
        new.unlink()
        assert chips._find("NVIDIA H2OO") == ("h200-sxm", False)
        assert chips._find("NVIDIA H200") == (None, False)
    finally:
        chips._index.cache_clear()
