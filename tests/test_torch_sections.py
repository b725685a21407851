"""Large traces read by several processes: the same as one process reads, whatever the file looks like."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from roofline.errors import SourceError
from roofline.sources.torch_trace.read import chunks, reading, sections
from roofline.sources.torch_trace.read.sections import sections_of
from roofline.sources.torch_trace.recording import merge, read_part
from torch_writer import training

EVENTS = training(6, distributedInfo={"rank": 3}).events
OPEN = b'{"schemaVersion": 1, "record_shapes": 1, "traceEvents": '
FORMS = {
    "as Kineto writes": OPEN + json.dumps(EVENTS, indent=2).encode() + b',\n"distributedInfo": {"rank": 3, "world_size": 4}}',
    "on one line": OPEN + json.dumps(EVENTS, separators=(",", ":")).encode() + b"}",
    "a bare list": json.dumps(EVENTS).encode(),
}


@pytest.fixture(autouse=True)
def small_sections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sections, "LEAST_BYTES", 4000)
    monkeypatch.setattr(reading, "cores", lambda: 3)


def in_this_process(monkeypatch: pytest.MonkeyPatch) -> list[sections.Section]:
    """Workers that are not processes; the sections that they read."""
    asked: list[sections.Section] = []

    def here(given: list[sections.Section], read_here: sections.Read, read_there: sections.Read) -> Iterator[reading.Trace | None]:
        asked.extend(given[1:])
        yield read_here(given[0])
        yield from map(read_there, given[1:])

    monkeypatch.setattr(reading, "read_sections", here)
    return asked


@pytest.mark.parametrize("form", FORMS)
def test_sections_make_up_the_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(FORMS[form])
    asked = in_this_process(monkeypatch)
    together = merge([read_part(path)])
    assert len(asked) == 2  # this process reads the first one
    assert together == merge([read_part(path, shared=True)])  # one of several files is read by one process
    assert together.coverage.priced_s == together.coverage.busy_s


@pytest.mark.parametrize("form", FORMS)
def test_sections_of_a_gzipped_trace_make_up_the_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 1000)  # of which a section has several
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(FORMS[form]))
    asked = in_this_process(monkeypatch)
    together = merge([read_part(path)])
    assert [type(one) for one in asked] == [sections.PackedSection] * 2
    assert together == merge([read_part(path, shared=True)])


def test_other_processes_read_the_other_sections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(FORMS["as Kineto writes"])
    assert len(sections_of(path, path.stat().st_size, 2)) == 2
    found = reading._read_sections(str(path), sections_of(path, path.stat().st_size, 2), path.stat().st_size, None)
    assert found is not None
    assert found.head.distributed == {"rank": 3, "world_size": 4}  # said behind the events
    alone = reading.read_trace(path).columns
    assert (len(found.columns.host), len(found.columns.launches), len(found.columns.device)) == tuple(
        map(len, (alone.host, alone.launches, alone.device))
    )
    assert set(found.columns.names) == set(alone.names)


def test_what_is_odd_is_left_to_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.json"
    whole = FORMS["on one line"]
    in_this_process(monkeypatch)
    path.write_bytes(whole[:-40])
    with pytest.raises(SourceError, match="truncated"):
        read_part(path)
    assert any("truncated" in note for note in read_part(path, salvage=True).notes)
    middle = whole.index(b'"name":"', len(whole) // 2) + 8
    path.write_bytes(whole[:middle] + b'"quoted" ' + whole[middle:])
    assert any("not valid" in note for note in read_part(path).notes)
    assert sections_of(path, 7999, 2) == []  # too small for two
