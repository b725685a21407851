"""Large JSON is read in pieces, so that Ctrl-C is answered, and says the same as read at once."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import roofline
from every import every
from roofline.checking.baselines import baseline_of
from roofline.errors import SourceError
from roofline.report import Report
from roofline.sources import json_pieces, table_columns
from roofline.sources.baseline_json import read_baseline, write_baseline
from roofline.sources.json_pieces import decode
from roofline.sources.report_json import read_report

ODD = ['"', '\\"', "\\", "\\\\", "],[", '{"ops": [', "}", "\u4e2d", "a\\\\\\", ""]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Makes documents of these many bytes large."""

    def set_sizes(size: int) -> None:
        for name, factor in (("BLOCK_BYTES", 1), ("PIECE_BYTES", 4), ("LARGE_BYTES", 16)):
            monkeypatch.setattr(json_pieces, name, factor * size)

    return set_sizes


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A report on a few hundred ops with odd names."""
    table = tmp_path_factory.mktemp("pieces") / "ops.json"
    table.write_text(json.dumps([{"name": f"{number}{ODD[number % len(ODD)]}", "time": 1e-3, "bytes": 1e6} for number in range(300)]))
    found: dict[str, Any] = json.loads(roofline.to_json(roofline.analyze(table, "h100")))
    return found


@every("size", [1_000, 1_777, 9_999, 60_000])
@every("indent", [None, 1])
def test_a_report_in_pieces_is_the_report(document: dict[str, Any], size: int, indent: int | None, small: Callable[[int], None]) -> None:
    small(size)
    data = json.dumps({"more": [[ODD] * 9] * 50, **document, "later": [ODD] * 500}, indent=indent).encode()
    assert decode(data, Report) == msgspec.json.decode(data, type=Report)


def test_strings_of_backslashes_and_quotes_are_told_from_structure(small: Callable[[int], None], document: dict[str, Any]) -> None:
    small(100)
    source = random.Random(5)
    for _ in range(60):
        names = ["".join(source.choices('\\"[]{},a', k=source.randrange(12))) for _ in range(150)]
        data = json.dumps({"input": document["input"], "machine": document["machine"], "changes": names}).encode()
        json_pieces.LARGE_BYTES = len(data)
        assert decode(data, Report).changes == tuple(names)


def test_a_baseline_in_pieces_is_the_baseline(tmp_path: Path, document: dict[str, Any], small: Callable[[int], None]) -> None:
    path = tmp_path / "baseline.json"
    write_baseline(path, baseline_of(msgspec.convert(document, Report)))
    whole = read_baseline(path)
    small(500)
    assert len(whole.ops) > 100
    assert read_baseline(path) == whole


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"changes": [' + '"a",' * 3_000 + "]}", "JSON is malformed: "),
        ('{"changes": [' + '"a",' * 3_100 + " " * 900 + "]}", "a comma without an item after it"),
        ('{"changes": [' + '"a",' * 3_000 + "," * 900 + '"a"]}', "JSON is malformed: "),
        ('{"ops": [' + "[]," * 900 + "[]}", "a value of more than 1,600 bytes"),
        ('{"ops": [' + "1," * 9_000 + "1]}", "Expected `object`, got `int`"),
        ('{"input": [' + "1," * 9_000 + "1]}", "a value of more than 1,600 bytes"),
        ('{"ops": [[' + "1," * 9_000 + "1]]}", "a value of more than 1,600 bytes"),
        ('{"x": "' + "a" * 9_000, "a value of more than 1,600 bytes"),
    ],
)
def test_a_large_report_that_is_none_is_refused(tmp_path: Path, text: str, said: str, small: Callable[[int], None]) -> None:
    small(100)
    path = tmp_path / "report.json"
    path.write_text(text)
    with pytest.raises(SourceError, match=f"not a roofline report: .*{said}"):
        read_report(path)


@pytest.mark.parametrize("text", ["[" + "1," * 9_000 + "1]", '["' + "}" * 9_000 + '"]', "[" + '{"a": 1},' * 50 + '"' + "b" * 9_000 + '"]'])
def test_a_large_table_without_rows_is_refused_before_it_is_read(tmp_path: Path, text: str, small: Callable[[int], None]) -> None:
    small(100)
    path = tmp_path / "rows.json"
    path.write_text(text)
    with pytest.raises(SourceError, match="not a table: 1,600 bytes of JSON without the end of a row"):
        table_columns.columns_of(path)


def test_a_large_table_with_rows_is_read(tmp_path: Path, small: Callable[[int], None]) -> None:
    small(100)
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([{"name": name, "time": 1} for name in ODD * 100]))
    assert len(table_columns.columns_of(path)["name"]) == 1_000


def test_no_call_reads_more_than_a_few_pieces_of_a_large_report(
    tmp_path: Path, document: dict[str, Any], small: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    small(2**16)
    path = tmp_path / "report.json"
    path.write_text(json.dumps(document | {"ops": document["ops"] * 40}))
    sizes: list[int] = []
    monkeypatch.setattr(json_pieces, "_checked_size", lambda piece: (sizes.append(len(piece)), piece)[1])
    assert len(read_report(path).ops) == 40 * len(document["ops"])
    assert max(sizes) < 2 * json_pieces.PIECE_BYTES < path.stat().st_size / 10
