"""Names that come from a file are data: they move no cursor, run in no spreadsheet and are not paths."""

import json
import re
import sys
from pathlib import Path

import msgspec
import pytest

import roofline
from roofline.cli import main
from roofline.errors import UNSAFE, clean
from roofline.render.export import to_csv
from roofline.render.screen import report_text
from roofline.render.tables import Paper
from roofline.report import Report

DATA = Path(__file__).parent / "data"
EVIL = "\x1b[8m\u202e"  # hides what follows, and turns it round
FROM_FILES = ("name", "module", "scope", "location", "label", "message", "notes", "host", "hosts", "files", "title", "summary", "category")


def with_evil_names(value: object, key: str = "") -> object:
    if isinstance(value, dict):
        return {name: with_evil_names(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [with_evil_names(inner, key) for inner in value]
    return EVIL + value if isinstance(value, str) and key in FROM_FILES else value


def test_no_name_reaches_a_coloured_terminal_as_an_escape() -> None:
    report = roofline.analyze(DATA / "h200" / "jax_scan.xplane.pb.gz")
    evil = msgspec.convert(with_evil_names(json.loads(msgspec.json.encode(report))), Report)
    printed = clean(report_text(evil, Paper(width=120, colour=True), 20), styled=True)
    assert "[8m" in printed  # the names are there
    assert "\x1b[8m" not in printed
    assert "\u202e" not in printed


@pytest.mark.parametrize("option", ["--json", "--csv"])
def test_data_on_a_terminal_is_cleaned_and_elsewhere_exact(
    tmp_path: Path, option: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ops.csv").write_text(f"name,time,hbm\n{EVIL}copy,1 ms,1 MB\n", encoding="utf-8")
    words = ["analyze", str(tmp_path / "ops.csv"), "--chip", "h200", option, "-"]
    assert main(words) == 0
    assert "\u202ecopy" in capsys.readouterr().out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "copy" in printed
    assert clean(printed) == printed


def test_no_cell_and_no_header_of_a_csv_is_a_formula() -> None:
    starts = ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1")
    text = to_csv([{"=header": start} for start in starts])
    assert text.splitlines()[0] == "'=header"
    assert text.count("'") == 1 + len(starts)


def test_every_unsafe_character_is_cleaned_and_no_other() -> None:
    """Text that Python calls printable is not searched: no unsafe character may be among it."""
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    assert not any(character.isprintable() for character in re.findall(UNSAFE, every))
    assert clean("\u202eµs → 3\n") == "·µs → 3\n"
