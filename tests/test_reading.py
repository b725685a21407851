"""The files of a run, read one after the other or by several processes: the same parts, and what goes wrong is one line about its file."""

import shutil
from pathlib import Path

import pytest

from roofline.errors import MissingExtra, SourceError
from roofline.hlo.read import proto
from roofline.machines import load
from roofline.sources import pool
from roofline.sources.files import files_of
from roofline.sources.parts import Part
from roofline.sources.pool import read_in_processes
from roofline.sources.reading import Reading, read_here
from roofline.sources.xspace import modules
from roofline.sources.xspace.recording import read_part
from roofline.workers import Worker, answer_of, result_of

DATA = Path(__file__).parent / "data"
HOW = Reading(module="xspace.recording", shared=True)


def test_a_program_that_several_hosts_run_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [shutil.copy(DATA / "h200" / "jax_fusion.xplane.pb", tmp_path / f"host{number}.xplane.pb") for number in range(3)]
    apart = [read_part(file, shared=True) for file in files]
    parsed: list[bytes] = []
    parse = proto.parse_proto
    monkeypatch.setattr(proto, "parse_proto", lambda data, where: parsed.append(data) or parse(data, where))
    assert read_here(files, HOW) == apart
    assert len(parsed) == len(set(parsed)) > 0
    # A program that is the same but for its network is priced again.
    together: modules.Known = {}
    for target in (None, load("tpu-v5e")):
        read_part(files[0], target, shared=True, known=together)
    assert len(together) == 2 * len(set(parsed))


def test_progress_covers_all_files_and_never_exceeds_them(run_folder: Path, parts: list[Part]) -> None:
    files = files_of([str(run_folder)])
    told: list[tuple[int, int]] = []
    for read in (read_here, lambda *words: read_in_processes(*words, jobs=2)):
        told.clear()
        assert read(files, HOW, lambda done, total: told.append((done, total))) == parts
        assert {total for _, total in told} == {sum(Path(file).stat().st_size for file in files)}
        assert all(0 <= done <= total for done, total in told)
        assert max(done for done, _ in told) > told[0][1] // 2


def test_a_worker_that_is_killed_or_out_of_memory_is_one_line_about_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    with Worker() as worker:
        worker.kill()
        with pytest.raises(
            SourceError, match=r"host1.pb: while reading it the process was killed by SIGKILL, .* memory; try --read jobs=1"
        ):
            pool._read_by(worker, "host1.pb", HOW, None)
        monkeypatch.setattr(worker, "call", lambda *_, **__: bytearray(2**62))
        with pytest.raises(SourceError, match=r"host1.pb: out of memory while reading it; try --read jobs=1"):
            pool._read_by(worker, "host1.pb", HOW, None)


def test_errors_travel_as_what_they_are() -> None:
    # An exception whose arguments are not its message cannot be pickled and made again.
    missing = MissingExtra("fsspec", "remote")
    with pytest.raises(MissingExtra, match=r"^fsspec is not installed; run: pip install 'roofline\[remote\]'$"):
        result_of(("refused", (type(missing), str(missing))))
    with pytest.raises(SourceError, match=r"nowhere.xplane.pb: no such file"):
        result_of(answer_of(pool.read_next, "nowhere.xplane.pb", HOW))
    with pytest.raises(RuntimeError, match=r"(?s)Traceback.*ZeroDivisionError"):
        result_of(answer_of(lambda: 1 // 0))
