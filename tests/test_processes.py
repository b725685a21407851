"""The files of a run read by several processes: the same parts, and what goes wrong in a helper is one line about its file."""

from pathlib import Path

import pytest

from roofline.errors import MissingExtra, SourceError
from roofline.sources import processes
from roofline.sources.files import files_of
from roofline.sources.parts import Part
from roofline.sources.processes import _Helper, answer_of, part_of, read_in_processes
from roofline.sources.reading import Reading
from roofline.sources.xspace.recording import read_part

HOW = Reading(module="xspace.recording", shared=True)


def test_helpers_read_what_the_first_process_reads(run_folder: Path) -> None:
    told = []
    with _Helper() as helper:
        for file in files_of([str(run_folder)]):
            assert helper.read(file, HOW, lambda done, total: told.append((done, total))) == read_part(file, shared=True)
    assert all(0 <= done <= total for done, total in told)


def test_a_helper_that_is_killed_is_one_line_about_its_file(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What the kernel does to a process that takes too much memory.
    monkeypatch.setattr(processes, "_PROGRAM", "import os, sys; sys.stdin.buffer.read(1); os.kill(os.getpid(), 9)")
    with _Helper() as helper, pytest.raises(SourceError, match=r"host1.xplane.pb: the process reading it was killed.*memory.*--jobs 1"):
        helper.read(str(run_folder / "host1.xplane.pb"), HOW, None)


def test_a_helper_that_cannot_start_is_one_line_about_its_file(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_PROGRAM", "raise SystemExit(7)")
    with _Helper() as helper, pytest.raises(SourceError, match=r"host1.xplane.pb: .* ended with status 7"):
        helper.read(str(run_folder / "host1.xplane.pb"), HOW, None)


def test_where_no_other_process_can_be_started_one_does_it_all(
    run_folder: Path, parts: list[Part], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> None:
        raise OSError("Resource temporarily unavailable")

    monkeypatch.setattr(processes, "_Helper", refused)
    assert read_in_processes(files_of([str(run_folder)]), HOW, jobs=4) == parts


def test_errors_travel_as_what_they_are() -> None:
    # An exception whose arguments are not its message cannot be pickled and made again.
    missing = MissingExtra("fsspec", "remote")
    with pytest.raises(MissingExtra, match=r"^fsspec is not installed; run: pip install 'roofline\[remote\]'$"):
        part_of(("refused", (type(missing), str(missing))))
    with pytest.raises(SourceError, match=r"nowhere.xplane.pb: no such file"):
        part_of(answer_of("nowhere.xplane.pb", HOW))


def test_a_mistake_of_ours_in_a_helper_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> Part:
        raise ZeroDivisionError("of ours")

    monkeypatch.setattr(processes, "read_file", broken)
    with pytest.raises(RuntimeError, match=r"(?s)host.pb: Traceback.*in broken.*of ours"):
        part_of(answer_of("host.pb", HOW))


def test_memory_that_runs_out_in_a_helper_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> Part:
        raise MemoryError

    monkeypatch.setattr(processes, "read_file", full)
    with pytest.raises(SourceError, match=r"host.pb: out of memory"):
        part_of(answer_of("host.pb", HOW))
