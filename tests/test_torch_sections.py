"""Large traces read by several processes: the same as one process reads, whatever the file looks like."""

import gzip
import json
import subprocess
import sys
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
    monkeypatch.setattr(sections, "LEAST_FORKED_BYTES", 4000)
    monkeypatch.setattr(sections, "AHEAD_BYTES", 1000)
    monkeypatch.setattr(sections, "may_fork", lambda: False)
    monkeypatch.setattr(reading, "cores", lambda: 3)


def in_this_process(monkeypatch: pytest.MonkeyPatch) -> list[sections.Section]:
    """Helpers that are not processes; the sections that they read."""
    asked: list[sections.Section] = []

    class Here(sections.Helper):
        def __init__(self, section: sections.Section) -> None:
            asked.append(section)
            self.read = reading.read_section(section)

        def answer(self) -> reading.Trace | None:
            return self.read

        def end(self) -> None:
            pass

    monkeypatch.setattr(sections, "Helper", Here)
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


@pytest.mark.parametrize("processors", [2, 3, 4])
def test_however_long_imports_take_this_process_reads_a_section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processors: int) -> None:
    monkeypatch.setattr(sections, "AHEAD_BYTES", 10**9)  # as if a helper could read all of it meanwhile
    path = tmp_path / "trace.json"
    path.write_bytes(FORMS["on one line"])
    found = sections_of(path, path.stat().st_size, processors)
    assert len(found) == processors
    assert all(one.end > one.begin for one in found)
    assert found[0].end < found[1].end - found[1].begin  # which has less to do


def test_a_gzipped_trace_that_is_cut_off_is_left_to_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.json.gz"
    in_this_process(monkeypatch)
    path.write_bytes(gzip.compress(FORMS["on one line"])[:-8])
    with pytest.raises(SourceError, match="truncated"):
        read_part(path)
    # The size at its end may be anything: of a file of several members it is that of the last one.
    first, last = FORMS["on one line"][:9000], FORMS["on one line"][9000:]
    path.write_bytes(gzip.compress(first) + gzip.compress(last))
    assert merge([read_part(path)]) == merge([read_part(path, shared=True)])


def test_other_processes_read_the_other_sections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.json"
    monkeypatch.setattr(sections, "may_fork", lambda: False)
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


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads of a process are told by Linux alone")
def test_the_process_is_copied_before_it_has_threads_and_its_copy_reads_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(FORMS["on one line"])
    program = f"""if True:
        import os
        from roofline.sources.torch_trace import recording
        from roofline.sources.torch_trace.read import reading, sections
        sections.LEAST_FORKED_BYTES, sections.AHEAD_BYTES, reading.cores = 4000, 1000, lambda: 2
        copy, copies = os.fork, []
        os.fork = lambda: copies.append(copy()) or copies[-1]
        found = recording.read_part({str(path)!r})
        alone = recording.read_part({str(path)!r}, shared=True)
        print(len(copies), recording.merge([found]) == recording.merge([alone]))
    """
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "1 True\n"


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
